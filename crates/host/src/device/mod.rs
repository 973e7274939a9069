//! Devices of the host: files, block devices, disks behind NBD servers, and emulated disks.

mod allocate;
pub mod emulated;
pub mod error;
pub mod file;
pub mod nbd;
mod partitions;
mod rest;
mod waits;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, Device, DeviceError, DeviceTraits};

use crate::locator::Locator;
use crate::reactor::HostEnv;
use emulated::EmulatedDevice;
pub use error::OpenError;
use file::FileDevice;
use nbd::NbdDevice;

/// Syncs that failed in this process.
static FAILED_SYNCS: AtomicU64 = AtomicU64::new(0);

/// How many syncs of devices have failed in this process. A kernel tells of what it could not write once: whoever is told
/// is the only one who knows, also if all that it wanted was to look.
pub fn failed_syncs() -> u64 {
    FAILED_SYNCS.load(Ordering::Relaxed)
}

/// One more sync has failed.
pub(crate) fn sync_failed() {
    FAILED_SYNCS.fetch_add(1, Ordering::Relaxed);
}

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Whether writes are possible.
    pub write: bool,
    /// Keep others out while it is open: alone if `write` is set, else together with other readers.
    pub lock: bool,
    /// Where no kernel keeps others out, ask whoever serves the device, which takes a write to its lease though it is only to be read.
    pub ask: bool,
}

impl Access {
    /// For serving a group, alone.
    pub const SERVE: Access = Access { write: true, lock: true, ask: true };
    /// For serving a group for reading, together with others who read.
    pub const READ: Access = Access { write: false, lock: true, ask: true };
    /// For looking at an idle member, together with others who look. Writes nothing at all.
    pub const INSPECT: Access = Access { write: false, lock: true, ask: false };
    /// For looking at a device whoever uses it.
    pub const PEEK: Access = Access { write: false, lock: false, ask: false };
}

/// A device of any kind. Cloning gives another handle to the same one.
#[derive(Clone)]
pub enum HostDevice {
    /// A file or block device.
    File(FileDevice),
    /// A file behind a model of a disk.
    Emulated(EmulatedDevice),
    /// A disk behind an NBD server.
    Nbd(NbdDevice),
}

impl HostDevice {
    /// Opens what `locator` names.
    pub async fn open(env: &HostEnv, locator: &Locator, access: Access) -> Result<HostDevice, OpenError> {
        match locator {
            Locator::Path(path) => open_file(env, path, access).await.map(HostDevice::File),
            Locator::Emulated { model, path } => {
                let file = open_file(env, path, access).await?;
                Ok(HostDevice::Emulated(EmulatedDevice::new(env, file, model)))
            }
            Locator::Nbd(nbd) => NbdDevice::open(env, nbd, access).await.map(HostDevice::Nbd),
        }
    }

    /// Waits no longer for a disk behind a server: its connection ends, and all its requests fail. False of any other, whose
    /// requests only the kernel can end.
    pub fn give_up(&self, why: &str) -> bool {
        let HostDevice::Nbd(device) = self else { return false };
        device.give_up(why);
        true
    }

    /// What lies behind the last whole block: less than one, in which nothing is stored.
    pub async fn rest(&self) -> Result<Vec<u8>, DeviceError> {
        match self {
            HostDevice::File(d) => d.rest().await,
            HostDevice::Emulated(d) => d.file().rest().await,
            HostDevice::Nbd(_) => Ok(Vec::new()),
        }
    }

    /// Replaces that, durably; `content` is as long.
    pub async fn put_rest(&self, content: Vec<u8>) -> Result<(), DeviceError> {
        match self {
            HostDevice::File(d) => d.put_rest(content).await,
            HostDevice::Emulated(d) => d.file().put_rest(content).await,
            HostDevice::Nbd(_) => Ok(()),
        }
    }

