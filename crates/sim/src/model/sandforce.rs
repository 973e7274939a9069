//! Data reduction inside the SSD (SandForce SF-2200): what is stored is smaller than what was written, unless the data
//! are compressed or encrypted already.
//!
//! *Stored-size factor* `r`: stored bytes over written bytes. It acts twice: less is programmed, and what is saved is
//! spare space, so the garbage collection moves less too. Only so does write amplification come below 1.

use super::ftl::{MAX_PACK, UNITS};

/// Kinds of data by what such a controller makes of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Content {
    /// An operating system and office programs: 0.44 (the controller's maker: 25 GB stored as 11 GB).
    Programs,
    /// One pattern over and over, as benchmarks write by default: 0.14.
    Pattern,
    /// Photos, music, video, archives: 1.
    Compressed,
    /// An encrypted volume, whatever is on it: 1.
    Encrypted,
    /// Any factor; limited to what the flash can pack and to 1.
    Factor(f64),
}

impl Content {
    /// The stored-size factor.
    pub fn factor(self) -> f64 {
        let factor = match self {
            Content::Programs => 0.44,
            Content::Pattern => 0.14,
            Content::Compressed | Content::Encrypted => 1.0,
            Content::Factor(r) if r.is_finite() => r,
            Content::Factor(_) => 1.0,
        };
        factor.clamp(1.0 / f64::from(MAX_PACK), 1.0)
    }
}

/// Turns a factor into the stored sizes of single pages.
#[derive(Clone, Debug)]
pub struct Reducer {
    /// Units of a page, as fixed point with 16 fractional bits.
    step: u32,
    /// Fraction carried to the next page, so that the mean is exact.
    carry: u32,
}

impl Reducer {
    /// For such data.
    pub fn new(content: Content) -> Reducer {
        let mut reducer = Reducer { step: 0, carry: 0 };
        reducer.set(content);
        reducer
    }

    /// From now on such data are written.
    pub fn set(&mut self, content: Content) {
        self.step = (content.factor() * f64::from(UNITS) * 65536.0) as u32;
    }

    /// Stored size of the next page, in [`UNITS`].
    pub fn next_page(&mut self) -> u8 {
        let sum = self.step + self.carry;
        self.carry = sum & 0xffff;
        ((sum >> 16) as u8).clamp(UNITS / MAX_PACK as u8, UNITS)
    }

    /// Stored size of `bytes`.
    pub fn stored_bytes(&self, bytes: u64) -> u64 {
        ((u128::from(bytes) * u128::from(self.step)) / (u128::from(UNITS) << 16)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_sizes_have_the_factor_as_their_mean() {
        for r in [0.125, 0.14, 0.3, 0.44, 0.75, 0.999, 1.0] {
            let mut reducer = Reducer::new(Content::Factor(r));
            let sum: u64 = (0..10_000).map(|_| u64::from(reducer.next_page())).sum();
            let mean = sum as f64 / 10_000.0 / f64::from(UNITS);
            assert!((mean - r).abs() < 1e-4, "{r}: {mean}");
            assert!((reducer.stored_bytes(1 << 40) as f64 / (1u64 << 40) as f64 - r).abs() < 1e-4);
        }
        for nonsense in [f64::NAN, f64::INFINITY, 7.0] {
            assert_eq!(Content::Factor(nonsense).factor(), 1.0);
        }
        assert_eq!(Content::Factor(-1.0).factor(), 0.125);
    }
}
