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

    /// Adds a number; what is not below the limit is left out.
    pub(crate) fn add(&mut self, n: u64) {
        self.put(n, true);
    }

    pub(crate) fn remove(&mut self, n: u64) {
        self.put(n, false);
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
        self.words.rows().flat_map(|(row, word)| {
            let bits = std::iter::successors(Some(word), |w| Some(w & w.wrapping_sub(1))).take_while(|w| *w != 0);
            bits.map(move |w| row as u64 * 64 + u64::from(w.trailing_zeros()))
        })
    }
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
        for n in [63, 63, 70_001, 4096] {
            set.remove(n);
        }
        assert_eq!((set.count(), set.iter().collect::<Vec<_>>()), (3, vec![5, 64, 69_999]));
    }
}
