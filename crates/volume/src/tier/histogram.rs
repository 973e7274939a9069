//! How often which latency was seen: counts in bins of a quarter octave, so that a percentile is right within a fifth.

use std::time::Duration;

/// From 1 µs to 16 s.
const BINS: usize = 96;

/// Latencies of a load.
#[derive(Clone)]
pub(super) struct Histogram {
    bins: [u32; BINS],
    count: u32,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram { bins: [0; BINS], count: 0 }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        self.bins[bin(latency)] += 1;
        self.count += 1;
    }

    pub(super) fn count(&self) -> u32 {
        self.count
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
        for (i, n) in self.bins.iter().enumerate() {
            seen += n;
            if seen >= rank {
                let (octave, quarter) = (i / 4, i % 4);
                return Duration::from_nanos(((5 + quarter as u64) * 250) << octave);
            }
        }
        Duration::from_micros(1 << (BINS / 4))
    }
}

fn bin(latency: Duration) -> usize {
    let us = (latency.as_nanos() / 1000).clamp(1, 1 << 24) as u64;
    // Octave by the leading bit, quarter by the two bits behind it.
    let octave = us.ilog2();
    let quarter = (us << 2 >> octave) & 3;
    (octave as usize * 4 + quarter as usize).min(BINS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_right_within_a_quarter_octave() {
        let mut h = Histogram::new();
        (0..89).for_each(|_| h.add(Duration::from_micros(100)));
        (0..11).for_each(|_| h.add(Duration::from_micros(9000)));
        let us = |one_in| h.slowest_but_one_in(one_in).as_micros();
        assert!((9000..11_300).contains(&us(10)), "{}", us(10));
        assert!((100..126).contains(&us(5)), "{}", us(5));
        h.halve();
        assert_eq!(h.count(), 49);
        assert!(h.slowest_but_one_in(10).as_micros() > 9000, "half of all is as before");
    }
}
