//! Those who wait for the same thing, in the order in which they came.
//!
//! Invariants:
//! 1. Whoever gives something back takes those out of line who get it, in the same step: nobody who comes later finds it free, and
//!    nobody who is woken looks for it in vain.
//! 2. Who was taken out of line has what he waited for, whether he has looked or not. If he gives up, he gives it back.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A line of those who wait, each of whom wants a `T`.
pub(crate) struct Line<T>(VecDeque<Rc<Place<T>>>);

/// A place in line.
pub(crate) struct Place<T> {
    wants: T,
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line(VecDeque::new())
    }
}

impl<T> Line<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives the last place. [`Place::called`] is what its owner waits for.
    pub(crate) fn stand(&mut self, wants: T) -> Rc<Place<T>> {
        let place = Rc::new(Place { wants, called: Cell::new(false), waker: RefCell::default() });
        self.0.push_back(place.clone());
        place
    }

    /// Takes the first one out of line, if it gets what it wants. Whoever calls this wakes it, with nothing borrowed.
    pub(crate) fn call_first(&mut self, gets: impl FnOnce(&T) -> bool) -> Option<Rc<Place<T>>> {
        let first = self.0.front()?;
        if gets(&first.wants) {
            self.call(0)
        } else {
            None
        }
    }

    /// The same of the first of all in line that gets what it wants.
    pub(crate) fn call_any(&mut self, mut gets: impl FnMut(&T) -> bool) -> Option<Rc<Place<T>>> {
        let at = self.0.iter().position(|p| gets(&p.wants))?;
        self.call(at)
    }

    /// What those in line want.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> + '_ {
        self.0.iter().map(|p| &p.wants)
    }

    /// Gives up a place. Says whether it was still in line; else what was waited for has to be given back.
    pub(crate) fn leave(&mut self, place: &Rc<Place<T>>) -> bool {
        if place.is_called() {
            return false;
        }
        self.0.retain(|p| !Rc::ptr_eq(p, place));
        true
    }

    fn call(&mut self, at: usize) -> Option<Rc<Place<T>>> {
        let place = self.0.remove(at)?;
        place.called.set(true);
        Some(place)
    }
}

impl<T> Place<T> {
    /// What it waits for.
    pub(crate) fn wants(&self) -> &T {
        &self.wants
    }

    pub(crate) fn is_called(&self) -> bool {
        self.called.get()
    }

    pub(crate) fn wake(&self) {
        let waker = self.waker.take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Completes when this was taken out of line.
    pub(crate) async fn called(&self) {
        poll_fn(|cx| {
            if self.is_called() {
                return Poll::Ready(());
            }
            // What was there before is dropped with nothing borrowed: a task may go with its last waker.
            drop(self.waker.replace(Some(cx.waker().clone())));
            Poll::Pending
        })
        .await
    }
}
