//! Files below loop devices. The kernel lets a loop device be opened whoever uses its file: locks are on files, and claims on
//! devices, and neither knows of the other.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::sysfs::{line, number, DeviceNumber};
use super::usage::{self, Use};
use crate::attach::loop_device;
use crate::fuse;

/// A part of a file, as a loop device shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    /// The loop device.
    device: PathBuf,
    /// The file, by the name it had when the device was made.
    file: PathBuf,
    /// Device and inode of the file, where they can be asked.
    place: Option<(u64, u64)>,
    /// Where the part begins, in bytes.
    offset: u64,
    /// Its length; 0 goes to the end of the file.
    limit: u64,
}

impl Backing {
    /// What the loop device with this folder in `/sys` shows.
    fn read(folder: &Path) -> Option<Backing> {
        let file = PathBuf::from(line(&folder.join("loop/backing_file"))?);
        let device = Path::new("/dev").join(folder.file_name()?);
        // What a daemon of ours shows would have to be asked of that daemon, which may hang.
        let ours = file.parent().is_some_and(fuse::is_mounted);
        let asked = if ours { None } else { loop_device::place(&device).or_else(|| place_of(&file)) };
        let bytes = |name: &str| number(&folder.join(name)).unwrap_or(0);
        Some(Backing { place: asked, file, device, offset: bytes("loop/offset"), limit: bytes("loop/sizelimit") })
    }

    fn is_of(&self, file: &Path, place: Option<(u64, u64)>) -> bool {
        match (self.place, place) {
            (Some(own), Some(other)) => own == other,
            _ => self.file == file,
        }
    }

    /// Whether something that is written to one device is on the other.
    fn meets(&self, other: &Backing) -> bool {
        let end = |b: &Backing| if b.limit == 0 { u64::MAX } else { b.offset.saturating_add(b.limit) };
        let common = self.is_of(&other.file, other.place);
        common && self.offset < end(other) && other.offset < end(self)
    }

    /// Who has a lock on the file; with `alone` a reader counts, too.
    fn locked_by(&self, alone: bool) -> Option<String> {
        let held = self.place.and_then(|(device, inode)| usage::lock_holder_of(device, inode, alone));
        // Some file systems have other numbers in the kernel's list. The name may be of another file by now.
        held.or_else(|| {
            let place = self.place?;
            let file = fs::File::open(&self.file).ok().filter(|_| place_of(&self.file) == Some(place))?;
            let locked = if alone { file.try_lock() } else { file.try_lock_shared() };
            matches!(locked, Err(fs::TryLockError::WouldBlock)).then(|| "a program that has locked it".into())
        })
    }
}

fn place_of(file: &Path) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|m| (m.dev(), m.ino()))
}

/// Loop devices of this machine that have a file.
fn all() -> Vec<Backing> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries.filter_map(|e| Backing::read(&e.path())).collect()
}

/// The loop device over a file, by whatever name.
pub(super) fn over(file: &Path) -> Option<PathBuf> {
    let place = place_of(file);
    all().into_iter().find(|b| b.is_of(file, place)).map(|b| b.device)
}

/// Loop devices that are made of a file or block device, by the name that it had then. Asks no file system, and so no daemon.
pub fn made_of(file: &Path) -> Vec<PathBuf> {
    all_named().into_iter().filter(|(_, name)| name == file).map(|(device, _)| device).collect()
}

/// All loop devices that have a file, each with the name that this had when the device was made. Asks no file system.
pub fn all_named() -> Vec<(PathBuf, PathBuf)> {
    named(Path::new("/sys/block"))
}

fn named(sys: &Path) -> Vec<(PathBuf, PathBuf)> {
    let folders = fs::read_dir(sys).into_iter().flatten().flatten();
    let one = |folder: fs::DirEntry| {
        let file = line(&folder.path().join("loop/backing_file"))?;
        Some((Path::new("/dev").join(folder.file_name()), PathBuf::from(file)))
    };
    let mut found: Vec<_> = folders.filter_map(one).collect();
    found.sort();
    found
}

/// A loop device that is made of a block device or of a partition of it. The kernel tells of it nowhere but in the names of files
/// below loop devices: it is no holder, and no process has the device open for it.
pub(crate) fn stacked_on(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let partitions = usage::partitions(&Path::new("/sys/class/block").join(name)).into_iter();
    let mut places = std::iter::once(device.to_owned()).chain(partitions.map(|(name, _)| Path::new("/dev").join(name)));
    places.find_map(|place| made_of(&place).into_iter().next())
}

/// Files that a block device is made of.
pub(super) fn below(number: DeviceNumber) -> Vec<Backing> {
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    walk(Path::new("/sys/dev/block"), number, &mut seen, &mut found);
    found
}

fn walk(sys: &Path, number: DeviceNumber, seen: &mut Vec<DeviceNumber>, found: &mut Vec<Backing>) {
    let Ok(folder) = sys.join(number.to_string()).canonicalize() else { return };
    if seen.contains(&number) {
        return;
    }
    seen.push(number);
    found.extend(Backing::read(&folder));
    let disk = folder.parent().filter(|_| folder.join("partition").exists()).and_then(usage::device_number);
    let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let below: Vec<DeviceNumber> =
        disk.into_iter().chain(slaves.filter_map(|e| usage::device_number(&e.path()))).collect();
    below.into_iter().for_each(|number| walk(sys, number, seen, found));
}

