//! Volumes made, resized, renamed and deleted, served and not.

use crate::attach::{is_let_go, possible, tool, unmount};
use crate::common::{installed, Place, MIB};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

/// What no volume made later may ever show.
const MARKER: &[u8; 16] = b"do-not-read-this";

fn uri(p: &Place, volume: &str) -> String {
    format!("nbd+unix:///{volume}?socket={}", p.socket("nbd.sock").display())
}

fn copy(from: &str, to: &str) {
    let status = Command::new("nbdcopy").args(["--flush", from, to]).status().expect("nbdcopy");
    assert!(status.success(), "{from} to {to}");
}

fn export_size(p: &Place, volume: &str) -> Option<u64> {
    let out = Command::new("nbdinfo").args(["--size", &uri(p, volume)]).output().expect("nbdinfo");
    String::from_utf8_lossy(&out.stdout).trim().parse().ok().filter(|_| out.status.success())
}

fn names(list: &serde_json::Value) -> Vec<&str> {
    list["volumes"].as_array().expect("a list").iter().filter_map(|v| v["name"].as_str()).collect()
}

fn two_volumes(p: &Place) {
    p.tank_of(&["root:16MiB", "home:32MiB"]);
}

#[test]
fn volumes_come_and_go_without_a_daemon() {
    let p = Place::new();
    two_volumes(&p);
    let made = p.json(&["volume", "create", "tank/films", "--size", "24MiB", "--placement", "slow-only"]);
    assert_eq!((&made["change"], &made["size_bytes"]), (&"created".into(), &(24 * MIB).into()));
    let list = p.json(&["volume", "list", "tank"]);
    assert_eq!(names(&list), ["root", "home", "films"]);
    assert_eq!(list["volumes"][2]["placement"], "slow-only");
    assert_ne!(list["volumes"][2]["uuid"], list["volumes"][1]["uuid"]);
    p.ok(&["volume", "resize", "tank/root", "20MiB"]);
    p.ok(&["volume", "rename", "tank/home", "house"]);
    p.ok(&["volume", "resize", "tank/house", "1MiB"]);
    p.ok(&["volume", "delete", "tank/films", "--yes"]);
    let words = p.ok(&["volume", "list", "tank"]);
    assert!(words.contains("house") && words.contains("20 MiB") && !words.contains("films"), "{words}");
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
    let dump = p.json(&["dump", "tank"]);
    assert_eq!(dump["volumes"].as_array().map(Vec::len), Some(2), "{dump}");
    // All that is left.
    let rest = p.json(&["volume", "create", "tank/rest"])["size_bytes"].as_u64().expect("a size");
    assert!(rest > 80 * MIB, "{rest}");
    p.refused(&["volume", "create", "tank/more"], 1, &["more are needed", "left", "delete"]);
    assert!(!p.path("run/tank/control.sock").exists());
}

#[test]
fn bad_wishes_are_refused_in_words_and_change_nothing() {
    let p = Place::new();
    two_volumes(&p);
    let before = p.json(&["volume", "list", "tank"]);
    for (args, code, words) in [
        (&["create", "tank/root", "--size", "1MiB"][..], 1, &["there is a volume 'root' already"][..]),
        (&["create", "tank/big", "--size", "1TiB"], 1, &["1 TiB", "are left"]),
        (&["create", "tank/none", "--size", "1KiB"], 1, &["128 KiB"]),
        (&["create", "tank/fast", "--size", "45MiB", "--placement", "fast-only"], 1, &["fast tier"]),
        (&["create", "tank/../etc", "--size", "1MiB"], 2, &["names begin"]),
        (&["create", "tank", "--size", "1MiB"], 1, &["name the volume"]),
        (&["create", "tank/x", "--size", "99999999999999999999GiB"], 2, &["every device is smaller than 16 EiB"]),
        (&["create", "tank/x", "--placement", "left"], 2, &["left"]),
        (&["resize", "tank/root", "16EiB"], 2, &["smaller than 16 EiB"]),
        (&["resize", "tank/root", "15000PiB"], 1, &["are left"]),
        (&["resize", "tank/root", "0"], 1, &["128 KiB"]),
        (&["resize", "tank/nobody", "1MiB"], 1, &["no volume 'nobody'"]),
        (&["rename", "tank/root", "home"], 1, &["already"]),
        (&["rename", "tank/root", "Root"], 2, &["names begin"]),
        (&["delete", "tank/nobody", "--yes"], 1, &["no volume 'nobody'"]),
        (&["delete", "tank/root"], 1, &["deletes volume 'root'", "--yes"]),
        (&["list", "nobody"], 1, &["no group named 'nobody'"]),
    ] {
        let all: Vec<&str> = ["volume"].iter().chain(args).copied().collect();
        p.refused(&all, code, words);
    }
    assert_eq!(p.json(&["volume", "list", "tank"]), before);
    let _daemon = p.serve(&["tank", "--read-only"]);
    p.refused(&["volume", "create", "tank/x", "--size", "1MiB"], 1, &["read-only"]);
    p.refused(&["volume", "delete", "tank/root", "--yes"], 1, &["read-only"]);
}

