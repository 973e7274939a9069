//! A restore that was cut off in the middle: whatever is asked next, it is named, and completed by the command that is said.

use std::os::unix::fs::FileExt;

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};

use crate::common::{checksum, installed, Place, MIB};
use crate::family::{fill, is_there, marked, stop};
use crate::loops::{self, Loops};
use crate::saved::run_limited;

/// A group `tank` with something on its SSD, saved in `tank.saved`, and a restore of that which was cut off: the second label of the slow
/// member cannot be written, so the first one has the mark, and the fast member no label. Gives what is on the volume.
fn cut_off(p: &Place) -> Option<Vec<u8>> {
    if !installed("prlimit") || !installed("nbdcopy") {
        return None;
    }
    p.tank_of(&["main:40MiB"]);
    let daemon = p.serve(&["tank"]);
    let content = marked("On the SSD. ", 20 * MIB);
    fill(p, "main", &content);
    stop(p, daemon);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let failed = run_limited(p, &["restore", "tank.saved", "--yes"], 60);
    assert!(failed.err.contains("not completely written back"), "{}", failed.err);
    Some(content)
}

fn holds(p: &Place, content: &[u8]) {
    let daemon = p.serve(&["tank"]);
    is_there(p, "main", content);
    stop(p, daemon);
}

fn members(p: &Place) -> [u64; 2] {
    ["fast.img", "slow.img"].map(|f| checksum(&p.path(f)))
}

