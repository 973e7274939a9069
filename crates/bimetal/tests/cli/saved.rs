//! Metadata that is saved and written back.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;

use crate::common::{checksum, done, installed, Done, Place, MIB};
use crate::loops::{self, Loops};

const FAST: u64 = 48 * MIB;
const SLOW: u64 = 96 * MIB;
/// Where slots begin on members of these sizes: behind the zones, at a whole MiB.
const SLOTS: u64 = 2 * MIB;

fn nbd(p: &Place) -> String {
    format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display())
}

fn copy(from: &str, to: &str) {
    assert!(Command::new("nbdcopy").args(["--flush", from, to]).status().expect("nbdcopy").success());
}

/// A group `tank` that holds `in.raw`, stopped.
fn filled(p: &Place) {
    p.tank();
    let data: Vec<u8> = (0..64 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), data).expect("file");
    let mut daemon = p.serve(&["tank"]);
    copy(&p.path("in.raw").display().to_string(), &nbd(p));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

/// Whether the volume holds what was written to it.
fn is_whole(p: &Place) {
    let report = p.json(&["check", "tank"]);
    assert_eq!(report["sound"], true, "{report}");
    let mut daemon = p.serve(&["tank"]);
    copy(&nbd(p), &p.path("out.raw").display().to_string());
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    let [wanted, found] = ["in.raw", "out.raw"].map(|f| std::fs::read(p.path(f)).expect("read"));
    assert!(found[..wanted.len()] == wanted[..], "what was written is read");
}

fn write_over(p: &Place, file: &str, offset: u64, len: u64) {
    let noise: Vec<u8> = (0..len).map(|i| ((i * 40_503) >> 7) as u8 | 1).collect();
    let file = File::options().write(true).open(p.path(file)).expect("opened");
    file.write_all_at(&noise, offset).expect("written");
}

/// Noise over all that is not slots.
fn wreck(p: &Place) {
    for (file, size) in [("fast.img", FAST), ("slow.img", SLOW)] {
        write_over(p, file, 0, SLOTS);
        write_over(p, file, size - 2 * MIB, 2 * MIB);
    }
}

/// What the members hold.
fn members(p: &Place) -> [u64; 2] {
    ["fast.img", "slow.img"].map(|f| checksum(&p.path(f)))
}

fn refused_untouched(p: &Place, args: &[&str], words: &[&str]) {
    let before = members(p);
    p.refused(args, 1, words);
    assert_eq!(members(p), before, "bimetal {args:?} changed a member");
}

#[test]
fn metadata_that_is_all_gone_comes_back() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    let before = members(&p);
    let answer = p.json(&["dump", "tank", "--save", "tank.saved"]);
    assert_eq!(members(&p), before, "saving writes nothing");
    let meta = std::fs::metadata(p.path("tank.saved")).expect("there");
    assert_eq!((meta.permissions().mode() & 0o777, answer["file_bytes"].as_u64()), (0o600, Some(meta.len())));
    assert!(meta.len() < MIB, "{} bytes for metadata of 64 MiB of data", meta.len());
    assert_eq!(answer["members"].as_array().map(Vec::len), Some(2));
    wreck(&p);
    for command in [&["check", "tank"][..], &["repair", "tank", "--yes"]] {
        p.refused(command, 1, &["No label is left", "bimetal restore FILE --member", "fast.img", "slow.img --force"]);
    }
    refused_untouched(
        &p,
        &["restore", "tank.saved", "--yes", "--force"],
        &["no sound label", "--member", "Nothing was written"],
    );
    let all = ["restore", "tank.saved", "--member", "slow.img", "fast.img", "--yes"];
    refused_untouched(&p, &all, &["no device carries a label", "wrong data", "--force"]);
    refused_untouched(&p, &[&all[..5], &["--force"]].concat(), &["replaces the metadata", "fast.img", "--yes"]);
    let answer = p.json(&[&all[..], &["--force"]].concat());
    assert_eq!((&answer["restored"], &answer["before"]), (&true.into(), &serde_json::Value::Null), "{answer}");
    is_whole(&p);
}

