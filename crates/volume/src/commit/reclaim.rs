//! From *left* to *free* (C2.1): the record that left the slot is durable on the fast members and, for a slow slot, in
//! that member's own journal; no I/O on the slot is in flight; its discard is done; no write of unknown outcome can
//! still reach it (C2.2).
//!
//! Each tier has a *lane* and a task of its own: a disk that does not answer for a minute holds up no slot of the SSD.
//! In it slots are *untold* while their own member, a slow one, has not heard that their chunk left, and else *ready*, for
//! as long as requests on them last. Untold ones are not looked at before their member has been told: a TRIM leaves millions of them.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::telling::{News, Telling, SOON, SOONEST};
use super::Left;
use crate::env::{DeviceError, Env};
use crate::group::core::Core;
use crate::member::{add, take_off, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, SlotIndex, Tier, CHUNK};
use crate::wait::{self, Signal};

/// A member that leaves a discard unanswered for so long gets no more of them before the next start: it is a hint that nobody
/// should wait for. The slots are not used either, since it may still be carried out.
const DISCARD_PATIENCE: Duration = Duration::from_secs(30);
/// Most slots given to one discard, and what part of the headroom: a discard that is never answered keeps its slots back, and what is
/// promised to volumes must be there all the same (I5).
const DISCARD_SLOTS: usize = 512;
const DISCARD_SHARE: u64 = 8;
/// Slots looked at before others have their turn.
const AT_ONCE: usize = 4096;

/// Slots of one tier whose leaving record is durable on the fast members.
#[derive(Default)]
struct Lane {
    ready: RefCell<Vec<Left>>,
    untold: RefCell<Vec<Left>>,
    /// Slots taken off the lane and not free yet.
    busy: Cell<usize>,
    wake: Signal,
}

impl Lane {
    fn len(&self) -> usize {
        self.ready.borrow().len() + self.untold.borrow().len() + self.busy.get()
    }

    fn of_member(&self, m: MemberIndex) -> usize {
        let count = |list: &RefCell<Vec<Left>>| list.borrow().iter().filter(|l| l.slot.member == m).count();
        count(&self.ready) + count(&self.untold)
    }
}

#[derive(Default)]
pub(crate) struct Reclaim {
    fast: Lane,
    slow: Lane,
    /// A slot has become free.
    pub(crate) freed: Signal,
    /// Discards that devices have not answered, and one of them has been.
    discarding: Cell<usize>,
    discarded: Signal,
    /// When slow members are told.
    telling: Telling,
}

