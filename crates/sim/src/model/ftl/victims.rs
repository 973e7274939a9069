//! Closed blocks by how much they hold that is live: the next victim of greedy garbage collection in constant time.
//!
//! One doubly linked list per number of live pages; the links are arrays over the blocks.

const NONE: u32 = u32::MAX;

/// Closed blocks, ordered by live pages.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    /// First block of each list.
    first: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// The list a block is in.
    list: Vec<u32>,
    /// No list below this one has a block.
    least: usize,
}

impl Victims {
    /// For `blocks` blocks of `pages` pages, none of them closed.
    pub(super) fn new(blocks: u32, pages: u32) -> Victims {
        let none = vec![NONE; blocks as usize];
        Victims {
            first: vec![NONE; pages as usize + 1],
            next: none.clone(),
            previous: none.clone(),
            list: none,
            least: pages as usize,
        }
    }

    /// Adds a block with so many live pages.
    pub(super) fn insert(&mut self, block: u32, live: u32) {
        let at = (live as usize).min(self.first.len() - 1);
        let head = self.first[at];
        self.next[block as usize] = head;
        self.previous[block as usize] = NONE;
        if head != NONE {
            self.previous[head as usize] = block;
        }
        self.first[at] = block;
        self.list[block as usize] = at as u32;
        self.least = self.least.min(at);
    }

    /// Takes a block out, if it is in.
    fn remove(&mut self, block: u32) -> bool {
        let list = std::mem::replace(&mut self.list[block as usize], NONE);
        if list == NONE {
            return false;
        }
        let (before, after) = (self.previous[block as usize], self.next[block as usize]);
        match before {
            NONE => self.first[list as usize] = after,
            _ => self.next[before as usize] = after,
        }
        if after != NONE {
            self.previous[after as usize] = before;
        }
        true
    }

    /// A closed block has fewer live pages now. Other blocks are left alone.
    pub(super) fn lower(&mut self, block: u32, live: u32) {
        if self.list[block as usize] != NONE && self.list[block as usize] != live && self.remove(block) {
            self.insert(block, live);
        }
    }

    /// Live pages of the block with the fewest.
    pub(super) fn least(&mut self) -> Option<(u32, u32)> {
        while let Some(head) = self.first.get(self.least) {
            if *head != NONE {
                return Some((*head, self.least as u32));
            }
            self.least += 1;
        }
        self.least = self.first.len() - 1;
        None
    }

    /// Takes out the block with the fewest live pages.
    pub(super) fn take(&mut self) -> Option<u32> {
        let (block, _) = self.least()?;
        self.remove(block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    #[test]
    fn the_least_is_always_found() {
        let mut victims = Victims::new(50, 16);
        let mut plain: Vec<Option<u32>> = vec![None; 50];
        let mut rng = Prng::new(3);
        for _ in 0..20_000 {
            let block = rng.below(50) as usize;
            match plain[block] {
                None => {
                    let live = rng.below(17) as u32;
                    plain[block] = Some(live);
                    victims.insert(block as u32, live);
                }
                Some(live) if live > 0 && rng.chance(700_000) => {
                    plain[block] = Some(live - 1);
                    victims.lower(block as u32, live - 1);
                }
                Some(_) => {
                    let least = plain.iter().flatten().min().copied();
                    assert_eq!(victims.least().map(|(_, live)| live), least);
                    let taken = victims.take().expect("one is in") as usize;
                    assert_eq!(plain[taken], least);
                    plain[taken] = None;
                }
            }
        }
    }
}
