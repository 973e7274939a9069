//! What Bimetal's engine does about moves beside its policy, in a replay:
//!
//! - A chunk that comes up keeps its slow slot while it is not written: its demotion moves nothing ([`Copies`]). The slow tier of a
//!   replay is never full, so no copy is dropped for room.
//! - A write that replaces a whole chunk of the slow tier goes where a new chunk would, while there is room beyond the reserve, or
//!   half of the reserve for a chunk that is wanted on the fast tier.
//!
//! Chunks that come up from what a client has just read are not here: they cost the disk nothing either, but are moves all the same.
//! Policies that do not sit in the engine copy each chunk both ways, as the systems do that they are known from.

use bimetal_volume::units::{Tier, CHUNK};

use super::piece::{Kind, Piece};
use super::seat::Seat;
use super::tiers::Tiers;

/// Chunks of the fast tier whose slow slot still holds the same data.
pub(super) struct Copies(Vec<bool>);

impl Copies {
    pub(super) fn new(chunks: u32) -> Copies {
        Copies(vec![false; chunks as usize])
    }

    /// A chunk came up from the slow tier.
    pub(super) fn keep(&mut self, chunk: u32) {
        self.0[chunk as usize] = true;
    }

    /// A chunk is written, discarded, or goes down; whether it had a copy.
    pub(super) fn end(&mut self, chunk: u32) -> bool {
        std::mem::take(&mut self.0[chunk as usize])
    }
}

/// Gives a chunk of the slow tier that is replaced a home on the fast one, if a new chunk would get it there.
pub(super) fn write_anew(seat: &mut impl Seat, tiers: &mut Tiers, p: &Piece) -> bool {
    let whole = p.kind == Kind::Write && u64::from(p.len) == CHUNK;
    if !whole || tiers.free() <= tiers.reserve() / 2 || seat.place(tiers, p) != Tier::Fast {
        return false;
    }
    if tiers.free() <= tiers.reserve() + tiers.reserve() / 4 && !seat.wants(tiers, p.chunk) {
        return false;
    }
    let came = tiers.set(p.chunk, Tier::Fast);
    if came {
        seat.written_anew(tiers, p.chunk);
    }
    came
}
