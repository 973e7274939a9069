//! Members that are files with holes, on a file system that is full.

use crate::common::{installed, Place};
use crate::refusals::{Loop, Mounted};

const MIB: u64 = 1 << 20;

/// A small file system, with a file full of holes in it, and that file's path.
fn small(p: &Place) -> Option<(Loop, Mounted, String)> {
    if !installed("mkfs.ext4") {
        return None;
    }
    let over = Loop::over(&p.file("small.img", 24 * MIB))?;
    let mounted = Mounted::new(p, &over.0);
    let file = format!("{}/fast.img", mounted.0);
    std::fs::File::create(&file).and_then(|f| f.set_len(256 * MIB)).expect("a file with holes");
    p.file("slow.img", 64 * MIB);
    Some((over, mounted, file))
}

/// Takes all that is left.
fn fill(mounted: &Mounted) {
    let taken = std::fs::File::create(format!("{}/filler", mounted.0)).expect("made");
    let mut writer = std::io::BufWriter::new(&taken);
    while std::io::Write::write_all(&mut writer, &[7; 4096]).is_ok() {}
    let (_, rest) = writer.into_parts();
    drop(rest);
    let left = taken.sync_all().is_ok();
    assert!(left, "what was written is there");
}

#[test]
fn a_group_on_a_full_file_system_starts_and_stops() {
    let p = Place::new();
    let Some((_over, mounted, file)) = small(&p) else { return };
    p.ok(&["create", "tank", "--fast", &file, "--slow", "slow.img", "--yes"]);
    fill(&mounted);
    for _ in 0..2 {
        let _daemon = p.serve(&["tank"]);
        p.ok(&["volume", "rename", "tank/main", "other"]);
        p.ok(&["volume", "rename", "tank/other", "main"]);
        p.ok(&["stop", "tank"]);
    }
    p.ok(&["check", "tank"]);
}

#[test]
fn no_group_is_made_where_its_metadata_have_no_room() {
    let p = Place::new();
    let Some((_over, mounted, file)) = small(&p) else { return };
    let create = ["create", "tank", "--fast", &file, "--slow", "slow.img", "--yes"];
    let filler = format!("{}/filler", mounted.0);
    fill(&mounted);
    p.refused(&create, 1, &[&file, "no space left"]);
    // Room for labels, and not for the rest.
    let size = std::fs::metadata(&filler).expect("there").len();
    std::fs::File::options().write(true).open(&filler).and_then(|f| f.set_len(size - MIB)).expect("shorter");
    std::fs::File::open(&filler).and_then(|f| f.sync_all()).expect("synced");
    p.refused(&create, 1, &[&file, "no room", "metadata", "No group was made"]);
    p.refused(&["serve", "tank"], 1, &["tank"]);
    std::fs::remove_file(&filler).expect("gone");
    p.ok(&create);
}

