//! Chunks whose move did not come off: each waits before it is tried again, longer every time.

use std::time::Duration;

use super::correlate::hash;
use crate::env::Instant;
use crate::units::ChunkId;

/// Chunks remembered.
const ENTRIES: usize = 1024;
/// First wait; it doubles with every further failure.
const FIRST: Duration = Duration::from_millis(500);
/// Doublings at most: the longest wait is 64 s.
const DOUBLINGS: u32 = 7;
/// Failures are forgotten so long after the wait.
const FORGET: Duration = Duration::from_secs(60);
/// Failures after which a chunk is not queued again by itself.
const TRIES: u32 = 3;

#[derive(Clone, Copy)]
struct Entry {
    chunk: ChunkId,
    failures: u32,
    not_before: Instant,
}

/// Hash-indexed array of the chunks that failed last.
pub(super) struct Backoff {
    entries: Box<[Entry]>,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        let none = Entry { chunk: ChunkId(u64::MAX), failures: 0, not_before: Instant(0) };
        Backoff { entries: vec![none; ENTRIES].into_boxed_slice() }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.entries)
    }

    /// Notes a failure. Whether the chunk should be queued again by itself.
    pub(super) fn failed(&mut self, c: ChunkId, now: Instant) -> bool {
        let e = &mut self.entries[hash(c.0) as usize % ENTRIES];
        // Failures are counted per place: two chunks that share one and fail in turn must not reset each other's count.
        if now > e.not_before.plus(FORGET) {
            e.failures = 0;
        }
        e.chunk = c;
        e.not_before = now.plus(FIRST * (1 << e.failures.min(DOUBLINGS)));
        e.failures = e.failures.saturating_add(1);
        e.failures <= TRIES
    }

    /// Whether the chunk has to wait still.
    pub(super) fn waits(&self, c: ChunkId, now: Instant) -> bool {
        let e = &self.entries[hash(c.0) as usize % ENTRIES];
        e.chunk == c && now < e.not_before
    }

    /// Forgets the failures of a chunk that was moved.
    pub(super) fn succeeded(&mut self, c: ChunkId) {
        let e = &mut self.entries[hash(c.0) as usize % ENTRIES];
        if e.chunk == c {
            e.chunk = ChunkId(u64::MAX);
            e.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_tries_end() {
        let mut b = Backoff::new();
        let c = ChunkId(3);
        let mut now = Instant(1);
        assert!(!b.waits(c, now));
        let mut again = 0;
        for i in 0..12u32 {
            again += u32::from(b.failed(c, now));
            let wait = FIRST * (1 << i.min(DOUBLINGS));
            assert!(b.waits(c, Instant(now.0 + wait.as_nanos() as u64 - 1)));
            now = now.plus(wait);
            assert!(!b.waits(c, now));
        }
        assert_eq!(again, TRIES);
        b.failed(c, now);
        b.succeeded(c);
        assert!(!b.waits(c, now));
    }
}