#[test]
fn a_daemon_serves_what_is_made_and_what_was_deleted_is_never_read_again() {
    if !installed("nbdcopy") || !installed("nbdinfo") {
        return;
    }
    let p = Place::new();
    two_volumes(&p);
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["volume", "create", "tank/secret", "--size", "60MiB"]);
    assert_eq!(export_size(&p, "secret"), Some(60 * MIB), "served at once");
    let secrets: Vec<u8> = MARKER.iter().copied().cycle().take(60 * MIB as usize).collect();
    std::fs::write(p.path("secrets.raw"), &secrets).expect("file");
    copy(&p.path("secrets.raw").display().to_string(), &uri(&p, "secret"));
    p.refused(&["volume", "resize", "tank/secret", "30MiB"], 1, &["there is data up to 60 MiB", "fstrim"]);
    let status = p.json(&["status", "tank"]);
    assert!(status["exports"]
        .as_array()
        .is_some_and(|e| e.iter().any(|u| u.as_str().is_some_and(|u| u.contains("/secret?")))));
    p.ok(&["volume", "rename", "tank/secret", "hidden"]);
    assert_eq!((export_size(&p, "secret"), export_size(&p, "hidden")), (None, Some(60 * MIB)));

    p.ok(&["volume", "delete", "tank/hidden", "--yes"]);
    assert_eq!(export_size(&p, "hidden"), None, "not served any more");
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["deleting"], serde_json::json!([]));
    p.ok(&["volume", "create", "tank/next", "--size", "70MiB"]);
    let pages = |name: &str| {
        copy(&uri(&p, name), &p.path("out.raw").display().to_string());
        std::fs::read(p.path("out.raw")).expect("file")
    };
    let seen = pages("next");
    assert_eq!(seen.len() as u64, 70 * MIB);
    assert!(seen.iter().all(|b| *b == 0), "a new volume is zeros");
    // Killed, and started again: the same.
    daemon.child.kill().expect("killed");
    daemon.wait();
    let mut daemon = p.serve(&["tank"]);
    assert!(pages("next").iter().all(|b| *b == 0), "after a crash too");
    p.ok(&["volume", "resize", "tank/next", "72MiB"]);
    assert_eq!(export_size(&p, "next"), Some(72 * MIB));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// Between the question and its answer the name may have become another's.
#[test]
fn a_volume_is_deleted_only_if_it_is_the_one_that_is_meant() {
    let p = Place::new();
    two_volumes(&p);
    let _daemon = p.serve(&["tank"]);
    let list = p.json(&["volume", "list", "tank"]);
    let of = |i: usize, key: &str| list["volumes"][i][key].as_str().expect("text").to_owned();
    let delete = |uuid: &str| {
        let body = serde_json::json!({ "change": "delete", "name": of(0, "name"), "uuid": uuid });
        p.ask("POST", "/v1/volumes", &body.to_string())
    };
    assert!(delete(&of(1, "uuid")).contains("another volume"), "{}", delete(&of(1, "uuid")));
    assert!(delete("no").contains("is no UUID"));
    assert_eq!(p.json(&["volume", "list", "tank"]), list, "nothing was deleted");
    assert!(delete(&of(0, "uuid")).contains("200 OK"));
    assert_eq!(names(&p.json(&["volume", "list", "tank"])), [of(1, "name")]);
}

