//! Volumes that become plain files again.

use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::attach::ends;
use crate::common::{checksum, installed, Daemon, Place, MIB};
use crate::files;
use crate::server::{locator, until, Server};

fn nbd(p: &Place) -> String {
    format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display())
}

/// A group with one volume that holds `in.raw`.
fn filled(p: &Place) -> Daemon {
    p.file("fast.img", 64 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:40MiB"]);
    let daemon = p.serve(&["tank"]);
    let data: Vec<u8> = (0..30 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), data).expect("file");
    let from = p.path("in.raw");
    let status = Command::new("nbdcopy").arg("--flush").arg(&from).arg(nbd(p)).status().expect("nbdcopy");
    assert!(status.success());
    std::fs::File::options().write(true).open(from).and_then(|f| f.set_len(40 * MIB)).expect("as long as the volume");
    daemon
}

/// Somebody who uses the volume until his input ends.
fn user(p: &Place) -> Child {
    let mut user = Command::new("qemu-io");
    user.args(["-f", "raw", &nbd(p)]).stdin(Stdio::piped()).stdout(Stdio::null());
    user.spawn().expect("qemu-io")
}

/// Somebody who uses the volume, and a copy that has come so far that it waits for him.
fn waiting_copy(p: &Place, more: &[&str]) -> (Child, Child) {
    let user = user(p);
    // A copy that comes to its end before there is a user waits for nobody.
    assert!(comes(|| p.json(&["status", "tank"])["clients"].as_array().is_some_and(|all| !all.is_empty())));
    let mut copy = p.command(&[&["dissolve", "tank/main", "--onto"], more].concat());
    let copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    assert!(comes_to(p, "waiting"), "{}", phase(p));
    (user, copy)
}

fn phase(p: &Place) -> serde_json::Value {
    p.json(&["status", "tank"])["dissolving"]["phase"].clone()
}

fn comes_to(p: &Place, wanted: &str) -> bool {
    comes(|| phase(p) == wanted)
}

fn comes(is_so: impl Fn() -> bool) -> bool {
    let pause = || std::thread::sleep(Duration::from_millis(50));
    (0..300).any(|_| {
        pause();
        is_so()
    })
}

fn is_equal(p: &Place, file: &str) {
    assert_eq!(checksum(&p.path(file)), checksum(&p.path("in.raw")), "{file}");
}

fn written(answer: &serde_json::Value) -> u64 {
    let d = &answer["dissolving"];
    assert_eq!((&d["phase"], &d["unsure_bytes"]), (&"done".into(), &0.into()), "{answer}");
    d["written_bytes"].as_u64().expect("a number")
}

#[test]
fn a_volume_becomes_a_file_and_only_what_differs_is_written_again() {
    if !installed("nbdcopy") {
        return;
    }
    use std::os::unix::fs::{FileExt, MetadataExt};
    let p = Place::new();
    let mut daemon = filled(&p);
    let answer = p.json(&["dissolve", "tank/main", "--onto", "out.img"]);
    assert!((30 * MIB..=31 * MIB).contains(&written(&answer)), "{answer}");
    is_equal(&p, "out.img");
    let meta = std::fs::metadata(p.path("out.img")).expect("made");
    assert!(meta.len() == 40 * MIB && meta.blocks() * 512 < 32 * MIB, "what was never written is a hole");
    // The device is let go.
    let file = std::fs::File::options().write(true).open(p.path("out.img")).expect("opened");
    file.write_all_at(b"not any more", 17 * MIB + 5).expect("written");
    drop(file);
    let answer = p.json(&["dissolve", "tank/main", "--onto", "out.img", "--yes"]);
    assert!(written(&answer) <= 5 * MIB, "one piece, and the ends: {answer}");
    is_equal(&p, "out.img");
    // The volume is as it was, and can be written to.
    let from = p.path("in.raw");
    assert!(Command::new("nbdcopy").arg("--flush").arg(&from).arg(nbd(&p)).status().expect("nbdcopy").success());
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    // Without a daemon one is started for it.
    let words = p.ok(&["dissolve", "tank", "--onto", "other.img"]);
    assert!(words.contains("other.img holds what volume tank/main holds"), "{words}");
    is_equal(&p, "other.img");
    ends(&p);
}

