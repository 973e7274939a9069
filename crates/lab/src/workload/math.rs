//! Logarithm and exponential from the four basic operations alone, which are the same on every machine; those of a
//! system's library are not, and a stream must not depend on it.

use std::f64::consts::LN_2;

/// Natural logarithm of a normal number above zero.
pub(super) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    // x = m * 2^e with m in [1, 2), then ln m = 2 atanh((m - 1) / (m + 1)), brought near 1 for a short series.
    let bits = x.to_bits();
    let mut e = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if m > std::f64::consts::SQRT_2 {
        m /= 2.0;
        e += 1;
    }
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    // t < 0.1716, so that the term after the twelfth is below 2^-64.
    let series = (0..12).rev().fold(0.0, |sum, i| sum * square + 1.0 / f64::from(2 * i + 1));
    2.0 * t * series + e as f64 * LN_2
}

/// Exponential of a number from -700 to 700.
pub(super) fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() <= 700.0);
    // x = k ln 2 + r with |r| <= ln 2 / 2, then Taylor's series for r.
    let k = (x / LN_2).round();
    let r = x - k * LN_2;
    let series = (1..=16).rev().fold(1.0, |sum, i| 1.0 + sum * r / f64::from(i));
    series * f64::from_bits(((k as i64 + 1023) as u64) << 52)
}

/// `x` to the power of `y`, for `x` at least 1 and results within the range of [`exp`].
pub(super) fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_exact_as_the_system_library() {
        for i in 1..20_000u32 {
            let x = f64::from(i) * f64::from(i) / 977.0;
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(i) / 40.0 - 250.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert!((pow(10.0, -0.9) - 10f64.powf(-0.9)).abs() < 1e-15);
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
        assert!(ln(f64::MIN_POSITIVE).is_finite());
    }

    /// Pins the bits: another result would be another workload.
    #[test]
    fn the_bits_never_change() {
        assert_eq!(ln(3.0).to_bits(), 4_607_626_529_066_517_258);
        assert_eq!(exp(1.0).to_bits(), 4_613_303_445_314_885_482);
        assert_eq!(pow(1000.0, -0.9).to_bits(), 4_566_747_184_186_830_970);
    }
}
