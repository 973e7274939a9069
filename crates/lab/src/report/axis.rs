//! An axis: where numbers lie on paper, and which of them are written beside it.

use super::text::figure;

/// Ticks that an axis has about.
const TICKS: f64 = 5.0;

/// A linear scale from 0 (or the lowest value, if that is below) to a round number above the highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    step: f64,
    /// Paper coordinates of both ends.
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis for these values; those that are not finite are left out.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (low, high) =
            values.filter(|v| v.is_finite()).fold((0.0f64, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let span = if high > low { high - low } else { 1.0 };
        let step = round_step(span / TICKS);
        let end = if high > low { high } else { low + 1.0 };
        Axis { low: (low / step).floor() * step, high: (end / step).ceil() * step, step, from, to }
    }

    /// Where a value lies on paper.
    pub(super) fn place(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Values to write beside the axis, with their text.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let n = ((self.high - self.low) / self.step).round() as usize;
        (0..=n.min(20)).map(|i| self.low + i as f64 * self.step).map(|v| (v, tick_words(v, self.step))).collect()
    }
}

/// The next of 1, 2, 5, 10 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|t| step <= t * power * (1.0 + 1e-9)).unwrap_or(10.0);
    times * power
}

fn tick_words(value: f64, step: f64) -> String {
    match value {
        v if v.abs() < step / 2.0 => "0".into(),
        v if v.abs() >= 1e6 => format!("{} M", figure(v / 1e6)),
        v if step >= 1.0 => format!("{v:.0}"),
        v => figure(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(values: &[f64]) -> Vec<String> {
        Axis::over(values.iter().copied(), 0.0, 100.0).ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_reach_beyond_all_values() {
        assert_eq!(ticks(&[3.0, 98.0]), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(ticks(&[0.0007, 0.0031]), ["0", "0.001", "0.002", "0.003", "0.004"]);
        assert_eq!(ticks(&[427.0]), ["0", "100", "200", "300", "400", "500"]);
        assert_eq!(ticks(&[-5.0, 5.0]), ["-6", "-4", "-2", "0", "2", "4", "6"]);
    }

    #[test]
    fn no_values_at_all_are_no_harm() {
        for values in [&[][..], &[0.0], &[f64::NAN, f64::INFINITY]] {
            let axis = Axis::over(values.iter().copied(), 10.0, 20.0);
            assert_eq!((axis.place(0.0), axis.place(1.0)), (10.0, 20.0));
        }
    }
}
