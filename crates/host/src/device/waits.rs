//! Requests without an answer, and since when: people are told of a device that stands still. A request takes no memory of its own
//! once as many have been in flight together.

use std::cell::{Cell, RefCell};

use bimetal_volume::env::{Answering, Instant};

/// The requests of one device.
#[derive(Default)]
pub(super) struct Waits {
    since: RefCell<Vec<Option<Instant>>>,
    free: RefCell<Vec<usize>>,
    answered: Cell<Instant>,
}

/// A request in flight; its end is its answer.
pub(super) struct InFlight<'a, N: Fn() -> Instant> {
    waits: &'a Waits,
    index: usize,
    now: N,
}

impl Waits {
    /// A request is made; `now` tells the time.
    pub(super) fn begin<N: Fn() -> Instant>(&self, now: N) -> InFlight<'_, N> {
        let mut since = self.since.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            since.push(None);
            since.len() - 1
        });
        since[index] = Some(now());
        InFlight { waits: self, index, now }
    }

    pub(super) fn answering(&self) -> Answering {
        answering(self.since.borrow().iter().flatten().copied(), self.answered.get())
    }
}

impl<N: Fn() -> Instant> Drop for InFlight<'_, N> {
    fn drop(&mut self) {
        self.waits.since.borrow_mut()[self.index] = None;
        self.waits.free.borrow_mut().push(self.index);
        self.waits.answered.set((self.now)());
    }
}

/// What the times at which requests were made that wait, and that of the last answer, come to.
pub(super) fn answering(waiting: impl Iterator<Item = Instant>, answered: Instant) -> Answering {
    let (mut count, mut oldest) = (0, None);
    for since in waiting {
        count += 1;
        oldest = Some(oldest.map_or(since, |o: Instant| o.min(since)));
    }
    Answering { waiting: count, oldest, silent_since: oldest.map(|o| o.max(answered)), lost: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_counts_and_an_answer_ends_the_silence() {
        let (waits, clock) = (Waits::default(), Cell::new(Instant(5)));
        let now = || clock.get();
        assert_eq!(waits.answering(), Answering::default());
        let first = waits.begin(now);
        clock.set(Instant(7));
        let second = waits.begin(now);
        let told = |waiting, oldest, silent| Answering {
            waiting,
            oldest: Some(Instant(oldest)),
            silent_since: Some(Instant(silent)),
            lost: None,
        };
        assert_eq!(waits.answering(), told(2, 5, 5));
        clock.set(Instant(9));
        drop(second);
        assert_eq!(waits.answering(), told(1, 5, 9));
        drop(first);
        clock.set(Instant(20));
        let third = waits.begin(now);
        assert_eq!(waits.answering(), told(1, 20, 20));
        drop(third);
        assert_eq!(waits.answering(), Answering::default());
        assert_eq!(waits.since.borrow().len(), 2, "places are used again");
    }
}
