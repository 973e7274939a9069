//! Chunks that have just been moved: none goes back at once, so that two chunks of about the same heat do not change
//! places for ever (POLICY: hysteresis).

use std::time::Duration;

use super::correlate::hash;
use crate::env::Instant;
use crate::units::ChunkId;

/// Chunks remembered; a collision only loses the memory of one.
const ENTRIES: usize = 8192;
/// A chunk stays at least so long where it was moved to.
const STAY: Duration = Duration::from_secs(10);

/// Hash-indexed array of the chunks moved last, and until when they stay.
pub(super) struct Residence {
    entries: Box<[(ChunkId, Instant)]>,
}

impl Residence {
    pub(super) fn new() -> Residence {
        Residence { entries: vec![(ChunkId(u64::MAX), Instant(0)); ENTRIES].into_boxed_slice() }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.entries)
    }

    /// Notes that a chunk was moved.
    pub(super) fn moved(&mut self, c: ChunkId, now: Instant) {
        self.entries[hash(c.0) as usize % ENTRIES] = (c, now.plus(STAY));
    }

    /// Whether the chunk was moved a moment ago.
    pub(super) fn is_fresh(&self, c: ChunkId, now: Instant) -> bool {
        let (chunk, until) = self.entries[hash(c.0) as usize % ENTRIES];
        chunk == c && now < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_chunk_stays_for_a_while() {
        let mut r = Residence::new();
        assert!(!r.is_fresh(ChunkId(7), Instant(1)));
        r.moved(ChunkId(7), Instant(1));
        assert!(r.is_fresh(ChunkId(7), Instant(9_000_000_000)));
        assert!(!r.is_fresh(ChunkId(8), Instant(1)));
        assert!(!r.is_fresh(ChunkId(7), Instant(10_000_000_001)));
    }
}
