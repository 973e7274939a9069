//! What a block device is made of on the way down to disks and files, and which part of each it shows.
//!
//! A *part* is a range of a block device or file. A *looped* part is what a loop device is made of: the kernel does not keep from it
//! who takes the loop device, nor from the loop device who takes it.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::loops::Backing;
use super::sysfs::{number, DeviceNumber};
use super::usage::device_number;

/// All bytes.
pub(super) const WHOLE: Range<u64> = 0..u64::MAX;
/// More than this is no stack that anybody builds.
const MOST: usize = 1000;

/// Something that a block device is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Device(DeviceNumber),
    File {
        /// The name it had when the loop device was made.
        path: PathBuf,
        /// Device and inode, where they can be asked.
        place: Option<(u64, u64)>,
    },
}

/// How much of it, and how it got there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) of: Of,
    pub(super) range: Range<u64>,
    /// Of what RAID, LVM and the like are made of nobody here knows which part they show.
    pub(super) exact: bool,
    /// A loop device is made of it.
    pub(super) looped: bool,
    /// The kernel gives it to nobody else while the device above is taken.
    pub(super) claimed: bool,
}

impl Part {
    /// What is asked about.
    pub(super) fn top(of: Of) -> Part {
        Part { of, range: WHOLE, exact: true, looped: false, claimed: true }
    }

    pub(super) fn number(&self) -> Option<DeviceNumber> {
        match self.of {
            Of::Device(number) => Some(number),
            Of::File { .. } => None,
        }
    }

    /// Whether something that is written to one is in the other. Of two volumes on the same RAID or LVM that is not to be
    /// supposed.
    pub(super) fn meets(&self, other: &Part) -> bool {
        let same = match (&self.of, &other.of) {
            (Of::File { place: Some(own), .. }, Of::File { place: Some(other), .. }) => own == other,
            (Of::File { path: own, .. }, Of::File { path: other, .. }) => own == other,
            (own, other) => own == other,
        };
        same && (self.exact || other.exact) && overlap(&self.range, &other.range)
    }
}

pub(super) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The part of something that is seen as `range` of its piece that begins at `offset` and is so long; 0 goes to the end.
fn within(range: &Range<u64>, offset: u64, len: u64) -> Range<u64> {
    let end = if len == 0 { u64::MAX } else { offset.saturating_add(len) };
    offset.saturating_add(range.start)..offset.saturating_add(range.end).min(end)
}

/// Everything that `top` is made of, itself first. `sys` is where the kernel describes block devices by number, and `read` tells what
/// the loop device with this folder is made of.
pub(super) fn below(sys: &Path, read: &dyn Fn(&Path) -> Option<Backing>, top: Part) -> Vec<Part> {
    let mut found = vec![top];
    let mut at = 0;
    while at < found.len() && found.len() < MOST {
        for part in next(sys, read, &found[at]) {
            if !found.contains(&part) {
                found.push(part);
            }
        }
        at += 1;
    }
    found
}

fn next(sys: &Path, read: &dyn Fn(&Path) -> Option<Backing>, part: &Part) -> Vec<Part> {
    let Some(Ok(folder)) = part.number().map(|n| sys.join(n.to_string()).canonicalize()) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(backing) = read(&folder) {
        let range = within(&part.range, backing.offset, backing.limit);
        found.push(Part { of: backing.of, range, looped: true, claimed: false, ..part.clone() });
    }
    if folder.join("partition").exists() {
        let place = place(&folder);
        let range = within(&part.range, place.start, place.end.saturating_sub(place.start));
        let disk = folder.parent().and_then(device_number);
        found.extend(disk.map(|disk| Part { of: Of::Device(disk), range, looped: false, ..part.clone() }));
    }
    let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let slaves = slaves.filter_map(|e| device_number(&e.path()));
    found.extend(slaves.map(|n| Part { exact: false, ..Part::top(Of::Device(n)) }));
    found
}

