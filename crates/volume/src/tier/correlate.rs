//! The correlation filter: touches of one chunk that follow each other closely are one visit. Otherwise thirty-two
//! 4 KiB requests that walk through a chunk would make it look hot.

use std::time::Duration;

use crate::env::Instant;
use crate::units::ChunkId;

/// Chunks remembered.
const ENTRIES: usize = 4096;
/// Touches within this time of a counted one are the same visit. On recorded traces anything from 100 to 500 ms does
/// equally well; with 2 s, chunks in heavy use are taken for less than they are.
const WINDOW: Duration = Duration::from_millis(200);
/// The same for touches that go on where others ended: a log grows through a chunk slowly.
const WINDOW_WALK: Duration = Duration::from_secs(2);

/// A visit that was counted.
#[derive(Clone, Copy)]
struct Counted {
    chunk: ChunkId,
    at: Instant,
    /// The run that it was part of; 0 for none.
    run: u32,
}

const NOBODY: Counted = Counted { chunk: ChunkId(u64::MAX), at: Instant(0), run: 0 };

/// Hash-indexed array of the chunks counted last.
pub(super) struct Correlation {
    entries: Box<[Counted]>,
}

impl Correlation {
    pub(super) fn new() -> Correlation {
        Correlation { entries: vec![NOBODY; ENTRIES].into_boxed_slice() }
    }

    /// Whether the touch, part of this run, is a new visit; if so it is remembered.
    pub(super) fn counts(&mut self, c: ChunkId, walks: bool, now: Instant, run: u32) -> bool {
        let e = &mut self.entries[(hash(c.0) as usize) % ENTRIES];
        let window = if walks { WINDOW_WALK } else { WINDOW };
        if e.chunk == c && now.since(e.at) < window {
            return false;
        }
        *e = Counted { chunk: c, at: now, run };
        true
    }

    /// Whether this run's visit of the chunk was counted, as far as it is known.
    pub(super) fn counted_in(&self, c: ChunkId, run: u32) -> bool {
        let e = &self.entries[(hash(c.0) as usize) % ENTRIES];
        e.chunk != c || e.run == run
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.entries)
    }

    /// Remembers a visit that was counted for another reason.
    pub(super) fn note(&mut self, c: ChunkId, now: Instant, run: u32) {
        self.entries[(hash(c.0) as usize) % ENTRIES] = Counted { chunk: c, at: now, run };
    }
}

/// Multiplicative hash: neighbours are spread evenly.
pub(super) fn hash(x: u64) -> u32 {
    (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    #[test]
    fn touches_within_the_window_are_one_visit() {
        let mut f = Correlation::new();
        assert!(f.counts(ChunkId(7), false, at(0), 1));
        assert!(!f.counts(ChunkId(7), false, at(10), 1));
        assert!(f.counts(ChunkId(8), false, at(11), 1));
        assert!(!f.counts(ChunkId(7), false, at(199), 1));
        assert!(f.counts(ChunkId(7), false, at(200), 1));
        assert!(!f.counts(ChunkId(7), false, at(399), 1));
    }

    #[test]
    fn it_is_known_which_run_was_counted() {
        let mut f = Correlation::new();
        assert!(f.counts(ChunkId(7), false, at(0), 5) && !f.counts(ChunkId(7), false, at(10), 6));
        assert!(f.counted_in(ChunkId(7), 5) && !f.counted_in(ChunkId(7), 6));
        f.note(ChunkId(7), at(20), 6);
        assert!(f.counted_in(ChunkId(7), 6) && f.counted_in(ChunkId(8), 6), "of others nothing is known");
    }

    #[test]
    fn a_walk_through_a_chunk_is_one_visit() {
        let mut f = Correlation::new();
        let counted = (0..20).filter(|i| f.counts(ChunkId(7), true, at(i * 100), 1)).count();
        assert_eq!(counted, 1);
        assert!(f.counts(ChunkId(7), true, at(2000), 1));
    }
}
