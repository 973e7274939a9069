//! A volume is copied onto a plain device while it is in use, until both are the same.
//!
//! Terms: a *piece* is an aligned run of chunks of the volume, a MiB usually. It is *unsure* from when it is written onto the device, or changed in
//! the volume, until it was read back from the device and found equal.
//!
//! What a run did is nowhere written down: the device itself says it. A piece that is equal is not written, so a run that
//! was cut off is gone on with by beginning again.
//!
//! The first two and the last two pieces are *withheld*: what a file system or a partition table is recognised by lies there.
//! They are zeros on the device until all else is durable, so that a part of a copy is not taken for a whole one, nor for what
//! the device carried before. The end of a device that is larger than the volume stays zeros.
//!
//! Invariants:
//! 1. When [`Dissolve::finish`] returns, no piece is unsure: the device holds what the volume holds, durably, and goes on
//!    to do so while the [`Frozen`] that it returned stands, unless the volume is resized or deleted.
//! 2. A run that is given up lets changes of the volume in at once, whatever it waits for: a device that stands still takes
//!    nobody's writes.
//! 3. Reads of a copy are no use of the data: they leave heat alone and promote nothing.

mod piece;
pub(crate) mod watch;

use std::cell::{Cell, RefCell};

use crate::backend::{Backend, Piece, Pieces};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::error::Error;
use crate::group::Volume;
use crate::marked::Marked;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::CHUNK;
use crate::wait::{self, Signal};
use piece::{is_equal, is_zero, whole};
use watch::freeze;
pub use watch::Frozen;

/// Bytes of a piece.
pub const PIECE: u64 = 1 << 20;
/// Pieces on their way at a time.
const AT_ONCE: usize = 4;
/// Where a whole wave was written, the device's old content is asked for again only after so many waves, at most: reading
/// before each write is for a run that goes on, not for a device with anything else on it.
const MOST_BLIND: u32 = 64;
/// Changes of so many pieces may be left for the moment in which the volume stands still.
const FEW: u64 = 32;
/// Pieces that a round looks up at a time.
const LOOKED_UP: usize = 4096;
/// What lies at the end of a device is recognised by these last bytes, with some to spare.
const TAIL: u64 = 4 << 20;
/// Rounds of catching up with a volume that is changed faster than the device takes it.
const ROUNDS: u32 = 8;

/// Why a volume could not be copied. What was copied stays, and the next run goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DissolveError {
    /// The device is smaller than the volume.
    #[error("the volume has {need} bytes and the device only {has}")]
    TooSmall {
        /// Bytes of the volume.
        need: u64,
        /// Bytes of the device.
        has: u64,
    },
    /// Somebody copies it already.
    #[error("the volume is being copied already")]
    Twice,
    /// The volume could not be read.
    #[error("byte {offset} of the volume cannot be read: {source}")]
    Source {
        /// First byte of the piece.
        offset: u64,
        /// Why.
        source: Error,
    },
    /// The device failed.
    #[error("byte {offset} of the device: {source}")]
    Onto {
        /// First byte of the piece.
        offset: u64,
        /// What it said.
        source: DeviceError,
    },
    /// The device could not make durable what was written: what it shows may be what it has not kept.
    #[error("the device could not keep what was written: {0}")]
    Sync(DeviceError),
    /// The device confirmed a write and a sync, and gives something else.
    #[error("the device does not keep what is written to it, at byte {offset} and elsewhere")]
    Unkept {
        /// First byte of the first such piece.
        offset: u64,
    },
    /// The caller wanted it.
    #[error("it was given up")]
    GivenUp,
    /// The volume has another size than when it began.
    #[error("the volume was given another size meanwhile")]
    Resized,
}

/// What a run does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Every piece is compared, or written.
    #[default]
    Copying,
    /// What was written is read back, and what was changed meanwhile is written.
    Checking,
    /// The volume stands still for what was changed last.
    Finishing,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub phase: Phase,
    /// Bytes of the volume that this phase has been over, and has to go over.
    pub done: u64,
    /// See `done`.
    pub total: u64,
    /// Bytes written onto the device so far; what was there already is not among them.
    pub written: u64,
    /// Bytes that are not known to be equal on both.
    pub unsure: u64,
}

/// A run.
pub struct Dissolve<E: Env, D: Device> {
    volume: Volume<E>,
    onto: D,
    /// Bytes of the volume.
    size: u64,
    /// Bytes of a piece.
    piece: u64,
    unsure: RefCell<Marked>,
    phase: Cell<Phase>,
    done: Cell<u64>,
    total: Cell<u64>,
    written: Cell<u64>,
    /// It is to end as soon as nothing is on its way to the device.
    given_up: Cell<bool>,
    /// It was given up.
    ending: Signal,
    /// Something was written since the last sync, or may have been by a run before this one: what is read back equal may not
    /// be durable.
    unsynced: Cell<bool>,
    /// Withheld pieces are on the device.
    given: Cell<bool>,
}

