//! From *left* to *free* (C2.1): the record that left the slot is durable on the fast members and, for a slow slot, in
//! that member's own journal; no I/O on the slot is in flight; its discard is done; no write of unknown outcome can
//! still reach it (C2.2).
//!
//! Slots are *untold* while their own member, a slow one, has not heard that their chunk left ([`super::telling`]), and else *ready*, for
//! as long as requests on them last. Untold ones are not looked at before their member has been told: a TRIM leaves millions of them.
//! For what is ready each tier has a *lane* and a task of its own: a disk that does not answer for a minute holds up no slot of the SSD.

use std::cell::{Cell, RefCell};

use super::discard::{Discards, DISCARD_SLOTS};
use super::Left;
use crate::env::Env;
use crate::group::core::Core;
use crate::member::{add, take_off, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, SlotIndex, Tier};
use crate::wait::{self, Signal};

/// Slots looked at before others have their turn.
const AT_ONCE: usize = 4096;

/// Slots of one tier that nothing but requests on them keeps from being free.
#[derive(Default)]
struct Lane {
    ready: RefCell<Vec<Left>>,
    /// Slots taken off the lane and not free yet.
    busy: Cell<usize>,
    wake: Signal,
}

impl Lane {
    fn len(&self) -> usize {
        self.ready.borrow().len() + self.busy.get()
    }

    fn of_member(&self, m: MemberIndex) -> usize {
        self.ready.borrow().iter().filter(|l| l.slot.member == m).count()
    }
}

#[derive(Default)]
pub(crate) struct Reclaim {
    fast: Lane,
    slow: Lane,
    /// A slot has become free.
    pub(crate) freed: Signal,
    pub(super) discards: Discards,
}

impl Reclaim {
    fn lane(&self, tier: Tier) -> &Lane {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Slow => &self.slow,
        }
    }
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
                false => self.is_ready(l),
            }
        }
    }

    /// A slot is ready, or was told of: its lane looks at it.
    fn is_ready(&self, l: Left) {
        let lane = self.reclaim.lane(self.member(&l).tier);
        lane.ready.borrow_mut().push(l);
        lane.wake.notify();
    }

    /// A slow member has been told of these.
    pub(super) fn were_told(&self, told: Vec<Left>) {
        self.reclaim.slow.ready.borrow_mut().extend(told);
        self.reclaim.slow.wake.notify();
    }

    /// Slots that will become free, as far as no commit is needed for it.
    pub(crate) fn reclaiming(&self) -> usize {
        let untold: usize = self.members_of(Tier::Slow).map(|m| m.telling.untold()).sum();
        self.reclaim.fast.len() + self.reclaim.slow.len() + untold
    }

    /// The same, of one member.
    pub(crate) fn reclaiming_on(&self, m: &Member<E::Device>) -> usize {
        self.reclaim.lane(m.tier).of_member(m.index) + m.telling.untold()
    }

    /// The tasks of slots that were left look around.
    pub(crate) fn wake_reclaimers(&self) {
        self.reclaim.fast.wake.notify();
        self.reclaim.slow.wake.notify();
        self.members.iter().for_each(|m| m.telling.wake());
    }

    /// The task of a tier's lane.
    pub(crate) async fn run_reclaimer(&self, tier: Tier) {
        let lane = self.reclaim.lane(tier);
        while !self.stopped.get() && !self.health.is_latched() {
            let wake = lane.wake.wait();
            let unpinned = self.claims.unpinned.wait();
            self.free_ready(lane).await;
            let nothing_ready = lane.ready.borrow().is_empty();
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
    async fn free_ready(&self, lane: &Lane) {
        let ready = lane.ready.take();
        lane.busy.set(lane.busy.get() + ready.len());
        let mut first = true;
        for part in ready.chunks(AT_ONCE) {
            if !std::mem::take(&mut first) {
                wait::turn().await;
            }
            self.free_part(lane, part).await;
        }
    }

    async fn free_part(&self, lane: &Lane, part: &[Left]) {
        let mut by_member: Vec<(MemberIndex, Vec<SlotIndex>)> = Vec::new();
        for l in part {
            let lags = self.lags(l);
            if !lags && self.may_be_freed(l) {
                match by_member.iter_mut().find(|(m, _)| *m == l.slot.member) {
                    Some((_, slots)) => slots.push(l.slot.slot),
                    None => by_member.push((l.slot.member, vec![l.slot.slot])),
                }
                continue;
            }
            lane.busy.set(lane.busy.get() - 1);
            match lags {
                true => self.member(l).telling.add_untold(*l),
                false => lane.ready.borrow_mut().push(*l),
            }
        }
        for (m, slots) in by_member {
            for part in slots.chunks(DISCARD_SLOTS) {
                self.discard_and_free(m, part.to_vec()).await;
                lane.busy.set(lane.busy.get() - part.len());
                // They are free now, or kept back, and those will not come.
                take_off(&self.members[m as usize].on_the_way, part.len() as u64);
            }
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

    async fn discard_and_free(&self, member: MemberIndex, mut slots: Vec<SlotIndex>) {
        let m = &self.members[member as usize];
        let tainted = slots.iter().any(|s| m.is_tainted(*s));
        if tainted && !mutant::on(Mutant::C2NoQuarantine) && self.sync_member(member, m.sync.written()).await.is_err() {
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
        if !unsure.is_empty()
            && !mutant::on(Mutant::C2DiscardUnsure)
            && self.sync_member(member, m.sync.written()).await.is_err()
        {
            self.quarantine.borrow_mut().extend(slots.into_iter().map(|slot| SlotId { member, slot }));
            return;
        }
        if !mutant::on(Mutant::C2FreeDuringDiscard) {
            self.give_slots(member, &slots);
        }
    }

    /// Whether one more slot may be left unused: what is promised to volumes comes first (I5).
    fn may_shun(&self) -> bool {
        (self.quarantine.borrow().len() as u64) < self.headroom() / 4
    }

    fn give_slots(&self, member: MemberIndex, slots: &[SlotIndex]) {
        let m = &self.members[member as usize];
        for s in slots {
            if m.unwritable.borrow().contains(s) && self.may_shun() {
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
