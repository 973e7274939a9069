//! The correlation filter: touches of one chunk that follow each other closely are one visit. Otherwise thirty-two
//! 4 KiB requests that walk through a chunk would make it look hot.

use std::time::Duration;

use crate::env::Instant;
use crate::units::ChunkId;

/// Chunks remembered.
const ENTRIES: usize = 4096;
/// Small touches within this time of a counted one are the same visit.
const WINDOW: Duration = Duration::from_secs(2);
/// The same for a touch of half a chunk or more: such a request does not come back for the rest of the chunk, so a
/// repetition is a visit of its own. (A re-read of 256 MiB comes round in less than [`WINDOW`].)
const WINDOW_LARGE: Duration = Duration::from_millis(200);

/// Hash-indexed array of the chunks counted last.
pub(super) struct Correlation {
    entries: Box<[(ChunkId, Instant)]>,
}

impl Correlation {
    pub(super) fn new() -> Correlation {
        Correlation { entries: vec![(ChunkId(u64::MAX), Instant(0)); ENTRIES].into_boxed_slice() }
    }

    /// Whether the touch is a new visit; if so it is remembered.
    pub(super) fn counts(&mut self, c: ChunkId, large: bool, now: Instant) -> bool {
        let e = &mut self.entries[(hash(c.0) as usize) % ENTRIES];
        let window = if large { WINDOW_LARGE } else { WINDOW };
        if e.0 == c && now.since(e.1) < window {
            return false;
        }
        *e = (c, now);
        true
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
    fn small_touches_within_the_window_are_one_visit() {
        let mut f = Correlation::new();
        assert!(f.counts(ChunkId(7), false, at(0)));
        assert!(!f.counts(ChunkId(7), false, at(10)));
        assert!(f.counts(ChunkId(8), false, at(11)));
        assert!(!f.counts(ChunkId(7), false, at(1999)));
        assert!(f.counts(ChunkId(7), false, at(2000)));
    }

    #[test]
    fn a_large_request_that_comes_again_counts_again() {
        let mut f = Correlation::new();
        assert!(f.counts(ChunkId(7), true, at(0)));
        assert!(!f.counts(ChunkId(7), true, at(10)));
        assert!(f.counts(ChunkId(7), true, at(200)));
    }
}
