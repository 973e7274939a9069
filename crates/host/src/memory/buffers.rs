//! Memory of I/O buffers, cut from large pages: 128 KiB that lie together in the machine's memory are one segment to a device
//! and one translation to a copy, where 32 pages from all over are 32 of each.
//!
//! A *block* is a large page that buffers are cut from. A buffer is a power of two of small pages, at a multiple of its size.
//!
//! The first blocks are the *area*: they lie together, and stay where they are for ever, so that the kernel may know them by their
//! numbers. Buffers are taken from there first.
//!
//! Invariants:
//! 1. A bit of `used` is set if and only if its page belongs to a buffer that was given out and has not come back.
//! 2. The first [`LASTING`] blocks are the area, once there is one. The others are sorted by address, so that a buffer finds its own.
//! 3. At most [`SPARE`] blocks have no buffer in them, the area included; others go back to the system.
//! 4. What is in no buffer is zero: nothing that passed through a buffer stays behind it.

use super::{map, LARGE};

/// Bytes of a small page.
const PAGE: usize = 4096;
const PAGES: usize = LARGE / PAGE;
const WORD: usize = u64::BITS as usize;
/// Blocks of the area.
pub(crate) const LASTING: usize = 8;
/// Blocks kept for what comes next: as much as is kept of each size by those who use buffers.
const SPARE: usize = LASTING;

struct Block {
    start: usize,
    used: [u64; PAGES / WORD],
    /// Pages in no buffer.
    free: usize,
}

impl Block {
    fn is_empty(&self) -> bool {
        self.free == PAGES
    }

    /// The first page of `pages` free ones in a row.
    fn find(&self, pages: usize) -> Option<usize> {
        if self.free < pages {
            return None;
        }
        (0..PAGES).step_by(pages).find(|first| words(*first, pages).all(|(word, mask)| self.used[word] & mask == 0))
    }
}

/// Where the bits of so many pages are.
fn words(first: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    let mask = if pages >= WORD { u64::MAX } else { ((1 << pages) - 1) << (first % WORD) };
    (first / WORD..(first + pages).div_ceil(WORD)).map(move |word| (word, mask))
}

/// The blocks.
pub(super) struct Buffers {
    blocks: Vec<Block>,
}

/// Whether memory of that kind is a buffer: whole pages, a power of two of them.
pub(super) fn is_buffer(size: usize, align: usize) -> bool {
    align == PAGE && size.is_power_of_two() && (PAGE..=LARGE).contains(&size)
}

impl Buffers {
    pub(super) const fn new() -> Buffers {
        Buffers { blocks: Vec::new() }
    }

    /// Where the area is; `None` before the first buffer was taken.
    pub(super) fn area(&self) -> Option<usize> {
        self.blocks.first().map(|b| b.start)
    }

    /// A buffer of zeros; null if there is no memory.
    pub(super) fn take(&mut self, size: usize) -> *mut u8 {
        let pages = size / PAGE;
        let found = self.blocks.iter().enumerate().find_map(|(i, b)| b.find(pages).map(|first| (i, first)));
        let Some((index, first)) = found.or_else(|| self.add().map(|i| (i, 0))) else { return std::ptr::null_mut() };
        let block = &mut self.blocks[index];
        for (word, mask) in words(first, pages) {
            block.used[word] |= mask;
        }
        block.free -= pages;
        std::ptr::with_exposed_provenance_mut(block.start + first * PAGE)
    }

    /// Another block.
    fn add(&mut self) -> Option<usize> {
        // The list is kept by the same allocator as a thing of another kind, whose refusal is no panic.
        self.blocks.try_reserve(LASTING).ok()?;
        let new = if self.blocks.is_empty() { LASTING } else { 1 };
        let start = map(new * LARGE).expose_provenance();
        if start == 0 {
            return None;
        }
        let index = self.after(start);
        for i in 0..new {
            let block = Block { start: start + i * LARGE, used: [0; PAGES / WORD], free: PAGES };
            self.blocks.insert(index + i, block);
        }
        Some(index)
    }

    /// The first block that lies behind this address, or where it would be; not in the area.
    fn after(&self, at: usize) -> usize {
        let area = self.blocks.len().min(LASTING);
        area + self.blocks[area..].partition_point(|b| b.start <= at)
    }

    /// The block that this address may lie in.
    fn block_of(&self, at: usize) -> usize {
        let in_area = at.wrapping_sub(self.area().unwrap_or(at)) / LARGE;
        if in_area < LASTING {
            in_area
        } else {
            self.after(at) - 1
        }
    }

