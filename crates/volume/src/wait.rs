//! Waiting for a condition on one thread.

use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::env::Env;
use crate::turns::{Turn, Turns};

/// A condition variable: tasks wait in a loop around their condition.
#[derive(Default)]
pub(crate) struct Signal {
    version: Cell<u64>,
    waiting: RefCell<Waiting>,
}

/// Who waits. Each wait has one place, however often it is looked at, and gives it back when it is given up: the condition may not
/// come true for hours.
#[derive(Default)]
struct Waiting {
    wakers: Vec<Option<Waker>>,
    vacant: Vec<usize>,
}

impl Waiting {
    fn add(&mut self, waker: Waker) -> usize {
        if let Some(place) = self.vacant.pop() {
            self.wakers[place] = Some(waker);
            return place;
        }
        self.wakers.push(Some(waker));
        self.wakers.len() - 1
    }
}

impl Signal {
    /// Wakes all who wait.
    pub(crate) fn notify(&self) {
        self.version.set(self.version.get() + 1);
        let mut woken = std::mem::take(&mut *self.waiting.borrow_mut());
        woken.vacant.clear();
        woken.wakers.drain(..).flatten().for_each(Waker::wake);
        // A steady load makes no new list each time.
        let mut waiting = self.waiting.borrow_mut();
        if waiting.wakers.is_empty() {
            *waiting = woken;
        }
    }

    /// The list that a wait is in which has not come true.
    fn list(&self, wait: &Wait<'_>) -> Option<RefMut<'_, Waiting>> {
        (self.version.get() == wait.seen).then(|| self.waiting.borrow_mut())
    }

    /// Completes at the first `notify` after this call.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait { signal: self, seen: self.version.get(), place: None }
    }
}

/// Future of [`Signal::wait`].
pub(crate) struct Wait<'a> {
    signal: &'a Signal,
    seen: u64,
    place: Option<usize>,
}

impl Future for Wait<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut list) = self.signal.list(&self) else { return Poll::Ready(()) };
        let old = match self.place {
            Some(place) => list.wakers[place].replace(cx.waker().clone()),
            None => {
                self.place = Some(list.add(cx.waker().clone()));
                None
            }
        };
        // With the last waker of a task the task may go, and what it waits for here.
        drop(list);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let place = self.place.take();
        if let (Some(place), Some(mut list)) = (place, self.signal.list(self)) {
            let waker = list.wakers[place].take();
            list.vacant.push(place);
            // As above: nothing of the list is held while it goes.
            drop(list);
            drop(waker);
        }
    }
}

/// Lets all tasks that are ready have their turn first.
pub(crate) async fn turn() {
    let mut had = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut had, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Steps of a long loop after which others have their turn: some microseconds.
const STEPS: u32 = 64;

/// Lets others have their turn now and then in a loop that may be long.
#[derive(Default)]
pub(crate) struct Pace(u32);

impl Pace {
    /// A step was done.
    pub(crate) async fn step(&mut self) {
        self.0 = (self.0 + 1) % STEPS;
        if self.0 == 0 {
            turn().await;
        }
    }
}

/// What `future` gives, which runs as a task of its own, to its end, also if nobody waits for it any more.
pub(crate) async fn to_its_end<E: Env, T: 'static>(env: &E, future: impl Future<Output = T> + 'static) -> T {
    let done = Rc::new((Signal::default(), RefCell::new(None)));
    let task = done.clone();
    env.spawn(async move {
        let value = future.await;
        *task.1.borrow_mut() = Some(value);
        task.0.notify();
    });
    loop {
        if let Some(value) = done.1.borrow_mut().take() {
            return value;
        }
        done.0.wait().await;
    }
}

/// What the first of two futures gives that completes; the other is dropped.
pub(crate) async fn first<T>(a: impl Future<Output = T>, b: impl Future<Output = T>) -> T {
    let mut a = std::pin::pin!(a);
    let mut b = std::pin::pin!(b);
    std::future::poll_fn(move |cx| match a.as_mut().poll(cx) {
        Poll::Pending => b.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

/// Runs all futures side by side and returns their results in order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    type Running<F> = (Option<Pin<Box<F>>>, Option<<F as Future>::Output>);
    let mut running: Vec<Running<F>> = futures.into_iter().map(|f| (Some(Box::pin(f)), None)).collect();
    std::future::poll_fn(|cx| {
        let mut open = false;
        for (future, result) in &mut running {
            if let Some(f) = future {
                match f.as_mut().poll(cx) {
                    Poll::Ready(out) => {
                        *result = Some(out);
                        *future = None;
                    }
                    Poll::Pending => open = true,
                }
            }
        }
        if open {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    })
    .await;
    running.into_iter().map(|(_, r)| r.expect("all are ready")).collect()
}

/// Mutual exclusion between tasks, in the order in which they come: whoever takes it again and again overtakes nobody.
pub(crate) struct Mutex(Turns);

impl Default for Mutex {
    fn default() -> Mutex {
        Mutex(Turns::new(1))
    }
}

impl Mutex {
    /// Waits until it is the caller's turn, and takes the lock.
    pub(crate) async fn lock(&self) -> Guard<'_> {
        Guard { _turn: self.0.turn().await }
    }
}

/// Holds a [`Mutex`] until dropped.
pub(crate) struct Guard<'a> {
    _turn: Turn<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(wait: &mut Wait<'_>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(wait).poll(&mut cx).is_ready()
    }

    #[test]
    fn a_condition_that_does_not_come_true_costs_no_memory() {
        let signal = Signal::default();
        let mut lasting = signal.wait();
        for _ in 0..1000 {
            let mut given_up = signal.wait();
            assert!(!poll(&mut lasting) && !poll(&mut given_up));
        }
        assert_eq!(signal.waiting.borrow().wakers.len(), 2);
        signal.notify();
        assert!(poll(&mut lasting));
        assert!(signal.waiting.borrow().wakers.is_empty());
    }

    #[test]
    fn a_wait_of_before_is_not_in_the_new_list() {
        let signal = Signal::default();
        let mut old = signal.wait();
        assert!(!poll(&mut old));
        signal.notify();
        let mut new = signal.wait();
        assert!(!poll(&mut new));
        drop(old);
        let list = signal.waiting.borrow();
        assert!(list.wakers[0].is_some() && list.vacant.is_empty());
    }
}
