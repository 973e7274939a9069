//! Whole chunks that are written anew. A write that replaces a whole chunk of the slow tier needs nothing of what is
//! there, so it goes where a new chunk would go: to the fast tier while that has room beyond the reserve, or if the chunk is
//! wanted there. What a file system writes to blocks that it never trimmed is as new as any other data, and what is written
//! again and again comes up by itself, without a read and without a copy.
//!
//! Invariants:
//! 1. The old data stay the chunk's until the new ones are all there. Then the home changes in one step, before the
//!    write is answered (C1.2); after a crash before its commit the old data are found.
//! 2. From the choice of the slot to that step the chunk is in motion, under a claim on all of it: nobody else writes,
//!    trims or moves it.
//! 3. A write that fails changes nothing (C11.2); it is done again in place.
//! 4. Half of what should be free is left to chunks without a home, and half of the headroom (I5).
//! 5. All requests together hold at most half of the headroom in slots for chunks that are being written anew. A request keeps
//!    what it took while it waits for claims, and for slots of its other chunks. Counter-example to more: it has twenty, and
//!    waits for the claim of somebody who waits for a slot that was promised to him; the twenty were that.

use std::cell::Cell;

use bimetal_format::Entry;

use super::split::Part;
use super::write::home;
use crate::claim::Claimed;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::member::add;
use crate::mutant::{self, Mutant};
use crate::tier::Policy;
use crate::units::{ChunkId, Placement, SlotId, Tier, CHUNK};

/// A chunk that is being written anew. Given up when this is dropped, unless it has come home.
pub(super) struct Anew<'a, E: Env> {
    core: &'a Core<E>,
    chunk: ChunkId,
    /// Where the new data go.
    pub(super) slot: SlotId,
    encrypted: bool,
    done: Cell<bool>,
}

impl<E: Env> Anew<'_, E> {
    /// The new data are there: they are the chunk's from now on.
    pub(super) fn come_home(&self) {
        if self.done.replace(true) {
            return;
        }
        self.core.claims.end_motion(self.chunk);
        self.core.change_entry(self.chunk, home(self.slot, u32::MAX, self.encrypted));
        // As if it had been moved: that it is there is known, and it does not leave at once.
        self.core.policy.borrow_mut().moved(&mut self.core.view(), self.chunk, Tier::Fast);
        add(&self.core.mover.written_anew, 1);
    }
}

impl<E: Env> Drop for Anew<'_, E> {
    fn drop(&mut self) {
        self.core.mover.anew.set(self.core.mover.anew.get() - 1);
        if !self.done.get() {
            self.core.claims.end_motion(self.chunk);
            self.core.untake(self.slot, self.chunk);
        }
    }
}

impl<E: Env> Core<E> {
    /// Whether a part of a write may be written anew, if there is room: then its chunk's entry will change.
    pub(super) fn may_go_anew(&self, v: &VolumeInfo, part: &Part, e: &Entry) -> bool {
        let whole = part.len == CHUNK || mutant::on(Mutant::AnewOfPart);
        let slow = e.is_mapped() && self.tier_of_member(e.member) == Tier::Slow;
        whole && slow && v.placement == Placement::Auto && self.mover.moves()
    }

    /// A fast slot for a chunk that is replaced, if new data would go there now. Nothing is waited for.
    pub(super) fn begin_anew(&self, v: &VolumeInfo, part: &Part, claim: &Claimed<'_>) -> Option<Anew<'_, E>> {
        let fast = self.available(Tier::Fast, Placement::Auto);
        let free = fast + self.available(Tier::Slow, Placement::Auto);
        let keep_free = self.keep_free_slots();
        if fast <= keep_free / 2 || free <= self.headroom() / 2 || self.wish_for(v, part) != Tier::Fast {
            return None;
        }
        // What is not asked for again takes room that nobody needs: not what is kept for new chunks, nor the little more that the
        // mover frees.
        let spare = fast > keep_free + self.reserve_slots() / 4;
        if !spare && !self.policy.borrow_mut().wants(&mut self.view(), part.chunk) {
            return None;
        }
        let too_many = self.mover.anew.get() >= self.headroom() / 2 && !mutant::on(Mutant::AnewOfAny);
        if too_many || !self.claims.begin_motion_under(claim) {
            return None;
        }
        let still = self.standing_still();
        let after = self.mover.last_anew.get().and_then(|last| self.take_after(last, part.chunk, &still));
        let Some(slot) = after.or_else(|| self.take_slot(Tier::Fast, part.chunk, &still)) else {
            self.claims.end_motion(part.chunk);
            return None;
        };
        self.mover.last_anew.set(Some((part.chunk, slot)));
        add(&self.mover.anew, 1);
        let anew = Anew { core: self, chunk: part.chunk, slot, encrypted: v.cipher.is_on(), done: Cell::new(false) };
        // A write of unknown outcome may still reach it (C2.2): that is for those to wait for who need a slot.
        let tainted = self.members[slot.member as usize].is_tainted(slot.slot);
        if !tainted && mutant::on(Mutant::AnewAtSubmit) {
            anew.come_home();
        }
        (!tainted).then_some(anew)
    }
}
