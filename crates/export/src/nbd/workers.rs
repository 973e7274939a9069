//! The tasks that execute the requests of a connection. A task is made when none is idle, and stays: a steady load
//! makes no new ones.
//!
//! 1. A worker is idle exactly as long as it waits and was not woken for a request: so each request that was queued without
//!    a new worker has one that is about to look for it.
//! 2. No more are idle than [`IDLE_HERE`] of a connection and [`IDLE_IN_ALL`] of a server: a worker keeps what its largest
//!    request needed, and clients could otherwise make the server keep that a thousand times each.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bimetal_volume::backend::Backend;

use crate::runtime::Runtime;

use super::execute::{execute, Work};
use super::transmission::Session;

/// Idle workers of one connection.
const IDLE_HERE: usize = 256;
/// Idle workers of all connections of a server.
const IDLE_IN_ALL: usize = 1024;

/// Requests that wait for a worker, and workers that wait for a request.
#[derive(Default)]
pub(super) struct Workers {
    waiting: RefCell<VecDeque<Work>>,
    pool: RefCell<Pool>,
    ended: Cell<bool>,
    /// Idle workers of all connections.
    idle_in_all: Rc<Cell<usize>>,
}

/// The workers of a connection by number.
#[derive(Default)]
struct Pool {
    /// How to wake each one that is idle.
    wakers: Vec<Option<Waker>>,
    /// Those, the one that waits for the shortest time last.
    idle: Vec<usize>,
    /// Numbers of workers that have ended.
    unused: Vec<usize>,
}

impl Workers {
    /// No workers yet; `idle_in_all` is counted by all connections of a server.
    pub(super) fn new(idle_in_all: &Rc<Cell<usize>>) -> Workers {
        Workers { idle_in_all: idle_in_all.clone(), ..Workers::default() }
    }

    /// Queues a request and wakes an idle worker; false if there is none, and one has to be made.
    fn queue(&self, work: Work) -> bool {
        self.waiting.borrow_mut().push_back(work);
        let mut pool = self.pool.borrow_mut();
        let waker = pool.idle.pop().and_then(|n| pool.wakers[n].take());
        drop(pool);
        self.leave_idle(usize::from(waker.is_some()));
        let found = waker.is_some();
        waker.into_iter().for_each(Waker::wake);
        found
    }

    /// A number for a new worker.
    fn enter(&self) -> usize {
        let mut pool = self.pool.borrow_mut();
        pool.unused.pop().unwrap_or_else(|| {
            pool.wakers.push(None);
            pool.wakers.len() - 1
        })
    }

    /// The next request for worker `n`; `None` when there will be none for it.
    async fn next(&self, n: usize) -> Option<Work> {
        poll_fn(|cx| match self.waiting.borrow_mut().pop_front() {
            Some(work) => {
                self.take_out(n);
                Poll::Ready(Some(work))
            }
            None if self.ended.get() => Poll::Ready(None),
            None => self.wait(n, cx),
        })
        .await
    }

    fn wait(&self, n: usize, cx: &Context<'_>) -> Poll<Option<Work>> {
        let mut pool = self.pool.borrow_mut();
        if let Some(waker) = &mut pool.wakers[n] {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        if pool.idle.len() >= IDLE_HERE || self.idle_in_all.get() >= IDLE_IN_ALL {
            pool.unused.push(n);
            return Poll::Ready(None);
        }
        pool.wakers[n] = Some(cx.waker().clone());
        pool.idle.push(n);
        self.idle_in_all.set(self.idle_in_all.get() + 1);
        Poll::Pending
    }

    /// A worker that found a request without being woken for it waits no longer.
    fn take_out(&self, n: usize) {
        let mut pool = self.pool.borrow_mut();
        if pool.wakers[n].take().is_some() {
            pool.idle.retain(|idle| *idle != n);
            self.leave_idle(1);
        }
    }

    fn leave_idle(&self, workers: usize) {
        self.idle_in_all.set(self.idle_in_all.get() - workers);
    }

    /// No request will come; the workers end.
    pub(super) fn end(&self) {
        self.ended.set(true);
        let mut pool = self.pool.borrow_mut();
        let idle = std::mem::take(&mut pool.idle);
        let wakers: Vec<Waker> = idle.iter().filter_map(|n| pool.wakers[*n].take()).collect();
        drop(pool);
        self.leave_idle(idle.len());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Has a request executed.
pub(super) fn hand_over<R: Runtime, B: Backend>(session: &Rc<Session<R, B>>, work: Work) {
    if !session.workers.queue(work) {
        session.shared.runtime.spawn(run(session.clone()));
    }
}

async fn run<R: Runtime, B: Backend>(session: Rc<Session<R, B>>) {
    let n = session.workers.enter();
    while let Some(work) = session.workers.next(n).await {
        execute(&session, work).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use bimetal_nbd::request::Request;
    use bimetal_volume::env::Instant;

    use super::super::validate::Op;
    use super::*;
    use crate::load::Share;

    fn work() -> Work {
        let request = Request { flags: 0, command: 3, cookie: 1, offset: 0, len: 0 };
        Work { request, op: Op::Flush, share: Share::default(), payload: None, filter: None, began: Instant(0) }
    }

    fn poll(next: std::pin::Pin<&mut impl Future<Output = Option<Work>>>) -> Poll<Option<Work>> {
        next.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_worker_that_is_polled_in_vain_is_idle_once() {
        let workers = Workers::default();
        let mut one = pin!(workers.next(workers.enter()));
        assert!(poll(one.as_mut()).is_pending() && poll(one.as_mut()).is_pending());
        assert!(workers.queue(work()), "the idle worker is woken");
        assert!(!workers.queue(work()), "there is no other");
        assert!(poll(one.as_mut()).is_ready());
        assert_eq!(workers.idle_in_all.get(), 0);
    }

    #[test]
    fn a_worker_that_finds_work_unwoken_is_idle_no_longer() {
        let workers = Workers::default();
        let (mut one, mut two) = (pin!(workers.next(workers.enter())), pin!(workers.next(workers.enter())));
        assert!(poll(one.as_mut()).is_pending() && poll(two.as_mut()).is_pending());
        assert!(workers.queue(work()), "the second is woken");
        assert!(poll(one.as_mut()).is_ready(), "but the first was faster");
        assert_eq!(workers.idle_in_all.get(), 0);
        assert!(poll(two.as_mut()).is_pending(), "and the second waits again");
        assert!(workers.queue(work()) && !workers.queue(work()));
    }

    #[test]
    fn not_all_that_were_busy_stay() {
        let in_all = Rc::new(Cell::new(0));
        let connections: Vec<Workers> = (0..6).map(|_| Workers::new(&in_all)).collect();
        let mut waiting: Vec<_> =
            connections.iter().flat_map(|w| (0..IDLE_HERE + 1).map(|_| Box::pin(w.next(w.enter())))).collect();
        let ended = waiting.iter_mut().map(|w| poll(w.as_mut())).filter(Poll::is_ready).count();
        assert_eq!(in_all.get(), IDLE_IN_ALL);
        assert_eq!(ended, waiting.len() - IDLE_IN_ALL);
        connections.iter().for_each(Workers::end);
        assert_eq!(in_all.get(), 0);
    }
}
