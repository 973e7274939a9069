//! Files below loop devices. The kernel lets a loop device be opened whoever uses its file: locks are on files, and claims on
//! devices, and neither knows of the other.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::parts::{self, Of, Part};
use super::sysfs::{self, number, DeviceNumber};
use super::usage::{self, Use};
use crate::attach::loop_device::{self, Place};
use crate::fuse;

/// A part of a file or block device, as a loop device shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backing {
    /// The loop device.
    pub(super) device: PathBuf,
    pub(super) of: Of,
    /// Where the part begins, in bytes.
    pub(super) offset: u64,
    /// Its length; 0 goes to the end.
    pub(super) limit: u64,
}

impl Backing {
    /// What the loop device with this folder in `/sys` shows.
    fn read(folder: &Path) -> Option<Backing> {
        let file = sysfs::backing_file(folder)?;
        let device = Path::new("/dev").join(folder.file_name()?);
        let bytes = |name: &str| number(&folder.join(name)).unwrap_or(0);
        let (offset, limit) = (bytes("loop/offset"), bytes("loop/sizelimit"));
        Some(Backing { of: made_of_what(&device, file), device, offset, limit })
    }
}

/// What a loop device over `file` is made of.
fn made_of_what(device: &Path, file: PathBuf) -> Of {
    // What a daemon of ours shows would have to be asked of that daemon, which may hang.
    if file.parent().is_some_and(fuse::is_mounted) {
        return Of::File { path: file, place: None };
    }
    match node(&file).or_else(|| loop_device::place(device)).or_else(|| place_of(&file)) {
        Some(Place::Device(number)) => Of::Device(number),
        Some(Place::File(place)) => Of::File { path: file, place: Some(place) },
        None => Of::File { path: file, place: None },
    }
}

/// The block device with this name in `/dev`: to look there asks nobody who may hang.
fn node(file: &Path) -> Option<Place> {
    place_of(file).filter(|place| file.starts_with("/dev") && matches!(place, Place::Device(_)))
}

fn place_of(file: &Path) -> Option<Place> {
    let meta = fs::metadata(file).ok()?;
    match meta.file_type().is_block_device() {
        true => Some(Place::Device(DeviceNumber::new(meta.rdev()))),
        false => Some(Place::File((meta.dev(), meta.ino()))),
    }
}

/// The block device that the loop device `device` over `file` is made of, if it is one.
pub(super) fn device_below(device: &Path, file: &Path) -> Option<DeviceNumber> {
    match made_of_what(device, file.to_owned()) {
        Of::Device(number) => Some(number),
        Of::File { .. } => None,
    }
}

/// Loop devices of this machine that have a file, or a block device.
fn all() -> Vec<Backing> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut all: Vec<Backing> = entries.filter_map(|e| Backing::read(&e.path())).collect();
    // The kernel lists them in no order, and the first that shows something is the one that is named.
    all.sort_by_key(|b| (b.device.as_os_str().len(), b.device.clone()));
    all
}

/// Those with a name in `/dev`. Asks nobody who may hang.
fn all_over_nodes() -> Vec<Backing> {
    let over_node = |(device, file): (PathBuf, PathBuf)| {
        node(&file)?;
        Backing::read(&Path::new("/sys/block").join(device.file_name()?))
    };
    all_named().into_iter().filter_map(over_node).collect()
}

/// The loop device over a file, by whatever name.
pub(super) fn over(file: &Path) -> Option<PathBuf> {
    let own = Part::top(of_path(file));
    let shows = |b: &Backing| own.meets(&Part::top(b.of.clone()));
    all().into_iter().find(shows).map(|b| b.device)
}

