//! Members listed and added, served and not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::attach;
use crate::common::{Place, MIB};
use crate::files;
use crate::loops::Loops;

fn states(list: &serde_json::Value) -> Vec<(String, String)> {
    let text = |m: &serde_json::Value, k: &str| m[k].as_str().unwrap_or_default().to_string();
    list["members"].as_array().expect("a list").iter().map(|m| (text(m, "tier"), text(m, "state"))).collect()
}

#[test]
fn a_member_is_added_without_a_daemon_and_found_at_the_next_start() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    let disk = disk.to_str().expect("plain");
    let added = p.json(&["member", "add", "tank", "--fast", disk]);
    assert_eq!((&added["member"], &added["tier"]), (&2.into(), &"fast".into()), "{added}");
    let list = p.json(&["member", "list", "tank"]);
    assert_eq!(states(&list).len(), 3, "{list}");
    assert_eq!(list["members"][2]["locator"], disk);
    assert!(states(&list).iter().all(|(_, s)| s == "in use"), "{list}");
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
    let _daemon = p.serve(&["tank"]);
    let words = p.ok(&["member", "list", "tank"]);
    assert!(words.contains("more.img") && words.contains("in use"), "{words}");
}

#[test]
fn a_member_is_added_while_the_group_is_served() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let disk = p.file("more.img", 64 * MIB);
    let disk = disk.to_str().expect("plain");
    let before = p.json(&["status", "tank"])["fast_free_bytes"].as_u64().expect("a number");
    let words = p.ok(&["member", "add", "tank", "--fast", disk]);
    assert!(words.contains("fast member 2 of group 'tank'") && words.contains("can grow by"), "{words}");
    let status = p.json(&["status", "tank"]);
    assert!(status["fast_free_bytes"].as_u64().expect("a number") > before + 40 * MIB, "{status}");
    assert_eq!(status["members"][2]["locator"], disk);
    p.refused(&["member", "add", "tank", "--slow", disk, "--yes"], 1, &["member 2 of group 'tank' already"]);
    p.ok(&["stop", "tank"]);
    daemon.wait();
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
}

/// No scan finds a file.
#[test]
fn what_is_added_to_a_group_without_a_configuration_is_written_down_with_the_others() {
    let p = Place::new();
    p.tank();
    let before = configured(&p);
    let [fast, slow, more] = ["fast.img", "slow.img", "more.img"].map(|name| text(&p.path(name)));
    p.file("more.img", 64 * MIB);
    std::fs::remove_file(p.path("etc/groups/tank.toml")).expect("removed");
    let mut daemon = p.serve(&["tank", "--member", &fast, &slow]);
    p.ok(&["member", "add", "tank", "--slow", &more]);
    p.ok(&["stop", "tank"]);
    daemon.wait();
    assert!(configured(&p).starts_with(before.trim_end()), "{}", configured(&p));
    assert_eq!(p.json(&["check", "tank"])["sound"], true, "all three are found");
}

/// The others are found by a scan, as long as there are no others but block devices.
#[test]
fn the_same_where_no_daemon_is() {
    let p = Place::new();
    let name = &format!("added-{}", std::process::id());
    for (file, mib) in [("fast", 48), ("slow", 96), ("new", 96)] {
        p.file(file, mib * MIB);
    }
    let Some(loops) = Loops::new(&p, &["fast", "slow"]) else { return };
    p.ok(&["create", name, "--fast", &loops.0[0], "--slow", &loops.0[1], "--volume", "main:40MiB", "--yes"]);
    std::fs::remove_dir_all(p.path("etc")).expect("removed");
    p.ok(&["member", "add", name, "--slow", "new"]);
    let written = std::fs::read_to_string(p.path("etc/groups").join(format!("{name}.toml"))).expect("a configuration");
    for member in [&loops.0[0], &loops.0[1], &text(&p.path("new"))] {
        assert!(written.contains(member), "{member}: {written}");
    }
    assert_eq!(p.json(&["check", name])["sound"], true, "all three are found");
}

