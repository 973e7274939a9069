//! LFU with perfect counts: a chunk enters when it was used more often than the least used one inside. With aging all
//! counts are halved from time to time.
//!
//! Counts are not halved in place: a later visit weighs twice as much instead, which is the same order.

use super::Cache;
use crate::policy::heap::Heap;

/// Weight of a visit at which all scores are scaled down. Powers of two, so scaling is exact.
const RESCALE_AT: f64 = 1.157_920_892_373_162e77;

/// Least frequently used, admission on more use than the victim.
pub struct Lfu {
    /// Score of every chunk, held or not.
    scores: Vec<f64>,
    /// The chunks held, by (score as ordered bits, time of last visit).
    held: Heap<(u64, u64)>,
    capacity: usize,
    weight: f64,
    visits: u64,
    /// Visits between halvings; 0: never.
    period: u64,
}

impl Lfu {
    /// A cache of `capacity` of the chunks below `chunks`; counts are halved each `period` visits, never if it is 0.
    pub fn new(chunks: u32, capacity: usize, period: u64) -> Lfu {
        let scores = vec![0.0; chunks as usize];
        Lfu { scores, held: Heap::new(chunks), capacity, weight: 1.0, visits: 0, period }
    }

    fn age(&mut self) {
        self.visits += 1;
        if self.period == 0 || self.visits % self.period != 0 {
            return;
        }
        self.weight *= 2.0;
        if self.weight >= RESCALE_AT {
            let down = 1.0 / self.weight;
            self.weight = 1.0;
            self.scores.iter_mut().for_each(|s| *s *= down);
            self.held.rescale(|(score, at)| ((f64::from_bits(score) * down).to_bits(), at));
        }
    }
}

impl Cache for Lfu {
    fn name(&self) -> &'static str {
        if self.period == 0 {
            "LFU"
        } else {
            "LFU aged"
        }
    }

    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        self.age();
        let score = &mut self.scores[chunk as usize];
        *score += self.weight;
        // The bits of positive floats are in the order of the floats.
        let key = (score.to_bits(), self.visits);
        let hit = self.held.contains(chunk);
        if hit || self.held.len() < self.capacity {
            self.held.set(chunk, key);
            return hit;
        }
        if let Some((least, victim)) = self.held.least() {
            if key.0 > least.0 {
                self.held.remove(victim);
                evicted.push(victim);
                self.held.set(chunk, key);
            }
        }
        hit
    }

    fn holds(&self, chunk: u32) -> bool {
        self.held.contains(chunk)
    }

    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        self.capacity = capacity;
        while self.len() > capacity {
            let Some((_, victim)) = self.held.least() else { return };
            self.held.remove(victim);
            evicted.push(victim);
        }
    }

    fn forget(&mut self, chunk: u32) {
        self.scores[chunk as usize] = 0.0;
        self.held.remove(chunk);
    }

    fn len(&self) -> usize {
        self.held.len()
    }
}
