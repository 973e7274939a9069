//! Service-time models of disks and SSDs: how long requests take, without any data, I/O or waiting.
//!
//! - *Model*: given requests with the time they arrive, it says when each is complete. Times are nanoseconds of one
//!   virtual clock, rates are bytes per second, amounts are bytes.
//! - *Request*: one command of the host; *id*: the caller's name for it, handed back in its [`Completion`].
//! - A model may choose the order of service (a disk's command queue), so a completion is not known when its request is
//!   submitted. A caller submits, asks [`Model::next_event`], moves its clock there (or to its own next request,
//!   whichever is earlier), and takes what is complete. A replay loop does this directly; a simulated device sleeps in
//!   between.
//!
//! Reading order: `hdd` (head, command queue, write cache); `ftl` (pages and blocks of flash, garbage collection),
//! `ssd` (channels, link, write server, time of the garbage collection), `sandforce` (data reduction), `theory` (write
//! amplification in closed form), `catalog` (parameters of real devices).
//!
//! The models are deterministic: integers, and floating point only in operations that IEEE 754 defines exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub mod catalog;
pub mod ftl;
pub mod hdd;
pub mod sandforce;
pub mod ssd;
pub mod theory;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Says that the range is not needed any more. A disk ignores it.
    Trim,
    /// Makes durable what was complete when the flush was submitted; offset and length do not matter.
    Flush,
}

/// A command of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Request {
    /// A read of `len` bytes at `offset`.
    pub fn read(offset: u64, len: u64) -> Request {
        Request { op: Op::Read, offset, len }
    }

    /// A write of `len` bytes at `offset`.
    pub fn write(offset: u64, len: u64) -> Request {
        Request { op: Op::Write, offset, len }
    }

    /// A trim of `len` bytes at `offset`.
    pub fn trim(offset: u64, len: u64) -> Request {
        Request { op: Op::Trim, offset, len }
    }

    /// A flush.
    pub fn flush() -> Request {
        Request { op: Op::Flush, offset: 0, len: 0 }
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's name for the request.
    pub id: u64,
    /// When it was complete, in nanoseconds.
    pub at: u64,
}

/// Bytes of the longest read or write.
pub const MOST_BYTES: u64 = 1 << 30;
/// The end of virtual time (146 years): a later one counts as this, so that sums of times do not overflow.
pub const END_OF_TIME: u64 = 1 << 62;
/// Bytes per second of the slowest device, and nanoseconds of the longest fixed delay.
const SLOWEST: u64 = 1000;
const LONGEST_NS: u64 = 1_000_000_000_000;

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It reaches beyond the device.
    #[error("{len} bytes at {offset} are not within the {size} bytes of the device")]
    OutOfRange {
        /// First byte of the request.
        offset: u64,
        /// Bytes of the request.
        len: u64,
        /// Bytes of the device.
        size: u64,
    },
    /// A read or write of more than [`MOST_BYTES`].
    #[error("a read or write of {len} bytes; a request has at most 1 GiB")]
    TooLong {
        /// Bytes of the request.
        len: u64,
    },
    /// A read or write of no bytes.
    #[error("a read or write of no bytes at {offset}")]
    Empty {
        /// Where it was.
        offset: u64,
    },
}

/// Parameters of which no device can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such device: {0}")]
pub struct BadSpec(pub &'static str);

/// A device that only tells times.
pub trait Model {
    /// Bytes of the device.
    fn size(&self) -> u64;

    /// Takes a request that arrives at `now`. A time before that of an earlier call counts as that one. Fails, and
    /// changes nothing, if the request does not fit the device.
    fn submit(&mut self, now: u64, id: u64, request: Request) -> Result<(), Refused>;

    /// When something happens next if nothing more is submitted; `None` if nothing is on its way. There need not be a
    /// completion at that time.
    fn next_event(&mut self) -> Option<u64>;

    /// One request that was complete at `now` or before, in the order of time (and of submission, at the same time).
    fn complete(&mut self, now: u64) -> Option<Completion>;

    /// Runs until a request is complete, and returns it; `None` if none is on its way.
    fn wait(&mut self) -> Option<Completion> {
        loop {
            let at = self.next_event()?;
            if let Some(done) = self.complete(at) {
                return Some(done);
            }
        }
    }
}

/// Checks a request against the size of a device.
fn check(request: &Request, size: u64) -> Result<(), Refused> {
    let Request { op, offset, len } = *request;
    if op == Op::Flush {
        return Ok(());
    }
    if len == 0 && op != Op::Trim {
        return Err(Refused::Empty { offset });
    }
    match offset.checked_add(len) {
        Some(end) if end <= size && (len <= MOST_BYTES || op == Op::Trim) => Ok(()),
        Some(end) if end <= size => Err(Refused::TooLong { len }),
        _ => Err(Refused::OutOfRange { offset, len, size }),
    }
}

/// Nanoseconds that `bytes` take at `rate` bytes per second.
fn transfer_ns(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))) as u64
}

/// Completions whose time is known, earliest first, equal ones in the order they came.
#[derive(Clone, Debug, Default)]
struct Ready {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    count: u64,
}

impl Ready {
    fn push(&mut self, at: u64, id: u64) {
        self.heap.push(Reverse((at, self.count, id)));
        self.count += 1;
    }

    fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    fn pop(&mut self, now: u64) -> Option<Completion> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, id))| Completion { id, at })
    }
}
