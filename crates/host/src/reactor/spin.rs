//! Looking for completions for a moment before sleeping.
//!
//! A thread that sleeps in the kernel is woken by an interrupt, and a processor that was idle leaves its idle state first: on a
//! virtual machine two such wake-ups cost as much as a read of an SSD. A thread that looks for so long does not pay it. Whether that is
//! worth the processor's time is learned from the waits before, as hypervisors do before they halt a virtual processor: after
//! a run of short waits the next one is taken for short as well. Of a disk's milliseconds or of an idle client's seconds not
//! one is spent looking.
//!
//! 1. A thread looks for [`LIMIT`] at most, once a wait.
//! 2. One thread of the process looks at a time, and none on a machine with one processor: who is waited for needs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// Nobody looks for longer. About the time of a 4 KiB read of an SSD on the virtual machine where it was chosen.
pub(super) const LIMIT: Duration = Duration::from_micros(50);
/// A wait that began in the kernel is longer by its wake-up.
const SHORT: Duration = Duration::from_micros(80);
/// How well it has gone: a short wait adds one, up to the most; a long one takes half away.
const MOST: u8 = 16;
/// From here on it looks.
const ENOUGH: u8 = 8;

/// Whether a thread of this process is looking.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// What the waits so far tell about the next one.
pub(super) struct Spin {
    score: u8,
    /// Whether somebody of those who take turns is looking.
    others: &'static AtomicBool,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin::beside(&LOOKING)
    }
}

impl Spin {
    /// One that takes turns with those that have the same flag.
    pub(super) fn beside(others: &'static AtomicBool) -> Spin {
        Spin { score: 0, others }
    }

    /// Whether to look before sleeping: the permission to.
    pub(super) fn begin(&self) -> Option<Looking> {
        self.begin_on(processors())
    }

    fn begin_on(&self, processors: usize) -> Option<Looking> {
        if self.score < ENOUGH || processors < 2 {
            return None;
        }
        let free = self.others.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed);
        free.is_ok().then_some(Looking(self.others))
    }

    /// Learns from a wait.
    pub(super) fn waited(&mut self, time: Duration) {
        self.score = if time <= SHORT { MOST.min(self.score + 1) } else { self.score / 2 };
    }
}

/// The one that looks.
pub(super) struct Looking(&'static AtomicBool);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_short_waits_is_gone_on_with_and_a_long_one_counts() {
        let mut spin = Spin::default();
        for _ in 0..ENOUGH - 1 {
            spin.waited(LIMIT);
        }
        assert!(spin.score < ENOUGH);
        (0..100).for_each(|_| spin.waited(LIMIT));
        assert!(spin.score == MOST);
        spin.waited(Duration::from_millis(9));
        assert!(spin.score >= ENOUGH, "one in many is borne");
        spin.waited(Duration::from_millis(9));
        assert!(spin.score < ENOUGH && spin.begin_on(2).is_none());
    }

    #[test]
    fn one_looks_at_a_time_and_none_where_there_is_one_processor() {
        static OTHERS: AtomicBool = AtomicBool::new(false);
        let mut spin = Spin::beside(&OTHERS);
        (0..100).for_each(|_| spin.waited(Duration::ZERO));
        let first = spin.begin_on(2);
        assert!(first.is_some() && spin.begin_on(2).is_none());
        drop(first);
        assert!(spin.begin_on(1).is_none());
        assert!(spin.begin_on(2).is_some());
    }
}