impl Reclaim {
    fn lane(&self, tier: Tier) -> &Lane {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Slow => &self.slow,
        }
    }

    /// Slots on their way.
    pub(crate) fn len(&self) -> usize {
        self.fast.len() + self.slow.len()
    }

    /// Slots of one member on their way.
    pub(crate) fn of_member(&self, m: MemberIndex) -> usize {
        self.fast.of_member(m) + self.slow.of_member(m)
    }

    /// Somebody waits for a slot: write journals now.
    pub(crate) fn demand(&self) {
        self.telling.demand();
        self.slow.wake.notify();
    }

    /// Slow members have something to hear, whether they have a slot to free for it or not.
    pub(crate) fn tell_slow(&self, news: News) {
        self.telling.note(news);
        self.slow.wake.notify();
    }

    /// Everything that was acknowledged to a client is durable, as it has asked for.
    pub(crate) fn flushed(&self) {
        if self.telling.flushed() {
            self.slow.wake.notify();
        }
    }

    /// Both tasks look around.
    pub(crate) fn wake(&self) {
        self.fast.wake.notify();
        self.slow.wake.notify();
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
            let lane = self.reclaim.lane(self.member(&l).tier);
            let list = if self.lags(&l) { &lane.untold } else { &lane.ready };
            list.borrow_mut().push(l);
            lane.wake.notify();
        }
    }

    /// The task of a tier's lane.
    pub(crate) async fn run_reclaimer(&self, tier: Tier) {
        let lane = self.reclaim.lane(tier);
        let telling = &self.reclaim.telling;
        let untold = || tier == Tier::Slow && (telling.has_news() || !lane.untold.borrow().is_empty());
        while !self.stopped.get() && !self.health.is_latched() {
            let wake = lane.wake.wait();
            let unpinned = self.claims.unpinned.wait();
            // A demand that is raised from here on counts for the next round.
            let demanded = tier == Tier::Slow && telling.take_demand();
            if untold() && (demanded || self.may_wait().is_zero()) {
                self.tell_slow_members(lane).await;
            }
            self.free_ready(lane).await;
            let patience = if untold() { self.may_wait().max(SOONEST) } else { SOON };
            // A slot that waits for its member's journal does not care for requests on slots; most requests end one.
            let nothing_ready = lane.ready.borrow().is_empty();
            match (nothing_ready, untold()) {
                (true, false) => wake.await,
                (true, true) => wait::first(wake, self.env.sleep(patience)).await,
                (false, _) => wait::first(wait::first(wake, unpinned), self.env.sleep(patience)).await,
            }
        }
    }

    /// How long slow members may still wait for what they have to hear.
    fn may_wait(&self) -> Duration {
        self.reclaim.telling.rest(self.quiet_for(Tier::Slow), self.env.now())
    }

    fn member(&self, l: &Left) -> &Member<E::Device> {
        &self.members[l.slot.member as usize]
    }

    /// Writes the journals of slow members that have something to hear. What they do not take (a group is latched then) stays
    /// untold.
    async fn tell_slow_members(&self, lane: &Lane) {
        let noted = self.reclaim.telling.begin() != News::None;
        for m in self.members_of(Tier::Slow) {
            let due = noted || lane.of_member(m.index) > 0;
            if due && self.settle_lag(m).await.is_err() {
                return;
            }
        }
        let told = lane.untold.take();
        lane.ready.borrow_mut().extend(told);
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
            let back = match (self.lags(l), self.may_be_freed(l)) {
                (true, _) => &lane.untold,
                (false, false) => &lane.ready,
                (false, true) => {
                    match by_member.iter_mut().find(|(m, _)| *m == l.slot.member) {
                        Some((_, slots)) => slots.push(l.slot.slot),
                        None => by_member.push((l.slot.member, vec![l.slot.slot])),
                    }
                    continue;
                }
            };
            lane.busy.set(lane.busy.get() - 1);
            back.borrow_mut().push(*l);
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

    /// Discards these slots, which are in order, unless the group stops meanwhile. Gives those that may be used, and of these the ones
    /// whose discard has failed: it may still be carried out. What a member does not answer for is kept back until the next start.
    pub(crate) async fn discard_runs(
        &self,
        m: &Member<E::Device>,
        slots: &[SlotIndex],
    ) -> (Vec<SlotIndex>, Vec<SlotIndex>) {
        let (mut usable, mut unsure) = (Vec::new(), Vec::new());
        let at_once = ((self.headroom() / DISCARD_SHARE) as usize).clamp(1, DISCARD_SLOTS);
        for run in slots.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(at_once)) {
            let discards = m.discards() && !self.stopped.get();
            let hint = if discards { self.discard_run(m, run).await } else { Some(Ok(())) };
            match hint {
                // A hint: a member that cannot do it loses nothing.
                Some(Ok(()) | Err(DeviceError::Unsupported)) => {}
                Some(Err(_)) => unsure.extend_from_slice(run),
                None if mutant::on(Mutant::C2HungDiscardFreed) => {}
                None => {
                    let mut kept_back = self.quarantine.borrow_mut();
                    for slot in run.iter().map(|&slot| SlotId { member: m.index, slot }) {
                        if !kept_back.contains(&slot) {
                            kept_back.push(slot);
                        }
                    }
                    continue;
                }
            }
            usable.extend_from_slice(run);
        }
        (usable, unsure)
    }

    /// Discards neighbouring slots; `None` if the member does not answer.
    async fn discard_run(&self, m: &Member<E::Device>, run: &[SlotIndex]) -> Option<Result<(), DeviceError>> {
        self.reclaim.discarding.set(self.reclaim.discarding.get() + 1);
        let answer = async { Some(m.discard(m.layout.slot(run[0]), run.len() as u64 * CHUNK).await) };
        let patience = async {
            self.env.sleep(DISCARD_PATIENCE).await;
            None
        };
        let hint = wait::first(answer, patience).await;
        match hint.is_some() {
            true => {
                self.reclaim.discarding.set(self.reclaim.discarding.get() - 1);
                self.reclaim.discarded.notify();
            }
            // It counts as one that is under way, for a stop that waits for them.
            false => {
                m.discards_hang.set(true);
                add(&m.counters.errors, 1);
            }
        }
        hint
    }

    /// Completes when no device has a discard to answer any more, after this time at the latest. A server that is told so after the
    /// connection has ended may carry it out beside what the next daemon writes.
    pub(crate) async fn discards_ended(&self, patience: Duration) {
        let all = async {
            while self.reclaim.discarding.get() > 0 {
                self.reclaim.discarded.wait().await;
            }
        };
        wait::first(all, self.env.sleep(patience)).await;
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