impl<E: Env, D: Device> Drop for Dissolve<E, D> {
    fn drop(&mut self) {
        self.volume.info.watch.end();
    }
}

impl<E: Env, D: Device> Dissolve<E, D> {
    /// Begins to note what is changed. Nothing is written yet. A piece has `piece` bytes ([`PIECE`]): those of a chunk times a
    /// power of two, at most 64.
    pub fn begin(volume: Volume<E>, onto: D, piece: u64) -> Result<Dissolve<E, D>, DissolveError> {
        let size = volume.size();
        if onto.size() < size {
            return Err(DissolveError::TooSmall { need: size, has: onto.size() });
        }
        if !volume.info.watch.begin(size / CHUNK) {
            return Err(DissolveError::Twice);
        }
        let unsure = RefCell::new(Marked::new(size.div_ceil(piece)));
        Ok(Dissolve {
            volume,
            onto,
            size,
            piece,
            unsure,
            phase: Cell::default(),
            done: Cell::default(),
            total: Cell::new(size),
            written: Cell::default(),
            given_up: Cell::default(),
            ending: Signal::default(),
            unsynced: Cell::new(true),
            given: Cell::default(),
        })
    }

    /// Whether what runs now is to end, with [`DissolveError::GivenUp`], when nothing is on its way to the device any more.
    /// The volume stands still no longer, however long that takes: no [`Frozen`] of this run stands any more.
    /// Futures of a run are not to be dropped instead: what a write or a sync came to would not be known.
    pub fn give_up(&self, yes: bool) {
        self.given_up.set(yes);
        if yes && !mutant::on(Mutant::DissolveStaysFrozen) {
            self.volume.info.watch.thaw();
            self.ending.notify();
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        Progress {
            phase: self.phase.get(),
            done: self.done.get(),
            total: self.total.get(),
            written: self.written.get(),
            unsure: self.unsure.borrow().count() * self.piece,
        }
    }

    /// Copies the volume while it is in use, until little is left that is not known to be equal.
    pub async fn copy(&self) -> Result<(), DissolveError> {
        self.enter(Phase::Copying, self.size);
        self.clear_tail().await?;
        self.withhold().await?;
        let (mut blind, mut left) = (1, 0);
        for wave in pieces_of((0..self.pieces()).filter(|p| !self.is_withheld(*p))) {
            let compared = left == 0;
            let different = self.wave(&wave, compared).await?;
            (blind, left) = match (compared, different == wave.len()) {
                (true, true) => ((blind * 2).min(MOST_BLIND), blind),
                (true, false) => (1, 0),
                (false, _) => (blind, left - 1),
            };
        }
        self.sync().await?;
        self.catch_up().await
    }

    /// The same for what was changed since [`Dissolve::copy`] has ended.
    pub async fn catch_up(&self) -> Result<(), DissolveError> {
        if self.given.get() {
            self.withhold().await?;
        }
        for _ in 0..ROUNDS {
            self.note_changes();
            if self.unsure.borrow().count() == 0 {
                break;
            }
            let changed = self.round(Phase::Checking).await?;
            if changed <= FEW {
                break;
            }
            wait::turn().await;
        }
        Ok(())
    }

    /// Has the volume stand still, and makes both the same. The caller sees to it that nobody misses it, or gives it up.
    pub async fn finish(&self) -> Result<Frozen, DissolveError> {
        let frozen = freeze(&self.volume, self.ended()).await.ok_or(DissolveError::GivenUp)?;
        self.make_same().await?;
        // Last, with nothing to wait for behind it: changes that were let in meanwhile are on the device or not.
        match frozen.stands() || mutant::on(Mutant::DissolvedAlthoughThawed) {
            true => Ok(frozen),
            false => Err(DissolveError::GivenUp),
        }
    }

    /// Waits until it is given up.
    async fn ended(&self) {
        while !self.given_up.get() {
            self.ending.wait().await;
        }
    }

    /// What is left to do while the volume stands still.
    async fn make_same(&self) -> Result<(), DissolveError> {
        self.let_failed_writes_land().await?;
        self.note_changes();
        // The first round writes, the second finds it equal.
        self.round(Phase::Finishing).await?;
        self.round(Phase::Finishing).await?;
        self.sync().await?;
        let unkept = self.unsure.borrow().iter().find(|p| !self.is_withheld(*p));
        if let Some(piece) = unkept {
            return Err(DissolveError::Unkept { offset: piece * self.piece });
        }
        self.check_size()?;
        self.give_withheld().await?;
        self.check_size()?;
        match self.unsure.borrow().iter().next() {
            Some(piece) => Err(DissolveError::Unkept { offset: piece * self.piece }),
            None => Ok(()),
        }
    }

    /// A write that has failed may still be on its way to a member, until that is synced (C2.2): what is read twice would
    /// differ. A member where none can change this volume is not synced for it: it may be the one that has failed, and
    /// the volume is to be had all the same.
    async fn let_failed_writes_land(&self) -> Result<(), DissolveError> {
        let core = &self.volume.core;
        for m in core.members.iter().filter(|m| m.is_present() && m.has_tainted()) {
            let Some(offset) = self.unsettled_on(m).await else { continue };
            let synced = core.sync_member(m.index, m.sync.written()).await;
            synced.map_err(|source| DissolveError::Source { offset, source })?;
        }
        Ok(())
    }

    /// The first byte of the first chunk that a write of unknown outcome may still change on a member. What is on one that
    /// is lost cannot be read any more, and nothing comes to it before it is opened anew.
    async fn unsettled_on(&self, m: &Member<E::Device>) -> Option<u64> {
        if mutant::on(Mutant::DissolveSyncsAll) {
            return Some(0);
        }
        if m.is_lost() {
            return None;
        }
        let (core, info) = (&self.volume.core, &self.volume.info);
        let mut pages = core.pages_in_use(info, 0);
        while let Some(mut chunks) = pages.next(core).await {
            let map = core.map.borrow();
            let home = |chunk| map.get(chunk).filter(|e| e.is_mapped() && e.member == m.index);
            let found = chunks.find(|chunk| home(*chunk).is_some_and(|e| m.is_tainted(e.slot)));
            if let Some(number) = found.and_then(|chunk| info.number_of(chunk)) {
                return Some(number * CHUNK);
            }
        }
        None
    }

    fn check_size(&self) -> Result<(), DissolveError> {
        match self.volume.info.check(0, self.size) {
            Err(Error::OutOfRange { .. }) => Err(DissolveError::Resized),
            Err(source) => Err(DissolveError::Source { offset: 0, source }),
            Ok(()) if self.volume.size() != self.size => Err(DissolveError::Resized),
            Ok(()) => Ok(()),
        }
    }

    /// Number of pieces.
    fn pieces(&self) -> u64 {
        self.size.div_ceil(self.piece)
    }

    fn is_withheld(&self, piece: u64) -> bool {
        piece < 2 || piece + 2 >= self.pieces()
    }

    /// Pieces that are withheld.
    fn withheld(&self) -> impl Iterator<Item = u64> + '_ {
        let pieces = self.pieces();
        (0..pieces.min(2)).chain(pieces.saturating_sub(2).max(2)..pieces)
    }