#[test]
fn damaged_zones_come_back_as_long_as_the_labels_prove_it() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    let before = members(&p);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    for file in ["fast.img", "slow.img"] {
        write_over(&p, file, MIB, SLOTS - MIB);
    }
    // One label of two.
    write_over(&p, "slow.img", 65_536, 65_536);
    let damaged = members(&p);
    assert_eq!(p.run(&["check", "tank"]).code, 1);
    let answer = p.json(&["restore", "tank.saved", "--yes"]);
    let proofs: Vec<&str> =
        answer["members"].as_array().expect("a list").iter().filter_map(|m| m["proof"].as_str()).collect();
    assert_eq!(proofs, ["unchanged", "unchanged"], "{answer}");
    // What is no zone was not in the file: between the last one and the slots.
    let restored = members(&p);
    assert_ne!(restored, damaged);
    // What was there before can be had again, too.
    let kept = answer["before"].as_str().expect("saved").to_string();
    assert!(kept.starts_with("tank.saved.before-restore-"), "{kept}");
    p.ok(&["restore", &kept, "--yes"]);
    assert_eq!(members(&p), damaged);
    p.ok(&["restore", "tank.saved", "--yes"]);
    assert_eq!(members(&p), restored);
    assert_ne!(before, damaged);
    is_whole(&p);
}

/// What was saved of copies that were made of a served group, `tank.saved`; then 8 MiB, `in.raw`, were written and flushed, and the
/// daemon was killed.
fn saved_and_then_written(p: &Place) {
    p.tank();
    let data: Vec<u8> = (0..8 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), &data).expect("file");
    let _killed = p.serve(&["tank"]);
    let copies = ["fast.copy", "slow.copy"];
    for (from, to) in ["fast.img", "slow.img"].into_iter().zip(copies) {
        std::fs::copy(p.path(from), p.path(to)).expect("copied in use");
    }
    p.ok(&["dump", "tank", "--save", "tank.saved", "--member", copies[0], copies[1]]);
    copy(&p.path("in.raw").display().to_string(), &nbd(p));
}

/// A bit is flipped in each block of a journal that is not as it was when the group was saved: no commit since is sound. How many.
fn spoil_commits(p: &Place, member: &str) -> usize {
    let [now, then] = ["img", "copy"].map(|end| std::fs::read(p.path(&format!("{member}.{end}"))).expect("read"));
    let file = File::options().write(true).open(p.path(&format!("{member}.img"))).expect("opened");
    let blocks = now.chunks(4096).zip(then.chunks(4096)).enumerate().take((SLOTS / 4096) as usize);
    let changed = blocks.filter(|(_, (now, then))| now != then && now.starts_with(b"BMjr"));
    let spoilt =
        changed.map(|(i, (now, _))| file.write_all_at(&[now[2048] ^ 1], i as u64 * 4096 + 2048).expect("written"));
    spoilt.count()
}

/// Both labels of the SSD go, which takes a repair.
fn repaired(p: &Place) {
    write_over(p, "fast.img", 64 << 10, 64 << 10);
    write_over(p, "fast.img", FAST - 2 * MIB, 64 << 10);
    p.ok(&["repair", "tank", "--yes", "--save", "repair.saved"]);
}

/// Labels change at starts, stops and checkpoints; what is committed in between only the journals know.
#[test]
fn what_was_saved_of_a_group_in_use_is_refused_after_its_next_commit() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    saved_and_then_written(&p);
    refused_untouched(
        &p,
        &["restore", "tank.saved", "--yes", "--force"],
        &["was used since it was saved", "the journal of"],
    );
    // Nothing was committed after this one.
    p.ok(&["dump", "tank", "--save", "later.saved"]);
    write_over(&p, "slow.img", MIB, SLOTS - MIB);
    p.ok(&["restore", "later.saved", "--yes"]);
    is_whole(&p);
}

/// A repair says nothing of when the last commit was; and what it repairs may hide that commit.
#[test]
fn what_was_saved_of_a_group_in_use_is_refused_after_a_repair_if_there_was_a_commit() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    saved_and_then_written(&p);
    p.ok(&["dump", "tank", "--save", "later.saved"]);
    repaired(&p);
    refused_untouched(
        &p,
        &["restore", "tank.saved", "--yes", "--force"],
        &["was used since it was saved", "the journal of"],
    );
    // Nothing was committed after this one: a repair changes no journal.
    p.ok(&["restore", "later.saved", "--yes"]);
    is_whole(&p);
}

#[test]
fn what_was_saved_of_a_group_in_use_is_refused_after_a_repair_though_no_commit_since_is_sound() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    saved_and_then_written(&p);
    let spoilt = ["fast", "slow"].map(|member| spoil_commits(&p, member));
    assert!(spoilt[0] > 0, "there were commits");
    repaired(&p);
    refused_untouched(
        &p,
        &["restore", "tank.saved", "--yes", "--force"],
        &["was used since it was saved", "the journal of"],
    );
}

/// Metadata are saved in `tank.saved`, the SSD goes away to `away.img`, and a repair takes `new` in its place.
fn replaced_by_a_repair(p: &Place, new: &str) {
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    std::fs::rename(p.path("fast.img"), p.path("away.img")).expect("renamed");
    p.ok(&["repair", "tank", "--fast", new, "--yes"]);
}

