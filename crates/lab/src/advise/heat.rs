//! Heat as a logarithm on an absolute scale that grows with time, so that nothing is ever aged: see `tier/heat.rs` of
//! the engine, of which this is the exact form.

/// Fine steps in an octave.
pub(super) const OCTAVE: u32 = 4096;
/// Octaves after which a difference no longer counts in a sum.
const REACH: u32 = 16;
/// Entries of the table per octave.
const FINENESS: u32 = 64;

/// log2(1.5): visits that earn a place.
pub(super) const LOG_1_5: u32 = 2396;
/// A visit in a stream counts 2^-4.
pub(super) const LIGHT: u32 = 4 * OCTAVE;

/// `log2(1 + 2^-x)` in fine steps.
pub(super) struct Sums {
    table: Box<[u16]>,
}

impl Sums {
    pub(super) fn new() -> Sums {
        let entry = |i: u32| {
            let x = f64::from(i) / f64::from(FINENESS);
            ((1.0 + (-x).exp2()).log2() * f64::from(OCTAVE)).round() as u16
        };
        Sums { table: (0..REACH * FINENESS).map(entry).collect() }
    }

    /// Logarithm of the sum of two heats.
    pub(super) fn add(&self, a: u32, b: u32) -> u32 {
        let (high, low) = (a.max(b), a.min(b));
        let i = ((high - low) / (OCTAVE / FINENESS)) as usize;
        high.saturating_add(self.table.get(i).map_or(0, |t| u32::from(*t)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_visits_are_ten_octaves() {
        let sums = Sums::new();
        let mut heat = 100 * OCTAVE;
        for _ in 1..1024 {
            heat = sums.add(heat, 100 * OCTAVE);
        }
        assert!((110 * OCTAVE).abs_diff(heat) < OCTAVE / 8, "{}", heat - 100 * OCTAVE);
        assert_eq!(sums.add(100 * OCTAVE, 0), 100 * OCTAVE);
        assert_eq!(sums.add(7, 7), 7 + OCTAVE);
    }
}
