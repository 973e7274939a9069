//! The two tiers of a replay: which chunk is where, without data. It is what the production policy's `View` sees of a
//! group.

use bimetal_sim::prng::Prng;
use bimetal_volume::env::Instant;
use bimetal_volume::tier::reserve::{Learned, Reserve};
use bimetal_volume::tier::{Influx, View};
use bimetal_volume::units::{ChunkId, Tier};

use super::engine::Copies;

/// A chunk without a home, and one on the slow tier; below these, the fast slot.
const UNMAPPED: u32 = u32::MAX;
const SLOW: u32 = u32::MAX - 1;

/// Chunks of a part of the map, as in the engine.
const PART: usize = bimetal_format::ENTRIES_PER_PAGE;

/// Homes of chunks. The slow tier takes any number.
pub struct Tiers {
    now: Instant,
    home: Vec<u32>,
    heat: Vec<u16>,
    /// The chunk in each fast slot.
    slots: Vec<Option<u32>>,
    free: Vec<u32>,
    reserve: u32,
    /// Copies that the engine keeps; `None` for policies that do not sit in it.
    pub(super) copies: Option<Copies>,
    /// What the policy has learned that the reserve needs to know.
    learned: Learned,
    /// What is born, for policies that do not sit in the engine: what has to be free for them is learned as it is there.
    influx: Influx,
    rng: Prng,
}

impl Tiers {
    /// Tiers for chunks below `chunks`, with so many fast slots, of which new data find `reserve`.
    pub fn new(chunks: u32, fast_slots: u32, reserve: u32, seed: u64) -> Tiers {
        Tiers {
            now: Instant(0),
            home: vec![UNMAPPED; chunks as usize],
            heat: vec![0; chunks as usize],
            slots: vec![None; fast_slots as usize],
            free: (0..fast_slots).rev().collect(),
            reserve,
            copies: None,
            learned: Learned::default(),
            influx: Influx::new(),
            rng: Prng::new(seed),
        }
    }

    /// The tier of a chunk; `None` for one without a home.
    pub fn tier(&self, chunk: u32) -> Option<Tier> {
        match self.home.get(chunk as usize).copied() {
            None | Some(UNMAPPED) => None,
            Some(SLOW) => Some(Tier::Slow),
            Some(_) => Some(Tier::Fast),
        }
    }

    /// Whether a chunk is on this tier.
    pub fn is_on(&self, chunk: u32, tier: Tier) -> bool {
        self.tier(chunk) == Some(tier)
    }

    /// The fast slot of a chunk that has one.
    pub fn slot_of(&self, chunk: u32) -> Option<u32> {
        self.home.get(chunk as usize).copied().filter(|h| *h < SLOW)
    }

    /// The chunk in a fast slot.
    pub fn in_slot(&self, slot: u32) -> Option<u32> {
        self.slots.get(slot as usize).copied().flatten()
    }

    /// Fast slots.
    pub fn fast_slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Fast slots that are free.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Fast slots that new data find.
    pub fn reserve(&self) -> u32 {
        self.reserve
    }

    /// Those of them that the mover keeps free.
    pub fn keep_free(&self) -> u32 {
        self.room().to_keep_free() as u32
    }

    /// Free slots below which chunks are let go.
    pub(super) fn low(&self) -> u32 {
        self.room().low() as u32
    }

    /// The policy has learned this.
    pub(super) fn learn(&mut self, learned: Learned) {
        self.learned = learned;
    }

    fn room(&self) -> Reserve {
        let (copies, learned) = match &self.copies {
            Some(copies) => (copies.count(), self.learned),
            None => (0, Learned { cold_copies: Some(0), influx: self.influx.most() }),
        };
        Reserve { slots: self.reserve.into(), copies, learned }
    }

    /// A chunk was used, and got its first home by that if it was `born`.
    pub(super) fn used(&mut self, born: bool) {
        if born {
            self.influx.born();
        }
        self.influx.visit(self.fast_slots());
    }

    pub(super) fn set_now(&mut self, ns: u64) {
        // Instants of the engine begin after 0.
        self.now = Instant(ns.saturating_add(1));
    }

    /// Gives a chunk a home on a tier, taking it from the one it had; false, and nothing done, without a free slot.
    pub(super) fn set(&mut self, chunk: u32, tier: Tier) -> bool {
        if self.is_on(chunk, tier) {
            return true;
        }
        match tier {
            Tier::Slow => {
                self.unmap(chunk);
                self.home[chunk as usize] = SLOW;
            }
            Tier::Fast => {
                let Some(slot) = self.free.pop() else { return false };
                self.home[chunk as usize] = slot;
                self.slots[slot as usize] = Some(chunk);
            }
        }
        true
    }

    /// Takes a chunk's home away.
    pub(super) fn unmap(&mut self, chunk: u32) {
        if let Some(slot) = self.slot_of(chunk) {
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }
        self.home[chunk as usize] = UNMAPPED;
    }
}

impl View for Tiers {
    fn now(&self) -> Instant {
        self.now
    }
    fn fast_slots(&self) -> u32 {
        Tiers::fast_slots(self)
    }
    fn fast_at(&self, i: u32) -> Option<ChunkId> {
        self.in_slot(i).map(|c| ChunkId(u64::from(c)))
    }
    fn fast_slot(&self, c: ChunkId) -> Option<u32> {
        u32::try_from(c.0).ok().and_then(|c| self.slot_of(c))
    }
    fn heat(&self, c: ChunkId) -> u16 {
        self.heat.get(c.0 as usize).copied().unwrap_or(0)
    }
    fn set_heat(&mut self, c: ChunkId, heat: u16) {
        if let Some(h) = self.heat.get_mut(c.0 as usize) {
            *h = heat;
        }
    }
    fn parts(&self) -> u32 {
        self.heat.len().div_ceil(PART) as u32
    }
    fn change_heats(&mut self, part: u32, change: impl Fn(u16) -> Option<u16>) -> bool {
        for heat in self.heat.iter_mut().skip(part as usize * PART).take(PART) {
            *heat = change(*heat).unwrap_or(*heat);
        }
        true
    }
    fn tier_of(&self, c: ChunkId) -> Option<Tier> {
        u32::try_from(c.0).ok().and_then(|c| self.tier(c))
    }
    fn free_fast(&self) -> u32 {
        self.free()
    }
    fn reserve(&self) -> u32 {
        self.reserve
    }
    fn keep_free(&self) -> u32 {
        Tiers::keep_free(self)
    }
    fn may_fill(&self) -> bool {
        true
    }
    fn has_copy(&self, c: ChunkId) -> bool {
        let chunk = u32::try_from(c.0).ok();
        chunk.is_some_and(|c| self.copies.as_ref().is_some_and(|copies| copies.has(c)))
    }
    fn random(&mut self) -> u32 {
        (self.rng.next() >> 32) as u32
    }
}
