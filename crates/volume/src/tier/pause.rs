//! Pauses of work that found nothing to do or failed: longer each time.

use std::time::Duration;

use crate::env::Instant;

/// First and longest pause.
const FIRST: Duration = Duration::from_millis(50);
const MAX: Duration = Duration::from_secs(5);

/// Chunks that cannot be read in a row until that is held against the device, and with it against the work.
const UNREAD: u32 = 1024;

/// A kind of work that may have to pause.
#[derive(Clone, Copy)]
pub(super) struct Pause {
    until: Instant,
    length: Duration,
    /// Chunks that could not be read since the last success.
    unread: u32,
}

impl Pause {
    /// None yet, or none any more.
    pub(super) fn none(now: Instant) -> Pause {
        Pause { until: now, length: FIRST, unread: 0 }
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

    /// A chunk could not be read: the next one may be.
    pub(super) fn unread(&mut self, now: Instant) {
        self.unread = self.unread.saturating_add(1);
        if self.unread > UNREAD {
            self.failed(now);
        }
    }
}
