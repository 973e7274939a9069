//! Memory of I/O buffers, cut from large pages: 128 KiB that lie together in the machine's memory are one segment to a device
//! and one translation to a copy, where 32 pages from all over are 32 of each.
//!
//! A *block* is a large page that buffers are cut from. A buffer is a power of two of small pages, at a multiple of its size.
//!
//! Invariants:
//! 1. A bit of `used` is set if and only if its page belongs to a buffer that was given out and has not come back.
//! 2. Blocks are sorted by address, so that a buffer finds its own.
//! 3. At most [`SPARE`] blocks have no buffer in them; others go back to the system.
//! 4. What is in no buffer is zero: nothing that passed through a buffer stays behind it.

use super::{map, LARGE};

/// Bytes of a small page.
const PAGE: usize = 4096;
const PAGES: usize = LARGE / PAGE;
const WORD: usize = u64::BITS as usize;
/// Blocks kept for what comes next: as much as is kept of each size by those who use buffers.
const SPARE: usize = 8;

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
        self.blocks.try_reserve(1).ok()?;
        let start = map(LARGE).expose_provenance();
        if start == 0 {
            return None;
        }
        let index = self.blocks.partition_point(|b| b.start < start);
        self.blocks.insert(index, Block { start, used: [0; PAGES / WORD], free: PAGES });
        Some(index)
    }

    /// Takes a buffer of that size back, full of zeros. Gives the address of a block that nobody needs, to be unmapped.
    ///
    /// # Safety
    /// [`Buffers::take`] gave it for this size, and nobody uses it any more.
    #[must_use]
    pub(super) unsafe fn give(&mut self, at: *mut u8, size: usize) -> Option<*mut u8> {
        let (at, pages) = (at.addr(), size / PAGE);
        let index = self.blocks.partition_point(|b| b.start <= at).wrapping_sub(1);
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
        let spare = block.is_empty() && self.blocks.iter().filter(|b| b.is_empty()).count() > SPARE;
        spare.then(|| std::ptr::with_exposed_provenance_mut(self.blocks.remove(index).start))
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
        assert_eq!(b.blocks.len(), SPARE, "some blocks stay for what comes next");
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
        assert_eq!((b.take(LARGE), b.blocks.len()), (whole, 2));
        small.into_iter().for_each(|at| give(&mut b, at, PAGE));
        assert_eq!((b.take(LARGE).is_null(), b.blocks.len()), (false, 2), "the pieces are one again");
    }
}
