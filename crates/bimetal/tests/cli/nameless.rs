//! A member file is removed, or replaced by another of its name, while it is served: what the daemon has open is all that is left.

use crate::common::{installed, Place, MIB};

/// Where nbdcopy finds the volume.
fn uri(p: &Place) -> String {
    format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display())
}

fn nbdcopy(from: &str, to: &str) {
    let done = std::process::Command::new("nbdcopy").arg("--flush").args([from, to]).status();
    assert!(done.expect("nbdcopy").success());
}

/// A group with a volume of 40 MiB that is served, and so much that was written to it.
fn served_with(p: &Place, mib: u64) -> (crate::common::Daemon, Vec<u8>) {
    p.tank_of(&["main:40MiB"]);
    let daemon = p.serve(&["tank"]);
    let data: Vec<u8> = (0..mib * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), &data).expect("file");
    nbdcopy(&p.path("in.raw").display().to_string(), &uri(p));
    (daemon, data)
}

/// Whether the volume begins with that.
fn is_all_there(p: &Place, data: &[u8]) -> bool {
    nbdcopy(&uri(p), &p.path("out.raw").display().to_string());
    std::fs::read(p.path("out.raw")).expect("read")[..data.len()] == *data
}

#[test]
fn the_last_of_a_member_file_that_was_removed_is_not_let_go_without_a_word() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let (mut daemon, data) = served_with(&p, 30);
    assert!(p.ask("GET", "/v1/health", "").contains("\"healthy\":true"));
    let fast = p.path("fast.img");
    std::fs::remove_file(&fast).expect("removed");
    let place = fast.display().to_string();
    let said = [p.ask("GET", "/v1/health", ""), p.ok(&["status", "tank"])];
    for said in &said {
        assert!(said.contains("removed or replaced") && said.contains(&place) && said.contains("/proc/"), "{said}");
    }
    assert!(said[0].contains("\"healthy\":false"), "{}", said[0]);
    while !p.log().contains("removed or replaced") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let replace = "bimetal member replace tank 0 NEW";
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &["removed or replaced", replace]);
    // As it says: then the stop goes on by itself, and nothing is lost.
    p.file("new.img", 96 * MIB);
    p.ok(&["member", "replace", "tank", &place, "new.img", "--yes"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = p.serve(&["tank"]);
    assert!(is_all_there(&p, &data));
}

#[test]
fn whoever_forces_a_stop_is_not_kept_by_a_member_file_that_was_removed() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    p.ok(&["stop", "tank", "--force"]);
    daemon.wait();
}

fn configured(p: &Place) -> String {
    std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("there")
}

/// Whoever is told that such a file is free removes the member, and a start that does not know it advises to go on without it.
#[test]
fn a_member_with_the_name_of_a_file_that_was_removed_is_called_free_by_nobody_and_stays_configured() {
    for is_configured in [true, false] {
        let p = Place::new();
        p.tank();
        let mut daemon = p.serve(&["tank"]);
        if !is_configured {
            std::fs::remove_dir_all(p.path("etc")).expect("removed");
        }
        std::fs::remove_file(p.path("fast.img")).expect("removed");
        p.file("fast.img", 48 * MIB);
        p.refused(
            &["member", "replace", "tank", "0", "fast.img", "--yes"],
            1,
            &["bimetal member add tank --fast fast.img"],
        );
        p.ok(&["member", "add", "tank", "--fast", "fast.img"]);
        p.refused(
            &["member", "remove", "tank", "fast.img", "--yes"],
            1,
            &["fast member 0 and fast member 2", "its number"],
        );
        let said = match is_configured {
            true => p.ok(&["member", "remove", "tank", "0", "--yes"]),
            false => p.ok(&["member", "replace", "tank", "0", "fast.img", "--yes"]),
        };
        assert!(said.contains("fast.img now is fast member 2") && !said.contains("free"), "{said}");
        assert!(configured(&p).contains("fast.img") && configured(&p).contains("slow.img"), "{}", configured(&p));
        p.ok(&["stop", "tank"]);
        assert_eq!(daemon.wait(), 0, "{}", p.log());
        assert_eq!(p.json(&["check", "tank"])["sound"], true);
    }
}

#[test]
fn the_place_of_a_member_whose_file_is_gone_is_not_called_free_and_may_be_anothers_later() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    std::fs::rename(p.path("fast.img"), p.path("moved.img")).expect("moved");
    std::fs::write(p.path("fast.img"), "a letter").expect("written");
    p.file("new.img", 48 * MIB);
    let said = p.ok(&["member", "replace", "tank", "0", "new.img", "--yes"]);
    assert!(said.contains("fast.img now, if anything, was never this member") && !said.contains("free"), "{said}");
    assert!(configured(&p).contains("new.img") && !configured(&p).contains("fast.img"), "{}", configured(&p));
    assert_eq!(std::fs::read(p.path("fast.img")).expect("there"), b"a letter");
    p.file("fast.img", 48 * MIB);
    p.ok(&["member", "add", "tank", "--fast", "fast.img"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// As status says of such a copy: it is no member any more, and is read alone.
#[test]
fn a_copy_of_a_member_file_that_was_removed_can_be_read_alone_after_a_stop() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let (mut daemon, data) = served_with(&p, 4);
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    let said = p.ok(&["status", "tank"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, way) = said.split_once("`cp --sparse=always ").expect("a way to a copy");
    let (open, after) = way.split_once(" NEW`").expect("to where");
    crate::attach::tool("cp", &["--sparse=always", open, &p.path("copy.img").display().to_string()]);
    p.ok(&["stop", "tank", "--force"]);
    daemon.wait();
    p.refused(&["serve", "tank", "--member", "copy.img", "slow.img"], 1, &["older state"]);
    let (_, read) = after.split_once("`bimetal ").expect("a way to read it");
    let read = read.split_once('`').expect("a command").0.replace("NEW", "copy.img");
    let args: Vec<&str> = read.split(' ').collect();
    let _daemon = p.serve(&args[1..]);
    assert!(is_all_there(&p, &data));
}
