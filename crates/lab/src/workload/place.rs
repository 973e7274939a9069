//! What is hot, and where it lies.

use bimetal_sim::prng::Prng;

use super::zipf::{Zipf, RANKS_MAX};
use super::PAGE;

/// A fixed shuffle of the numbers below `n` without a table: multiplication by a number without common factors.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    n: u64,
    factor: u64,
    shift: u64,
}

impl Scatter {
    /// A shuffle of the numbers below `n`, at least 1.
    pub(super) fn new(n: u64, rng: &mut Prng) -> Scatter {
        debug_assert!(n > 0);
        // Steps near the golden section put neighbours far apart; any step without a common factor will do.
        let mut factor = (n as u128 * 618 / 1000) as u64 + rng.below(n / 64 + 1);
        while gcd(factor, n) != 1 {
            factor += 1;
        }
        Scatter { n, factor, shift: rng.below(n) }
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> u64 {
        self.n
    }

    /// Where number `i` goes.
    pub(super) fn of(&self, i: u64) -> u64 {
        let product = u128::from(i % self.n) * u128::from(self.factor) + u128::from(self.shift);
        (product % u128::from(self.n)) as u64
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// A set of hot extents, scattered over a region, whose members can be exchanged one by one.
///
/// The region's extents stand in a shuffled row, and the hot ones are a window of it. Going one step on, the window
/// loses its first extent, and the newcomer takes over exactly its popularity.
pub(super) struct HotSet {
    start: u64,
    extent: u64,
    row: Scatter,
    /// Which place in the window has which rank.
    ranks: Scatter,
    zipf: Zipf,
    /// The window's first place in the row.
    first: u64,
}

impl HotSet {
    /// About `bytes` hot bytes, at least an extent, in the region of `len` bytes at `start`, in extents of `extent`
    /// bytes, or larger if there were too many. The region has at least one extent.
    pub(super) fn new(start: u64, len: u64, bytes: u64, extent: u64, exponent: f64, rng: &mut Prng) -> HotSet {
        let extent = extent.max(bytes.div_ceil(RANKS_MAX).next_multiple_of(PAGE)).min(len);
        let row = Scatter::new(len / extent, rng);
        let hot = (bytes / extent).clamp(1, RANKS_MAX.min(row.n));
        HotSet { start, extent, row, ranks: Scatter::new(hot, rng), zipf: Zipf::new(hot, exponent), first: 0 }
    }

    /// Bytes of an extent.
    pub(super) fn extent(&self) -> u64 {
        self.extent
    }

    /// Hot extents.
    pub(super) fn count(&self) -> u64 {
        self.zipf.ranks()
    }

    /// First byte of a hot extent.
    pub(super) fn pick(&self, rng: &mut Prng) -> u64 {
        let hot = self.count();
        let place = self.ranks.of(self.zipf.rank(rng));
        // The only one in the window that leaves this remainder.
        let behind = (place + hot - self.first % hot) % hot;
        self.start + self.row.of(self.first.wrapping_add(behind) % self.row.n) * self.extent
    }

    /// Exchanges the `n` oldest members for new ones.
    pub(super) fn advance(&mut self, n: u64) {
        self.first = self.first.wrapping_add(n);
    }
}

/// An offset for a request of `len` bytes inside the extent at `start`, at a multiple of a page if there is room.
pub(super) fn inside(start: u64, extent: u64, len: u64, rng: &mut Prng) -> u64 {
    start + rng.below(extent.saturating_sub(len) / PAGE + 1) * PAGE
}

/// A size from `min` to `max`, each doubling as likely as any other, in whole pages.
pub(super) fn log_uniform(min: u64, max: u64, rng: &mut Prng) -> u64 {
    let (min, max) = (min.div_ceil(PAGE).max(1), (max / PAGE).max(1));
    if max <= min {
        return min * PAGE;
    }
    let doublings = 64 - (max / min).leading_zeros();
    loop {
        let low = min << rng.below(u64::from(doublings));
        let pages = low + rng.below(low);
        if pages <= max {
            return pages * PAGE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scatter_is_a_permutation() {
        let mut rng = Prng::new(1);
        for n in [1u64, 2, 3, 8, 97, 1000, 1024, 6180] {
            let scatter = Scatter::new(n, &mut rng);
            let seen: BTreeSet<u64> = (0..n).map(|i| scatter.of(i)).collect();
            assert_eq!(seen, (0..n).collect());
        }
    }

    #[test]
    fn a_step_exchanges_one_member_and_a_full_turn_all() {
        let mut rng = Prng::new(2);
        let mut set = HotSet::new(0, 1 << 30, 16 << 20, 1 << 20, 0.0, &mut rng);
        assert_eq!(set.count(), 16);
        let members = |set: &HotSet, rng: &mut Prng| (0..2000).map(|_| set.pick(rng)).collect::<BTreeSet<u64>>();
        let before = members(&set, &mut rng);
        assert_eq!(before.len(), 16);
        set.advance(1);
        let one = members(&set, &mut rng);
        assert_eq!((one.len(), one.intersection(&before).count()), (16, 15));
        set.advance(15);
        let all = members(&set, &mut rng);
        assert_eq!((all.len(), all.intersection(&before).count()), (16, 0));
    }

    #[test]
    fn those_that_stay_keep_their_popularity() {
        let mut rng = Prng::new(4);
        let mut set = HotSet::new(0, 1 << 30, 16 << 20, 1 << 20, 1.5, &mut rng);
        let favourite = |set: &HotSet, rng: &mut Prng| {
            let mut counts = std::collections::BTreeMap::new();
            for _ in 0..2000 {
                *counts.entry(set.pick(rng)).or_insert(0) += 1;
            }
            counts.into_iter().max_by_key(|(_, n)| *n).map(|(extent, _)| extent)
        };
        let first = favourite(&set, &mut rng);
        let mut changes = 0;
        let mut last = first;
        for _ in 0..16 {
            set.advance(1);
            let now = favourite(&set, &mut rng);
            changes += u32::from(now != last);
            last = now;
        }
        // It leaves once in a full turn, and the one that comes for it is the favourite from then on.
        assert_eq!(changes, 1);
        assert_ne!(last, first);
    }

    #[test]
    fn sizes_are_spread_over_the_doublings() {
        let mut rng = Prng::new(3);
        let sizes: Vec<u64> = (0..20_000).map(|_| log_uniform(4096, 1 << 20, &mut rng)).collect();
        assert!(sizes.iter().all(|s| (4096..=1 << 20).contains(s) && s % PAGE == 0));
        // 4 KiB to 1 MiB are 8 doublings, and the last size of all belongs to a ninth that is nearly always refused.
        let small = sizes.iter().filter(|&&s| s < 64 << 10).count();
        assert!((9_500..10_500).contains(&small), "{small}");
        assert_eq!(log_uniform(8192, 8192, &mut rng), 8192);
    }
}
