//! Room for what must be writable whenever it has to be: a file with holes lies on a file system that may be full by then.

use std::os::fd::{AsRawFd, OwnedFd};

use bimetal_volume::env::DeviceError;

use super::error::from_errno;

/// What `statfs` calls a file system in memory. There a hole costs nothing, and room is memory.
const TMPFS_MAGIC: libc::c_long = 0x0102_1994;

/// Takes room for a range of a file, where there are holes; its content and size stay. What the file system cannot do it is not asked
/// for again. Blocks.
pub(super) fn allocate(file: &OwnedFd, offset: u64, len: u64) -> Result<(), DeviceError> {
    if is_in_memory(file) {
        return Ok(());
    }
    let (at, len) = (offset as libc::off_t, len as libc::off_t);
    loop {
        // SAFETY: takes integers; the descriptor is open for the call.
        if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, at, len) } == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
            libc::EINTR => {}
            libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL => return Ok(()),
            errno => return Err(from_errno(errno)),
        }
    }
}

fn is_in_memory(file: &OwnedFd) -> bool {
    // SAFETY: a statfs of zeros is valid, and the pointer is for the call.
    let said = unsafe {
        let mut said: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut said) == 0).then_some(said)
    };
    // The type of the field differs from one machine to another.
    #[allow(clippy::unnecessary_cast)]
    said.is_some_and(|said| said.f_type as libc::c_long == TMPFS_MAGIC)
}
