//! Requests and bytes in flight (I10).
//!
//! Invariants:
//! 1. Requests are let in in the order in which they came. Counter-example without: of a long one and many short ones, there is always
//!    room for one more of the short ones.
//! 2. Nobody who was let in asks to be let in again: it would stand behind those who wait for its room.
//! 3. Somebody stands in line only while somebody is in flight.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::line::{Line, Place};
use crate::wait::Signal;

/// See the head of this file.
pub(crate) struct RequestGate {
    limit: u64,
    bytes: Cell<u64>,
    count: Cell<u64>,
    /// Bytes of those who wait.
    line: RefCell<Line<u64>>,
    /// Nothing is in flight.
    empty: Signal,
}

/// A request that was let in, or waits for it; leaves when dropped.
pub(crate) struct Admitted<'a> {
    gate: &'a RequestGate,
    len: u64,
    /// While it waits.
    place: Option<Rc<Place<u64>>>,
}

impl RequestGate {
    /// So many bytes may be in flight.
    pub(crate) fn new(limit: u64) -> RequestGate {
        RequestGate {
            limit,
            bytes: Cell::default(),
            count: Cell::default(),
            line: RefCell::default(),
            empty: Signal::default(),
        }
    }

    /// Waits until `len` more bytes may be in flight. One request is always let in.
    pub(crate) async fn enter(&self, len: u64) -> Admitted<'_> {
        if self.line.borrow().is_empty() && self.let_in(len) {
            return Admitted { gate: self, len, place: None };
        }
        let place = self.line.borrow_mut().stand(len);
        let mut admitted = Admitted { gate: self, len, place: Some(place.clone()) };
        place.called().await;
        admitted.place = None;
        admitted
    }

    /// Counts a request in if there is room for it.
    fn let_in(&self, len: u64) -> bool {
        let room = self.count.get() == 0 || self.bytes.get() + len <= self.limit;
        if room {
            self.bytes.set(self.bytes.get() + len);
            self.count.set(self.count.get() + 1);
        }
        room
    }

    /// Lets in those who wait, as many as there is room for.
    fn hand_on(&self) {
        loop {
            let next = self.line.borrow_mut().call_first(|len| self.let_in(len));
            let Some(next) = next else { break };
            next.wake();
        }
        if self.count.get() == 0 {
            debug_assert!(self.line.borrow().is_empty(), "invariant 3");
            self.empty.notify();
        }
    }

    /// Waits until no request is in flight, and none waits.
    pub(crate) async fn drained(&self) {
        while self.count.get() > 0 {
            self.empty.wait().await;
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let gate = self.gate;
        let given_up = self.place.take().is_some_and(|place| gate.line.borrow_mut().leave(&place));
        if !given_up {
            gate.bytes.set(gate.bytes.get() - self.len);
            gate.count.set(gate.count.get() - 1);
        }
        gate.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Wait<'a> = Pin<Box<dyn Future<Output = Admitted<'a>> + 'a>>;

    fn look<'a>(wait: &mut Wait<'a>) -> Option<Admitted<'a>> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(admitted) => Some(admitted),
            Poll::Pending => None,
        }
    }

    fn enter(gate: &RequestGate, len: u64) -> (Wait<'_>, Option<Admitted<'_>>) {
        let mut wait: Wait<'_> = Box::pin(gate.enter(len));
        let admitted = look(&mut wait);
        (wait, admitted)
    }

    #[test]
    fn a_long_one_stands_before_short_ones_that_came_later() {
        let gate = RequestGate::new(10);
        let [one, other] = [4, 4].map(|len| enter(&gate, len).1.expect("there is room"));
        let (mut long, waits) = enter(&gate, 8);
        let (mut short, behind) = enter(&gate, 2);
        assert!(waits.is_none() && behind.is_none());
        drop(one);
        assert!(look(&mut short).is_none(), "there would be room for it");
        drop(other);
        drop((look(&mut long).expect("its turn"), look(&mut short).expect("beside the long one")));
        assert_eq!((gate.bytes.get(), gate.count.get()), (0, 0));
    }

    #[test]
    fn one_that_is_larger_than_all_room_goes_alone() {
        let gate = RequestGate::new(10);
        let one = enter(&gate, 0).1.expect("there is room");
        let (mut huge, waits) = enter(&gate, 100);
        assert!(waits.is_none());
        drop(one);
        let huge = look(&mut huge).expect("its turn");
        let (mut next, waits) = enter(&gate, 0);
        assert!(waits.is_none());
        drop(huge);
        drop(look(&mut next).expect("its turn"));
        assert_eq!((gate.bytes.get(), gate.count.get()), (0, 0));
    }

    #[test]
    fn a_wait_that_is_given_up_holds_up_nobody() {
        let gate = RequestGate::new(10);
        let one = enter(&gate, 8).1.expect("there is room");
        let long = enter(&gate, 8).0;
        let mut short = enter(&gate, 2).0;
        drop(long);
        let short = look(&mut short).expect("nobody else waits");
        let called = enter(&gate, 8).0;
        drop(one);
        // It was called, and did not look.
        drop((called, short));
        assert_eq!((gate.bytes.get(), gate.count.get()), (0, 0));
    }
}