    /// The device has zeros from now on where pieces are withheld.
    async fn withhold(&self) -> Result<(), DissolveError> {
        for piece in self.withheld() {
            let (offset, len) = self.range(piece);
            let there = self.there(offset, len).await?;
            self.clear(offset, &there).await?;
            self.unsure.borrow_mut().add(piece);
            self.done.set(self.done.get() + len);
        }
        self.given.set(false);
        self.sync().await
    }

    /// When all else is durable. What is read back equal is not unsure any more.
    async fn give_withheld(&self) -> Result<(), DissolveError> {
        self.given.set(true);
        for _ in 0..2 {
            let pieces: Vec<u64> = self.withheld().collect();
            for piece in pieces.into_iter().rev() {
                if piece == 0 {
                    // What it is recognised by before all else comes last: alone it would be taken for the whole.
                    self.sync().await?;
                }
                self.unsure.borrow_mut().add(piece);
                self.bring(piece, true).await?;
            }
            self.sync().await?;
        }
        self.check_tail().await
    }

    async fn check_tail(&self) -> Result<(), DissolveError> {
        for (at, len) in self.tail() {
            if !is_zero(&self.there(at, len).await?) {
                return Err(DissolveError::Unkept { offset: at });
            }
        }
        Ok(())
    }

    /// What lies behind the volume at the end of the device would be found there by whoever looks for it.
    async fn clear_tail(&self) -> Result<(), DissolveError> {
        for (at, len) in self.tail() {
            let there = self.there(at, len).await?;
            self.clear(at, &there).await?;
        }
        Ok(())
    }

