//! What each size of SSD would have served, and what was left to the disk: amounts by the rank up to which they count.

use super::ladder::{level, lowest, LEVELS};

/// Amounts, each the disk's for every SSD that is not larger than some rank.
pub(super) struct Ranked {
    /// Sum by the step of the rank.
    sums: Box<[i128]>,
}

impl Ranked {
    pub(super) fn new() -> Ranked {
        Ranked { sums: vec![0; LEVELS].into_boxed_slice() }
    }

    /// An amount that is the disk's if the SSD has at most `rank` chunks.
    pub(super) fn add(&mut self, rank: u64, amount: i64) {
        self.sums[level(rank)] += i128::from(amount);
    }

    /// What an SSD of so many chunks leaves to the disk; ranks within a step are taken as spread evenly.
    pub(super) fn left(&self, chunks: u64) -> f64 {
        let at = level(chunks);
        let above: i128 = self.sums[at + 1..].iter().sum();
        let here = self.sums[at] as f64;
        if at == LEVELS - 1 {
            return here;
        }
        let (low, next) = (lowest(at), lowest(at + 1));
        above as f64 + here * (next - chunks) as f64 / (next - low) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::ladder::NEVER;
    use super::*;

    #[test]
    fn an_amount_counts_up_to_its_rank() {
        let mut r = Ranked::new();
        r.add(NEVER, 1000);
        r.add(0, 7);
        r.add(100_000, 50);
        assert_eq!(r.left(0), 1057.0);
        assert_eq!(r.left(1), 1050.0);
        assert_eq!(r.left(90_000), 1050.0);
        assert_eq!(r.left(110_000), 1000.0);
        assert_eq!(r.left(u64::MAX), 1000.0);
    }
}