#[test]
fn a_repair_takes_room_for_the_metadata_of_a_new_file_before_it_writes() {
    let p = Place::new();
    let Some((_over, mounted, file)) = small(&p) else { return };
    p.file("fast.img", 64 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:8MiB", "--yes"]);
    std::fs::remove_file(p.path("fast.img")).expect("gone");
    fill(&mounted);
    let before = crate::common::checksum(&p.path("slow.img"));
    let repair = ["repair", "tank", "--fast", &file, "--yes"];
    p.refused(&repair, 1, &["nothing was repaired", &file, "no room", "metadata"]);
    assert_eq!(crate::common::checksum(&p.path("slow.img")), before);
    std::fs::remove_file(format!("{}/filler", mounted.0)).expect("gone");
    p.ok(&repair);
    assert!(has_its_room(&file));
    fill(&mounted);
    let daemon = p.serve(&["tank"]);
    p.ok(&["volume", "rename", "tank/main", "other"]);
    assert!(!p.log().contains("no room"), "it has it: {}", p.log());
    drop(daemon);
}

#[test]
fn a_member_is_added_with_room_for_its_metadata_or_not_at_all() {
    let p = Place::new();
    let Some((_over, mounted, file)) = small(&p) else { return };
    p.file("fast.img", 64 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:8MiB", "--yes"]);
    fill(&mounted);
    let add = ["member", "add", "tank", "--fast", &file, "--yes"];
    for served in [false, true] {
        let daemon = served.then(|| p.serve(&["tank"]));
        p.refused(&add, 1, &["nothing was added", &file, "no room", "metadata"]);
        assert!(!p.ok(&["member", "list", "tank"]).contains(&file), "it is no member");
        drop(daemon);
    }
    std::fs::remove_file(format!("{}/filler", mounted.0)).expect("gone");
    p.ok(&add);
    assert!(has_its_room(&file));
}

/// Whether a member has the room that its metadata want, which is most of what is taken of an empty one.
fn has_its_room(file: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(file).expect("there").blocks() * 512 >= 2 * MIB
}

#[test]
fn a_start_takes_room_for_the_metadata_of_a_copy_with_holes_or_says_that_there_is_none() {
    let p = Place::new();
    let Some((_over, mounted, file)) = small(&p) else { return };
    std::fs::remove_file(&file).expect("gone");
    p.file("fast.img", 256 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--yes"]);
    crate::attach::tool("cp", &["--sparse=always", &p.path("fast.img").display().to_string(), &file]);
    assert!(!has_its_room(&file), "else what follows says nothing");
    fill(&mounted);
    let members = ["tank", "--member", &file, "slow.img"];
    // Whether the start goes on without depends on what it has to write.
    let full = p.run_for(&[&["serve"], &members[..]].concat(), std::time::Duration::from_secs(5));
    assert!(full.contains("no room") && full.contains(&file), "{full}");
    std::fs::remove_file(format!("{}/filler", mounted.0)).expect("gone");
    let mut daemon = p.serve(&members);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(has_its_room(&file) && !p.log().contains("no room"), "{}", p.log());
}

#[test]
fn no_group_is_made_without_room_for_its_metadata_and_what_was_there_is_whole() {
    if !installed("mkfs.ext4") || !installed("e2fsck") {
        return;
    }
    let p = Place::new();
    let Some(over) = Loop::over(&p.file("small.img", 24 * MIB)) else { return };
    let mounted = Mounted::new(&p, &over.0);
    let holes = format!("{}/slow.img", mounted.0);
    std::fs::File::create(&holes).and_then(|f| f.set_len(96 * MIB)).expect("a file with holes");
    let filler = format!("{}/filler", mounted.0);
    let taken = std::fs::File::create(&filler).expect("made");
    let mut writer = std::io::BufWriter::new(&taken);
    while std::io::Write::write_all(&mut writer, &[7; 4096]).is_ok() {}
    drop(writer.into_parts());
    taken.sync_all().expect("synced");
    // Room for what a new member is written, and not for the rest.
    let size = taken.metadata().expect("there").len();
    taken.set_len(size - 2300 * 1024).and_then(|()| taken.sync_all()).expect("shorter");
    // A file system full of files.
    let disk = p.file("disk", 96 * MIB);
    let files = p.path("files");
    std::fs::create_dir(&files).expect("made");
    for i in 0..75 {
        std::fs::write(files.join(format!("f{i}")), vec![i; MIB as usize]).expect("written");
    }
    let made =
        std::process::Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&files).arg(&disk).status().expect("mkfs");
    assert!(made.success());
    let before = std::fs::read(&disk).expect("read");
    let said = p.run(&["create", "tank", "--fast", "disk", "--slow", &holes, "--force", "--yes"]);
    assert!(said.code == 1 && said.err.contains("No group was made"), "{}{}", said.out, said.err);
    let after = std::fs::read(&disk).expect("read");
    let differ = after.iter().zip(&before).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 0, "bytes of the file system were overwritten: {}", said.err);
}
