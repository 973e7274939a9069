//! What the client of a device has to be told: that something is lost which it was told was written.
//!
//! The client of a device that is taken over has noticed nothing of the daemon before. If that lost what it had
//! acknowledged, a FLUSH that succeeds now would be a lie (the data are gone, and no sync brings them back): so the first one
//! fails, and whoever has synced learns of it as from a disk that lost its cache.
//!
//! 1. The first FLUSH fails. Until one has, the first write that is to be durable at once (FUA) fails too; who makes such
//!    writes only is not refused for ever. A FUA write alone settles nothing: whoever made it may not be the one who lost something.
//! 2. It is settled when the kernel *has* the answer of a FLUSH. What was only handed over may go with this process, and
//!    then the kernel asks the next daemon.

use std::cell::Cell;
use std::time::Duration;

use bimetal_host::ublk::{IoDesc, Kind};

use crate::runtime::Runtime;
use crate::signal::Signal;

/// An answer that was handed over so long ago, and was not given back, has reached the kernel: the loop of the group's
/// thread hands over all there is before it waits.
const ARRIVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is to be told.
    Settled,
    Owed,
    /// A FLUSH was answered so, for the n-th time.
    Telling(u64),
    /// The kernel has the answer.
    Told,
}

/// Whether the client of a device is still to be told that something is lost.
pub(super) struct Debt {
    state: Cell<State>,
    /// A FUA write has failed for it.
    refused_write: Cell<bool>,
    changed: Signal,
}

impl Debt {
    pub(super) fn new(lost: bool) -> Debt {
        let state = if lost { State::Owed } else { State::Settled };
        Debt { state: Cell::new(state), refused_write: Cell::default(), changed: Signal::default() }
    }

    /// Whether this request has to fail, though it could be carried out.
    pub(super) fn refuses(&self, desc: &IoDesc) -> bool {
        if self.state.get() != State::Owed {
            return false;
        }
        desc.kind() == Kind::Flush || (desc.fua() && !self.refused_write.replace(true))
    }

    /// The answer of a FLUSH that was refused is handed to the kernel now, perhaps again.
    pub(super) fn tells(&self) {
        match self.state.get() {
            State::Owed => self.set(State::Telling(1)),
            State::Telling(n) => self.set(State::Telling(n + 1)),
            State::Settled | State::Told => {}
        }
    }

    /// The kernel has that answer.
    pub(super) fn arrived(&self) {
        if matches!(self.state.get(), State::Telling(_)) {
            self.set(State::Told);
        }
    }

    fn set(&self, state: State) {
        self.state.set(state);
        self.changed.notify();
    }

    /// Waits until the kernel has an answer that tells of the loss. For ever if there is nothing to tell, or nobody asks.
    pub(super) async fn told<R: Runtime>(&self, runtime: &R) {
        loop {
            self.changed.wait_until(|| matches!(self.state.get(), State::Telling(_) | State::Told)).await;
            let before = self.state.get();
            if before == State::Told {
                return;
            }
            runtime.sleep(ARRIVAL).await;
            if self.state.get() == before {
                return self.set(State::Told);
            }
        }
    }
}
