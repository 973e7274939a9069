//! Small things that are said, and exit codes.

use std::time::Duration;

use crate::common::{installed, Place, MIB};
use crate::{attach, family};

#[test]
fn wrong_usage_has_its_exit_code() {
    let p = Place::new();
    p.tank();
    std::fs::write(p.path("trace"), "x").expect("written");
    for (args, words) in [
        (&["serve", "tank", "--nbd", "foo"][..], &["foo", "unix:PATH or tcp:HOST:PORT"][..]),
        (&["lab", "replay", "trace", "--fast", "0"], &["0", "64GiB"]),
        (&["volume", "create", "tank/x", "--size", "-1"], &["'-1' is not a size"]),
        (&["volume", "resize", "tank/main", "-1GiB"], &["'-1GiB' is not a size"]),
        (&["volume", "create", "tank/x", "--size", "16EiB"], &["every device is smaller than 16 EiB"]),
    ] {
        p.refused(args, 2, words);
        let said = p.run(args).err;
        assert!(!said.contains("-- -1"), "{said}");
    }
}

#[test]
fn a_socket_that_was_named_is_to_be_named_otherwise() {
    let p = Place::new();
    p.tank();
    let long = p.path(&"x".repeat(120)).display().to_string();
    let nbd = p.run(&["serve", "tank", "--nbd", &format!("unix:{long}")]).err;
    assert!(nbd.contains("a shorter path for --nbd") && !nbd.contains("BIMETAL_RUN_DIR"), "{nbd}");
    let control = p.run(&["serve", "tank", "--control", &long]).err;
    assert!(control.contains("a shorter path for --control") && !control.contains("BIMETAL_RUN_DIR"), "{control}");
}

#[test]
fn what_a_path_holds_does_not_reach_the_terminal_raw() {
    let p = Place::new();
    let evil = "x\x1b[2J\u{9b}.img";
    let said = p.run(&["scan", evil]);
    let all = said.out + &said.err;
    assert!(all.contains("x\\u{1b}[2J\\u{9b}.img") && !all.contains(['\x1b', '\u{9b}']), "{all:?}");
    p.file(evil, 48 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", evil, "--slow", "slow.img"]);
    let listed = p.ok(&["member", "list", "tank"]);
    assert!(listed.contains("x\\u{1b}[2J") && !listed.contains('\x1b'), "{listed:?}");
    let found = p.json(&["member", "list", "tank"]);
    assert!(found["members"][0]["locator"].as_str().is_some_and(|at| at.ends_with(evil)), "{found}");
}

#[test]
fn a_group_that_lacks_a_member_is_not_to_be_attached() {
    let p = Place::new();
    p.tank();
    assert!(p.ok(&["status", "tank"]).contains("bimetal attach tank"));
    std::fs::remove_file(p.path("slow.img")).expect("removed");
    let told = p.ok(&["status", "tank"]);
    assert!(!told.contains("bimetal attach") && told.contains("bimetal rescue tank"), "{told}");
    assert!(told.contains("slow.img does not exist"), "{told}");
}

#[test]
fn a_full_run_directory_is_named() {
    if !rustix::process::geteuid().is_root() || !installed("mount") {
        return;
    }
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let run = p.path("run").display().to_string();
    attach::tool("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &run]);
    std::fs::create_dir(p.path("run/tank")).expect("a folder");
    let _ = std::fs::write(p.path("run/fill"), vec![1; 128 << 10]);
    let said = [&["attach", "tank"][..], &["volume", "delete", "tank/main", "--yes"]].map(|args| p.run(args));
    let listed = p.run(&["volume", "list", "tank"]);
    attach::unmount(&run);
    assert!(listed.code == 0 && listed.out.contains("main"), "who only reads needs no lock: {}", listed.err);
    for done in said {
        let words = ["run/tank/lock", "No space left on device"];
        assert!(done.code == 1 && words.iter().all(|w| done.err.contains(w)), "{}", done.err);
    }
}

#[test]
fn a_daemon_that_came_second_does_not_serve_what_was_stopped() {
    if !attach::possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    for _ in 0..3 {
        let attach = || p.ok(&["attach", "tank/main", "--via", "fuse"]);
        std::thread::scope(|scope| (0..4).map(|_| scope.spawn(attach)).collect::<Vec<_>>().into_iter().for_each(drop));
        p.ok(&["stop", "tank"]);
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(p.json(&["status", "tank"])["state"], "not running");
    }
    family::stop(&p, p.serve(&["tank"]));
}
