//! Blocking calls on a thread of their own.

use std::future::{poll_fn, Future};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

struct Shared<T> {
    result: Option<std::thread::Result<T>>,
    waker: Option<Waker>,
}

pub(super) fn run<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> + 'static {
    let shared = Arc::new(Mutex::new(Shared { result: None, waker: None }));
    let theirs = shared.clone();
    let started = std::thread::Builder::new().name("blocking".into()).spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        let waker = {
            let mut shared = theirs.lock().unwrap_or_else(PoisonError::into_inner);
            shared.result = Some(result);
            shared.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    });
    async move {
        started?;
        poll_fn(|cx| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match shared.result.take() {
                Some(Ok(value)) => Poll::Ready(Ok(value)),
                Some(Err(_)) => Poll::Ready(Err(io::Error::other("the blocking call panicked"))),
                None => {
                    shared.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
