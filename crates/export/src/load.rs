//! Counting what is in flight, and room for more. Requests and bytes are given back when the answer was sent.
//!
//! A connection, or a file of a FUSE mount, has a little room of its own. Only what it occupies beyond that comes out of the room that
//! all share: so clients that hold the shared room keep no other from getting on, and most requests never look at it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bimetal_volume::env::Instant;

use crate::signal::Signal;

/// What one request, or a batch of answers, occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) requests: usize,
    pub(crate) bytes: u64,
}

impl Share {
    /// One request with so many bytes of payload, in either direction.
    pub(crate) fn of(bytes: u64) -> Share {
        Share { requests: 1, bytes }
    }

    pub(crate) fn add(&mut self, other: Share) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }

    fn plus(mut self, other: Share) -> Share {
        self.add(other);
        self
    }

    pub(crate) fn less(self, other: Share) -> Share {
        debug_assert!(self.requests >= other.requests && self.bytes >= other.bytes);
        Share { requests: self.requests - other.requests, bytes: self.bytes - other.bytes }
    }

    /// What of it is beyond `other`.
    fn beyond(self, other: Share) -> Share {
        Share { requests: self.requests.saturating_sub(other.requests), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    /// Whether `more` fits beside it below `max`; alone it may be larger.
    fn leaves_room(self, more: Share, max: Share) -> bool {
        (more.requests == 0 || self.requests < max.requests)
            && (more.bytes == 0 || self.bytes == 0 || self.bytes + more.bytes <= max.bytes)
    }
}

/// The room that all connections share, or all files of a mount.
pub(crate) struct Pool {
    now: Cell<Share>,
    max: Share,
    /// Who waits for room, in the order they came: a large request is not overtaken for ever by small ones.
    queue: RefCell<VecDeque<Waiter>>,
    next_ticket: Cell<u64>,
    changed: Signal,
}

#[derive(Clone, Copy)]
struct Waiter {
    ticket: u64,
    /// Number of its connection.
    peer: u64,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(requests: usize, bytes: u64) -> Rc<Pool> {
        Rc::new(Pool {
            now: Cell::default(),
            max: Share { requests: requests.max(1), bytes },
            queue: RefCell::default(),
            next_ticket: Cell::new(0),
            changed: Signal::default(),
        })
    }

    /// The connection that waits for the longest time, and since when.
    pub(crate) fn first_waiter(&self) -> Option<(u64, Instant)> {
        self.queue.borrow().front().map(|w| (w.peer, w.since))
    }

    /// Takes a place in the queue, until that is dropped.
    fn queue_up(&self, peer: u64, since: Instant) -> Place<'_> {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.queue.borrow_mut().push_back(Waiter { ticket, peer, since });
        Place { pool: self, ticket }
    }

    fn give_back(&self, share: Share) {
        self.now.set(self.now.get().less(share));
        self.changed.notify();
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.now.get() == Share::default() && self.queue.borrow().is_empty()
    }
}

/// A place in the queue for shared room.
struct Place<'a> {
    pool: &'a Pool,
    ticket: u64,
}

impl Place<'_> {
    fn is_first(&self) -> bool {
        self.pool.queue.borrow().front().is_some_and(|w| w.ticket == self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pool.queue.borrow_mut().retain(|w| w.ticket != self.ticket);
        // The next in line may fit too.
        self.pool.changed.notify();
    }
}

/// What a connection or file has in flight, and its limits. Only its reader takes room.
pub(crate) struct Load {
    now: Cell<Share>,
    max: Share,
    /// Had in any case.
    own: Share,
    pool: Rc<Pool>,
    /// The connection waits no longer, for whatever.
    closed: Cell<bool>,
    changed: Signal,
}

impl Load {
    pub(crate) fn new(max: Share, own: Share, pool: &Rc<Pool>) -> Load {
        Load {
            now: Cell::default(),
            max: Share { requests: max.requests.max(1), ..max },
            own,
            pool: pool.clone(),
            closed: Cell::new(false),
            changed: Signal::default(),
        }
    }

    pub(crate) fn requests(&self) -> usize {
        self.now.get().requests
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.now.get().bytes
    }

    /// Whether it occupies shared room.
    pub(crate) fn is_beyond_its_own(&self) -> bool {
        self.now.get().beyond(self.own) != Share::default()
    }

    /// Whoever waits for room gets none.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.changed.notify();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// What a waiter gives up for may have come.
    pub(crate) fn notify(&self) {
        self.changed.notify();
    }

    /// What of `share` would have to come out of the shared room.
    fn need(&self, share: Share) -> Share {
        let now = self.now.get();
        now.plus(share).beyond(self.own).less(now.beyond(self.own))
    }

    /// Takes room if it is there and nobody else waits for it.
    pub(crate) fn try_take(&self, share: Share) -> bool {
        self.now.get().leaves_room(share, self.max) && self.take_if(share, || self.pool.queue.borrow().is_empty())
    }