    /// First bytes and lengths.
    fn tail(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (end, piece) = (self.onto.size(), self.piece);
        let first = self.size.max(end.saturating_sub(TAIL));
        (first..end).step_by(piece as usize).map(move |at| (at, piece.min(end - at)))
    }

    /// Zeros in place of what is there.
    async fn clear(&self, offset: u64, there: &[u8]) -> Result<(), DissolveError> {
        if is_zero(there) {
            return Ok(());
        }
        self.put(offset, BufMut::zeroed(there.len())).await
    }

    async fn put(&self, offset: u64, content: BufMut) -> Result<(), DissolveError> {
        self.unsynced.set(true);
        let written = self.onto.write(offset, content.freeze()).await;
        written.map_err(|source| DissolveError::Onto { offset, source })
    }

    fn enter(&self, phase: Phase, total: u64) {
        self.phase.set(phase);
        self.total.set(total);
        self.done.set(0);
    }

    /// What was changed in the volume is unsure.
    fn note_changes(&self) {
        let changed = self.volume.info.watch.take(self.size / CHUNK);
        let mut unsure = self.unsure.borrow_mut();
        changed.groups(self.piece / CHUNK).for_each(|piece| unsure.add(piece));
    }

    /// Compares what is unsure, and writes what differs; how many pieces did.
    async fn round(&self, phase: Phase) -> Result<u64, DissolveError> {
        self.enter(phase, self.unsure.borrow().count() * self.piece);
        let (mut different, mut next) = (0, 0);
        loop {
            let some = self.unsure.borrow().some(next, LOOKED_UP);
            let Some(last) = some.last() else { break };
            next = last + 1;
            for wave in pieces_of(some.into_iter().filter(|p| !self.is_withheld(*p))) {
                different += self.wave(&wave, true).await? as u64;
            }
        }
        self.sync().await?;
        Ok(different)
    }

    /// Brings pieces to the device; how many were different, or written without asking.
    async fn wave(&self, wave: &[u64], compare: bool) -> Result<usize, DissolveError> {
        if self.given_up.get() {
            return Err(DissolveError::GivenUp);
        }
        let results = wait::all(wave.iter().map(|piece| self.bring(*piece, compare)).collect()).await;
        let mut different = 0;
        for result in results {
            different += usize::from(result?);
        }
        // Everything is compared and copied on the thread that serves the clients.
        wait::turn().await;
        Ok(different)
    }

    async fn bring(&self, piece: u64, compare: bool) -> Result<bool, DissolveError> {
        let (offset, len) = self.range(piece);
        let content = self.content(offset, len).await?;
        // Zeros are never written blindly: a file that was just made keeps its holes.
        let zeros = content.iter().all(|p| matches!(p, Piece::Zero(_)));
        let asked = compare || zeros;
        let equal = asked && is_equal(&content, &self.there(offset, len).await?);
        if equal {
            self.unsure.borrow_mut().remove(piece);
        } else {
            self.unsure.borrow_mut().add(piece);
            self.put(offset, whole(&content, len)).await?;
            self.written.set(self.written.get() + len);
        }
        self.done.set(self.done.get() + len);
        Ok(!equal)
    }

    /// First byte and bytes of a piece.
    fn range(&self, piece: u64) -> (u64, u64) {
        let offset = piece * self.piece;
        (offset, self.piece.min(self.size - offset))
    }

    /// What the volume holds.
    async fn content(&self, offset: u64, len: u64) -> Result<Pieces, DissolveError> {
        let read = self.volume.core.read_unnoticed(&self.volume.info, offset, len).await;
        read.map_err(|source| DissolveError::Source { offset, source })
    }

    /// What the device holds.
    async fn there(&self, offset: u64, len: u64) -> Result<BufMut, DissolveError> {
        let (there, result) = self.onto.read(offset, BufMut::new(len as usize)).await;
        result.map(|()| there).map_err(|source| DissolveError::Onto { offset, source })
    }

    async fn sync(&self) -> Result<(), DissolveError> {
        if self.unsynced.replace(false) && !mutant::on(Mutant::DissolveNotSynced) {
            self.onto.sync().await.map_err(DissolveError::Sync)?;
        }
        if self.given_up.get() {
            return Err(DissolveError::GivenUp);
        }
        Ok(())
    }
}

/// Numbers of pieces in waves.
fn pieces_of(pieces: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Vec<u64>> {
    let mut pieces = pieces.into_iter();
    std::iter::from_fn(move || {
        let wave: Vec<u64> = pieces.by_ref().take(AT_ONCE).collect();
        (!wave.is_empty()).then_some(wave)
    })
}
