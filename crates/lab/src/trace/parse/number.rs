//! Numbers and fields in text, exact and without floating point.

use crate::trace::error::excerpt;
use crate::trace::Wrong;

/// The next field of a line.
pub(super) fn field<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, name: &'static str) -> Result<&'a [u8], Wrong> {
    match fields.next().map(<[u8]>::trim_ascii) {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(Wrong::Missing(name)),
    }
}

/// The fields of a line of comma-separated values; no format here quotes them.
pub(super) fn commas(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| b == b',')
}

/// The words of a line.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty())
}

/// The next field as a whole number.
pub(super) fn integer<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, name: &'static str) -> Result<u64, Wrong> {
    let text = field(fields, name)?;
    digits(text).ok_or_else(|| Wrong::NotANumber { field: name, text: excerpt(text) })
}

/// A whole number, of digits only.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// The next field as seconds with or without a fraction, in nanoseconds; what is finer is cut off.
pub(super) fn seconds<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, name: &'static str) -> Result<u128, Wrong> {
    let text = field(fields, name)?;
    nanoseconds(text).ok_or_else(|| Wrong::NotANumber { field: name, text: excerpt(text) })
}

fn nanoseconds(text: &[u8]) -> Option<u128> {
    let (whole, fraction) = match text.iter().position(|&b| b == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { digits(whole)? };
    let fine = (0..9).fold(0u64, |n, i| n * 10 + fraction.get(i).map_or(0, |b| u64::from(b - b'0')));
    Some(u128::from(whole) * 1_000_000_000 + u128::from(fine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers() {
        assert_eq!(digits(b"0"), Some(0));
        assert_eq!(digits(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"18446744073709551616", b"-1", b"+1", b"1e3", b"1 2", b"0x10"] {
            assert_eq!(digits(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn seconds_are_exact() {
        assert_eq!(nanoseconds(b"0.026214"), Some(26_214_000));
        assert_eq!(nanoseconds(b"12"), Some(12_000_000_000));
        assert_eq!(nanoseconds(b"1."), Some(1_000_000_000));
        assert_eq!(nanoseconds(b".5"), Some(500_000_000));
        assert_eq!(nanoseconds(b"3.1234567899"), Some(3_123_456_789));
        assert_eq!(nanoseconds(b"18446744073709551615.9"), Some(u128::from(u64::MAX) * 1_000_000_000 + 900_000_000));
        for bad in [&b"."[..], b"", b"1.2.3", b"-1.0", b"1.x", b"1e-3", b"nan"] {
            assert_eq!(nanoseconds(bad), None, "{}", bad.escape_ascii());
        }
    }
}
