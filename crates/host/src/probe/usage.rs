//! Who uses a device or file: mounts, swap, devices built on top, loop devices, locks, open files.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::mounts::{self, Mount};
use super::sysfs::{line, DeviceNumber};
use super::{loops, parts};

/// A use that forbids to take the device, whatever is forced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// A file system on it is mounted.
    Mounted {
        /// Where.
        at: String,
    },
    /// The kernel swaps to it.
    Swap,
    /// How it is used cannot be seen.
    Hidden {
        /// Why not.
        why: String,
    },
    /// Another block device is built on it (RAID, LVM, encryption, bcache).
    Below {
        /// Name of that device.
        holder: String,
    },
    /// A loop device serves the file.
    Loop {
        /// Path of the loop device.
        device: String,
    },
    /// The device shows a file that is in use.
    File {
        /// The file.
        file: PathBuf,
        /// By whom.
        by: String,
    },
    /// Somebody has taken it for himself.
    Held {
        /// Who, as far as known.
        by: String,
    },
    /// The device is made of another that is in use, and the kernel does not keep the two apart.
    Made {
        /// That device.
        of: PathBuf,
        /// Its use.
        used: Box<Use>,
    },
    /// A partition of the disk is in use.
    Partition {
        /// Name of the partition.
        name: String,
        /// Its use.
        used: Box<Use>,
    },
}

impl std::fmt::Display for Use {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Use::Mounted { at } => write!(f, "it is mounted on {at}; unmount it first"),
            Use::Swap => f.write_str("it is used as swap space; run swapoff first"),
            Use::Hidden { why } => write!(f, "it may be, as {why}; make that readable first"),
            Use::Below { holder } => write!(f, "the device {holder} is built on it; take that apart first"),
            Use::Loop { device } => write!(f, "{device} serves it as a loop device; run losetup -d {device} first"),
            Use::File { file, by } => {
                write!(f, "it shows the file {}, which is in use by {by}; stop that first", file.display())
            }
            Use::Held { by } => write!(f, "it is held by {by}; end that first"),
            Use::Made { of, used } => write!(f, "it is made of {}, which is in use: {used}", of.display()),
            Use::Partition { name, used } => write!(f, "its partition {name} is in use: {used}"),
        }
    }
}

impl Use {
    /// By whom, for "in use by".
    pub(super) fn user(self) -> String {
        match self {
            Use::Mounted { at } => format!("the file system mounted on {at}"),
            Use::Swap => "the kernel's swap".into(),
            Use::Hidden { why } => format!("somebody who cannot be seen, as {why}"),
            Use::Below { holder } => format!("the device {holder}, which is built on it"),
            Use::Loop { device } => format!("the loop device {device}"),
            Use::File { file, by } => format!("{by}, through the file {}", file.display()),
            Use::Held { by } => by,
            Use::Made { of, used } => format!("{}: it is made of {}, which is used there", used.user(), of.display()),
            Use::Partition { name, .. } => format!("its partition {name}"),
        }
    }
}

/// How a device or file is used, if it is; a device is used, too, if a file or block device that it is made of is. May wait for
/// these.
pub fn of(path: &Path) -> Option<Use> {
    let path = fs::canonicalize(path).ok()?;
    let meta = fs::metadata(&path).ok()?;
    if meta.file_type().is_block_device() {
        let number = DeviceNumber::new(meta.rdev());
        of_block_device(number).or_else(|| loops::used(number))
    } else {
        of_file(&path)
    }
}

fn of_block_device(number: DeviceNumber) -> Option<Use> {
    of_part(number, &parts::WHOLE)
}

/// How a block device is used, or a partition of it that has something of this range.
pub(super) fn of_part(number: DeviceNumber, range: &Range<u64>) -> Option<Use> {
    let folder = number.folder();
    of_one(number, &folder).or_else(|| {
        partitions(&folder).into_iter().filter(|(name, _)| lies_in(&folder, name, range)).find_map(|(name, number)| {
            let used = of_one(number, &number.folder())?;
            Some(Use::Partition { name, used: Box::new(used) })
        })
    })
}

fn lies_in(folder: &Path, name: &str, range: &Range<u64>) -> bool {
    parts::overlap(&parts::place(&folder.join(name)), range)
}

/// Whether a block device has partitions, and those that have something of this range.
pub(super) fn partitions_in(number: DeviceNumber, range: &Range<u64>) -> (bool, Vec<DeviceNumber>) {
    let folder = number.folder();
    let all = partitions(&folder);
    let inside = all.iter().filter(|(name, _)| lies_in(&folder, name, range)).map(|(_, number)| *number);
    (!all.is_empty(), inside.collect())
}

fn of_one(number: DeviceNumber, folder: &Path) -> Option<Use> {
    if let Some(used) = used_as(mounts::all().map(|all| mount_point(all, number))) {
        return Some(used);
    }
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device() && DeviceNumber::new(m.rdev()) == number)
    };
    if let Some(used) = used_as(mounts::swaps().map(|all| all.iter().any(is_it).then_some(Use::Swap))) {
        return Some(used);
    }
    let holder = fs::read_dir(folder.join("holders")).ok()?.flatten().next()?;
    Some(Use::Below { holder: holder.file_name().to_string_lossy().into_owned() })
}

