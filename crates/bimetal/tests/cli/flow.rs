//! The life of a group at the command line.

use crate::common::{checksum, installed, scanned, Place, MIB};
use std::process::Command;

/// A log on a full disk ends no command in its midst.
#[test]
fn words_that_cannot_be_written_end_no_command() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("there");
    for (args, code) in [(&["detach", "nosuch"][..], 1), (&["check", "nosuch"], 1), (&["stop", "tank"], 0)] {
        let status = p.command(args).stdin(std::process::Stdio::null()).stderr(full()).status().expect("starts");
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

#[test]
fn a_stop_may_have_all_the_time_there_is() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank", "--timeout", "18446744073709551615"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_group_is_made_served_stopped_checked_and_destroyed() {
    let p = Place::new();
    let made = p.tank_of(&["root:16MiB", "home"]);
    assert_eq!(made["volumes"][0]["size_bytes"], 16 * MIB);
    assert_eq!(made["members"][0]["tier"], "fast");
    let down = p.json(&["status", "tank"]);
    assert_eq!(down["state"], "not running");
    let found = p.json(&["scan"]);
    assert_eq!(scanned(&found, "tank").expect("found")["complete"], true);

    let mut daemon = p.serve(&["tank"]);
    let up = p.json(&["status", "tank"]);
    assert_eq!(up["state"], "serving");
    assert_eq!(up["uuid"], made["uuid"]);
    assert_eq!(up["volumes"][1]["name"], "home");
    assert_eq!(up["volumes"][0]["sector_bytes"], 4096);
    assert!(up["summary"].as_array().is_some_and(|s| !s.is_empty()));
    let words = p.ok(&["status", "tank"]);
    assert!(words.contains("serving") && words.contains("reserve"), "{words}");
    p.refused(&["serve", "tank"], 1, &["already being served"]);
    p.refused(&["destroy", "tank", "--yes"], 1, &["being served", "stop"]);
    assert!(p.ok(&["check", "tank"]).contains("Group 'tank' is in use."));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(!p.socket("control.sock").exists() && !p.socket("nbd.sock").exists());
    let again = p.json(&["stop", "tank"]);
    assert_eq!(again["was_running"], false);

    let before = (checksum(&p.path("fast.img")), checksum(&p.path("slow.img")));
    let report = p.json(&["check", "tank"]);
    assert_eq!(report["sound"], true, "{report}");
    assert_eq!(report["clean"], true);
    assert_eq!(report["writes"], 0);
    let dump = p.json(&["dump", "tank"]);
    assert_eq!(dump["group"], "tank");
    p.refused(&["destroy", "tank"], 1, &["destroys group 'tank'", "fast.img", "slow.img", "--yes"]);
    assert_eq!(before, (checksum(&p.path("fast.img")), checksum(&p.path("slow.img"))), "members are untouched");

    p.ok(&["destroy", "tank", "--yes"]);
    assert_eq!(scanned(&p.json(&["scan", "fast.img"]), "tank"), None);
    p.refused(&["status", "tank"], 1, &["no group named 'tank'"]);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--yes"]);
}

#[test]
fn a_terminated_daemon_stops_in_order() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(p.log().contains("SIGTERM") && p.log().contains("is stopped"), "{}", p.log());
    assert_eq!(p.json(&["check", "tank"])["clean"], true);
}

#[test]
fn a_killed_daemon_leaves_nothing_in_the_way() {
    let p = Place::new();
    p.tank();
    drop(p.serve(&["tank"]));
    let down = p.json(&["status", "tank"]);
    assert_eq!(down["state"], "not running");
    let _daemon = p.serve(&["tank"]);
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
}

#[test]
fn data_survives_a_restart() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.tank();
    let data: Vec<u8> = (0..64 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), &data).expect("file");
    let uri = format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display());
    let copy = |from: &str, to: &str| {
        let status = Command::new("nbdcopy").args(["--flush", from, to]).status().expect("nbdcopy");
        assert!(status.success());
    };
    {
        let mut daemon = p.serve(&["tank"]);
        copy(&p.path("in.raw").display().to_string(), &uri);
        p.ok(&["stop", "tank"]);
        assert_eq!(daemon.wait(), 0);
    }
    let report = p.json(&["check", "tank"]);
    assert_eq!(report["sound"], true, "{report}");
    assert_eq!(report["chunks"], 512);
    let _daemon = p.serve(&["tank", "--read-only"]);
    copy(&uri, &p.path("out.raw").display().to_string());
    let out = std::fs::read(p.path("out.raw")).expect("file");
    assert!(out[..data.len()] == data[..], "what was written is read");
    assert!(out[data.len()..].iter().all(|b| *b == 0), "the rest is zeros");
}

#[test]
fn members_are_found_by_name_and_an_incomplete_group_says_what_it_waits_for() {
    let p = Place::new();
    p.tank();
    std::fs::rename(p.path("slow.img"), p.path("moved.img")).expect("rename");
    let scan = p.json(&["scan"]);
    let state = scanned(&scan, "tank").expect("found")["state"].as_str().unwrap_or_default().to_string();
    assert!(state.contains("incomplete, waiting for slow member 1"), "{state}");
    p.refused(&["serve", "tank"], 1, &["slow.img does not exist", "if it was moved", "--member"]);
    let _daemon = p.serve(&["tank", "--member", "fast.img", "moved.img"]);
    assert_eq!(p.json(&["status", "tank"])["members"][1]["present"], true);
}

#[test]
fn without_its_slow_member_a_group_is_served_read_only_on_request() {
    let p = Place::new();
    p.tank();
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("rename");
    let before = checksum(&p.path("fast.img"));
    let mut daemon = p.serve(&["tank", "--read-only", "--allow-missing"]);
    let status = p.json(&["status", "tank"]);
    assert_eq!((&status["read_only"], &status["members"][1]["present"]), (&true.into(), &false.into()));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0);
    assert_eq!(checksum(&p.path("fast.img")), before, "a read-only start writes nothing");
}

#[test]
fn a_bare_device_is_served_for_comparison() {
    let p = Place::new();
    p.file("bare.img", 16 * MIB);
    let mut daemon = p.serve(&["--raw", "bare.img", "--nbd", "unix:bare.sock"]);
    if installed("nbdinfo") {
        let uri = format!("nbd+unix:///?socket={}", p.path("bare.sock").display());
        let out = Command::new("nbdinfo").args(["--size", &uri]).output().expect("nbdinfo");
        assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), (16 * MIB).to_string());
    }
    daemon.terminate();
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}
