//! What the policy sees of an open group.

use super::View;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, Placement, Tier};

/// A [`View`] of a group. Borrows components only for the length of a call.
pub(crate) struct EngineView<'a, E: Env> {
    core: &'a Core<E>,
}

impl<E: Env> Core<E> {
    pub(crate) fn view(&self) -> EngineView<'_, E> {
        EngineView { core: self }
    }
}

impl<E: Env> EngineView<'_, E> {
    /// Whether there is no such chunk: the policy asks for neighbours, and the last one has none.
    fn is_behind_the_map(&self, c: ChunkId) -> bool {
        c.page() as usize >= self.core.map.borrow().len() && !mutant::on(Mutant::NeighbourBehindMap)
    }
}

impl<E: Env> View for EngineView<'_, E> {
    fn now(&self) -> Instant {
        self.core.env.now()
    }

    fn fast_slots(&self) -> u32 {
        self.core.slots_present(Tier::Fast) as u32
    }

    fn fast_at(&self, mut i: u32) -> Option<ChunkId> {
        for m in self.core.members_of(Tier::Fast) {
            let occupants = m.occupants.borrow();
            if (i as usize) < occupants.len() {
                return occupants.get(i).filter(|chunk| self.tier_of(*chunk) == Some(Tier::Fast));
            }
            i -= occupants.len() as u32;
        }
        None
    }

    fn fast_slot(&self, c: ChunkId) -> Option<u32> {
        let entry = self.core.entry(c).ok().filter(|e| e.is_mapped())?;
        let mut before = 0;
        for m in self.core.members_of(Tier::Fast) {
            if m.index == entry.member {
                return Some(before + entry.slot);
            }
            before += m.occupants.borrow().len() as u32;
        }
        None
    }

    fn heat(&self, c: ChunkId) -> u16 {
        self.core.map.borrow().heat(c)
    }

    fn set_heat(&mut self, c: ChunkId, heat: u16) {
        self.core.map.borrow_mut().set_heat(c, heat);
    }

    fn parts(&self) -> u32 {
        self.core.map.borrow().len() as u32
    }

    fn change_heats(&mut self, part: u32, change: impl Fn(u16) -> Option<u16>) -> bool {
        self.core.map.borrow_mut().change_heats(part, change)
    }

    fn tier_of(&self, c: ChunkId) -> Option<Tier> {
        if self.core.placement_of(c) != Some(Placement::Auto) || self.core.claims.in_motion(c) {
            return None;
        }
        let entry = self.core.entry(c).ok().filter(|e| e.is_mapped())?;
        let m = &self.core.members[entry.member as usize];
        m.is_present().then_some(m.tier)
    }

    fn is_mapped(&self, c: ChunkId) -> bool {
        !self.is_behind_the_map(c) && self.core.entry(c).is_ok_and(|e| e.is_mapped())
    }

    fn free_fast(&self) -> u32 {
        self.core.available(Tier::Fast, Placement::Auto) as u32
    }

    fn reserve(&self) -> u32 {
        self.core.reserve_slots() as u32
    }

    fn keep_free(&self) -> u32 {
        self.core.keep_free_slots() as u32
    }

    fn may_fill(&self) -> bool {
        let fast_slots = self.core.slots_in(Tier::Fast) as u32;
        self.core.mover.scheduler.borrow_mut().has_life_to_spare(fast_slots, self.now())
    }

    fn has_copy(&self, c: ChunkId) -> bool {
        self.core.entry(c).is_ok_and(|e| self.core.copy_of(&e).is_some())
    }

    fn random(&mut self) -> u32 {
        self.core.env.random() as u32
    }
}