#[test]
fn what_is_in_use_is_waited_for_and_what_is_written_meanwhile_is_there() {
    if !installed("nbdcopy") || !installed("qemu-io") {
        return;
    }
    use std::io::{BufRead, Write};
    let p = Place::new();
    let mut daemon = filled(&p);
    let (mut user, mut copy) = waiting_copy(&p, &["out.img"]);
    let status = || p.json(&["status", "tank"]);
    assert!(status()["dissolving"]["waits_for"].as_str().is_some_and(|w| w.contains("NBD")), "{}", status());
    assert!(p.ok(&["status", "tank"]).contains("these are copied when nobody uses the volume"));
    p.refused(&["dissolve", "tank/main", "--onto", "third.img"], 1, &["is being copied onto", "one at a time"]);
    // What whoever waits is told, before there is nothing to wait for any more.
    let told = std::io::BufReader::new(copy.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let told: Vec<String> = told.take(2).collect();
    assert!(told.concat().contains("first and last two MiB"), "{told:?}");
    assert!(told.concat().contains("unmount it, and: bimetal detach tank/main"), "{told:?}");
    let input = user.stdin.as_mut().expect("piped");
    input.write_all(b"write -P 0x5a 3M 128k\nwrite -P 0x5b 39M 1M\nflush\nquit\n").expect("told");
    assert!(user.wait().expect("ended").success());
    assert!(copy.wait().expect("ended").success());
    let out = std::fs::read(p.path("out.img")).expect("read");
    let at = |offset: u64, len: u64, byte: u8| out[offset as usize..(offset + len) as usize].iter().all(|b| *b == byte);
    assert!(at(3 * MIB, 128 << 10, 0x5a) && at(39 * MIB, MIB, 0x5b));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn the_end_speaks_of_the_volume_that_was_copied_and_of_no_file_that_was_put_in_its_place() {
    if !installed("nbdcopy") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 64 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&[
        "create",
        "tank",
        "--fast",
        "fast.img",
        "--slow",
        "slow.img",
        "--volume",
        "main:20MiB",
        "--volume",
        "b:20MiB",
    ]);
    let daemon = p.serve(&["tank"]);
    let ended = |(mut user, copy): (Child, Child)| {
        drop(user.stdin.take());
        assert!(user.wait().expect("ended").success());
        crate::common::done(copy.wait_with_output().expect("ended"))
    };
    let waiting = waiting_copy(&p, &["out.img"]);
    p.ok(&["volume", "rename", "tank/main", "old", "--force"]);
    p.ok(&["volume", "rename", "tank/b", "main"]);
    let done = ended(waiting);
    assert!(done.code == 0 && done.out.contains("volume tank/old") && !done.out.contains("tank/main"), "{}", done.out);
    // The other one is main by now.
    let waiting = waiting_copy(&p, &["second.img"]);
    std::fs::rename(p.path("second.img"), p.path("elsewhere.img")).expect("moved");
    p.file("second.img", 20 * MIB);
    let done = ended(waiting);
    assert!(done.code == 1 && done.err.contains("second.img was moved, removed or replaced"), "{}", done.err);
    assert!(done.out.is_empty(), "{}", done.out);
    assert_eq!(phase(&p), "failed");
    crate::family::stop(&p, daemon);
}

#[test]
fn a_larger_device_is_not_taken_for_what_it_was_and_a_copy_can_be_cancelled() {
    if !installed("nbdcopy") || !installed("qemu-io") {
        return;
    }
    use std::os::unix::fs::FileExt;
    let p = Place::new();
    let mut daemon = filled(&p);
    // It carries something at both ends.
    p.file("large.img", 60 * MIB);
    let file = std::fs::File::options().write(true).open(p.path("large.img")).expect("opened");
    file.write_all_at(&[0x53, 0xef], 1024 + 56).expect("written");
    file.write_all_at(b"EFI PART", 60 * MIB - 512).expect("written");
    drop(file);
    let (mut user, copy) = waiting_copy(&p, &["large.img", "--yes", "--force"]);
    let ends = |file: &[u8]| file[..2 * MIB as usize].iter().chain(&file[56 * MIB as usize..]).all(|b| *b == 0);
    assert!(ends(&std::fs::read(p.path("large.img")).expect("read")), "half a copy looks like nothing");
    assert!(p.ok(&["dissolve", "tank/main", "--cancel"]).contains("what was copied stays"));
    assert_eq!(phase(&p), "cancelled", "it has ended when the command has");
    let done = crate::common::done(copy.wait_with_output().expect("ended"));
    assert!(done.code == 1 && done.err.contains("cancelled"), "{}", done.err);
    drop(user.stdin.take());
    assert!(user.wait().expect("ended").success());
    // Nothing is recognised on it: it needs no force now.
    let answer = p.json(&["dissolve", "tank/main", "--onto", "large.img", "--yes"]);
    assert!(written(&answer) <= 6 * MIB, "{answer}");
    let bytes = |what: &str| answer["dissolving"][what].as_u64().expect("a number");
    assert!(bytes("done_bytes") <= bytes("total_bytes"), "{answer}");
    let out = std::fs::read(p.path("large.img")).expect("read");
    assert!(out[..40 * MIB as usize] == std::fs::read(p.path("in.raw")).expect("read"));
    assert!(out[56 * MIB as usize..].iter().all(|b| *b == 0));
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_device_that_stands_still_in_the_last_second_keeps_nobody_from_writing_and_a_cancelled_copy_waits_for_it() {
    if !installed("nbdcopy") || !installed("qemu-io") || !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let daemon = filled(&p);
    p.file("out.img", 40 * MIB);
    let server = Server::of(&p, "out");
    let (mut first, copy) = waiting_copy(&p, &[&locator(&p, "out"), "--yes"]);
    let leaves = |user: &mut Child| {
        drop(user.stdin.take());
        assert!(user.wait().expect("ended").success());
    };
    server.stand_still();
    leaves(&mut first);
    assert!(comes_to(&p, "finishing"), "{}", phase(&p));
    let mut next = user(&p);
    assert!(comes_to(&p, "waiting"), "{}", phase(&p));
    let writes = || {
        let mut write = Command::new("qemu-io");
        write.args(["-f", "raw", "-c", "write -P 0x5a 3M 128k", "-c", "flush", &nbd(&p)]);
        let said = String::from_utf8(write.output().expect("qemu-io").stdout).expect("text");
        assert!(said.contains("wrote 131072/131072"), "{said}");
    };
    writes();
    let mut cancel = p.command(&["dissolve", "tank/main", "--cancel"]);
    let cancel = cancel.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    writes();
    assert_eq!(phase(&p), "waiting", "something is on its way to the device");
    server.go_on();
    let done = crate::common::done(cancel.wait_with_output().expect("ended"));
    assert!(done.code == 0 && done.out.contains("what was copied stays"), "{}{}", done.out, done.err);
    assert_eq!(crate::common::done(copy.wait_with_output().expect("ended")).code, 1);
    leaves(&mut next);
    // What was written meanwhile is in the next copy.
    p.ok(&["dissolve", "tank/main", "--onto", &locator(&p, "out"), "--yes"]);
    let out = std::fs::read(p.path("out.img")).expect("read");
    assert!(out[3 * MIB as usize..][..128 << 10].iter().all(|b| *b == 0x5a));
    crate::family::stop(&p, daemon);
}

#[test]
fn a_copy_that_was_cancelled_makes_room_for_another_at_once() {
    let p = Place::new();
    p.tank_of(&["main:80MiB"]);
    let daemon = p.serve(&["tank"]);
    // As slow as a disk, so that none is done before it is cancelled.
    let at = |n: u32| format!("emulated:hdd2012:{}", p.path(&format!("out-{n}.img")).display());
    for n in 0..3 {
        let wish = format!(r#"{{"volume":"main","onto":"{}"}}"#, at(n));
        p.file(&format!("out-{n}.img"), 80 * MIB);
        let answer = p.ask("POST", "/v1/dissolve", &wish);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let ended = p.json(&["dissolve", "tank/main", "--cancel"]);
        assert_eq!(ended["dissolving"]["phase"], "cancelled", "{ended}");
    }
    // The name may have become another's since whoever asks has looked.
    let wish =
        format!(r#"{{"volume":"main","volume_uuid":"{}","onto":"{}"}}"#, "00000000-0000-0000-0000-000000000007", at(0));
    let answer = p.ask("POST", "/v1/dissolve", &wish);
    assert!(answer.contains("another volume than the one that was asked for"), "{answer}");
    p.ok(&["volume", "delete", "tank/main", "--yes"]);
    for command in
        [&["dissolve", "tank", "--onto", "x"][..], &["dissolve", "tank/main", "--cancel"], &["attach", "tank"]]
    {
        p.refused(command, 1, &["group 'tank' has no volume; make one"]);
    }
    crate::family::stop(&p, daemon);
}

#[test]
fn what_cannot_take_a_volume_is_refused_and_stays_as_it_is() {
    let p = Place::new();
    p.file("fast.img", 64 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:40MiB"]);
    let mut daemon = p.serve(&["tank"]);
    let member = checksum(&p.path("slow.img"));
    p.refused(&["dissolve", "tank/main"], 1, &["--onto DEV", "40 MiB"]);
    p.refused(&["dissolve", "tank/none", "--onto", "out.img"], 1, &["no volume 'none'"]);
    p.refused(&["dissolve", "tank/main", "--onto", "slow.img", "--yes"], 1, &["slow.img"]);
    p.refused(&["dissolve", "tank/main", "--onto", "slow.img", "--yes", "--force"], 1, &["slow.img"]);
    p.file("short.img", 3 * MIB);
    std::fs::write(p.path("text"), "nobody asked").expect("written");
    let long = std::fs::File::create(p.path("long")).expect("made");
    std::os::unix::fs::FileExt::write_all_at(&long, b"nobody asked", 50 * MIB).expect("written");
    drop(long);
    // Asked, nobody answers: it stays as it is.
    let before = checksum(&p.path("long"));
    p.refused(&["dissolve", "tank/main", "--onto", "long"], 1, &["overwritten"]);
    assert_eq!(checksum(&p.path("long")), before);
    p.refused(&["dissolve", "tank/main", "--onto", "text"], 1, &["too small"]);
    assert_eq!(std::fs::read(p.path("text")).expect("there"), b"nobody asked");
    let lost =
        r#"{"volume":"main","onto":"PLACE","force":true}"#.replace("PLACE", &p.path("short.img").display().to_string());
    assert!(p.ask("POST", "/v1/dissolve", &lost).contains("and the device only 3145728"));
    p.refused(&["dissolve", "tank/main", "--onto", "short.img", "--yes"], 1, &["too small by 37 MiB"]);
    assert_eq!(std::fs::metadata(p.path("short.img")).expect("there").len(), 3 * MIB);
    p.refused(&["dissolve", "tank/main", "--onto", "nowhere/out.img"], 1, &["nowhere/out.img"]);
    p.refused(&["dissolve", "tank/main", "--onto", "/dev/nothing-there"], 1, &["/dev/nothing-there"]);
    // Where volumes are shown as files it would be written into the folder below, in memory.
    std::fs::create_dir_all(p.path("run/tank/fuse")).expect("made");
    for there in [false, true] {
        let onto = p.path("run/tank/fuse/out.img");
        let ask = ["dissolve", "tank/main", "--onto", "run/tank/fuse/out.img", "--yes", "--force"];
        p.refused(&ask, 1, &["the folder where a group shows its volumes"]);
        assert_eq!(onto.exists(), there);
        let body = r#"{"volume":"main","onto":"PLACE","force":true}"#.replace("PLACE", &onto.display().to_string());
        let answer = p.ask("POST", "/v1/dissolve", &body);
        assert!(answer.contains("the folder where a group shows its volumes"), "{answer}");
        p.file("run/tank/fuse/out.img", 40 * MIB);
    }
    p.refused(&["dissolve", "tank/main", "--cancel"], 1, &["not being copied"]);
    p.refused(&["dissolve", "tank/main", "--cancel", "--onto", "x"], 2, &["--cancel"]);
    let answer = p.ask("POST", "/v1/dissolve", r#"{"volume":"main","onto":"/etc"}"#);
    assert!(answer.contains("409") && answer.contains("/etc"), "{answer}");
    assert_eq!(checksum(&p.path("slow.img")), member, "nothing was written to a member");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn who_has_copied_one_volume_is_not_told_to_destroy_the_others() {
    let p = Place::new();
    p.tank_of(&["main:40MiB", "b:4MiB"]);
    let _daemon = p.serve(&["tank"]);
    let words = p.ok(&["dissolve", "tank/b", "--onto", "b.img"]);
    assert!(words.contains("bimetal volume delete tank/b") && !words.contains("destroy"), "{words}");
    p.ok(&["volume", "delete", "tank/b", "--yes"]);
    let words = p.ok(&["dissolve", "tank/main", "--onto", "main.img"]);
    assert!(words.contains("bimetal volume delete tank/main, or bimetal destroy tank"), "{words}");
}

/// A repair takes it for the member that it is.
#[test]
fn nothing_is_copied_over_a_member_of_the_same_group_that_has_lost_its_labels() {
    let p = Place::new();
    for (file, mib) in [("fast", 48), ("slow", 64), ("slow2", 64)] {
        p.file(file, mib * MIB);
    }
    p.ok(&["create", "tank", "--fast", "fast", "--slow", "slow", "slow2", "--volume", "main:16MiB"]);
    let slow = std::fs::File::options().write(true).open(p.path("slow")).expect("opened");
    for (at, len) in [(64 << 10, 64 << 10), (62 * MIB, 2 * MIB)] {
        slow.write_all_at(&vec![0; len as usize], at).expect("written");
    }
    drop(slow);
    let before = checksum(&p.path("slow"));
    let _daemon = p.serve(&["tank", "--read-only", "--allow-missing"]);
    p.refused(&["dissolve", "tank/main", "--onto", "slow", "--yes"], 1, &["bimetal repair tank", "--force"]);
    assert_eq!(checksum(&p.path("slow")), before);
}

/// Some file systems count no blocks of any file.
#[test]
fn a_file_that_may_hold_something_is_not_overwritten_unasked() {
    if !files::possible() || !installed("nbdfuse") || !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:16MiB"]);
    let _daemon = p.serve(&["tank"]);
    let data = p.file("data.img", 32 * MIB);
    std::fs::write(&data, vec![0x5a; 32 * MIB as usize]).expect("written");
    let before = checksum(&data);
    std::fs::create_dir(p.path("f")).expect("made");
    let server = Server::of(&p, "data");
    let shown = p.path("f/vol");
    let mut fuse = Command::new("nbdfuse").arg(&shown).arg("--unix").arg(p.path("data.sock")).spawn().expect("nbdfuse");
    until(|| shown.exists(), "the file is shown");
    // Neither --yes nor somebody to ask.
    let done = p.run(&["dissolve", "tank/main", "--onto", "f/vol"]);
    let _ = Command::new("fusermount3").arg("-u").arg(p.path("f")).status();
    let _ = fuse.wait();
    drop(server);
    assert_ne!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(checksum(&data), before);
}
