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
