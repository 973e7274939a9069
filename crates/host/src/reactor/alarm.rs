//! Alarms: requests of the ring that complete when the earliest timer is due.
//!
//! An alarm is set once for a time, not once for each wait: a wait with a limit arms and disarms a timer of the kernel
//! every time, which in a virtual machine is dear.
//!
//! Invariant: of the alarms that have not rung, the earliest rings no later than the earliest timer when the loop
//! sleeps. One that rings early (its timer is gone) costs a turn of the loop.

use std::cell::{Cell, RefCell};

use bimetal_volume::env::Instant;
use io_uring::types::Timespec;
use io_uring::{opcode, squeue};

use super::ALARM;

#[derive(Default)]
pub(super) struct Alarm {
    /// Those that have not rung, the earliest last: each was set because it was earlier than all before.
    set: RefCell<Vec<Instant>>,
    /// Where the kernel reads the time of the newest, when it takes the request.
    time: Box<Cell<Timespec>>,
}

impl Alarm {
    /// The request that makes an alarm at `at`, which is after `now`; `None` if one rings by then anyway. The request
    /// is to be handed to the kernel before the next is made.
    pub(super) fn set(&self, at: Instant, now: Instant) -> Option<squeue::Entry> {
        let mut set = self.set.borrow_mut();
        if set.last().is_some_and(|earliest| *earliest <= at) {
            return None;
        }
        set.push(at);
        // A span, not a moment: the kernel's clock is another one than ours in a time namespace.
        let span = at.since(now);
        self.time.set(Timespec::new().sec(span.as_secs()).nsec(span.subsec_nanos()));
        let entry = opcode::Timeout::new(self.time.as_ptr()).build();
        Some(entry.user_data(ALARM))
    }

    /// The earliest has rung.
    pub(super) fn rang(&self) {
        self.set.borrow_mut().pop();
    }
}
