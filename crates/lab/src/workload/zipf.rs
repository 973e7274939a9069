//! Zipf's law: of n things, the k-th most popular is asked for in proportion to 1 / k^s.

use bimetal_sim::prng::Prng;

use super::math::pow;

/// Things that are told apart at most; the table costs 8 bytes for each.
pub(super) const RANKS_MAX: u64 = 1 << 20;

/// A sampler of ranks.
pub(super) struct Zipf {
    /// Weights of the ranks up to and including each, summed.
    sums: Vec<f64>,
}

impl Zipf {
    /// Over `n` ranks, 1 to [`RANKS_MAX`], with exponent `s`; 0 is uniform.
    pub(super) fn new(n: u64, s: f64) -> Zipf {
        assert!((1..=RANKS_MAX).contains(&n), "ranks: {n}");
        let mut sum = 0.0;
        let sums = (1..=n).map(|k| {
            sum += pow(k as f64, -s);
            sum
        });
        Zipf { sums: sums.collect() }
    }

    /// How many ranks there are.
    pub(super) fn ranks(&self) -> u64 {
        self.sums.len() as u64
    }

    /// A rank, from 0.
    pub(super) fn rank(&self, rng: &mut Prng) -> u64 {
        let total = self.sums[self.sums.len() - 1];
        let at = (rng.next() >> 11) as f64 / (1u64 << 53) as f64 * total;
        // Rounding may put `at` on the total itself.
        (self.sums.partition_point(|&sum| sum <= at) as u64).min(self.ranks() - 1)
    }

    /// The share of all draws that falls on the `k` most popular.
    #[cfg(test)]
    pub(super) fn share(&self, k: u64) -> f64 {
        match k {
            0 => 0.0,
            k => self.sums[k as usize - 1] / self.sums[self.sums.len() - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drawn shares against the law itself, by the standard deviation of a binomial count.
    #[test]
    fn shares_are_those_of_the_law() {
        const DRAWS: u64 = 200_000;
        for (n, s) in [(1, 1.0), (10, 0.0), (1000, 0.9), (1000, 1.0), (50_000, 1.2)] {
            let zipf = Zipf::new(n, s);
            let mut rng = Prng::new(n);
            let mut counts = vec![0u64; n as usize];
            for _ in 0..DRAWS {
                counts[zipf.rank(&mut rng) as usize] += 1;
            }
            let total: f64 = (1..=n).map(|k| (k as f64).powf(-s)).sum();
            for top in [1, n.div_ceil(100), n.div_ceil(10), n] {
                let share = (1..=top).map(|k| (k as f64).powf(-s)).sum::<f64>() / total;
                assert!((zipf.share(top) - share).abs() < 1e-9);
                let drawn = counts[..top as usize].iter().sum::<u64>() as f64;
                let sigma = (DRAWS as f64 * share * (1.0 - share)).max(1.0).sqrt();
                assert!((drawn - DRAWS as f64 * share).abs() < 5.0 * sigma, "n {n} s {s} top {top}: {drawn}");
            }
        }
    }
}
