//! The simulator's only source of chance: xoshiro256++ seeded by splitmix64.
//!
//! The stream is part of the simulator's contract: a seed that failed once must mean the same run for ever, so the
//! algorithm never changes (a test pins it).

/// One step of splitmix64: a well-mixed number from any number.
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Prng([u64; 4]);

impl Prng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Prng {
        let mut state = [0; 4];
        let mut z = seed;
        for word in &mut state {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *word = mix(z);
        }
        Prng(state)
    }

    /// A stream that depends on this one and on `purpose`, so that one user's draws do not shift another's.
    #[must_use]
    pub fn fork(&mut self, purpose: u64) -> Prng {
        Prng::new(self.next() ^ mix(purpose))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `n`; zero if `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `ppm` of a million cases.
    pub fn chance(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// True in half of all cases.
    pub fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// One of `items`, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// A number from 1 to `max`, small ones far more likely: uniform in its logarithm.
    pub fn skewed(&mut self, max: u64) -> u64 {
        let bits = 64 - max.leading_zeros() as u64;
        let top = 1u64 << self.range(0, bits.saturating_sub(1));
        (top + self.below(top)).clamp(1, max.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_never_changes() {
        let mut p = Prng::new(1);
        let first: Vec<u64> = (0..3).map(|_| p.next()).collect();
        assert_eq!(first, [18_160_437_784_750_800_856, 10_807_158_614_139_534_518, 17_099_171_563_154_916_426]);
        let mut again = Prng::new(1);
        assert_eq!(again.next(), first[0]);
        assert_ne!(Prng::new(2).next(), first[0]);
    }

    #[test]
    fn bounds_hold() {
        let mut p = Prng::new(7);
        for _ in 0..10_000 {
            assert!(p.below(5) < 5);
            let r = p.range(3, 9);
            assert!((3..=9).contains(&r));
            let s = p.skewed(300);
            assert!((1..=300).contains(&s));
        }
        assert_eq!(p.below(0), 0);
        let hits = (0..100_000).filter(|_| p.chance(10_000)).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }
}
