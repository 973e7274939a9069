//! A member of a group as the engine sees it: a device, its zones, free slots, journal, directory and label.
//!
//! Invariants:
//! 1. Every request to the device goes through this module, so that counters are whole.
//! 2. Who writes the journal or labels holds `meta`, who writes pages and the directory `pages`, who writes away bits `away_meta`. Who
//!    takes several takes `pages` first, then `meta`, then `away_meta`; and the gate of commits before all of them.
//! 3. At most one sync at a time (C1.4); see [`sync`].

pub(crate) mod away;
pub(crate) mod checkpoint;
pub(crate) mod directory;
pub(crate) mod journal;
pub(crate) mod label;
pub(crate) mod occupants;
pub(crate) mod set;
pub(crate) mod sync;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bimetal_format::journal::RECORDS_PER_BLOCK;
use bimetal_format::label::{Label, MemberCode, TierCode};
use bimetal_format::layout::Layout;
use bimetal_format::Salt;

use crate::buf::{Buf, BufMut};
use crate::commit::reclaim::Lane;
use crate::commit::telling::Telling;
use crate::env::{Answering, Device, DeviceError, Instant};
use crate::mutant::{self, Mutant};
use crate::slots::FreeSlots;
use crate::units::{ChunkId, MemberIndex, SlotIndex, Tier};
use crate::wait::{Mutex, Signal};
use checkpoint::Hurry;
use occupants::Occupants;

/// A member that answers nothing for so long, though something waits, is counted on for nothing that another can do: a disk
/// under load answers something in that time, and one that sleeps takes longer to wake up.
const STANDS_STILL: Duration = Duration::from_secs(2);

/// Counters since the group was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: Cell<u64>,
    pub(crate) read_bytes: Cell<u64>,
    pub(crate) writes: Cell<u64>,
    pub(crate) write_bytes: Cell<u64>,
    pub(crate) syncs: Cell<u64>,
    pub(crate) discard_bytes: Cell<u64>,
    pub(crate) errors: Cell<u64>,
    /// Requests that have come to an end, well or not.
    pub(crate) ended: Cell<u64>,
}

pub(crate) fn add(c: &Cell<u64>, n: u64) {
    c.set(c.get() + n);
}

pub(crate) fn take_off(c: &Cell<u64>, n: u64) {
    c.set(c.get() - n);
}

/// A request without an answer.
struct Awaited<'a>(&'a Cell<u64>);

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        take_off(self.0, 1);
    }
}

/// For whom a write is made; decides what a flush must wait for (C1.6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFor {
    /// A client: the data is acknowledged when the write completes.
    Client,
    /// A move, or metadata: the writer syncs it itself.
    Engine,
}

/// What a member is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is being added: it gets commits and checkpoints like any other, but no slot of it is taken.
    Joining,
    /// Like any other.
    Full,
    /// It is to leave: like any other, but no slot of it is taken.
    Leaving,
    /// It has left: nothing is sent to it. Its place stays, so that indexes mean what they meant.
    Gone,
}

fn standing_of(state: MemberCode) -> Standing {
    match state {
        MemberCode::Member => Standing::Full,
        MemberCode::Leaving => Standing::Leaving,
        MemberCode::Left => Standing::Gone,
    }
}

