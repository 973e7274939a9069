//! What a holder knows of its lease: until when it may send, and read, and whom it has met there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bimetal_format::label::Label;
use bimetal_format::lease::Lease;

use super::who::{held, of_this_process};
use super::{COUNTED_AFTER, FINISH, FINISH_OF_START, TERM, TERM_OF_START};
use crate::reactor::clock::BootInstant;
use crate::reactor::HostEnv;

/// A challenger writes its lease once. Who is there again after so many answers holds the member, too.
const ANSWERS: usize = 2;
/// So many of the last challengers are remembered.
const REMEMBERED: usize = 16;

/// What a holder knows of its lease. It ends with the last handle of the device.
pub(in crate::device::nbd) struct Held {
    pub(super) own: Cell<Lease>,
    /// Where it lies; nowhere before the device bears a label.
    pub(super) place: Cell<Option<u64>>,
    /// When the last look began that found it.
    pub(super) seen: Cell<BootInstant>,
    /// When it was taken back from a challenger too late, if no look has counted since.
    taken_back: Cell<Option<BootInstant>>,
    /// The label is clean, for all that is known, or may be at any moment: a challenger waits for less.
    starting: Cell<bool>,
    /// The last label that was asked to be written says that the member is not in use, so that no look finds out otherwise.
    ending: Cell<bool>,
    /// Whose lease it took without waiting for an answer, because that one was known to be gone.
    pub(super) took_for_gone: Cell<Option<u64>>,
    /// Whose leases it has written its own over, the last ones, by their nonces.
    written_over: RefCell<VecDeque<u64>>,
}

impl Held {
    pub(in crate::device::nbd) fn new(env: &HostEnv, label: Option<&Label>, place: Option<u64>) -> Held {
        let own = Lease { group: label.map_or([0; 16], |l| l.group), ..of_this_process(env) };
        held().insert(own.nonce);
        Held {
            own: Cell::new(own),
            place: Cell::new(place),
            seen: Cell::new(BootInstant::now()),
            taken_back: Cell::new(None),
            starting: Cell::new(label.is_none_or(|l| l.clean)),
            ending: Cell::new(false),
            took_for_gone: Cell::new(None),
            written_over: RefCell::default(),
        }
    }

    /// A label is about to be written, or what is no label in its place. From the moment that challengers can find it clean, this holder
    /// has their short patience, and what it sends then is not to be older than that allows.
    pub(in crate::device::nbd) fn marks(&self, in_use: bool) {
        self.ending.set(!in_use);
        if !in_use {
            self.starting.set(true);
        }
    }

    /// Whether a look can find that the label is not clean any more.
    pub(super) fn may_have_begun(&self) -> bool {
        self.starting.get() && !self.ending.get()
    }

    /// A look has found that, unless the holder has come to its end meanwhile.
    pub(in crate::device::nbd) fn has_begun(&self) {
        self.starting.set(self.ending.get());
    }

    /// A look that began then has found it.
    pub(super) fn found(&self, began: BootInstant) {
        if self.taken_back.get().is_none_or(|then| began.since(then) >= COUNTED_AFTER) {
            self.seen.set(began);
            self.taken_back.set(None);
        }
    }

    /// It was written over a challenge by a request that began then. Within the term nobody else can have come to serve, and it counts
    /// like a look: challengers may come faster than looks. Later somebody may serve, who writes his own again.
    pub(super) fn was_taken_back(&self, began: BootInstant, written: bool, now: BootInstant) {
        match written && self.is_within_term(now) {
            true => self.seen.set(began),
            false => self.taken_back.set(Some(now)),
        }
    }

    /// Its own was written over that lease, which is an answer to whoever only challenges.
    pub(super) fn has_answered(&self, nonce: u64) {
        let mut written_over = self.written_over.borrow_mut();
        written_over.truncate(REMEMBERED - 1);
        written_over.push_front(nonce);
    }

    /// Whether another's lease is that of a second holder, before which this one leaves. Who came by taking the other for gone leaves
    /// as soon as it finds that one alive, before that one has found it often enough to leave, too.
    pub(super) fn yields_to(&self, nonce: u64) -> bool {
        let answers = self.written_over.borrow().iter().filter(|over| **over == nonce).count();
        self.took_for_gone.get() == Some(nonce) || answers >= ANSWERS
    }

    pub(super) fn is_within_term(&self, now: BootInstant) -> bool {
        now.since(self.seen.get()) < if self.starting.get() { TERM_OF_START } else { TERM }
    }

    #[cfg(test)]
    pub(in crate::device::nbd) fn seen_at(&self) -> BootInstant {
        self.seen.get()
    }

    /// Whether the holder may finish what it has begun to send, and believe what it has been told.
    pub(in crate::device::nbd) fn may_finish(&self, now: BootInstant) -> bool {
        let limit = if self.starting.get() { FINISH_OF_START } else { FINISH };
        self.place.get().is_none() || now.since(self.seen.get()) < limit
    }

    /// Whether the holder may write.
    pub(in crate::device::nbd) fn is_fresh(&self, now: BootInstant) -> bool {
        self.place.get().is_none() || self.is_within_term(now)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        held().remove(&self.own.get().nonce);
    }
}
