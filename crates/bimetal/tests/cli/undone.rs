//! What was saved can be written back, whoever was connected then and is now: devices that were half added, and leftovers of repairs.

use std::path::Path;

use crate::common::{installed, Place, MIB};
use crate::family::{fill, is_there, marked, stop};
use crate::former::joining;
use crate::leftover::{as_begun, back_after_a_cut_off, done_with_the_old_one};
use crate::loops::{self, Loops};

/// A group `tank` beside a disk, shown as a loop device, whose adding was cut off; the next start struck its place out. `other.img` has become
/// the member with its index. Gives what is on the SSD.
fn beside_a_half_added_disk(p: &Place) -> Option<(Loops, Vec<u8>)> {
    if !loops::possible() || !installed("nbdcopy") {
        return None;
    }
    p.tank_of(&["main:40MiB"]);
    let state = ["fast.img", "slow.img", "etc/groups/tank.toml"];
    let before = state.map(|name| std::fs::read(p.path(name)).expect("read"));
    p.file("half.img", 64 * MIB);
    let mut loops = Loops::new(p, &["half.img"])?;
    p.ok(&["member", "add", "tank", "--slow", &loops.0[0], "--yes"]);
    loops::detach(&loops.0.remove(0));
    state.iter().zip(before).for_each(|(name, bytes)| std::fs::write(p.path(name), bytes).expect("written"));
    joining(&p.path("half.img"));
    // Whatever its name is now: another test may have taken the one that it had.
    loops.0.push(loops::attach(&[], &p.path("half.img")));
    p.file("other.img", 96 * MIB);
    p.ok(&["member", "add", "tank", "--slow", "other.img", "--yes"]);
    let daemon = p.serve(&["tank"]);
    let content = marked("On the SSD. ", 20 * MIB);
    fill(p, "main", &content);
    stop(p, daemon);
    Some((loops, content))
}

/// The volume `main` of `tank` holds this.
fn holds(p: &Place, content: &[u8]) {
    let daemon = p.serve(&["tank"]);
    is_there(p, "main", content);
    stop(p, daemon);
}

/// The SSD is not found one day, and the disk is. It was only a cable.
#[test]
fn a_repair_beside_a_disk_that_was_half_added_can_be_undone() {
    let p = Place::new();
    let Some((_loops, content)) = beside_a_half_added_disk(&p) else { return };
    std::fs::rename(p.path("fast.img"), p.path("cable.img")).expect("gone");
    p.file("new.img", 48 * MIB);
    let said = p.ok(&["repair", "tank", "--fast", "new.img", "--yes", "--save", "undo.saved"]);
    assert!(said.contains("To undo it") && said.contains("has not become a member, so it is not saved"), "{said}");
    std::fs::rename(p.path("cable.img"), p.path("fast.img")).expect("back");
    p.ok(&["restore", "undo.saved", "--yes"]);
    holds(&p, &content);
}

#[test]
fn a_disk_that_was_half_added_is_not_saved_and_keeps_nothing_from_being_written_back() {
    let p = Place::new();
    let Some((loops, content)) = beside_a_half_added_disk(&p) else { return };
    let half = loops.0[0].as_str();
    let all = ["--member", "fast.img", "slow.img", "other.img", half];
    let said = p.ok(&[&["dump", "--save", "tank.saved"][..], &all].concat());
    let words = format!("NOT SAVED: {half}: it was being added to the group when that was cut off");
    assert!(said.contains(&words), "{said}");
    p.ok(&[&["restore", "tank.saved", "--yes"][..], &all].concat());
    p.ok(&["restore", "tank.saved", "--yes"]);
    holds(&p, &content);
}

