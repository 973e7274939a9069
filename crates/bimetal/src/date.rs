//! The day and the time of day, for people. Nothing that is measured or decided depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Today in UTC, as 2026-11-21.
pub(crate) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    day(seconds / 86_400)
}

/// A moment in seconds since 1970, as 2026-11-21 17:05 UTC.
pub(crate) fn moment(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60 % 60, seconds / 3600 % 24);
    // A file may say anything.
    match seconds < 1 << 40 {
        true => format!("{} {hours:02}:{minutes:02} UTC", day(seconds / 86_400)),
        false => "at a time that is none".into(),
    }
}

/// A day by its number since 1970-01-01, in the Gregorian calendar (Hinnant, "chrono-compatible low-level date
/// algorithms": years begin in March, eras have 400 years).
fn day(number: u64) -> String {
    let z = number + 719_468;
    let (era, in_era) = (z / 146_097, z % 146_097);
    let year_of_era = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_454, "2026-01-01"),
            (20_778, "2026-11-21"),
        ];
        for (number, text) in cases {
            assert_eq!(day(number), text);
        }
        assert_eq!(moment(20_778 * 86_400 + 17 * 3600 + 5 * 60 + 59), "2026-11-21 17:05 UTC");
        assert_eq!(moment(u64::MAX), "at a time that is none");
    }
}
