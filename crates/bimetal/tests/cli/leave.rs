//! Members emptied, taken out and replaced, served and not.

use std::process::Command;

use serde_json::Value;

use crate::common::{checksum, installed, Daemon, Place, MIB};

/// A group of one fast and two slow members with one volume of 64 MiB.
fn three(p: &Place) {
    p.file("fast.img", 64 * MIB);
    p.file("slow.img", 160 * MIB);
    p.file("slow2.img", 160 * MIB);
    p.ok(&[
        "create",
        "tank",
        "--fast",
        "fast.img",
        "--slow",
        "slow.img",
        "--slow",
        "slow2.img",
        "--volume",
        "main:64MiB",
    ]);
}

fn nbd(p: &Place, volume: &str) -> String {
    format!("nbd+unix:///{volume}?socket={}", p.socket("nbd.sock").display())
}

fn copy(from: &str, to: &str) {
    let status = Command::new("nbdcopy").args(["--flush", from, to]).status().expect("nbdcopy");
    assert!(status.success(), "nbdcopy {from} {to}");
}

fn fill(p: &Place, volume: &str, size: u64) {
    let data: Vec<u8> = (0..size).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), data).expect("file");
    copy(&p.path("in.raw").display().to_string(), &nbd(p, volume));
}

fn same(p: &Place, volume: &str) {
    let out = p.path("out.raw");
    let _ = std::fs::remove_file(&out);
    copy(&nbd(p, volume), &out.display().to_string());
    assert_eq!(checksum(&out), checksum(&p.path("in.raw")), "what was written is read");
}

fn path(p: &Place, name: &str) -> String {
    p.path(name).to_str().expect("plain").to_string()
}

fn members(p: &Place) -> Vec<(u64, String)> {
    let list = p.json(&["member", "list", "tank"]);
    let row = |m: &Value| (m["index"].as_u64().expect("a number"), m["state"].as_str().unwrap_or_default().to_string());
    list["members"].as_array().expect("a list").iter().map(row).collect()
}

fn used(p: &Place, index: u64) -> u64 {
    let list = p.json(&["member", "list", "tank"]);
    let all = list["members"].as_array().expect("a list");
    let m = all.iter().find(|m| m["index"] == index).expect("a member");
    let n = |k: &str| m[k].as_u64().expect("a number");
    n("slots") - n("free_slots") - n("quarantined_slots")
}

fn configured(p: &Place) -> String {
    std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("the configuration")
}

fn is_sound(p: &Place) {
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
}

fn in_use(all: &[u64]) -> Vec<(u64, String)> {
    all.iter().map(|i| (*i, "in use".to_string())).collect()
}

/// The daemon of a group of three, and the number of a slow member that has chunks of volume `cold`.
fn served_with_a_victim(p: &Place) -> (Daemon, u64) {
    three(p);
    p.ok(&["volume", "create", "tank/cold", "--size", "48MiB", "--placement", "slow-only"]);
    let daemon = p.serve(&["tank"]);
    fill(p, "cold", 48 * MIB);
    let victim = if used(p, 1) > 0 { 1 } else { 2 };
    (daemon, victim)
}

