//! Sizes as people write them: a bare number is bytes, `GB` is decimal, `GiB` (or `G`, as `truncate` has it) binary.
//!
//! [`Size`] prints exactly: parsing what it printed gives the same number. [`approx`] prints for the eye.

use std::fmt;
use std::str::FromStr;

pub(crate) use bimetal_format::size::approx;

/// The last two of each are beyond every device, so that whoever writes them is told the limit.
const BINARY: [(&str, u128); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("EiB", 1 << 60),
    ("ZiB", 1 << 70),
    ("YiB", 1 << 80),
];
const DECIMAL: [(&str, u128); 8] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("EB", 1_000_000_000_000_000_000),
    ("ZB", 1_000_000_000_000_000_000_000),
    ("YB", 1_000_000_000_000_000_000_000_000),
];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("'{0}' is not a size; write it like 4GiB, 1.1TB, 512MiB or a number of bytes")]
    Format(String),
    #[error("'{0}' is too large: every device is smaller than 16 EiB")]
    TooLarge(String),
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let bad = || SizeError::Format(text.to_string());
        let t = text.trim();
        let end = t.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(t.len());
        let (number, unit) = (&t[..end], t[end..].trim_start());
        let factor = unit_factor(unit).ok_or_else(bad)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits_only = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let dot_without_digits = number.contains('.') && fraction.is_empty();
        if whole.is_empty() || !digits_only(fraction) || dot_without_digits || fraction.len() > 15 {
            return Err(bad());
        }
        let too_large = || SizeError::TooLarge(text.to_string());
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let fraction_value: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| bad())? };
        let bytes = whole
            .checked_mul(factor)
            .ok_or_else(too_large)?
            // Where it does not fit, it is beyond the limit divided, too.
            .saturating_add(fraction_value.saturating_mul(factor) / 10u128.pow(fraction.len() as u32));
        u64::try_from(bytes).map(Size).map_err(|_| too_large())
    }
}

fn unit_factor(unit: &str) -> Option<u128> {
    if unit.is_empty() || unit.eq_ignore_ascii_case("b") {
        return Some(1);
    }
    let named = BINARY.iter().chain(&DECIMAL).find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let letter = || BINARY.iter().find(|(name, _)| unit.len() == 1 && name[..1].eq_ignore_ascii_case(unit));
    named.or_else(letter).map(|(_, factor)| *factor)
}

/// `bytes` in `unit` with at most two decimals, if that is exact.
fn exact_in(bytes: u64, (name, unit): (&str, u128)) -> Option<String> {
    let bytes = u128::from(bytes);
    let hundredths = bytes * 100;
    if bytes < unit || hundredths % unit != 0 {
        return None;
    }
    let hundredths = hundredths / unit;
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    Some(match (rest, rest % 10) {
        (0, _) => format!("{whole}{name}"),
        (_, 0) => format!("{whole}.{}{name}", rest / 10),
        _ => format!("{whole}.{rest:02}{name}"),
    })
}

impl fmt::Display for Size {
    /// The shortest text that means exactly this number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = BINARY.iter().rev().chain(DECIMAL.iter().rev());
        let shortest = units.filter_map(|u| exact_in(self.0, *u)).min_by_key(String::len);
        f.pad(&shortest.unwrap_or_else(|| self.0.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let cases: &[(&str, u64)] = &[
            ("0", 0),
            ("4096", 4096),
            ("4GiB", 4 << 30),
            ("4gib", 4 << 30),
            ("8G", 8 << 30),
            ("1.1TB", 1_100_000_000_000),
            ("1.5 MiB", 3 << 19),
            ("300MB", 300_000_000),
            ("1kB", 1000),
            ("1k", 1024),
            ("10B", 10),
            ("1EiB", 1 << 60),
            ("2E", 2 << 60),
            ("1.5EB", 1_500_000_000_000_000_000),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(Size(*bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_in_words() {
        for text in ["", "GiB", "-1", "1..5G", "1.G", ".5G", "4 parsecs", "1e9", "0x10", "１"] {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::Format(_))), "{text}");
        }
        for text in ["17EiB0", "999999999999999999999999999999999999999999"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        for text in [
            "20000PiB",
            "16EiB",
            "16E",
            "1ZiB",
            "1.5YB",
            "0.123456789012345YiB",
            "340282366920938463463374607431768211455YiB",
        ] {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::TooLarge(_))), "{text}");
        }
        assert!("15.99EiB".parse::<Size>().is_ok());
    }

    #[test]
    fn printing_round_trips() {
        for (bytes, text) in [(4u64 << 30, "4GiB"), (1_100_000_000_000, "1.1TB"), (0, "0"), (3 << 19, "1.5MiB")] {
            assert_eq!(Size(bytes).to_string(), text);
        }
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        for shift in 0..4000u32 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let bytes = x >> (shift % 64);
            for b in [bytes, bytes & !0xfff, bytes & !0x1_ffff, bytes / 1000 * 1000] {
                assert_eq!(Size(b).to_string().parse(), Ok(Size(b)));
            }
        }
    }
}
