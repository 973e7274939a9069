//! What slots still hold of the plaintext of a volume is overwritten.
//!
//! Any slot may: chunks have moved, were trimmed, were written to other places, for as long as the volume was plaintext;
//! and a slot that has another owner now still holds it in the blocks that the new owner has not written. So all slots of
//! the group are gone through once: in a free one all blocks are overwritten, in one that is in use those that are not
//! valid. (Nothing notes which slots a volume ever had.)
//!
//! 1. It begins when no chunk of the volume is plaintext and no more can be written: what has been overwritten once need
//!    not be looked at again.
//! 2. A free slot is taken while it is overwritten, one in use is pinned and its blocks are claimed: nothing else is
//!    written there meanwhile. A read that began before a TRIM, and may find zeros instead of ciphertext, is done again.
//! 3. A block is not valid when every start would say so: after a TRIM that is not durable a start may still take it for
//!    what it held (I1).
//! 4. The volume is encrypted when every slot of every member has been gone through and their devices are synced. A slot
//!    that cannot be overwritten keeps it from that, and is tried again.
//! 5. It begins again after a restart.

use std::cell::RefCell;
use std::rc::Rc;

use bimetal_format::label::VolumeState;
use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use crate::buf::{Buf, BufMut};
use crate::commit::telling::News;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::io::split::runs;
use crate::kept::kept_slot;
use crate::marked::Marked;
use crate::member::{add, take_off, Member, WriteFor};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, SlotIndex, BLOCK, BLOCKS_PER_CHUNK, CHUNK};
use crate::wait;

/// Free slots overwritten at a time, at most: 8 MiB.
const AT_ONCE: u64 = 64;
/// One of so many free slots may be taken for it.
const SHARE: u64 = 4;
/// Pages of the map looked through without a pause.
const PAGES_AT_ONCE: u32 = 64;
/// Rounds without a step forward, after which it is given up for a while.
const FRUITLESS: usize = 20;

/// Slots that may still hold plaintext, while it is being overwritten.
#[derive(Default)]
pub(crate) struct Wiping {
    /// By member index.
    todo: RefCell<Vec<Marked>>,
    /// Ids of the volumes whose plaintext it is: what was done for them need not be done again after a pause.
    of: RefCell<Vec<u32>>,
}

impl Wiping {
    /// Slots that have not been gone through.
    pub(crate) fn left(&self) -> u64 {
        self.todo.borrow().iter().map(Marked::count).sum()
    }

    fn is_due(&self, slot: SlotId) -> bool {
        self.todo.borrow().get(slot.member as usize).is_some_and(|t| t.contains(slot.slot.into()))
    }

    fn done(&self, slot: SlotId) {
        if let Some(todo) = self.todo.borrow_mut().get_mut(slot.member as usize) {
            todo.remove(slot.slot.into());
        }
    }
}

impl<E: Env> Core<E> {
    /// Overwrites what slots hold of these volumes' plaintext, and makes them encrypted ones. Whether that is so.
    pub(super) async fn wipe_after(self: &Rc<Self>, volumes: &[Rc<VolumeInfo>]) -> bool {
        let wiping = &self.families.wiping;
        let ids: Vec<u32> = volumes.iter().map(|v| v.id).collect();
        let covered = ids.iter().all(|id| wiping.of.borrow().contains(id));
        if !covered {
            wiping.todo.borrow_mut().clear();
            *wiping.of.borrow_mut() = ids;
        }
        let done = mutant::on(Mutant::NothingWiped) || self.wipe_all().await;
        let done = done && self.finish_encrypting(volumes).await;
        if done {
            wiping.todo.borrow_mut().clear();
            wiping.of.borrow_mut().clear();
        }
        done
    }

    /// Members come and go meanwhile: all slots of a new one are due, none of one that has left.
    fn cover_members(&self) {
        let mut todo = self.families.wiping.todo.borrow_mut();
        for m in self.members.rows() {
            let count = m.free.borrow().count();
            let index = m.index as usize;
            if index == todo.len() {
                let mut slots = Marked::new(count);
                slots.add_all(0..count);
                todo.push(slots);
            }
            if !m.is_present() {
                todo[index] = Marked::new(0);
            }
        }
    }

    /// Makes what was overwritten durable. One that leaves the group meanwhile need not be.
    async fn sync_wiped(&self, m: &Member<E::Device>) -> bool {
        // The group may go on without what is on it.
        if m.is_lost() {
            return false;
        }
        match m.sync_all().await {
            Ok(()) => true,
            Err(_) if !m.is_present() => true,
            Err(e) => {
                self.latch(m.index, "a sync", e);
                false
            }
        }
    }

