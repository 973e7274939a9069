//! The correlation filter: touches of a chunk that come together are one visit.

use bimetal_sim::prng::mix;

/// Size and window. On the mean the baselines do better with this window than with 2 s.
const ENTRIES: usize = 4096;
const WINDOW_NS: u64 = 200_000_000;

/// The chunks that were counted last, and when.
pub(super) struct Filter {
    entries: Box<[(u64, u64)]>,
}

impl Filter {
    pub(super) fn new() -> Filter {
        Filter { entries: vec![(u64::MAX, 0); ENTRIES].into_boxed_slice() }
    }

    /// Whether a touch of the chunk counts as a visit; if so it is remembered.
    pub(super) fn counts(&mut self, chunk: u64, now_ns: u64) -> bool {
        let e = &mut self.entries[mix(chunk) as usize % ENTRIES];
        if e.0 == chunk && now_ns.saturating_sub(e.1) < WINDOW_NS {
            return false;
        }
        *e = (chunk, now_ns);
        true
    }
}
