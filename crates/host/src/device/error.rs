//! Why a device could not be opened, and errno values as device errors.

use std::io;
use std::path::PathBuf;

use bimetal_volume::env::DeviceError;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No such file.
    #[error("{path} does not exist; for a file member make one first: truncate -s 8G {path}", path = path.display())]
    Missing {
        /// What was named.
        path: PathBuf,
    },
    /// A directory, pipe or the like.
    #[error("{path} is {kind}; a member is a block device or a regular file", path = path.display())]
    WrongKind {
        /// What was named.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// No permission.
    #[error("no permission to open {path}; run as root, or as a user who may {how} it", path = path.display())]
    Denied {
        /// What was named.
        path: PathBuf,
        /// Read or write.
        how: &'static str,
    },
    /// Someone else has it open for itself.
    #[error("{path} is in use by {by}; stop that first", path = path.display())]
    Busy {
        /// What was named.
        path: PathBuf,
        /// By whom, as far as known.
        by: String,
    },
    /// Another daemon or command serves the disk behind an NBD server.
    #[error("{locator} is in use by {by}")]
    Held {
        /// The server.
        locator: String,
        /// By whom, as far as known, and what to do.
        by: String,
    },
    /// It cannot be written.
    #[error("{path} is read-only; make it writable, or open the group with --read-only", path = path.display())]
    ReadOnly {
        /// What was named.
        path: PathBuf,
    },
    /// There is no NBD server where one should be.
    #[error("{locator}: {why}")]
    NoServer {
        /// The server.
        locator: String,
        /// How that was found out.
        why: String,
    },
    /// There is an NBD server, or may be one, and it cannot be used at this moment.
    #[error("{locator}: {why}")]
    Nbd {
        /// The server.
        locator: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// It is there, and fails where it says who serves it.
    #[error("{locator}: {why}")]
    Unread {
        /// The server, or the device.
        locator: String,
        /// What failed.
        why: String,
    },
    /// Anything else: it is there, or may be.
    #[error("{path} cannot be opened: {source}", path = path.display())]
    Io {
        /// What was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The device error of an errno.
pub(crate) fn from_errno(errno: i32) -> DeviceError {
    match errno {
        libc::ENOSPC | libc::EDQUOT => DeviceError::NoSpace,
        libc::EOPNOTSUPP | libc::ENOSYS => DeviceError::Unsupported,
        libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN | libc::ESHUTDOWN => DeviceError::Disconnected,
        errno => DeviceError::Io(errno),
    }
}
