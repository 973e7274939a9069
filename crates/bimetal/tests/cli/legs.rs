//! A member is a RAID that keeps its superblock at the end of its disks: each of them carries the member's label.

use std::os::unix::fs::FileExt;

use crate::common::{checksum, Place, MIB};
use crate::loops::Loops;

/// Bytes of the RAID, and of each of its disks.
const RAID: u64 = 96 * MIB;
const LEG: u64 = RAID + 128 * 1024;

/// A group whose slow member is such a RAID, and a disk of it, `leg.img`, as it is before the RAID is assembled.
fn group(p: &Place, name: &str) {
    p.file("fast.img", 48 * MIB);
    let leg = p.file("leg.img", RAID);
    p.ok(&["create", name, "--fast", "fast.img", "--slow", "leg.img"]);
    let file = std::fs::File::options().write(true).open(&leg).expect("opened");
    file.set_len(LEG).expect("size");
    // Metadata 1.0: 8 KiB from the end.
    file.write_all_at(b"\xfc\x4e\x2b\xa9\x01\0\0\0", LEG - 8192).expect("written");
}

#[test]
fn a_disk_of_a_raid_that_is_not_assembled_is_not_taken_for_the_member() {
    let p = Place::new();
    // Block devices are looked at, and other tests have theirs.
    let name = &format!("legs-{}", std::process::id());
    group(&p, name);
    let config = p.path("etc/groups").join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let Some(loops) = Loops::new(&p, &["leg.img", "fast.img"]) else { return };
    let [leg, fast] = [0, 1].map(|i| loops.0[i].as_str());
    let known = |file: &str| p.path(file).display().to_string();
    let text = text.replace(&known("leg.img"), "/dev/md-that-is-not-there").replace(&known("fast.img"), fast);
    std::fs::write(&config, text).expect("written");
    let before = checksum(&p.path("leg.img"));
    let words = [leg, "it is a member of an MD RAID", "Assemble the RAID", "--member", "lacks a member"];
    p.refused(&["check", name], 1, &words);
    p.refused(&["serve", name], 1, &words);
    // By a scan for the name alone.
    std::fs::remove_file(&config).expect("removed");
    p.refused(&["serve", name], 1, &words);
    p.refused(&["destroy", name, "--yes"], 1, &words);
    assert_eq!(checksum(&p.path("leg.img")), before);
    // Who names it means it.
    assert_eq!(p.json(&["check", name, "--member", fast, leg])["sound"], true);
}

#[test]
fn a_member_that_has_grown_is_found_and_so_is_one_beside_its_legs() {
    let p = Place::new();
    let name = &format!("grown-{}", std::process::id());
    group(&p, name);
    // What the RAID shows when it is assembled.
    std::fs::copy(p.path("leg.img"), p.path("raid.img")).expect("copied");
    let raid = std::fs::File::options().write(true).open(p.path("raid.img")).expect("opened");
    raid.set_len(RAID).expect("size");
    raid.set_len(RAID + 16 * MIB).expect("size");
    std::fs::remove_dir_all(p.path("etc")).expect("removed");
    let Some(_loops) = Loops::new(&p, &["leg.img", "raid.img", "fast.img"]) else { return };
    assert_eq!(p.json(&["check", name])["sound"], true);
}
