//! What the tasks of a group share. Each component has a file of its own; this one only holds them together, and
//! answers questions that need two of them.
//!
//! No borrow of a component is held across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use bimetal_format::Entry;

use crate::claim::Claims;
use crate::commit::reclaim::Reclaim;
use crate::commit::{Commit, Left};
use crate::env::Env;
use crate::error::Error;
use crate::family::Families;
use crate::group::gate::{Admitted, RequestGate};
use crate::group::volume::VolumeInfo;
use crate::group::volumes::Volumes;
use crate::health::Health;
use crate::io::real_zeros::RealZeros;
use crate::kept::{kept_slot, slots_of, Kept};
use crate::map::Map;
use crate::member::set::Members;
use crate::member::{add, Member, Standing};
use crate::mutant::{self, Mutant};
use crate::options::{OpenOptions, Uuid};
use crate::recovery::Finding;
use crate::tier::mover::MoverState;
use crate::tier::reserve::Reserve;
use crate::tier::HeadTime;
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};
use crate::wait::{Mutex, Signal};

/// State of one open group.
pub(crate) struct Core<E: Env> {
    pub(crate) env: E,
    pub(crate) options: OpenOptions,
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    pub(crate) sector_size: u32,
    /// Fast slots kept free for new writes, as the group was made.
    pub(crate) reserve: u64,
    pub(crate) writable: bool,
    /// The map came from a fast member, so that "unmapped" means "never written" (C8.1).
    pub(crate) map_complete: bool,
    /// The journal of the member whose map was loaded has a hole: changes of unknown chunks are missing.
    pub(crate) journal_gap: Cell<bool>,
    /// The hole is all that the group may have done since it went on without this member, which was to leave: no slot of it was given to
    /// another chunk by that.
    pub(crate) left_behind: Cell<bool>,
    /// The member whose map was loaded.
    pub(crate) authority: u8,
    /// With a map that is not complete: whose own slots it tells of as those members know them.
    pub(crate) vouching: BTreeSet<MemberIndex>,
    /// By index; missing ones included.
    pub(crate) members: Members<E::Device>,
    pub(crate) volumes: Volumes,
    pub(crate) families: Families,
    pub(crate) map: RefCell<Map>,
    pub(crate) claims: Claims,
    pub(crate) commit: Commit,
    pub(crate) reclaim: Reclaim,
    pub(crate) health: Health,
    pub(crate) policy: RefCell<HeadTime>,
    pub(crate) mover: MoverState,
    pub(crate) kept: Kept,
    pub(crate) mover_wake: Signal,
    pub(crate) checkpoint_wake: Signal,
    /// Held while heat that has changed is on its way to the fast members.
    pub(crate) saving_heat: Mutex,
    /// A member was let go; the labels of the others do not say so yet.
    pub(crate) dead: Signal,
    /// Slots kept back until the next start (C2.2).
    pub(crate) quarantine: RefCell<Vec<SlotId>>,
    pub(crate) lag_notes: Cell<u64>,
    /// Background tasks end.
    pub(crate) stopped: Cell<bool>,
    /// New requests are refused.
    pub(crate) stopping: Cell<bool>,
    pub(crate) requests: RequestGate,
    pub(crate) real_zeros: RealZeros,
    /// What recovery found, in words.
    pub(crate) findings: RefCell<Vec<Finding>>,
    /// Chunks that were found in doubt: (C7.3) two on one slot.
    pub(crate) damaged_chunks: RefCell<std::collections::BTreeSet<ChunkId>>,
    /// Pages of the map that no member has, of a group that is not written: what is in them is what slow members know of their own
    /// slots.
    pub(crate) partly_known: RefCell<std::collections::BTreeSet<u32>>,
    pub(crate) counters: ExtraCounters,
}

/// Counters that tests of the engine look at.
#[derive(Default)]
pub(crate) struct ExtraCounters {
    pub(crate) checkpoints: Cell<u64>,
    pub(crate) full_waits: Cell<u64>,
}

impl<E: Env> Core<E> {
    /// Present members of a tier.
    pub(crate) fn members_of(&self, tier: Tier) -> impl Iterator<Item = &Member<E::Device>> + Clone {
        self.members.iter().filter(move |m| m.tier == tier && m.is_present())
    }

    /// Members of a tier whose free slots may be taken.
    pub(crate) fn open_to_chunks(&self, tier: Tier) -> impl Iterator<Item = &Member<E::Device>> + Clone {
        self.members_of(tier).filter(|m| m.takes_slots())
    }

