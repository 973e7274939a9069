//! Errors that callers decide on. One place, [`Error::errno`], maps them to what a client sees.

use crate::env::DeviceError;

/// Why a request on a volume failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The range is not inside the volume.
    #[error("request of {len} bytes at {offset} is beyond the end of the volume ({size} bytes)")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the volume in bytes.
        size: u64,
    },
    /// A member failed this request.
    #[error("member {member}: {source}")]
    Device {
        /// Which member.
        member: u8,
        /// What it said.
        source: DeviceError,
    },
    /// The content is on a member that is missing, or its map page is damaged.
    #[error("the data is lost or its member is missing")]
    Lost,
    /// The group is open read-only.
    #[error("the group is open read-only")]
    ReadOnly,
    /// The group refuses writes after a failed metadata write or sync (invariant I7).
    #[error("the group has stopped accepting writes: {0}")]
    Latched(String),
    /// No slot could be found. While I5 holds only after a repair without a member, where what a volume bound to a tier was promised
    /// is not free, and the mover does not bring it back.
    #[error("no free slot")]
    NoSpace,
    /// The volume is being copied, and stands still until both are the same.
    #[error("the volume stands still while the last of it is copied onto another device")]
    Frozen,
    /// The family of the volume is locked: its key is not here.
    #[error("the family of the volume is locked; `bimetal family unlock` opens it with a passphrase")]
    Locked,
    /// The volume was deleted.
    #[error("the volume was deleted")]
    Deleted,
    /// The group is shutting down.
    #[error("the group is stopping")]
    Stopping,
}

impl Error {
    /// The errno that an export reports.
    pub fn errno(&self) -> i32 {
        const EPERM: i32 = 1;
        const EIO: i32 = 5;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const EROFS: i32 = 30;
        const ESHUTDOWN: i32 = 108;
        match self {
            Error::OutOfRange { .. } => EINVAL,
            Error::Device { source: DeviceError::NoSpace | DeviceError::RemoteNoSpace, .. } | Error::NoSpace => ENOSPC,
            Error::Device { .. } | Error::Lost | Error::Latched(_) => EIO,
            Error::ReadOnly | Error::Frozen => EROFS,
            Error::Locked => EPERM,
            Error::Deleted | Error::Stopping => ESHUTDOWN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_lacks_is_told_as_such_wherever_it_lacks() {
        for source in [DeviceError::NoSpace, DeviceError::RemoteNoSpace] {
            assert_eq!(Error::Device { member: 1, source }.errno(), 28);
        }
    }
}
