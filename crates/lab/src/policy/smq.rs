//! A multi-queue policy that decides as dm-cache's smq does (POLICY 1c; the kernel's `dm-cache-policy-smq.c`): chunks of the fast
//! tier stand in 64 levels of equal size, and a visit moves one up, in exchange for the one of that level not used for the longest
//! time. Larger regions of the volume stand in levels of their own; a chunk is promoted when its region stands high enough, be it read or
//! written: the lower the better the order of the regions has told of late what is used. (The kernel has a table by how well the
//! fast tier does, too, but takes the larger of that and all levels.)
//!
//! Not there: sentinels and the cleaner, since a tier has nothing to write back, and promotion of what is written whole while there
//! is room, which is a birth here. The budget of moves takes the place of the kernel's background work.

use bimetal_volume::env::Instant;
use bimetal_volume::tier::View;
use bimetal_volume::units::Tier;

use super::lists::Lists;
use super::piece::Piece;
use super::seat::{Baseline, Wishes};
use super::tiers::Tiers;

/// Levels of a multi-queue.
const LEVELS: usize = 64;
/// Chunks of a region at most, regions at least, and one of them for so many fast slots.
const REGION_MAX: u32 = 16;
const REGIONS_MIN: u32 = 1024;
const SLOTS_PER_REGION: u32 = 4;
/// What is found from this level on counts as a hit.
const HIT_LEVEL: usize = LEVELS * 3 / 4;
/// The ends of periods of the regions, and of the fast tier, in ns.
const REGIONS_PERIOD: u64 = 1_000_000_000;
const FAST_PERIOD: u64 = 60 * REGIONS_PERIOD;
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

    /// Moves an item up by so many levels, in exchange for the least recent one of that level; to the front of its own by none.
    pub(super) fn raise(&mut self, item: u32, by: usize) {
        let Some(level) = self.level(item) else { return };
        let up = (level + by).min(LEVELS - 1);
        let down = if up > level { self.lists.back(up) } else { None };
        self.lists.put_front(up, item);
        if let Some(down) = down {
            self.lists.put_front(level, down);
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

/// What was found high in its levels, and what was not.
#[derive(Default)]
struct Found {
    hits: u64,
    misses: u64,
}

/// How much the order of levels has told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    Poor,
    Fair,
    Well,
}

impl Found {
    fn count(&mut self, level: Option<usize>) {
        match level.is_some_and(|l| l >= HIT_LEVEL) {
            true => self.hits += 1,
            false => self.misses += 1,
        }
    }

    /// By the share of hits, in 256 parts.
    fn worth(&self) -> Worth {
        match self.hits * 256 / (self.hits + self.misses).max(1) {
            0..16 => Worth::Poor,
            16..32 => Worth::Fair,
            _ => Worth::Well,
        }
    }
}

/// The smq-like policy.
pub struct Smq {
    fast: Levels,
    regions: Levels,
    /// Chunks of a region, and most regions in the levels.
    region: u32,
    regions_max: usize,
    /// The period in which an item last moved up: once in each.
    fast_raised: Vec<u32>,
    region_raised: Vec<u32>,
    fast_period: u32,
    region_period: u32,
    /// When the periods end.
    fast_end: u64,
    regions_end: u64,
    regions_found: Found,
    /// Levels that a region moves up.
    jump: usize,
    /// Level from which a region's chunks are promoted.
    threshold: usize,
    wishes: Wishes,
}

impl Smq {
    /// The policy for chunks below `chunks` and so many fast slots.
    pub fn new(chunks: u32, fast_slots: u32) -> Smq {
        let regions_max = (fast_slots / SLOTS_PER_REGION).max(REGIONS_MIN);
        let mut region = REGION_MAX;
        while region > 1 && u64::from(region) * u64::from(regions_max) > u64::from(chunks) {
            region /= 2;
        }
        let regions = chunks.div_ceil(region);
        Smq {
            fast: Levels::new(chunks),
            regions: Levels::new(regions),
            region,
            regions_max: regions_max as usize,
            fast_raised: vec![0; chunks as usize],
            region_raised: vec![0; regions as usize],
            fast_period: 1,
            region_period: 1,
            fast_end: FAST_PERIOD,
            regions_end: REGIONS_PERIOD,
            regions_found: Found::default(),
            jump: 1,
            threshold: LEVELS - LEVELS / 4,
            wishes: Wishes::default(),
        }
    }

    /// Ends the periods that are over.
    fn pass_time(&mut self, Instant(now): Instant) {
        if now >= self.regions_end {
            let (part, jump) = match self.regions_found.worth() {
                Worth::Poor => (4, 4),
                Worth::Fair => (2, 2),
                Worth::Well => (1, 1),
            };
            (self.threshold, self.jump) = (LEVELS - LEVELS / part, jump);
            self.regions.even_out();
            self.region_period += 1;
            self.regions_found = Found::default();
            self.regions_end = now + REGIONS_PERIOD;
        }
        if now >= self.fast_end {
            self.fast.even_out();
            self.fast_period += 1;
            self.fast_end = now + FAST_PERIOD;
        }
    }

    /// Counts a visit of a region; the level it has then.
    fn visit_region(&mut self, region: u32) -> usize {
        let level = self.regions.level(region);
        self.regions_found.count(level);
        if level.is_none() {
            if self.regions.len() >= self.regions_max {
                if let Some(least) = self.regions.least() {
                    self.regions.remove(least);
                }
            }
            self.regions.insert(region, 0);
            return 0;
        }
        let raised = self.region_raised[region as usize] == self.region_period;
        self.regions.raise(region, if raised { 0 } else { self.jump });
        self.region_raised[region as usize] = self.region_period;
        self.regions.level(region).unwrap_or(0)
    }
}

impl Baseline for Smq {
    fn name(&self) -> String {
        "smq-like".into()
    }

    fn touch(&mut self, tiers: &Tiers, piece: &Piece) {
        self.pass_time(tiers.now());
        let level = self.visit_region(piece.chunk / self.region);
        let fast = tiers.is_on(piece.chunk, Tier::Fast);
        if fast {
            if self.fast_raised[piece.chunk as usize] != self.fast_period {
                self.fast_raised[piece.chunk as usize] = self.fast_period;
                self.fast.raise(piece.chunk, 1);
            }
        } else if level >= self.threshold {
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

    fn discarded(&mut self, chunk: u32) {
        self.fast.remove(chunk);
    }
}