    async fn wipe_all(&self) -> bool {
        let wiping = &self.families.wiping;
        let mut fruitless = 0;
        self.cover_members();
        while wiping.left() > 0 && fruitless < FRUITLESS {
            let before = wiping.left();
            self.wipe_in_use().await;
            for m in self.members.iter() {
                self.wipe_free(m).await;
                self.wipe_quarantined(m).await;
            }
            if !self.encrypts() {
                return false;
            }
            self.cover_members();
            if wiping.left() == before {
                fruitless += 1;
                // What has left its chunk becomes free, and what was trimmed is known to all, after a commit and the write of
                // a journal.
                self.commit.want_next();
                self.tell_slow(News::Left);
                self.demand_slots();
                self.pause(std::time::Duration::from_millis(50)).await;
            } else {
                fruitless = 0;
            }
        }
        let synced = wait::all(self.members.iter().map(|m| self.sync_wiped(m)).collect()).await;
        self.cover_members();
        wiping.left() == 0 && synced.iter().all(|s| *s)
    }

    /// Says in the labels that the volumes are encrypted.
    async fn finish_encrypting(&self, volumes: &[Rc<VolumeInfo>]) -> bool {
        let _change = self.volumes.change.lock().await;
        for v in volumes.iter().filter(|v| !v.deleted.get()) {
            if !self.encrypts() || self.change_row(v.id, |row| row.state = VolumeState::Living).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Goes through the slots that chunks live in.
    async fn wipe_in_use(&self) {
        let pages = self.map.borrow().len() as u32;
        for page in 0..pages {
            if !self.encrypts() {
                return;
            }
            let due = self.due_on_page(page);
            if !due.is_empty() {
                let begun = self.env.now();
                for chunk in due {
                    self.wipe_chunk(chunk).await;
                }
                self.rest_after(begun).await;
            }
            if (page + 1) % PAGES_AT_ONCE == 0 {
                wait::turn().await;
            }
        }
    }

    /// The chunks of a page whose slots are not done. Those that are wholly valid hold nothing else.
    fn due_on_page(&self, page: u32) -> Vec<ChunkId> {
        let wiping = &self.families.wiping;
        let map = self.map.borrow();
        let Some(p) = map.page(page) else { return Vec::new() };
        let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
        let mut due = Vec::new();
        for (i, e) in p.entries().enumerate().filter(|(_, e)| e.is_mapped()) {
            let slots = [Some(home_of(&e)), kept_slot(&e)];
            match e.mask {
                u32::MAX => slots.into_iter().flatten().for_each(|s| wiping.done(s)),
                _ if slots.into_iter().flatten().any(|s| wiping.is_due(s)) => due.push(ChunkId(first + i as u64)),
                _ => {}
            }
        }
        due
    }

    /// Overwrites the blocks of a chunk's slot that are not valid. A kept copy goes: its slot is free then.
    async fn wipe_chunk(&self, chunk: ChunkId) {
        if self.wait_for_room(1).await.is_err() {
            return;
        }
        let _room = self.commit.reserve(1);
        let _claim = match mutant::on(Mutant::WipedUnclaimed) {
            true => None,
            false => Some(self.claims.claim_alone(chunk).await),
        };
        let Ok(e) = self.entry(chunk) else { return };
        if !e.is_mapped() || !self.encrypts() {
            return;
        }
        self.claims.cancel_motion(chunk, false);
        if kept_slot(&e).is_some() {
            self.change_entry(chunk, e.without_kept());
        }
        let slot = home_of(&e);
        let m = &self.members[slot.member as usize];
        if !self.is_known_to_all(chunk, m) && !mutant::on(Mutant::WipedBeforeCommit) {
            return;
        }
        // A write of unknown outcome could bring plaintext back (C2.2).
        if self.cleanse(slot).await.is_err() {
            return;
        }
        let _pin = self.claims.pin(slot);
        if !mutant::on(Mutant::WipedUnderReader) {
            self.claims.overwrites(slot);
        }
        for (from, to, valid) in runs(e.mask, 0, BLOCKS_PER_CHUNK) {
            if valid {
                continue;
            }
            let (at, len) = (u64::from(from) * BLOCK, u64::from(to - from) * BLOCK);
            let zeros = BufMut::zeroed(len as usize).freeze();
            if m.write(m.layout.slot(slot.slot) + at, zeros, WriteFor::Engine).await.is_err() {
                m.taint(slot.slot);
                return;
            }
        }
        self.families.wiping.done(slot);
    }

    /// Whether what the map says of a chunk is durable, on the member that it lives on too.
    fn is_known_to_all(&self, chunk: ChunkId, m: &Member<E::Device>) -> bool {
        !self.is_uncommitted(chunk) && !m.lag.borrow().contains_key(&chunk)
    }

    /// Goes through the slots of a member that were kept back after failures: nobody takes them.
    async fn wipe_quarantined(&self, m: &Member<E::Device>) {
        let due = |s: &SlotId| s.member == m.index && self.families.wiping.is_due(*s);
        let kept_back: Vec<SlotId> = self.quarantine.borrow().iter().filter(|s| due(s)).copied().collect();
        for slot in kept_back {
            if self.encrypts() && self.cleanse(slot).await.is_ok() {
                // It stays kept back in any case.
                let _ = self.overwrite(m, vec![slot.slot]).await;
            }
        }
    }

    /// Goes through the free slots of a member.
    async fn wipe_free(&self, m: &Member<E::Device>) {
        // A slot with a write of unknown outcome is free for this only then (C2.2).
        let tainted = m.has_tainted();
        if tainted && !self.sync_wiped(m).await {
            return;
        }
        let mut from = 0;
        while self.encrypts() && !m.is_gone() {
            let begun = self.env.now();
            let (taken, next) = self.take_due(m, from);
            let Some(next) = next else { return };
            from = next;
            if !taken.is_empty() {
                let (held, count) = (self.families.hold(taken.len()), taken.len() as u64);
                add(&m.on_the_way, count);
                let usable = self.overwrite(m, taken).await;
                self.give_back(m, usable).await;
                take_off(&m.on_the_way, count);
                drop(held);
                self.rest_after(begun).await;
            }
            wait::turn().await;
        }
    }

    /// Makes slots free again. Zeros of unknown outcome must not land where chunks have moved meanwhile (C2.2).
    async fn give_back(&self, m: &Member<E::Device>, slots: Vec<SlotIndex>) {
        let tainted = |s: &SlotIndex| m.is_tainted(*s) && !mutant::on(Mutant::WipedNoQuarantine);
        let (unsure, sure): (Vec<_>, Vec<_>) = slots.into_iter().partition(tainted);
        let by_member = |slot| SlotId { member: m.index, slot };
        sure.into_iter().map(by_member).for_each(|s| self.free_now(s));
        if unsure.is_empty() {
            return;
        }
        if m.is_lost() {
            self.quarantine.borrow_mut().extend(unsure.into_iter().map(by_member));
            return;
        }
        match self.sync_member(m.index, m.sync.written()).await {
            Ok(()) => unsure.into_iter().map(by_member).for_each(|s| self.free_now(s)),
            Err(_) => self.quarantine.borrow_mut().extend(unsure.into_iter().map(by_member)),
        }
    }

    /// Takes free slots that are not done, from one on; and says where to go on.
    fn take_due(&self, m: &Member<E::Device>, from: u64) -> (Vec<SlotIndex>, Option<u64>) {
        let todo = self.families.wiping.todo.borrow();
        let Some(todo) = todo.get(m.index as usize) else { return (Vec::new(), None) };
        let mut free = m.free.borrow_mut();
        let most = (free.free() / SHARE).clamp(1, AT_ONCE) as usize;
        let due = todo.some(from, AT_ONCE as usize);
        let next = due.last().map(|last| last + 1);
        let mut taken: Vec<SlotIndex> = due.iter().map(|s| *s as SlotIndex).filter(|s| free.is_free(*s)).collect();
        // The rest waits for the next round.
        taken.truncate(most);
        taken.retain(|s| !m.is_tainted(*s) && free.take_exact(*s));
        (taken, next)
    }

    /// Overwrites slots, neighbours together, and discards them then: the zeros need not stay. Gives those that may be used again.
    async fn overwrite(&self, m: &Member<E::Device>, mut slots: Vec<SlotIndex>) -> Vec<SlotIndex> {
        let zeros = BufMut::zeroed((8 * CHUNK) as usize).freeze();
        let mut good = true;
        for run in slots.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(8)) {
            good &= self.overwrite_run(m, run, &zeros).await;
        }
        if good && m.discards() && self.sync_wiped(m).await {
            let (usable, unsure) = self.discard_runs(m, &slots).await;
            // One that has failed may still be carried out.
            unsure.into_iter().for_each(|slot| m.taint(slot));
            slots = usable;
        }
        slots
    }

    async fn overwrite_run(&self, m: &Member<E::Device>, run: &[SlotIndex], zeros: &Buf) -> bool {
        let data = zeros.slice(0, run.len() * CHUNK as usize);
        let written = m.write(m.layout.slot(run[0]), data, WriteFor::Engine).await.is_ok();
        for slot in run {
            match written {
                true => self.families.wiping.done(SlotId { member: m.index, slot: *slot }),
                false => m.taint(*slot),
            }
        }
        written
    }
}

fn home_of(e: &Entry) -> SlotId {
    SlotId { member: e.member as MemberIndex, slot: e.slot }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_not_due_again() {
        let wiping = Wiping::default();
        let mut slots = Marked::new(100);
        slots.add_all(0..100);
        wiping.todo.borrow_mut().push(slots);
        let slot = SlotId { member: 0, slot: 64 };
        assert!(wiping.is_due(slot) && wiping.left() == 100);
        wiping.done(slot);
        assert!(!wiping.is_due(slot) && wiping.left() == 99);
        let elsewhere = SlotId { member: 3, slot: 1 };
        wiping.done(elsewhere);
        assert!(!wiping.is_due(elsewhere), "a member that is not there has nothing to be overwritten");
    }
}
