//! W-TinyLFU (Einziger, Friedman and Manes, ACM TOS 2017): a small LRU window for what is new, and a segmented LRU for
//! the rest, which a chunk enters when the sketch saw it more often than the chunk that would leave.

use super::{Cache, Sketch};
use crate::policy::lists::Lists;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Window and segmented main part with admission by frequency.
pub struct TinyLfu {
    lists: Lists,
    sketch: Sketch,
    window: usize,
    main: usize,
    protected: usize,
}

/// The window, and the rest.
fn parts(capacity: usize) -> (usize, usize) {
    let window = (capacity / 100).max(1).min(capacity);
    (window, capacity - window)
}

impl TinyLfu {
    /// A cache of `capacity` of the chunks below `chunks`: 1 % window, four fifths of the rest protected.
    pub fn new(chunks: u32, capacity: usize) -> TinyLfu {
        let (window, main) = parts(capacity);
        TinyLfu { lists: Lists::new(chunks, 3), sketch: Sketch::new(capacity), window, main, protected: main * 4 / 5 }
    }

    /// A chunk has fallen out of the window: it, or what the main part would lose for it, leaves.
    fn contest(&mut self, chunk: u32, evicted: &mut Vec<u32>) {
        if self.lists.len(PROBATION) + self.lists.len(PROTECTED) < self.main {
            self.lists.put_front(PROBATION, chunk);
            return;
        }
        let victim = self.lists.back(PROBATION).or_else(|| self.lists.back(PROTECTED));
        match victim.filter(|v| self.sketch.count(chunk) > self.sketch.count(*v)) {
            Some(v) => {
                self.lists.remove(v);
                self.lists.put_front(PROBATION, chunk);
                evicted.push(v);
            }
            None => evicted.push(chunk),
        }
    }
}

impl Cache for TinyLfu {
    fn name(&self) -> &'static str {
        "W-TinyLFU"
    }

    fn access(&mut self, chunk: u32, evicted: &mut Vec<u32>) -> bool {
        self.sketch.add(chunk);
        match self.lists.list_of(chunk) {
            Some(PROBATION) => {
                self.lists.put_front(PROTECTED, chunk);
                if self.lists.len(PROTECTED) > self.protected {
                    if let Some(c) = self.lists.back(PROTECTED) {
                        self.lists.put_front(PROBATION, c);
                    }
                }
                true
            }
            Some(list) => {
                self.lists.put_front(list, chunk);
                true
            }
            None => {
                if self.window == 0 {
                    return false;
                }
                self.lists.put_front(WINDOW, chunk);
                if self.lists.len(WINDOW) > self.window {
                    if let Some(out) = self.lists.pop_back(WINDOW) {
                        self.contest(out, evicted);
                    }
                }
                false
            }
        }
    }

    fn holds(&self, chunk: u32) -> bool {
        self.lists.list_of(chunk).is_some()
    }

    fn resize(&mut self, capacity: usize, evicted: &mut Vec<u32>) {
        (self.window, self.main) = parts(capacity);
        self.protected = self.main * 4 / 5;
        while self.lists.len(PROTECTED) > self.protected {
            let Some(c) = self.lists.back(PROTECTED) else { break };
            self.lists.put_front(PROBATION, c);
        }
        while self.lists.len(PROBATION) + self.lists.len(PROTECTED) > self.main {
            evicted.extend(self.lists.pop_back(PROBATION));
        }
        while self.lists.len(WINDOW) > self.window {
            let Some(out) = self.lists.pop_back(WINDOW) else { break };
            self.contest(out, evicted);
        }
    }

    fn forget(&mut self, chunk: u32) {
        self.lists.remove(chunk);
    }

    fn len(&self) -> usize {
        (WINDOW..=PROTECTED).map(|l| self.lists.len(l)).sum()
    }
}
