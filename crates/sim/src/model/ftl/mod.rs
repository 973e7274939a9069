//! The flash translation layer of an SSD: where pages lie, what is garbage, what cleaning costs.
//!
//! - *Page*: the unit of mapping and programming. *Block*: the unit of erasing, many pages. A page is programmed once
//!   between two erases of its block, so an overwrite goes elsewhere and leaves garbage.
//! - *Frontier*: the open block that is being filled. Each *stream* has one; cleaned pages go to the frontier of the
//!   stream they were written to, or to one of their own beside it.
//! - *Cleaning* (garbage collection): the closed block with the fewest live pages, the *victim*, is chosen (greedy),
//!   its live pages are moved, it is erased. It begins when the free blocks have run out.
//! - *Write amplification*: what is programmed, over what the host wrote.
//! - *Stored size*: of a page after data reduction, in [`UNITS`] of a full one. Pages are packed, so that a block holds
//!   more pages if they are stored smaller.
//!
//! 1. `place` and `held` say the same: an entry of a block is live if and only if the page's place is that entry.
//! 2. `live` of a block is the sum of the stored sizes of its live entries.
//! 3. Cleaning always finds room: the constructor demands enough spare blocks.
//!
//! Memory: 8 bytes per page, 22 per block, and 1 per page with data reduction; 128 GB with pages of 8 KiB take 130 MB.
//! Not modelled: wear levelling of static data, bad blocks, the mapping tables' own writes.

mod victims;

use std::collections::VecDeque;

use self::victims::Victims;
use super::BadSpec;

/// Parts of a full page in which stored sizes are counted.
pub const UNITS: u8 = 64;
/// A page is not stored smaller than a full one divided by this.
pub const MAX_PACK: u32 = 8;

/// Pages of the largest block, so that the units of a block can be counted in 32 bits.
const MOST_BLOCK_PAGES: u32 = 1 << 20;
/// `place` of a page that is not mapped.
const NONE: u32 = u32::MAX;

/// The shape of a flash memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Pages the host sees.
    pub logical_pages: u32,
    /// Blocks of flash.
    pub blocks: u32,
    /// Pages in a block.
    pub block_pages: u32,
    /// Streams, at least 1.
    pub streams: u8,
    /// Whether pages may be stored smaller.
    pub reduction: bool,
    /// Whether cleaned pages have a frontier of their own. If not they lie between new ones, and sequential writes
    /// never quite undo what random ones did.
    pub separate: bool,
}

impl Geometry {
    /// The shape with `blocks` blocks of which the host sees what leaves `rho` times as much as spare.
    pub fn with_spare(blocks: u32, block_pages: u32, rho: f64) -> Geometry {
        let logical = f64::from(blocks) * f64::from(block_pages) / (1.0 + rho);
        Geometry { logical_pages: logical as u32, blocks, block_pages, streams: 1, reduction: false, separate: false }
    }

    /// Free blocks that cleaning keeps for itself.
    fn reserve(&self) -> u32 {
        u32::from(self.streams) + 1 + u32::from(self.reduction)
    }

    /// Open blocks.
    fn frontiers(&self) -> u32 {
        u32::from(self.streams) * if self.separate { 2 } else { 1 }
    }

    /// Places for entries in a block.
    fn stride(&self) -> u32 {
        self.block_pages.saturating_mul(if self.reduction { MAX_PACK } else { 1 })
    }

    fn check(&self) -> Result<(), BadSpec> {
        if self.logical_pages == 0 || self.block_pages == 0 || self.streams == 0 {
            return Err(BadSpec("a flash memory has pages, blocks and a stream"));
        }
        if self.block_pages > MOST_BLOCK_PAGES {
            return Err(BadSpec("a block has at most 2^20 pages"));
        }
        if u64::from(self.blocks) * u64::from(self.stride()) >= u64::from(NONE) {
            return Err(BadSpec("more than 2^32 places for pages; use a scale"));
        }
        // Even if all pages are live there is a closed block with garbage: two pages of it where the ends of blocks may
        // be wasted because the next page does not fit.
        let usable = i64::from(self.blocks) - i64::from(self.reserve()) - i64::from(self.frontiers()) - 1;
        let pages = i64::from(self.block_pages) - if self.reduction { 2 } else { 0 };
        if usable <= 0 || pages <= 0 || usable * pages < i64::from(self.logical_pages) {
            return Err(BadSpec("too few spare blocks for garbage collection"));
        }
        Ok(())
    }
}

