//! Waiting for a condition on the group's thread.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Tasks that wait for something to change.
#[derive(Default)]
pub(crate) struct Signal {
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Waits until `condition` holds; it is asked again after each [`Signal::notify`].
    pub(crate) async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            self.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// The same, for a condition that depends on what `other` tells of, too.
    pub(crate) async fn wait_until_with(&self, other: &Signal, mut condition: impl FnMut() -> bool) {
        poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            self.register(cx.waker());
            other.register(cx.waker());
            Poll::Pending
        })
        .await;
    }

    fn register(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|w| w.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    /// Something has changed.
    pub(crate) fn notify(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        let mut woken = std::mem::take(&mut *self.waiting.borrow_mut());
        woken.drain(..).for_each(Waker::wake);
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            *waiting = woken;
        }
    }
}
