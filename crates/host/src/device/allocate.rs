//! Room for what must be writable whenever it has to be: a file with holes lies on a file system that may be full by then.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use bimetal_volume::env::DeviceError;

use super::error::from_errno;
use crate::extents::in_range;

/// What `statfs` calls a file system in memory. There a hole costs nothing, and room is memory.
const TMPFS_MAGIC: libc::c_long = 0x0102_1994;

/// Takes room for a range of a file, where there are holes; its content and size stay. What the file system cannot do it is not asked
/// for again. A file system with less room than that is not asked either: ext4 would be full then, to no avail. A file that has all its
/// room, or all of the range, needs none: XFS wants as much as the range has, also where there is no hole. Blocks.
pub(super) fn allocate(file: &OwnedFd, offset: u64, len: u64) -> Result<(), DeviceError> {
    if has_all_its_room(file) || has_no_hole(file, offset, len) {
        return Ok(());
    }
    match file_system(file) {
        Some(FileSystem { in_memory: true, .. }) => return Ok(()),
        Some(FileSystem { free, .. }) if free < len => return Err(DeviceError::NoSpace),
        _ => {}
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

/// Whether the file system says that it has set room aside for all of a range, written or not.
fn has_no_hole(file: &OwnedFd, offset: u64, len: u64) -> bool {
    let end = offset.saturating_add(len);
    let Ok(file) = file.try_clone().map(std::fs::File::from) else { return false };
    let Ok(extents) = in_range(&file, offset, end) else { return false };
    let covered = extents.iter().try_fold(offset, |at, e| (e.logical <= at).then_some(at.max(e.logical + e.len)));
    covered.is_some_and(|at| at >= end)
}

fn has_all_its_room(file: &OwnedFd) -> bool {
    let meta = file.try_clone().and_then(|file| std::fs::File::from(file).metadata());
    meta.is_ok_and(|m| m.blocks() * 512 >= m.len())
}

/// What a file lies on.
struct FileSystem {
    in_memory: bool,
    /// Bytes that are free.
    free: u64,
}

fn file_system(file: &OwnedFd) -> Option<FileSystem> {
    // SAFETY: a statfs of zeros is valid, and the pointer is for the call.
    let said = unsafe {
        let mut said: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &raw mut said) == 0).then_some(said)
    }?;
    // The types of the fields differ from one machine to another.
    #[allow(clippy::unnecessary_cast)]
    let (kind, free, unit) = (said.f_type as libc::c_long, said.f_bavail as u64, said.f_bsize as u64);
    Some(FileSystem { in_memory: kind == TMPFS_MAGIC, free: free.saturating_mul(unit) })
}
