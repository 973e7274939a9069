//! ARC (Megiddo and Modha, FAST 2003): a list of chunks seen once and one of chunks seen more often, each with a memory
//! of what left it (a ghost list). A hit in a ghost list moves the border between the two.

use super::Cache;
use crate::policy::lists::Lists;

const ONCE: usize = 0;
const OFTEN: usize = 1;
const GHOST_ONCE: usize = 2;
const GHOST_OFTEN: usize = 3;

/// Adaptive replacement cache.
pub struct Arc {
    lists: Lists,
    capacity: usize,
    /// Chunks that the list of those seen once should have.
    target: usize,
}

impl Arc {
    /// A cache of `capacity` of the chunks below `chunks`.
    pub fn new(chunks: u32, capacity: usize) -> Arc {
        Arc { lists: Lists::new(chunks, 4), capacity, target: 0 }
    }

    /// Makes room for a chunk; `often`: it comes from the ghosts of the second list.
    fn replace(&mut self, often: bool, evicted: &mut Vec<u32>) {
        if self.len() < self.capacity {
            // It has grown, or something was discarded.
            return;
        }
        let once = self.lists.len(ONCE);
        let from_once = once > 0 && (once > self.target || (often && once == self.target));
        let (from, ghost) = if from_once { (ONCE, GHOST_ONCE) } else { (OFTEN, GHOST_OFTEN) };
        if let Some(victim) = self.lists.back(from) {
            self.lists.put_front(ghost, victim);
            evicted.push(victim);
        }
    }

    /// Makes room for a chunk that no list knows.
    fn admit(&mut self, evicted: &mut Vec<u32>) {
        let known_once = self.lists.len(ONCE) + self.lists.len(GHOST_ONCE);
        let all = known_once + self.lists.len(OFTEN) + self.lists.len(GHOST_OFTEN);
        if known_once == self.capacity {
            if self.lists.len(ONCE) < self.capacity {
                self.lists.pop_back(GHOST_ONCE);
                self.replace(false, evicted);
            } else {
                evicted.extend(self.lists.pop_back(ONCE));
            }
        } else if all >= self.capacity {
            if all >= 2 * self.capacity {
                self.lists.pop_back(GHOST_OFTEN);
            }
            self.replace(false, evicted);
        }
    }
}

impl Cache for Arc {
    fn name(&self) -> &'static str {
        "ARC"
    }

    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        if self.capacity == 0 {
            return false;
        }
        let (once, often) = (self.lists.len(GHOST_ONCE), self.lists.len(GHOST_OFTEN));
        match self.lists.list_of(chunk) {
            Some(ONCE | OFTEN) => {
                self.lists.put_front(OFTEN, chunk);
                return true;
            }
            Some(GHOST_ONCE) => {
                self.target = (self.target + (often / once).max(1)).min(self.capacity);
                self.replace(false, evicted);
                self.lists.put_front(OFTEN, chunk);
            }
            Some(_) => {
                self.target = self.target.saturating_sub((once / often).max(1));
                self.replace(true, evicted);
                self.lists.put_front(OFTEN, chunk);
            }
            None => {
                self.admit(evicted);
                self.lists.put_front(ONCE, chunk);
            }
        }
        false
    }

    fn holds(&self, chunk: u32) -> bool {
        matches!(self.lists.list_of(chunk), Some(ONCE | OFTEN))
    }

    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        self.capacity = capacity;
        self.target = self.target.min(capacity);
        while self.len() > capacity {
            self.replace(false, evicted);
        }
        while self.lists.len(GHOST_ONCE) > 0 && self.lists.len(ONCE) + self.lists.len(GHOST_ONCE) > capacity {
            self.lists.pop_back(GHOST_ONCE);
        }
        let known = |lists: &Lists| (ONCE..=GHOST_OFTEN).map(|l| lists.len(l)).sum::<usize>();
        while self.lists.len(GHOST_OFTEN) > 0 && known(&self.lists) > 2 * capacity {
            self.lists.pop_back(GHOST_OFTEN);
        }
    }

    fn forget(&mut self, chunk: u32) {
        self.lists.remove(chunk);
    }

    fn len(&self) -> usize {
        self.lists.len(ONCE) + self.lists.len(OFTEN)
    }
}
