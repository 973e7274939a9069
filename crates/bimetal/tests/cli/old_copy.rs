//! New devices that carry a copy of a member: an old one is as good as empty, the member itself never.

use crate::common::{checksum, installed, Place, MIB};
use crate::family::{fill, is_there, marked, stop};
use crate::server::{locator, Server};

/// A group `tank` that was used twice: `spare.img` is a copy of its SSD from in between, `slow.old` of its disk. Gives what was written last.
fn used_twice(p: &Place) -> Option<Vec<u8>> {
    if !installed("nbdcopy") {
        return None;
    }
    p.tank_of(&["main:40MiB"]);
    used(p, &marked("First. ", 20 * MIB));
    for (from, to) in [("fast.img", "spare.img"), ("slow.img", "slow.old")] {
        std::fs::copy(p.path(from), p.path(to)).expect("copied");
    }
    let content = marked("Second. ", 20 * MIB);
    used(p, &content);
    Some(content)
}

fn used(p: &Place, content: &[u8]) {
    let daemon = p.serve(&["tank"]);
    fill(p, "main", content);
    stop(p, daemon);
}

fn refused_untouched(p: &Place, args: &[&str], words: &[&str]) {
    let sums = || ["spare.img", "slow.img"].map(|f| checksum(&p.path(f)));
    let before = sums();
    p.refused(args, 1, words);
    assert_eq!(sums(), before, "bimetal {args:?} changed a device");
}

const OLD: &str = "member 0 of this very group in an older state";

#[test]
fn an_old_copy_of_the_ssd_that_died_takes_its_place_by_force() {
    let p = Place::new();
    let Some(_) = used_twice(&p) else { return };
    std::fs::remove_file(p.path("fast.img")).expect("it has died");
    let repair = ["repair", "tank", "--fast", "spare.img", "--yes"];
    refused_untouched(&p, &repair, &[OLD, "bimetal rescue tank --member", "--force"]);
    // What is said to see what it holds.
    p.ok(&["rescue", "tank", "--member", "spare.img"]);
    let asked = ["repair", "tank", "--fast", "spare.img", "--force"];
    refused_untouched(&p, &asked, &["everything on it is lost", OLD, "--yes"]);
    let done = p.json(&[&repair[..], &["--force"]].concat());
    assert_eq!(done["new_members"], serde_json::json!([2]), "{done}");
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    used(&p, &marked("Third. ", 20 * MIB));
}

