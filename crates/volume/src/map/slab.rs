//! Memory of the map's pages: *slabs*, large enough that an allocator can back each with one large page of memory. A
//! request looks its chunk up anywhere in the map; with small pages of memory it would wait for their translation too.
//!
//! Invariants:
//! 1. A page that is given back is one of zeros, so that one that is taken is.
//! 2. `room` names each slab that has a free page once, and no other.
//! 3. A slab without a page in use takes no memory.

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

/// A large page of memory, in bytes.
const LARGE: usize = 2 << 20;
/// Pages of the map in a slab, which is not smaller than [`LARGE`].
const SLAB: usize = LARGE.div_ceil(std::mem::size_of::<Page>());

/// What is known of a chunk, side by side: a request asks for all of it. Packed, since there are many.
#[derive(Clone, Copy, Default)]
#[repr(C, packed(2))]
struct Row {
    entry: Entry,
    /// Precise heat, in the policy's scale.
    heat: u16,
}

/// A page in memory.
#[derive(Clone)]
pub(crate) struct Page([Row; ENTRIES_PER_PAGE]);

impl Default for Page {
    fn default() -> Page {
        Page([Row::default(); ENTRIES_PER_PAGE])
    }
}

impl Page {
    #[inline]
    pub(crate) fn entry(&self, i: usize) -> Entry {
        self.0[i].entry
    }

    pub(crate) fn set_entry(&mut self, i: usize, e: Entry) {
        self.0[i].entry = e;
    }

    #[inline]
    pub(crate) fn heat(&self, i: usize) -> u16 {
        self.0[i].heat
    }

    #[inline]
    pub(crate) fn set_heat(&mut self, i: usize, heat: u16) {
        self.0[i].heat = heat;
    }

    /// All entries, mapped or not.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.iter().map(|row| row.entry)
    }

    /// Whether no chunk of it has a home.
    pub(crate) fn is_unused(&self) -> bool {
        self.entries().all(|e| !e.is_mapped())
    }
}

#[derive(Default)]
struct Slab {
    pages: Box<[Page]>,
    free: Vec<u16>,
}

/// All slabs of a map. Pages in use have a number.
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    room: Vec<u32>,
    /// Pages of a slab, fewer than [`SLAB`] in a map that is smaller.
    each: usize,
}

impl Slabs {
    /// For a map of at most `pages` pages.
    pub(super) fn new(pages: u64) -> Slabs {
        Slabs { slabs: Vec::new(), room: Vec::new(), each: pages.clamp(1, SLAB as u64) as usize }
    }

    /// The number of a page of zeros that was not in use.
    pub(super) fn take(&mut self) -> u32 {
        let n = match self.room.last() {
            Some(n) => *n as usize,
            None => {
                self.slabs.push(Slab::default());
                self.room.push(self.slabs.len() as u32 - 1);
                self.slabs.len() - 1
            }
        };
        let slab = &mut self.slabs[n];
        if slab.pages.is_empty() {
            slab.pages = vec![Page::default(); self.each].into();
            slab.free = (0..self.each as u16).rev().collect();
        }
        let at = slab.free.pop().expect("a slab with room has a free page");
        if slab.free.is_empty() {
            self.room.pop();
        }
        (n * SLAB) as u32 + u32::from(at)
    }

    /// The page of this number is not in use any more.
    pub(super) fn give_back(&mut self, number: u32) {
        let (n, at) = place(number);
        let slab = &mut self.slabs[n];
        slab.pages[at] = Page::default();
        if slab.free.is_empty() {
            self.room.push(n as u32);
        }
        slab.free.push(at as u16);
        if slab.free.len() == self.each {
            *slab = Slab::default();
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> &Page {
        let (n, at) = place(number);
        &self.slabs[n].pages[at]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> &mut Page {
        let (n, at) = place(number);
        &mut self.slabs[n].pages[at]
    }
}

fn place(number: u32) -> (usize, usize) {
    (number as usize / SLAB, number as usize % SLAB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_used_again_and_slabs_given_back() {
        let mut slabs = Slabs::new(10_000);
        let all: Vec<u32> = (0..3 * SLAB).map(|_| slabs.take()).collect();
        assert_eq!(all, (0..3 * SLAB as u32).collect::<Vec<_>>());
        slabs.get_mut(7).set_heat(5, 6);
        slabs.give_back(7);
        slabs.give_back(9);
        assert_eq!((slabs.take(), slabs.take()), (9, 7));
        assert_eq!(slabs.get(7).heat(5), 0, "a page that is used again is empty");
        let second = SLAB as u32..2 * SLAB as u32;
        second.clone().for_each(|n| slabs.give_back(n));
        assert!(slabs.slabs[1].pages.is_empty(), "nothing of it is in use");
        let again: Vec<u32> = (0..SLAB).map(|_| slabs.take()).collect();
        assert_eq!(again, second.collect::<Vec<_>>());
        assert_eq!(slabs.take(), 3 * SLAB as u32);
    }

    #[test]
    fn a_slab_fills_a_large_page_and_that_of_a_small_map_does_not() {
        let size = |slabs: &Slabs| std::mem::size_of_val(&*slabs.slabs[0].pages);
        let (mut large, mut small) = (Slabs::new(1 << 20), Slabs::new(3));
        large.take();
        assert!((LARGE..LARGE + 8192).contains(&size(&large)));
        assert_eq!([small.take(), small.take(), small.take()], [0, 1, 2]);
        assert_eq!(size(&small), 3 * std::mem::size_of::<Page>());
    }
}
