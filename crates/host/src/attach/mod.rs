//! A volume as a block device `/dev/...`, by the best means this machine has.
//!
//! The kernel's NBD client comes first: nothing stands between the kernel and the daemon. Where its module is missing,
//! the daemon shows the volume as a file in a FUSE mount, and a loop device with direct I/O makes a block device of it.
//! Everything here blocks and belongs into a command, never into the daemon: a daemon that waits for its own volume
//! never wakes up.

mod fuse;
mod kernel_nbd;
pub(crate) mod loop_device;
pub(crate) mod tools;

use std::path::PathBuf;

use crate::locator::NbdLocator;

/// How a volume becomes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The kernel's NBD client.
    Nbd,
    /// A FUSE file under a loop device.
    Fuse,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Via::Nbd => "nbd",
            Via::Fuse => "fuse",
        })
    }
}

/// What is to be attached.
pub struct Request<'a> {
    /// Where the daemon exports the volume.
    pub export: NbdLocator,
    /// Has the daemon show the volume as a file in a FUSE mount, and gives its path; or says why it cannot.
    pub show_file: &'a dyn Fn() -> Result<PathBuf, String>,
    /// No writes.
    pub read_only: bool,
    /// Logical sector of the block device, in bytes.
    pub sector_size: u32,
    /// The wanted way; `None` takes the best.
    pub via: Option<Via>,
}

/// An attached volume, with all that [`detach`] needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// How it was done.
    pub via: Via,
    /// The block device.
    pub device: PathBuf,
    /// The daemon's FUSE mount, if that is the way.
    pub mount_dir: Option<PathBuf>,
    /// The process that serves it besides the daemon, if there is one.
    pub helper_pid: Option<u32>,
    /// Why this way was taken, in words.
    pub why: String,
}

/// Why a volume could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Only root may make block devices.
    #[error(
        "attaching needs root, because only root may make block devices; run it with sudo, or use the volume \
             through any NBD client ({uri})"
    )]
    NotRoot {
        /// How to reach the volume without.
        uri: String,
    },
    /// A way cannot be gone here.
    #[error("{via} cannot be used here: {why}")]
    Unavailable {
        /// The way.
        via: Via,
        /// What is missing, and how to get it.
        why: String,
    },
    /// No way can be gone here.
    #[error("no way to make a block device on this machine.\n  by nbd: {nbd}\n  by fuse: {fuse}")]
    NoWay {
        /// Why not by the kernel's NBD client.
        nbd: String,
        /// Why not by FUSE.
        fuse: String,
    },
    /// The device is in use.
    #[error("{device} is in use: {by}", device = device.display())]
    InUse {
        /// The device.
        device: PathBuf,
        /// By whom, and what to do.
        by: String,
    },
    /// A step failed.
    #[error("{step}: {why}")]
    Step {
        /// What was tried.
        step: String,
        /// What was said.
        why: String,
    },
}

impl AttachError {
    fn step(step: impl Into<String>, why: impl std::fmt::Display) -> AttachError {
        AttachError::Step { step: step.into(), why: why.to_string() }
    }
}

/// Makes a block device of a volume. What was begun is taken back when a step fails.
pub fn attach(request: &Request<'_>) -> Result<Attached, AttachError> {
    if !tools::is_root() {
        return Err(AttachError::NotRoot { uri: request.export.to_string() });
    }
    match request.via {
        Some(Via::Nbd) => {
            kernel_nbd::available().map_err(|why| AttachError::Unavailable { via: Via::Nbd, why })?;
            kernel_nbd::attach(request, "you asked for it".into())
        }
        Some(Via::Fuse) => {
            fuse::available().map_err(|why| AttachError::Unavailable { via: Via::Fuse, why })?;
            fuse::attach(request, "you asked for it".into())
        }
        None => match kernel_nbd::available() {
            Ok(()) => kernel_nbd::attach(request, "the kernel's NBD client is the shortest way".into()),
            Err(nbd) => {
                fuse::available().map_err(|fuse| AttachError::NoWay { nbd: nbd.clone(), fuse })?;
                fuse::attach(request, format!("the kernel's NBD client cannot be used here: {nbd}"))
            }
        },
    }
}

/// Which ways can be gone on this machine, each with the reason if not.
pub fn ways() -> [(Via, Result<(), String>); 2] {
    [(Via::Nbd, kernel_nbd::available()), (Via::Fuse, fuse::available())]
}

/// Takes the block device away again. Refused while it is mounted or otherwise in use. Steps that were done before, or
/// by someone else, are no errors.
pub fn detach(attached: &Attached) -> Result<(), AttachError> {
    if !tools::is_root() {
        return Err(AttachError::Step { step: "detaching".into(), why: "this needs root; run it with sudo".into() });
    }
    if let Some(used) = crate::probe::usage::of(&attached.device) {
        return Err(AttachError::InUse { device: attached.device.clone(), by: used.to_string() });
    }
    match attached.via {
        Via::Nbd => kernel_nbd::detach(attached),
        Via::Fuse => fuse::detach(attached),
    }
}

#[cfg(test)]
mod tests;
