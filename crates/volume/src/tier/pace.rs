//! How fast chunks move beside a load on the fast tier that never pauses, while nobody asks the slow tier for anything.
//!
//! What waits there is not wanted now, so that its moves can take their time: the load is not to feel them. What it feels
//! is its tail. A request counts as *held up* if it ended beside moves and took longer than [`TAIL`] says is usual without
//! them. Few may be; while fewer are, moves become faster, and else slower. A disk that serves several requests at once
//! without delay allows many more moves than one that does not.
//!
//! This is about small requests. A stream is not slower beside a move than beside its own requests, which are as large.

use std::time::Duration;

use super::histogram::Histogram;
use crate::env::Instant;

/// Requests are small up to so many bytes.
const SMALL: u64 = 32 << 10;
/// The tail is what one request in so many exceeds.
const TAIL: u32 = 100;
/// One request in so many may be held up, besides those in the tail anyway.
const HELD_UP: u32 = 2000;
/// It is judged how the load fares after this time, if so many requests were seen.
const OFTEN: Duration = Duration::from_secs(1);
const ENOUGH: u32 = 1000;
/// Requests without moves that say what is usual, and that many at most: then the old ones count half.
const USUAL: u32 = 1000;
const USUAL_MOST: u32 = 8000;
/// Bins of an octave, as a power of two: what is between the tail and the next edge does not count as held up.
const PARTS: u32 = 5;
/// Chunks a second: at first, at least, at most.
const FIRST: f64 = 32.0;
const LEAST: f64 = 16.0;
const MOST: f64 = 1024.0;
/// Chunks that go together, since they share syncs and a commit.
const TOGETHER: usize = 8;

/// Chunks that may be moved, by time and by how the load fares.
pub(super) struct Pace {
    /// Chunks a second.
    rate: f64,
    saved: f64,
    counted: Instant,
    /// Latencies while nothing is moved.
    usual: Histogram,
    /// What one request in [`TAIL`] of these exceeds.
    tail: Option<Duration>,
    moving: bool,
    /// When a small request ended.
    last: Option<Instant>,
    /// Since the last judgement: requests, those beside moves, those held up, and whether chunks were moved by this pace.
    seen: u32,
    beside: u32,
    held_up: u32,
    used: bool,
    judged: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            rate: FIRST,
            saved: TOGETHER as f64,
            counted: now,
            usual: Histogram::new(PARTS),
            tail: None,
            moving: false,
            last: None,
            seen: 0,
            beside: 0,
            held_up: 0,
            used: false,
            judged: now,
        }
    }

    /// Says whether chunks are on the move from now on.
    pub(super) fn beside(&mut self, moving: bool) {
        self.moving = moving;
    }

    /// How long no small request has ended.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::MAX, |last| now.since(last))
    }

    /// A request for so many bytes of the fast tier ended that took so long.
    pub(super) fn served(&mut self, bytes: u64, latency: Duration, now: Instant) {
        if bytes > SMALL {
            return;
        }
        self.last = Some(now);
        self.seen += 1;
        if !self.moving {
            self.usual.add(latency);
            if self.usual.count() >= USUAL_MOST {
                self.usual.halve();
            }
        } else if let Some(tail) = self.tail {
            self.beside += 1;
            self.held_up += u32::from(latency > tail);
        }
        if self.seen >= ENOUGH && now.since(self.judged) >= OFTEN {
            self.judge(now);
        }
    }

    fn judge(&mut self, now: Instant) {
        if self.held_up > self.beside / TAIL + self.seen / HELD_UP {
            self.rate = (self.rate / 2.0).max(LEAST);
        } else if std::mem::take(&mut self.used) && self.tail.is_some() {
            // Who does not know yet what is usual cannot tell whether anybody feels it.
            self.rate = (self.rate * 1.25).min(MOST);
        }
        if self.usual.count() >= USUAL {
            self.tail = Some(self.usual.slowest_but_one_in(TAIL));
        }
        (self.seen, self.beside, self.held_up, self.judged) = (0, 0, 0, now);
    }

    /// Takes up to `max` chunks that may be moved now, or says how long to wait.
    pub(super) fn take(&mut self, max: usize, now: Instant) -> Result<usize, Duration> {
        let most = (self.rate / 8.0).max(TOGETHER as f64);
        self.saved = (self.saved + self.rate * now.since(self.counted).as_secs_f64()).min(most);
        self.counted = now;
        let enough = max.min(TOGETHER) as f64;
        if self.saved < enough {
            return Err(Duration::from_secs_f64((enough - self.saved) / self.rate));
        }
        let chunks = max.min(self.saved as usize);
        self.saved -= chunks as f64;
        self.used = true;
        Ok(chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// A load of 5,000 requests a second that take a tenth of a millisecond, for `time`; each chunk moved makes `harm` of
    /// the requests after it take ten times as long. Gives the chunks moved, and how many requests were held up.
    fn run(p: &mut Pace, now: &mut Instant, time: Duration, harm: u32) -> (usize, u32) {
        let (end, mut moved, mut hit, mut hits, mut n) = (now.plus(time), 0, 0, 0, 0u32);
        while *now < end {
            *now = now.plus(MS / 5);
            n += 1;
            if n % 50 == 0 {
                let chunks = p.take(8, *now).unwrap_or(0);
                moved += chunks;
                hit = chunks as u32 * harm;
                p.beside(chunks > 0);
            }
            hits += hit.min(1);
            let latency = if hit > 0 { MS } else { MS / 10 };
            hit = hit.saturating_sub(1);
            p.served(4096, latency, *now);
        }
        (moved, hits)
    }

    #[test]
    fn moves_that_are_not_felt_become_fast_and_others_slow() {
        let (mut p, mut now) = (Pace::new(Instant(1)), Instant(1));
        run(&mut p, &mut now, 20 * SECOND, 0);
        let (moved, _) = run(&mut p, &mut now, 10 * SECOND, 0);
        assert!(moved >= 7000, "{moved}");
        run(&mut p, &mut now, 10 * SECOND, 2);
        let (moved, hits) = run(&mut p, &mut now, 20 * SECOND, 2);
        // 100,000 requests: what may be held up, and the tail that these are not in; a good part of it is made use of.
        let (few, many) = (100_000 / HELD_UP / 2, 100_000 / TAIL + 100_000 / HELD_UP);
        assert!((few..many).contains(&hits), "{hits}");
        assert!(moved >= 300, "{moved}: it goes on all the same");
    }

    #[test]
    fn nobody_becomes_faster_who_does_not_know_what_is_usual() {
        let (mut p, mut now) = (Pace::new(Instant(1)), Instant(1));
        let mut moved = 0;
        for n in 0..100_000u64 {
            now = now.plus(MS / 5);
            p.beside(true);
            moved += if n % 50 == 0 { p.take(8, now).unwrap_or(0) } else { 0 };
            p.served(4096, MS / 10, now);
        }
        assert!((500..=660).contains(&moved), "{moved} in 20 s");
    }

    #[test]
    fn what_is_saved_up_is_no_more_than_goes_together() {
        let mut p = Pace::new(Instant(1));
        assert_eq!(p.take(100, Instant(1)), Ok(8));
        let wait = p.take(100, Instant(1)).unwrap_err();
        assert_eq!(wait, SECOND / 4);
        assert_eq!(p.take(2, Instant(1)).unwrap_err(), SECOND / 16, "fewer need not wait for more");
        assert_eq!(p.take(100, Instant(1).plus(1000 * SECOND)), Ok(8));
    }
}
