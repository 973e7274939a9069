use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{poll_fn, Future};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bimetal_task::Executor;
use bimetal_volume::env::Instant;

use crate::runtime::Runtime;

/// Tasks and a clock that jumps to the next timer when no task is ready. Cloning gives another handle.
#[derive(Clone, Default)]
pub struct TestRuntime(Rc<Inner>);

#[derive(Default)]
struct Inner {
    executor: Executor,
    now: Cell<Instant>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next_timer: Cell<u64>,
}

impl TestRuntime {
    /// A new world at time zero.
    pub fn new() -> TestRuntime {
        TestRuntime::default()
    }

    /// Runs `main` and all tasks until `main` ends; `None` if nothing can run any more and no timer is left.
    pub fn block_on<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Option<T> {
        let result = Rc::new(RefCell::new(None));
        let place = result.clone();
        self.0.executor.spawn(async move {
            let value = main.await;
            *place.borrow_mut() = Some(value);
        });
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return Some(value);
            }
            if !self.0.executor.run_ready(1) && !self.jump() {
                return None;
            }
        }
    }

    /// Lets time pass to the next timer; false if there is none.
    fn jump(&self) -> bool {
        let Some(((at, _), waker)) = self.0.timers.borrow_mut().pop_first() else { return false };
        self.0.now.set(at.max(self.0.now.get()));
        waker.wake();
        true
    }

    /// Tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.0.executor.live_tasks()
    }

    /// Drops all tasks. Without this a world whose tasks hold handles of it is never freed.
    pub fn drop_tasks(&self) {
        self.0.executor.drop_tasks();
    }
}

impl Runtime for TestRuntime {
    fn now(&self) -> Instant {
        self.0.now.get()
    }

    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static {
        let inner = self.0.clone();
        let at = inner.now.get().plus(d);
        let id = inner.next_timer.get();
        inner.next_timer.set(id + 1);
        poll_fn(move |cx| {
            if inner.now.get() >= at {
                return Poll::Ready(());
            }
            inner.timers.borrow_mut().insert((at, id), cx.waker().clone());
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }
}
