//! What the scheduler knows of the foreground load on one tier: whether it is quiet, how busy it is, how slow it got.

use std::time::Duration;

use super::histogram::Histogram;
use crate::env::Instant;

/// The percentile that says how a load fares: what one request in so many exceeds.
const ONE_IN: u32 = 10;
/// Requests needed before a percentile says anything.
const ENOUGH: u32 = 8;
/// Bins of an octave, as a power of two.
const PARTS: u32 = 2;
/// Busy time is summed over two halves of a second.
const HALF: Duration = Duration::from_millis(500);

/// How a load fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is none, or it is as fast as without moves.
    Well,
    /// Moves make it slower.
    Suffers,
    /// Too few requests were seen yet.
    Unknown,
}

/// Foreground requests of one tier.
pub(super) struct Load {
    outstanding: u32,
    /// Those of them that nobody counts with: see [`Load::hang`].
    hanging: u32,
    /// When a request last began or ended; `None` before the first.
    last: Option<Instant>,
    busy_since: Option<Instant>,
    half_began: Instant,
    busy: Duration,
    busy_before: Duration,
    seen: Histogram,
    /// Something was on the move while these were collected.
    moving: bool,
    /// Usual percentile while nothing is moved, in seconds.
    base: Option<f32>,
}

impl Load {
    pub(super) fn new(now: Instant) -> Load {
        Load {
            outstanding: 0,
            hanging: 0,
            last: None,
            busy_since: None,
            half_began: now,
            busy: Duration::ZERO,
            busy_before: Duration::ZERO,
            seen: Histogram::new(PARTS),
            moving: false,
            base: None,
        }
    }

    pub(super) fn started(&mut self, now: Instant) {
        if !self.is_busy() {
            self.busy_since = Some(now);
        }
        self.outstanding += 1;
        self.last = Some(now);
    }

    pub(super) fn done(&mut self, latency: Duration, now: Instant) {
        self.outstanding = self.outstanding.saturating_sub(1);
        self.hanging = self.hanging.min(self.outstanding);
        self.rests(now);
        self.last = Some(now);
        self.seen.add(latency);
    }

    /// So many of the requests that are outstanding hang on a disk that stands still: for others it is as if they were not there.
    pub(super) fn hang(&mut self, requests: u32, now: Instant) {
        let requests = requests.min(self.outstanding);
        if requests == self.hanging {
            return;
        }
        self.hanging = requests;
        self.rests(now);
        if self.is_busy() && self.busy_since.is_none() {
            self.busy_since = Some(now);
        }
    }

    pub(super) fn hangs(&self) -> bool {
        self.hanging > 0
    }

    fn is_busy(&self) -> bool {
        self.outstanding > self.hanging
    }

    /// Counts up to now if the load is not busy any more.
    fn rests(&mut self, now: Instant) {
        if !self.is_busy() {
            self.account(now);
            self.busy_since = None;
        }
    }

    /// How long nothing has begun, ended or been outstanding.
    pub(super) fn quiet(&self, now: Instant) -> Duration {
        match self.last {
            _ if self.is_busy() => Duration::ZERO,
            Some(last) => now.since(last),
            None => Duration::MAX,
        }
    }

    /// Share of the last second (half to one second) in which a request was outstanding, in percent.
    pub(super) fn busy_percent(&mut self, now: Instant) -> u32 {
        self.account(now);
        let span = HALF + now.since(self.half_began);
        ((self.busy_before + self.busy).as_nanos() * 100 / span.as_nanos().max(1)).min(100) as u32
    }

    fn account(&mut self, now: Instant) {
        if let Some(since) = self.busy_since {
            self.busy += now.since(since);
            self.busy_since = Some(now);
        }
        let age = now.since(self.half_began);
        if age >= HALF {
            // A gap of a second or more leaves nothing of the older half.
            self.busy_before = if age >= 2 * HALF && !self.is_busy() { Duration::ZERO } else { self.busy.min(HALF) };
            self.busy = Duration::ZERO;
            self.half_began = now;
        }
    }

