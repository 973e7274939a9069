//! What Bimetal's engine does about moves beside its policy, in a replay:
//!
//! - A chunk that comes up keeps its slow slot while it is not written: its demotion moves nothing ([`Copies`]). The slow tier of a
//!   replay is never full, so no copy is dropped for room.
//! - Chunks with a copy stand for a part of the reserve, and are let go for new data ([`reserve`]).
//! - A write that replaces a whole chunk of the slow tier goes where a new chunk would, while there is room beyond the reserve, or
//!   half of what should be free for a chunk that is wanted on the fast tier.
//!
//! Chunks that come up from what a client has just read are not here: they cost the disk nothing either, but are moves all the same.
//! Policies that do not sit in the engine copy each chunk both ways, as the systems do that they are known from.

use bimetal_volume::units::{Tier, CHUNK};

use super::piece::{Kind, Piece};
use super::seat::Seat;
use super::tiers::Tiers;

/// Chunks of the fast tier whose slow slot still holds the same data.
pub(super) struct Copies {
    of: Vec<bool>,
    count: u64,
}

impl Copies {
    pub(super) fn new(chunks: u32) -> Copies {
        Copies { of: vec![false; chunks as usize], count: 0 }
    }

    /// A chunk came up from the slow tier.
    pub(super) fn keep(&mut self, chunk: u32) {
        self.count += u64::from(!std::mem::replace(&mut self.of[chunk as usize], true));
    }

    /// A chunk is written, discarded, or goes down; whether it had a copy.
    pub(super) fn end(&mut self, chunk: u32) -> bool {
        let had = std::mem::take(&mut self.of[chunk as usize]);
        self.count -= u64::from(had);
        had
    }

    /// Whether a chunk has a copy.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.of[chunk as usize]
    }

    /// Chunks that have one.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

/// Gives a chunk of the slow tier that is replaced a home on the fast one, if a new chunk would get it there.
pub(super) fn write_anew(seat: &mut impl Seat, tiers: &mut Tiers, p: &Piece) -> bool {
    let whole = p.kind == Kind::Write && u64::from(p.len) == CHUNK;
    if !whole || tiers.free() <= tiers.keep_free() / 2 || seat.place(tiers, p) != Tier::Fast {
        return false;
    }
    if tiers.free() <= tiers.keep_free() + tiers.reserve() / 4 && !seat.wants(tiers, p.chunk) {
        return false;
    }
    let came = tiers.set(p.chunk, Tier::Fast);
    if came {
        seat.written_anew(tiers, p.chunk);
    }
    came
}
