//! The map: chunk -> entry, in pages of 252, the same pages as on the members.
//!
//! Invariants:
//! 1. A page that never held a mapped chunk takes no memory; that of one that is free again is used again.
//! 2. The *generation* of a page is that of the newest *durable* commit that changed it, never of a pending change.
//! 3. Only [`Map::set`] changes an entry, so that counts stay true.

mod slab;

use std::ops::Range;

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use crate::sparse::Sparse;
use crate::units::ChunkId;
pub(crate) use slab::Page;
use slab::Slabs;

/// Where a page is, and whether its heat changed since it was last taken to be saved: one word, since each visit of a
/// chunk asks for the first and notes the second.
#[derive(Clone, Copy)]
struct Place(u32);

impl Place {
    const DIRTY: u32 = 1 << 31;
    /// Nothing was ever mapped here.
    const EMPTY: Place = Place(Place::DIRTY - 1);
    /// No member has a sound copy: its chunks read EIO.
    const DAMAGED: Place = Place(Place::DIRTY - 2);

    /// Its number in the slabs, or one of the two above.
    #[inline]
    fn at(self) -> Place {
        Place(self.0 & !Place::DIRTY)
    }

    #[inline]
    fn number(self) -> Option<u32> {
        let at = self.at().0;
        (at < Place::DAMAGED.0).then_some(at)
    }

    fn is(self, other: Place) -> bool {
        self.at().0 == other.0
    }
}

/// All pages of the group.
pub(crate) struct Map {
    places: Vec<Place>,
    slabs: Slabs,
    /// Newest durable commit that changed each page, 0 for an empty one. Apart from the pages: checkpoints and starts
    /// ask it of all of them, and would wait for memory at each.
    generations: Sparse<u64>,
}

impl Map {
    /// A map of `pages` empty pages.
    pub(crate) fn new(pages: u64) -> Map {
        let len = pages as usize;
        Map { places: vec![Place::EMPTY; len], slabs: Slabs::new(pages), generations: Sparse::new(pages) }
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The entry of a chunk, or `None` if its page is damaged.
    #[inline]
    pub(crate) fn get(&self, c: ChunkId) -> Option<Entry> {
        let place = self.places[c.page() as usize];
        match place.number() {
            Some(n) => Some(self.slabs.get(n).entry(c.index())),
            None => (!place.is(Place::DAMAGED)).then(Entry::default),
        }
    }

    /// Changes an entry; its heat byte is left as it is.
    pub(crate) fn set(&mut self, c: ChunkId, mut e: Entry) {
        let p = self.page_mut(c.page()).expect("no change reaches a damaged page");
        e.heat = p.entry(c.index()).heat;
        p.set_entry(c.index(), e);
    }

    /// The page, made if it was empty; `None` if damaged.
    pub(crate) fn page_mut(&mut self, page: u32) -> Option<&mut Page> {
        let place = &mut self.places[page as usize];
        if place.is(Place::EMPTY) {
            *place = Place(self.slabs.take());
        }
        place.number().map(|n| self.slabs.get_mut(n))
    }

    /// The page, if it is in memory.
    #[inline]
    pub(crate) fn page(&self, page: u32) -> Option<&Page> {
        self.places[page as usize].number().map(|n| self.slabs.get(n))
    }

    /// Whether nothing was ever mapped in the page, or nothing is any more and it was forgotten.
    pub(crate) fn is_empty_page(&self, page: u32) -> bool {
        self.places[page as usize].is(Place::EMPTY)
    }

    /// How many pages in which nothing lives there are from that of `c` on, at most `most`.
    pub(crate) fn unused_from(&self, c: ChunkId, most: u64) -> u64 {
        let from = self.places.iter().skip(c.page() as usize).take(most as usize);
        from.take_while(|place| place.is(Place::EMPTY)).count() as u64
    }

    /// Gives the memory of a page back in which nothing is mapped. Its generation stays: members hold an older one or
    /// this.
    pub(crate) fn forget_page(&mut self, page: u32) {
        self.put(page, Place::EMPTY);
    }

    /// Marks a page as beyond repair.
    pub(crate) fn set_damaged(&mut self, page: u32) {
        self.put(page, Place::DAMAGED);
        self.generations.set(page as usize, 0);
    }

    fn put(&mut self, page: u32, place: Place) {
        let before = std::mem::replace(&mut self.places[page as usize], place);
        if let Some(n) = before.number() {
            self.slabs.give_back(n);
        }
    }

    /// Whether no member has a sound copy of the page.
    pub(crate) fn is_damaged(&self, page: u32) -> bool {
        self.places[page as usize].is(Place::DAMAGED)
    }

    /// Generation of a page, 0 if it is empty or damaged.
    pub(crate) fn generation(&self, page: u32) -> u64 {
        self.generations.get(page as usize)
    }

    /// Sets the generation of a page that is in memory.
    pub(crate) fn set_generation(&mut self, page: u32, generation: u64) {
        self.generations.set(page as usize, generation);
    }

    /// Heat of a chunk, 0 if its page is empty.
    #[inline]
    pub(crate) fn heat(&self, c: ChunkId) -> u16 {
        self.page(c.page()).map_or(0, |p| p.heat(c.index()))
    }

    /// Sets the heat of a chunk whose page is in memory.
    #[inline]
    pub(crate) fn set_heat(&mut self, c: ChunkId, heat: u16) {
        let place = &mut self.places[c.page() as usize];
        if let Some(n) = place.number() {
            self.slabs.get_mut(n).set_heat(c.index(), heat);
            place.0 |= Place::DIRTY;
        }
    }

    /// Shows all heats of a page to `change`, and keeps what it says instead; the page need not be written for that. False if it is
    /// not in memory.
    pub(crate) fn change_heats(&mut self, page: u32, change: impl Fn(u16) -> Option<u16>) -> bool {
        let Some(n) = self.places[page as usize].number() else { return false };
        let p = self.slabs.get_mut(n);
        for i in 0..ENTRIES_PER_PAGE {
            if let Some(heat) = change(p.heat(i)) {
                p.set_heat(i, heat);
            }
        }
        true
    }

    /// Adds those of the pages in `range` to `out` whose heat has changed since they were last taken. One that no commit has
    /// reached stays: no member has a page to keep its heat in.
    pub(crate) fn take_changed_heat(&mut self, range: Range<u32>, out: &mut Vec<u32>) {
        for page in range {
            let place = &mut self.places[page as usize];
            if place.0 & Place::DIRTY != 0 && self.generations.get(page as usize) > 0 {
                *place = place.at();
                out.push(page);
            }
        }
    }

    /// All mapped chunks with their entries.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (ChunkId, Entry)> + '_ {
        self.places.iter().enumerate().flat_map(|(n, place)| {
            let first = n as u64 * ENTRIES_PER_PAGE as u64;
            let entries = place.number().into_iter().flat_map(|n| self.slabs.get(n).entries().enumerate());
            entries.filter(|(_, e)| e.is_mapped()).map(move |(i, e)| (ChunkId(first + i as u64), e))
        })
    }
}
