//! What a device is, before it is taken as a member: its kind, size, sectors, who uses it and what it carries.

pub mod below;
pub mod disks;
pub mod loops;
pub mod mounts;
pub mod neighbours;
pub mod openers;
mod parts;
pub mod signatures;
pub mod sysfs;
pub mod usage;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use bimetal_volume::env::{Device, DeviceError};

use crate::device::{Access, HostDevice, OpenError};
use crate::locator::Locator;
use crate::reactor::HostEnv;
use signatures::Sample;
use usage::Use;

/// What was found out about a device that may become a member.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What was asked about.
    pub locator: Locator,
    /// A block device, not a file or a remote disk.
    pub block_device: bool,
    /// Bytes, in whole blocks of 4096.
    pub size: u64,
    /// Logical and physical sector size, in bytes.
    pub sector_sizes: (u32, u32),
    /// It has a head that moves.
    pub rotational: bool,
    /// It takes discards.
    pub discard: bool,
    /// It cannot be written, by whoever asks.
    pub read_only: bool,
    /// Who uses it, as far as this machine knows.
    pub used: Option<Use>,
    /// What it carries, in words.
    pub signatures: Vec<&'static str>,
}

/// Why a device is not taken as a member.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// It cannot even be looked at.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read.
    #[error("{device} cannot be read: {why}; look at the kernel's log, the device may be failing")]
    Unreadable {
        /// The device.
        device: String,
        /// What it said.
        why: String,
    },
    /// Someone uses it. Not to be forced.
    #[error("{device} is in use: {used}")]
    InUse {
        /// The device.
        device: String,
        /// By whom, and what to do.
        used: Use,
    },
    /// It cannot be written. Not to be forced.
    #[error("{device} is read-only; make it writable (blockdev --setrw, chmod, remount) or take another")]
    ReadOnly {
        /// The device.
        device: String,
    },
    /// Its sectors are not ones that members have. Not to be forced.
    #[error("{device} has sectors of {size} bytes; a member has sectors of 512 or 4096")]
    SectorSize {
        /// The device.
        device: String,
        /// Bytes.
        size: u32,
    },
    /// It carries something. To be forced by those who know.
    #[error("{device} carries {what}, which would be destroyed; if that is wanted, say --force")]
    Signature {
        /// The device.
        device: String,
        /// What it carries.
        what: String,
    },
}

/// Looks at a device without changing it or keeping others out.
pub async fn examine(env: &HostEnv, locator: &Locator) -> Result<Facts, Refusal> {
    let device = HostDevice::open(env, locator, Access::PEEK).await?;
    let path = locator.path();
    let meta = path.and_then(|p| fs::metadata(p).ok());
    let block_device = meta.as_ref().is_some_and(|m| m.file_type().is_block_device());
    let queue = meta.as_ref().and_then(sysfs::BlockQueue::of).filter(|_| block_device);
    let unreadable = |why: String| Refusal::Unreadable { device: locator.to_string(), why };
    let signatures = signatures(&device).await.map_err(|error| unreadable(error.to_string()))?;
    let traits = device.traits();
    // Whoever uses it, or what it is made of, may have to be asked: not on this thread.
    let used = match path.map(Path::to_owned) {
        Some(path) => env.blocking(move || usage::of(&path)).await.map_err(|e| unreadable(e.to_string()))?,
        None => None,
    };
    Ok(Facts {
        locator: locator.clone(),
        block_device,
        size: device.size(),
        sector_sizes: queue.map_or_else(|| device.sector_sizes(), |q| q.sector_sizes),
        rotational: traits.rotational,
        discard: queue.map_or(traits.discard || path.is_some(), |q| q.discard),
        read_only: path.is_some_and(|p| is_read_only(p, block_device)),
        used,
        signatures,
    })
}

/// What an open device carries, in words.
async fn signatures(device: &HostDevice) -> Result<Vec<&'static str>, DeviceError> {
    Ok(sample(device).await?.signatures())
}

/// What an open device is the leg of, if it is one of a [mirror](Sample::mirror), in words.
pub async fn mirror(device: &HostDevice) -> Result<Option<&'static str>, DeviceError> {
    Ok(sample(device).await?.mirror())
}

