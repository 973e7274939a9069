//! Clock and Bloom filters, as the patents describe Apple's Fusion Drive (US 9710397, US 8914381; POLICY 1e).
//!
//! Fast slots form a circle with a hand and a small count each: a visit adds one, the hand takes one off, and what
//! stands at the floor may leave. Visits of slow chunks go into a queue of Bloom filters; a chunk found there so often
//! that this visit is the N-th is promoted. Besides N the patents give no numbers; those below are POLICY's (3).

use std::collections::VecDeque;

use bimetal_sim::prng::mix;
use bimetal_volume::units::Tier;

use super::piece::Piece;
use super::seat::{Baseline, Wishes};
use super::tiers::Tiers;

/// Visits remembered, per fast slot.
const WINDOW_PER_SLOT: u64 = 4;
/// Filters that the window is divided into; the oldest is dropped as a whole.
const GENERATIONS: usize = 4;
/// Highest count of a fast slot.
const COUNT_MAX: u8 = 3;
/// Hash functions of a filter, and bits for each visit it may have to hold: 0.2 % false positives.
const HASHES: u64 = 4;
const BITS_PER_VISIT: u64 = 16;

/// A set that may say yes to what it does not hold.
pub(super) struct Bloom {
    words: Vec<u64>,
    mask: u64,
}

impl Bloom {
    pub(super) fn new(items: u64) -> Bloom {
        let bits = (items * BITS_PER_VISIT).next_power_of_two().max(1024);
        Bloom { words: vec![0; bits as usize / 64], mask: bits - 1 }
    }

    fn bits(&self, chunk: u32) -> impl Iterator<Item = (usize, u64)> {
        let (hash, mask) = (mix(u64::from(chunk) + 1), self.mask);
        // Two halves of one hash make as many as are needed.
        let (a, b) = (hash & 0xffff_ffff, hash >> 32 | 1);
        (0..HASHES).map(move |i| {
            let bit = (a + i * b) & mask;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    pub(super) fn insert(&mut self, chunk: u32) {
        for (word, bit) in self.bits(chunk) {
            self.words[word] |= bit;
        }
    }

    pub(super) fn contains(&self, chunk: u32) -> bool {
        self.bits(chunk).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

/// The queue of Bloom filters: which slow chunks were visited lately, and how often.
pub(crate) struct VisitQueue {
    /// Visits that it can count to.
    visits: usize,
    /// Per generation, the newest last: filters of chunks visited once, twice ... N - 1 times in it.
    generations: VecDeque<Vec<Bloom>>,
    /// Visits of slow chunks in the newest generation, and when it is full.
    filled: u64,
    full: u64,
}

impl VisitQueue {
    /// A queue beside so many fast slots that tells the `visits`-th visit from those before it.
    pub(crate) fn new(fast_slots: u32, visits: usize) -> VisitQueue {
        let full = (u64::from(fast_slots) * WINDOW_PER_SLOT / GENERATIONS as u64).max(1);
        let mut new = VisitQueue { visits: visits.max(1), generations: VecDeque::new(), filled: 0, full };
        new.turn();
        new
    }

    /// Begins a new generation.
    fn turn(&mut self) {
        if self.generations.len() >= GENERATIONS {
            self.generations.pop_front();
        }
        self.generations.push_back((1..self.visits).map(|_| Bloom::new(self.full)).collect());
        self.filled = 0;
    }

    /// Remembers a visit of a slow chunk; whether it is at least the N-th that is remembered.
    pub(crate) fn remember(&mut self, chunk: u32) -> bool {
        if self.filled >= self.full {
            self.turn();
        }
        self.filled += 1;
        let seen = self.generations.iter().flatten().filter(|f| f.contains(chunk)).count();
        let newest = self.generations.back_mut();
        if let Some(filter) = newest.and_then(|g| g.iter_mut().find(|f| !f.contains(chunk))) {
            filter.insert(chunk);
        }
        seen + 1 >= self.visits
    }
}

/// The circle of fast slots with its hand: which chunk may leave.
pub(crate) struct Clock {
    /// Count of each fast slot.
    counts: Vec<u8>,
    hand: u32,
}

impl Clock {
    /// A circle of so many slots, all at the floor.
    pub(crate) fn new(slots: u32) -> Clock {
        Clock { counts: vec![0; slots as usize], hand: 0 }
    }

    /// The chunk in a slot was visited.
    pub(crate) fn visit(&mut self, slot: u32) {
        let count = &mut self.counts[slot as usize];
        *count = (*count + 1).min(COUNT_MAX);
    }

    /// A chunk entered a slot.
    pub(crate) fn enter(&mut self, slot: u32) {
        self.counts[slot as usize] = 1;
    }

    /// Turns the hand to a chunk that may leave; `held` says which one a slot holds.
    pub(crate) fn victim(&mut self, held: impl Fn(u32) -> Option<u32>) -> Option<u32> {
        let slots = self.counts.len() as u32;
        // Once round for each step down to the floor, and once more.
        for _ in 0..u64::from(slots) * (u64::from(COUNT_MAX) + 1) {
            let slot = self.hand;
            self.hand = (slot + 1) % slots;
            if let Some(chunk) = held(slot) {
                let count = &mut self.counts[slot as usize];
                if *count == 0 {
                    return Some(chunk);
                }
                *count -= 1;
            }
        }
        None
    }
}

/// Clock over the fast slots, Bloom filters over the slow chunks.
pub struct ClockBloom {
    /// Visits that promote a chunk: N.
    visits: usize,
    queue: VisitQueue,
    clock: Clock,
    wishes: Wishes,
}

impl ClockBloom {
    /// The policy for so many fast slots that promotes at the `visits`-th visit.
    pub fn new(fast_slots: u32, visits: usize) -> ClockBloom {
        let queue = VisitQueue::new(fast_slots, visits);
        ClockBloom { visits: visits.max(1), queue, clock: Clock::new(fast_slots), wishes: Wishes::default() }
    }
}

impl Baseline for ClockBloom {
    fn name(&self) -> String {
        format!("clock+Bloom N={}", self.visits)
    }

    fn touch(&mut self, tiers: &Tiers, piece: &Piece) {
        if let Some(slot) = tiers.slot_of(piece.chunk) {
            self.clock.visit(slot);
        } else if self.queue.remember(piece.chunk) {
            self.wishes.push(piece.chunk);
        }
    }

    fn candidate(&mut self, tiers: &Tiers) -> Option<u32> {
        self.wishes.pop(|c| tiers.is_on(c, Tier::Slow))
    }

    fn waiting(&self) -> usize {
        self.wishes.len()
    }

    fn victim(&mut self, tiers: &Tiers) -> Option<u32> {
        self.clock.victim(|slot| tiers.in_slot(slot))
    }

    fn moved(&mut self, tiers: &Tiers, chunk: u32, to: Tier) {
        if let (Tier::Fast, Some(slot)) = (to, tiers.slot_of(chunk)) {
            self.clock.enter(slot);
        }
    }
}