/// What a call made the flash do besides the write itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Live pages moved.
    pub moved: u32,
    /// Their stored size, in [`UNITS`].
    pub moved_units: u64,
    /// Blocks erased.
    pub erased: u32,
}

impl Work {
    fn add(&mut self, other: Work) {
        self.moved += other.moved;
        self.moved_units += other.moved_units;
        self.erased += other.erased;
    }
}

/// Sums since the start or since [`Ftl::reset_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages the host wrote.
    pub host_pages: u64,
    /// Stored size of these, in [`UNITS`].
    pub host_units: u64,
    /// Pages moved by cleaning.
    pub moved_pages: u64,
    /// Stored size of these, in [`UNITS`].
    pub moved_units: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl Counts {
    /// Bytes programmed over bytes the host wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        if self.host_pages == 0 {
            return 0.0;
        }
        (self.host_units + self.moved_units) as f64 / (self.host_pages as f64 * f64::from(UNITS))
    }
}

/// An open block.
#[derive(Clone, Copy, Debug)]
struct Frontier {
    block: u32,
    /// Room left, in units.
    left: u32,
}

/// A flash memory with its translation layer.
#[derive(Clone, Debug)]
pub struct Ftl {
    geometry: Geometry,
    /// Where each page lies: `block * stride + entry`.
    place: Vec<u32>,
    /// The page of each entry.
    held: Vec<u32>,
    /// Stored size of each page; empty without reduction.
    stored: Vec<u8>,
    /// Entries in each block.
    entries: Vec<u32>,
    /// Live units of each block.
    live: Vec<u32>,
    /// Stream of each block.
    stream: Vec<u8>,
    erases: Vec<u32>,
    free: VecDeque<u32>,
    /// By stream; behind them those of cleaned pages, if these are separate.
    frontiers: Vec<Option<Frontier>>,
    victims: Victims,
    mapped: u32,
    counts: Counts,
}

impl Ftl {
    /// A new flash memory, erased. Fails if the shape leaves too little spare.
    pub fn new(geometry: Geometry) -> Result<Ftl, BadSpec> {
        geometry.check()?;
        let blocks = geometry.blocks as usize;
        let pages = geometry.logical_pages as usize;
        Ok(Ftl {
            geometry,
            place: vec![NONE; pages],
            // Zeroed, so that memory is taken only where entries are written.
            held: vec![0; blocks * geometry.stride() as usize],
            stored: if geometry.reduction { vec![0; pages] } else { Vec::new() },
            entries: vec![0; blocks],
            live: vec![0; blocks],
            stream: vec![0; blocks],
            erases: vec![0; blocks],
            free: (0..geometry.blocks).collect(),
            frontiers: vec![None; geometry.frontiers() as usize],
            victims: Victims::new(geometry.blocks, geometry.block_pages),
            mapped: 0,
            counts: Counts::default(),
        })
    }

    /// The shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Blocks that are erased and not begun.
    pub fn free_blocks(&self) -> u32 {
        self.free.len() as u32
    }

