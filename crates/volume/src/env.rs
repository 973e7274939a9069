//! The engine's whole view of the outside world.
//!
//! `volume` contains no system call, thread, wall clock, file or socket: everything it needs comes through [`Env`],
//! so that the same code runs on io_uring and in the simulator.
//!
//! Contract of a [`Device`]:
//! 1. Offsets and lengths are multiples of [`crate::units::BLOCK`] and inside `size()`; buffers are page-aligned.
//! 2. A completed write may sit in a volatile cache until a `sync` that *began after its completion* has succeeded.
//! 3. Unsynced writes may be kept, dropped or torn at the atomic unit (512 bytes) by a power cut, in any order.
//! 4. `discard` makes the content of the range undefined; it is a hint and may do nothing.
//! 5. A request whose future is dropped before completion still runs to its end; the device owns its buffer until then.

use std::future::Future;
use std::time::Duration;

use crate::buf::{Buf, BufMut};

/// Nanoseconds since an arbitrary start; never goes backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Time that passed from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `d` after `self`.
    #[must_use]
    pub fn plus(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.as_nanos() as u64))
    }
}

/// Devices, clock, tasks and randomness of one group.
pub trait Env: Clone + 'static {
    /// The kind of device this environment has.
    type Device: Device;

    /// The time now.
    fn now(&self) -> Instant;

    /// Completes `d` from now.
    fn sleep(&self, d: Duration) -> impl Future<Output = ()> + 'static;

    /// Runs `task` on the group's thread, beside the caller.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);

    /// A random number; seeded in the simulator.
    fn random(&self) -> u64;

    /// Wall clock in seconds since 1970, only to be shown to people.
    fn unix_seconds(&self) -> u64;
}

/// What a device is able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTraits {
    /// Discards reach the medium (BLKDISCARD, hole punch, NBD TRIM).
    pub discard: bool,
    /// Random access is slow (a disk with a head).
    pub rotational: bool,
}

/// How a device answers at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answering {
    /// Requests without an answer yet.
    pub waiting: u64,
    /// When the oldest of them was made.
    pub oldest: Option<Instant>,
    /// Since when nothing was answered at all, although something waits.
    pub silent_since: Option<Instant>,
    /// Why nothing will be answered any more before it is opened anew: every request fails.
    pub lost: Option<String>,
}

/// A block device, file, or remote disk. Cloning gives another handle to the same device.
pub trait Device: Clone + 'static {
    /// Size in bytes, rounded down to a multiple of 4096.
    fn size(&self) -> u64;

    /// What it is able to do.
    fn traits(&self) -> DeviceTraits;

    /// Reads `buf.len()` bytes at `offset` into `buf`, and gives the buffer back.
    fn read(&self, offset: u64, buf: BufMut) -> impl Future<Output = (BufMut, Result<(), DeviceError>)>;

    /// Writes all of `buf` at `offset`.
    fn write(&self, offset: u64, buf: Buf) -> impl Future<Output = Result<(), DeviceError>>;

    /// Makes every write that completed before this call durable.
    fn sync(&self) -> impl Future<Output = Result<(), DeviceError>>;

    /// Tells the device that `len` bytes at `offset` are not needed any more.
    fn discard(&self, offset: u64, len: u64) -> impl Future<Output = Result<(), DeviceError>>;

    /// How it answers: to be told to people, and where new chunks do not go.
    fn answering(&self) -> Answering {
        Answering::default()
    }

    /// Whether every request fails until it is opened anew.
    fn is_lost(&self) -> bool {
        false
    }
}

/// Why a device request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device reported an error; the value is an errno.
    #[error("I/O error (errno {0})")]
    Io(i32),
    /// No space left below the device (a full file system under a file member).
    #[error("no space left on the file system below the member")]
    NoSpace,
    /// The server of a remote member has no space left.
    #[error("no space left at the server of the member")]
    RemoteNoSpace,
    /// The connection to a remote member was lost; the outcome of requests in flight is unknown.
    #[error("connection lost")]
    Disconnected,
    /// The device cannot do this.
    #[error("not supported by the device")]
    Unsupported,
}
