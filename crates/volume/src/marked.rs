//! A set of numbers below a limit, as bits of a sparse table.

use crate::sparse::Sparse;

/// Numbers from 0 to a limit, each in the set or not.
pub(crate) struct Marked {
    words: Sparse<u64>,
    limit: u64,
    count: u64,
}

impl Marked {
    /// The empty set of numbers below `limit`.
    pub(crate) fn new(limit: u64) -> Marked {
        Marked { words: Sparse::new(limit.div_ceil(64)), limit, count: 0 }
    }

    /// How many are in it.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a number is in it.
    pub(crate) fn contains(&self, n: u64) -> bool {
        n < self.limit && self.words.get((n / 64) as usize) & 1 << (n % 64) != 0
    }

    /// Adds a number; what is not below the limit is left out.
    pub(crate) fn add(&mut self, n: u64) {
        self.put(n, true);
    }

    pub(crate) fn remove(&mut self, n: u64) {
        self.put(n, false);
    }

    /// Adds all of a range; what is not below the limit is left out.
    pub(crate) fn add_all(&mut self, range: std::ops::Range<u64>) {
        let end = range.end.min(self.limit);
        let mut n = range.start;
        while n < end {
            // As much as lies in one word.
            let len = (64 - n % 64).min(end - n);
            let (row, bits) = ((n / 64) as usize, (u64::MAX >> (64 - len)) << (n % 64));
            let word = self.words.get(row);
            self.count += u64::from((bits & !word).count_ones());
            self.words.set(row, word | bits);
            n += len;
        }
    }

    /// The numbers of the groups of `size` that have any number in it, in order. A group is a power of two, at most 64.
    pub(crate) fn groups(&self, size: u64) -> impl Iterator<Item = u64> + '_ {
        assert!(size.is_power_of_two() && size <= 64, "groups of {size}");
        self.words.rows().flat_map(move |(row, word)| {
            let mask = u64::MAX >> (64 - size);
            let inside = (0..64 / size).filter(move |g| word >> (g * size) & mask != 0);
            inside.map(move |g| row as u64 * (64 / size) + g)
        })
    }

    /// The first of its numbers from `from` on, `max` at most.
    pub(crate) fn some(&self, from: u64, max: usize) -> Vec<u64> {
        let first = from / 64;
        let words = (first..self.words.len() as u64).map(|row| (row, self.words.get(row as usize)));
        let bits = words.flat_map(|(row, word)| bits_of(word).map(move |bit| row * 64 + bit));
        bits.skip_while(|n| *n < from).take(max).collect()
    }

    fn put(&mut self, n: u64, inside: bool) {
        if n >= self.limit {
            return;
        }
        let (row, bit) = ((n / 64) as usize, 1 << (n % 64));
        let word = self.words.get(row);
        if (word & bit != 0) != inside {
            self.words.set(row, word ^ bit);
            self.count = if inside { self.count + 1 } else { self.count - 1 };
        }
    }

    /// Its numbers in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.rows().flat_map(|(row, word)| bits_of(word).map(move |bit| row as u64 * 64 + bit))
    }
}

/// The bits that are set in a word.
fn bits_of(word: u64) -> impl Iterator<Item = u64> {
    let rest = std::iter::successors(Some(word), |w| Some(w & w.wrapping_sub(1))).take_while(|w| *w != 0);
    rest.map(|w| u64::from(w.trailing_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_and_go_and_are_told_in_order() {
        let mut set = Marked::new(70_000);
        for n in [69_999, 70_000, 5, 64, 63, 5, 4096] {
            set.add(n);
        }
        assert_eq!((set.count(), set.iter().collect::<Vec<_>>()), (5, vec![5, 63, 64, 4096, 69_999]));
        assert_eq!(set.some(6, 2), [63, 64]);
        for n in [63, 63, 70_001, 4096] {
            set.remove(n);
        }
        assert_eq!((set.count(), set.iter().collect::<Vec<_>>()), (3, vec![5, 64, 69_999]));
    }

    #[test]
    fn ranges_and_groups() {
        for (range, limit) in [(0..1, 10), (3..64, 100), (60..200, 1000), (60..200, 130), (5..5, 10), (64..128, 128)] {
            let (mut whole, mut single) = (Marked::new(limit), Marked::new(limit));
            whole.add(61);
            single.add(61);
            whole.add_all(range.clone());
            range.clone().for_each(|n| single.add(n));
            assert_eq!(whole.count(), single.count(), "{range:?}");
            assert!(whole.iter().eq(single.iter()), "{range:?}");
            for size in [1, 2, 8, 64] {
                let mut groups: Vec<u64> = single.iter().map(|n| n / size).collect();
                groups.dedup();
                assert!(whole.groups(size).eq(groups), "{range:?} in groups of {size}");
            }
        }
    }
}
