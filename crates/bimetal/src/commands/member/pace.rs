//! How fast a member gets empty.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::size::approx;
use crate::words::duration;

/// What counts: the time before is over.
const WINDOW: Duration = Duration::from_secs(30);

/// What was left, over the last while.
#[derive(Default)]
pub(super) struct Pace {
    seen: VecDeque<(Instant, u64)>,
}

impl Pace {
    /// So much is left now.
    pub(super) fn note(&mut self, now: Instant, left: u64) {
        self.seen.push_back((now, left));
        while self.seen.len() > 2 && self.seen[0].0 + WINDOW < now {
            self.seen.pop_front();
        }
    }

    /// "1.2 GiB left, 110 MiB/s, 12 s to go"
    pub(super) fn words(&self) -> String {
        let (Some((first, before)), Some((last, left))) = (self.seen.front(), self.seen.back()) else {
            return String::new();
        };
        let (gone, time) = (before.saturating_sub(*left), last.duration_since(*first).as_secs_f64());
        if gone == 0 || time <= 0.0 {
            return format!("{} left", approx(*left));
        }
        let rate = gone as f64 / time;
        let to_go = duration((*left as f64 / rate).ceil() as u64);
        format!("{} left, {}/s, {to_go} to go", approx(*left), approx(rate as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_while() {
        const MIB: u64 = 1 << 20;
        let (mut pace, begun) = (Pace::default(), Instant::now());
        assert_eq!(pace.words(), "");
        pace.note(begun, 1000 * MIB);
        assert_eq!(pace.words(), "1000 MiB left");
        pace.note(begun + Duration::from_secs(10), 900 * MIB);
        assert_eq!(pace.words(), "900 MiB left, 10 MiB/s, 90 s to go");
        for s in 11..=100 {
            pace.note(begun + Duration::from_secs(s), 900 * MIB);
        }
        assert_eq!(pace.words(), "900 MiB left", "it stands still");
    }
}
