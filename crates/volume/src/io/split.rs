//! Cutting a byte range of a volume into parts of chunks.

use crate::units::{ChunkId, BLOCK, BLOCKS_PER_CHUNK, CHUNK};

/// The part of a request that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) chunk: ChunkId,
    /// First byte within the chunk.
    pub(crate) from: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// First byte within the request.
    pub(crate) at: u64,
}

impl Part {
    /// Blocks that the part touches, also in part.
    pub(crate) fn blocks(&self) -> u32 {
        let first = (self.from / BLOCK) as u32;
        let end = (self.from + self.len).div_ceil(BLOCK) as u32;
        mask_of(first, end)
    }

    /// Blocks that lie wholly inside the part.
    pub(crate) fn whole_blocks(&self) -> u32 {
        let first = self.from.div_ceil(BLOCK) as u32;
        let end = ((self.from + self.len) / BLOCK) as u32;
        if first < end {
            mask_of(first, end)
        } else {
            0
        }
    }
}

/// Blocks `first..end` as a mask.
pub(crate) fn mask_of(first: u32, end: u32) -> u32 {
    debug_assert!(first < end && end <= BLOCKS_PER_CHUNK);
    let width = end - first;
    (u32::MAX >> (BLOCKS_PER_CHUNK - width)) << first
}

/// Runs of equal bits: `(first block, end block, set)`, within blocks `first..end`.
pub(crate) fn runs(mask: u32, first: u32, end: u32) -> impl Iterator<Item = (u32, u32, bool)> {
    let mut at = first;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let rest = mask >> at;
        let set = rest & 1 != 0;
        let width = if set { rest.trailing_ones() } else { rest.trailing_zeros() };
        let start = at;
        at = (at + width.max(1)).min(end);
        Some((start, at, set))
    })
}

/// The parts of `len` bytes at `offset` of a volume whose `n`-th chunk is `chunk(n)`.
pub(crate) fn parts(
    chunk: impl Fn(u64) -> ChunkId + Clone,
    offset: u64,
    len: u64,
) -> impl Iterator<Item = Part> + Clone {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= len {
            return None;
        }
        let position = offset + at;
        let from = position % CHUNK;
        let part = Part { chunk: chunk(position / CHUNK), from, len: (CHUNK - from).min(len - at), at };
        at += part.len;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_without_gaps() {
        for (offset, len) in [(0, 1), (CHUNK - 1, 2), (5 * CHUNK + 700, 3 * CHUNK), (4096, CHUNK), (0, 0)] {
            let mut at = 0;
            for p in parts(|n| ChunkId(10 + n), offset, len) {
                assert_eq!(p.at, at);
                assert_eq!((p.chunk.0 - 10) * CHUNK + p.from, offset + at);
                assert!(p.len > 0 && p.from + p.len <= CHUNK);
                at += p.len;
            }
            assert_eq!(at, len);
        }
    }

    #[test]
    fn masks_of_parts() {
        let p = Part { chunk: ChunkId(0), from: 512, len: 8192, at: 0 };
        assert_eq!((p.blocks(), p.whole_blocks()), (0b111, 0b10));
        let all = Part { chunk: ChunkId(0), from: 0, len: CHUNK, at: 0 };
        assert_eq!((all.blocks(), all.whole_blocks()), (u32::MAX, u32::MAX));
        let inside = Part { chunk: ChunkId(0), from: 100, len: 50, at: 0 };
        assert_eq!((inside.blocks(), inside.whole_blocks()), (1, 0));
    }

    #[test]
    fn runs_of_a_mask() {
        let r: Vec<_> = runs(0b0111_0010, 0, 8).collect();
        assert_eq!(r, [(0, 1, false), (1, 2, true), (2, 4, false), (4, 7, true), (7, 8, false)]);
        assert_eq!(runs(u32::MAX, 0, 32).collect::<Vec<_>>(), [(0, 32, true)]);
        assert_eq!(runs(0, 3, 9).collect::<Vec<_>>(), [(3, 9, false)]);
    }
}
