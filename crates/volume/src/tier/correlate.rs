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

/// Hash-indexed array of the chunks counted last.
pub(super) struct Correlation {
    entries: Box<[(ChunkId, Instant)]>,
}

impl Correlation {
    pub(super) fn new() -> Correlation {
        Correlation { entries: vec![(ChunkId(u64::MAX), Instant(0)); ENTRIES].into_boxed_slice() }
    }

    /// Whether the touch is a new visit; if so it is remembered.
    pub(super) fn counts(&mut self, c: ChunkId, walks: bool, now: Instant) -> bool {
        let e = &mut self.entries[(hash(c.0) as usize) % ENTRIES];
        let window = if walks { WINDOW_WALK } else { WINDOW };
        if e.0 == c && now.since(e.1) < window {
            return false;
        }
        *e = (c, now);
        true
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.entries)
    }

    /// Remembers a visit that was counted for another reason.
    pub(super) fn note(&mut self, c: ChunkId, now: Instant) {
        self.entries[(hash(c.0) as usize) % ENTRIES] = (c, now);
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
        assert!(f.counts(ChunkId(7), false, at(0)));
        assert!(!f.counts(ChunkId(7), false, at(10)));
        assert!(f.counts(ChunkId(8), false, at(11)));
        assert!(!f.counts(ChunkId(7), false, at(199)));
        assert!(f.counts(ChunkId(7), false, at(200)));
        assert!(!f.counts(ChunkId(7), false, at(399)));
    }

    #[test]
    fn a_walk_through_a_chunk_is_one_visit() {
        let mut f = Correlation::new();
        let counted = (0..20).filter(|i| f.counts(ChunkId(7), true, at(i * 100))).count();
        assert_eq!(counted, 1);
        assert!(f.counts(ChunkId(7), true, at(2000)));
    }
}