/// Where a partition lies on its disk, by its folder in `/sys`.
pub(super) fn place(folder: &Path) -> Range<u64> {
    let bytes = |name: &str| number(&folder.join(name)).map(|sectors| sectors.saturating_mul(512));
    let start = bytes("start").unwrap_or(0);
    start..bytes("size").map_or(u64::MAX, |size| start.saturating_add(size))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::probe) fn describe(sys: &Path, number: &str, file: &str, text: &str) {
        let path = sys.join(number).join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// As the kernel describes a loop device; of a block device if that is named by its number.
    fn read(folder: &Path) -> Option<Backing> {
        let name = super::super::sysfs::line(&folder.join("loop/backing_file"))?;
        let device = name.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let of = match device {
            Some((major, minor)) => Of::Device(DeviceNumber { major, minor }),
            None => file(&name),
        };
        let bytes = |name: &str| number(&folder.join(name)).unwrap_or(0);
        Some(Backing { device: folder.to_owned(), of, offset: bytes("loop/offset"), limit: bytes("loop/sizelimit") })
    }

    fn file(name: &str) -> Of {
        Of::File { path: name.into(), place: None }
    }

    fn device(major: u32, minor: u32) -> Of {
        Of::Device(DeviceNumber { major, minor })
    }

    fn all(sys: &Path, top: Of) -> Vec<Part> {
        below(sys, &read, Part::top(top))
    }

    #[test]
    fn files_are_found_below_partitions_and_stacks() {
        let dir = tempfile::tempdir().expect("a folder");
        let sys = dir.path();
        describe(sys, "7:3", "loop/backing_file", "/no/such/image\n");
        describe(sys, "7:3", "loop/offset", "4096\n");
        describe(sys, "7:3", "dev", "7:3\n");
        describe(sys, "7:3/loop3p1", "partition", "1\n");
        describe(sys, "7:3/loop3p1", "start", "8\n");
        describe(sys, "7:3/loop3p1", "size", "16\n");
        std::os::unix::fs::symlink("7:3/loop3p1", sys.join("259:1")).expect("a link");
        describe(sys, "253:0", "slaves/loop3p1/dev", "259:1\n");
        describe(sys, "253:1", "slaves/dm-0/dev", "253:0\n");
        let last = |of| all(sys, of).pop().map(|p| (p.of, p.range, p.exact)).expect("a file");
        assert_eq!(last(device(7, 3)), (file("/no/such/image"), 4096..u64::MAX, true));
        assert_eq!(last(device(259, 1)), (file("/no/such/image"), 8192..16_384, true));
        assert_eq!(last(device(253, 1)), (file("/no/such/image"), 8192..16_384, false));
        assert_eq!(all(sys, device(8, 0)), [Part::top(device(8, 0))]);
    }

    #[test]
    fn loop_devices_are_seen_through_to_any_depth_and_what_is_below_them_is_claimed_by_nobody() {
        let dir = tempfile::tempdir().expect("a folder");
        let sys = dir.path();
        describe(sys, "8:0", "dev", "8:0\n");
        describe(sys, "8:0/sda1", "partition", "1\n");
        describe(sys, "8:0/sda1", "start", "2048\n");
        describe(sys, "8:0/sda1", "size", "2048\n");
        std::os::unix::fs::symlink("8:0/sda1", sys.join("8:1")).expect("a link");
        describe(sys, "7:0", "loop/backing_file", "8:1\n");
        describe(sys, "7:0", "loop/offset", "4096\n");
        for n in 1..40 {
            describe(sys, &format!("7:{n}"), "loop/backing_file", &format!("7:{}\n", n - 1));
        }
        describe(sys, "253:0", "slaves/loop39/dev", "7:39\n");
        let found = all(sys, device(253, 0));
        assert_eq!(found.len(), 43);
        let start = (1 << 20) + 4096;
        let [.., partition, disk] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&partition.of, partition.looped, partition.claimed), (&device(8, 1), true, false));
        assert_eq!(
            (&disk.of, disk.looped, disk.claimed, &disk.range),
            (&device(8, 0), false, false, &(start..2 << 20))
        );
        assert!(found[1].claimed && !found[2].claimed, "RAID and LVM claim, loop devices do not");
        // A ring cannot be; a file that says so hangs nobody.
        describe(sys, "7:0", "loop/backing_file", "7:39\n");
        assert!(all(sys, device(7, 5)).len() <= MOST + 1);
    }

    #[test]
    fn parts_of_one_thing_meet_where_they_overlap() {
        let part = |place, range| Part { range, ..Part::top(Of::File { path: "/image".into(), place }) };
        let (one, whole) = (part(Some((1, 2)), 4096..8192), part(Some((1, 2)), WHOLE));
        assert!(one.meets(&whole) && whole.meets(&one) && one.meets(&part(Some((1, 2)), 0..4097)));
        assert!(!one.meets(&part(Some((1, 2)), 0..4096)) && !one.meets(&part(Some((1, 2)), 8192..u64::MAX)));
        assert!(!whole.meets(&part(Some((1, 3)), WHOLE)), "a new file of the same name");
        assert!(whole.meets(&part(None, WHOLE)), "by name, if nothing else is known");
        let disk = Part::top(device(8, 0));
        let below_lvm = Part { exact: false, ..disk.clone() };
        assert!(disk.meets(&below_lvm) && !below_lvm.meets(&below_lvm), "two volumes of LVM are not the same");
        assert!(!disk.meets(&Part::top(device(8, 1))));
    }
}