    /// The first member that is there: its label holds the tables, like all others.
    pub(crate) fn first_member(&self) -> &Member<E::Device> {
        self.members.iter().find(|m| m.is_present()).expect("a group is opened with a member at least")
    }

    pub(crate) fn tier_of_member(&self, index: u8) -> Tier {
        self.members[index as usize].tier
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.first_member().label.borrow().epoch.id
    }

    /// Free slots of a tier.
    pub(crate) fn free_in(&self, tier: Tier) -> u64 {
        self.open_to_chunks(tier).map(|m| m.free.borrow().free()).sum()
    }

    /// Those of them on members that a chunk may be put on now.
    pub(crate) fn free_in_reach(&self, tier: Tier) -> u64 {
        self.members_of(tier).filter(|m| m.takes_chunks()).map(|m| m.free.borrow().free()).sum()
    }

    /// Slots of a tier, taken or not.
    pub(crate) fn slots_in(&self, tier: Tier) -> u64 {
        self.open_to_chunks(tier).map(|m| m.free.borrow().count()).sum()
    }

    /// Slots of a member that are kept back until the next start.
    pub(crate) fn kept_back_on(&self, m: MemberIndex) -> u64 {
        self.quarantine.borrow().iter().filter(|s| s.member == m).count() as u64
    }

    /// Of the slots of a tier, those that are kept back until the next start.
    pub(crate) fn kept_back_in(&self, tier: Tier) -> u64 {
        match mutant::on(Mutant::I5KeptBackPromised) {
            true => 0,
            false => self.open_to_chunks(tier).map(|m| self.kept_back_on(m.index)).sum(),
        }
    }

    /// The same, of members that take no new chunks too.
    pub(crate) fn slots_present(&self, tier: Tier) -> u64 {
        self.members_of(tier).map(|m| m.free.borrow().count()).sum()
    }

    /// Fast slots for new writes: never more than a quarter of those that are left when members leave, and beside
    /// what volumes are bound to. Else it could not be reached, and nothing would ever be promoted. What bound volumes lack
    /// is owed in any case.
    pub(crate) fn reserve_slots(&self) -> u64 {
        let open = self.slots_in(Tier::Fast).saturating_sub(self.volumes.bound(Placement::FastOnly));
        let owed = self.volumes.promised(Placement::FastOnly) + self.set_aside(Tier::Fast);
        let lacking = u64::from(self.free_in(Tier::Fast) < owed);
        self.reserve.min(open / 4).max(lacking)
    }

    fn reserve_now(&self) -> Reserve {
        Reserve { slots: self.reserve_slots(), copies: self.copies(), learned: self.kept.learned() }
    }

    /// Those of them that are to be kept free; the others may hold chunks that can be let go, or any while few new data come.
    pub(crate) fn keep_free_slots(&self) -> u64 {
        self.reserve_now().to_keep_free()
    }

    /// Free slots below which chunks are let go; 0 where none can be.
    pub(crate) fn low_slots(&self) -> u64 {
        self.reserve_now().low()
    }

    /// About how many of the others hold chunks that can be let go.
    pub(crate) fn room_at_once_slots(&self) -> u64 {
        self.reserve_now().room_at_once()
    }

    /// Slots of a tier that chunks which may live on both do not get: for a volume that is about to be bound to it, and for
    /// the ciphertext of one that is bound to it and being encrypted.
    pub(crate) fn set_aside(&self, tier: Tier) -> u64 {
        self.volumes.set_aside(tier) + self.aside_for_encryption(tier)
    }

    /// Slots beyond what is promised to volumes (I5), or set aside for one that is about to be.
    pub(crate) fn headroom(&self) -> u64 {
        let slots = self.slots_in(Tier::Fast) + self.slots_in(Tier::Slow);
        let aside = match mutant::on(Mutant::I5AsideIsHeadroom) {
            true => 0,
            false => self.set_aside(Tier::Fast) + self.set_aside(Tier::Slow),
        };
        slots.saturating_sub(self.volumes.promised_in_all() + aside)
    }

    /// The volume that owns a chunk.
    pub(crate) fn volume_of(&self, chunk: ChunkId) -> Option<Rc<VolumeInfo>> {
        self.volumes.of_chunk(chunk)
    }

    /// Where a chunk may live; `None` if no volume has it (any more).
    pub(crate) fn placement_of(&self, chunk: ChunkId) -> Option<Placement> {
        self.volume_of(chunk).filter(|v| !v.deleted.get()).map(|v| v.placement)
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        if !self.writable {
            return Err(Error::ReadOnly);
        }
        self.health.check()
    }

