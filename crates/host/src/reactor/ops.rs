//! Operations in flight.
//!
//! An operation owns everything the kernel may touch - buffer, message, file - in a slot of a slab from its submission
//! until its completion arrives, whether or not the future that waits for it still exists.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Waker;

use bimetal_volume::buf::{Buf, BufMut};

use crate::fuse::Answer;
use crate::net::Message;

/// What an operation owns besides its file.
pub(crate) enum Keep {
    /// Nothing.
    None,
    /// Memory the kernel writes to.
    Read(BufMut),
    /// Memory the kernel reads from.
    Write(Buf),
    /// A vectored message.
    Message(Box<Message>),
    /// An answer to the kernel's FUSE.
    Answer(Box<Answer>),
    /// A small area the kernel writes to, whose content nobody reads.
    Bytes(#[allow(dead_code, reason = "only held")] Box<[u8; 8]>),
    /// Memory of a command that ends when somebody else wants something, or with the ring: nobody waits for its end.
    Parked(BufMut),
    /// Its result is a new file descriptor, to be closed if nobody takes it.
    NewFile,
}

enum State {
    /// Not in use; the next free slot.
    Free(u32),
    /// In the kernel.
    Pending(Option<Waker>),
    /// Completed with this result, which nobody has fetched yet.
    Done(i32),
    /// In the kernel, and nobody waits any more.
    Abandoned,
}

struct Slot {
    state: State,
    keep: Keep,
    file: Option<Rc<OwnedFd>>,
    /// The kernel can end it without anybody else.
    works: bool,
}

const NO_SLOT: u32 = u32::MAX;

/// The slab.
pub(super) struct Ops {
    slots: Vec<Slot>,
    free: u32,
    in_flight: usize,
    /// Of these, parked ones.
    parked: usize,
    /// Of these, those that the kernel can end without anybody else.
    working: usize,
}

impl Ops {
    pub(super) fn new() -> Ops {
        Ops { slots: Vec::with_capacity(256), free: NO_SLOT, in_flight: 0, parked: 0, working: 0 }
    }

    /// Operations whose completion has not arrived.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The same without the parked ones, which end with the ring only.
    pub(super) fn ending(&self) -> usize {
        self.in_flight - self.parked
    }

    /// Commands that wait for what somebody else wants.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Those that the kernel can end without anybody else: what devices do, and what is sent.
    pub(super) fn working(&self) -> usize {
        self.working
    }

    /// Takes a slot for an operation that is about to be submitted. `works` if it waits for no other program.
    pub(super) fn insert(&mut self, keep: Keep, file: Option<Rc<OwnedFd>>, works: bool) -> u32 {
        self.in_flight += 1;
        self.parked += usize::from(matches!(keep, Keep::Parked(_)));
        self.working += usize::from(works);
        let slot = Slot { state: State::Pending(None), keep, file, works };
        if self.free == NO_SLOT {
            self.slots.push(slot);
            return (self.slots.len() - 1) as u32;
        }
        let index = self.free;
        let place = &mut self.slots[index as usize];
        if let State::Free(next) = place.state {
            self.free = next;
        }
        *place = slot;
        index
    }

    /// Notes a completion. Gives back who waits for it, or what nobody needs any more.
    pub(super) fn complete(&mut self, index: u32, result: i32) -> Finished {
        self.in_flight -= 1;
        let slot = &mut self.slots[index as usize];
        self.parked -= usize::from(matches!(slot.keep, Keep::Parked(_)));
        self.working -= usize::from(slot.works);
        match std::mem::replace(&mut slot.state, State::Done(result)) {
            State::Pending(waker) => Finished::Wake(waker),
            State::Abandoned => {
                let (keep, file) = self.release(index);
                Finished::Unwanted { keep, file, result }
            }
            State::Free(_) | State::Done(_) => unreachable!("one completion per operation"),
        }
    }

    /// The result, if it is there; else `waker` is told when it is.
    pub(super) fn poll(&mut self, index: u32, waker: &Waker) -> Option<(i32, Keep)> {
        let slot = &mut self.slots[index as usize];
        match &mut slot.state {
            State::Done(result) => {
                let result = *result;
                let (keep, _file) = self.release(index);
                Some((result, keep))
            }
            State::Pending(Some(old)) if old.will_wake(waker) => None,
            State::Pending(old) => {
                *old = Some(waker.clone());
                None
            }
            State::Free(_) | State::Abandoned => unreachable!("an operation has one future"),
        }
    }