    /// Takes a buffer of that size back, full of zeros. Gives the address of a block that nobody needs, to be unmapped.
    ///
    /// # Safety
    /// [`Buffers::take`] gave it for this size, and nobody uses it any more.
    #[must_use]
    pub(super) unsafe fn give(&mut self, at: *mut u8, size: usize) -> Option<*mut u8> {
        let (at, pages) = (at.addr(), size / PAGE);
        let index = self.block_of(at);
        let Some(block) = self.blocks.get_mut(index) else { std::process::abort() };
        let first = at.wrapping_sub(block.start) / PAGE;
        let is_taken = |(word, mask): (usize, u64)| block.used.get(word).is_some_and(|used| used & mask == mask);
        if !words(first, pages).all(is_taken) {
            // Given back twice: whoever has it now would share it with the next one.
            std::process::abort();
        }
        for (word, mask) in words(first, pages) {
            block.used[word] &= !mask;
        }
        block.free += pages;
        if !block.is_empty() || self.blocks.iter().filter(|b| b.is_empty()).count() <= SPARE {
            return None;
        }
        // Not this one if it is of the area: that stays.
        let spare = (LASTING..self.blocks.len()).rfind(|i| self.blocks[*i].is_empty())?;
        Some(std::ptr::with_exposed_provenance_mut(self.blocks.remove(spare).start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(b: &mut Buffers, at: *mut u8, size: usize) {
        // SAFETY: each is given back once, with the size that it was taken for; then a block that nobody uses any more.
        unsafe {
            if let Some(start) = b.give(at, size) {
                libc::munmap(start.cast(), LARGE);
            }
        }
    }

    #[test]
    fn buffers_never_overlap_and_lie_at_multiples_of_their_size() {
        let mut b = Buffers::new();
        let mut held: Vec<(*mut u8, usize)> = Vec::new();
        let mut most = 0;
        let mut random = 12345u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for round in 0..20_000 {
            // It grows, then shrinks.
            if draw(100) < if round < 10_000 { 60 } else { 40 } {
                let size = PAGE << draw(10);
                let at = b.take(size);
                assert_eq!(at.addr() % size, 0, "{size}");
                let apart =
                    |(other, s): &(*mut u8, usize)| at.addr() + size <= other.addr() || other.addr() + s <= at.addr();
                assert!(held.iter().all(apart), "round {round}");
                held.push((at, size));
            } else if !held.is_empty() {
                let (at, size) = held.swap_remove(draw(held.len() as u64) as usize);
                give(&mut b, at, size);
            }
            let pages: usize = held.iter().map(|(_, size)| size / PAGE).sum();
            let used: u32 = b.blocks.iter().flat_map(|b| b.used).map(u64::count_ones).sum();
            assert_eq!(used as usize, pages);
            assert_eq!(b.blocks.iter().map(|b| PAGES - b.free).sum::<usize>(), pages);
            assert!(b.blocks.iter().filter(|b| b.is_empty()).count() <= SPARE);
            most = most.max(b.blocks.len());
        }
        let area = b.area();
        assert!(most > LASTING + 4, "{most}: this is no test");
        held.into_iter().for_each(|(at, size)| give(&mut b, at, size));
        assert_eq!(b.blocks.len(), SPARE, "some blocks stay for what comes next");
        assert_eq!(b.area(), area);
    }

    #[test]
    fn freed_memory_is_used_again_before_the_system_is_asked() {
        let mut b = Buffers::new();
        let small: Vec<*mut u8> = (0..PAGES).map(|_| b.take(PAGE)).collect();
        let in_use = |b: &Buffers| b.blocks.iter().filter(|b| !b.is_empty()).count();
        assert_eq!(in_use(&b), 1);
        give(&mut b, small[7], PAGE);
        assert_eq!((b.take(PAGE), in_use(&b)), (small[7], 1));
        let whole = b.take(LARGE);
        assert_eq!(in_use(&b), 2);
        give(&mut b, whole, LARGE);
        assert_eq!((b.take(LARGE), in_use(&b)), (whole, 2));
        small.into_iter().for_each(|at| give(&mut b, at, PAGE));
        assert_eq!((b.take(LARGE).is_null(), in_use(&b)), (false, 2), "the pieces are one again");
        assert_eq!(b.blocks.len(), LASTING);
    }

    #[test]
    fn what_does_not_fit_into_the_area_comes_and_goes() {
        let mut b = Buffers::new();
        let area: Vec<*mut u8> = (0..LASTING).map(|_| b.take(LARGE)).collect();
        let start = area[0].addr();
        assert!(area.iter().enumerate().all(|(i, at)| at.addr() == start + i * LARGE));
        let beyond: Vec<*mut u8> = (0..3).map(|_| b.take(LARGE)).collect();
        assert!(beyond.iter().all(|at| at.addr().wrapping_sub(start) >= LASTING * LARGE));
        // With nothing else free they stay.
        beyond.into_iter().for_each(|at| give(&mut b, at, LARGE));
        assert_eq!(b.blocks.len(), LASTING + 3);
        area.into_iter().for_each(|at| give(&mut b, at, LARGE));
        assert_eq!(b.blocks.len(), LASTING, "the rest goes as soon as the area is free again");
        assert_eq!((b.area(), b.take(LARGE).addr()), (Some(start), start), "the area is used first");
    }
}
