//! Pauses of work that found nothing to do or failed: longer each time.

use std::time::Duration;

use crate::env::Instant;

/// First and longest pause.
const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(5);

/// A kind of work that may have to pause.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    until: Instant,
    length: Duration,
}

impl Pause {
    /// None yet, or none any more.
    pub(super) fn none(now: Instant) -> Pause {
        Pause { until: now, length: FIRST }
    }

    /// Whether it is over.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }

    /// How much of it is left.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.since(now)
    }

    /// Work came to nothing; several failures of one batch are one.
    pub(super) fn failed(&mut self, now: Instant) {
        if self.is_over(now) {
            self.until = now.plus(self.length);
            self.length = (self.length * 2).min(MAX);
        }
    }
}
