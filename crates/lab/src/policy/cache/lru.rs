//! LRU: the chunk that was not used for the longest time leaves.

use super::Cache;
use crate::policy::lists::Lists;

/// Least recently used.
pub struct Lru {
    lists: Lists,
    capacity: usize,
}

impl Lru {
    /// A cache of `capacity` of the chunks below `chunks`.
    pub fn new(chunks: u32, capacity: usize) -> Lru {
        Lru { lists: Lists::new(chunks, 1), capacity }
    }
}

impl Cache for Lru {
    fn name(&self) -> &'static str {
        "LRU"
    }

    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        let hit = self.holds(chunk);
        if self.capacity == 0 {
            return false;
        }
        self.lists.put_front(0, chunk);
        if self.lists.len(0) > self.capacity {
            evicted.extend(self.lists.pop_back(0));
        }
        hit
    }

    fn holds(&self, chunk: u32) -> bool {
        self.lists.list_of(chunk).is_some()
    }

    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        self.capacity = capacity;
        while self.len() > capacity {
            evicted.extend(self.lists.pop_back(0));
        }
    }

    fn forget(&mut self, chunk: u32) {
        self.lists.remove(chunk);
    }

    fn len(&self) -> usize {
        self.lists.len(0)
    }
}