/// What a path leads to.
pub(super) fn of_path(path: &Path) -> Of {
    match place_of(path) {
        Some(Place::Device(number)) => Of::Device(number),
        Some(Place::File(place)) => Of::File { path: path.to_owned(), place: Some(place) },
        None => Of::File { path: path.to_owned(), place: None },
    }
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
        let file = sysfs::backing_file(&folder.path())?;
        Some((Path::new("/dev").join(folder.file_name()), file))
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

pub(super) fn parts_of(of: Of) -> Vec<Part> {
    parts::below(Path::new("/sys/dev/block"), &Backing::read, Part::top(of))
}

/// Files and block devices below the loop devices that a block device is made of, by name.
pub fn places_below(path: &Path) -> Vec<PathBuf> {
    let looped = |part: Part| match part.of {
        Of::File { path, .. } => Some(path),
        Of::Device(number) => number.path().filter(|_| part.looped),
    };
    parts_of(of_path(path)).into_iter().skip(1).filter_map(looped).collect()
}

/// What two files or block devices are both made of, if they are: what is written to one is in the other.
pub fn common(one: &Path, other: &Path) -> Option<PathBuf> {
    let others = parts_of(of_path(other));
    let found = parts_of(of_path(one)).into_iter().find(|part| others.iter().any(|other| part.meets(other)))?;
    match found.of {
        Of::File { path, .. } => Some(path),
        Of::Device(number) => number.path(),
    }
}

/// Other loop devices that show some of these parts, and the part that they show. None of those is meant that the parts
/// belong to.
fn others(parts: &[Part]) -> Vec<(PathBuf, Of)> {
    // Of what is not below a loop device, files are nothing to be asked for.
    let all = if parts.iter().any(|p| p.looped) { all() } else { all_over_nodes() };
    let numbers: Vec<DeviceNumber> = parts.iter().filter_map(Part::number).collect();
    let shown = |other: Backing| {
        let Of::Device(number) = of_path(&other.device) else { return None };
        let theirs = if numbers.contains(&number) { Vec::new() } else { parts_of(Of::Device(number)) };
        let met = parts.iter().find(|part| theirs.iter().any(|their| part.meets(their)))?;
        Some((other.device, met.of.clone()))
    };
    all.into_iter().filter_map(shown).collect()
}

/// How something that a block device is made of is used, beside that, where the kernel does not tell whoever takes the device. To be
/// taken it must not be shown by another loop device either.
pub(super) fn used(number: DeviceNumber) -> Option<Use> {
    let parts = parts_of(Of::Device(number));
    parts.iter().find_map(|part| part_used(part, true)).or_else(|| {
        let (device, of) = others(&parts).into_iter().next()?;
        let device = device.display().to_string();
        Some(match of {
            Of::File { path, .. } => Use::File { file: path, by: format!("the loop device {device}") },
            Of::Device(met) if met == number => Use::Loop { device },
            Of::Device(met) => Use::Made { of: name(met), used: Box::new(Use::Loop { device }) },
        })
    })
}

/// Who holds something that a block device is made of, so that the device must not be opened: for writing if `write`.
pub(crate) fn holder_below(number: DeviceNumber, write: bool) -> Option<String> {
    let parts = parts_of(Of::Device(number));
    let words = |used: Use| match used {
        Use::File { file, by } => format!("{by}: it shows the file {}, which is used there", file.display()),
        other => other.user(),
    };
    parts.iter().find_map(|part| part_used(part, write)).map(words).or_else(|| {
        let all = if write { others(&parts) } else { Vec::new() };
        let held = |(device, _): &(PathBuf, Of)| matches!(usage::open_alone(device), Ok(None));
        let (other, of) = all.into_iter().find(held)?;
        let user = usage::holder(&other).unwrap_or_else(|| "another program or the kernel".into());
        let other = other.display();
        Some(match of {
            Of::File { path, .. } => {
                format!("{user}, as {other}: it shows the file {}, which is used there", path.display())
            }
            Of::Device(met) => format!("{user}, as {other}, which is made of {}", name(met).display()),
        })
    })
}

fn name(number: DeviceNumber) -> PathBuf {
    number.path().unwrap_or_else(|| PathBuf::from(number.to_string()))
}

/// How a part is used of which the kernel does not tell; with `alone` who only reads a file counts, too.
fn part_used(part: &Part, alone: bool) -> Option<Use> {
    match &part.of {
        Of::File { path, place } => file_used(path, *place, alone),
        Of::Device(number) if !part.claimed => {
            let used = usage::of_part(*number, &part.range).or_else(|| held(*number, &part.range))?;
            Some(Use::Made { of: name(*number), used: Box::new(used) })
        }
        Of::Device(_) => None,
    }
}

fn file_used(path: &Path, place: Option<(u64, u64)>, alone: bool) -> Option<Use> {
    let used = |by: String| Some(Use::File { file: path.to_owned(), by });
    if let Some(by) = locked_by(path, place, alone) {
        return used(by);
    }
    usage::swap_file(path).and_then(|swap| used(swap.user()))
}

/// Who has a lock on a file; with `alone` a reader counts, too.
fn locked_by(path: &Path, place: Option<(u64, u64)>, alone: bool) -> Option<String> {
    let held = place.and_then(|(device, inode)| usage::lock_holder_of(device, inode, alone));
    // Some file systems have other numbers in the kernel's list. The name may be of another file by now.
    held.or_else(|| {
        let place = Place::File(place?);
        let file = fs::File::open(path).ok().filter(|_| place_of(path) == Some(place))?;
        let locked = if alone { file.try_lock() } else { file.try_lock_shared() };
        matches!(locked, Err(fs::TryLockError::WouldBlock)).then(|| "a program that has locked it".into())
    })
}

/// Who has taken a block device, or a partition of it in this range, for himself. A claim on a disk is one on its partitions, too; one
/// on a partition elsewhere on the disk is none of ours.
fn held(number: DeviceNumber, range: &Range<u64>) -> Option<Use> {
    let (all, inside) = usage::partitions_in(number, range);
    let asked = if all { inside } else { vec![number] };
    let asked = asked.into_iter().filter_map(DeviceNumber::path);
    let device = asked.into_iter().find(|device| matches!(usage::open_alone(device), Ok(None)))?;
    Some(Use::Held { by: usage::opener(&device).unwrap_or_else(|| "another program or the kernel".into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::parts::tests::describe;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn loop_devices_are_known_by_the_names_of_their_files() {
        let dir = tempfile::tempdir().expect("a folder");
        describe(dir.path(), "loop3", "loop/backing_file", "/dev/loop0p1\n");
        describe(dir.path(), "loop0", "loop/backing_file", "/run/a b\n");
        describe(dir.path(), "loop1", "size", "0\n");
        let odd = std::ffi::OsStr::from_bytes(b"/n\xff/l.img");
        describe(dir.path(), "loop2", "loop/backing_file", "");
        fs::write(dir.path().join("loop2/loop/backing_file"), b"/n\xff/l.img\n").expect("written");
        describe(dir.path(), "sda", "size", "8\n");
        let pair = |device: &str, file: &str| (PathBuf::from(device), PathBuf::from(file));
        let odd = (PathBuf::from("/dev/loop2"), PathBuf::from(odd));
        assert_eq!(named(dir.path()), [pair("/dev/loop0", "/run/a b"), odd, pair("/dev/loop3", "/dev/loop0p1")]);
    }
}
