//! S3-FIFO (Yang et al., SOSP 2023): a small queue for what is new, a main queue for what was used again while in it,
//! and a ghost queue of what left the small one. Nothing moves on a hit; only a counter of two bits grows.

use super::Cache;
use crate::policy::lists::Lists;

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// Most that the counter of a chunk says.
const COUNT_MAX: u8 = 3;
/// Uses in the small queue that bring a chunk to the main one.
const COUNT_MAIN: u8 = 2;

/// Small, main and ghost queue.
pub struct S3Fifo {
    lists: Lists,
    counts: Vec<u8>,
    capacity: usize,
    small: usize,
}

impl S3Fifo {
    /// A cache of `capacity` of the chunks below `chunks`, a tenth of it for what is new.
    pub fn new(chunks: u32, capacity: usize) -> S3Fifo {
        let counts = vec![0; chunks as usize];
        S3Fifo { lists: Lists::new(chunks, 3), counts, capacity, small: (capacity / 10).max(1) }
    }

    /// Lets one chunk go.
    fn evict(&mut self, evicted: &mut Vec<u32>) {
        if self.lists.len(SMALL) >= self.small || self.lists.len(MAIN) == 0 {
            while let Some(chunk) = self.lists.back(SMALL) {
                let used = std::mem::take(&mut self.counts[chunk as usize]) >= COUNT_MAIN;
                self.lists.put_front(if used { MAIN } else { GHOST }, chunk);
                if !used {
                    if self.lists.len(GHOST) > self.capacity - self.small.min(self.capacity) {
                        self.lists.pop_back(GHOST);
                    }
                    evicted.push(chunk);
                    return;
                }
            }
        }
        while let Some(chunk) = self.lists.back(MAIN) {
            if self.counts[chunk as usize] == 0 {
                self.lists.remove(chunk);
                evicted.push(chunk);
                return;
            }
            self.counts[chunk as usize] -= 1;
            self.lists.put_front(MAIN, chunk);
        }
    }
}

impl Cache for S3Fifo {
    fn name(&self) -> &'static str {
        "S3-FIFO"
    }

    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        if self.capacity == 0 {
            return false;
        }
        if self.holds(chunk) {
            let count = &mut self.counts[chunk as usize];
            *count = (*count + 1).min(COUNT_MAX);
            return true;
        }
        let back = self.lists.list_of(chunk) == Some(GHOST);
        self.lists.remove(chunk);
        while self.len() >= self.capacity {
            self.evict(evicted);
        }
        self.counts[chunk as usize] = 0;
        self.lists.put_front(if back { MAIN } else { SMALL }, chunk);
        false
    }

    fn holds(&self, chunk: u32) -> bool {
        matches!(self.lists.list_of(chunk), Some(SMALL | MAIN))
    }

    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        (self.capacity, self.small) = (capacity, (capacity / 10).max(1));
        while self.len() > capacity {
            self.evict(evicted);
        }
    }

    fn forget(&mut self, chunk: u32) {
        self.lists.remove(chunk);
    }

    fn len(&self) -> usize {
        self.lists.len(SMALL) + self.lists.len(MAIN)
    }
}
