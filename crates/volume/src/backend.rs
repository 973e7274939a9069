//! The face of a volume towards its exports: what any block export (NBD, FUSE, ublk) may ask.

use std::future::Future;

use smallvec::SmallVec;

use crate::buf::Buf;
use crate::error::Error;

/// A part of the answer to a read.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes from a member.
    Data(Buf),
    /// So many zero bytes; nothing was stored there.
    Zero(u64),
}

impl Piece {
    /// Bytes of the answer that it stands for.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Data(b) => b.len() as u64,
            Piece::Zero(n) => *n,
        }
    }

    /// Whether it stands for no byte at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The answer to a read, in order, without gaps.
pub type Pieces = SmallVec<[Piece; 2]>;

/// State of a range of a volume, as BLOCK_STATUS shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// The blocks hold data, or may have held some that is lost; otherwise the range reads as zeros.
    pub data: bool,
    /// 0 unmapped, 1 fast, 2 slow, 3 both.
    pub tier: u8,
    /// 0 (cold) to 15 (hot).
    pub heat: u8,
}

/// Options of a write-like request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Durable before the answer (force unit access).
    pub fua: bool,
    /// For zeroing: keep the range allocated (NBD `NO_HOLE`).
    pub no_hole: bool,
    /// Answered only when the death of this process cannot undo it (that of the machine may): for clients that go on
    /// with the next process as if nothing had happened.
    pub outlives: bool,
}

/// Bytes that a zeroing which keeps its range allocated writes at a time.
pub const ZERO_RUN: u64 = 1 << 20;

/// Whether a request is still wanted. It is asked before each step of it that changes something, when nothing stands before that any
/// more; once it is not, the request ends with [`Error::Stopping`], and a part of its range may have been changed. What a client asked
/// for that is dead must not overtake what the next one has been told is done.
pub type Wanted<'a> = &'a dyn Fn() -> bool;

/// For a request that is wanted to its end.
pub const TO_ITS_END: Wanted<'static> = &|| true;

/// A block device that can be exported. Ranges are in bytes, of any alignment; the callee checks that they lie inside
/// `size()`. Cloning gives another handle.
pub trait Backend: Clone + 'static {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Whether writes are refused.
    fn read_only(&self) -> bool;
    /// Whether every request is refused with [`Error::Locked`].
    fn is_locked(&self) -> bool {
        false
    }
    /// Preferred and minimal natural block size, in bytes (512 or 4096).
    fn sector_size(&self) -> u32;
    /// A number that is another one after each request that may have changed the content, of whatever client, has ended. Always the same
    /// where nobody counts.
    fn changes(&self) -> u64 {
        0
    }
    /// Somebody has it from now on: a client that chose it, a file that was opened, a block device. Gives what
    /// [`Backend::arrivals`] says then.
    fn arrive(&self) -> u64 {
        0
    }
    /// How many came so far, by whatever way. Always the same where nobody counts.
    fn arrivals(&self) -> u64 {
        0
    }
    /// One of those has it no longer, and nothing that it asked for is under way.
    fn depart(&self) {}
    /// How many have it now. Who is not seen to depart still counts.
    fn present(&self) -> u64 {
        0
    }
    /// Reads `len` bytes.
    fn read(&self, offset: u64, len: u64) -> impl Future<Output = Result<Pieces, Error>>;
    /// Writes `data`, which was built with `BufMut::with_phase(_, offset)`.
    fn write(&self, offset: u64, data: Buf, flags: WriteFlags) -> impl Future<Output = Result<(), Error>> {
        self.write_while(offset, data, flags, TO_ITS_END)
    }
    /// The same as long as that is `wanted`.
    fn write_while(
        &self,
        offset: u64,
        data: Buf,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<(), Error>>;
    /// Makes everything that was answered before durable.
    fn flush(&self) -> impl Future<Output = Result<(), Error>>;
    /// Forgets the whole 4 KiB blocks inside the range: they read as zeros afterwards.
    fn trim(&self, offset: u64, len: u64, flags: WriteFlags) -> impl Future<Output = Result<(), Error>> {
        self.trim_while(offset, len, flags, TO_ITS_END)
    }
    /// The same as long as that is `wanted`.
    fn trim_while(
        &self,
        offset: u64,
        len: u64,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<(), Error>>;
    /// Zeroes exactly the range, as long as that is `wanted`.
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> impl Future<Output = Result<(), Error>>;
    /// A hint that the range will be used soon: a promotion hint, of which nothing more comes once it is not `wanted`.
    fn cache(&self, offset: u64, len: u64, wanted: Wanted<'_>) -> impl Future<Output = Result<(), Error>>;
    /// Describes the range in order, without gaps, in at most `max` extents (at least one; fewer may cover less than
    /// the range).
    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error>;
}