    /// The same, but of what all share only if it is `in_turn`.
    pub(crate) fn take_if(&self, share: Share, in_turn: impl FnOnce() -> bool) -> bool {
        let need = self.need(share);
        if need == Share::default() || (in_turn() && self.pool.now.get().leaves_room(need, self.pool.max)) {
            self.take_anyway(share);
            return true;
        }
        false
    }

    /// Takes room whether it is there or not.
    pub(crate) fn take_anyway(&self, share: Share) {
        let need = self.need(share);
        self.pool.now.set(self.pool.now.get().plus(need));
        self.now.set(self.now.get().plus(share));
    }

    /// Waits until the connection is below its limit; false if it was closed.
    pub(crate) async fn wait_below_limit(&self, share: Share) -> bool {
        let may = || self.closed.get() || self.now.get().leaves_room(share, self.max);
        self.changed.wait_until(may).await;
        !self.closed.get()
    }

    /// Takes room, waiting in line for what has to be shared. False if the connection was closed, or `give_up` holds.
    /// Dropped, it waits no longer.
    pub(crate) async fn take(&self, share: Share, peer: u64, since: Instant, give_up: impl Fn() -> bool) -> bool {
        let place = self.pool.queue_up(peer, since);
        let ends = || self.closed.get() || give_up();
        let mut taken = false;
        let ready = || {
            taken = !ends() && self.take_if(share, || place.is_first());
            taken || ends()
        };
        self.changed.wait_until_with(&self.pool.changed, ready).await;
        taken
    }

    /// Gives room back.
    pub(crate) fn give_back(&self, share: Share) {
        let before = self.now.get();
        let after = before.less(share);
        self.now.set(after);
        let shared = before.beyond(self.own).less(after.beyond(self.own));
        if shared != Share::default() {
            self.pool.give_back(shared);
        }
        self.changed.notify();
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn wait_until_idle(&self) {
        self.changed.wait_until(|| self.now.get() == Share::default()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{pin, Pin};
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn load(pool: &Rc<Pool>) -> Load {
        Load::new(Share { requests: 100, bytes: 1000 }, Share { requests: 1, bytes: 10 }, pool)
    }

    fn wait(load: &Load, bytes: u64) -> impl Future<Output = bool> + '_ {
        load.take(Share::of(bytes), 0, Instant::default(), || false)
    }

    #[test]
    fn what_is_a_connections_own_is_had_beside_a_full_pool() {
        let pool = Pool::new(100, 50);
        let (a, b) = (load(&pool), load(&pool));
        assert!(a.try_take(Share::of(60)));
        assert_eq!(pool.now.get(), Share { requests: 0, bytes: 50 });
        assert!(!b.try_take(Share::of(11)), "one byte more than its own");
        assert!(b.try_take(Share::of(10)));
        assert!(b.try_take(Share::of(0)), "requests are counted apart");
        a.give_back(Share::of(60));
        b.give_back(Share::of(0));
        b.give_back(Share::of(10));
        assert!(pool.is_idle());
    }

    #[test]
    fn a_wait_that_is_dropped_lets_the_next_in_line_pass() {
        let pool = Pool::new(100, 50);
        let (a, b, c) = (load(&pool), load(&pool), load(&pool));
        assert!(a.try_take(Share::of(50)));
        let mut first = Box::pin(wait(&b, 40));
        let mut second = pin!(wait(&c, 15));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        assert!(pool.first_waiter().is_some());
        drop(first);
        assert!(poll(second.as_mut()) == Poll::Ready(true));
        assert!(pool.first_waiter().is_none());
    }

    #[test]
    fn a_closed_connection_waits_no_longer() {
        let pool = Pool::new(100, 50);
        let (a, b) = (load(&pool), load(&pool));
        assert!(a.try_take(Share::of(60)));
        let mut waiting = pin!(wait(&b, 40));
        assert!(poll(waiting.as_mut()).is_pending());
        b.close();
        assert!(poll(waiting.as_mut()) == Poll::Ready(false));
        assert!(!poll(pin!(b.wait_below_limit(Share::of(2000)))).is_pending());
        a.give_back(Share::of(60));
        assert!(pool.is_idle());
    }

    #[test]
    fn who_needs_no_shared_room_any_more_does_not_stand_in_line() {
        let pool = Pool::new(100, 50);
        let (a, b, c) = (load(&pool), load(&pool), load(&pool));
        assert!(a.try_take(Share::of(60)) && c.try_take(Share::of(10)));
        let (mut large, mut small) = (pin!(wait(&b, 40)), pin!(wait(&c, 5)));
        assert!(poll(large.as_mut()).is_pending() && poll(small.as_mut()).is_pending());
        c.give_back(Share::of(10));
        assert!(poll(small.as_mut()) == Poll::Ready(true), "its own room is free again");
        assert!(poll(large.as_mut()).is_pending());
    }
}
