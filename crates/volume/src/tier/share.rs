//! What may be moved beside a load that never pauses.
//!
//! A disk that is always busy gains most from promotions, and has no quiet moment for them. So one chunk may change
//! places for every [`TIME_PER_CHUNK`] that the disk serves requests. That delays some of them; what is saved up goes
//! together, so that they are few.
//!
//! A request that seeks is what a promotion saves the disk, and bears a wait of its own length; a stream loses by each
//! interruption what it takes to come back. So time that is spent on seeks counts [`SEEKS`] times, and a stream on its own gets a few
//! chunks in half a minute: it is better left alone until it pauses, because some of what it reads has come up. In a second's pause
//! hundreds of chunks move and hold up as many requests as these few, and who is held up too often is spared in the pauses too
//! ([`super::tail_budget`]).

use std::time::Duration;

use crate::env::Instant;

/// Time in which the slow tier is busy for each chunk that is moved.
const TIME_PER_CHUNK: Duration = Duration::from_millis(3072);
/// How much more the time of a request counts that seeks.
const SEEKS: u32 = 128;
/// Chunks whose time is saved up before any goes.
const FEWEST: u32 = 8;
/// Chunks whose time is saved up at most: they go together.
pub(super) const TOGETHER: usize = 32;

/// Counts the time that the slow tier is busy.
#[derive(Default)]
pub(super) struct Share {
    saved: Duration,
    /// Up to when it was counted: requests overlap.
    counted: Option<Instant>,
}

impl Share {
    /// A request of the slow tier ended that took so long, and had to seek or not.
    pub(super) fn served(&mut self, seeks: bool, latency: Duration, now: Instant) {
        let new = self.counted.map_or(latency, |t| latency.min(now.since(t))) * if seeks { SEEKS } else { 1 };
        self.counted = Some(now);
        self.saved = (self.saved + new).min(TIME_PER_CHUNK * TOGETHER as u32);
    }

    /// Takes up to `max` chunks that may be moved now, or none before enough is saved up: each time costs syncs and
    /// journal writes, however few they are.
    pub(super) fn take(&mut self, max: usize) -> usize {
        let chunks = max.min(TOGETHER) as u32;
        if max == 0 || self.saved < TIME_PER_CHUNK * chunks.max(FEWEST) {
            return 0;
        }
        self.saved -= TIME_PER_CHUNK * chunks;
        chunks as usize
    }

    /// Moves go freely: nothing is saved up.
    pub(super) fn clear(&mut self) {
        self.saved = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_for_so_much_time_however_many_requests_there_are() {
        for overlap in [1u32, 16] {
            let (mut share, mut moved, mut now) = (Share::default(), 0, Instant(1));
            share.served(false, Duration::ZERO, now);
            for _ in 0..3_072_000 {
                now = now.plus(Duration::from_millis(1));
                share.served(false, Duration::from_millis(1) * overlap, now);
                moved += share.take(50);
            }
            // What is saved up in the end is not counted.
            assert!((1000 - TOGETHER..=1000).contains(&moved), "{moved}");
        }
    }

    #[test]
    fn time_of_seeks_counts_more() {
        let (mut share, mut now, mut moved) = (Share::default(), Instant(1), [0, 0]);
        share.served(false, Duration::ZERO, now);
        for seeks in [true, false] {
            for _ in 0..76_800 {
                now = now.plus(Duration::from_millis(40));
                share.served(seeks, Duration::from_millis(40), now);
                moved[usize::from(seeks)] += share.take(8);
            }
        }
        assert_eq!(moved, [1000, 128_000]);
    }

    #[test]
    fn a_few_are_saved_up_for_a_busy_disk_and_none_for_one_at_rest() {
        let mut share = Share::default();
        share.served(false, Duration::from_secs(100), Instant(100_000_000_000));
        assert_eq!((share.take(9), share.take(99), share.take(23), share.take(1)), (9, 0, 23, 0));
        share.served(false, Duration::from_secs(100), Instant(200_000_000_000));
        assert_eq!((share.take(0), share.take(99), share.take(99)), (0, TOGETHER, 0));
        share.served(false, Duration::from_millis(1), Instant(300_000_000_000));
        assert_eq!(share.take(1), 0);
    }
}