#[test]
fn what_cannot_be_added_is_refused_and_not_written_down() {
    let p = Place::new();
    p.tank();
    let before = p.json(&["member", "list", "tank"]);
    let small = p.file("small.img", MIB);
    let known = p.file("known.img", 64 * MIB);
    std::fs::write(&known, {
        let mut ext4 = vec![0; 64 << 20];
        ext4[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        ext4
    })
    .expect("written");
    for (device, words) in [
        (small.to_str().expect("plain"), &["too small"][..]),
        (known.to_str().expect("plain"), &["--force"]),
        (p.path("nothing.img").to_str().expect("plain"), &["nothing.img"]),
        (before["members"][0]["locator"].as_str().expect("a path"), &["already"]),
    ] {
        p.refused(&["member", "add", "tank", "--slow", device, "--yes"], 1, words);
    }
    p.refused(&["member", "add", "tank"], 2, &["--fast"]);
    assert_eq!(p.json(&["member", "list", "tank"]), before);
    assert_eq!(p.json(&["status", "tank"])["configured_members"].as_array().map(Vec::len), Some(2));
}

/// Asks the daemon itself to add a member, as a client of the API does.
fn post(p: &Place, locator: &str) -> String {
    p.ask("POST", "/v1/members", &format!(r#"{{"change":"add","locator":"{locator}","tier":"slow"}}"#))
}

fn configured(p: &Place) -> String {
    std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("the configuration")
}

/// Writes a member down that was once to be added.
fn note(p: &Place, locator: &str) {
    let text = configured(p) + &format!("\n[[member]]\nlocator = \"{locator}\"\ntier = \"slow\"\n");
    std::fs::write(p.path("etc/groups/tank.toml"), text).expect("written");
}

fn text(path: &Path) -> String {
    path.to_str().expect("plain").to_string()
}

#[test]
fn a_volume_of_the_group_is_no_member_of_it() {
    let p = Place::new();
    p.tank();
    let mut locators = vec![format!("nbd+unix:///main?socket={}", text(&p.socket("nbd.sock")))];
    let shown = files::possible().then(|| files::Folder::new(&p));
    let mut args = vec!["tank"];
    if shown.is_some() {
        args.extend(["--fuse", "shown"]);
    }
    let mut daemon = p.serve(&args);
    let mut device = None;
    if shown.is_some() {
        locators.push(text(&p.path("shown/main")));
        std::os::unix::fs::symlink(p.path("shown/main"), p.path("link")).expect("a link");
        locators.push(text(&p.path("link")));
        locators.push(format!("emulated:hdd2012:{}", text(&p.path("link"))));
    }
    if shown.is_some() && attach::possible() {
        let made = Command::new("losetup").args(["-f", "--show"]).arg(p.path("shown/main")).output().expect("losetup");
        let path = String::from_utf8(made.stdout).expect("plain").trim().to_string();
        locators.push(path.clone());
        device = Some(path);
    }
    let before = configured(&p);
    for locator in &locators {
        let answer = post(&p, locator);
        assert!(answer.contains("lie inside itself"), "{locator}: {answer}");
        p.refused(&["member", "add", "tank", "--slow", locator, "--yes", "--force"], 1, &["lie inside itself"]);
    }
    assert_eq!(configured(&p), before);
    if let Some(device) = device {
        attach::tool("losetup", &["-d", &device]);
    }
    p.ok(&["stop", "tank", "--force"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_file_system_that_hangs_stops_whoever_adds_and_nobody_else() {
    if !files::possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    p.file("fast2.img", 48 * MIB);
    p.file("slow2.img", 96 * MIB);
    p.ok(&["create", "other", "--fast", "fast2.img", "--slow", "slow2.img"]);
    let _shown = files::Folder::new(&p);
    let other = p.serve(&["other", "--fuse", "shown"]);
    let _daemon = p.serve(&["tank"]);
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(other.child.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("signal");
    };
    signal(rustix::process::Signal::STOP);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| post(&p, &text(&p.path("shown/main"))));
        std::thread::sleep(Duration::from_millis(300));
        let answer = p.ask("GET", "/v1/status", "");
        signal(rustix::process::Signal::CONT);
        assert!(answer.contains("\"state\":\"serving\""), "{answer}");
        let refused = asking.join().expect("asked");
        assert!(refused.contains("\"done\":true") && refused.contains("\"error\":\""), "{refused}");
    });
    p.ok(&["stop", "other", "--force"]);
}

#[test]
fn a_daemon_that_may_not_write_adds_nothing_and_writes_nothing_down() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    let before = configured(&p);
    let _daemon = p.serve(&["tank", "--read-only"]);
    p.refused(&["member", "add", "tank", "--fast", &text(&disk), "--yes"], 1, &["read-only", "no member was added"]);
    assert_eq!(configured(&p), before);
}

#[test]
fn two_members_are_added_at_once() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let disks: Vec<String> = ["a.img", "b.img", "c.img"].map(|name| text(&p.file(name, 64 * MIB))).into();
    let tiny = text(&p.file("tiny.img", MIB));
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| post(&p, &tiny));
        let all: Vec<_> = disks.iter().map(|disk| scope.spawn(|| post(&p, disk))).collect();
        for one in all {
            let answer = one.join().expect("asked");
            assert!(answer.contains("\"done\":true") && answer.contains("\"error\":null"), "{answer}");
        }
        assert!(refused.join().expect("asked").contains("too small"));
    });
    let config = configured(&p);
    assert!(disks.iter().all(|disk| config.matches(disk.as_str()).count() == 1), "{config}");
    assert!(!config.contains(&tiny), "{config}");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn what_the_configuration_names_and_is_no_member_may_be_used_for_something_else() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    note(&p, &text(&disk));
    std::fs::create_dir(p.path("folder")).expect("a folder");
    note(&p, &text(&p.path("folder")));
    let used = std::fs::File::open(&disk).expect("opened");
    used.lock().expect("locked");
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    // Where a member is missing it may be that one.
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    for command in [&["serve", "tank", "--read-only", "--allow-missing"][..], &["rescue", "tank"]] {
        p.refused(command, 1, &["lacks a member", "more.img is in use", "folder is a directory", "--member"]);
    }
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    let member = std::fs::File::open(p.path("slow.img")).expect("opened");
    member.lock().expect("locked");
    p.refused(&["serve", "tank"], 1, &["slow.img is in use"]);
}

#[test]
fn what_a_program_has_open_is_not_taken() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    let stdin = std::fs::File::open(&disk).expect("opened");
    let mut program = Command::new("sleep").arg("60").stdin(stdin).spawn().expect("sleep starts");
    let words = format!("open in process {}", program.id());
    for force in [&["--yes"][..], &["--yes", "--force"]] {
        let args = [&["member", "add", "tank", "--slow", "more.img"], force].concat();
        p.refused(&args, 1, &["more.img", &words]);
    }
    program.kill().expect("killed");
    program.wait().expect("ended");
    p.ok(&["member", "add", "tank", "--slow", "more.img", "--yes"]);
}