    /// Waits until a request that changes `len` bytes of a volume may be in flight, if anything may be changed: also after the wait, since
    /// a stop waits for those in flight only.
    pub(crate) async fn admit_change<'a>(&'a self, v: &'a VolumeInfo, len: u64) -> Result<Admitted<'a>, Error> {
        self.check_writable()?;
        let admitted = self.requests.enter(&v.room, len).await;
        self.check_writable()?;
        Ok(admitted)
    }

    /// The entry of a chunk for I/O, or an error if its state is lost or in doubt.
    pub(crate) fn entry(&self, chunk: ChunkId) -> Result<Entry, Error> {
        if self.health.is_suspect(chunk) || self.is_damaged(chunk) {
            return Err(Error::Lost);
        }
        self.map.borrow().get(chunk).ok_or(Error::Lost)
    }

    /// The first chunk from this one on that is lost or in doubt whatever its page says.
    pub(crate) fn doubtful_from(&self, chunk: ChunkId) -> Option<ChunkId> {
        let damaged = self.damaged_chunks.borrow().range(chunk..).next().copied();
        damaged.into_iter().chain(self.health.suspect_from(chunk)).min()
    }

    /// Whether of a page only that is known which slow members know of their own slots.
    pub(crate) fn is_partly_known(&self, page: u32) -> bool {
        let partly = self.partly_known.borrow();
        !partly.is_empty() && partly.contains(&page)
    }

    fn is_damaged(&self, chunk: ChunkId) -> bool {
        let damaged = self.damaged_chunks.borrow();
        !damaged.is_empty() && damaged.contains(&chunk)
    }

    /// The one place where an entry changes while the group is open: notes the change for the next commit, lets go of
    /// slots that it holds no more, and keeps counts and reverse map true.
    pub(crate) fn change_entry(&self, chunk: ChunkId, after: Entry) {
        let before = self.map.borrow().get(chunk).expect("no change reaches a damaged page");
        self.commit.changing(chunk, before);
        self.count_copies(&before, &after);
        let moved = !after.is_mapped() || (after.member, after.slot) != (before.member, before.slot);
        if before.is_mapped() && moved {
            self.set_occupant(SlotId { member: before.member, slot: before.slot }, None);
            self.count_chunk(chunk, before.member, -1);
        }
        for slot in slots_of(&before).filter(|s| slots_of(&after).all(|held| held != *s)) {
            add(&self.members[slot.member as usize].on_the_way, 1);
            self.commit.left.borrow_mut().push(Left { slot, chunk });
            let copy = Some(slot) == kept_slot(&before);
            if mutant::on(Mutant::C2FreeBeforeRecord) || (copy && mutant::on(Mutant::C9DroppedAtOnce)) {
                self.free_now(slot);
            }
        }
        if after.is_mapped() && (moved || !before.is_mapped()) {
            self.set_occupant(SlotId { member: after.member, slot: after.slot }, Some(chunk));
            self.count_chunk(chunk, after.member, 1);
        }
        self.map.borrow_mut().set(chunk, after);
    }

    /// Gives back a slot that no record ever named.
    pub(crate) fn free_now(&self, slot: SlotId) {
        let mut free = self.members[slot.member as usize].free.borrow_mut();
        if !(mutant::any() && free.is_free(slot.slot)) {
            free.give(slot.slot);
        }
        drop(free);
        self.reclaim.freed.notify();
    }

    /// Who lives in a slot, where that is noted.
    pub(crate) fn set_occupant(&self, slot: SlotId, chunk: Option<ChunkId>) {
        let m = &self.members[slot.member as usize];
        if m.tier == Tier::Fast {
            m.occupants.borrow_mut().set(slot.slot, chunk);
        }
    }

    pub(crate) fn count_chunk(&self, chunk: ChunkId, member: u8, by: i64) {
        if let Some(v) = self.volume_of(chunk) {
            let count = match self.tier_of_member(member) {
                Tier::Fast => &v.fast_chunks,
                Tier::Slow => &v.slow_chunks,
            };
            count.set((count.get() as i64 + by) as u64);
            v.count_on(member, by);
            if v.placement != Placement::Auto && self.members[member as usize].standing.get() == Standing::Leaving {
                v.homeless.set((v.homeless.get() as i64 + by) as u64);
            }
        }
    }
}
