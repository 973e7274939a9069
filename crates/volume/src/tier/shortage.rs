//! What goes down whatever the load while less is free than should be (I6).
//!
//! Terms: the *drip* is a group of chunks that goes down now and then; how many and how often is the [`Band`]'s. The *watchdog* moves
//! a group by force when nothing came through for [`WATCHDOG`].
//!
//! 1. A group that is short has a drip, and nothing but a pause after failures holds it up; the watchdog goes through that. The first
//!    waits for its time, while a sixteenth of the reserve is left.
//! 2. A reserve that is short by a little ([`Band::Nearly`]) is in no hurry for [`LITTLE_FOR`], and never reason to force moves.
//! 3. The watchdog counts from when the group became short by more.

use std::time::Duration;

use super::levels::{Band, Goal, Levels};
use crate::env::Instant;

/// Chunks of a group, moved by force.
pub(super) const FORCED: usize = 8;
/// Without progress for so long, a group is moved by force.
pub(super) const WATCHDOG: Duration = Duration::from_secs(20);
/// A reserve that is short by a little is in no hurry for so long: a stream may have ended by then. Later it is as urgent as one that
/// is short by more, since promotions wait for it.
const LITTLE_FOR: Duration = Duration::from_secs(300);

/// How long the group has been short, and what was done about it.
pub(super) struct Shortage {
    /// Since when less is free than should be.
    since: Option<Instant>,
    last_drip: Instant,
    last_progress: Instant,
    forced: u64,
}

impl Shortage {
    pub(super) fn new(now: Instant) -> Shortage {
        Shortage { since: None, last_drip: now, last_progress: now, forced: 0 }
    }

    /// A demotion came through.
    pub(super) fn progress(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// How often the watchdog had to force a move.
    pub(super) fn forced(&self) -> u64 {
        self.forced
    }

    /// How short of free slots the group is now. One that cannot have all that should be free is not nearly there with what it can have.
    pub(super) fn band(&mut self, l: &Levels, goal: &Goal, now: Instant) -> Band {
        let mut band = Band::of(l.free, goal.keep_free);
        self.since = if band == Band::Ok { None } else { self.since.or(Some(now)) };
        let long = self.since.is_some_and(|t| now.since(t) >= LITTLE_FOR);
        if band == Band::Nearly && (long || goal.keep_free < l.keep_free) {
            band = Band::Below;
        }
        if band <= Band::Nearly || l.slow_free == 0 {
            self.last_progress = now;
        }
        band
    }

    /// Chunks that are to be moved by force, if that is due and so few are on the way that they may be.
    pub(super) fn force(&mut self, l: &Levels, may: bool, now: Instant) -> usize {
        if !may || now.since(self.last_progress) < WATCHDOG {
            return 0;
        }
        self.last_progress = now;
        self.forced += 1;
        FORCED.min(l.slow_free as usize)
    }

    /// The chunks of a drip that is due, those still on the way counted in, and when more will be; `None` where nothing is short.
    pub(super) fn drip(&mut self, band: Band, demoting: usize, now: Instant) -> Option<(usize, Duration)> {
        let (chunks, every) = band.drip()?;
        // The first is due as long after the shortage began: a burst of new data has perhaps ended by then.
        let begun = self.since.filter(|_| band < Band::Critical).unwrap_or(self.last_drip);
        let since = now.since(self.last_drip.max(begun));
        let n = chunks.saturating_sub(demoting);
        if since < every || n == 0 {
            return Some((0, every.saturating_sub(since)));
        }
        self.last_drip = now;
        Some((n, every))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When drips come in the first half minute of such a shortage, and how large they are.
    fn drips(band: Band) -> Vec<(u64, usize)> {
        let start = Instant(1_000_000_000_000);
        let mut shortage = Shortage::new(Instant(1));
        let keep_free = 4096;
        let free = match band {
            Band::Critical => 100,
            Band::Low => 1000,
            _ => 3000,
        };
        let l = Levels { free, keep_free, slow_free: 10_000, ..Levels::default() };
        let mut found = Vec::new();
        for second in 0..33 {
            let now = start.plus(Duration::from_secs(second));
            assert_eq!(shortage.band(&l, &Goal::of(&l), now), band);
            found.extend(shortage.drip(band, 0, now).filter(|(n, _)| *n > 0).map(|(n, _)| (second, n)));
        }
        found
    }

    #[test]
    fn a_burst_that_leaves_some_of_the_reserve_meets_no_drip() {
        assert_eq!(drips(Band::Below), [(16, 32), (32, 32)]);
        assert_eq!(drips(Band::Low), [(16, 64), (32, 64)]);
        assert_eq!(drips(Band::Critical)[..3], [(0, 32), (2, 32), (4, 32)]);
    }
}
