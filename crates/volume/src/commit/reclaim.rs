//! From *left* to *free* (C2.1): the record that left the slot is durable on the fast members and, for a slow slot, in
//! that member's own journal; no I/O on the slot is in flight; its discard is done; no write of unknown outcome can
//! still reach it (C2.2).
//!
//! Slots are *untold* while their own member, a slow one, has not heard that their chunk left ([`super::telling`]), and else *ready*, for
//! as long as requests on them last. Untold ones are not looked at before their member has been told: a TRIM leaves millions of them.
//! For what is ready each member has a *lane* and a task of its own: one that does not answer for a minute, or at all, holds up no slot
//! of another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::discard::{Discards, DISCARD_SLOTS};
use super::Left;
use crate::env::Env;
use crate::group::core::Core;
use crate::member::{add, take_off, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, SlotIndex, Tier};
use crate::wait::{self, Signal};

/// Slots looked at before others have their turn.
const AT_ONCE: usize = 4096;

/// Slots of one member that nothing but requests on them keeps from being free.
#[derive(Default)]
pub(crate) struct Lane {
    ready: RefCell<Vec<Left>>,
    /// Slots taken off the lane and not free yet.
    busy: Cell<usize>,
    wake: Signal,
}

impl Lane {
    fn len(&self) -> usize {
        self.ready.borrow().len() + self.busy.get()
    }

    /// A slot is ready, or was told of.
    pub(super) fn add(&self, left: impl IntoIterator<Item = Left>) {
        self.ready.borrow_mut().extend(left);
        self.wake.notify();
    }
}

#[derive(Default)]
pub(crate) struct Reclaim {
    /// A slot has become free.
    pub(crate) freed: Signal,
    pub(super) discards: Discards,
}

impl<E: Env> Core<E> {
    /// A slot that no record has to leave becomes free when nothing can reach it any more.
    pub(crate) fn reclaim_slot(&self, slot: SlotId, chunk: ChunkId) {
        add(&self.members[slot.member as usize].on_the_way, 1);
        self.reclaim_later(vec![Left { slot, chunk }]);
    }

    /// These slots, which are counted already, are free as soon as they can be.
    pub(crate) fn reclaim_later(&self, left: Vec<Left>) {
        for l in left {
            match self.lags(&l) {
                true => self.member(&l).telling.add_untold(l),
                false => self.member(&l).lane.add([l]),
            }
        }
    }

    /// Slots that will become free, as far as no commit is needed for it. Of one that is lost none does that it has to hear of first.
    pub(crate) fn reclaiming(&self) -> usize {
        let coming = |m: &Member<E::Device>| match self.is_out_of_reach(m) {
            true => m.lane.len(),
            false => self.reclaiming_on(m),
        };
        self.members.iter().map(coming).sum()
    }

    /// The same, of one member.
    pub(crate) fn reclaiming_on(&self, m: &Member<E::Device>) -> usize {
        m.lane.len() + m.telling.untold()
    }

    /// The tasks of slots that were left look around, also those of members that have left: they end.
    pub(crate) fn wake_reclaimers(&self) {
        for m in self.members.rows() {
            m.lane.wake.notify();
            m.telling.wake();
        }
    }

    /// Begins to free the slots of a member.
    pub(crate) fn start_reclaiming(self: &Rc<Self>, member: MemberIndex) {
        let core = self.clone();
        self.env.spawn(async move { core.run_reclaimer(member).await });
    }

    /// The task of a member's lane.
    async fn run_reclaimer(&self, member: MemberIndex) {
        let m = &self.members[member as usize];
        while !self.stopped.get() && !self.health.is_latched() && !m.is_gone() {
            let wake = m.lane.wake.wait();
            let unpinned = self.claims.unpinned.wait();
            self.free_ready(m).await;
            let nothing_ready = m.lane.ready.borrow().is_empty();
            match nothing_ready {
                // Most requests end a pin.
                true => wake.await,
                false => wait::first(wake, unpinned).await,
            }
        }
    }

    fn member(&self, l: &Left) -> &Member<E::Device> {
        &self.members[l.slot.member as usize]
    }

    /// Frees what is ready and has no request on it.
    async fn free_ready(&self, m: &Member<E::Device>) {
        let ready = m.lane.ready.take();
        m.lane.busy.set(m.lane.busy.get() + ready.len());
        let mut first = true;
        for part in ready.chunks(AT_ONCE) {
            if !std::mem::take(&mut first) {
                wait::turn().await;
            }
            self.free_part(m, part).await;
        }
    }