    /// Says whether chunks are on the move beside the requests that are being observed.
    pub(super) fn beside(&mut self, moving: bool) {
        self.moving |= moving;
    }

    /// Ends a period of observation, if enough was seen. Without moves, what was seen becomes the usual.
    pub(super) fn suffers(&mut self, floor: Duration) -> Verdict {
        let count = self.seen.count();
        if count < ENOUGH {
            return if count == 0 { Verdict::Well } else { Verdict::Unknown };
        }
        let slow = self.seen.slowest_but_one_in(ONE_IN).as_secs_f32();
        self.seen.clear();
        if std::mem::take(&mut self.moving) {
            let limit = self.base.map_or(0.0, |b| 1.5 * b).max(floor.as_secs_f32());
            return if slow > limit { Verdict::Suffers } else { Verdict::Well };
        }
        self.base = Some(self.base.map_or(slow, |b| b + (slow - b) / 8.0));
        Verdict::Well
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Instant {
        Instant(n * 1_000_000)
    }

    fn feed(l: &mut Load, n: u32, latency: Duration) {
        for _ in 0..n {
            l.started(ms(0));
            l.done(latency, ms(0));
        }
    }

    #[test]
    fn a_load_suffers_when_moves_raise_its_latency() {
        let mut l = Load::new(ms(0));
        let floor = Duration::from_millis(1);
        feed(&mut l, 100, Duration::from_millis(20));
        assert_eq!(l.suffers(floor), Verdict::Well);
        l.beside(true);
        feed(&mut l, 100, Duration::from_millis(22));
        assert_eq!(l.suffers(floor), Verdict::Well);
        l.beside(true);
        feed(&mut l, 100, Duration::from_millis(60));
        assert_eq!(l.suffers(floor), Verdict::Suffers);
        l.beside(true);
        feed(&mut l, 2, Duration::from_millis(60));
        assert_eq!(l.suffers(floor), Verdict::Unknown);
    }

    #[test]
    fn what_hangs_is_no_load_for_the_others() {
        let mut l = Load::new(ms(0));
        l.started(ms(0));
        l.started(ms(0));
        assert_eq!((l.quiet(ms(3000)), l.busy_percent(ms(3000))), (Duration::ZERO, 100));
        l.hang(2, ms(3000));
        assert_eq!((l.quiet(ms(6000)), l.busy_percent(ms(6000))), (Duration::from_secs(6), 0));
        l.started(ms(6000));
        assert_eq!(l.quiet(ms(6001)), Duration::ZERO);
        l.done(Duration::from_millis(5), ms(6005));
        assert_eq!(l.quiet(ms(6010)), Duration::from_millis(5));
        // It answers again, one after the other.
        l.hang(0, ms(6020));
        assert_eq!(l.quiet(ms(7020)), Duration::ZERO);
        assert!(l.busy_percent(ms(7020)) >= 90);
        l.done(Duration::from_secs(7), ms(7020));
        assert_eq!(l.quiet(ms(7030)), Duration::ZERO);
        l.done(Duration::from_secs(7), ms(7030));
        assert_eq!(l.quiet(ms(7040)), Duration::from_millis(10));
    }

    #[test]
    fn busy_share_follows_the_load() {
        let mut l = Load::new(ms(0));
        for i in 0..200 {
            l.started(ms(i * 10));
            l.done(Duration::from_millis(2), ms(i * 10 + 2));
        }
        let busy = l.busy_percent(ms(2000));
        assert!((15..=25).contains(&busy), "{busy}");
        assert_eq!(l.quiet(ms(2000)), Duration::from_millis(8));
        assert_eq!(l.busy_percent(ms(4000)), 0);
        l.started(ms(4000));
        assert_eq!(l.busy_percent(ms(6000)), 100);
        assert_eq!(l.quiet(ms(6000)), Duration::ZERO);
    }
}
