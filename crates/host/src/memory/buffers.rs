//! Memory of I/O buffers, cut from large pages: 128 KiB that lie together in the machine's memory are one segment to a device
//! and one translation to a copy, where 32 pages from all over are 32 of each.
//!
//! A *block* is a large page that buffers are cut from. A buffer is a power of two of small pages, at a multiple of its size.
//!
//! Invariants:
//! 1. A bit of `used` is set if and only if its page belongs to a buffer that was given out and has not come back.
//! 2. Blocks are sorted by address, so that a buffer finds its own.
//! 3. At most one block has no buffer in it; others go back to the system.

use super::{map, LARGE};

/// Bytes of a small page.
const PAGE: usize = 4096;
const PAGES: usize = LARGE / PAGE;
const WORD: usize = u64::BITS as usize;

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
        let mut places = (0..PAGES).step_by(pages).filter(|_| self.free >= pages);
        places.find(|first| words(*first, pages).all(|(word, mask)| self.used[word] & mask == 0))
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

    /// A buffer with any content; null if there is no memory.
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
        let start = map(LARGE).expose_provenance();
        if start == 0 {
            return None;
        }
        let index = self.blocks.partition_point(|b| b.start < start);
        self.blocks.insert(index, Block { start, used: [0; PAGES / WORD], free: PAGES });
        Some(index)
    }

    /// Takes a buffer of that size back. Gives the address of a block that nobody needs, to be unmapped.
    #[must_use]
    pub(super) fn give(&mut self, at: *mut u8, size: usize) -> Option<*mut u8> {
        let at = at.addr();
        let index = self.blocks.partition_point(|b| b.start <= at).checked_sub(1)?;
        let block = &mut self.blocks[index];
        for (word, mask) in words((at - block.start) / PAGE, size / PAGE) {
            block.used[word] &= !mask;
        }
        block.free += size / PAGE;
        let spare = block.is_empty() && self.blocks.iter().filter(|b| b.is_empty()).count() > 1;
        spare.then(|| std::ptr::with_exposed_provenance_mut(self.blocks.remove(index).start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn give(b: &mut Buffers, at: *mut u8, size: usize) {
        if let Some(start) = b.give(at, size) {
            // SAFETY: a block of this size that nobody uses any more.
            unsafe { libc::munmap(start.cast(), LARGE) };
        }
    }

    #[test]
    fn buffers_never_overlap_and_lie_at_multiples_of_their_size() {
        let mut b = Buffers::new();
        let mut held: Vec<(*mut u8, usize)> = Vec::new();
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
        }
        held.into_iter().for_each(|(at, size)| give(&mut b, at, size));
        assert_eq!(b.blocks.len(), 1, "one block stays for what comes next");
    }

    #[test]
    fn freed_memory_is_used_again_before_the_system_is_asked() {
        let mut b = Buffers::new();
        let small: Vec<*mut u8> = (0..PAGES).map(|_| b.take(PAGE)).collect();
        assert_eq!(b.blocks.len(), 1);
        give(&mut b, small[7], PAGE);
        assert_eq!((b.take(PAGE), b.blocks.len()), (small[7], 1));
        let whole = b.take(LARGE);
        assert_eq!(b.blocks.len(), 2);
        give(&mut b, whole, LARGE);
        small.into_iter().for_each(|at| give(&mut b, at, PAGE));
        assert_eq!(b.blocks.len(), 1);
    }
}
