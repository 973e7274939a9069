//! A volume as a block device, where this machine can do it.

use crate::common::{done, installed, Place, MIB};
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: attaching needs root");
        return false;
    }
    let fuse = std::path::Path::new("/dev/fuse").exists() && std::path::Path::new("/dev/loop-control").exists();
    if !fuse {
        eprintln!("skipped: no FUSE and loop devices here");
    }
    fuse && installed("mkfs.ext4") && installed("losetup")
}

pub(crate) fn tool(name: &str, args: &[&str]) {
    let out = Command::new(name).args(args).output().expect("tool");
    assert!(out.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A line that the kernel tells of a loop device.
pub(crate) fn told(device: &str, what: &str) -> Option<String> {
    let name = Path::new(device).file_name().expect("a name");
    let text = std::fs::read_to_string(Path::new("/sys/block").join(name).join("loop").join(what)).ok()?;
    Some(text.trim().to_string())
}

/// A loop device shows no file of this group any more, or soon does not. Its number may be another test's by now; what is named as if it lay in
/// the root is in a mount that is gone, and whose it is cannot be told, but others are soon done with theirs.
#[track_caller]
pub(crate) fn is_let_go(p: &Place, device: &str) {
    let begun = std::time::Instant::now();
    let perhaps_ours = |file: &String| {
        let file = Path::new(file);
        file.starts_with(p.path("")) || file.parent() == Some(Path::new("/"))
    };
    let shown = || told(device, "backing_file").filter(perhaps_ours);
    while let Some(file) = shown() {
        assert!(begun.elapsed().as_secs() < 5, "{device} still shows {file}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits for the end of a daemon that was told to stop.
#[track_caller]
pub(crate) fn ends(p: &Place) {
    let begun = std::time::Instant::now();
    while p.json(&["status", "tank"])["state"] != "not running" {
        assert!(begun.elapsed().as_secs() < 30, "it stops when all is released");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn a_daemon_in_the_background_finds_folders_that_were_named_relatively() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let mut attach = p.command(&["attach", "tank/main", "--via", "fuse", "--json"]);
    let done = done(attach.env("BIMETAL_RUN_DIR", "run").env("BIMETAL_CONFIG_DIR", "etc").output().expect("it starts"));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_ne!(p.json(&["status", "tank"])["state"], "not running");
    p.ok(&["stop", "tank"]);
    ends(&p);
}

/// Unmounts a folder. A file that was just written may be open for a moment longer: a child that another test is about to start has
/// a copy of what was open when it was forked.
pub(crate) fn unmount(at: &str) {
    let begun = std::time::Instant::now();
    loop {
        let out = Command::new("umount").arg(at).output().expect("umount");
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        let busy = words.contains("busy") && begun.elapsed().as_secs() < 10;
        if out.status.success() {
            return;
        }
        assert!(busy, "umount {at}: {words}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_mounted_volume_keeps_the_daemon_serving_until_it_is_released() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    // Starts the daemon by itself.
    let attached = p.json(&["attach", "tank/main", "--via", "fuse"]);
    let device = attached["device"].as_str().expect("a device").to_string();
    assert!(device.starts_with("/dev/loop"), "{attached}");
    assert_eq!(p.json(&["attach", "tank"])["device"], device.as_str(), "attaching twice gives the same device");
    tool("mkfs.ext4", &["-q", "-F", &device]);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    tool("mount", &[&device, &at]);
    std::fs::write(format!("{at}/hello"), "world").expect("a file");
    p.refused(&["detach", "tank/main"], 1, &["is mounted at", &at]);
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &["still serves", "is mounted at", "--force"]);
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["state"], "stopping");
    assert!(status["stop_waits_for"][0].as_str().is_some_and(|w| w.contains(&at)), "{status}");
    assert_eq!(std::fs::read_to_string(format!("{at}/hello")).expect("still there"), "world");
    p.refused(&["attach", "tank/main"], 1, &["is being stopped", "is mounted at", &at]);
    unmount(&at);
    // Not a device that goes with the daemon that is stopping.
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
    tool("fsck.ext4", &["-fn", &device]);
    p.ok(&["stop", "tank"]);
    is_let_go(&p, &device);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);

    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("fsck.ext4", &["-fn", &device]);
    tool("mount", &[&device, &at]);
    assert_eq!(std::fs::read_to_string(format!("{at}/hello")).expect("still there"), "world");
    unmount(&at);
    p.ok(&["detach", "tank/main"]);
    p.ok(&["stop", "tank"]);
    assert!(!p.path("run/tank/fuse").exists(), "no mount stays behind");
}

#[test]
fn a_device_of_a_deleted_volume_is_known_until_it_is_gone() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("mkfs.ext4", &["-q", "-F", &device]);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    tool("mount", &[&device, &at]);
    let told = p.run(&["volume", "delete", "tank/main", "--force", "--yes"]);
    assert!(told.code == 0 && told.err.contains("is mounted at") && told.err.contains(&format!("detach {device}")));
    let status = p.ok(&["status", "tank"]);
    assert!(status.contains(&format!("{device} is left over from volume 'main', which is deleted")), "{status}");
    // It is not taken for another volume that has the name now.
    p.ok(&["volume", "create", "tank/main", "--size", "16MiB"]);
    p.ok(&["volume", "rename", "tank/main", "home"]);
    p.refused(&["detach", "--all"], 1, &["is mounted at"]);
    unmount(&at);
    // The kernel lets go of a file system that has failed a moment later.
    let begun = std::time::Instant::now();
    let gone = || p.run(&["detach", "--all"]);
    let mut done = gone();
    while done.code != 0 && begun.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        done = gone();
    }
    assert!(done.out.contains(&format!("Detached {device}")), "{}{}", done.out, done.err);
    is_let_go(&p, &device);
    assert!(p.ok(&["detach", "--all"]).contains("Nothing is attached"));
    p.ok(&["stop", "tank"]);
}

fn sector_size(device: &str) -> String {
    let name = device.trim_start_matches("/dev/");
    let size = std::fs::read_to_string(format!("/sys/block/{name}/queue/logical_block_size")).expect("a size");
    size.trim().to_string()
}

#[test]
fn a_killed_daemon_leaves_a_dead_device_that_goes_or_is_replaced() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--sector", "512"]);
    let kill = || {
        let pid = p.json(&["status", "tank"])["pid"].as_u64().expect("a process").to_string();
        tool("kill", &["-9", &pid]);
        while std::path::Path::new("/proc").join(&pid).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let attach = || p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let dead = p.path("run/tank/fuse");
    let device = attach();
    assert_eq!(sector_size(&device), "512", "that of the volume");
    kill();
    p.ok(&["detach", "tank"]);
    assert!(!dead.exists(), "the dead mount is gone");
    is_let_go(&p, &device);

    let device = attach();
    tool("mkfs.ext4", &["-q", "-F", &device]);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    tool("mount", &["-o", "discard", &device, &at]);
    std::fs::write(format!("{at}/kept"), vec![9; MIB as usize]).expect("a file");
    tool("sync", &["-f", &format!("{at}/kept")]);
    kill();
    p.refused(&["attach", "tank", "--via", "fuse"], 1, &["left over from a daemon that died", "mounted at"]);
    unmount(&at);
    let device = attach();
    assert_eq!(p.json(&["status", "tank"])["attachments"].as_array().map(Vec::len), Some(1));
    tool("mount", &[&device, &at]);
    assert_eq!(std::fs::read(format!("{at}/kept")).expect("kept"), vec![9; MIB as usize]);
    unmount(&at);
    tool("fsck.ext4", &["-fn", &device]);
    p.ok(&["stop", "tank"]);
    assert!(!dead.exists());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn fstrim_gives_the_space_of_removed_files_back() {
    if !possible() || !installed("fstrim") {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    let stored = || {
        let volume = &p.json(&["status", "tank"])["volumes"][0];
        volume["fast_bytes"].as_u64().expect("bytes") + volume["slow_bytes"].as_u64().expect("bytes")
    };
    tool("mkfs.ext4", &["-q", "-F", &device]);
    tool("mount", &[&device, &at]);
    std::fs::write(format!("{at}/large"), vec![1; 24 << 20]).expect("a file");
    tool("sync", &["-f", &at]);
    let full = stored();
    assert!(full >= 24 * MIB, "{full}");
    std::fs::remove_file(format!("{at}/large")).expect("removed");
    tool("sync", &["-f", &at]);
    tool("fstrim", &[&at]);
    let trimmed = stored();
    assert!(trimmed + (20 << 20) <= full, "{full} bytes before, {trimmed} after");
    unmount(&at);
    p.ok(&["stop", "tank"]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// The file system is mounted in a mount namespace of its own, as in a container, until this is dropped.
struct Elsewhere(std::process::Child);

impl Elsewhere {
    fn mount(device: &str, at: &str) -> Elsewhere {
        let script = format!("mount {device} {at} && echo kept >{at}/file && echo there && read end");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("unshare");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "there", "it is mounted");
        Elsewhere(child)
    }

    /// The namespace ends, and its mounts with it.
    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it ends");
    }
}

#[test]
fn a_file_system_that_is_mounted_where_nobody_sees_it_keeps_the_device() {
    if !possible() || !installed("unshare") {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("mkfs.ext4", &["-q", "-F", &device]);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    let elsewhere = Elsewhere::mount(&device, &at);
    let words = [device.as_str(), "in use where it cannot be seen from here"];
    p.refused(&["detach", "tank/main"], 1, &words);
    assert_eq!(std::fs::read_dir(&at).expect("folder").count(), 0, "it is not mounted here");
    p.refused(&["stop", "tank", "--timeout", "3"], 1, &[&words[..], &["still serves"]].concat());
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["state"], "stopping");
    assert!(status["stop_waits_for"][0].as_str().is_some_and(|w| w.contains(words[1])), "{status}");
    elsewhere.end();
    p.ok(&["stop", "tank"]);
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("fsck.ext4", &["-fn", &device]);
    tool("mount", &[&device, &at]);
    assert_eq!(std::fs::read_to_string(format!("{at}/file")).expect("kept"), "kept\n");
    unmount(&at);
    p.ok(&["detach", "tank/main"]);
    p.ok(&["stop", "tank"]);
}

/// Changes the list of what is attached behind the back of all.
pub(crate) fn edit_list(p: &Place, change: impl Fn(&mut serde_json::Value)) {
    edit_list_of(p, "tank", change);
}

fn edit_list_of(p: &Place, group: &str, change: impl Fn(&mut serde_json::Value)) {
    let path = p.path("run").join(group).join("attachments.json");
    let text = std::fs::read_to_string(&path).expect("a list");
    let mut list = serde_json::from_str(&text).expect("JSON");
    change(&mut list);
    std::fs::write(&path, list.to_string()).expect("written");
}

#[test]
fn what_was_written_down_under_an_older_name_or_by_another_daemon_is_told_apart() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let attach = || p.json(&["attach", "tank/main", "--via", "fuse"]);
    attach();
    assert_eq!(attach()["why"], "it was attached already");
    // A daemon with the same process id, as a container that was started again has it.
    edit_list(&p, |list| list[0]["handle"]["daemon_began"] = 1.into());
    assert_ne!(attach()["why"], "it was attached already", "the device of another daemon is replaced");
    assert_eq!(attach()["why"], "it was attached already");
    // `attach` had read the name before the volume was renamed.
    edit_list(&p, |list| list[0]["volume"] = "before".into());
    p.refused(&["detach", "tank/other"], 1, &["not attached"]);
    p.ok(&["detach", "tank/main"]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_program_that_has_a_device_open_keeps_the_daemon_serving() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let open = std::fs::File::options().write(true).open(&device).expect("opens");
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &["still serves", "is open in process"]);
    std::os::unix::fs::FileExt::write_all_at(&open, &[7; 4096], 0).expect("it is there");
    open.sync_all().expect("it is served");
    // Nor is another one attached meanwhile.
    p.refused(&["attach", "tank/main", "--via", "fuse"], 1, &["is being stopped", "is open in process"]);
    drop(open);
    ends(&p);
    is_let_go(&p, &device);
}

#[test]
fn a_device_that_was_let_go_by_hand_is_made_anew() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("losetup", &["-d", &device]);
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("mkfs.ext4", &["-q", "-F", &device]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_stop_does_not_wait_for_ever_for_somebody_who_attaches() {
    let Some(p) = two_volumes() else { return };
    let stop_beside = |options: &[&str]| {
        for volume in ["tank/main", "tank/b"] {
            p.ok(&["attach", volume, "--via", "fuse"]);
        }
        let list = hold_list(&p);
        let begun = std::time::Instant::now();
        let stopped = p.run(&[&["stop", "tank", "--timeout", "90"], options].concat());
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        let took = begun.elapsed().as_secs();
        drop(list);
        p.ok(&["detach", "--all"]);
        took
    };
    let patient = stop_beside(&[]);
    assert!(patient >= 15, "nobody held it: this is no test");
    let forced = stop_beside(&["--force"]);
    assert!(forced < 15, "{forced} s");
}

/// A group with the volumes "main" and "b", where they can be attached.
pub(crate) fn two_volumes() -> Option<Place> {
    if !possible() {
        return None;
    }
    let p = Place::new();
    p.tank();
    p.ok(&["volume", "resize", "tank/main", "16MiB", "--force"]);
    p.ok(&["volume", "create", "tank/b", "--size", "16MiB"]);
    Some(p)
}

/// Keeps everybody from attaching and detaching.
fn hold_list(p: &Place) -> std::fs::File {
    let list = std::fs::File::options().write(true).open(p.path("run/tank/attachments.lock")).expect("its lock");
    list.lock().expect("locked");
    list
}

#[test]
fn nothing_is_attached_to_a_daemon_that_has_ended_meanwhile() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    p.ok(&["attach", "tank/main", "--via", "fuse"]);
    p.ok(&["detach", "tank/main"]);
    let begin = || {
        let mut attaching = p.command(&["attach", "tank/main", "--via", "fuse"]);
        let attaching = attaching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it begins");
        std::thread::sleep(std::time::Duration::from_secs(2));
        attaching
    };
    let refused = |attaching: std::process::Child, words: &str| {
        let ended = done(attaching.wait_with_output().expect("it ends"));
        assert!(ended.code == 1 && ended.err.contains(words), "{} {}", ended.out, ended.err);
    };
    let (list, attaching) = (hold_list(&p), begin());
    p.ok(&["stop", "tank", "--force"]);
    let _daemon = p.serve(&["tank"]);
    drop(list);
    refused(attaching, "was started anew");
    let (list, attaching) = (hold_list(&p), begin());
    p.ok(&["stop", "tank", "--force"]);
    drop(list);
    refused(attaching, "not being served");
}

#[test]
fn what_is_in_use_keeps_no_other_device_from_being_detached() {
    let Some(p) = two_volumes() else { return };
    let attach = |v: &str| p.ok(&["attach", v, "--via", "fuse"]).trim().to_string();
    let (used, idle) = (attach("tank/main"), attach("tank/b"));
    tool("mkfs.ext4", &["-q", "-F", &used]);
    let at = p.path("mnt");
    std::fs::create_dir(&at).expect("folder");
    let at = at.display().to_string();
    tool("mount", &[&used, &at]);
    p.refused(&["detach", "tank"], 1, &["is mounted at", &at, "detached:", &idle]);
    unmount(&at);
    assert_eq!(p.json(&["detach", "tank"])["detached"], serde_json::json!([used]));
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_device_is_detached_as_what_it_is_now_whoever_had_its_number_before() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    p.file("fast2.img", 48 * MIB);
    p.file("slow2.img", 96 * MIB);
    p.ok(&["create", "also", "--fast", "fast2.img", "--slow", "slow2.img"]);
    let attach = |group: &str| p.ok(&["attach", group, "--via", "fuse"]).trim().to_string();
    let (gone, device) = (attach("also"), attach("tank"));
    // It was let go by hand, and its number given to the other group's.
    tool("losetup", &["-d", &gone]);
    edit_list_of(&p, "also", |list| list[0]["device"] = device.clone().into());
    let detached = p.json(&["detach", &device]);
    assert_eq!((&detached["group"], &detached["detached"][0]), (&"tank".into(), &device.clone().into()), "{detached}");
    is_let_go(&p, &device);
    assert_eq!(p.json(&["status", "also"])["attachments"], serde_json::json!([]), "what is gone is forgotten");

    // The same when nothing of ours has the number.
    attach("also");
    let file = p.file("somebody-elses", MIB);
    let other = crate::loops::attach(&[], &file);
    let name_it = || {
        let record = p.json(&["status", "also"])["attachments"][0]["device"].as_str().expect("attached").to_string();
        tool("losetup", &["-d", &record]);
        edit_list_of(&p, "also", |list| list[0]["device"] = other.clone().into());
    };
    name_it();
    p.refused(&["detach", &other], 1, &["is not attached", &other, "is another's by now"]);
    p.refused(&["detach", &other], 1, &["was not attached by Bimetal"]);
    attach("also");
    name_it();
    p.refused(&["detach", "also/main"], 1, &["is not attached", &other, "is another's by now"]);
    attach("also");
    name_it();
    assert!(p.ok(&["detach", "--all"]).contains("Nothing is attached"));
    assert_eq!(told(&other, "backing_file"), Some(file.display().to_string()));
    crate::loops::detach(&other);
    p.ok(&["stop", "also"]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_device_that_shows_another_volume_of_the_group_by_now_is_not_taken_away() {
    let Some(p) = two_volumes() else { return };
    let attach = |volume: &str| p.ok(&["attach", volume, "--via", "fuse"]).trim().to_string();
    let (gone, device) = (attach("tank/main"), attach("tank/b"));
    // Somebody else has detached it since the list was read, and its number was given to the other volume.
    tool("losetup", &["-d", &gone]);
    edit_list(&p, |list| list[0]["device"] = device.clone().into());
    p.refused(&["detach", "tank/main"], 1, &["is not attached", &device, "is another's by now"]);
    assert!(told(&device, "backing_file").is_some_and(|file| file.ends_with("/b")));
    p.ok(&["detach", "tank/b"]);
    is_let_go(&p, &device);
    p.ok(&["stop", "tank"]);
}

/// The deletion of a volume has taken long: its device was detached meanwhile, and the number was given to the other volume's.
#[test]
fn the_end_of_a_deletion_takes_no_device_of_another_volume_away() {
    let Some(p) = two_volumes() else { return };
    let attach = |volume: &str| p.ok(&["attach", volume, "--via", "fuse"]).trim().to_string();
    let (gone, device) = (attach("tank/main"), attach("tank/b"));
    tool("losetup", &["-d", &gone]);
    edit_list(&p, |list| list[0]["device"] = device.clone().into());
    p.ok(&["volume", "delete", "tank/main", "--yes", "--force"]);
    assert!(told(&device, "backing_file").is_some_and(|file| file.ends_with("/b")), "it is there still");
    let attached = p.json(&["status", "tank"])["attachments"].clone();
    assert_eq!(attached.as_array().map(Vec::len), Some(1), "{attached}");
    assert_eq!((&attached[0]["volume"], &attached[0]["device"]), (&"b".into(), &device.clone().into()), "{attached}");
    p.ok(&["detach", "tank/b"]);
    is_let_go(&p, &device);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_name_that_is_another_volumes_when_the_list_is_free_is_not_attached() {
    let Some(p) = two_volumes() else { return };
    p.ok(&["attach", "tank/main", "--via", "fuse"]);
    p.ok(&["detach", "tank/main"]);
    let uuid = p.json(&["status", "tank"])["volumes"][0]["uuid"].as_str().expect("a UUID").to_string();
    let list = hold_list(&p);
    let mut attaching = p.command(&["attach", "tank/main", "--via", "fuse"]);
    let attaching = attaching.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it begins");
    std::thread::sleep(std::time::Duration::from_secs(2));
    p.ok(&["volume", "rename", "tank/main", "old"]);
    p.ok(&["volume", "rename", "tank/b", "main"]);
    drop(list);
    let ended = done(attaching.wait_with_output().expect("it ends"));
    assert!(ended.code == 1 && ended.err.contains("is another volume by now"), "{} {}", ended.out, ended.err);
    // Nor does the daemon itself take one for the other.
    let asked = p.ask("POST", "/v1/attach", &format!(r#"{{"volume": "main", "volume_uuid": "{uuid}"}}"#));
    assert!(asked.contains("is another volume by now"), "{asked}");
    p.ok(&["stop", "tank"]);
}
