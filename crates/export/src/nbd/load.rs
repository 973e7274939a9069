//! Counting what is in flight, and waiting for room. Requests and bytes are given back when the answer was sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::signal::Signal;

/// What one request, or a batch of answers, occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) requests: usize,
    pub(super) bytes: u64,
}

impl Share {
    /// One request with so many bytes of payload, in either direction.
    pub(super) fn of(bytes: u64) -> Share {
        Share { requests: 1, bytes }
    }

    pub(super) fn add(&mut self, other: Share) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }
}

/// What is in flight, and its limits.
pub(super) struct Load {
    now: Cell<Share>,
    max: Share,
    /// Who waits for room, in the order they came: a large request is not overtaken for ever by small ones.
    queue: RefCell<VecDeque<u64>>,
    next_ticket: Cell<u64>,
    changed: Signal,
}

impl Load {
    pub(super) fn new(requests: usize, bytes: u64) -> Load {
        Load {
            now: Cell::default(),
            max: Share { requests: requests.max(1), bytes },
            queue: RefCell::default(),
            next_ticket: Cell::new(0),
            changed: Signal::default(),
        }
    }

    pub(super) fn requests(&self) -> usize {
        self.now.get().requests
    }

    pub(super) fn bytes(&self) -> u64 {
        self.now.get().bytes
    }

    /// A request that is larger than the limit fits when it is alone.
    fn fits(&self, share: Share) -> bool {
        let now = self.now.get();
        now.requests < self.max.requests && (now.bytes == 0 || now.bytes + share.bytes <= self.max.bytes)
    }

    /// Takes room for a request, waiting for it if need be.
    pub(super) async fn take(&self, share: Share) {
        if !(self.queue.borrow().is_empty() && self.fits(share)) {
            self.wait_for_room(share).await;
        }
        let mut now = self.now.get();
        now.add(share);
        self.now.set(now);
    }

    async fn wait_for_room(&self, share: Share) {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.queue.borrow_mut().push_back(ticket);
        self.changed.wait_until(|| self.queue.borrow().front() == Some(&ticket) && self.fits(share)).await;
        self.queue.borrow_mut().pop_front();
        // The next in line may fit too.
        self.changed.notify();
    }

    /// Gives room back.
    pub(super) fn give_back(&self, share: Share) {
        let now = self.now.get();
        debug_assert!(now.requests >= share.requests && now.bytes >= share.bytes);
        self.now.set(Share { requests: now.requests - share.requests, bytes: now.bytes - share.bytes });
        self.changed.notify();
    }

    /// Waits until nothing is in flight.
    pub(super) async fn wait_until_idle(&self) {
        self.changed.wait_until(|| self.now.get() == Share::default()).await;
    }
}
