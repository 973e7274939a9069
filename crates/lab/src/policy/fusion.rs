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

/// Clock over the fast slots, Bloom filters over the slow chunks.
pub struct ClockBloom {
    /// Visits that promote a chunk: N.
    visits: usize,
    /// Per generation, the newest last: filters of chunks visited once, twice ... N - 1 times in it.
    generations: VecDeque<Vec<Bloom>>,
    /// Visits of slow chunks in the newest generation, and when it is full.
    filled: u64,
    full: u64,
    /// Count of each fast slot.
    counts: Vec<u8>,
    hand: u32,
    wishes: Wishes,
}

impl ClockBloom {
    /// The policy for so many fast slots that promotes at the `visits`-th visit.
    pub fn new(fast_slots: u32, visits: usize) -> ClockBloom {
        let full = (u64::from(fast_slots) * WINDOW_PER_SLOT / GENERATIONS as u64).max(1);
        let mut new = ClockBloom {
            visits: visits.max(1),
            generations: VecDeque::new(),
            filled: 0,
            full,
            counts: vec![0; fast_slots as usize],
            hand: 0,
            wishes: Wishes::default(),
        };
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

    /// Remembers a visit of a slow chunk; how many are remembered with it.
    fn remember(&mut self, chunk: u32) -> usize {
        if self.filled >= self.full {
            self.turn();
        }
        self.filled += 1;
        let seen = self.generations.iter().flatten().filter(|f| f.contains(chunk)).count();
        let newest = self.generations.back_mut();
        if let Some(filter) = newest.and_then(|g| g.iter_mut().find(|f| !f.contains(chunk))) {
            filter.insert(chunk);
        }
        seen + 1
    }
}

impl Baseline for ClockBloom {
    fn name(&self) -> String {
        format!("clock+Bloom N={}", self.visits)
    }

    fn touch(&mut self, tiers: &Tiers, piece: &Piece) {
        if let Some(slot) = tiers.slot_of(piece.chunk) {
            let count = &mut self.counts[slot as usize];
            *count = (*count + 1).min(COUNT_MAX);
        } else if self.remember(piece.chunk) >= self.visits {
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
        let slots = tiers.fast_slots();
        // Once round for each step down to the floor, and once more.
        for _ in 0..u64::from(slots) * (u64::from(COUNT_MAX) + 1) {
            let slot = self.hand;
            self.hand = (slot + 1) % slots;
            if let Some(chunk) = tiers.in_slot(slot) {
                let count = &mut self.counts[slot as usize];
                if *count == 0 {
                    return Some(chunk);
                }
                *count -= 1;
            }
        }
        None
    }

    fn moved(&mut self, tiers: &Tiers, chunk: u32, to: Tier) {
        if let (Tier::Fast, Some(slot)) = (to, tiers.slot_of(chunk)) {
            self.counts[slot as usize] = 1;
        }
    }
}
