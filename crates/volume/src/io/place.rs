//! A slot for a chunk that has none.
//!
//! A member that stands still ([`Member::stands_still`]) gets none while there is room on another one: whoever writes there would wait
//! for as long as it does.

use std::time::Duration;

use bimetal_format::Entry;
use smallvec::SmallVec;

use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::structure::room::tier_of;
use crate::group::volume::VolumeInfo;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};

/// Who needs a slot looks for one so often ...
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// ... and waits for the mover to bring one back that he was promised until it has brought none for so long. What he waits for else does not
/// count.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chunks of a MiB, which should lie together.
const RUN: u64 = 8;
/// Kept copies dropped when a slot is needed at once.
const KEPT_AT_ONCE: usize = 64;

impl<E: Env> Core<E> {
    /// Slots of `tier` that a chunk of this placement may take: what volumes bound to the tier were promised is set
    /// aside (C2.3). That was promised of all slots, and is there again when a member is that is lost; but now none of its slots is taken.
    pub(crate) fn available(&self, tier: Tier, placement: Placement) -> u64 {
        let bound = Placement::bound_to(tier);
        let left = match placement {
            Placement::Auto => {
                let promised = self.volumes.promised(bound) + self.set_aside(tier);
                (self.free_in(tier) + self.rehomed(tier)).saturating_sub(promised)
            }
            own if own == bound => self.free_in(tier),
            _ => 0,
        };
        left.min(self.free_in_reach(tier))
    }

    /// The members that stand still now.
    pub(crate) fn standing_still(&self) -> Still {
        let now = self.env.now();
        let still = |m: &&Member<E::Device>| m.stands_still(now) && !mutant::on(Mutant::StillTakesChunks);
        Still(self.members.iter().filter(still).map(|m| m.index).collect())
    }

    /// Takes a free slot of `tier` for `chunk` on a member that is none of `but`, next to its neighbour where that is possible.
    pub(crate) fn take_slot(&self, tier: Tier, chunk: ChunkId, but: &Still) -> Option<SlotId> {
        self.take_beside(tier, chunk, but).or_else(|| self.take_fresh(tier, chunk, but))
    }

    /// Takes a free slot of `tier` on a member that is none of `but`, wherever there is room for a run.
    pub(crate) fn take_fresh(&self, tier: Tier, chunk: ChunkId, but: &Still) -> Option<SlotId> {
        let lane = (chunk.0 % RUN) as u32;
        let open = self.members_of(tier).filter(|m| m.takes_chunks() && !but.has(m.index));
        let m = open.max_by_key(|m| m.free.borrow().free())?;
        let slot = m.free.borrow_mut().take(None, lane)?;
        Some(SlotId { member: m.index, slot })
    }

    /// The slot that lies to a neighbour's as `chunk` does to the neighbour: one of the same MiB, the one before it rather than
    /// the others, or else the last of the MiB before. With several members in a tier a run would else be torn apart whenever
    /// it comes out of order; and of a volume that is written at random no MiB would lie in one piece.
    fn take_beside(&self, tier: Tier, chunk: ChunkId, but: &Still) -> Option<SlotId> {
        let first = chunk.0 / RUN * RUN;
        let before = chunk.0.checked_sub(1);
        let same_mib = (first..first + RUN).filter(|c| *c != chunk.0);
        for near in before.filter(|c| *c >= first).into_iter().chain(same_mib).chain(before) {
            let Some(e) = self.neighbour(near).filter(Entry::is_mapped) else { continue };
            let slot = (i64::from(e.slot) + chunk.0 as i64 - near as i64).try_into().ok();
            let m = &self.members[e.member as usize];
            let Some(slot) = slot.filter(|_| m.tier == tier && m.takes_chunks() && !but.has(m.index)) else { continue };
            if m.free.borrow_mut().take_exact(slot) {
                return Some(SlotId { member: m.index, slot });
            }
        }
        None
    }

    fn neighbour(&self, chunk: u64) -> Option<Entry> {
        let map = self.map.borrow();
        let chunk = ChunkId(chunk);
        ((chunk.page() as usize) < map.len()).then(|| map.get(chunk)).flatten()
    }

    /// The slot after that of `last`, if `chunk` follows it, and the member is none of `but`.
    pub(crate) fn take_after(&self, last: (ChunkId, SlotId), chunk: ChunkId, but: &Still) -> Option<SlotId> {
        let SlotId { member, slot } = last.1;
        let follows = last.0 .0 + 1 == chunk.0 && !but.has(member);
        let next = SlotId { member, slot: slot + 1 };
        let m = &self.members[member as usize];
        (follows && m.takes_chunks() && m.free.borrow_mut().take_exact(next.slot)).then_some(next)
    }

    /// A slot for the first home of `chunk`: in the tier that the policy wishes, else in the other, else after a
    /// commit that frees some. Waits for that, and for a move only where the mover owes a slot. `None`: somebody else gave the
    /// chunk a home meanwhile.
    pub(crate) async fn allocate(&self, v: &VolumeInfo, chunk: ChunkId, wish: Tier) -> Result<Option<SlotId>, Error> {
        let order = match v.placement {
            Placement::Auto => [wish, wish.other()],
            Placement::FastOnly => [Tier::Fast; 2],
            Placement::SlowOnly => [Tier::Slow; 2],
        };
        let mut patience = Patience::begin(self);
        while !self.entry(chunk)?.is_mapped() {
            // It is promised nothing any more: what is free may be what another volume is promised (I5).
            if v.deleted.get() && !mutant::on(Mutant::I5DeletedTakesSlots) {
                return Err(Error::Deleted);
            }
            match self.slot_in_one_of(order, v.placement, chunk).await {
                Ok(None) if mutant::on(Mutant::I5OwedCountsAll) => patience.wear(),
                Ok(None) => {}
                Err(Error::NoSpace) if self.is_owed_by_the_mover(v.placement) => {
                    patience.look(self)?;
                    self.mover_wake.notify();
                    self.env.sleep(LOOK_AGAIN).await;
                }
                found => return found,
            }
        }
        Ok(None)
    }

