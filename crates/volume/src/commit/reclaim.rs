//! From *left* to *free* (C2.1): the record that left the slot is durable on the fast members and, for a slow slot, in
//! that member's own journal; no I/O on the slot is in flight; its discard is done; no write of unknown outcome can
//! still reach it (C2.2).

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::Left;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::units::{MemberIndex, SlotIndex, Tier, CHUNK};
use crate::wait::{self, Signal};

/// Slow slots wait so long before their member's journal is written for them, unless somebody needs a slot.
const PATIENCE: Duration = Duration::from_secs(3);
/// The reclaimer's shortest rest.
const SOONEST: Duration = Duration::from_millis(1);
/// Most slots given to one discard.
const DISCARD_SLOTS: usize = 512;

#[derive(Default)]
pub(crate) struct Reclaim {
    /// Slots whose leaving record is durable on the fast members.
    queue: RefCell<Vec<Left>>,
    /// Slots taken off the queue and not free yet.
    busy: Cell<usize>,
    wake: Signal,
    /// A slot has become free.
    pub(crate) freed: Signal,
    /// Somebody waits for a slot.
    demanded: Cell<bool>,
    /// Slow members should hear of promotions that left them no slot to free (kept copies).
    untold: Cell<bool>,
}

impl Reclaim {
    pub(crate) fn add(&self, mut left: Vec<Left>) {
        if !left.is_empty() {
            self.queue.borrow_mut().append(&mut left);
            self.wake.notify();
        }
    }

    /// Slots on their way.
    pub(crate) fn len(&self) -> usize {
        self.queue.borrow().len() + self.busy.get()
    }

    /// Slots of one member on their way.
    pub(crate) fn of_member(&self, m: MemberIndex) -> usize {
        self.queue.borrow().iter().filter(|l| l.slot.member == m).count()
    }

    /// Somebody waits for a slot: write journals now.
    pub(crate) fn demand(&self) {
        self.demanded.set(true);
        self.wake.notify();
    }

    /// Chunks were promoted and keep their slow slots: the slow members' journals are told as soon as if they had left
    /// them, so that a slow member alone takes no old home for the newest state.
    pub(crate) fn tell_slow(&self) {
        self.untold.set(true);
        self.wake.notify();
    }

    pub(crate) fn wake(&self) {
        self.wake.notify();
    }
}

impl<E: Env> Core<E> {
    /// The reclaimer's task.
    pub(crate) async fn run_reclaimer(&self) {
        let mut slow_since: Option<Instant> = None;
        while !self.stopped.get() && !self.health.is_latched() {
            let wake = self.reclaim.wake.wait();
            let unpinned = self.claims.unpinned.wait();
            let has_slow = self.reclaim.untold.get()
                || self.reclaim.queue.borrow().iter().any(|l| self.member(l).tier == Tier::Slow);
            let waited = self.env.now().since(*slow_since.get_or_insert(self.env.now()));
            // A demand that is raised from here on counts for the next round.
            let demanded = self.reclaim.demanded.replace(false);
            let with_slow = has_slow && (waited >= PATIENCE || demanded);
            self.reclaim_batch(with_slow).await;
            if with_slow || !has_slow {
                slow_since = None;
            }
            // A slot that waits for its member's journal does not care for pins; most requests end one.
            let (rest, pinned) = {
                let queue = self.reclaim.queue.borrow();
                (queue.len() + usize::from(self.reclaim.untold.get()), queue.iter().any(|l| !self.lags(l)))
            };
            let waited = slow_since.map_or(Duration::ZERO, |t| self.env.now().since(t));
            let patience = || self.env.sleep(PATIENCE.saturating_sub(waited).max(SOONEST));
            match (rest, pinned) {
                (0, _) => wake.await,
                (_, false) => wait::first(wake, patience()).await,
                (_, true) => wait::first(wait::first(wake, unpinned), patience()).await,
            }
        }
    }

    fn member(&self, l: &Left) -> &crate::member::Member<E::Device> {
        &self.members[l.slot.member as usize]
    }

    /// Frees what can be freed now: fast slots, and slow ones if their members' journals may be written.
    pub(crate) async fn reclaim_batch(&self, with_slow: bool) {
        if with_slow {
            let untold = self.reclaim.untold.replace(false);
            for m in self.members_of(Tier::Slow) {
                let due = untold || self.reclaim.of_member(m.index) > 0;
                if due && self.settle_lag(m).await.is_err() {
                    return;
                }
            }
        }
        let queue = std::mem::take(&mut *self.reclaim.queue.borrow_mut());
        let (ready, rest): (Vec<Left>, Vec<Left>) = queue.into_iter().partition(|l| self.may_be_freed(l));
        self.reclaim.queue.borrow_mut().extend(rest);
        self.reclaim.busy.set(self.reclaim.busy.get() + ready.len());
        let mut by_member: Vec<(MemberIndex, Vec<SlotIndex>)> = Vec::new();
        for l in ready {
            match by_member.iter_mut().find(|(m, _)| *m == l.slot.member) {
                Some((_, slots)) => slots.push(l.slot.slot),
                None => by_member.push((l.slot.member, vec![l.slot.slot])),
            }
        }
        for (m, slots) in by_member {
            for part in slots.chunks(DISCARD_SLOTS) {
                self.discard_and_free(m, part.to_vec()).await;
                self.reclaim.busy.set(self.reclaim.busy.get() - part.len());
            }
        }
    }

    fn may_be_freed(&self, l: &Left) -> bool {
        let pinned = self.claims.is_pinned(l.slot) && !mutant::on(Mutant::C2FreeDuringRead);
        !pinned && !self.lags(l)
    }

    /// Whether the slot's own member has not heard yet that its chunk left.
    fn lags(&self, l: &Left) -> bool {
        let m = self.member(l);
        m.tier == Tier::Slow && m.lag.borrow().contains_key(&l.chunk)
    }

    async fn discard_and_free(&self, member: MemberIndex, mut slots: Vec<SlotIndex>) {
        let m = &self.members[member as usize];
        let tainted = slots.iter().any(|s| m.tainted.borrow().contains(s));
        if tainted && !mutant::on(Mutant::C2NoQuarantine) && self.sync_member(member, m.sync.written()).await.is_err() {
            // Quarantine goes on until the next start: the member could not be synced.
            for slot in slots {
                self.quarantine.borrow_mut().push(crate::units::SlotId { member, slot });
            }
            return;
        }
        slots.sort_unstable();
        if mutant::on(Mutant::C2FreeDuringDiscard) {
            self.give_slots(member, &slots);
        }
        if m.discards() {
            for run in slots.chunk_by(|a, b| a + 1 == *b) {
                // A discard is a hint: a member that cannot do it loses nothing.
                let _hint = m.discard(m.layout.slot(run[0]), run.len() as u64 * CHUNK).await;
            }
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
                self.quarantine.borrow_mut().push(crate::units::SlotId { member, slot: *s });
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
