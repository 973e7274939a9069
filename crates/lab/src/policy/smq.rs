//! A multi-queue policy in the manner of dm-cache's smq (POLICY 1c): chunks of the fast tier stand in 64 levels of
//! equal size, and a visit moves one up a level, in exchange for the one of that level not used for the longest time.
//! Larger regions of the slow tier stand in levels of their own; a chunk is promoted when its region stands high
//! enough, and how high depends on how well the fast tier does.
//!
//! Periods are counted in visits instead of seconds; there is no cleaner, since a tier has nothing to write back.

use bimetal_volume::units::Tier;

use super::lists::Lists;
use super::piece::Piece;
use super::seat::{Baseline, Wishes};
use super::tiers::Tiers;

/// Levels of a multi-queue.
const LEVELS: usize = 64;
/// Chunks of a region.
const REGION: u32 = 8;
/// Regions in the levels, for each fast slot's worth of chunks.
const REGIONS_PER_SLOTS: usize = 4;
/// A write needs a region so many levels higher.
const WRITE_LEVELS: usize = 2;
/// A period ends after so many visits for each fast slot.
const PERIOD_PER_SLOT: u64 = 1;

/// Items in levels of equal size, each in order of last use.
pub(super) struct Levels {
    lists: Lists,
    len: usize,
}

impl Levels {
    pub(super) fn new(items: u32) -> Levels {
        Levels { lists: Lists::new(items, LEVELS as u8), len: 0 }
    }

    /// Items that a level should have.
    fn target(&self) -> usize {
        self.len.div_ceil(LEVELS).max(1)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn level(&self, item: u32) -> Option<usize> {
        self.lists.list_of(item)
    }

    pub(super) fn insert(&mut self, item: u32, level: usize) {
        self.len += usize::from(self.level(item).is_none());
        self.lists.put_front(level, item);
    }

    pub(super) fn remove(&mut self, item: u32) {
        self.len -= usize::from(self.lists.remove(item));
    }

    /// Moves an item up a level. Where that makes the level too large, its least recent item comes down instead.
    pub(super) fn raise(&mut self, item: u32) {
        let Some(level) = self.level(item) else { return };
        let up = (level + 1).min(LEVELS - 1);
        self.lists.put_front(up, item);
        if up != level && self.lists.len(up) > self.target() {
            if let Some(down) = self.lists.back(up) {
                self.lists.put_front(level, down);
            }
        }
    }

    /// Brings every level to its size: what is too much goes down, what is missing comes from below.
    pub(super) fn even_out(&mut self) {
        let target = self.target();
        let mut below = LEVELS - 1;
        for level in (1..LEVELS).rev() {
            while self.lists.len(level) > target {
                if let Some(item) = self.lists.back(level) {
                    self.lists.put_front(level - 1, item);
                }
            }
            below = below.min(level);
            while self.lists.len(level) < target {
                while below > 0 && (below >= level || self.lists.len(below) == 0) {
                    below -= 1;
                }
                match self.lists.front(below) {
                    Some(item) if below < level => self.lists.put_front(level, item),
                    _ => break,
                }
            }
        }
    }

    /// The least recent item of the lowest level that has one.
    pub(super) fn least(&self) -> Option<u32> {
        (0..LEVELS).find_map(|l| self.lists.back(l))
    }
}

/// The smq-like policy.
pub struct Smq {
    fast: Levels,
    regions: Levels,
    regions_max: usize,
    /// The period in which an item last moved up: once in each.
    fast_raised: Vec<u32>,
    region_raised: Vec<u32>,
    period: u32,
    period_visits: u64,
    visits: u64,
    fast_hits: u64,
    /// Level from which a region's chunks are promoted on a read.
    threshold: usize,
    wishes: Wishes,
}

impl Smq {
    /// The policy for chunks below `chunks` and so many fast slots.
    pub fn new(chunks: u32, fast_slots: u32) -> Smq {
        let regions = chunks.div_ceil(REGION);
        Smq {
            fast: Levels::new(chunks),
            regions: Levels::new(regions),
            regions_max: (fast_slots as usize * REGIONS_PER_SLOTS / REGION as usize).max(LEVELS),
            fast_raised: vec![0; chunks as usize],
            region_raised: vec![0; regions as usize],
            period: 1,
            period_visits: (u64::from(fast_slots) * PERIOD_PER_SLOT).max(64),
            visits: 0,
            fast_hits: 0,
            threshold: LEVELS / 2,
            wishes: Wishes::default(),
        }
    }

    fn end_period(&mut self) {
        // The better the fast tier does, the less is changed; when it does badly, half of the regions are good enough.
        let percent = self.fast_hits * 100 / self.visits.max(1);
        self.threshold = match percent {
            0..=15 => LEVELS / 2,
            16..=30 => LEVELS * 5 / 8,
            31..=50 => LEVELS * 6 / 8,
            _ => LEVELS * 7 / 8,
        };
        self.fast.even_out();
        self.regions.even_out();
        self.period += 1;
        (self.visits, self.fast_hits) = (0, 0);
    }

    /// Counts a visit of a region; the level it has then.
    fn visit_region(&mut self, region: u32) -> usize {
        match self.regions.level(region) {
            None => {
                if self.regions.len() >= self.regions_max {
                    if let Some(least) = self.regions.least() {
                        self.regions.remove(least);
                    }
                }
                self.regions.insert(region, 0);
            }
            Some(_) if self.region_raised[region as usize] != self.period => self.regions.raise(region),
            Some(_) => {}
        }
        self.region_raised[region as usize] = self.period;
        self.regions.level(region).unwrap_or(0)
    }
}

impl Baseline for Smq {
    fn name(&self) -> String {
        "smq-like".into()
    }

    fn touch(&mut self, tiers: &Tiers, piece: &Piece) {
        self.visits += 1;
        let level = self.visit_region(piece.chunk / REGION);
        if tiers.is_on(piece.chunk, Tier::Fast) {
            self.fast_hits += 1;
            if self.fast_raised[piece.chunk as usize] != self.period {
                self.fast_raised[piece.chunk as usize] = self.period;
                self.fast.raise(piece.chunk);
            }
        } else if level >= self.threshold + if piece.writes() { WRITE_LEVELS } else { 0 } {
            self.wishes.push(piece.chunk);
        }
        if self.visits >= self.period_visits {
            self.end_period();
        }
    }

    fn candidate(&mut self, tiers: &Tiers) -> Option<u32> {
        self.wishes.pop(|c| tiers.is_on(c, Tier::Slow))
    }

    fn waiting(&self) -> usize {
        self.wishes.len()
    }

    fn victim(&mut self, tiers: &Tiers) -> Option<u32> {
        while let Some(chunk) = self.fast.least() {
            self.fast.remove(chunk);
            if tiers.is_on(chunk, Tier::Fast) {
                return Some(chunk);
            }
        }
        None
    }

    fn moved(&mut self, _tiers: &Tiers, chunk: u32, to: Tier) {
        match to {
            // What comes up proved itself as a region; the levels settle at the end of the period.
            Tier::Fast => self.fast.insert(chunk, LEVELS - 1),
            Tier::Slow => self.fast.remove(chunk),
        }
    }
}
