//! Where the content of a file lies on the device of its file system (FIEMAP), and which device that is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::probe::mounts::{self, Mount};
use crate::probe::sysfs::{backing_file, number as number_in, DeviceNumber};
use crate::probe::usage::device_number;

/// A piece of a file. Its bytes lie together on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device of the file system.
    pub physical: u64,
    /// Bytes.
    pub len: u64,
    /// Where it lies is known: not while it waits to be written, nor where the file system has coded it.
    pub placed: bool,
    /// It is set aside, but was never written: reads as zeros whatever the device holds.
    pub unwritten: bool,
}

/// Extents asked for with one call.
const BATCH: usize = 256;
/// Extents of one file that are taken; one with more is damaged, or not a file that people have.
const MOST: usize = 16 << 20;

const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELALLOC: u32 = 0x4;
const ENCODED: u32 = 0x8;
const UNWRITTEN: u32 = 0x800;

/// `struct fiemap_extent` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` of the kernel, with room for the answer.
#[repr(C)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

const _: () = assert!(size_of::<RawExtent>() == 56 && std::mem::offset_of!(Question, extents) == 32);

/// Opens a file or folder to look at it; never what a symbolic link leads to, and without waiting for a pipe's other
/// end.
pub fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Whether an error of [`of_file`] means that the file system does not tell, which says nothing about the file.
pub fn is_untold(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EOPNOTSUPP)
}

/// The extents of an open file, in its order; holes are left out. Fails with what the file system says: that it cannot
/// tell (`EOPNOTSUPP`), or that it cannot read its own structures (`EIO`).
pub fn of_file(file: &File) -> io::Result<Vec<FileExtent>> {
    in_range(file, 0, u64::MAX)
}

/// Those that any byte of a range is in.
pub(crate) fn in_range(file: &File, mut start: u64, end: u64) -> io::Result<Vec<FileExtent>> {
    let mut found: Vec<FileExtent> = Vec::new();
    loop {
        let mut question = Question {
            start,
            length: end - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: BATCH as u32,
            reserved: 0,
            extents: [RawExtent::default(); BATCH],
        };
        // SAFETY: the file descriptor is open for the time of the call, and `question` is a `struct fiemap` that says
        // how many extents there is room for behind it; the kernel writes no more than those.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut question) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let extents = &question.extents[..(question.mapped_extents as usize).min(BATCH)];
        found.extend(extents.iter().map(FileExtent::from));
        let Some(last) = extents.last() else { return Ok(found) };
        let next = last.logical.saturating_add(last.length);
        // A file system that does not get on would be asked for ever.
        if last.flags & LAST != 0 || next <= start || next >= end || found.len() > MOST {
            return Ok(found);
        }
        start = next;
    }
}

impl From<&RawExtent> for FileExtent {
    fn from(e: &RawExtent) -> FileExtent {
        FileExtent {
            logical: e.logical,
            physical: e.physical,
            len: e.length,
            placed: e.flags & (UNKNOWN | DELALLOC | ENCODED) == 0,
            unwritten: e.flags & UNWRITTEN != 0,
        }
    }
}

/// A mounted file system, and the device below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its kind, as the kernel names it: `ext4`.
    pub kind: String,
    /// Its device, the whole one if it lies on a partition.
    pub device: DeviceNumber,
    /// First byte of the file system on that device.
    pub offset: u64,
    /// The file that the device shows, if it is a loop device, and the first byte of it that it shows.
    pub backing: Option<(std::path::PathBuf, u64)>,
}

/// The file system that is mounted at `path`. Fails if nothing is mounted there, or nothing that lies on one device.
pub fn mounted_at(path: &Path) -> io::Result<Mounted> {
    let path = path.canonicalize()?;
    let (number, kind) = mount_of(mounts::all()?, &path).ok_or_else(|| {
        io::Error::other("nothing is mounted there; name the folder where the file system is mounted")
    })?;
    if number.major == 0 {
        return Err(io::Error::other(format!("its file system ({kind}) does not lie directly on a block device")));
    }
    let folder = number.folder();
    let start = number_in(&folder.join("start")).filter(|_| folder.join("partition").exists());
    let whole = match start {
        Some(_) => folder.canonicalize()?.parent().and_then(device_number).unwrap_or(number),
        None => number,
    };
    let shown_from = || number_in(&whole.folder().join("loop/offset")).unwrap_or(0);
    let backing = backing_file(&whole.folder()).map(|file| (file, shown_from()));
    Ok(Mounted { kind, device: whole, offset: start.unwrap_or(0) * 512, backing })
}

/// Device and kind of what is mounted at `path`; the last one hides the others.
fn mount_of(mounts: Vec<Mount>, path: &Path) -> Option<(DeviceNumber, String)> {
    mounts.into_iter().rev().find(|m| m.place == path).map(|m| (m.number, m.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn mounts_are_found_and_the_newest_counts() {
        let text = "22 27 0:21 / /proc rw - proc proc rw\n\
                    36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - ext3 /dev/x rw\n\
                    37 35 7:1 / /mnt/a\\040b ro - ext4 /dev/loop1 ro\n";
        let at = |path| mount_of(mounts::parse(text.as_bytes()), Path::new(path));
        assert_eq!(at("/mnt/a b"), Some((DeviceNumber { major: 7, minor: 1 }, "ext4".into())));
        assert_eq!(at("/proc").map(|m| m.1).as_deref(), Some("proc"));
        assert_eq!(at("/mnt"), None);
    }

    #[test]
    fn a_file_is_mapped_or_the_refusal_is_an_error() {
        let mut file = tempfile::tempfile().expect("temp file");
        file.write_all(&[7; 10_000]).expect("write");
        file.sync_all().expect("sync");
        let extents = match of_file(&file) {
            Ok(extents) => extents,
            Err(e) if is_untold(&e) => {
                eprintln!("skipped: the file system of the temporary folder does not say where files lie");
                return;
            }
            Err(e) => panic!("not what a file system says that cannot tell: {e}"),
        };
        let known: u64 = extents.iter().map(|e| e.len).sum();
        assert!(known >= 10_000, "{extents:?}");
        assert!(extents.windows(2).all(|w| w[0].logical + w[0].len <= w[1].logical), "{extents:?}");
    }

    #[test]
    fn what_is_no_mount_is_refused() {
        let folder = tempfile::tempdir().expect("temp folder");
        assert!(mounted_at(folder.path()).is_err());
    }
}
