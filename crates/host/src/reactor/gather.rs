//! When queued requests go to the kernel in the middle of a turn, and not at its end.
//!
//! A system call for each costs processor time; waiting for the end of the turn lets devices stand still.
//!
//! Terms: a request that *works* is ended by the kernel without anybody else: what devices do, and what is sent. All others are
//! *patient*: they wait for another program or for a time. A *command* is one that waits for the next request of a ublk device, and
//! carries the answer to the last one.
//!
//! 1. With nothing at work, a request that works goes at once if other tasks run before the turn ends. A lone one costs one system
//!    call, which waits for it too.
//! 2. Else requests go when so many wait that work: from three on the kernel rings a device's bell once for all of them. With much
//!    under way, fewer system calls count, and more wait (`bench/servers.py`).
//! 3. Where requests come by commands, many become known in one turn and little is done for each: there every batch of a
//!    turn is twice as large as the one before (`bench/exports.py`).
//! 4. Patient ones gather longer, or go along.

use std::cell::Cell;

/// So many requests that work go together...
const FEWEST: usize = 4;
/// ... or this part of those at work.
const PART: usize = 16;
/// The first batch of a turn where requests come by commands.
const FIRST: usize = 8;
/// Batches do not grow beyond it by growing within a turn, and so many patient ones go together.
const MOST: usize = 16;

/// What an entry of the queue is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request that works.
    Works,
    /// One that waits for another program, or for a time.
    Patient,
}

/// What is queued, and what has been handed over in this turn.
#[derive(Default)]
pub(super) struct Gather {
    working: Cell<usize>,
    patient: Cell<usize>,
    /// The last batch of this turn.
    batch: Cell<usize>,
}

impl Gather {
    /// A turn begins.
    pub(super) fn begin(&self) {
        self.batch.set(0);
    }

    /// The kernel has been given what was queued.
    pub(super) fn handed_over(&self) {
        self.working.set(0);
        self.patient.set(0);
    }

    /// One more is queued. Whether what is queued is to go to the kernel now; `more` tells whether other tasks are ready.
    pub(super) fn queued(&self, kind: Kind, now: Moment, more: impl FnOnce() -> bool) -> bool {
        if kind == Kind::Patient {
            self.patient.set(self.patient.get() + 1);
            return self.patient.get() >= MOST;
        }
        let queued = self.working.get() + 1;
        self.working.set(queued);
        let at_work = now.working.saturating_sub(queued);
        let growing = if now.commands { (2 * self.batch.get()).clamp(FIRST, MOST) } else { 0 };
        if queued >= FEWEST.max(at_work / PART).max(growing) {
            self.batch.set(queued);
            return true;
        }
        at_work == 0 && more()
    }
}

/// What the loop is at.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Requests that work, the queued ones counted in.
    pub(super) working: usize,
    /// Whether commands are queued or with the kernel.
    pub(super) commands: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues `n` requests in one turn, `at_work` others being in the kernel. The batches that go before its end.
    fn batches(n: usize, at_work: usize, commands: bool) -> Vec<usize> {
        let gather = Gather::default();
        let (mut waiting, mut found) = (0, Vec::new());
        for i in 1..=n {
            waiting += 1;
            if gather.queued(Kind::Works, Moment { working: at_work + i, commands }, || i < n) {
                gather.handed_over();
                found.push(waiting);
                waiting = 0;
            }
        }
        found
    }

    #[test]
    fn a_lone_request_goes_with_the_wait_for_it() {
        assert!(batches(1, 0, false).is_empty());
        assert!(batches(1, 0, true).is_empty());
    }

    #[test]
    fn the_first_of_several_goes_at_once_if_devices_stand_still() {
        assert_eq!(batches(10, 0, false), [1, 4, 4]);
        assert_eq!(batches(10, 1, false), [4, 4]);
        assert_eq!(batches(16, 48, false), [4, 4, 4, 4]);
        assert_eq!(batches(32, 160, false), [10, 10, 11], "a sixteenth of those at work");
    }

    #[test]
    fn batches_grow_within_a_turn_where_requests_come_by_commands() {
        assert_eq!(batches(64, 1, true), [8, 16, 16, 16]);
        assert_eq!(batches(45, 320, true), [20, 21], "not beyond what much work asks for");
        let gather = Gather::default();
        gather.batch.set(16);
        gather.begin();
        gather.working.set(FIRST - 1);
        assert!(
            gather.queued(Kind::Works, Moment { working: 20, commands: true }, || true),
            "a new turn begins with few"
        );
    }

    #[test]
    fn patient_ones_do_not_count_as_work_and_go_in_larger_batches() {
        let gather = Gather::default();
        let now = Moment { working: 2, commands: true };
        for _ in 1..MOST {
            assert!(!gather.queued(Kind::Patient, now, || true));
        }
        assert!(!gather.queued(Kind::Works, now, || true), "another one is at work");
        assert!(gather.queued(Kind::Patient, now, || true));
        gather.handed_over();
        assert!(!gather.queued(Kind::Patient, now, || true));
        assert!(gather.queued(Kind::Works, Moment { working: 1, ..now }, || true), "devices stand still");
    }
}
