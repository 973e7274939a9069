//! Loop devices over what a daemon shows: over an attached device, and over the files of its volumes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::attach::{edit_list, ends, is_let_go, possible, told, tool, two_volumes, unmount};
use crate::common::Place;
use crate::files::Folder;
use crate::loops;

/// A loop device that somebody makes by hand, with these options.
fn losetup(options: &[&str], file: &str) -> String {
    loops::attach(options, Path::new(file))
}

fn mount(device: &str, at: &Path) -> String {
    std::fs::create_dir_all(at).expect("folder");
    let at = at.display().to_string();
    tool("mount", &[device, &at]);
    at
}

/// Writes a file to where it is not lost, if the device below is there.
fn write(at: &str, name: &str, text: &str) {
    let file: PathBuf = Path::new(at).join(name);
    std::fs::write(&file, text).expect("written");
    std::fs::File::open(&file).and_then(|f| f.sync_all()).expect("it is served");
}

#[test]
fn a_loop_device_that_is_made_of_an_attached_device_keeps_it() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let over = losetup(&["-o", "1048576"], &device);
    tool("mkfs.ext4", &["-q", "-F", &over]);
    let at = mount(&over, &p.path("mnt"));
    let words = [device.as_str(), "is below the loop device", &over, "is mounted at", &at];
    p.refused(&["detach", "tank/main"], 1, &words);
    assert_eq!(told(&device, "autoclear").as_deref(), Some("0"), "nothing was done to it");
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &[&words[..], &["still serves"]].concat());
    write(&at, "kept", "while the stop waits");
    unmount(&at);
    // Who has unmounted may mount again.
    p.refused(&["stop", "tank", "--timeout", "1"], 1, &["still serves", &format!("losetup -d {over}")]);
    tool("losetup", &["-d", &over]);
    ends(&p);
    is_let_go(&p, &device);

    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let over = losetup(&["-o", "1048576"], &device);
    let at = mount(&over, &p.path("mnt"));
    assert_eq!(std::fs::read_to_string(format!("{at}/kept")).expect("kept"), "while the stop waits");
    unmount(&at);
    tool("losetup", &["-d", &over]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_loop_device_that_is_made_of_an_attached_device_is_that_volume() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    let over = losetup(&[], &device);
    let top = losetup(&[], &over);
    tool("mkfs.ext4", &["-q", "-F", &device]);
    let at = mount(&device, &p.path("mnt"));
    for device in [&over, &top] {
        let dissolve = ["dissolve", "tank/main", "--onto", device, "--yes", "--force"];
        p.refused(&dissolve, 1, &["mounted on"]);
        p.refused(&["member", "add", "tank", "--slow", device, "--yes", "--force"], 1, &[device]);
        let asked = format!(r#"{{"volume":"main","onto":"{device}","force":true}}"#);
        let answer = p.ask("POST", "/v1/dissolve", &asked);
        assert!(answer.contains("it is made of the volume"), "{answer}");
        let asked = format!(r#"{{"change":"add","locator":"{device}","tier":"slow","force":true}}"#);
        let answer = p.ask("POST", "/v1/members", &asked);
        assert!(answer.contains("lie inside itself"), "{answer}");
    }
    write(&at, "kept", "all the same");
    unmount(&at);
    tool("losetup", &["-d", &top]);
    tool("losetup", &["-d", &over]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn a_file_system_in_the_file_of_a_volume_keeps_the_daemon_serving() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank_of(&["a:32MiB", "b"]);
    let shown = Folder::new(&p);
    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let file = shown.path().join("b").display().to_string();
    tool("mkfs.ext4", &["-q", "-F", &file]);
    // What is attached has its file open, too, and keeps nobody.
    p.ok(&["attach", "tank/a", "--via", "fuse"]);
    let over = losetup(&["--direct-io=on"], &file);
    let at = mount(&over, &p.path("mnt"));
    let words = ["still serves", "shown/b is below the loop device", over.as_str(), "is mounted at", &at, "--force"];
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &words);
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["state"], "stopping");
    assert!(status["stop_waits_for"][0].as_str().is_some_and(|w| w.contains(&over)), "{status}");
    write(&at, "kept", "while the stop waits");
    unmount(&at);
    tool("losetup", &["-d", &over]);
    ends(&p);

    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let over = losetup(&["--direct-io=on"], &file);
    let at = mount(&over, &p.path("mnt"));
    assert_eq!(std::fs::read_to_string(format!("{at}/kept")).expect("kept"), "while the stop waits");
    let said = p.ok(&["stop", "tank", "--force"]);
    assert!(!said.contains("everything is flushed") && said.contains("shown were open"), "{said}");
    unmount(&at);
    tool("losetup", &["-d", &over]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// Has the volumes of the group shown in the usual folder, where nothing is attached, and gives the file of `volume`.
fn shown(p: &Place, volume: &str) -> String {
    let answer = p.ask("POST", "/v1/files", "{}");
    assert!(answer.contains("\"folder\":"), "{answer}");
    p.path("run/tank/fuse").join(volume).display().to_string()
}

#[test]
fn a_device_that_was_not_written_down_is_adopted_or_refused() {
    let Some(p) = two_volumes() else { return };
    let _daemon = p.serve(&["tank"]);
    // As an `attach` leaves it that is killed before it has written its device down.
    let file = shown(&p, "main");
    let left = losetup(&["--direct-io=on"], &file);
    tool("mkfs.ext4", &["-q", "-F", &left]);
    let at = mount(&left, &p.path("mnt"));
    p.refused(&["stop", "tank", "--timeout", "1"], 1, &["still serves", &left, "is mounted at", &at]);
    p.refused(&["detach", "--all"], 1, &["is mounted at", &at]);
    p.refused(&["detach", "tank/main"], 1, &["is mounted at", &at]);
    write(&at, "kept", "still served");
    unmount(&at);
    ends(&p);
    is_let_go(&p, &left);

    let _daemon = p.serve(&["tank"]);
    let left = losetup(&["--direct-io=on"], &shown(&p, "main"));
    let at = mount(&left, &p.path("mnt"));
    let found = p.json(&["attach", "tank/main"]);
    assert_eq!((&found["device"], &found["via"]), (&left.as_str().into(), &"fuse".into()), "{found}");
    assert_eq!(p.json(&["attach", "tank/main"])["why"], "it was attached already");
    unmount(&at);
    assert_eq!(p.json(&["detach", "tank/main"])["detached"], serde_json::json!([left]));
    // One that is not the whole volume, and one that goes with its user, are handed out to nobody.
    let part = losetup(&["--direct-io=on", "-o", "1048576"], &file);
    p.refused(&["attach", "tank/main"], 1, &[&part, "shows this volume already", "a part of the volume only"]);
    assert_eq!(p.json(&["detach", "--all"])["detached"], serde_json::json!([part]));
    p.ok(&["attach", "tank/b", "--via", "fuse"]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn the_device_of_another_volume_is_not_handed_out() {
    let Some(p) = two_volumes() else { return };
    let before = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    // Let go by hand, and its number taken for the other volume's file.
    tool("losetup", &["-d", &before]);
    let of_b = losetup(&["--direct-io=on"], &shown(&p, "b"));
    edit_list(&p, |list| list[0]["device"] = of_b.as_str().into());
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    assert_ne!(device, of_b);
    assert!(told(&device, "backing_file").is_some_and(|file| file.ends_with("fuse/main")));
    assert!(told(&of_b, "backing_file").is_some_and(|file| file.ends_with("fuse/b")), "it was let alone");
    assert_eq!(p.ok(&["attach", "tank/b"]).trim(), of_b, "it is that of the other volume");
    p.ok(&["stop", "tank"]);
}

/// A small file system for the run state, which goes with this.
struct SmallRun(PathBuf);

impl SmallRun {
    fn new(p: &Place) -> SmallRun {
        let run = p.path("run");
        std::fs::create_dir(&run).expect("folder");
        tool("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &run.display().to_string()]);
        SmallRun(run)
    }

    /// Takes all the room there is; gives the file that has it.
    fn fill(&self) -> PathBuf {
        use std::io::Write;
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallRun {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_device_that_cannot_be_written_down_does_not_stay() {
    if !possible() {
        return;
    }
    let p = Place::new();
    let run = SmallRun::new(&p);
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let file = shown(&p, "main");
    let full = run.fill();
    p.refused(&["attach", "tank/main", "--via", "fuse"], 1, &["taken away again", "cannot write", "attachments.json"]);
    let list = Command::new("losetup").args(["-j", &file]).output().expect("losetup");
    assert_eq!(String::from_utf8_lossy(&list.stdout), "", "no device stays");
    std::fs::remove_file(full).expect("removed");
    p.ok(&["attach", "tank/main", "--via", "fuse"]);
    p.ok(&["stop", "tank"]);
}