#[test]
fn a_volume_in_use_is_deleted_only_by_force_and_its_client_is_told() {
    if !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    two_volumes(&p);
    let _daemon = p.serve(&["tank"]);
    let mut client = Command::new("qemu-io")
        .args(["-f", "raw", &uri(&p, "home")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("qemu-io");
    let mut commands = client.stdin.take().expect("input");
    let mut ask = |command: &[u8]| commands.write_all(command).and_then(|()| commands.flush()).expect("it listens");
    ask(b"write -P 7 0 4096\n");
    let begun = std::time::Instant::now();
    while p.json(&["volume", "list", "tank"])["volumes"][1]["fast_bytes"] == 0 {
        assert!(begun.elapsed().as_secs() < 20, "the client does not write");
    }
    p.refused(&["volume", "delete", "tank/home", "--yes"], 1, &["in use", "1 NBD client", "--force"]);
    p.refused(&["volume", "resize", "tank/home", "1MiB"], 1, &["in use", "--force"]);
    p.ok(&["volume", "resize", "tank/home", "40MiB"]);
    p.ok(&["volume", "delete", "tank/home", "--yes", "--force"]);
    ask(b"read 0 4096\n");
    // It reads a line each time that there is something to read: the end must come by itself.
    drop(commands);
    let out = client.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(words.contains("wrote 4096/4096") && words.contains("read failed"), "{words}");
    assert_eq!(names(&p.json(&["volume", "list", "tank"])), ["root"]);
}

fn size_of(device: &str) -> u64 {
    let out = Command::new("blockdev").args(["--getsize64", device]).output().expect("blockdev");
    String::from_utf8_lossy(&out.stdout).trim().parse().expect("bytes")
}

#[test]
fn a_file_system_grows_with_its_volume_and_an_attached_one_is_not_taken_away() {
    if !possible() || !installed("resize2fs") {
        return;
    }
    let p = Place::new();
    two_volumes(&p);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    let device = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    tool("mkfs.ext4", &["-q", "-F", &device]);
    tool("mount", &[&device, &at]);
    std::fs::write(format!("{at}/hello"), "world").expect("a file");
    p.refused(&["volume", "delete", "tank/home", "--yes"], 1, &["is attached as", "is mounted at", "detach"]);
    p.refused(&["volume", "rename", "tank/home", "house"], 1, &["is attached as", "detach"]);
    let words = p.ok(&["volume", "resize", "tank/home", "48MiB"]);
    assert!(words.contains(&format!("{device} has it, too")), "{words}");
    assert_eq!(size_of(&device), 48 * MIB, "while it is mounted");
    let answer = p.json(&["volume", "resize", "tank/home", "64MiB"]);
    assert_eq!(answer["attached"], serde_json::json!([{ "device": &device, "has_new_size": true }]));
    let mut end = vec![5u8; 4096];
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(&device).expect("opened");
    opened.write_all_at(&end, 64 * MIB - 4096).and_then(|()| opened.sync_all()).expect("written beyond the old end");
    opened.read_exact_at(&mut end, 64 * MIB - 4096).expect("read");
    assert!(end.iter().all(|b| *b == 5));
    assert!(opened.write_at(&end, 64 * MIB).is_err(), "no further");
    drop(opened);
    unmount(&at);
    p.ok(&["detach", "tank/home"]);
    p.ok(&["volume", "rename", "tank/home", "house"]);
    let device = p.ok(&["attach", "tank/house", "--via", "fuse"]).trim().to_string();
    tool("e2fsck", &["-fp", &device]);
    tool("resize2fs", &[&device]);
    tool("mount", &[&device, &at]);
    let big = vec![7u8; 40 << 20];
    std::fs::write(format!("{at}/big"), &big).expect("more than fitted before");
    assert_eq!(std::fs::read_to_string(format!("{at}/hello")).expect("still there"), "world");
    unmount(&at);
    tool("fsck.ext4", &["-fn", &device]);
    p.ok(&["detach", "tank/house"]);
    p.ok(&["volume", "delete", "tank/house", "--yes"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn what_was_attached_is_forgotten_with_its_volume() {
    if !possible() {
        return;
    }
    let p = Place::new();
    two_volumes(&p);
    let old = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    let words = ["in use", "its file in", "is open", "--force"];
    p.refused(&["volume", "resize", "tank/home", "1MiB"], 1, &words);
    p.refused(&["volume", "delete", "tank/home", "--yes"], 1, &["is attached as"]);
    p.ok(&["volume", "delete", "tank/home", "--yes", "--force"]);
    assert_eq!(p.json(&["status", "tank"])["attachments"], serde_json::json!([]));
    is_let_go(&p, &old);
    p.ok(&["volume", "create", "tank/home", "--size", "24MiB"]);
    let device = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    assert_eq!(size_of(&device), 24 * MIB, "the new volume");
    p.refused(&["volume", "resize", "tank/home", "16MiB"], 1, &["in use", "--force"]);
    assert_eq!(size_of(&device), 24 * MIB);
    p.ok(&["volume", "resize", "tank/home", "16MiB", "--force"]);
    assert_eq!(size_of(&device), 16 * MIB, "smaller, too");
    tool("dd", &["if=/dev/zero", &format!("of={device}"), "bs=4096", "count=1", "oflag=direct", "status=none"]);
    p.ok(&["detach", "tank/home"]);
    // Renamed and replaced, at once.
    p.ok(&["volume", "rename", "tank/home", "old"]);
    p.ok(&["volume", "create", "tank/home", "--size", "8MiB"]);
    let device = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    assert_eq!(size_of(&device), 8 * MIB);
    p.ok(&["stop", "tank"]);
}

#[test]
fn what_a_dead_daemon_has_left_is_to_be_detached_before_a_volume_goes() {
    if !possible() {
        return;
    }
    let p = Place::new();
    two_volumes(&p);
    let mut daemon = p.serve(&["tank"]);
    let device = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    daemon.child.kill().expect("killed");
    daemon.wait();
    let words = ["is attached as /dev/loop", "left over", "bimetal detach tank/home"];
    p.refused(&["volume", "delete", "tank/home", "--yes"], 1, &words);
    p.refused(&["volume", "rename", "tank/home", "house"], 1, &words);
    p.ok(&["volume", "resize", "tank/home", "40MiB"]);
    p.ok(&["detach", "tank/home"]);
    // Most machines have a folder /home, which is what the device's file is named after its mount is gone.
    is_let_go(&p, &device);
    p.ok(&["volume", "rename", "tank/home", "house"]);
    p.ok(&["volume", "delete", "tank/house", "--yes"]);
}

#[test]
fn a_volume_without_a_size_takes_what_the_map_has_room_for() {
    let p = Place::new();
    p.tank();
    p.file("more.img", 8192 * MIB);
    p.ok(&["member", "add", "tank", "--slow", "more.img"]);
    for served in [false, true] {
        let daemon = served.then(|| p.serve(&["tank"]));
        let made = p.json(&["volume", "create", "tank/rest"]);
        let size = made["size_bytes"].as_u64().expect("a number");
        assert!(size > 100 * MIB && size < 8000 * MIB, "{made}");
        p.refused(&["volume", "create", "tank/more"], 1, &["the map of this group has room for only 0"]);
        p.ok(&["volume", "delete", "tank/rest", "--yes"]);
        daemon.into_iter().for_each(|daemon| crate::family::stop(&p, daemon));
    }
}

/// A client that comes again, as `nbd-client -persist` and `reconnect-delay` of qemu do, asks for the name that it knew.
#[test]
fn a_volume_that_an_nbd_client_uses_is_not_renamed_from_under_it() {
    if !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:16MiB", "new:16MiB"]);
    let _daemon = p.serve(&["tank"]);
    let mut client = Command::new("qemu-io")
        .args(["-f", "raw", &uri(&p, "main")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("qemu-io");
    let mut commands = client.stdin.take().expect("input");
    commands.write_all(b"write -P 7 0 4096\nflush\n").and_then(|()| commands.flush()).expect("it listens");
    let begun = std::time::Instant::now();
    while p.json(&["volume", "list", "tank"])["volumes"][0]["fast_bytes"] == 0 {
        assert!(begun.elapsed().as_secs() < 20, "the client does not write");
    }
    p.refused(&["volume", "rename", "tank/main", "old"], 1, &["volume 'main' is in use", "connects again", "--force"]);
    p.ok(&["volume", "rename", "tank/main", "old", "--force"]);
    drop(commands);
    client.wait().expect("it ends");
    p.ok(&["volume", "rename", "tank/old", "main"]);
}
