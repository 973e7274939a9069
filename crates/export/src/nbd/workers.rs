//! The tasks that execute the requests of a connection. A task is made when none is idle, and stays: a steady load
//! makes no new ones.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use bimetal_volume::backend::Backend;

use crate::runtime::Runtime;

use super::execute::{execute, Work};
use super::transmission::Session;

/// Requests that wait for a worker, and workers that wait for a request.
#[derive(Default)]
pub(super) struct Workers {
    waiting: RefCell<VecDeque<Work>>,
    idle: RefCell<Vec<Waker>>,
    ended: Cell<bool>,
}

impl Workers {
    /// Queues a request and wakes an idle worker; false if there is none, and one has to be made.
    fn queue(&self, work: Work) -> bool {
        self.waiting.borrow_mut().push_back(work);
        let idle = self.idle.borrow_mut().pop();
        let found = idle.is_some();
        idle.into_iter().for_each(Waker::wake);
        found
    }

    /// The next request; `None` when there will be none.
    async fn next(&self) -> Option<Work> {
        poll_fn(|cx| match (self.waiting.borrow_mut().pop_front(), self.ended.get()) {
            (Some(work), _) => Poll::Ready(Some(work)),
            (None, true) => Poll::Ready(None),
            (None, false) => {
                self.idle.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// No request will come; the workers end.
    pub(super) fn end(&self) {
        self.ended.set(true);
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        idle.into_iter().for_each(Waker::wake);
    }
}

/// Has a request executed.
pub(super) fn hand_over<R: Runtime, B: Backend>(session: &Rc<Session<R, B>>, work: Work) {
    if !session.workers.queue(work) {
        session.shared.runtime.spawn(run(session.clone()));
    }
}

async fn run<R: Runtime, B: Backend>(session: Rc<Session<R, B>>) {
    while let Some(work) = session.workers.next().await {
        execute(&session, work).await;
    }
}
