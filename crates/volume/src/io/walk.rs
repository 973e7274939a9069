//! Walking over a range of a volume, which may be all of a large one that holds little: chunk by chunk where something may
//! live, and over the rest in long strides.

use std::ops::Range;
use std::rc::Rc;

use bimetal_format::label::PageRun;
use bimetal_format::ENTRIES_PER_PAGE;

use super::split::{parts, Part};
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::{chunk_in, chunks_left, VolumeInfo};
use crate::units::{ChunkId, CHUNK};

/// Pages of the map that are passed over in one go, at most.
const PAGES: u64 = 4096;

/// What comes next in the range.
pub(crate) struct Stretch {
    /// Its first chunk, as far as it lies in the range.
    pub(crate) first: Part,
    /// Bytes.
    pub(crate) len: u64,
    /// It lies in pages of the map in which nothing lives. All its chunks are known alike. Else it is one chunk.
    pub(crate) unused: bool,
}

impl Stretch {
    /// Its chunks.
    pub(crate) fn chunks(&self) -> Range<ChunkId> {
        let first = self.first.chunk.0;
        ChunkId(first)..ChunkId(first + (self.first.from + self.len).div_ceil(CHUNK))
    }

    /// Its parts, chunk by chunk.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        let first = self.first.chunk.0;
        parts(move |n| ChunkId(first + n), self.first.from, self.len)
    }
}

/// See [`VolumeInfo::walk`].
pub(crate) struct Walk {
    runs: Rc<[PageRun]>,
    offset: u64,
    len: u64,
    at: u64,
}

impl VolumeInfo {
    /// Walks over a byte range.
    pub(crate) fn walk(&self, offset: u64, len: u64) -> Walk {
        Walk { runs: self.runs.borrow().clone(), offset, len, at: 0 }
    }
}

impl Walk {
    pub(crate) fn next<E: Env>(&mut self, core: &Core<E>) -> Option<Stretch> {
        let (position, left) = (self.offset + self.at, self.len - self.at);
        if left == 0 {
            return None;
        }
        let from = position % CHUNK;
        let chunk = chunk_in(&self.runs, position / CHUNK);
        let first = Part { chunk, from, len: (CHUNK - from).min(left), at: self.at };
        let most = (from + left).div_ceil(CHUNK).min(chunks_left(&self.runs, position / CHUNK));
        let unused = core.unused_from(chunk, most);
        let len = if unused > 0 { (unused * CHUNK - from).min(left) } else { first.len };
        self.at += len;
        Some(Stretch { first, len, unused: unused > 0 })
    }
}

impl<E: Env> Core<E> {
    /// How many chunks from this one on, at most `most`, lie in pages of the map in which nothing lives, and are known alike.
    fn unused_from(&self, chunk: ChunkId, most: u64) -> u64 {
        // What is not certain is so page by page.
        let pages = if self.is_certain() { PAGES } else { 1 };
        let unused = self.map.borrow().unused_from(chunk, pages) * ENTRIES_PER_PAGE as u64;
        let end = chunk.0 + unused.saturating_sub(chunk.index() as u64).min(most);
        let doubtful = self.doubtful_from(chunk).map_or(end, |c| c.0.min(end));
        doubtful - chunk.0
    }
}
