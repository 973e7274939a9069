//! Members behind servers have one user: no kernel sees to that.

use crate::common::{installed, Place, MIB};
use crate::server::{locator, Server};

#[test]
fn a_group_behind_servers_is_served_by_one_daemon_and_taken_by_no_command_meanwhile() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let _servers = ["fast", "slow"].map(|name| Server::of(&p, name));
    let (fast, slow) = (locator(&p, "fast"), locator(&p, "slow"));
    p.ok(&["create", "tank", "--fast", &fast, "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    let daemon = p.serve(&["tank"]);
    // Another machine knows the group, and nothing of this daemon.
    let elsewhere = |args: &[&str]| {
        let done = p.command(args).env("BIMETAL_RUN_DIR", p.path("elsewhere")).output().expect("the program starts");
        let said = String::from_utf8_lossy(&done.stderr).replace("\n  ", " ");
        assert_eq!(done.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("is in use by process") && said.contains("which serves it"), "{args:?}: {said}");
    };
    elsewhere(&["serve", "tank"]);
    // What it reads may be another chunk's data a moment later.
    elsewhere(&["serve", "--read-only", "tank"]);
    elsewhere(&["check", "tank"]);
    elsewhere(&["destroy", "tank", "--yes"]);
    elsewhere(&["repair", "tank", "--yes"]);
    p.file("other.img", 48 * MIB);
    elsewhere(&["create", "other", "--fast", "other.img", "--slow", &slow, "--force", "--yes"]);
    // Nor does anybody get it on the servers' machine, who has the files themselves.
    elsewhere(&["serve", "tank", "--member", "fast.img", "--member", "slow.img"]);
    elsewhere(&["serve", "--read-only", "tank", "--member", "fast.img", "--member", "slow.img"]);
    // All that has cost the daemon nothing, and it leaves no wait behind.
    p.ok(&["stop", "tank"]);
    drop(daemon);
    let check = p.ok(&["check", "tank"]);
    assert!(check.contains("Everything is in order"), "{check}");
    let daemon = p.serve(&["--read-only", "tank"]);
    let check = p.command(&["check", "tank"]).env("BIMETAL_RUN_DIR", p.path("elsewhere")).output().expect("starts");
    assert!(check.status.success(), "several may read: {}", String::from_utf8_lossy(&check.stderr));
    p.ok(&["stop", "tank"]);
    drop(daemon);
    let daemon = p.serve(&["tank", "--member", "fast.img", "--member", "slow.img"]);
    p.ok(&["stop", "tank"]);
    drop(daemon);
    p.ok(&["destroy", "tank", "--yes"]);
}

#[test]
fn what_servers_call_by_two_names_becomes_no_member_twice_and_keeps_what_it_holds() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    p.file("one.img", 64 * MIB);
    let content = vec![0xA5; 64 * MIB as usize];
    std::fs::write(p.path("one.img"), &content).expect("filled");
    let file = p.path("one.img").display().to_string();
    let _servers = ["one", "two"].map(|name| Server::with(&p, name, &["file", &file]));
    let (one, two) = (locator(&p, "one"), locator(&p, "two"));
    let create = ["create", "tank", "--fast", &one, "--slow", &two, "--force", "--yes"];
    p.refused(&create, 1, &["lead to the same device", &one, &two]);
    assert!(std::fs::read(p.path("one.img")).expect("read") == content, "something was written");
    assert!(!p.ok(&["status"]).contains("tank"));
}