/// Files that a block device is made of, by name.
pub fn files_below(path: &Path) -> Vec<PathBuf> {
    below_path(path).into_iter().map(|b| b.file).collect()
}

fn below_path(path: &Path) -> Vec<Backing> {
    use std::os::unix::fs::FileTypeExt;
    let meta = fs::metadata(path).ok().filter(|m| m.file_type().is_block_device());
    meta.map_or_else(Vec::new, |m| below(DeviceNumber::new(m.rdev())))
}

/// How a file that a block device is made of is used, beside that. To be taken it must not be shown by another loop device
/// either.
pub(super) fn used(number: DeviceNumber) -> Option<Use> {
    let below = below(number);
    let loops = if below.is_empty() { Vec::new() } else { all() };
    below.iter().find_map(|b| {
        let file = b.file.clone();
        if let Some(by) = b.locked_by(true) {
            return Some(Use::File { file, by });
        }
        if usage::is_swap_file(&b.file) {
            return Some(Use::File { file, by: "the kernel's swap".into() });
        }
        let other = loops.iter().find(|other| other.device != b.device && other.meets(b))?;
        Some(Use::File { file, by: format!("the loop device {}", other.device.display()) })
    })
}

/// Who holds a file that a block device is made of, so that the device must not be opened: for writing if `write`.
pub(crate) fn holder_below(path: &Path, write: bool) -> Option<String> {
    let below = below_path(path);
    let loops = if below.is_empty() || !write { Vec::new() } else { all() };
    below.iter().find_map(|b| {
        let held = |other: &&Backing| {
            other.device != b.device && other.meets(b) && matches!(usage::open_alone(&other.device), Ok(None))
        };
        let by = b.locked_by(write).or_else(|| {
            let other = loops.iter().find(held)?;
            let user = usage::holder(&other.device).unwrap_or_else(|| "another program or the kernel".into());
            Some(format!("{user}, as {}", other.device.display()))
        })?;
        Some(format!("{by}: it shows the file {}, which is used there", b.file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(sys: &Path, number: &str, file: &str, text: &str) {
        let path = sys.join(number).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn files_are_found_below_partitions_and_stacks() {
        let dir = tempfile::tempdir().expect("a folder");
        let sys = dir.path();
        describe(sys, "7:3", "loop/backing_file", "/no/such/image\n");
        describe(sys, "7:3", "loop/offset", "4096\n");
        describe(sys, "7:3", "dev", "7:3\n");
        describe(sys, "7:3/loop3p1", "partition", "1\n");
        std::os::unix::fs::symlink("7:3/loop3p1", sys.join("259:1")).expect("a link");
        describe(sys, "253:0", "slaves/loop3p1/dev", "259:1\n");
        describe(sys, "253:1", "slaves/dm-0/dev", "253:0\n");
        let found = |major, minor| {
            let mut found = Vec::new();
            walk(sys, DeviceNumber { major, minor }, &mut Vec::new(), &mut found);
            found.into_iter().map(|b| (b.file, b.offset)).collect::<Vec<_>>()
        };
        let image = vec![(PathBuf::from("/no/such/image"), 4096)];
        assert_eq!((found(7, 3), found(259, 1), found(253, 1)), (image.clone(), image.clone(), image));
        assert!(found(8, 0).is_empty());
    }

    #[test]
    fn loop_devices_are_known_by_the_names_of_their_files() {
        let dir = tempfile::tempdir().expect("a folder");
        describe(dir.path(), "loop3", "loop/backing_file", "/dev/loop0p1\n");
        describe(dir.path(), "loop0", "loop/backing_file", "/run/a b\n");
        describe(dir.path(), "loop1", "size", "0\n");
        describe(dir.path(), "sda", "size", "8\n");
        let pair = |device: &str, file: &str| (PathBuf::from(device), PathBuf::from(file));
        assert_eq!(named(dir.path()), [pair("/dev/loop0", "/run/a b"), pair("/dev/loop3", "/dev/loop0p1")]);
    }

    #[test]
    fn parts_of_one_file_meet_where_they_overlap() {
        let part =
            |place, offset, limit| Backing { device: "/dev/loop0".into(), file: "/image".into(), place, offset, limit };
        let (one, whole) = (part(Some((1, 2)), 4096, 4096), part(Some((1, 2)), 0, 0));
        assert!(one.meets(&whole) && whole.meets(&one) && one.meets(&part(Some((1, 2)), 0, 4097)));
        assert!(!one.meets(&part(Some((1, 2)), 0, 4096)) && !one.meets(&part(Some((1, 2)), 8192, 0)));
        assert!(!whole.meets(&part(Some((1, 3)), 0, 0)), "a new file of the same name");
        assert!(whole.meets(&part(None, 0, 0)), "by name, if nothing else is known");
    }
}
