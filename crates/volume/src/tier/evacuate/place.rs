//! Where a chunk of a member that leaves goes.

use crate::claim::Claimed;
use crate::env::Env;
use crate::group::core::Core;
use crate::io::place::Still;
use crate::member::Standing;
use crate::slots::GROUP;
use crate::tier::mover::{by_way, Move};
use crate::tier::under_way::{Planner, Stage};
use crate::tier::Job;
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};

impl<E: Env> Core<E> {
    /// What a member's chunks are read from, and where they go.
    pub(super) fn tiers_of_evacuation(&self, m: MemberIndex) -> [Tier; 2] {
        let own = self.members[m as usize].tier;
        [own, self.shelter(own, Placement::Auto).unwrap_or(own)]
    }

    /// Moves of these chunks, those between the same members together.
    pub(super) fn begin_evacuations(&self, m: MemberIndex, chunks: &[ChunkId]) -> Vec<(Job, Vec<Move>)> {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for chunk in chunks {
            match self.begin_evacuation(m, *chunk, None) {
                Some((Job::Demote, mv)) => down.push(mv),
                Some((Job::Promote, mv)) => up.push(mv),
                None => {}
            }
        }
        let batches = [(Job::Demote, down), (Job::Promote, up)].into_iter();
        batches.flat_map(|(job, moves)| by_way(moves).into_iter().map(move |moves| (job, moves))).collect()
    }

    pub(super) fn begin_evacuation(
        &self,
        m: MemberIndex,
        chunk: ChunkId,
        claim: Option<&Claimed<'_>>,
    ) -> Option<(Job, Move)> {
        let entry = self.entry(chunk).ok().filter(|e| e.is_mapped() && e.member == m)?;
        let placement = self.placement_of(chunk)?;
        let tier = self.shelter(self.members[m as usize].tier, placement)?;
        if !claim.map_or_else(|| self.claims.begin_motion(chunk), |c| self.claims.begin_motion_under(c)) {
            return None;
        }
        let job = if tier == Tier::Fast { Job::Promote } else { Job::Demote };
        let from = SlotId { member: m, slot: entry.slot };
        let still = self.standing_still();
        let Some(to) = self.take_like(from, tier, &still).or_else(|| self.take_fresh(tier, chunk, &still)) else {
            self.claims.end_motion(chunk);
            return None;
        };
        let certain = !self.members[m as usize].is_tainted(from.slot);
        self.mover.last_evacuated.set(Some((from, to)));
        let rehomes = placement == Placement::SlowOnly;
        let mv = Move { chunk, from, to, mask: entry.mask, kept: false, certain, evacuates: true, rehomes };
        if rehomes {
            self.mover.under_way.begins(Job::Demote, Stage::Rehoming, &mv);
        }
        Some((job, mv))
    }

    /// Slots of a tier that chunks of volumes bound to it have taken on members that stay, and that they count as promised all the same,
    /// because until they switch they live on one that leaves. When it does not leave any more they are not promised another one.
    pub(crate) fn rehomed(&self, tier: Tier) -> u64 {
        if tier == Tier::Fast {
            return 0;
        }
        let leaves = |m: MemberIndex| self.members[m as usize].standing.get() == Standing::Leaving;
        let stays = |m: MemberIndex| self.members[m as usize].takes_slots();
        let counts = |from, to| leaves(from) && stays(to);
        self.mover.under_way.between(Job::Demote, Planner::Evacuation, Stage::Rehoming, counts) as u64
    }

    /// The slot that lies to the one taken last as `from` does to the one left last: what is read without seeks is written
    /// without seeks. Chunks that are neighbours in a volume stay as near to each other as they were. Groups of slots that
    /// nothing is left in are left out: `take_fresh` would come back to them. A group is begun only if it is wholly free: else
    /// there may be no room in it for what belongs together.
    fn take_like(&self, from: SlotId, tier: Tier, still: &Still) -> Option<SlotId> {
        let (left, taken) = self.mover.last_evacuated.get().filter(|(left, _)| left.member == from.member)?;
        let apart = from.slot.checked_sub(left.slot).filter(|apart| *apart > 0)?;
        let group = |slot| slot / GROUP as u32;
        let left_out = (group(from.slot) - group(left.slot)).saturating_sub(1) * GROUP as u32;
        let m = &self.members[taken.member as usize];
        let next = SlotId { member: taken.member, slot: taken.slot + (apart - left_out) };
        let mut free = m.free.borrow_mut();
        let room = group(next.slot) == group(taken.slot) || free.is_in_free_group(next.slot);
        (m.tier == tier && m.takes_chunks() && !still.has(m.index) && room && free.take_exact(next.slot))
            .then_some(next)
    }

    /// The tier in which a chunk of this placement finds a place: its own rather than the other one, and either beyond
    /// the reserve rather than in it.
    fn shelter(&self, own: Tier, placement: Placement) -> Option<Tier> {
        let room = |tier| self.available(tier, placement);
        let free = self.available(Tier::Fast, Placement::Auto) + self.available(Tier::Slow, Placement::Auto);
        if placement == Placement::Auto && free <= self.headroom() / 2 {
            return None;
        }
        let kept_free = |tier| if tier == Tier::Fast { self.keep_free_slots() } else { 0 };
        let tiers = [own, own.other()];
        let beyond = tiers.into_iter().find(|t| room(*t) > kept_free(*t));
        beyond.or_else(|| tiers.into_iter().find(|t| room(*t) > 0))
    }
}
