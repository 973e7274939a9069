//! Files as loop devices, where these can be made.

use std::path::Path;
use std::process::Command;

use crate::common::{installed, Place};

/// Whether there are loop devices; if not it is said why.
pub(crate) fn possible() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices need root");
        return false;
    }
    if !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: no loop devices here");
        return false;
    }
    installed("losetup")
}

/// The device that shows a file from now on.
pub(crate) fn attach(options: &[&str], file: &Path) -> String {
    let out = Command::new("losetup").args(["-f", "--show"]).args(options).arg(file).output().expect("losetup");
    assert!(out.status.success(), "losetup {options:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

/// Takes a device away, if it is there still.
pub(crate) fn detach(device: &str) {
    let _ = Command::new("losetup").args(["-d", device]).output();
}

/// What a list of devices says of one.
pub(crate) fn listed(p: &Place, device: &str) -> String {
    let list = p.json(&["devices"]);
    let row = list["devices"].as_array().expect("a list").iter().find(|d| d["path"] == *device).expect("it is listed");
    row["used"].as_str().unwrap_or_default().to_string()
}

/// Loop devices of whole files, taken away when the test ends.
pub(crate) struct Loops(pub(crate) Vec<String>);

impl Loops {
    pub(crate) fn new(p: &Place, files: &[&str]) -> Option<Loops> {
        possible().then(|| {
            let mut loops = Loops(Vec::new());
            // One after the other: if one fails, those before it go again.
            files.iter().for_each(|file| loops.0.push(attach(&[], &p.path(file))));
            loops
        })
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| detach(device));
    }
}