    /// Whether what a volume was promised on its tier is taken by chunks that can go to the other. So it is after a repair without a
    /// member that has died.
    fn is_owed_by_the_mover(&self, placement: Placement) -> bool {
        let Some(tier) = tier_of(placement) else { return false };
        let copies = if tier == Tier::Fast { self.copies() } else { 0 };
        let room = self.available(tier.other(), Placement::Auto) + copies;
        let moves = self.options.migrate && self.lost_member().is_none() && !mutant::on(Mutant::I5OwedAtOnce);
        moves && room > 0 && self.volumes.any_auto_on(self.open_to_chunks(tier).map(|m| m.index))
    }

    /// A slot of one of these tiers, or `None` after waiting a moment for one that is on its way to being free.
    pub(crate) async fn slot_in_one_of(
        &self,
        tiers: [Tier; 2],
        placement: Placement,
        chunk: ChunkId,
    ) -> Result<Option<SlotId>, Error> {
        if let Some(slot) = self.free_slot_in_one_of(tiers, placement, chunk) {
            return Ok(Some(slot));
        }
        self.health.check()?;
        let freed = self.reclaim.freed.wait();
        let leaving = self.reclaiming() + self.commit.left.borrow().len();
        let on_the_way = leaving + self.claims.motions() + self.families.held();
        let committing = self.commit.is_running();
        let kept = tiers.contains(&Tier::Slow) && self.copies_in_reach() > 0;
        if on_the_way == 0 && !committing && !kept {
            return Err(self.nothing_comes(tiers));
        }
        if kept {
            self.drop_kept(KEPT_AT_ONCE).await;
        }
        crate::member::add(&self.counters.full_waits, 1);
        self.demand_slots();
        if !self.commit.left.borrow().is_empty() {
            self.commit_changes().await?;
        }
        crate::wait::first(freed, self.env.sleep(LOOK_AGAIN)).await;
        Ok(None)
    }

    /// A free slot: in the first of the tiers that has one, and on a member that stands still only if there is no other in either.
    fn free_slot_in_one_of(&self, tiers: [Tier; 2], placement: Placement, chunk: ChunkId) -> Option<SlotId> {
        let still = self.standing_still();
        let answers = self.slot_that_answers(tiers, placement, chunk, &still);
        match answers.is_none() && !still.is_none() {
            true => self.slot_that_answers(tiers, placement, chunk, &Still::default()),
            false => answers,
        }
    }

    /// A free slot in the first of the tiers that has one on a member that is none of these.
    pub(crate) fn slot_that_answers(
        &self,
        tiers: [Tier; 2],
        placement: Placement,
        chunk: ChunkId,
        still: &Still,
    ) -> Option<SlotId> {
        let mut open = tiers.into_iter().filter(|t| self.available(*t, placement) > 0);
        open.find_map(|tier| self.take_slot(tier, chunk, still))
    }

    /// Why no slot becomes free: there is none, or a member that is lost has the room, or would have to hear first that chunks left it.
    fn nothing_comes(&self, tiers: [Tier; 2]) -> Error {
        let room = |m: &Member<E::Device>| tiers.contains(&m.tier) && m.free.borrow().free() + m.copies.get() > 0;
        let has_some = |m: &&Member<E::Device>| self.is_out_of_reach(m) && (m.telling.untold() > 0 || room(m));
        match self.members.iter().find(has_some) {
            Some(m) => Error::Device { member: m.index, source: DeviceError::Disconnected },
            None => Error::NoSpace,
        }
    }

    /// Gives a slot back that was taken for `chunk` but never became its home.
    pub(crate) fn untake(&self, slot: SlotId, chunk: ChunkId) {
        let tainted = self.members[slot.member as usize].is_tainted(slot.slot);
        if tainted && !mutant::on(Mutant::C2NoQuarantine) {
            self.reclaim_slot(slot, chunk);
        } else {
            self.free_now(slot);
        }
    }
}

/// Members that stand still.
#[derive(Clone, Default)]
pub(crate) struct Still(SmallVec<[MemberIndex; 4]>);

impl Still {
    pub(crate) fn has(&self, m: MemberIndex) -> bool {
        self.0.contains(&m)
    }

    fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

/// Somebody who waits for the mover.
struct Patience {
    /// Chunks that had moved when he looked last.
    moved: u64,
    left: Duration,
}

impl Patience {
    fn begin<E: Env>(core: &Core<E>) -> Patience {
        Patience { moved: core.mover.moved(), left: PATIENCE }
    }

    /// Fails if it is over, or the group is stopping. While a disk stands still it does not run out: the mover may have to wait for it.
    fn look<E: Env>(&mut self, core: &Core<E>) -> Result<(), Error> {
        if core.stopping.get() {
            return Err(Error::Stopping);
        }
        if core.mover.moved() > self.moved {
            *self = Patience::begin(core);
        }
        if core.standing_still().is_none() || mutant::on(Mutant::I5OwedCountsAll) {
            self.wear();
        }
        if self.left.is_zero() {
            return Err(Error::NoSpace);
        }
        Ok(())
    }

    fn wear(&mut self) {
        self.left = self.left.saturating_sub(LOOK_AGAIN);
    }
}
