//! A replacement algorithm as a placement policy.
//!
//! The algorithm runs as if every fill were free and at once; what it would hold is what the fast tier should hold. The
//! mover brings the fast tier after it as fast as the budget lets it: what the algorithm took in and is still on the
//! slow tier wants up, what it let go and is still on the fast tier may leave. With an unlimited budget both are the
//! same at any time.

use std::collections::VecDeque;

use bimetal_volume::units::Tier;

use super::cache::Cache;
use super::piece::Piece;
use super::seat::{Baseline, Wishes};
use super::tiers::Tiers;

/// A [`Cache`] whose content the fast tier follows.
pub struct Shadow<C> {
    cache: C,
    wishes: Wishes,
    /// Fast chunks that the algorithm let go, the longest ago first.
    leaving: VecDeque<u32>,
    evicted: Vec<u32>,
    /// Fast slots that need not be free, as it was told last; all that it was made for before that.
    hold: Option<u32>,
}

impl<C: Cache> Shadow<C> {
    /// The policy of an algorithm. Its capacity is the fast slots less what has to be free.
    pub fn new(cache: C) -> Shadow<C> {
        Shadow { cache, wishes: Wishes::default(), leaving: VecDeque::new(), evicted: Vec::new(), hold: None }
    }

    /// The algorithm.
    pub fn cache(&self) -> &C {
        &self.cache
    }
}

impl<C: Cache> Shadow<C> {
    /// What has to be free follows what new data ask for.
    fn fit(&mut self, tiers: &Tiers) {
        let hold = tiers.fast_slots().saturating_sub(tiers.keep_free());
        if self.hold != Some(hold) {
            self.hold = Some(hold);
            self.cache.resize(hold as usize, &mut self.evicted);
        }
    }
}

impl<C: Cache> Baseline for Shadow<C> {
    fn name(&self) -> String {
        self.cache.name().into()
    }

    fn touch(&mut self, tiers: &Tiers, piece: &Piece) {
        self.fit(tiers);
        self.cache.access(piece.chunk, &mut self.evicted);
        let held = self.cache.holds(piece.chunk);
        if held && tiers.is_on(piece.chunk, Tier::Slow) {
            self.wishes.push(piece.chunk);
        }
        self.leaving.extend(self.evicted.drain(..).filter(|c| tiers.is_on(*c, Tier::Fast)));
        // A chunk that was refused at once is not among those let go.
        if !held && tiers.is_on(piece.chunk, Tier::Fast) && self.leaving.back() != Some(&piece.chunk) {
            self.leaving.push_back(piece.chunk);
        }
    }

    fn candidate(&mut self, tiers: &Tiers) -> Option<u32> {
        let cache = &self.cache;
        self.wishes.pop(|c| cache.holds(c) && tiers.is_on(c, Tier::Slow))
    }

    fn waiting(&self) -> usize {
        self.wishes.len()
    }

    fn discarded(&mut self, chunk: u32) {
        self.cache.forget(chunk);
    }

    fn victim(&mut self, tiers: &Tiers) -> Option<u32> {
        while let Some(chunk) = self.leaving.pop_front() {
            if !self.cache.holds(chunk) && tiers.is_on(chunk, Tier::Fast) {
                return Some(chunk);
            }
        }
        None
    }
}
