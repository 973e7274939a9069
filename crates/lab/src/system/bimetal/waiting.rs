//! Futures that wait for an event: a timer, or the end of a device request.
//!
//! An event is known by a number. Numbers are used again, so that a steady load takes no memory.
//!
//! 1. A number is given back once: when its event was seen by its future, or has happened after the future was dropped.

use std::task::{Context, Poll, Waker};

#[derive(Default)]
enum State {
    #[default]
    Unused,
    /// The future may not have been polled yet.
    Waits(Option<Waker>),
    Happened,
    /// The future was dropped; the event is still to come.
    Abandoned,
}

/// All events that futures wait for.
#[derive(Default)]
pub(super) struct Waiting {
    states: Vec<State>,
    unused: Vec<u32>,
}

impl Waiting {
    /// A number for a new event.
    pub(super) fn open(&mut self) -> u32 {
        let state = State::Waits(None);
        match self.unused.pop() {
            Some(n) => {
                self.states[n as usize] = state;
                n
            }
            None => {
                self.states.push(state);
                (self.states.len() - 1) as u32
            }
        }
    }

    fn close(&mut self, n: u32) {
        self.states[n as usize] = State::Unused;
        self.unused.push(n);
    }

    /// The event has happened; who must be woken.
    pub(super) fn happen(&mut self, n: u32) -> Option<Waker> {
        match std::mem::replace(&mut self.states[n as usize], State::Happened) {
            State::Waits(waker) => waker,
            State::Abandoned => {
                self.close(n);
                None
            }
            State::Unused | State::Happened => unreachable!("event {n} happens twice"),
        }
    }

    /// Whether nobody waits any more for an event that is still to come.
    pub(super) fn is_abandoned(&self, n: u32) -> bool {
        matches!(self.states[n as usize], State::Abandoned)
    }

    /// Whether the event has happened; if not, the task is woken when it does.
    pub(super) fn poll(&mut self, n: u32, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.states[n as usize] {
            State::Waits(Some(waker)) => waker.clone_from(cx.waker()),
            State::Waits(waker) => *waker = Some(cx.waker().clone()),
            _ => {
                self.close(n);
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// The future is dropped without having seen its event.
    pub(super) fn abandon(&mut self, n: u32) {
        match self.states[n as usize] {
            State::Waits(_) => self.states[n as usize] = State::Abandoned,
            _ => self.close(n),
        }
    }
}