    async fn free_part(&self, m: &Member<E::Device>, part: &[Left]) {
        let mut slots = Vec::new();
        for l in part {
            let lags = self.lags(l);
            if !lags && self.may_be_freed(l) {
                slots.push(l.slot.slot);
                continue;
            }
            m.lane.busy.set(m.lane.busy.get() - 1);
            match lags {
                true => m.telling.add_untold(*l),
                false => m.lane.ready.borrow_mut().push(*l),
            }
        }
        for part in slots.chunks(DISCARD_SLOTS) {
            self.discard_and_free(m, part.to_vec()).await;
            m.lane.busy.set(m.lane.busy.get() - part.len());
            // They are free now, or kept back, and those will not come.
            take_off(&m.on_the_way, part.len() as u64);
        }
    }

    fn may_be_freed(&self, l: &Left) -> bool {
        !self.claims.is_pinned(l.slot) || mutant::on(Mutant::C2FreeDuringRead)
    }

    /// Whether the slot's own member has not heard yet that its chunk left.
    fn lags(&self, l: &Left) -> bool {
        let m = self.member(l);
        m.tier == Tier::Slow && m.lag.borrow().contains_key(&l.chunk)
    }

    /// Syncs a member, so that nothing of unknown outcome can reach it any more. A lost one is not asked: that would latch the group,
    /// which may go on with what does not need it.
    pub(crate) async fn is_settled(&self, m: &Member<E::Device>) -> bool {
        !m.is_lost() && self.sync_member(m.index, m.sync.written()).await.is_ok()
    }

    async fn discard_and_free(&self, m: &Member<E::Device>, mut slots: Vec<SlotIndex>) {
        let member = m.index;
        let tainted = slots.iter().any(|s| m.is_tainted(*s));
        if tainted && !mutant::on(Mutant::C2NoQuarantine) && !self.is_settled(m).await {
            // Quarantine goes on until the next start: the member could not be synced.
            for slot in slots {
                self.quarantine.borrow_mut().push(SlotId { member, slot });
            }
            return;
        }
        slots.sort_unstable();
        if mutant::on(Mutant::C2FreeDuringDiscard) {
            self.give_slots(member, &slots);
        }
        let (slots, unsure) = self.discard_runs(m, &slots).await;
        if !unsure.is_empty() && !mutant::on(Mutant::C2DiscardUnsure) && !self.is_settled(m).await {
            self.quarantine.borrow_mut().extend(slots.into_iter().map(|slot| SlotId { member, slot }));
            return;
        }
        if !mutant::on(Mutant::C2FreeDuringDiscard) {
            self.give_slots(member, &slots);
        }
    }

    /// Slots of a tier beyond what is promised (I5): in all, and in this tier, to which some may be bound. And how many of them are kept
    /// back.
    fn spare(&self, tier: Tier) -> [(u64, u64); 2] {
        let kept_back = self.quarantine.borrow();
        let of_it = kept_back.iter().filter(|s| self.tier_of_member(s.member) == tier).count() as u64;
        let bound = self.volumes.bound(Placement::bound_to(tier));
        let here = self.slots_in(tier).saturating_sub(bound + self.set_aside(tier));
        let in_all = (self.headroom(), kept_back.len() as u64);
        match mutant::on(Mutant::I5KeptBackOfBound) {
            true => [in_all; 2],
            false => [in_all, (here, of_it)],
        }
    }

    /// How many more slots of a tier may be kept back.
    pub(super) fn may_be_kept_back(&self, tier: Tier) -> u64 {
        let left = self.spare(tier).map(|(spare, kept)| spare.saturating_sub(kept));
        left[0].min(left[1])
    }

    /// Whether one more slot of a tier may be left unused.
    fn may_shun(&self, tier: Tier) -> bool {
        self.spare(tier).iter().all(|(spare, kept)| *kept < spare / 4)
    }

    fn give_slots(&self, member: MemberIndex, slots: &[SlotIndex]) {
        let m = &self.members[member as usize];
        for s in slots {
            if m.unwritable.borrow().contains(s) && self.may_shun(m.tier) {
                self.quarantine.borrow_mut().push(SlotId { member, slot: *s });
                continue;
            }
            let mut free = m.free.borrow_mut();
            if !(mutant::any() && free.is_free(*s)) {
                free.give(*s);
            }
        }
        self.reclaim.freed.notify();
        self.mover_wake.notify();
    }
}