fn comes_back(p: &Place) {
    std::fs::rename(p.path("away.img"), p.path("fast.img")).expect("renamed");
}

#[test]
fn a_member_that_a_repair_has_struck_off_is_found_in_its_place_when_the_repair_is_undone() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    p.file("new.img", FAST);
    replaced_by_a_repair(&p, "new.img");
    comes_back(&p);
    let answer = p.json(&["restore", "tank.saved", "--yes"]);
    assert_eq!(answer["members"][0]["proof"], "unchanged", "{answer}");
    let erased = answer["erased"][0].as_str().expect("one");
    assert!(erased.ends_with("new.img"), "{answer}");
    is_whole(&p);
}

/// The device of the repair has the name that the member had: it is what the configuration names.
#[test]
fn members_that_a_restore_was_told_of_are_found_by_the_next_start() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    std::fs::rename(p.path("fast.img"), p.path("moved.img")).expect("renamed");
    p.file("fast.img", FAST);
    for command in [&["serve", "tank"][..], &["check", "tank"], &["repair", "tank"]] {
        let said = p.run(command);
        let words = "fast.img is another file than the member, and that was moved";
        let told = (said.out + &said.err).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.code == 1 && told.contains(words), "{told}");
    }
    p.ok(&["repair", "tank", "--fast", "fast.img", "--yes"]);
    let named = ["restore", "tank.saved", "--yes", "--member", "moved.img", "slow.img", "fast.img"];
    let said = p.ok(&named);
    assert!(said.contains("`bimetal check tank` verifies it"), "{said}");
    is_whole(&p);
}

/// Where no configuration describes the group, none is made: it would name those only that have been named.
#[test]
fn a_restore_without_a_configuration_says_that_members_are_to_be_named() {
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    std::fs::remove_dir_all(p.path("etc")).expect("removed");
    let said = p.ok(&["restore", "tank.saved", "--yes", "--member", "fast.img", "slow.img"]);
    assert!(said.contains("`bimetal serve tank --member ") && said.contains("slow.img`"), "{said}");
    assert!(!p.path("etc/groups/tank.toml").exists());
}

/// Its label is the newest: a start would go by it.
#[test]
fn a_member_that_a_repair_has_added_must_be_named_with_the_others_when_the_repair_is_undone() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    let new = p.file("new.img", FAST);
    replaced_by_a_repair(&p, "new.img");
    comes_back(&p);
    let before = checksum(&new);
    let named = ["restore", "tank.saved", "--yes", "--force", "--member", "fast.img", "slow.img"];
    refused_untouched(&p, &named, &["new.img carries a label of the repair", "Name it", "Nothing was written"]);
    assert_eq!(checksum(&new), before);
    let said = p.ok(&[&named[..], &["new.img"]].concat());
    assert!(said.contains("new.img is no member any more; its label is erased"), "{said}");
    is_whole(&p);
}

#[test]
fn what_a_repair_has_struck_off_and_what_it_has_added_is_looked_for_on_block_devices() {
    if !installed("nbdcopy") || !loops::possible() {
        return;
    }
    let p = Place::new();
    filled(&p);
    p.file("new.img", FAST);
    let added = Loops::new(&p, &["new.img"]).expect("possible");
    replaced_by_a_repair(&p, &added.0[0]);
    // Without a description of the group.
    std::fs::rename(p.path("etc"), p.path("etc.away")).expect("renamed");
    comes_back(&p);
    let named = ["restore", "tank.saved", "--yes", "--member", "fast.img", "slow.img"];
    refused_untouched(&p, &named, &[&format!("{} carries a label of the repair", added.0[0]), "disconnect"]);
    std::fs::rename(p.path("etc.away"), p.path("etc")).expect("renamed");
    // The SSD is back under another name.
    std::fs::rename(p.path("fast.img"), p.path("away.img")).expect("renamed");
    let back = Loops::new(&p, &["away.img"]).expect("possible");
    let answer = p.json(&["restore", "tank.saved", "--yes"]);
    assert_eq!(
        (&answer["members"][0]["locator"], &answer["erased"][0]),
        (&back.0[0].clone().into(), &added.0[0].clone().into())
    );
    is_whole(&p);
}

