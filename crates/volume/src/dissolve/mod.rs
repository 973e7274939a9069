//! A volume is copied onto a plain device while it is in use, until both are the same.
//!
//! Terms: a *piece* is an aligned run of chunks of the volume, a MiB usually. It is *unsure* from when it is written onto the device, or changed in
//! the volume, until it was read back from the device and found equal.
//!
//! What a run did is nowhere written down: the device itself says it. A piece that is equal is not written, so a run that
//! was cut off is gone on with by beginning again.
//!
//! Invariants:
//! 1. When [`Dissolve::finish`] returns, no piece is unsure: the device holds what the volume holds, durably, and goes on
//!    to do so until the [`Frozen`] that it returned is dropped.
//! 2. Reads of a copy are no use of the data: they leave heat alone and promote nothing.

pub(crate) mod watch;

use std::cell::{Cell, RefCell};

use crate::backend::{Backend, Piece, Pieces};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::error::Error;
use crate::group::Volume;
use crate::marked::Marked;
use crate::units::CHUNK;
use crate::wait;
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
    /// The device confirmed a write and a sync, and gives something else.
    #[error("the device does not keep what is written to it, at byte {offset} and elsewhere")]
    Unkept {
        /// First byte of the first such piece.
        offset: u64,
    },
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
}

impl<E: Env, D: Device> Drop for Dissolve<E, D> {
    fn drop(&mut self) {
        self.volume.info.watch.end();
    }
}

impl<E: Env, D: Device> Dissolve<E, D> {
    /// Begins to note what is changed. Nothing is written yet. A piece has `piece` bytes ([`PIECE`]), a multiple of those of
    /// a chunk.
    pub fn begin(volume: Volume<E>, onto: D, piece: u64) -> Result<Dissolve<E, D>, DissolveError> {
        let size = volume.size();
        if onto.size() < size {
            return Err(DissolveError::TooSmall { need: size, has: onto.size() });
        }
        if !volume.info.watch.begin(size / CHUNK) {
            return Err(DissolveError::Twice);
        }
        let unsure = RefCell::new(Marked::new(size.div_ceil(piece)));
        let zero = || Cell::new(0);
        let (done, total, written) = (zero(), Cell::new(size), zero());
        Ok(Dissolve { volume, onto, size, piece, unsure, phase: Cell::default(), done, total, written })
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
        let (mut blind, mut left) = (1, 0);
        for wave in pieces_of(0..self.size.div_ceil(self.piece)) {
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
        for _ in 0..ROUNDS {
            self.note_changes();
            if self.unsure.borrow().count() == 0 {
                break;
            }
            let changed = self.round(Phase::Checking).await?;
            if changed <= FEW {
                break;
            }
        }
        Ok(())
    }

    /// Has the volume stand still, and makes both the same. The caller sees to it that nobody misses it.
    pub async fn finish(&self) -> Result<Frozen, DissolveError> {
        let frozen = freeze(&self.volume).await;
        self.note_changes();
        // The first round writes, the second finds it equal.
        self.round(Phase::Finishing).await?;
        self.round(Phase::Finishing).await?;
        if self.volume.size() != self.size {
            return Err(DissolveError::Resized);
        }
        match self.unsure.borrow().iter().next() {
            Some(piece) => Err(DissolveError::Unkept { offset: piece * self.piece }),
            None => Ok(frozen),
        }
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
        changed.iter().for_each(|chunk| unsure.add(chunk * CHUNK / self.piece));
    }

    /// Compares what is unsure, and writes what differs; how many pieces did.
    async fn round(&self, phase: Phase) -> Result<u64, DissolveError> {
        let pieces: Vec<u64> = self.unsure.borrow().iter().collect();
        self.enter(phase, pieces.len() as u64 * self.piece);
        let mut different = 0;
        for wave in pieces_of(pieces) {
            different += self.wave(&wave, true).await? as u64;
        }
        if different > 0 {
            self.sync().await?;
        }
        Ok(different)
    }

    /// Brings pieces to the device; how many were different, or written without asking.
    async fn wave(&self, wave: &[u64], compare: bool) -> Result<usize, DissolveError> {
        let results = wait::all(wave.iter().map(|piece| self.bring(*piece, compare)).collect()).await;
        let mut different = 0;
        for result in results {
            different += usize::from(result?);
        }
        Ok(different)
    }

    async fn bring(&self, piece: u64, compare: bool) -> Result<bool, DissolveError> {
        let offset = piece * self.piece;
        let len = self.piece.min(self.size - offset);
        let read = self.volume.core.read_unnoticed(&self.volume.info, offset, len).await;
        let content = read.map_err(|source| DissolveError::Source { offset, source })?;
        let failed = |source| DissolveError::Onto { offset, source };
        // Zeros are never written blindly: a file that was just made keeps its holes.
        let zeros = content.iter().all(|p| matches!(p, Piece::Zero(_)));
        let mut equal = false;
        if compare || zeros {
            let (there, result) = self.onto.read(offset, BufMut::new(len as usize)).await;
            result.map_err(failed)?;
            equal = is_equal(&content, &there);
        }
        if equal {
            self.unsure.borrow_mut().remove(piece);
        } else {
            self.unsure.borrow_mut().add(piece);
            self.onto.write(offset, whole(&content, len).freeze()).await.map_err(failed)?;
            self.written.set(self.written.get() + len);
        }
        self.done.set(self.done.get() + len);
        Ok(!equal)
    }

    async fn sync(&self) -> Result<(), DissolveError> {
        self.onto.sync().await.map_err(|source| DissolveError::Onto { offset: 0, source })
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

fn is_equal(content: &Pieces, there: &[u8]) -> bool {
    let mut rest = there;
    content.iter().all(|piece| {
        let (mine, others) = rest.split_at(piece.len() as usize);
        rest = others;
        match piece {
            Piece::Data(data) => data[..] == *mine,
            Piece::Zero(_) => is_zero(mine),
        }
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    // Compared with itself, moved by one: as fast as memory is.
    bytes.split_first().is_none_or(|(first, rest)| *first == 0 && *rest == bytes[..rest.len()])
}

/// The content in one buffer.
fn whole(content: &Pieces, len: u64) -> BufMut {
    let mut buf = BufMut::new(len as usize);
    let mut at = 0;
    for piece in content {
        let to = &mut buf[at..at + piece.len() as usize];
        match piece {
            Piece::Data(data) => to.copy_from_slice(data),
            Piece::Zero(_) => to.fill(0),
        }
        at += to.len();
    }
    buf
}
