//! State of the chunks that are followed: all of them, or from so many on a sample by the hash of their number, halved
//! each time it grows too large. A sample by number sees all accesses of the chunks in it, so ranks and shares only
//! have to be scaled (Waldspurger et al., SHARDS, FAST'15).

use std::collections::HashMap;

use bimetal_sim::prng::mix;

use super::ladder::RANKINGS;

/// What is kept of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    number: u64,
    /// On the scale of each ranking; 0 is colder than anything.
    pub(super) heat: [u32; RANKINGS],
    /// In which rankings it has earned a place, a bit each.
    pub(super) ranked: u8,
    /// It was discarded, or never used.
    pub(super) empty: bool,
    /// It was never used.
    pub(super) new: bool,
}

const _: () = assert!(RANKINGS <= u8::BITS as usize);

impl Chunk {
    /// Its number on the volume.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// The followed chunks.
pub(super) struct Chunks {
    /// Only looked up, never walked in its own order.
    index: HashMap<u64, u32>,
    list: Vec<Chunk>,
    max: usize,
    /// One chunk of 2^shift is followed.
    shift: u32,
}

impl Chunks {
    /// Follows at most so many.
    pub(super) fn new(max: usize) -> Chunks {
        Chunks { index: HashMap::new(), list: Vec::new(), max: max.max(1), shift: 0 }
    }

    /// One chunk of 2^this is followed.
    pub(super) fn shift(&self) -> u32 {
        self.shift
    }

    /// Chunks followed.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn is_followed(&self, number: u64) -> bool {
        mix(number).trailing_zeros() >= self.shift
    }

    /// Where a chunk among those that are as hot stands, of 2^32: always the same for a chunk.
    pub(super) fn tie(number: u64) -> u32 {
        (mix(number) >> 32) as u32
    }

    /// The index of a chunk, entered if it was not known; `None` if it is not followed.
    pub(super) fn find(&mut self, number: u64) -> Option<usize> {
        if self.shift > 0 && !self.is_followed(number) {
            return None;
        }
        // Fewer than 2^32: `max` is.
        let next = self.list.len() as u32;
        let i = *self.index.entry(number).or_insert(next);
        if i == next {
            self.list.push(Chunk { number, heat: [0; RANKINGS], ranked: 0, empty: true, new: true });
        }
        Some(i as usize)
    }

    /// The index of a chunk that is known.
    pub(super) fn known(&self, number: u64) -> Option<usize> {
        self.index.get(&number).map(|i| *i as usize)
    }

    /// The chunk of an index.
    pub(super) fn get(&mut self, i: usize) -> &mut Chunk {
        &mut self.list[i]
    }

    /// Whether there are more than may be.
    pub(super) fn too_many(&self) -> bool {
        self.list.len() > self.max
    }

    /// Halves the sample; gives those that are no longer followed. Indexes change.
    pub(super) fn halve(&mut self) -> Vec<Chunk> {
        self.shift += 1;
        let all = std::mem::take(&mut self.list);
        let (kept, dropped): (Vec<Chunk>, Vec<Chunk>) = all.into_iter().partition(|c| self.is_followed(c.number));
        self.index = kept.iter().enumerate().map(|(i, c)| (c.number, i as u32)).collect();
        self.list = kept;
        dropped
    }
}