async fn sample(device: &HostDevice) -> Result<Sample, DeviceError> {
    let sample = Sample::read(device).await?;
    Ok(sample.with_rest(&device.rest().await?))
}

/// Looks again, at a device that is open to be taken as a new member. Its name may have been another's when it was
/// [looked at](examine).
pub async fn check_open(device: &HostDevice, locator: &Locator, force: bool) -> Result<(), Refusal> {
    refuse_sectors(locator, device.sector_sizes())?;
    let unreadable = |e: DeviceError| Refusal::Unreadable { device: locator.to_string(), why: e.to_string() };
    refuse_carried(locator, &signatures(device).await.map_err(unreadable)?, force)
}

fn refuse_sectors(locator: &Locator, (logical, physical): (u32, u32)) -> Result<(), Refusal> {
    match [logical, physical].into_iter().find(|s| !fits(*s)) {
        Some(size) => Err(Refusal::SectorSize { device: locator.to_string(), size }),
        None => Ok(()),
    }
}

fn refuse_carried(locator: &Locator, signatures: &[&str], force: bool) -> Result<(), Refusal> {
    match signatures.is_empty() || force {
        true => Ok(()),
        false => Err(Refusal::Signature { device: locator.to_string(), what: signatures.join(" and ") }),
    }
}

impl Facts {
    /// Whether it may be taken as a new member. `force` lets go what it carries, nothing else.
    pub fn check(&self, force: bool) -> Result<(), Refusal> {
        let device = self.locator.to_string();
        if let Some(used) = self.used.clone() {
            return Err(Refusal::InUse { device, used });
        }
        if self.read_only {
            return Err(Refusal::ReadOnly { device });
        }
        refuse_sectors(&self.locator, self.sector_sizes)?;
        refuse_carried(&self.locator, &self.signatures, force)
    }
}

/// Requests are multiples of 4096 bytes, so every power of two from 512 to that size divides them.
fn fits(sector: u32) -> bool {
    sector.is_power_of_two() && (512..=4096).contains(&sector)
}

fn is_read_only(path: &Path, block_device: bool) -> bool {
    if block_device {
        let number = fs::metadata(path).map(|m| sysfs::DeviceNumber::new(m.rdev()));
        return number.is_ok_and(|n| sysfs::number(&n.folder().join("ro")) == Some(1));
    }
    // Opening for writing changes nothing, and takes permissions and the file system's state into account.
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(_) => false,
        Err(error) => matches!(error.raw_os_error(), Some(libc::EROFS | libc::EPERM | libc::EACCES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Reactor;

    fn facts_of(path: &Path) -> Facts {
        let reactor = Reactor::new().expect("io_uring");
        let (env, locator) = (reactor.env(), Locator::Path(path.to_owned()));
        reactor.block_on(async move { examine(&env, &locator).await }).expect("facts")
    }

    #[test]
    fn an_empty_file_is_taken_and_one_with_a_file_system_only_by_force() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        file.as_file().set_len(8 << 20).expect("room");
        let facts = facts_of(file.path());
        assert_eq!((facts.size, facts.block_device, facts.read_only), (8 << 20, false, false));
        facts.check(false).expect("taken");
        std::os::unix::fs::FileExt::write_at(file.as_file(), b"XFSB", 0).expect("written");
        let facts = facts_of(file.path());
        let refusal = facts.check(false).expect_err("refused").to_string();
        assert!(refusal.contains("XFS") && refusal.contains("--force"), "{refusal}");
        facts.check(true).expect("forced");
    }

    #[test]
    fn use_sectors_and_write_protection_are_refused_even_by_force() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        file.as_file().set_len(1 << 20).expect("room");
        let good = facts_of(file.path());
        let used = Facts { used: Some(Use::Mounted { at: "/mnt".into() }), ..good.clone() };
        assert!(used.check(true).expect_err("refused").to_string().contains("unmount"));
        let odd = Facts { sector_sizes: (520, 520), ..good.clone() };
        assert!(odd.check(true).expect_err("refused").to_string().contains("520"));
        let fixed = Facts { read_only: true, ..good };
        assert!(fixed.check(true).expect_err("refused").to_string().contains("read-only"));
    }
}
