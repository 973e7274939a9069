//! The commit pipeline: swap, sync, append, sync, free (CRASH-SAFETY C1).
//!
//! Terms: a change of an entry is *pending* until a commit takes it, *committing* until that commit is durable.
//! A slot is *left* by the change that gave its chunk another home or none.
//!
//! Invariants:
//! 1. `pending` and `committing` hold, per changed chunk, the entry from before the change. The newest durable entry of
//!    a chunk is: `committing`'s if there, else `pending`'s if there, else the map's.
//! 2. A snapshot is taken in one step, without an await (C1.1); changes after it belong to the next commit.
//! 3. A flush waits for a commit that takes its snapshot after the flush arrived (C1.3).
//! 4. One commit at a time (C1.4).

pub(crate) mod discard;
pub(crate) mod flush;
pub(crate) mod lag;
pub(crate) mod pipeline;
pub(crate) mod reclaim;
pub(crate) mod telling;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use bimetal_format::Entry;

use crate::map::Map;
use crate::units::{ChunkId, MemberIndex, SlotId};
use crate::wait::{Mutex, Signal};

/// A slot that a chunk has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) slot: SlotId,
    pub(crate) chunk: ChunkId,
}

#[derive(Default)]
pub(crate) struct Commit {
    pub(crate) pending: RefCell<BTreeMap<ChunkId, Entry>>,
    pub(crate) committing: RefCell<BTreeMap<ChunkId, Entry>>,
    pub(crate) left: RefCell<Vec<Left>>,
    /// Newest generation given out.
    pub(crate) generation: Cell<u64>,
    /// Newest generation that is durable.
    pub(crate) durable_generation: Cell<u64>,
    /// Commits begun (their snapshot taken), finished, and asked for; numbers of the same sequence.
    pub(crate) started: Cell<u64>,
    pub(crate) finished: Cell<u64>,
    pub(crate) wanted: Cell<u64>,
    /// Held while a commit runs; whoever holds it sees a state in which every change is durable or not begun.
    pub(crate) gate: Mutex,
    /// Wakes the committer.
    pub(crate) wake: Signal,
    /// The committer sleeps without a limit: nothing waits to be made durable.
    pub(crate) idle: Cell<bool>,
    /// A commit has finished, or the group has latched.
    pub(crate) done: Signal,
    /// Commits that wrote records.
    pub(crate) count: Cell<u64>,
    /// Most pending changes: what fits a quarter of the smallest fast journal.
    pub(crate) limit: Cell<usize>,
    /// Changes that writes in flight will make when they complete.
    reserved: Cell<usize>,
    /// A request gave its room back.
    pub(crate) room: Signal,
}

/// Room for changes of entries, held by a request in flight (I10). Requests take all their room at once and before they
/// claim anything, so that none holds what another waits for.
pub(crate) struct Reserved<'a>(&'a Commit, usize);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.reserved.set(self.0.reserved.get() - self.1);
        self.0.room.notify();
    }
}

impl Commit {
    /// Notes that the entry of `chunk` is about to change from `before`.
    pub(crate) fn changing(&self, chunk: ChunkId, before: Entry) {
        let mut pending = self.pending.borrow_mut();
        let first = pending.is_empty();
        pending.entry(chunk).or_insert(before);
        let many = pending.len() * 2 >= self.limit.get();
        drop(pending);
        if many && self.wanted.get() <= self.started.get() {
            self.want_next();
        } else if first {
            self.wake.notify();
        }
    }

    /// Asks for a commit whose snapshot is still to be taken, and gives its number.
    pub(crate) fn want_next(&self) -> u64 {
        let number = self.started.get() + 1;
        if self.wanted.get() < number {
            self.wanted.set(number);
        }
        self.wake.notify();
        number
    }

    /// A client's data has been written that no sync has covered: it is made durable in time. What was owed when the write began is no
    /// reason to say nothing, for a sync may have settled that meanwhile.
    pub(crate) fn owes(&self) {
        if self.idle.get() {
            self.wake.notify();
        }
    }

    /// Whether `more` changes fit beside those that wait. A request larger than the limit fits when nothing else does.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        let used = self.pending.borrow().len() + self.reserved.get();
        used == 0 || used + more <= self.limit.get()
    }

    /// Whether more changes wait than room was given for. A ring holds four times the limit.
    pub(crate) fn has_too_many(&self) -> bool {
        self.pending.borrow().len() > self.limit.get() * 2
    }

    /// Whether so many drops of copies fit, which have half of the room whatever requests keep: these may wait for the slots.
    pub(crate) fn has_room_for_drops(&self, more: usize) -> bool {
        let pending = self.pending.borrow().len();
        pending == 0 || pending + more <= self.limit.get() / 2
    }

    /// Keeps room for changes that a request will make.
    pub(crate) fn reserve(&self, n: usize) -> Reserved<'_> {
        self.reserved.set(self.reserved.get() + n);
        Reserved(self, n)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.started.get() != self.finished.get()
    }

    /// The newest durable entry of a chunk (invariant 1).
    pub(crate) fn durable_entry(&self, chunk: ChunkId, current: Entry) -> Entry {
        let before = |m: &BTreeMap<ChunkId, Entry>| m.get(&chunk).copied();
        let durable = before(&self.committing.borrow()).or_else(|| before(&self.pending.borrow()));
        Entry { heat: current.heat, ..durable.unwrap_or(current) }
    }

    /// Chunks with changes that are not durable and whose home is on `member`.
    pub(crate) fn uncommitted_on(&self, member: MemberIndex, map: &Map) -> Vec<ChunkId> {
        let (pending, committing) = (self.pending.borrow(), self.committing.borrow());
        let changed = pending.keys().chain(committing.keys()).copied();
        changed.filter(|c| map.get(*c).is_some_and(|e| e.is_mapped() && e.member == member)).collect()
    }

    /// Wakes everybody who waits for a commit, after the latch or at a stop.
    pub(crate) fn wake_all(&self) {
        self.done.notify();
        self.wake.notify();
        self.room.notify();
    }
}
