//! Other block devices that show bytes of a block device: the disk that a partition is part of, the partitions of a disk as the
//! kernel knows them (which may not be those of the table that is on it), and what loop devices are made of. The kernel keeps
//! those apart that are in use, and tells of none that is idle.

use std::path::{Path, PathBuf};

use super::loops::{of_path, parts_of};
use super::parts::{Of, Part};
use super::sysfs::DeviceNumber;
use super::usage::partitions_in;

/// What the other is to the one that was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// A partition of it.
    Partition,
    /// What it is a part of.
    Whole,
    /// A partition of the same disk that overlaps it.
    Overlaps,
}

/// A block device that shows some of the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name in `/dev`.
    pub path: PathBuf,
    /// What it is to the one that was asked about.
    pub relation: Relation,
}

/// Those that share bytes with the block device of this name, as far as the kernel tells; none with a file. Of what RAID, LVM and
/// the like are made of nobody here knows which part they show, and the kernel keeps it for them.
pub fn of(path: &Path) -> Vec<Neighbour> {
    let Of::Device(top) = of_path(path) else { return Vec::new() };
    let parts = parts_of(Of::Device(top));
    let found = related(top, &parts, &|number, part| partitions_in(number, &part.range).1);
    found.into_iter().filter_map(|(number, relation)| Some(Neighbour { path: number.path()?, relation })).collect()
}

/// The devices of `parts`, which `top` is made of, and the partitions of each that have something of the part.
fn related(
    top: DeviceNumber,
    parts: &[Part],
    partitions: &dyn Fn(DeviceNumber, &Part) -> Vec<DeviceNumber>,
) -> Vec<(DeviceNumber, Relation)> {
    let mut found: Vec<(DeviceNumber, Relation)> = Vec::new();
    let mut add = |number, relation| {
        if number != top && found.iter().all(|(known, _)| *known != number) {
            found.push((number, relation));
        }
    };
    // First, since a device below may be a partition of another that is below.
    let devices = || parts.iter().filter(|part| part.exact).filter_map(|part| Some((part.number()?, part)));
    devices().for_each(|(number, _)| add(number, Relation::Whole));
    for (number, part) in devices() {
        let relation = if number == top { Relation::Partition } else { Relation::Overlaps };
        partitions(number, part).into_iter().for_each(|partition| add(partition, relation));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(minor: u32) -> DeviceNumber {
        DeviceNumber { major: 8, minor }
    }

    #[test]
    fn a_disk_has_partitions_and_a_partition_a_disk_and_those_that_overlap_it() {
        let partitions = |of: DeviceNumber, part: &Part| match of.minor {
            0 => [(1, 0..100), (2, 100..200), (5, 150..200)]
                .into_iter()
                .filter(|(_, range)| super::super::parts::overlap(range, &part.range))
                .map(|(minor, _)| number(minor))
                .collect(),
            _ => Vec::new(),
        };
        let whole = |minor| Part::top(Of::Device(number(minor)));
        let disk = related(number(0), &[whole(0)], &partitions);
        assert_eq!(disk, [1, 2, 5].map(|minor| (number(minor), Relation::Partition)));
        let on_disk = |range| Part { range, ..whole(0) };
        let second = related(number(2), &[whole(2), on_disk(100..200)], &partitions);
        assert_eq!(second, [(number(0), Relation::Whole), (number(5), Relation::Overlaps)]);
        let first = related(number(1), &[whole(1), on_disk(0..100)], &partitions);
        assert_eq!(first, [(number(0), Relation::Whole)]);
        let unknown = Part { exact: false, ..whole(0) };
        assert_eq!(related(number(9), &[whole(9), unknown], &partitions), [], "LVM on that disk");
    }
}
