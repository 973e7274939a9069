//! How often which latency was seen: counts in bins of a part of an octave, so that a percentile is right within a bin.

use std::time::Duration;

/// From 1 µs to 16 s.
const OCTAVES: u32 = 24;

/// Latencies of a load.
pub(super) struct Histogram {
    bins: Box<[u32]>,
    /// An octave has two to the power of this bins.
    parts: u32,
    count: u32,
}

impl Histogram {
    /// With 2^`parts` bins for each octave.
    pub(super) fn new(parts: u32) -> Histogram {
        Histogram { bins: vec![0; (OCTAVES as usize) << parts].into(), parts, count: 0 }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        let bin = self.bin(latency);
        self.bins[bin] += 1;
        self.count += 1;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Nothing was seen.
    pub(super) fn clear(&mut self) {
        self.bins.fill(0);
        self.count = 0;
    }

    /// What was seen counts half from now on.
    pub(super) fn halve(&mut self) {
        self.bins.iter_mut().for_each(|n| *n /= 2);
        self.count = self.bins.iter().sum();
    }

    /// What one request in `one_in` exceeds: the upper edge of a bin. Something was seen.
    pub(super) fn slowest_but_one_in(&self, one_in: u32) -> Duration {
        let rank = self.count - self.count / one_in;
        let mut seen = 0;
        let found = self.bins.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        let i = found.unwrap_or(self.bins.len() - 1);
        let (octave, part) = (i >> self.parts, i & ((1 << self.parts) - 1));
        Duration::from_nanos(((((1 << self.parts) + part as u64 + 1) * 1000) << octave) >> self.parts)
    }

    fn bin(&self, latency: Duration) -> usize {
        let ns = latency.as_nanos().clamp(1000, 1000 << OCTAVES) as u64;
        let octave = (ns / 1000).ilog2();
        let part = ((ns << self.parts) / (1000 << octave)) & ((1 << self.parts) - 1);
        (((octave as usize) << self.parts) + part as usize).min(self.bins.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_right_within_a_bin() {
        let mut h = Histogram::new(2);
        (0..89).for_each(|_| h.add(Duration::from_micros(100)));
        (0..11).for_each(|_| h.add(Duration::from_micros(9000)));
        let us = |one_in| h.slowest_but_one_in(one_in).as_micros();
        assert!((9000..11_300).contains(&us(10)), "{}", us(10));
        assert!((100..126).contains(&us(5)), "{}", us(5));
        h.halve();
        assert_eq!(h.count(), 49);
        assert!(h.slowest_but_one_in(10).as_micros() > 9000, "half of all is as before");
        h.clear();
        assert_eq!(h.count(), 0);
    }

    #[test]
    fn narrow_bins_tell_what_is_near() {
        let mut h = Histogram::new(5);
        for nanos in [0, 999, 1000, 480_000, 481_000, 560_000, 999_999_999, u64::MAX] {
            h.clear();
            (0..99).for_each(|_| h.add(Duration::from_nanos(nanos)));
            let (at, seen) = (h.slowest_but_one_in(100), nanos.clamp(1000, 1000 << OCTAVES));
            let (least, most) = (seen as f64, seen as f64 * 1.033);
            assert!((least..=most).contains(&(at.as_nanos() as f64)), "{nanos}: {at:?}");
        }
    }
}
