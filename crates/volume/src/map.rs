//! The map: chunk -> entry, in pages of 252, the same pages as on the members.
//!
//! Invariants:
//! 1. A page that never held a mapped chunk takes no memory, nor does one that is free again.
//! 2. The *generation* of a page is that of the newest *durable* commit that changed it, never of a pending change.
//! 3. Only [`Map::set`] changes an entry, so that counts stay true.

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use crate::units::ChunkId;

/// A page in memory.
pub(crate) struct Page {
    /// Entries.
    pub(crate) entries: [Entry; ENTRIES_PER_PAGE],
    /// Precise heat of each chunk, in the policy's scale.
    pub(crate) heat: [u16; ENTRIES_PER_PAGE],
}

/// State of a page slot of the map.
pub(crate) enum PageState {
    /// Nothing was ever mapped here.
    Empty,
    /// In memory.
    Loaded(Box<Page>),
    /// No member has a sound copy: its chunks read EIO.
    Damaged,
}

/// All pages of the group.
pub(crate) struct Map {
    pages: Vec<PageState>,
    /// Newest durable commit that changed each page, 0 for an empty one. Apart from the pages: checkpoints and starts
    /// ask it of all of them, and would wait for memory at each.
    generations: Vec<u64>,
    /// Pages in which heat changed since they were last written anywhere. Apart from the pages: each visit notes it, and
    /// would wait for memory once more.
    heat_dirty: Vec<bool>,
}

impl Map {
    /// A map of `pages` empty pages.
    pub(crate) fn new(pages: u64) -> Map {
        let len = pages as usize;
        Map {
            pages: (0..pages).map(|_| PageState::Empty).collect(),
            generations: vec![0; len],
            heat_dirty: vec![false; len],
        }
    }

    /// Number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// The entry of a chunk, or `None` if its page is damaged.
    #[inline]
    pub(crate) fn get(&self, c: ChunkId) -> Option<Entry> {
        match &self.pages[c.page() as usize] {
            PageState::Loaded(p) => Some(p.entries[c.index()]),
            PageState::Empty => Some(Entry::default()),
            PageState::Damaged => None,
        }
    }

    /// Changes an entry; its heat byte is left as it is.
    pub(crate) fn set(&mut self, c: ChunkId, mut e: Entry) {
        let p = self.page_mut(c.page()).expect("no change reaches a damaged page");
        e.heat = p.entries[c.index()].heat;
        p.entries[c.index()] = e;
    }

    /// The page, made if it was empty; `None` if damaged.
    pub(crate) fn page_mut(&mut self, page: u32) -> Option<&mut Page> {
        let state = &mut self.pages[page as usize];
        if matches!(state, PageState::Empty) {
            *state = PageState::Loaded(Box::new(Page {
                entries: [Entry::default(); ENTRIES_PER_PAGE],
                heat: [0; ENTRIES_PER_PAGE],
            }));
        }
        match state {
            PageState::Loaded(p) => Some(p),
            _ => None,
        }
    }

    /// The page, if it is in memory.
    pub(crate) fn page(&self, page: u32) -> Option<&Page> {
        match &self.pages[page as usize] {
            PageState::Loaded(p) => Some(p),
            _ => None,
        }
    }

    /// Whether nothing was ever mapped in the page, or nothing is any more and it was forgotten.
    pub(crate) fn is_empty_page(&self, page: u32) -> bool {
        matches!(self.pages[page as usize], PageState::Empty)
    }

    /// Gives the memory of a page back in which nothing is mapped. Its generation stays: members hold an older one or
    /// this.
    pub(crate) fn forget_page(&mut self, page: u32) {
        self.pages[page as usize] = PageState::Empty;
        self.heat_dirty[page as usize] = false;
    }

    /// Marks a page as beyond repair.
    pub(crate) fn set_damaged(&mut self, page: u32) {
        self.pages[page as usize] = PageState::Damaged;
        self.generations[page as usize] = 0;
    }

    /// Whether no member has a sound copy of the page.
    pub(crate) fn is_damaged(&self, page: u32) -> bool {
        matches!(self.pages[page as usize], PageState::Damaged)
    }

    /// Generation of a page, 0 if it is empty or damaged.
    pub(crate) fn generation(&self, page: u32) -> u64 {
        self.generations[page as usize]
    }

    /// Sets the generation of a page that is in memory.
    pub(crate) fn set_generation(&mut self, page: u32, generation: u64) {
        self.generations[page as usize] = generation;
    }

    /// Heat of a chunk, 0 if its page is empty.
    #[inline]
    pub(crate) fn heat(&self, c: ChunkId) -> u16 {
        self.page(c.page()).map_or(0, |p| p.heat[c.index()])
    }

    /// Sets the heat of a chunk whose page is in memory.
    #[inline]
    pub(crate) fn set_heat(&mut self, c: ChunkId, heat: u16) {
        if let PageState::Loaded(p) = &mut self.pages[c.page() as usize] {
            p.heat[c.index()] = heat;
            self.heat_dirty[c.page() as usize] = true;
        }
    }

    /// Whether heat changed in the page since it was last written anywhere.
    pub(crate) fn is_heat_dirty(&self, page: u32) -> bool {
        self.heat_dirty[page as usize]
    }

    /// The page is about to be written, with its heat.
    pub(crate) fn heat_is_written(&mut self, page: u32) {
        self.heat_dirty[page as usize] = false;
    }

    /// All mapped chunks with their entries.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (ChunkId, Entry)> + '_ {
        self.pages.iter().enumerate().flat_map(|(n, state)| {
            let entries: &[Entry] = match state {
                PageState::Loaded(p) => &p.entries,
                _ => &[],
            };
            let first = n as u64 * ENTRIES_PER_PAGE as u64;
            entries.iter().enumerate().filter(|(_, e)| e.is_mapped()).map(move |(i, e)| (ChunkId(first + i as u64), *e))
        })
    }
}