#[test]
fn a_restore_that_was_cut_off_is_named_by_whoever_is_asked_next() {
    let p = Place::new();
    let Some(content) = cut_off(&p) else { return };
    let before = members(&p);
    let way =
        format!("`bimetal restore FILE --member {} {}`", p.path("slow.img").display(), p.path("fast.img").display());
    let words = ["A restore of this group was cut off", &way, "same FILE"];
    for command in [&["serve", "tank"][..], &["check", "tank"], &["repair", "tank", "--yes"]] {
        p.refused(command, 1, &words);
        let said = p.run(command).err;
        assert!(!said.contains("`bimetal repair tank` says"), "{said}");
    }
    p.file("new.img", 48 * MIB);
    p.refused(&["repair", "tank", "--fast", "new.img", "--force", "--yes"], 1, &words);
    let named = ["repair", "tank", "--yes", "--member", "slow.img", "fast.img"];
    p.refused(&named, 1, &words);
    // Who leaves it out, or names it as a new one, gives nothing of it up.
    for new in ["new.img", "fast.img"] {
        let without = ["repair", "tank", "--yes", "--force", "--member", "slow.img", "--fast", new];
        p.refused(&without, 1, &words);
    }
    p.refused(&["volume", "create", "tank/more", "--size", "4MiB"], 1, &words);
    assert_eq!(members(&p), before);
    let scanned = p.ok(&["scan"]);
    let words = format!("{} is in the midst of a restore of the Bimetal group 'tank'", p.path("fast.img").display());
    assert!(scanned.contains(&words), "{scanned}");
    let rescued = p.ok(&["rescue", "tank"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(rescued.contains("A restore of this group was cut off"), "{rescued}");
    // What is said is what completes it.
    p.ok(&["restore", "tank.saved", "--yes", "--member", "slow.img", "fast.img"]);
    holds(&p, &content);
}

/// All labels are gone: only marks say of which group the devices are.
#[test]
fn a_restore_that_was_cut_off_before_the_first_label_is_named_too() {
    let p = Place::new();
    let Some(content) = cut_off(&p) else { return };
    take_labels(&p);
    for command in [&["serve", "tank"][..], &["check", "tank"], &["repair", "tank", "--yes"]] {
        p.refused(command, 1, &["A restore of this group was cut off", "fast.img and ", "FILE --member "]);
    }
    // Copies that are named, whatever the group is called.
    p.refused(&["check", "--member", "fast.img", "slow.img"], 1, &["A restore of this group was cut off"]);
    p.ok(&["restore", "tank.saved", "--yes", "--member", "fast.img", "slow.img"]);
    holds(&p, &content);
}

/// The next step of that restore: the slow member has the mark that the fast one has, with its own UUID.
fn take_labels(p: &Place) {
    let mut bytes = std::fs::read(p.path("slow.img")).expect("read");
    let places = [LABEL_A as usize, label_b(bytes.len() as u64) as usize];
    let label = |at: usize| Label::decode(&bytes[at..at + LABEL_SIZE], at as u64).ok();
    let label = places.into_iter().find_map(label).expect("one is left");
    let mut mark = std::fs::read(p.path("fast.img")).expect("read")[places[0]..][..LABEL_SIZE].to_vec();
    assert!(mark.starts_with(b"BIMETAL RESTORE\n"));
    mark[32..48].copy_from_slice(&label.members[usize::from(label.member)].uuid);
    let crc = bimetal_format::block::crc32c(&mark[..64]);
    mark[64..68].copy_from_slice(&crc.to_le_bytes());
    places.iter().for_each(|at| bytes[*at..*at + LABEL_SIZE].copy_from_slice(&mark));
    std::fs::write(p.path("slow.img"), bytes).expect("written");
}

/// As after a power cut: the disk in the midst of it has another name than before.
#[test]
fn a_disk_in_the_midst_of_a_restore_is_found_under_another_name() {
    let p = Place::new();
    if !loops::possible() || !installed("prlimit") {
        return;
    }
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let mut disk = Loops::new(&p, &["fast.img"]).expect("possible");
    p.ok(&["create", "tank", "--fast", &disk.0[0], "--slow", "slow.img", "--yes"]);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let failed = run_limited(&p, &["restore", "tank.saved", "--yes"], 60);
    assert!(failed.err.contains("not completely written back"), "{}", failed.err);
    disk.0.push(loops::attach(&[], &p.path("fast.img")));
    loops::detach(&disk.0.remove(0));
    let words = ["A restore of this group was cut off", &format!("{} is without a label", disk.0[0])];
    for command in [&["serve", "tank"][..], &["check", "tank"], &["repair", "tank", "--yes"]] {
        p.refused(command, 1, &words);
    }
    p.file("new.img", 48 * MIB);
    p.refused(&["repair", "tank", "--fast", "new.img", "--yes", "--member", "slow.img"], 1, &words);
    p.ok(&["restore", "tank.saved", "--yes", "--member", "slow.img", &disk.0[0]]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// The first place of its label is lost, and so it was copied onto a larger disk.
#[test]
fn a_disk_in_the_midst_of_a_restore_is_known_by_its_second_place_though_it_has_grown() {
    let p = Place::new();
    let Some(content) = cut_off(&p) else { return };
    let disk = std::fs::File::options().write(true).open(p.path("fast.img")).expect("opened");
    disk.set_len(64 * MIB).expect("grown");
    disk.write_all_at(&[0; LABEL_SIZE], LABEL_A).expect("written");
    let words = ["A restore of this group was cut off", "fast.img is without a label"];
    for command in [&["serve", "tank"][..], &["check", "tank"], &["repair", "tank", "--yes"]] {
        p.refused(command, 1, &words);
    }
    // Not by force: it says what it is.
    let done = p.json(&["restore", "tank.saved", "--yes", "--member", "slow.img", "fast.img"]);
    assert_eq!(done["members"][0]["proof"], "restore begun", "{done}");
    holds(&p, &content);
}

/// Nothing can complete it: what is there is repaired, if that is said.
#[test]
fn a_restore_whose_file_is_gone_is_given_up_if_that_is_said() {
    let p = Place::new();
    let Some(content) = cut_off(&p) else { return };
    std::fs::remove_file(p.path("tank.saved")).expect("removed");
    p.refused(&["repair", "tank", "--yes", "--force"], 1, &["Only if FILE is gone for good", "--give-up-restore"]);
    p.ok(&["repair", "tank", "--yes", "--give-up-restore"]);
    holds(&p, &content);
}
