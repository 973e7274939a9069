//! A disk and its partitions: a group that has one of them loses its data to whoever takes the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::attach::tool;
use crate::common::{checksum, installed, Place, MIB};
use crate::family::stop;
use crate::loops::{self, listed};

/// Where the partition begins, and how long it is, in sectors.
const START: u64 = 2048;
const LENGTH: u64 = 200_704;

/// A loop device, taken away with its partition when the test ends.
struct Disk(String);

impl Disk {
    fn new(file: &Path) -> Option<Disk> {
        if !loops::possible() || !["addpart", "delpart"].into_iter().all(installed) {
            return None;
        }
        let disk = Disk(loops::attach(&["-P"], file));
        // What another has left there.
        let _ = disk.delete_partition();
        Some(disk)
    }

    fn partition(&self) -> String {
        format!("{}p1", self.0)
    }

    /// Has the kernel show a partition, whatever table there is.
    fn add_partition(&self) -> Option<String> {
        tool("addpart", &[&self.0, "1", &START.to_string(), &LENGTH.to_string()]);
        let (partition, begun) = (PathBuf::from(self.partition()), Instant::now());
        while !partition.exists() && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        if !partition.exists() {
            eprintln!("skipped: partitions of loop devices have no names in /dev here");
            return None;
        }
        Some(self.partition())
    }

    fn delete_partition(&self) -> std::io::Result<std::process::Output> {
        Command::new("delpart").args([&self.0, "1"]).output()
    }

    fn has_partition(&self) -> bool {
        let name = Path::new(&self.0).file_name().expect("a name").to_string_lossy().into_owned();
        Path::new("/sys/block").join(&name).join(format!("{name}p1")).exists()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.delete_partition();
        loops::detach(&self.0);
    }
}

/// Nobody takes `device` without a word: they say these words, and the disk stays as it is.
fn is_kept(p: &Place, device: &str, words: &[&str]) {
    let before = checksum(&p.path("disk.img"));
    let used = listed(p, device);
    assert!(words.iter().all(|w| used.contains(w)), "{used}");
    let words = &[words, &["--force"]].concat();
    p.file("other.img", 48 * MIB);
    let create = ["create", "other", "--fast", "other.img", "--slow", device];
    p.refused(&[&create[..], &["--yes"]].concat(), 1, words);
    // The question says what would be lost.
    p.refused(&[&create[..], &["--force"]].concat(), 1, &[&words[..2], &["will be lost"]].concat());

    let daemon = p.serve(&["tank"]);
    p.refused(&["member", "add", "tank", "--slow", device, "--yes"], 1, words);
    p.refused(&["dissolve", "tank/main", "--onto", device, "--yes"], 1, words);
    // Whoever asks the daemon itself.
    for (path, body) in [
        ("/v1/members", format!(r#"{{"change":"add","locator":"{device}","tier":"slow","force":false}}"#)),
        ("/v1/dissolve", format!(r#"{{"volume":"main","onto":"{device}","force":false}}"#)),
    ] {
        let answer = p.ask("POST", path, &body);
        assert!(words.iter().all(|w| answer.contains(w)), "{path}: {answer}");
    }
    stop(p, daemon);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.refused(&["repair", "tank", "--fast", device, "--yes"], 1, words);
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    assert_eq!(checksum(&p.path("disk.img")), before);
}

/// A small group `tank`, a file for a disk, and one for the other member of a group on that disk.
fn place() -> (Place, PathBuf) {
    let p = Place::new();
    p.tank_of(&["main:20MiB"]);
    p.file("first.img", 48 * MIB);
    let disk = p.file("disk.img", 128 * MIB);
    (p, disk)
}

#[test]
fn a_partition_of_a_disk_that_is_a_member_is_not_taken() {
    let (p, file) = place();
    let Some(disk) = Disk::new(&file) else { return };
    p.ok(&["create", "whole", "--fast", "first.img", "--slow", &disk.0, "--yes", "--force"]);
    // As the kernel shows it that has not read the table since it was erased.
    let Some(partition) = disk.add_partition() else { return };
    let of = format!("is a part of {}, which carries a label of", disk.0);
    is_kept(&p, &partition, &[&of, "the Bimetal group 'whole'"]);
    assert_eq!(p.json(&["check", "whole"])["sound"], true);
}

#[test]
fn a_disk_is_not_taken_whose_partition_is_a_member() {
    let (p, file) = place();
    let Some(disk) = Disk::new(&file) else { return };
    // There is no table.
    let Some(partition) = disk.add_partition() else { return };
    p.ok(&["create", "part", "--fast", "first.img", "--slow", &partition, "--yes", "--force"]);
    let has = format!("has a partition {partition}, which carries a label of");
    is_kept(&p, &disk.0, &[&has, "the Bimetal group 'part'"]);
    assert_eq!(p.json(&["check", "part"])["sound"], true);
}

#[test]
fn the_kernel_forgets_the_partitions_of_a_disk_that_is_taken() {
    let (p, file) = place();
    let mut table = vec![0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&(START as u32).to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&(LENGTH as u32).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    let image = std::fs::File::options().write(true).open(&file).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&image, &table, 0).expect("written");
    drop(image);
    let Some(disk) = Disk::new(&file) else { return };
    if disk.add_partition().is_none() {
        return;
    }
    assert!(disk.has_partition());
    p.ok(&["create", "whole", "--fast", "first.img", "--slow", &disk.0, "--yes", "--force"]);
    assert!(!disk.has_partition(), "{} is still there", disk.partition());
    assert!(listed(&p, &disk.0).contains("member of the Bimetal group 'whole'"));
}
