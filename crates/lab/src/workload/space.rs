//! Free space of a file system that takes and gives back: first fit from where it took last, as most do.

use std::collections::BTreeMap;

/// Free extents of a region: first byte and length, never adjacent.
pub(super) struct Space {
    free: BTreeMap<u64, u64>,
    /// Where the next search begins.
    cursor: u64,
}

impl Space {
    /// All of the region is free.
    pub(super) fn new(start: u64, len: u64) -> Space {
        Space { free: BTreeMap::from([(start, len)]), cursor: start }
    }

    /// Takes `len` bytes in one piece, or in the largest free piece if none is large enough: first byte and length.
    pub(super) fn take(&mut self, len: u64) -> Option<(u64, u64)> {
        let fits = |(&start, &free): (&u64, &u64)| (free >= len).then_some((start, free));
        let found = self.free.range(self.cursor..).find_map(fits).or_else(|| self.free.iter().find_map(fits));
        let largest = || self.free.iter().max_by_key(|(_, &free)| free).map(|(&start, &free)| (start, free));
        let (start, free) = found.or_else(largest)?;
        let taken = len.min(free);
        self.free.remove(&start);
        if taken < free {
            self.free.insert(start + taken, free - taken);
        }
        self.cursor = start + taken;
        Some((start, taken))
    }

    /// Gives a piece back that was taken.
    pub(super) fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut len) = (start, len);
        if let Some((&before, &free)) = self.free.range(..start).next_back() {
            if before + free == start {
                self.free.remove(&before);
                (start, len) = (before, free + len);
            }
        }
        if let Some(free) = self.free.remove(&(start + len)) {
            len += free;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_sim::prng::Prng;

    #[test]
    fn takes_what_is_free_and_joins_what_comes_back() {
        let mut space = Space::new(100, 50);
        assert_eq!(space.take(20), Some((100, 20)));
        assert_eq!(space.take(20), Some((120, 20)));
        // Nothing as large is left: the largest piece.
        assert_eq!(space.take(20), Some((140, 10)));
        assert_eq!(space.take(1), None);
        space.give(100, 20);
        space.give(140, 10);
        space.give(120, 20);
        assert_eq!(space.take(50), Some((100, 50)));
    }

    #[test]
    fn never_gives_out_twice() {
        let mut space = Space::new(0, 1000);
        let mut rng = Prng::new(5);
        let mut used = [false; 1000];
        let mut live: Vec<(u64, u64)> = Vec::new();
        for _ in 0..5000 {
            if rng.coin() || live.is_empty() {
                let Some((start, len)) = space.take(rng.range(1, 90)) else { continue };
                for byte in &mut used[start as usize..(start + len) as usize] {
                    assert!(!std::mem::replace(byte, true));
                }
                live.push((start, len));
            } else {
                let (start, len) = live.swap_remove(rng.below(live.len() as u64) as usize);
                used[start as usize..(start + len) as usize].fill(false);
                space.give(start, len);
            }
        }
        for (start, len) in live {
            space.give(start, len);
        }
        assert_eq!(space.take(1000), Some((0, 1000)));
    }
}
