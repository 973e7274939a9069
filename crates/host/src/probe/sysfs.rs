//! What `/sys` says of a block device.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Major and minor number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl DeviceNumber {
    /// From the kernel's combined number.
    pub fn new(number: u64) -> DeviceNumber {
        DeviceNumber { major: libc::major(number), minor: libc::minor(number) }
    }

    /// Its folder in `/sys`, which is that of the partition for a partition.
    pub fn folder(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    /// Its name in `/dev`, if there is such a block device.
    pub fn path(self) -> Option<PathBuf> {
        self.folder().canonicalize().ok().map(|folder| node(&folder))
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Properties of the request queue of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockQueue {
    /// It has a head that moves.
    pub rotational: bool,
    /// It takes discards.
    pub discard: bool,
    /// Logical and physical sector size, in bytes.
    pub sector_sizes: (u32, u32),
}

impl BlockQueue {
    /// The queue of a block device, or of the disk below a file. `None` where `/sys` does not know it (file systems
    /// over several devices, network file systems, a sandbox without `/sys`).
    pub fn of(meta: &Metadata) -> Option<BlockQueue> {
        let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
        BlockQueue::read(&disk_folder(&DeviceNumber::new(number).folder())?.join("queue"))
    }

    /// Reads the `queue` folder of a disk.
    pub fn read(folder: &Path) -> Option<BlockQueue> {
        let logical = number(&folder.join("logical_block_size"))?;
        let physical = number(&folder.join("physical_block_size")).unwrap_or(logical);
        Some(BlockQueue {
            rotational: number(&folder.join("rotational")) == Some(1),
            discard: number(&folder.join("discard_max_bytes")).is_some_and(|n| n > 0),
            sector_sizes: (logical as u32, physical as u32),
        })
    }
}

/// The folder of the whole disk that a partition is on, or the disk's own.
pub(crate) fn disk_folder(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    if folder.join("partition").exists() {
        return folder.parent().map(Path::to_owned);
    }
    Some(folder)
}

/// The name in `/dev` of the block device with this folder. Names with a slash have an exclamation mark in `/sys`.
pub(crate) fn node(folder: &Path) -> PathBuf {
    Path::new("/dev").join(folder.file_name().unwrap_or_default().to_string_lossy().replace('!', "/"))
}

/// A number in a file of one line.
pub(crate) fn number(path: &Path) -> Option<u64> {
    line(path)?.parse().ok()
}

/// The only line of a file, for numbers and words; what it names as a path is read by [`path_line`].
pub(crate) fn line(path: &Path) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The path that the only line of a file is: bytes of any kind.
pub(crate) fn path_line(path: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(path).ok()?;
    let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    (!name.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(name)))
}

/// Stands for the file of a loop device whose name is too long for the kernel to tell.
const UNNAMED: &str = "(a file whose name cannot be read)";

/// The name of the file below the block device with this folder, if it is a loop device that has one: as it was when the device was made,
/// and where that was made.
pub fn backing_file(folder: &Path) -> Option<PathBuf> {
    let name = folder.join("loop/backing_file");
    match std::fs::read(&name) {
        Err(e) if e.raw_os_error() == Some(libc::ENAMETOOLONG) => Some(UNNAMED.into()),
        _ => path_line(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_loop_device_may_have_any_name() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join("loop")).expect("a folder");
        assert_eq!(backing_file(dir.path()), None);
        for (line, name) in
            [(&b"/n\xff/l.img\n"[..], &b"/n\xff/l.img"[..]), (b"/ends in a space \n", b"/ends in a space ")]
        {
            std::fs::write(dir.path().join("loop/backing_file"), line).expect("written");
            assert_eq!(backing_file(dir.path()).as_deref(), Some(Path::new(OsStr::from_bytes(name))));
        }
    }
}