#[test]
fn a_member_that_a_repair_has_added_and_that_is_away_keeps_its_label_as_it_is_told() {
    let p = Place::new();
    p.tank();
    p.file("new.img", FAST);
    replaced_by_a_repair(&p, "new.img");
    comes_back(&p);
    std::fs::rename(p.path("new.img"), p.path("gone.img")).expect("renamed");
    let words = "member 2 (48 MiB) became a member by the repair, and keeps its label";
    p.refused(&["restore", "tank.saved"], 1, &[words, "--yes"]);
    let said = p.ok(&["restore", "tank.saved", "--yes"]);
    assert!(said.contains(words), "{said}");
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn what_was_saved_before_a_start_is_refused_whatever_is_asked() {
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let mut daemon = p.serve(&["tank"]);
    p.refused(&["restore", "tank.saved", "--yes"], 1, &["is being served"]);
    p.refused(&["restore", "tank.saved", "--yes", "--member", "fast.img", "slow.img"], 1, &["is being served"]);
    p.refused(&["dump", "tank", "--save", "other"], 1, &["is being served"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    let args = ["restore", "tank.saved", "--yes", "--force"];
    refused_untouched(&p, &args, &["was used since it was saved", "wrong data", "Nothing was written"]);
    let named = [&args[..], &["--member", "fast.img", "slow.img"]].concat();
    refused_untouched(&p, &named, &["was used since it was saved"]);
    // The label of one is enough to know it.
    write_over(&p, "fast.img", 0, SLOTS);
    write_over(&p, "fast.img", FAST - 2 * MIB, 2 * MIB);
    refused_untouched(&p, &named, &["was used since it was saved", "slow.img"]);
    assert!(!std::fs::read_dir(p.path(""))
        .expect("listed")
        .flatten()
        .any(|f| { f.file_name().to_string_lossy().contains("before-restore") }));
}

#[test]
fn a_file_that_is_damaged_or_is_there_already_changes_nothing() {
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let good = std::fs::read(p.path("tank.saved")).expect("read");
    p.refused(&["dump", "tank", "--save", "tank.saved"], 1, &["is there already"]);
    p.refused(&["dump", "tank", "--save", "fast.img"], 1, &["is there already"]);
    p.refused(&["dump", "tank", "--save", "nowhere/file"], 1, &["nowhere/file cannot be made"]);
    assert_eq!(std::fs::read(p.path("tank.saved")).expect("read"), good);
    let force = |file: &'static str| ["restore", file, "--yes", "--force", "--member", "fast.img", "slow.img"];
    for at in [25, 500, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(p.path("bad"), bad).expect("written");
        refused_untouched(&p, &force("bad"), &["bad cannot be used; nothing was written"]);
    }
    std::fs::write(p.path("bad"), &good[..good.len() - 100]).expect("written");
    refused_untouched(&p, &force("bad"), &["cut off"]);
    std::fs::write(p.path("bad"), "").expect("written");
    refused_untouched(&p, &force("bad"), &["no file that `bimetal dump --save` has made"]);
    refused_untouched(&p, &force("in a folder"), &["cannot be read"]);
    refused_untouched(&p, &force("."), &["no regular file"]);
    refused_untouched(&p, &force("slow.img"), &["no file that"]);
    p.refused(&["restore"], 2, &["FILE"]);
}

#[test]
fn a_member_that_is_missing_or_another_is_told() {
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "whole"]);
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("moved");
    let answer = p.json(&["dump", "tank", "--save", "part"]);
    assert_eq!(answer["missing"].as_array().map(Vec::len), Some(1), "{answer}");
    assert!(p.ok(&["dump", "tank", "--save", "again"]).contains("MISSING: member 1 (slow, 96 MiB)"));
    p.refused(
        &["restore", "whole", "--yes", "--force"],
        1,
        &["not all members", "member 1 (slow, 96 MiB)", "slow.img", "does not exist"],
    );
    p.ok(&["restore", "whole", "--yes", "--member", "away.img", "fast.img"]);
    assert!(p.ok(&["restore", "part", "--yes"]).contains("MISSING: member 1"));
    std::fs::rename(p.path("away.img"), p.path("slow.img")).expect("moved");
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    // One whose labels are gone cannot be saved.
    write_over(&p, "slow.img", 0, MIB);
    write_over(&p, "slow.img", SLOW - 2 * MIB, MIB);
    assert!(p.ok(&["dump", "tank", "--save", "third"]).contains("NOT SAVED: "), "it names the device");
    // The other's label proves that the group was not started since, but not that this is the device.
    refused_untouched(&p, &["restore", "whole", "--yes"], &["slow.img carries no sound label"]);
    let named = ["restore", "whole", "--yes", "--member", "fast.img", "slow.img"];
    refused_untouched(&p, &named, &["slow.img carries no label", "because of its size alone", "zeros", "--force"]);
    // An empty device of the same size does not take the place of one that is there.
    p.file("blank.img", SLOW);
    let forced = p.ok(&[&named[..], &["--force"]].concat());
    assert!(forced.contains("slow.img"), "{forced}");
    let blank = ["restore", "whole", "--yes", "--force", "--member", "fast.img", "blank.img"];
    refused_untouched(&p, &blank, &["slow.img carries a sound label of member 1", "--member"]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn devices_of_another_group_or_of_equal_size_are_refused() {
    let p = Place::new();
    p.file("a.img", SLOW);
    p.file("b.img", SLOW);
    p.ok(&["create", "pool", "--fast", "a.img", "--slow", "b.img"]);
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    p.ok(&["dump", "pool", "--save", "pool.saved"]);
    let other = |file: &'static str, a: &'static str, b: &'static str| {
        let before = ["a.img", "b.img"].map(|f| checksum(&p.path(f)));
        refused_untouched(&p, &["restore", file, "--yes", "--force", "--member", a, b], &["of another group"]);
        assert_eq!(before, ["a.img", "b.img"].map(|f| checksum(&p.path(f))));
    };
    other("tank.saved", "fast.img", "b.img");
    other("pool.saved", "a.img", "slow.img");
    p.refused(&["dump", "tank", "--save", "x", "--member", "a.img"], 1, &["another group, named 'pool'"]);
    p.refused(&["dump", "--save", "x", "--member", "a.img", "slow.img"], 1, &["of another one"]);
    // By their labels they are told apart in any order.
    p.ok(&["restore", "pool.saved", "--yes", "--member", "b.img", "a.img"]);
    assert_eq!(p.json(&["check", "pool"])["sound"], true);
    for file in ["a.img", "b.img"] {
        write_over(&p, file, 0, SLOTS);
        write_over(&p, file, SLOW - 2 * MIB, 2 * MIB);
    }
    let before = ["a.img", "b.img"].map(|f| checksum(&p.path(f)));
    let args = ["restore", "pool.saved", "--yes", "--force", "--member", "a.img", "b.img"];
    p.refused(&args, 1, &["which one cannot be told"]);
    assert_eq!(before, ["a.img", "b.img"].map(|f| checksum(&p.path(f))));
}

/// Runs with writes beyond the first MiBs of a file as errors.
pub(crate) fn run_limited(p: &Place, args: &[&str], mib: u64) -> Done {
    let mut c = Command::new("prlimit");
    c.arg(format!("--fsize={}", mib * MIB));
    c.arg(env!("CARGO_BIN_EXE_bimetal")).args(args);
    c.current_dir(p.path("")).env("BIMETAL_CONFIG_DIR", p.path("etc")).env("BIMETAL_RUN_DIR", p.path("run"));
    done(c.output().expect("prlimit"))
}

#[test]
fn what_was_cut_off_is_completed_by_the_same_command() {
    if !installed("prlimit") {
        return;
    }
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let saved = members(&p);
    // The second label of the fast member can be written, that of the slow one not.
    let failed = run_limited(&p, &["restore", "tank.saved", "--yes"], 60);
    assert_eq!(failed.code, 1, "{}", failed.out);
    for words in ["not completely written back", "slow.img", "give the same command again"] {
        assert!(failed.err.contains(words), "{}", failed.err);
    }
    p.refused(&["serve", "tank"], 1, &[]);
    let answer = p.json(&["restore", "tank.saved", "--yes"]);
    assert_eq!(answer["members"][0]["proof"], "restore begun", "{answer}");
    assert_eq!(members(&p), saved);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn holes_stay_holes_and_a_group_that_was_destroyed_comes_back() {
    let p = Place::new();
    p.file("fast.img", FAST);
    p.file("slow.img", SLOW);
    // Without configuration block devices are looked at, and other tests have groups named `tank` there.
    p.ok(&["create", "saved-once", "--fast", "fast.img", "--slow", "slow.img"]);
    p.ok(&["dump", "saved-once", "--save", "tank.saved"]);
    let blocks = || std::fs::metadata(p.path("slow.img")).expect("there").blocks();
    let before = blocks();
    p.ok(&["destroy", "saved-once", "--yes"]);
    p.refused(
        &["restore", "tank.saved", "--yes"],
        1,
        &["no group named 'saved-once' is configured", "Nothing was written"],
    );
    let words = p.ok(&["restore", "tank.saved", "--yes", "--force", "--member", "fast.img", "slow.img"]);
    assert!(words.contains("bimetal check --member"), "{words}");
    assert_eq!(blocks(), before);
    assert_eq!(p.json(&["check", "--member", "fast.img", "slow.img"])["sound"], true);
}