/// What was found in a list of the kernel's. Whatever stands in one that cannot be read may be in use.
fn used_as(found: io::Result<Option<Use>>) -> Option<Use> {
    found.unwrap_or_else(|e| Some(Use::Hidden { why: e.to_string() }))
}

/// Partitions of a disk: name and number.
pub(crate) fn partitions(folder: &Path) -> Vec<(String, DeviceNumber)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter(|e| e.path().join("partition").exists())
        .filter_map(|e| Some((e.file_name().to_string_lossy().into_owned(), device_number(&e.path())?)))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The number in the `dev` file of a device's folder.
pub(crate) fn device_number(folder: &Path) -> Option<DeviceNumber> {
    let text = line(&folder.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn of_file(path: &Path) -> Option<Use> {
    if let Some(used) = swap_file(path) {
        return Some(used);
    }
    loops::over(path).map(|device| Use::Loop { device: device.display().to_string() })
}

/// Whether a file is used as swap.
pub(super) fn swap_file(path: &Path) -> Option<Use> {
    used_as(mounts::swaps().map(|all| all.iter().any(|swap| swap == path).then_some(Use::Swap)))
}

/// What the kernel does with a file by itself, and no lock tells: it serves it as a loop device, or swaps to it.
pub(crate) fn kernel_use(path: &Path) -> Option<String> {
    of_file(&fs::canonicalize(path).ok()?).map(Use::user)
}

/// That a file system with this number is mounted.
fn mount_point(mounts: Vec<Mount>, number: DeviceNumber) -> Option<Use> {
    let found = mounts.into_iter().find(|mount| mount.number == number);
    found.map(|mount| Use::Mounted { at: mount.place.display().to_string() })
}

/// Who holds a block device that could not be opened alone, as far as this process may see.
pub fn holder(path: &Path) -> Option<String> {
    if let Some(used) = of(path) {
        return Some(used.user());
    }
    opener(path)
}

/// Another process that has it open, as far as this one may see.
pub(super) fn opener(path: &Path) -> Option<String> {
    let target = fs::canonicalize(path).ok()?;
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(process.path().join("fd")).ok()?;
        let open = files.flatten().any(|f| fs::read_link(f.path()).is_ok_and(|to| to == target));
        (open && pid != std::process::id()).then(|| process_name(pid))
    })
}

/// Opens a block device for reading, alone: `None` if somebody holds it. That is known of everybody, also of a file system
/// that is mounted where this process cannot see it; but opening, and closing, may wait for the device.
pub fn open_alone(path: &Path) -> io::Result<Option<fs::File>> {
    match fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::ResourceBusy => Ok(None),
        Err(e) => Err(e),
    }
}

/// Who holds a lock on a file, by `/proc/locks`.
pub fn lock_holder(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    lock_holder_of(meta.dev(), meta.ino(), true)
}

/// The same by device and inode of the file; who shares the lock with readers only if that is wanted.
pub(super) fn lock_holder_of(device: u64, inode: u64, readers: bool) -> Option<String> {
    let number = DeviceNumber::new(device);
    let place = format!("{:02x}:{:02x}:{inode}", number.major, number.minor);
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let how = readers || fields.get(3) == Some(&"WRITE");
        let found = how && fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str());
        let pid = fields.get(4)?.parse().ok()?;
        found.then(|| process_name(pid))
    })
}

fn process_name(pid: u32) -> String {
    let name = line(Path::new(&format!("/proc/{pid}/comm"))).unwrap_or_else(|| "process".into());
    format!("{name} (pid {pid})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_beside_odd_ones() {
        let text =
            b"22 27 0:21 / /n\xff rw - tmpfs none rw\n36 35 98:0 /mnt1 /mnt/a\\040b rw shared:1 - ext3 /dev/x rw\n";
        let at = |major, minor| mount_point(mounts::parse(text), DeviceNumber { major, minor });
        assert_eq!(at(98, 0), Some(Use::Mounted { at: "/mnt/a b".into() }));
        assert_eq!(at(9, 8), None);
    }

    #[test]
    fn what_cannot_be_seen_may_be_in_use() {
        let used = used_as(Err(io::Error::other("/proc/swaps cannot be read"))).expect("in use").to_string();
        assert!(used.contains("/proc/swaps cannot be read"), "{used}");
        assert_eq!(used_as(Ok(None)), None);
    }

    #[test]
    fn the_disk_of_the_root_is_seen_as_mounted() {
        let Some(number) = fs::metadata("/").ok().map(|m| DeviceNumber::new(m.dev())) else { return };
        if !number.folder().exists() {
            eprintln!("skipped: the root file system is not on a block device that /sys knows");
            return;
        }
        if !mounts::all().is_ok_and(|all| all.iter().any(|mount| mount.place == Path::new("/"))) {
            eprintln!("skipped: /proc does not list the root file system (in a chroot)");
            return;
        }
        assert!(matches!(of_block_device(number), Some(Use::Mounted { .. })));
    }

    #[test]
    fn an_idle_file_is_not_in_use() {
        let file = tempfile::NamedTempFile::new().expect("temp file");
        assert_eq!(of(file.path()), None);
    }
}