/// The new device of a repair that was cut off, and then done with another one, is connected: the start has struck it out of the configuration.
#[test]
fn what_is_saved_beside_a_leftover_can_be_written_back() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:40MiB"]);
    std::fs::remove_file(p.path("fast.img")).expect("it has died");
    let before = std::fs::read(p.path("slow.img")).expect("read");
    p.file("first.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "first.img", "--yes"]);
    as_begun(&p.path("slow.img"), &before, &p.path("first.img"));
    std::fs::rename(p.path("first.img"), p.path("away.img")).expect("unplugged");
    p.file("second.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "second.img", "--yes"]);
    std::fs::rename(p.path("away.img"), p.path("first.img")).expect("plugged in");
    let daemon = p.serve(&["tank"]);
    let content = marked("Only on the second one. ", 20 * MIB);
    fill(&p, "main", &content);
    stop(&p, daemon);
    let all = ["--member", "slow.img", "second.img", "first.img"];
    let said = p.ok(&[&["dump", "--save", "tank.saved"][..], &all].concat());
    let told = ["NOT SAVED", "first.img: it was being added"].iter().all(|words| said.contains(words));
    assert!(told, "{said}");
    p.ok(&[&["restore", "tank.saved", "--yes"][..], &all].concat());
    p.ok(&["restore", "tank.saved", "--yes"]);
    holds(&p, &content);
}

/// The members were not started since, so that nothing but the repair tells them from it.
#[test]
fn what_is_saved_right_after_a_repair_that_was_done_without_a_new_device_can_be_written_back_beside_that() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = done_with_the_old_one(&p);
    let saved = p.json(&["dump", "tank", "--save", "tank.saved"]);
    let places = saved["members"].as_array().expect("a list").iter().filter_map(|m| m["locator"].as_str());
    let places: Vec<&Path> = places.map(Path::new).collect();
    assert_eq!(places, [p.path("fast.img"), p.path("slow.img")]);
    p.ok(&["restore", "tank.saved", "--yes"]);
    p.ok(&["restore", "tank.saved", "--yes", "--member", "fast.img", "slow.img", "new.img"]);
    holds(&p, &content);
}

#[test]
fn who_undoes_a_repair_that_was_cut_off_learns_of_the_new_device_that_is_away() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = back_after_a_cut_off(&p);
    std::fs::rename(p.path("new.img"), p.path("away.img")).expect("unplugged");
    let words = format!("NOT FOUND: {}. If a repair", p.path("new.img").display());
    p.refused(&["restore", "undo.saved"], 1, &[&words, "Never start the group with it", "--yes"]);
    let said = p.ok(&["restore", "undo.saved", "--yes"]);
    assert!(said.contains(&words), "{said}");
    holds(&p, &content);
}

/// The repair is done with another new device, whose label does not tell of the first one.
#[test]
fn who_undoes_a_repair_that_was_done_without_a_new_device_learns_of_that_one() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = back_after_a_cut_off(&p);
    for (from, to) in [("fast.img", "cable.img"), ("new.img", "away.img")] {
        std::fs::rename(p.path(from), p.path(to)).expect("unplugged");
    }
    p.file("second.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "second.img", "--yes"]);
    std::fs::rename(p.path("cable.img"), p.path("fast.img")).expect("back");
    let said = p.json(&["restore", "undo.saved", "--yes"]);
    assert_eq!(said["places_not_found"], serde_json::json!([p.path("new.img")]), "{said}");
    assert_eq!(said["erased"], serde_json::json!([p.path("second.img")]), "{said}");
    holds(&p, &content);
}

/// Members that the first repair missed are there in the second one, which changes them. Both are undone by what that says.
#[test]
fn two_repairs_are_undone_as_the_second_one_says_whoever_was_there_in_the_first() {
    if !installed("nbdcopy") {
        return;
    }
    for (unplugged, is_back) in [("new.img", true), ("new.img", false), ("fast.img", true)] {
        let p = Place::new();
        let content = back_after_a_cut_off(&p);
        std::fs::rename(p.path(unplugged), p.path("away.img")).expect("unplugged");
        let said = p.ok(&["repair", "tank", "--yes", "--save", "second.saved"]);
        if is_back {
            std::fs::rename(p.path("away.img"), p.path(unplugged)).expect("plugged in");
        }
        let way =
            said.lines().find(|line| line.contains("To undo both")).unwrap_or_else(|| panic!("it says how: {said}"));
        let words: Vec<&str> = way.split([' ', ',', ';']).collect();
        let files = words.windows(3).filter(|w| w[..2] == ["bimetal", "restore"]).map(|w| w[2]);
        let files: Vec<&str> = files.map(|file| if file == "FILE" { "undo.saved" } else { file }).collect();
        assert!(!files.is_empty(), "{way}");
        for file in files {
            let restore = ["restore", file, "--yes"];
            let done = p.run(&restore);
            // The new device of the first one was not there in the second, which tells nothing of it then.
            if done.code != 0 {
                assert!(
                    done.err.contains("new.img carries a label of the repair that is to be undone"),
                    "{}",
                    done.err
                );
                p.ok(&[&restore[..], &["--member", "fast.img", "slow.img", "new.img"]].concat());
            }
        }
        holds(&p, &content);
    }
}

/// What is at hand is dealt with.
#[test]
fn a_new_device_that_is_there_loses_its_label_when_a_repair_that_was_cut_off_is_undone() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = back_after_a_cut_off(&p);
    let said = p.ok(&["restore", "undo.saved", "--yes"]);
    assert!(said.contains("new.img is no member any more") && !said.contains("NOT FOUND"), "{said}");
    holds(&p, &content);
}
