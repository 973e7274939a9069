//! The block devices of this machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::sysfs::{line, number, BlockQueue};
use super::usage::{self, Use};

/// A disk or partition.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its name in `/sys/block`, like `sda`.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// What the maker calls it, if known.
    pub model: Option<String>,
    /// Bytes.
    pub size: u64,
    /// It has a head that moves.
    pub rotational: bool,
    /// It takes discards.
    pub discard: bool,
    /// It can be taken out.
    pub removable: bool,
    /// It cannot be written.
    pub read_only: bool,
    /// Logical and physical sector size, in bytes.
    pub sector_sizes: (u32, u32),
    /// Who uses it.
    pub used: Option<Use>,
    /// Its partitions.
    pub partitions: Vec<Disk>,
}

/// All disks that have a size, with their partitions, by name. Empty where there is no `/sys`.
pub fn list() -> Vec<Disk> {
    list_in(Path::new("/sys/block"))
}

fn list_in(folder: &Path) -> Vec<Disk> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut disks: Vec<Disk> = entries.flatten().filter_map(|e| disk(&e.path())).filter(|d| d.size > 0).collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

fn disk(folder: &Path) -> Option<Disk> {
    let queue = BlockQueue::read(&folder.join("queue"))?;
    let mut disk = one(folder, &queue)?;
    disk.model = ["device/model", "device/name", "dm/name"].iter().find_map(|f| line(&folder.join(f)));
    disk.model = disk.model.or_else(|| Some(format!("loop of {}", line(&folder.join("loop/backing_file"))?)));
    disk.removable = number(&folder.join("removable")) == Some(1);
    let partitions = usage::partitions(folder);
    disk.partitions = partitions.iter().filter_map(|(name, _)| one(&folder.join(name), &queue)).collect();
    Some(disk)
}

fn one(folder: &Path, queue: &BlockQueue) -> Option<Disk> {
    let name = folder.file_name()?.to_str()?.to_owned();
    // Names with a slash have an exclamation mark in /sys.
    let path = PathBuf::from("/dev").join(name.replace('!', "/"));
    Some(Disk {
        size: number(&folder.join("size"))?.checked_mul(512)?,
        read_only: number(&folder.join("ro")) == Some(1),
        used: usage::of(&path),
        name,
        path,
        model: None,
        rotational: queue.rotational,
        discard: queue.discard,
        removable: false,
        sector_sizes: queue.sector_sizes,
        partitions: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_partitions_are_read_from_sys() {
        let dir = tempfile::tempdir().expect("temp dir");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("inside")).expect("folder");
            fs::write(path, text).expect("file");
        };
        for (name, text) in [
            ("sdz/size", "2048\n"),
            ("sdz/ro", "0\n"),
            ("sdz/removable", "1\n"),
            ("sdz/queue/logical_block_size", "512\n"),
            ("sdz/queue/physical_block_size", "4096\n"),
            ("sdz/queue/rotational", "1\n"),
            ("sdz/device/model", "ST1000DM003 \n"),
            ("sdz/sdz1/partition", "1\n"),
            ("sdz/sdz1/dev", "8:200\n"),
            ("sdz/sdz1/size", "1024\n"),
            ("empty/size", "0\n"),
            ("empty/queue/logical_block_size", "512\n"),
        ] {
            write(name, text);
        }
        let disks = list_in(dir.path());
        assert_eq!(disks.len(), 1);
        let disk = &disks[0];
        assert_eq!((disk.size, disk.rotational, disk.removable, disk.discard), (1 << 20, true, true, false));
        assert_eq!((disk.model.as_deref(), disk.sector_sizes), (Some("ST1000DM003"), (512, 4096)));
        assert_eq!((disk.partitions.len(), disk.partitions[0].size), (1, 512 << 10));
        assert_eq!(disk.partitions[0].path, Path::new("/dev/sdz1"));
    }
}
