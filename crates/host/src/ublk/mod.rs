//! ublk: block devices `/dev/ublkbN` that a process serves through its io_uring (Linux 6.5 or later).
//!
//! [`Control`] makes, starts, stops and hands over devices, [`Queue`] brings their requests. A device is *live* while a
//! process serves it, *quiesced* when that process has died: its requests wait, and another process can take it over.
//! A device that was made and not started, or stopped and not removed, is *dead*.
//!
//! One hardware queue per device, since one thread serves it. Data are copied once, by the kernel, between the pages of
//! the request and the buffer of its tag. The other way (`UBLK_F_USER_COPY`: the daemon reads and writes the queue's
//! file) would save the copy from a member's buffer into the tag's, and with it the tag's buffers; but it costs a
//! system call per request, since the ring can only hand such reads and writes to a worker thread.

mod abi;
mod control;
mod queue;
mod trust;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use abi::{IoDesc, Kind, MAX_QUEUE_DEPTH};
pub use control::Control;
pub use queue::Queue;
pub use trust::Untrusted;

const CONTROL: &str = "/dev/ublk-control";

/// Number of a device: the N of `/dev/ublkbN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(u32);

impl DeviceId {
    /// The block device.
    pub fn path(self) -> PathBuf {
        format!("/dev/ublkb{}", self.0).into()
    }

    /// The device behind a path of that form.
    pub fn of(path: &Path) -> Option<DeviceId> {
        path.to_str()?.strip_prefix("/dev/ublkb")?.parse().ok().map(DeviceId)
    }

    /// Bytes of the block device; none if there is no such device.
    pub fn size(self) -> u64 {
        crate::probe::sysfs::number(&self.sysfs().join("size")).map_or(0, |sectors| sectors * 512)
    }

    /// Whether the block device takes no writes.
    pub fn is_read_only(self) -> bool {
        crate::probe::sysfs::number(&self.sysfs().join("ro")) == Some(1)
    }

    fn sysfs(self) -> PathBuf {
        format!("/sys/block/ublkb{}", self.0).into()
    }
}

/// How large a device is, and what it takes. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Its size.
    pub size: u64,
    /// Logical sector: 512 or 4096.
    pub sector_size: u32,
    /// Unit that is written without reading first, and that can be discarded. A power of two.
    pub block_size: u32,
    /// Unit that is best for large requests. A power of two.
    pub optimal: u32,
    /// No writes.
    pub read_only: bool,
    /// Largest read or write: whole pages, at most 32 MiB.
    pub max_bytes: u32,
    /// Requests at a time: 1 to [`MAX_QUEUE_DEPTH`].
    pub depth: u16,
}

/// What the driver can do, as its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

/// Where a device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started, or stopped.
    Dead,
    /// A process serves it, or has died a moment ago.
    Live,
    /// It waits for a process to take it over.
    Quiesced,
}

/// A device that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub id: DeviceId,
    /// Where it stands.
    pub state: State,
    /// The process that made it, started it or took it over last.
    pub pid: Option<u32>,
    /// What it was made with.
    pub tag: u64,
    /// Requests at a time.
    pub depth: u16,
    /// Largest read or write in bytes.
    pub max_bytes: u32,
}

/// Why something could not be done with ublk.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The kernel does not have it.
    #[error("this kernel has no ublk driver (module ublk_drv, Linux 6.5 or later)")]
    Missing,
    /// It cannot do what is needed.
    #[error("this kernel's ublk driver cannot hand a device from one daemon to the next (Linux 6.5 or later can)")]
    TooOld,
    /// Only root may, as the driver said when it was first asked.
    #[error("no permission to use {CONTROL}: the daemon must run as root")]
    Denied,
    /// The control device does not work.
    #[error("{CONTROL} cannot be used: {0}")]
    Control(#[source] io::Error),
    /// Too many or too few requests at a time.
    #[error("a ublk device takes 1 to {MAX_QUEUE_DEPTH} requests at a time, not {0}")]
    Depth(u16),
    /// A sector size that does not exist.
    #[error("a ublk device has sectors of 512 or 4096 bytes, not {0}")]
    Sector(u32),
    /// Requests too large, too small, or not in whole pages.
    #[error("requests of a ublk device are at most 4096 bytes to 32 MiB in whole pages, not {0}")]
    Size(u32),
    /// A command failed.
    #[error("{}: {step} failed: {source}", name(*.device))]
    Command {
        /// What was tried.
        step: &'static str,
        /// With which device.
        device: Option<DeviceId>,
        /// What the kernel said.
        source: io::Error,
    },
    /// The queue of a device cannot be opened.
    #[error("{path} cannot be opened: {source}", path = path.display())]
    Queue {
        /// Its path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn name(device: Option<DeviceId>) -> String {
    device.map_or_else(|| "ublk".into(), |id| id.path().display().to_string())
}

impl UblkError {
    fn command(step: &'static str, device: Option<DeviceId>, source: io::Error) -> UblkError {
        UblkError::Command { step, device, source }
    }
}

/// Whether it can be used here, or why not. Loads the module if it can.
pub fn available() -> Result<(), UblkError> {
    if !Path::new(CONTROL).exists() {
        if let Some(modprobe) = crate::attach::tools::find("modprobe") {
            // Without the module, opening the control device says what is missing.
            let _ = crate::attach::tools::run(Command::new(modprobe).args(["-q", "ublk_drv"]));
        }
    }
    Control::open()?.features().map(|_| ())
}

/// What the block layer is told about a live device beyond its limits: no scheduler, since the engine has its own
/// order; and one request less at a time than there are tags. When a process dies with all tags in its hands the kernel
/// notices only when a request times out, after 30 s; a tag that is never used lets it notice at once.
///
/// This waits for requests that are under way. So it is nothing for the daemon that answers them: if that died
/// meanwhile, its process would wait for the next daemon, and the next daemon for the members that the process has
/// open.
pub fn tune(id: DeviceId, depth: u16) {
    let queue = id.sysfs().join("queue");
    // Without, it works as well.
    let _ = std::fs::write(queue.join("scheduler"), "none");
    let _ = std::fs::write(queue.join("nr_requests"), depth.saturating_sub(1).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_paths() {
        assert_eq!(DeviceId::of(Path::new("/dev/ublkb12")), Some(DeviceId(12)));
        for other in ["/dev/ublkc1", "/dev/nbd0", "/dev/ublkb", "/dev/ublkb1p1", "ublkb1"] {
            assert_eq!(DeviceId::of(Path::new(other)), None, "{other}");
        }
        assert_eq!(DeviceId(3).queue_path(), Path::new("/dev/ublkc3"));
    }

    #[test]
    fn without_the_driver_there_are_words() {
        match Control::open() {
            Ok(mut control) => assert!(control.features().is_ok() || !Path::new("/sys/class/ublk-char").exists()),
            Err(e) => {
                assert!(e.to_string().contains("ublk"), "{e}");
            }
        }
    }

    #[test]
    fn refusals_name_the_device_and_the_step() {
        let id = DeviceId(4);
        let busy = UblkError::command("starting it", Some(id), io::Error::from_raw_os_error(libc::EBUSY));
        assert!(busy.to_string().starts_with("/dev/ublkb4: starting it failed"), "{busy}");
        // A step that is not permitted does not mean that ublk cannot be used: there may be devices.
        let denied = UblkError::command("taking it over", Some(id), io::Error::from_raw_os_error(libc::EPERM));
        assert!(matches!(denied, UblkError::Command { .. }), "{denied}");
        assert!(denied.to_string().starts_with("/dev/ublkb4: taking it over failed"), "{denied}");
    }
}
