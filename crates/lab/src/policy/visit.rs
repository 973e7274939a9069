//! The correlation filter: touches of a chunk that come together are one visit.

use bimetal_sim::prng::mix;
use bimetal_volume::units::CHUNK;

/// Size and windows: those of the engine.
const ENTRIES: usize = 4096;
const WINDOW_NS: u64 = 2_000_000_000;
const WINDOW_LARGE_NS: u64 = 200_000_000;

/// The chunks that were counted last, and when.
pub(crate) struct Filter {
    entries: Box<[(u64, u64)]>,
}

impl Filter {
    pub(crate) fn new() -> Filter {
        Filter { entries: vec![(u64::MAX, 0); ENTRIES].into_boxed_slice() }
    }

    /// Whether a touch of `len` bytes of the chunk counts as a visit; if so it is remembered.
    pub(crate) fn counts(&mut self, chunk: u64, len: u64, now_ns: u64) -> bool {
        let window = if len >= CHUNK / 2 { WINDOW_LARGE_NS } else { WINDOW_NS };
        let e = &mut self.entries[mix(chunk) as usize % ENTRIES];
        if e.0 == chunk && now_ns.saturating_sub(e.1) < window {
            return false;
        }
        *e = (chunk, now_ns);
        true
    }
}