    /// Nobody waits for the operation any more. True if it is still in the kernel.
    pub(super) fn abandon(&mut self, index: u32) -> (bool, Option<(Keep, i32)>) {
        let slot = &mut self.slots[index as usize];
        match slot.state {
            State::Pending(_) => {
                slot.state = State::Abandoned;
                (true, None)
            }
            State::Done(result) => {
                let (keep, _file) = self.release(index);
                (false, Some((keep, result)))
            }
            State::Free(_) | State::Abandoned => unreachable!("an operation has one future"),
        }
    }

    /// Takes all that pending operations own, so that it can be leaked when the kernel does not give it back.
    pub(super) fn take_all(&mut self) -> Vec<(Keep, Option<Rc<OwnedFd>>)> {
        self.slots.drain(..).map(|s| (s.keep, s.file)).collect()
    }

    fn release(&mut self, index: u32) -> (Keep, Option<Rc<OwnedFd>>) {
        let slot = &mut self.slots[index as usize];
        slot.state = State::Free(self.free);
        self.free = index;
        (std::mem::replace(&mut slot.keep, Keep::None), slot.file.take())
    }
}

/// What to do after a completion.
pub(super) enum Finished {
    /// Wake the one who waits, if it began to.
    Wake(Option<Waker>),
    /// Drop these; nobody waits.
    Unwanted {
        /// What the operation owned.
        keep: Keep,
        /// Its file.
        file: Option<Rc<OwnedFd>>,
        /// Its result.
        result: i32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_operation_keeps_its_buffer_until_completion() {
        let mut ops = Ops::new();
        let buf = BufMut::new(4096).freeze();
        let index = ops.insert(Keep::Write(buf.clone()), None, true);
        assert!(ops.abandon(index).0);
        let buf = buf.try_unfreeze().expect_err("the slot holds a handle");
        drop(ops.complete(index, 0));
        assert!(buf.try_unfreeze().is_ok(), "released by the completion");
        assert_eq!(ops.insert(Keep::None, None, false), index, "slots are used again");
    }

    #[test]
    fn nobody_waits_for_parked_operations() {
        let mut ops = Ops::new();
        let parked = ops.insert(Keep::Parked(BufMut::new(4096)), None, false);
        assert_eq!((ops.in_flight(), ops.ending()), (1, 0));
        let other = ops.insert(Keep::None, None, false);
        assert_eq!(ops.ending(), 1);
        assert!(matches!(ops.complete(other, 0), Finished::Wake(None)));
        assert!(matches!(ops.complete(parked, 0), Finished::Wake(None)));
        assert_eq!((ops.in_flight(), ops.ending()), (0, 0));
        assert!(matches!(ops.poll(parked, Waker::noop()), Some((0, Keep::Parked(_)))));
    }

    #[test]
    fn what_waits_for_others_is_not_at_work() {
        let mut ops = Ops::new();
        let (own, other) = (ops.insert(Keep::None, None, true), ops.insert(Keep::None, None, false));
        ops.insert(Keep::Parked(BufMut::new(4096)), None, false);
        assert_eq!((ops.in_flight(), ops.working()), (3, 1));
        drop(ops.complete(other, 0));
        assert_eq!(ops.working(), 1);
        drop(ops.complete(own, 0));
        assert_eq!(ops.working(), 0);
    }

    #[test]
    fn results_wait_for_their_future() {
        let mut ops = Ops::new();
        let (a, b) = (ops.insert(Keep::None, None, false), ops.insert(Keep::NewFile, None, false));
        assert!(matches!(ops.complete(b, 7), Finished::Wake(None)));
        assert!(ops.poll(a, Waker::noop()).is_none());
        assert!(matches!(ops.poll(b, Waker::noop()), Some((7, Keep::NewFile))));
        assert!(matches!(ops.complete(a, 3), Finished::Wake(Some(_))));
        assert_eq!(ops.in_flight(), 0);
    }
}
