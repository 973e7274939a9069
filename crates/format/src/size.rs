//! Numbers of bytes for the eye.

use std::fmt;

const UNITS: [(&str, u64); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("PiB", 1 << 50)];

/// `bytes` with three significant digits: `3.98 GiB`.
pub fn approx(bytes: u64) -> String {
    let Some((name, unit)) = UNITS.iter().rev().find(|(_, u)| bytes >= *u) else {
        return format!("{bytes} B");
    };
    let value = bytes as f64 / *unit as f64;
    let decimals = if value >= 99.95 || value.fract() == 0.0 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {name}")
}

/// A number of bytes in an error: approximate first, and exactly where that is not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InWords(pub u64);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = approx(self.0);
        let exact = UNITS.iter().any(|(name, unit)| self.0 % unit == 0 && short == format!("{} {name}", self.0 / unit));
        match exact || self.0 < 1024 {
            true => f.write_str(&short),
            false => write!(f, "{short} ({} bytes)", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approximations_have_three_digits() {
        for (bytes, text) in
            [(999, "999 B"), (1 << 30, "1 GiB"), ((1 << 30) + (1 << 29) + 1, "1.50 GiB"), (123 << 20, "123 MiB")]
        {
            assert_eq!(approx(bytes), text);
        }
    }

    #[test]
    fn errors_say_the_exact_number_where_the_short_one_is_not() {
        for (bytes, text) in [(512, "512 B"), (4 << 30, "4 GiB"), ((4 << 30) + 512, "4.00 GiB (4294967808 bytes)")] {
            assert_eq!(InWords(bytes).to_string(), text);
        }
    }
}