    /// Has the kernel forget partitions that are not (any more) in the table on the device. Best effort: it cannot while one of
    /// them is open.
    pub async fn read_partitions_anew(&self) {
        match self {
            HostDevice::File(d) => d.read_partitions_anew().await,
            HostDevice::Emulated(d) => d.file().read_partitions_anew().await,
            HostDevice::Nbd(_) => {}
        }
    }

    /// Takes room for a range where the device is a file with holes: what is to be written there whenever it must be cannot wait for a
    /// file system that is full by then. Content and size stay. `NoSpace` if there is none now.
    pub async fn allocate(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self {
            HostDevice::File(d) => d.allocate(offset, len).await,
            HostDevice::Emulated(d) => d.file().allocate(offset, len).await,
            HostDevice::Nbd(_) => Ok(()),
        }
    }

    /// Whether the name by which it was opened still leads to it: a file may be moved, removed or replaced while it is open, and a
    /// name in `/dev` become another disk's. What a server shows under a name is its own affair.
    pub async fn is_at_its_name(&self) -> std::io::Result<bool> {
        match self {
            HostDevice::File(d) => d.is_at_its_path().await,
            HostDevice::Emulated(d) => d.file().is_at_its_path().await,
            HostDevice::Nbd(_) => Ok(true),
        }
    }

    /// Sizes of the logical and physical sector, in bytes.
    pub fn sector_sizes(&self) -> (u32, u32) {
        match self {
            HostDevice::File(d) => d.sector_sizes(),
            HostDevice::Emulated(d) => d.file().sector_sizes(),
            HostDevice::Nbd(_) => (512, 4096),
        }
    }
}

/// Opens a file or block device; to be served only if nobody serves it by a server, and to be read beside nobody who is known to.
async fn open_file(env: &HostEnv, path: &Path, access: Access) -> Result<FileDevice, OpenError> {
    let file = FileDevice::open(env, path, access).await?;
    match (access.lock, access.write) {
        (false, _) => {}
        (true, true) => nbd::lease::ask_here(env, &file).await?,
        (true, false) => nbd::lease::look_here(env, &file).await?,
    }
    Ok(file)
}

impl Device for HostDevice {
    fn size(&self) -> u64 {
        match self {
            HostDevice::File(d) => d.size(),
            HostDevice::Emulated(d) => d.file().size(),
            HostDevice::Nbd(d) => d.size(),
        }
    }

    fn traits(&self) -> DeviceTraits {
        match self {
            HostDevice::File(d) => d.traits(),
            HostDevice::Emulated(d) => d.traits(),
            HostDevice::Nbd(d) => d.traits(),
        }
    }

    async fn read(&self, offset: u64, buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        match self {
            HostDevice::File(d) => d.read(offset, buf).await,
            HostDevice::Emulated(d) => d.read(offset, buf).await,
            HostDevice::Nbd(d) => d.read(offset, buf).await,
        }
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        match self {
            HostDevice::File(d) => d.write(offset, buf).await,
            HostDevice::Emulated(d) => d.write(offset, buf).await,
            HostDevice::Nbd(d) => d.write(offset, buf).await,
        }
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        let synced = match self {
            HostDevice::File(d) => d.sync().await,
            HostDevice::Emulated(d) => d.file().sync().await,
            HostDevice::Nbd(d) => d.sync().await,
        };
        if synced.is_err() {
            sync_failed();
        }
        synced
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        match self {
            HostDevice::File(d) => d.discard(offset, len).await,
            HostDevice::Emulated(d) => d.discard(offset, len).await,
            HostDevice::Nbd(d) => d.discard(offset, len).await,
        }
    }

    fn answering(&self) -> Answering {
        match self {
            HostDevice::File(d) => d.answering(),
            HostDevice::Emulated(d) => d.file().answering(),
            HostDevice::Nbd(d) => d.answering(),
        }
    }

    fn is_lost(&self) -> bool {
        match self {
            HostDevice::File(_) | HostDevice::Emulated(_) => false,
            HostDevice::Nbd(d) => d.is_lost(),
        }
    }
}

#[cfg(test)]
mod tests;
