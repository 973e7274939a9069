//! Work of which only so much goes on at a time, in the order it came: whoever goes on and on overtakes nobody.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::line::{Line, Place};

/// So many have their turn at a time. One that ends wakes only the next in line: there may be thousands.
pub(crate) struct Turns {
    free: Cell<usize>,
    line: RefCell<Line<()>>,
}

/// A turn that somebody has, or waits for. Dropped, it is the next one's, or the wait is given up.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    place: Option<Rc<Place<()>>>,
}

impl Turns {
    pub(crate) fn new(at_a_time: usize) -> Turns {
        Turns { free: Cell::new(at_a_time.max(1)), line: RefCell::default() }
    }

    /// Waits in line for a turn.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        // None is free while somebody waits.
        if let Some(left) = self.free.get().checked_sub(1) {
            self.free.set(left);
            return Turn { turns: self, place: None };
        }
        let place = self.line.borrow_mut().stand(());
        let turn = Turn { turns: self, place: Some(place.clone()) };
        place.called().await;
        turn
    }

    fn pass_on(&self) {
        let next = self.line.borrow_mut().call_first(|_| true);
        match next {
            Some(next) => next.wake(),
            None => self.free.set(self.free.get() + 1),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let given_up = self.place.take().is_some_and(|p| self.turns.line.borrow_mut().leave(&p));
        if !given_up {
            self.turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Wait<'a> = Pin<Box<dyn Future<Output = Turn<'a>> + 'a>>;

    fn wait(turns: &Turns) -> Wait<'_> {
        Box::pin(turns.turn())
    }

    fn poll<'a>(wait: &mut Wait<'a>) -> Option<Turn<'a>> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_are_had_in_the_order_they_were_asked_for() {
        let turns = Turns::new(1);
        let first = poll(&mut wait(&turns)).expect("it is free");
        let (mut second, mut third) = (wait(&turns), wait(&turns));
        assert!(poll(&mut second).is_none() && poll(&mut third).is_none());
        drop(first);
        // Whoever had it and asks again is the last.
        let mut again = wait(&turns);
        assert!(poll(&mut again).is_none() && poll(&mut third).is_none());
        let turn = poll(&mut second).expect("its turn");
        drop(turn);
        assert!(poll(&mut again).is_none());
        drop(poll(&mut third).expect("its turn"));
        drop(poll(&mut again).expect("its turn"));
        assert_eq!((turns.free.get(), turns.line.borrow().is_empty()), (1, true));
    }

    #[test]
    fn a_wait_that_is_given_up_costs_nobody_a_turn() {
        let turns = Turns::new(2);
        let (first, other) = (poll(&mut wait(&turns)).expect("free"), poll(&mut wait(&turns)).expect("free"));
        let (mut second, mut third, mut fourth) = (wait(&turns), wait(&turns), wait(&turns));
        assert!([&mut second, &mut third, &mut fourth].into_iter().all(|w| poll(w).is_none()));
        drop(third);
        drop(first);
        // It was called, and did not look.
        drop(second);
        drop(poll(&mut fourth).expect("its turn"));
        drop(other);
        assert_eq!((turns.free.get(), turns.line.borrow().is_empty()), (2, true));
    }
}