#[test]
fn a_slow_member_is_emptied_and_taken_out_while_the_group_is_served() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let (mut daemon, victim) = served_with_a_victim(&p);
    assert!(used(&p, victim) > 0, "something is on it");
    let (name, file) =
        if victim == 1 { ("slow.img", path(&p, "slow.img")) } else { ("slow2.img", path(&p, "slow2.img")) };
    let evacuated = p.json(&["member", "evacuate", "tank", name]);
    assert_eq!((&evacuated["change"], &evacuated["used_bytes"]), (&"evacuated".into(), &0.into()), "{evacuated}");
    let words = p.ok(&["status", "tank"]);
    assert!(words.contains("is leaving, and empty") && words.contains("(leaving, empty)"), "{words}");
    assert!(p.ok(&["member", "list", "tank"]).contains("leaving, empty"));
    same(&p, "cold");
    p.refused(&["member", "remove", "tank", name], 1, &["leaves group 'tank'", name, "--yes"]);
    let words = p.ok(&["member", "remove", "tank", name, "--yes"]);
    assert!(words.contains("is free now") && words.contains(&file), "{words}");
    same(&p, "cold");
    let others = in_use(&[0, 3 - victim]);
    assert_eq!(members(&p), others);
    assert!(!configured(&p).contains(&file), "{}", configured(&p));
    // It belongs to nobody: another group may have it at once.
    p.file("fast3.img", 48 * MIB);
    p.ok(&["create", "other", "--fast", "fast3.img", "--slow", name, "--yes"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    is_sound(&p);
    let scan = p.json(&["scan"]);
    // Block devices of other tests are found, too.
    let mut of_tank = scan["groups"].as_array().expect("a list").iter().filter(|g| g["group"] == "tank");
    assert!(of_tank.all(|g| g["complete"] == true), "{scan}");
    let mut daemon = p.serve(&["tank"]);
    assert_eq!(members(&p), others);
    same(&p, "cold");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn the_fast_member_is_replaced_without_a_daemon() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    three(&p);
    let mut daemon = p.serve(&["tank"]);
    fill(&p, "main", 64 * MIB);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(used(&p, 0) > 0, "something is on it");
    p.file("new.img", 64 * MIB);
    let replace = ["member", "replace", "tank", "fast.img", "new.img", "--yes"];
    p.refused(&replace[..5], 1, &["fast.img", "leaves group 'tank'", "--yes"]);
    let done = p.json(&replace);
    let answer = (&done["change"], &done["member"], &done["removed"], &done["erased"]);
    assert_eq!(answer, (&"replaced".into(), &3.into(), &0.into(), &true.into()), "{done}");
    assert_eq!(members(&p), in_use(&[1, 2, 3]));
    assert!(configured(&p).contains("new.img") && !configured(&p).contains("fast.img"), "{}", configured(&p));
    is_sound(&p);
    let words = p.ok(&replace);
    assert!(words.contains("nothing left to do") && words.contains("slow2.img (slow member 2)"), "{words}");
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    let _daemon = p.serve(&["tank"]);
    same(&p, "main");
}

#[test]
fn a_replacement_that_was_interrupted_goes_on() {
    let p = Place::new();
    three(&p);
    p.file("new.img", 64 * MIB);
    p.ok(&["member", "add", "tank", "--fast", "new.img"]);
    p.ok(&["member", "evacuate", "tank", "0", "--no-wait"]);
    assert_eq!(members(&p)[0].1, "leaving");
    let _daemon = p.serve(&["tank"]);
    let done = p.run(&["member", "replace", "tank", "0", "new.img"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(done.err.contains("already: going on") && done.out.contains("is free now"), "{}{}", done.out, done.err);
    assert_eq!(members(&p), in_use(&[1, 2, 3]));
}

#[test]
fn what_cannot_leave_is_refused_and_stays() {
    let p = Place::new();
    three(&p);
    let refusals = || {
        for command in ["evacuate", "remove"] {
            let yes = if command == "remove" { &["--yes"][..] } else { &[] };
            let all = |who: &'static str| [&["member", command, "tank", who], yes].concat();
            p.refused(&all("fast.img"), 1, &["fast.img (fast member 0)", "last member of the fast tier"]);
            p.refused(&all("7"), 1, &["no member 7", "bimetal member list tank"]);
            p.refused(&all("other.img"), 1, &["no member other.img"]);
        }
        p.refused(&["member", "evacuate", "tank", "1", "--cancel"], 1, &["slow.img", "not leaving"]);
        p.refused(&["member", "replace", "tank", "1", "slow.img", "--yes"], 1, &["its own place"]);
        p.refused(&["member", "replace", "tank", "0", "slow.img", "--yes"], 1, &["cannot take the place"]);
    };
    refusals();
    p.ok(&["volume", "create", "tank/rest", "--size", "160MiB"]);
    for way in [&[][..], &["--dry-run"]] {
        let args = [&["member", "evacuate", "tank", "1"], way].concat();
        p.refused(&args, 1, &["slow.img (slow member 1)", "without this member the group has room for only"]);
    }
    let mut daemon = p.serve(&["tank"]);
    refusals();
    let ask = |body: &str| p.ask("POST", "/v1/members", body);
    assert!(ask(r#"{"change":"remove","member":1}"#).contains("member 1 is not leaving"));
    assert!(ask(r#"{"change":"keep","member":1}"#).contains("member 1 is not leaving"));
    assert!(ask(r#"{"change":"evacuate","member":9}"#).contains("no member 9"));
    assert!(ask(r#"{"change":"evacuate","member":1}"#).contains("room for only"));
    assert_eq!(members(&p), in_use(&[0, 1, 2]));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    is_sound(&p);
}

#[test]
fn a_replacement_that_is_too_small_is_not_begun() {
    let p = Place::new();
    three(&p);
    p.ok(&["volume", "create", "tank/rest", "--size", "240MiB"]);
    p.file("small.img", 64 * MIB);
    p.file("large.img", 160 * MIB);
    let before = (checksum(&p.path("small.img")), configured(&p));
    for served in [false, true] {
        let mut daemon = served.then(|| p.serve(&["tank"]));
        let words = ["slow.img (slow member 1) could not leave", "MiB more are needed", "Nothing was written"];
        p.refused(&["member", "replace", "tank", "1", "small.img", "--yes"], 1, &words);
        assert_eq!((checksum(&p.path("small.img")), configured(&p)), before);
        assert_eq!(members(&p), in_use(&[0, 1, 2]));
        if let Some(daemon) = &mut daemon {
            let done = p.run(&["member", "replace", "tank", "1", "large.img", "--yes"]);
            assert_eq!(done.code, 0, "{}{}", done.out, done.err);
            let said = done.out + &done.err;
            assert!(said.contains("large.img is slow member 3") && !said.contains("resize"), "{said}");
            p.ok(&["stop", "tank"]);
            assert_eq!(daemon.wait(), 0, "{}", p.log());
        }
    }
    is_sound(&p);
}

#[test]
fn a_dry_run_changes_nothing_and_a_member_can_be_kept() {
    let p = Place::new();
    three(&p);
    let sums = || ["fast.img", "slow.img", "slow2.img"].map(|f| checksum(&p.path(f)));
    let before = sums();
    let plan = p.json(&["member", "evacuate", "tank", "2", "--dry-run"]);
    assert_eq!((&plan["change"], &plan["member"]), (&"planned".into(), &2.into()), "{plan}");
    assert!(plan["room_bytes"].as_u64().is_some_and(|room| room > 0), "{plan}");
    assert_eq!(sums(), before, "nothing was written");
    p.refused(&["member", "evacuate", "tank", "2", "--dry-run", "--cancel"], 2, &["--cancel"]);
    let mut daemon = p.serve(&["tank"]);
    let words = p.ok(&["member", "evacuate", "tank", "2", "--dry-run"]);
    assert!(words.contains("Nothing was changed"), "{words}");
    assert_eq!(members(&p), in_use(&[0, 1, 2]));
    for served in [true, false] {
        if !served {
            p.ok(&["stop", "tank"]);
            assert_eq!(daemon.wait(), 0, "{}", p.log());
        }
        p.ok(&["member", "evacuate", "tank", "2", "--no-wait"]);
        assert_eq!(members(&p)[2].1, "leaving");
        let kept = p.json(&["member", "evacuate", "tank", "2", "--cancel"]);
        assert_eq!(kept["change"], "kept", "{kept}");
        assert_eq!(members(&p), in_use(&[0, 1, 2]));
    }
    is_sound(&p);
}

#[test]
fn a_member_that_dies_when_it_is_empty_is_done_without_and_one_that_is_in_use_is_waited_for() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let (mut daemon, victim) = served_with_a_victim(&p);
    let file = p.path(if victim == 1 { "slow.img" } else { "slow2.img" });
    let (number, away) = (victim.to_string(), p.path("away.img"));
    let stop = |daemon: &mut Daemon| {
        p.ok(&["stop", "tank"]);
        assert_eq!(daemon.wait(), 0, "{}", p.log());
    };
    stop(&mut daemon);
    // It is leaving, and its chunks are still on it.
    p.ok(&["member", "evacuate", "tank", &number, "--no-wait"]);
    assert!(used(&p, victim) > 0, "not all of it has gone");
    std::fs::rename(&file, &away).expect("renamed");
    p.refused(&["serve", "tank"], 1, &["incomplete", "waiting for member"]);
    std::fs::rename(&away, &file).expect("renamed");
    p.ok(&["member", "evacuate", "tank", &number]);
    assert_eq!(used(&p, victim), 0);
    std::fs::rename(&file, &away).expect("renamed");
    let mut daemon = p.serve(&["tank"]);
    assert!(p.log().contains("it was leaving and nothing is on it any more"), "{}", p.log());
    let others = in_use(&[0, 3 - victim]);
    assert_eq!(members(&p), others);
    same(&p, "cold");
    stop(&mut daemon);
    assert!(p.ok(&["check", "tank"]).contains("the next start strikes it out"));
    is_sound(&p);
    // Should it come back, nobody takes it for a member, and it is forgotten.
    std::fs::rename(&away, &file).expect("renamed");
    let mut daemon = p.serve(&["tank"]);
    assert!(p.log().contains("which goes on without it"), "{}", p.log());
    assert!(p.log().contains("taken out of the configuration"), "{}", p.log());
    assert_eq!(members(&p), others);
    same(&p, "cold");
    let name = file.to_str().expect("plain");
    assert!(!configured(&p).contains(name) && configured(&p).contains("fast.img"), "{}", configured(&p));
    stop(&mut daemon);
    let words = p.ok(&["check", "tank"]);
    assert!(words.contains("Everything is in order") && !words.contains(name), "{words}");
}

/// Whoever is told that nothing is left to do wipes the old device.
#[test]
fn a_member_that_is_not_found_or_has_another_name_is_not_said_to_have_left() {
    let p = Place::new();
    three(&p);
    p.file("new.img", 64 * MIB);
    p.ok(&["member", "add", "tank", "--fast", "new.img"]);
    let fast = p.path("fast.img");
    std::fs::hard_link(&fast, p.path("other.img")).expect("another name");
    let words = ["other.img is", "(fast member 0)", "member replace tank 0 new.img"];
    p.refused(&["member", "replace", "tank", "other.img", "new.img", "--yes"], 1, &words);
    std::fs::rename(&fast, p.path("away.img")).expect("away");
    let words =
        ["no member was found at fast.img", "fast member 0 was not found anywhere", "member replace tank 0 new.img"];
    p.refused(&["member", "replace", "tank", "fast.img", "new.img", "--yes"], 1, &words);
}