    /// Pages that hold data.
    pub fn mapped_pages(&self) -> u32 {
        self.mapped
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Begins to count anew; wear stays.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// Erases of each block since it was new.
    pub fn wear(&self) -> &[u32] {
        &self.erases
    }

    /// Writes a page in a stream, stored as `units` of [`UNITS`] (only with data reduction; a full page otherwise). A
    /// page or stream that does not exist is ignored. Says what cleaning that took.
    pub fn write(&mut self, page: u32, units: u8, stream: u8) -> Work {
        let mut work = Work::default();
        if page >= self.geometry.logical_pages || stream >= self.geometry.streams {
            return work;
        }
        let units = if self.geometry.reduction { units.clamp(UNITS / MAX_PACK as u8, UNITS) } else { UNITS };
        self.forget(page);
        let frontier = usize::from(stream);
        if !self.fits(frontier, units) {
            self.open(frontier, stream);
            while self.free_blocks() < self.geometry.reserve() {
                let Some(cleaned) = self.clean() else { break };
                work.add(cleaned);
            }
        }
        if let Some(stored) = self.stored.get_mut(page as usize) {
            *stored = units;
        }
        self.mapped += 1;
        self.append(page, units, frontier);
        self.counts.host_pages += 1;
        self.counts.host_units += u64::from(units);
        work
    }

    /// Makes a page garbage. Nothing happens if it holds no data.
    pub fn trim(&mut self, page: u32) {
        if page < self.geometry.logical_pages {
            self.forget(page);
        }
    }

    /// Cleans the closed block with the fewest live pages, unless it has more than `most_live` of them; for idle time.
    pub fn clean_ahead(&mut self, most_live: u32) -> Option<Work> {
        match self.victims.least() {
            Some((_, live)) if live <= most_live => self.clean(),
            _ => None,
        }
    }

    fn units(&self, page: u32) -> u8 {
        self.stored.get(page as usize).copied().unwrap_or(UNITS)
    }

    fn forget(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.place[page as usize], NONE);
        if place == NONE {
            return;
        }
        let block = place / self.geometry.stride();
        let live = &mut self.live[block as usize];
        *live -= u32::from(self.stored.get(page as usize).copied().unwrap_or(UNITS));
        let live = live.div_ceil(u32::from(UNITS));
        self.victims.lower(block, live);
        self.mapped -= 1;
    }

    fn fits(&self, frontier: usize, units: u8) -> bool {
        self.frontiers[frontier].is_some_and(|f| f.left >= u32::from(units))
    }

    /// Closes a frontier and begins another for this stream.
    fn open(&mut self, frontier: usize, stream: u8) {
        if let Some(full) = self.frontiers[frontier].take() {
            let live = self.live[full.block as usize].div_ceil(u32::from(UNITS));
            self.victims.insert(full.block, live);
        }
        let block = self.free.pop_front().expect("the shape was checked to leave a free block");
        self.stream[block as usize] = stream;
        let left = self.geometry.block_pages * u32::from(UNITS);
        self.frontiers[frontier] = Some(Frontier { block, left });
    }

    /// Programs a page at the frontier, which has room for it.
    fn append(&mut self, page: u32, units: u8, frontier: usize) {
        let Some(frontier) = self.frontiers[frontier].as_mut() else { return };
        frontier.left -= u32::from(units);
        let block = frontier.block as usize;
        let at = frontier.block * self.geometry.stride() + self.entries[block];
        self.held[at as usize] = page;
        self.place[page as usize] = at;
        self.entries[block] += 1;
        self.live[block] += u32::from(units);
    }

    /// Cleans the victim.
    fn clean(&mut self) -> Option<Work> {
        let victim = self.victims.take()?;
        let stream = self.stream[victim as usize];
        let behind = if self.geometry.separate { self.geometry.streams } else { 0 };
        let frontier = usize::from(stream) + usize::from(behind);
        let start = victim * self.geometry.stride();
        let mut work = Work { erased: 1, ..Work::default() };
        for at in start..start + self.entries[victim as usize] {
            let page = self.held[at as usize];
            if self.place[page as usize] != at {
                continue;
            }
            let units = self.units(page);
            if !self.fits(frontier, units) {
                self.open(frontier, stream);
            }
            self.append(page, units, frontier);
            work.moved += 1;
            work.moved_units += u64::from(units);
        }
        self.entries[victim as usize] = 0;
        self.live[victim as usize] = 0;
        self.erases[victim as usize] += 1;
        self.free.push_back(victim);
        self.counts.moved_pages += u64::from(work.moved);
        self.counts.moved_units += work.moved_units;
        self.counts.erases += 1;
        Some(work)
    }
}

#[cfg(test)]
mod tests;