/// Of the same start as the others, but not of its end.
#[test]
fn a_copy_that_was_made_in_use_is_an_old_one() {
    let p = Place::new();
    if !installed("nbdcopy") {
        return;
    }
    p.tank_of(&["main:40MiB"]);
    let daemon = p.serve(&["tank"]);
    std::fs::copy(p.path("fast.img"), p.path("spare.img")).expect("copied");
    fill(&p, "main", &marked("After it. ", 20 * MIB));
    stop(&p, daemon);
    std::fs::remove_file(p.path("fast.img")).expect("it has died");
    let repair = ["repair", "tank", "--fast", "spare.img", "--yes"];
    refused_untouched(&p, &repair, &[OLD, "--force"]);
    p.ok(&[&repair[..], &["--force"]].concat());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn an_old_copy_where_the_configuration_has_the_member_is_taken_by_force_too() {
    let p = Place::new();
    let Some(_) = used_twice(&p) else { return };
    std::fs::copy(p.path("spare.img"), p.path("fast.img")).expect("put back");
    let repair = ["repair", "tank", "--fast", "fast.img", "--yes"];
    refused_untouched(&p, &repair, &[OLD, "--force"]);
    p.ok(&[&repair[..], &["--force"]].concat());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    used(&p, &marked("Third. ", 20 * MIB));
}

#[test]
fn no_force_takes_the_member_itself_nor_one_that_is_newer_than_the_others() {
    let p = Place::new();
    let Some(content) = used_twice(&p) else { return };
    std::fs::rename(p.path("fast.img"), p.path("spare.img")).expect("it has moved");
    let repair = ["repair", "tank", "--fast", "spare.img", "--yes", "--force"];
    refused_untouched(&p, &repair, &["spare.img is no new device", "Name it with the other members"]);
    std::fs::rename(p.path("slow.img"), p.path("slow.new")).expect("renamed");
    std::fs::copy(p.path("slow.old"), p.path("slow.img")).expect("put back");
    refused_untouched(&p, &repair, &["not taken for a new device", "member 1 of group tank holds an older state"]);
    std::fs::rename(p.path("slow.new"), p.path("slow.img")).expect("renamed");
    std::fs::rename(p.path("spare.img"), p.path("fast.img")).expect("it is back");
    // Nor where the configuration has it.
    let there = ["repair", "tank", "--fast", "fast.img", "--yes", "--force"];
    p.refused(&there, 1, &["fast.img is member 0 of this group already"]);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

/// Two copies of a group, each used on its own.
#[test]
fn a_member_that_was_used_apart_is_taken_by_force_unless_it_was_used_longer() {
    let p = Place::new();
    if !installed("nbdcopy") {
        return;
    }
    p.tank_of(&["main:40MiB"]);
    let both = ["fast.img", "slow.img"];
    let copied = |to: &str| both.iter().for_each(|f| drop(std::fs::copy(p.path(f), p.path(&format!("{f}.{to}")))));
    copied("first");
    used(&p, &marked("Here. ", 10 * MIB));
    copied("here");
    for f in both {
        std::fs::rename(p.path(&format!("{f}.first")), p.path(f)).expect("renamed");
    }
    let repaired_with = |other: &str, spare: &str, words: &[&str]| {
        std::fs::copy(p.path(&format!("fast.img.{spare}")), p.path("spare.img")).expect("copied");
        std::fs::copy(p.path(&format!("slow.img.{other}")), p.path("slow.img")).expect("copied");
        let _gone = std::fs::remove_file(p.path("fast.img"));
        refused_untouched(&p, &["repair", "tank", "--fast", "spare.img", "--yes"], &words[..1]);
        let forced = ["repair", "tank", "--fast", "spare.img", "--yes", "--force"];
        match words.get(1) {
            Some(word) => refused_untouched(&p, &forced, &[word]),
            None => drop(p.ok(&forced)),
        }
    };
    for _ in 0..3 {
        used(&p, &marked("There. ", 10 * MIB));
    }
    copied("there");
    repaired_with("here", "there", &["used apart from the others", "and longer than these"]);
    repaired_with("there", "here", &["used apart from the others: it may hold what they have not"]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// The member is behind a server, which may take no second connection: nobody looks there.
#[test]
fn a_clone_of_a_member_behind_a_server_is_told_with_a_way_that_works() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let _server = Server::of(&p, "fast");
    let fast = locator(&p, "fast");
    p.ok(&["create", "tank", "--fast", &fast, "--slow", "slow.img", "--volume", "main:8MiB", "--yes"]);
    std::fs::copy(p.path("fast.img"), p.path("spare.img")).expect("cloned");
    let add = ["member", "add", "tank", "--fast", "spare.img", "--yes", "--force"];
    let wipe = format!("bimetal destroy tank --member {}", p.path("spare.img").display());
    let words = ["spare.img carries the label of member 0 of group 'tank', and so may ", &fast, &wipe];
    for served in [true, false] {
        let daemon = served.then(|| p.serve(&["tank"]));
        p.refused(&add, 1, &words);
        daemon.into_iter().for_each(|daemon| stop(&p, daemon));
    }
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("unplugged");
    p.refused(&["repair", "tank", "--fast", "spare.img", "--yes", "--force"], 1, &words);
    std::fs::rename(p.path("away.img"), p.path("slow.img")).expect("plugged in");
    // All three are named, of which two are the same.
    std::fs::copy(p.path("fast.img"), p.path("spare.img")).expect("cloned");
    let all = ["--member", &fast, "slow.img", "spare.img"];
    let [with, without] = [&fast, "spare.img"].map(|out| {
        let others = ["slow.img", &fast, "spare.img"].into_iter().filter(|at| *at != out);
        others.map(str::to_owned).collect::<Vec<_>>()
    });
    for command in ["serve", "check", "repair"] {
        let wipe = "bimetal destroy tank --member COPY";
        p.refused(
            &[&[command, "tank"][..], &all].concat(),
            1,
            &["both member 0", "bimetal check tank --member ", wipe],
        );
    }
    p.refused(&[&["check"][..], &all].concat(), 1, &["bimetal check tank --member "]);
    for named in [&with, &without] {
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        assert_eq!(p.json(&[&["check", "tank", "--member"][..], &named].concat())["sound"], true);
    }
    p.ok(&["destroy", "tank", "--member", "spare.img", "--yes"]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    p.ok(&add[..6]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn a_clone_of_a_member_becomes_a_new_one_as_it_is_said() {
    let p = Place::new();
    let Some(content) = used_twice(&p) else { return };
    let add = ["member", "add", "tank", "--fast", "spare.img", "--yes", "--force"];
    let replace = ["member", "replace", "tank", "fast.img", "spare.img", "--yes", "--force"];
    let way = format!(
        "with the group stopped, and it is like a new one: bimetal destroy tank --member {}",
        p.path("spare.img").display()
    );
    let words = [
        "spare.img carries the label of member 0 of group 'tank', and so does ",
        "fast.img: one of them is a copy",
        &way,
    ];
    for served in [true, false] {
        let daemon = served.then(|| p.serve(&["tank"]));
        p.refused(&add, 1, &words);
        p.refused(&replace, 1, &words);
        daemon.into_iter().for_each(|daemon| stop(&p, daemon));
    }
    // No repair takes it either.
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("unplugged");
    p.refused(&["repair", "tank", "--fast", "spare.img", "--yes", "--force"], 1, &words);
    std::fs::rename(p.path("away.img"), p.path("slow.img")).expect("plugged in");
    p.ok(&["destroy", "tank", "--member", "spare.img", "--yes"]);
    p.ok(&replace[..6]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    let daemon = p.serve(&["tank"]);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}
