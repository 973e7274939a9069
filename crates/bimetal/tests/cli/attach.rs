//! A volume as a block device, where this machine can do it.

use crate::common::{installed, Place};
use std::process::Command;

pub(crate) fn possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: attaching needs root");
        return false;
    }
    let fuse = std::path::Path::new("/dev/fuse").exists() && std::path::Path::new("/dev/loop-control").exists();
    if !fuse {
        eprintln!("skipped: no FUSE and loop devices here");
    }
    fuse && installed("nbdfuse") && installed("mkfs.ext4") && installed("losetup")
}

pub(crate) fn tool(name: &str, args: &[&str]) {
    let out = Command::new(name).args(args).output().expect("tool");
    assert!(out.status.success(), "{name} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
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
    tool("umount", &[&at]);
    p.ok(&["stop", "tank"]);
    assert!(!Command::new("losetup").arg(&device).output().expect("losetup").status.success(), "detached by the stop");
    assert_eq!(p.json(&["check", "tank"])["sound"], true);

    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    tool("fsck.ext4", &["-fn", &device]);
    tool("mount", &[&device, &at]);
    assert_eq!(std::fs::read_to_string(format!("{at}/hello")).expect("still there"), "world");
    tool("umount", &[&at]);
    p.ok(&["detach", "tank/main"]);
    p.ok(&["stop", "tank"]);
}