pub(crate) struct Member<D: Device> {
    pub(crate) index: MemberIndex,
    pub(crate) tier: Tier,
    pub(crate) standing: Cell<Standing>,
    gone: Signal,
    /// `None`: the member is missing, or has left.
    device: RefCell<Option<Rc<D>>>,
    pub(crate) layout: Layout,
    pub(crate) group: [u8; 16],
    /// Records in a journal block.
    pub(crate) journal_records: usize,
    pub(crate) counters: Counters,
    pub(crate) sync: sync::SyncState,
    pub(crate) free: RefCell<FreeSlots>,
    /// Slots that nothing lives on any more, or nothing ever did, and that become free by themselves.
    pub(crate) on_the_way: Cell<u64>,
    /// Kept copies on it.
    pub(crate) copies: Cell<u64>,
    /// Slots that did not take what was to be written to them: while there are others they are not used again before the next start.
    pub(crate) unwritable: RefCell<BTreeSet<SlotIndex>>,
    /// Fast members: which chunk lives in each slot.
    pub(crate) occupants: RefCell<Occupants>,
    pub(crate) meta: Mutex,
    /// Held by whoever writes pages and the directory: a checkpoint from its beginning to its label. Apart from `meta`, so that commits do not
    /// wait for one.
    pub(crate) pages: Mutex,
    /// Who waits for `pages`: a checkpoint that takes its time gets on with it.
    pub(crate) hurry: Hurry,
    /// Held by whoever writes away bits. Apart from `meta`, so that a commit never waits for the mover, which holds
    /// `meta` of a slow member until its switches are committed.
    pub(crate) away_meta: Mutex,
    pub(crate) journal: RefCell<journal::Journal>,
    pub(crate) directory: RefCell<directory::Directory>,
    /// Reads and writes of clients without an answer.
    pub(crate) foreground: Cell<u64>,
    /// Reads, writes and syncs without an answer.
    awaited: Cell<u64>,
    /// It has left a discard unanswered for so long that it gets none any more.
    pub(crate) discards_hang: Cell<bool>,
    /// Places whose metadata could not be read while the group was opened, however often that was tried.
    pub(crate) unreadable_metadata: Cell<u64>,
    pub(crate) away: RefCell<away::Away>,
    pub(crate) label: RefCell<Label>,
    /// The label place (0 or 1) to be written first.
    pub(crate) weaker_label: Cell<usize>,
    /// Slow members: chunks whose newest committed entry this member's journal does not hold yet (C1.6), each with the
    /// number of the note, so that a note made while the journal is written is not lost.
    pub(crate) lag: RefCell<BTreeMap<ChunkId, u64>>,
    /// Slots on their way to being free.
    pub(crate) lane: Lane,
    /// When it is told, and the slots that wait for it.
    pub(crate) telling: Telling,
    /// Slow members: since when they are to follow a checkpoint of a fast one.
    pub(crate) follows_since: Cell<Option<Instant>>,
}

impl<D: Device> Member<D> {
    /// A member from its label. `device` is `None` if it is missing; then the label is another member's, and only its
    /// row for this member counts.
    pub(crate) fn new(device: Option<D>, label: Label, index: MemberIndex, journal_records: usize) -> Member<D> {
        let row = &label.members[index as usize];
        let tier = match row.tier {
            TierCode::Fast => Tier::Fast,
            TierCode::Slow => Tier::Slow,
        };
        let layout = label.layout();
        let slots = u64::from(row.slots);
        Member {
            index,
            tier,
            standing: Cell::new(standing_of(row.state)),
            gone: Signal::default(),
            counters: Counters::default(),
            sync: sync::SyncState::default(),
            free: RefCell::new(FreeSlots::new(slots)),
            on_the_way: Cell::default(),
            copies: Cell::default(),
            unwritable: RefCell::default(),
            occupants: RefCell::new(Occupants::new(if tier == Tier::Fast { slots } else { 0 })),
            meta: Mutex::default(),
            pages: Mutex::default(),
            hurry: Hurry::default(),
            away_meta: Mutex::default(),
            journal: RefCell::new(journal::Journal::at_tail(&label)),
            directory: RefCell::new(directory::Directory::empty(layout.pages)),
            foreground: Cell::default(),
            awaited: Cell::default(),
            discards_hang: Cell::default(),
            unreadable_metadata: Cell::default(),
            away: RefCell::new(away::Away::new(layout.pages)),
            group: label.group,
            journal_records: journal_records.clamp(1, RECORDS_PER_BLOCK),
            layout,
            label: RefCell::new(label),
            weaker_label: Cell::new(0),
            device: RefCell::new(device.map(Rc::new)),
            lag: RefCell::default(),
            lane: Lane::default(),
            telling: Telling::default(),
            follows_since: Cell::default(),
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.device.borrow().is_some()
    }

    /// Lets go of the device of a member that has left, as soon as no request is on its way to it.
    pub(crate) fn release(&self) -> Option<Rc<D>> {
        self.standing.set(Standing::Gone);
        self.gone.notify();
        self.device.borrow_mut().take()
    }

    /// Whether it has left the group.
    pub(crate) fn is_gone(&self) -> bool {
        self.standing.get() == Standing::Gone
    }

    /// Completes when it has left the group.
    pub(crate) async fn left(&self) {
        while !self.is_gone() || mutant::on(Mutant::LeftIsWaitedFor) {
            self.gone.wait().await;
        }
    }

    /// Whether its free slots may be taken, as far as its place in the group goes: what is promised (I5) counts by that.
    pub(crate) fn takes_slots(&self) -> bool {
        let leaving = self.standing.get() == Standing::Leaving && mutant::on(Mutant::LeavingTakesSlots);
        self.is_present() && (self.standing.get() == Standing::Full || leaving)
    }

    /// Whether a chunk may be put there now. What is sent to one that is lost fails.
    pub(crate) fn takes_chunks(&self) -> bool {
        self.takes_slots() && (!self.is_lost() || mutant::on(Mutant::LostTakesChunks))
    }

    pub(crate) fn device(&self) -> Result<Rc<D>, DeviceError> {
        self.device.borrow().clone().ok_or(DeviceError::Disconnected)
    }

    /// How its device answers.
    pub(crate) fn answering(&self) -> Answering {
        self.device.borrow().as_ref().map(|d| d.answering()).unwrap_or_default()
    }

    /// Whether it stands still: something waits for it, and nothing has been answered for [`STANDS_STILL`]. A discard is a hint: one that
    /// hangs says nothing of the others.
    pub(crate) fn stands_still(&self, now: Instant) -> bool {
        if self.awaited.get() == 0 {
            return false;
        }
        let since = self.device.borrow().as_ref().and_then(|d| d.answering().silent_since);
        since.is_some_and(|since| now.since(since) >= STANDS_STILL)
    }

    /// A request is made that has to be answered; it is, or given up, when this is dropped.
    fn awaits(&self) -> Awaited<'_> {
        add(&self.awaited, 1);
        Awaited(&self.awaited)
    }

