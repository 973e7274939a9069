//! What an export needs besides a transport: time and tasks. Every engine environment has it.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bimetal_volume::env::{Env, Instant};

/// Clock and tasks of the group's thread.
pub trait Runtime: Clone + 'static {
    /// The time now.
    fn now(&self) -> Instant;
    /// Completes `d` from now.
    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static;
    /// Runs `task` beside the caller, on the same thread.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

impl<E: Env> Runtime for E {
    fn now(&self) -> Instant {
        Env::now(self)
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        Env::sleep(self, d)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        Env::spawn(self, task);
    }
}

/// Runs `future` for at most `limit`; `None` when the time is over.
pub(crate) async fn timeout<T>(runtime: &impl Runtime, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut timer = pin!(runtime.sleep(limit));
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

/// Lets other tasks run before the caller goes on.
pub(crate) async fn yield_now() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
