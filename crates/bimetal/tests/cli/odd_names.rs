//! Names that are no UTF-8: of files, and of what is mounted somewhere on the machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{checksum, done, Place, MIB};
use crate::files::{self, Folder};
use crate::loops::{self, Loops};

/// A folder whose name is no UTF-8.
fn odd_folder(p: &Place) -> PathBuf {
    let folder = p.path("").join(OsStr::from_bytes(b"n\xff"));
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

#[test]
fn a_file_whose_name_cannot_be_written_down_is_refused_before_anything_is_written() {
    let p = Place::new();
    let folder = odd_folder(&p);
    p.file("fast.img", 48 * MIB);
    std::fs::copy(p.file("slow.img", 96 * MIB), folder.join("slow.img")).expect("copied");
    let before = checksum(&folder.join("slow.img"));
    let args = ["create", "tank", "--fast", "../fast.img", "--slow", "slow.img", "--yes", "--force"];
    let d = done(p.command(&args).current_dir(&folder).output().expect("the program starts"));
    assert!(d.code == 1 && d.err.contains("no UTF-8") && d.err.contains("rename"), "{}{}", d.out, d.err);
    assert_eq!(checksum(&folder.join("slow.img")), before);
    assert!(!p.path("etc/groups/tank.toml").exists());
}

#[test]
fn a_file_below_a_loop_device_is_known_whatever_name_it_had_there() {
    if !loops::possible() {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    let other = odd_folder(&p).join("l.img");
    std::fs::hard_link(p.file("slow.img", 96 * MIB), &other).expect("a hard link");
    let shown = Loops(vec![loops::attach(&[], &other)]);
    let args = ["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--yes", "--force"];
    p.refused(&args, 1, &["slow.img is in use", &shown.0[0], "serves it as a loop device"]);
    assert!(!p.path("etc/groups/tank.toml").exists());
}

/// Something mounted; unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(at: PathBuf) -> Option<Mounted> {
        let root = rustix::process::geteuid().is_root();
        let done = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).status();
        if !root || !done.is_ok_and(|status| status.success()) {
            eprintln!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Mounted(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn an_odd_mount_hides_no_other() {
    let p = Place::new();
    let Some(_odd) = Mounted::tmpfs(odd_folder(&p)) else { return };
    if !files::possible() {
        return;
    }
    p.tank();
    let shown = Folder::new(&p);
    let mut daemon = p.serve(&["tank", "--fuse", "shown"]);
    assert!(shown.path().join("main").exists(), "{}", p.log());
    let own = shown.path().join("main").display().to_string();
    p.refused(&["member", "add", "tank", "--slow", &own, "--yes"], 1, &["lie inside itself"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(!Path::new(&own).exists(), "unmounted");
}
