//! Timers of the loop, ordered by deadline.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bimetal_volume::env::Instant;

use super::Core;

/// Deadline, and a number that tells timers of the same deadline apart.
type Key = (Instant, u64);

/// All timers that someone waits for.
#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<Key, Waker>,
    next: u64,
}

impl Timers {
    /// The earliest deadline.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    /// Wakes everyone whose time has come.
    pub(super) fn fire(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > now {
                return;
            }
            entry.remove().wake();
        }
    }
}

/// Waits until a moment.
pub(super) struct Sleep {
    core: Rc<Core>,
    at: Instant,
    key: Option<Key>,
}

impl Sleep {
    pub(super) fn until(core: Rc<Core>, at: Instant) -> Sleep {
        Sleep { core, at, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.now() >= self.at {
            return Poll::Ready(());
        }
        let core = self.core.clone();
        let mut timers = core.timers.borrow_mut();
        let key = self.key.unwrap_or_else(|| {
            timers.next += 1;
            (self.at, timers.next)
        });
        self.key = Some(key);
        timers.waiting.insert(key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.core.timers.borrow_mut().waiting.remove(&key);
            drop(waker);
        }
    }
}