    /// Whether every request to it fails until the group is opened anew.
    pub(crate) fn is_lost(&self) -> bool {
        self.device.borrow().as_ref().is_some_and(|d| d.is_lost())
    }

    /// Salt of a metadata block at byte offset `place` of this member.
    pub(crate) fn salt(&self, place: u64) -> Salt {
        Salt { group: self.group, member: self.index, place }
    }

    fn note(&self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        add(&self.counters.ended, 1);
        if result.is_err() {
            add(&self.counters.errors, 1);
        }
        result
    }

    pub(crate) async fn read(&self, offset: u64, buf: BufMut) -> Result<BufMut, DeviceError> {
        let device = self.device()?;
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, buf.len() as u64);
        let _awaited = self.awaits();
        let (buf, result) = device.read(offset, buf).await;
        self.note(result).map(|()| buf)
    }

    /// Writes and, when the write has completed, counts the member as unsynced (C1.2). Of what has failed on one that is lost nobody was
    /// told that it is done, and no sync can bring it: no commit is to ask for one.
    pub(crate) async fn write(&self, offset: u64, buf: Buf, who: WriteFor) -> Result<(), DeviceError> {
        let device = self.device()?;
        add(&self.counters.writes, 1);
        add(&self.counters.write_bytes, buf.len() as u64);
        let _awaited = self.awaits();
        let result = device.write(offset, buf).await;
        let in_vain = result.is_err() && device.is_lost() && !mutant::on(Mutant::LostOwesFailed);
        self.sync.wrote(if in_vain { WriteFor::Engine } else { who });
        self.note(result)
    }

    pub(crate) async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let device = self.device()?;
        add(&self.counters.discard_bytes, len);
        let result = device.discard(offset, len).await;
        if !matches!(result, Ok(()) | Err(DeviceError::Unsupported)) && !mutant::on(Mutant::C2DiscardUnsure) {
            // It may still be carried out, like a write of unknown outcome: the next sync is one that ends that.
            self.sync.wrote(WriteFor::Engine);
        }
        self.note(result)
    }

    pub(crate) fn discards(&self) -> bool {
        !self.discards_hang.get() && self.device.borrow().as_ref().is_some_and(|d| d.traits().discard)
    }
}
