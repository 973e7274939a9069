//! Write amplification in closed form.
//!
//! `alpha` is the flash over the live data (both as stored), `rho = alpha - 1` the spare share. These use `exp`, whose
//! last bit may differ between machines: for reports and tests, not inside a simulation.

/// Write amplification of uniform random page writes with the oldest block cleaned first; greedy cleaning comes to the
/// same as blocks grow. The share `v` of a victim that is live solves `v = exp(-alpha (1 - v))`, and `A = 1 / (1 - v)`
/// (P. Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012). Infinite without spare.
pub fn amplification(alpha: f64) -> f64 {
    1.0 / (1.0 - victim_share(alpha))
}

/// The live share of a victim; see [`amplification`].
pub fn victim_share(alpha: f64) -> f64 {
    if alpha.is_nan() || alpha <= 1.0 {
        return 1.0;
    }
    // v = 1 is always a root. Below the other one the difference is negative, above it positive.
    let (mut low, mut high) = (0.0f64, 1.0 - (alpha - 1.0) / (alpha * alpha));
    for _ in 0..100 {
        let v = (low + high) / 2.0;
        if v < (-alpha * (1.0 - v)).exp() {
            low = v;
        } else {
            high = v;
        }
    }
    (low + high) / 2.0
}

/// The simpler estimate `(1 + rho) / (2 rho)` (R. Agarwal, M. Marrow, "A closed-form expression for write amplification
/// in NAND flash", GLOBECOM 2010 workshops).
pub fn amplification_agarwal(rho: f64) -> f64 {
    (1.0 + rho) / (2.0 * rho)
}

/// Share of the address space that is in use if a share `q` of all requests trims a page that is, and the others write
/// anywhere; write amplification follows with `alpha` divided by it (T. Frankie and others, "A mathematical model of
/// the trim command in NAND-flash SSDs", 2012).
pub fn used_share(q: f64) -> f64 {
    ((1.0 - 2.0 * q) / (1.0 - q)).max(0.0)
}

/// Write amplification with data stored in `r` times its size: less is programmed, and what is saved is spare.
pub fn amplification_reduced(alpha: f64, r: f64) -> f64 {
    r * amplification(alpha / r)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the research notes, to its digits.
    #[test]
    fn closed_forms_give_the_published_table() {
        let rho = [0.07, 0.10, 0.133, 0.171, 0.20, 0.28, 0.40, 0.50, 0.75, 1.0];
        let exact = [7.82, 5.68, 4.44, 3.61, 3.19, 2.48, 1.96, 1.72, 1.40, 1.26];
        let simple = [7.64, 5.50, 4.26, 3.42, 3.00, 2.29, 1.75, 1.50, 1.17, 1.00];
        for ((rho, exact), simple) in rho.into_iter().zip(exact).zip(simple) {
            let (a, b) = (amplification(1.0 + rho), amplification_agarwal(rho));
            assert!((a - exact).abs() < 0.006, "{rho}: {a} for {exact}");
            assert!((b - simple).abs() < 0.006, "{rho}: {b} for {simple}");
        }
        // Agarwal and Marrow's own example.
        assert!((amplification_agarwal(0.3) - 2.17).abs() < 0.005 && (amplification(1.3) - 2.36).abs() < 0.02);
    }

    #[test]
    fn the_edges_are_sane() {
        assert_eq!(amplification(1.0), f64::INFINITY);
        assert!(amplification(1.0001) > 4000.0);
        assert!((amplification(100.0) - 1.0).abs() < 1e-9);
        assert!((used_share(0.1) - 0.8889).abs() < 1e-4 && used_share(0.6) == 0.0);
    }
}
