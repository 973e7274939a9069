//! Volumes as files in a FUSE mount, with the kernel's own client.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::attach::tool;
use crate::common::{installed, mounts, Place, MIB};

/// `O_DIRECT`, which aarch64 has elsewhere.
const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };

/// Whether files can be mounted: root and /dev/fuse, or the helper.
pub(crate) fn possible() -> bool {
    let fuse = Path::new("/dev/fuse").exists();
    if !fuse {
        eprintln!("skipped: there is no /dev/fuse");
    }
    fuse && (rustix::process::geteuid().is_root() || installed("fusermount3"))
}

/// A folder to mount in; what a test that failed left there goes with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(p: &Place) -> Folder {
        let folder = p.path("shown");
        fs::create_dir(&folder).expect("folder");
        Folder(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        while mounted(&self.0).is_some() {
            let done = Command::new("umount").arg("-l").arg(&self.0).status();
            if !done.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

/// Type of what is mounted on `folder`.
fn mounted(folder: &Path) -> Option<String> {
    let folder = fs::canonicalize(folder.parent()?).ok()?.join(folder.file_name()?);
    let mounts = mounts();
    let line = mounts.lines().find(|l| l.split(' ').nth(1) == folder.to_str())?;
    line.split(' ').nth(2).map(String::from)
}

#[test]
fn a_link_to_a_folder_is_as_good_as_the_folder() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let shown = Folder::new(&p);
    std::os::unix::fs::symlink("shown", p.path("link")).expect("a link");
    let mut daemon = p.serve(&["tank", "--fuse", "link"]);
    assert_eq!(mounted(&shown.0).as_deref(), Some("fuse.bimetal"));
    assert!(p.path("link/main").exists());
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(mounted(&shown.0), None);
    assert_eq!(fs::read_dir(&shown.0).expect("a folder").count(), 0);
}

fn open(file: &Path, flags: i32) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(file)
}

/// `fallocate`, by its program: the tests have no other way to it.
fn fallocate(file: &Path, args: &[&str]) -> bool {
    Command::new("fallocate").args(args).arg(file).status().expect("fallocate").success()
}

/// 1 MiB in pages of memory, each 4 KiB telling its number.
struct Pages(Vec<u8>, usize);

impl Pages {
    fn new() -> Pages {
        let memory = vec![0; MIB as usize + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Pages(memory, start)
    }

    fn numbered() -> Pages {
        let mut pages = Pages::new();
        pages.get().chunks_mut(4096).enumerate().for_each(|(i, page)| page.fill(i as u8));
        pages
    }

    fn get(&mut self) -> &mut [u8] {
        let start = self.1;
        &mut self.0[start..start + MIB as usize]
    }
}

#[test]
fn a_file_per_volume_keeps_what_is_written_and_goes_with_the_daemon() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "a:32MiB", "--volume", "b"]);
    let shown = Folder::new(&p);
    let folder = shown.0.clone();
    let mut daemon = p.serve(&["tank", "--fuse", "shown"]);
    assert_eq!(mounted(&folder).as_deref(), Some("fuse.bimetal"));
    let mut names: Vec<_> = fs::read_dir(&folder).expect("listed").map(|e| e.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    let a = folder.join("a");
    assert_eq!(fs::metadata(&a).expect("there").len(), 32 * MIB);
    // Past all caches, and through them, at any alignment.
    let direct = open(&a, O_DIRECT).expect("opened");
    direct.write_all_at(Pages::numbered().get(), 3 * MIB).expect("written");
    let plain = open(&a, 0).expect("opened");
    plain.write_all_at(b"across a border", 3 * MIB + 4090).expect("written");
    plain.sync_all().expect("synced");
    let mut back = Pages::new();
    direct.read_exact_at(back.get(), 3 * MIB).expect("read");
    let mut expected = Pages::numbered();
    expected.get()[4090..4105].copy_from_slice(b"across a border");
    assert!(back.get() == expected.get());
    assert_eq!(plain.read_at(&mut [0; 10], 32 * MIB).expect("read"), 0, "the end");
    let full = plain.write_all_at(b"x", 32 * MIB).expect_err("nothing beyond");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(File::create(&a).is_err(), "a volume is not cut off");
    assert!(File::create(folder.join("c")).is_err(), "there are no other files");
    assert!(fs::remove_file(&a).is_err());
    drop((direct, plain));
    assert!(p.json(&["status", "tank"])["files"]["requests"].as_u64().is_some_and(|n| n > 10));
    daemon.terminate();
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(mounted(&folder), None);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);

    let _daemon = p.serve(&["tank", "--read-only", "--fuse", "shown"]);
    let error = open(&a, 0).expect_err("not to be written");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let read = File::open(&a).expect("opened");
    read.read_exact_at(back.get(), 3 * MIB).expect("read");
    assert!(back.get() == expected.get(), "still there after a stop");
    // Stopping waits for a file that is open, or takes it away, and says so.
    p.refused(&["stop", "tank", "--timeout", "1"], 1, &["still serves", "shown/a is open in process"]);
    let said = p.ok(&["stop", "tank", "--force"]);
    assert!(!said.contains("everything") && said.contains("files in") && said.contains("errors from now on"), "{said}");
    assert!(read.read_at(&mut [0; 512], 0).is_err());
    assert_eq!(mounted(&folder), None);
}

#[test]
fn holes_free_their_slots_and_read_as_zeros() {
    if !possible() || !installed("fallocate") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--sector", "512"]);
    let shown = Folder::new(&p);
    let folder = shown.0.clone();
    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let file = folder.join("main");
    let stored = || p.json(&["status", "tank"])["volumes"][0]["fast_bytes"].as_u64().expect("a number");
    let opened = open(&file, 0).expect("opened");
    opened.write_all_at(&[7; 4 << 20], 0).expect("written");
    let before = stored();
    assert!(before >= 4 * MIB);
    assert!(fallocate(&file, &["--punch-hole", "-o", "0", "-l", "2MiB"]));
    assert_eq!(stored(), before - 2 * MIB, "whole chunks are given back");
    assert!(fallocate(&file, &["--punch-hole", "-o", &(2 * MIB + 512).to_string(), "-l", "1024"]));
    let mut back = [0; 4096];
    opened.read_exact_at(&mut back, 2 * MIB).expect("read");
    let zeros = back.iter().enumerate().all(|(i, b)| (*b == 0) == (512..1536).contains(&i));
    assert!(zeros, "a part of a block is zeroed exactly");
    assert!(fallocate(&file, &["--zero-range", "-o", "3MiB", "-l", "1MiB"]));
    opened.read_exact_at(&mut back, 3 * MIB).expect("read");
    assert_eq!(back, [0; 4096]);
    assert!(fallocate(&file, &["-o", "0", "-l", "8MiB"]), "all space is there");
    assert!(!fallocate(&file, &["-o", "0", "-l", "1GiB"]), "but not more");
    assert!(!fallocate(&file, &["--collapse-range", "-o", "0", "-l", "1MiB"]));
    // Where data lies, by the kernel's word: in the hole at the beginning there is none.
    let seek = |from, whence| seek_by_python(&opened, from, whence);
    assert_eq!(seek(0, 3), Some(2 * MIB), "data");
    assert_eq!(seek(2 * MIB, 4), Some(4 * MIB), "a hole");
}

/// `lseek` with SEEK_DATA (3) or SEEK_HOLE (4), by Python: the tests have no other way to it.
fn seek_by_python(file: &File, from: u64, whence: u32) -> Option<u64> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let program = format!("import os; print(os.lseek(os.open('{path}', os.O_RDONLY), {from}, {whence}))");
    let out = Command::new("python3").args(["-c", &program]).output().expect("python3");
    String::from_utf8_lossy(&out.stdout).trim().parse().ok()
}

#[test]
fn a_mount_that_cannot_be_made_is_told_in_words() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    fs::write(p.path("file"), "x").expect("written");
    p.refused(&["serve", "tank", "--fuse", "file"], 1, &["--fuse", "file"]);
    p.refused(&["serve", "tank", "--fuse", "/proc"], 1, &["mounted there already", "proc"]);
    p.refused(&["serve", "tank", "--fuse", "."], 1, &["is not empty"]);
    assert_eq!(p.json(&["check", "tank"])["clean"], true, "the group was not even opened");
    // What was made for a mount goes with it.
    p.refused(&["serve", "tank", "--fuse", "/proc/deep/down"], 1, &["--fuse", "/proc/deep"]);
    let mut daemon = p.serve(&["tank", "--fuse", "deep/down"]);
    assert!(p.path("deep/down/main").exists());
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(!p.path("deep").exists());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn the_mount_of_a_killed_daemon_gives_way() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    let shown = Folder::new(&p);
    let folder = shown.0.clone();
    let mut daemon = p.serve(&["tank", "--fuse", "shown"]);
    let opened = open(&folder.join("main"), 0).expect("opened");
    opened.write_all_at(&[5; 8192], 4096).expect("written");
    opened.sync_all().expect("synced");
    daemon.child.kill().expect("killed");
    daemon.wait();
    assert!(opened.read_at(&mut [0; 512], 0).is_err(), "an error, and no wait");
    assert_eq!(mounted(&folder).as_deref(), Some("fuse.bimetal"), "dead, but there");
    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let mut back = [0; 8192];
    File::open(folder.join("main")).expect("opened").read_exact_at(&mut back, 4096).expect("read");
    assert_eq!(back, [5; 8192], "what was synced is there");
    assert!(opened.read_at(&mut [0; 512], 0).is_err(), "the old file stays dead");
    drop(opened);
    p.ok(&["stop", "tank"]);
    assert_eq!(mounted(&folder), None);
}

/// Unmounts what is on a folder, whoever uses it.
fn umount_lazily(folder: &Path) {
    tool("umount", &["-l", &folder.display().to_string()]);
}

#[test]
fn a_name_that_is_another_volumes_now_means_that_volume() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:32MiB"]);
    let shown = Folder::new(&p);
    let main = shown.0.join("main");
    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let opened = open(&main, 0).expect("opened");
    opened.write_all_at(b"precious", 0).expect("written");
    drop(opened);
    // The kernel knows the name, and the file is renamed and replaced at once: by the API, since commands take a while.
    let change = |body: &str| {
        let answer = p.ask("POST", "/v1/volumes", body);
        assert!(answer.contains("\"done\":true") && answer.contains("\"error\":null"), "{answer}");
    };
    change(r#"{"change":"create","name":"other","size_bytes":8388608}"#);
    assert_eq!(fs::metadata(&main).expect("there").len(), 32 * MIB);
    change(r#"{"change":"rename","name":"main","new_name":"keep"}"#);
    change(r#"{"change":"rename","name":"other","new_name":"main"}"#);
    let opened = open(&main, 0).expect("opened");
    assert_eq!(opened.metadata().expect("known").len(), 8 * MIB, "the volume that has the name now");
    opened.write_all_at(b"new data", 0).expect("written");
    let mut kept = [0; 8];
    File::open(shown.0.join("keep")).expect("opened").read_exact_at(&mut kept, 0).expect("read");
    assert_eq!(&kept, b"precious", "untouched");
}

#[test]
fn a_file_that_is_open_is_a_user_of_its_volume() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:32MiB"]);
    let shown = Folder::new(&p);
    let _daemon = p.serve(&["tank", "--fuse", "shown"]);
    let opened = File::open(shown.0.join("main")).expect("opened");
    let words = ["in use", "its file in", "is open", "--force"];
    p.refused(&["volume", "delete", "tank/main", "--yes"], 1, &words);
    p.refused(&["volume", "resize", "tank/main", "16MiB"], 1, &words);
    p.ok(&["volume", "resize", "tank/main", "40MiB"]);
    drop(opened);
    p.ok(&["volume", "resize", "tank/main", "16MiB"]);
    let opened = File::open(shown.0.join("main")).expect("opened");
    p.ok(&["volume", "delete", "tank/main", "--yes", "--force"]);
    assert!(opened.read_at(&mut [0; 512], 0).is_err());
}

#[test]
fn what_somebody_else_has_mounted_there_is_left_alone() {
    if !possible() || !rustix::process::geteuid().is_root() {
        return;
    }
    let p = Place::new();
    p.tank();
    let shown = Folder::new(&p);
    let folder = shown.0.display().to_string();
    let mut daemon = p.serve(&["tank", "--fuse", "shown"]);
    umount_lazily(&shown.0);
    tool("mount", &["-t", "tmpfs", "tmpfs", &folder]);
    fs::write(shown.0.join("theirs"), "x").expect("written");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert_eq!(mounted(&shown.0).as_deref(), Some("tmpfs"));
    assert_eq!(fs::read_to_string(shown.0.join("theirs")).expect("there"), "x");
}

#[test]
fn a_mount_that_somebody_has_taken_away_is_made_again() {
    if !possible() || !rustix::process::geteuid().is_root() {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:32MiB"]);
    let shown = Folder::new(&p);
    let mut daemon = p.serve(&["tank", "--fuse", "shown"]);
    let opened = open(&shown.0.join("main"), 0).expect("opened");
    umount_lazily(&shown.0);
    let answer = p.ask("POST", "/v1/files", "{}");
    assert!(answer.contains("\"folder\":"), "{answer}");
    assert_eq!(mounted(&shown.0).as_deref(), Some("fuse.bimetal"));
    // Both are served: the file that was open, and the new mount.
    opened.write_all_at(b"through the old file", 4096).expect("written");
    let mut seen = [0; 20];
    let again = File::open(shown.0.join("main")).expect("opened");
    again.read_exact_at(&mut seen, 4096).expect("read");
    assert_eq!(&seen, b"through the old file");
    drop(again);
    p.refused(&["volume", "delete", "tank/main", "--yes"], 1, &["its file in", "is open"]);
    p.refused(&["stop", "tank", "--timeout", "1"], 1, &["still serves", "shown/main is open"]);
    p.ok(&["stop", "tank", "--force"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(opened.read_at(&mut [0; 512], 0).is_err());
    assert_eq!(mounted(&shown.0), None);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn a_mount_that_hangs_keeps_nothing_else_waiting() {
    if !possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    p.file("fast2.img", 48 * MIB);
    p.file("slow2.img", 96 * MIB);
    p.ok(&["create", "other", "--fast", "fast2.img", "--slow", "slow2.img"]);
    // Where tank would mount its files there is a mount that does not answer.
    let place = p.path("run/tank/fuse");
    fs::create_dir_all(&place).expect("folder");
    let other = p.serve(&["other", "--fuse", "run/tank/fuse"]);
    let _daemon = p.serve(&["tank"]);
    let signal = |signal| {
        let pid = rustix::process::Pid::from_raw(other.child.id() as i32).expect("a process id");
        rustix::process::kill_process(pid, signal).expect("signal");
    };
    signal(rustix::process::Signal::STOP);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| p.ask("POST", "/v1/files", "{}"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(p.json(&["status", "tank"])["state"], "serving");
        assert!(asking.join().expect("asked").contains("does not answer"));
    });
    signal(rustix::process::Signal::CONT);
    let answer = p.ask("POST", "/v1/files", "{}");
    assert!(answer.contains("mounted there already"), "{answer}");
    p.ok(&["stop", "other"]);
    assert_eq!(mounted(&place), None);
    let answer = p.ask("POST", "/v1/files", "{}");
    assert!(answer.contains("\"folder\":"), "{answer}");
    p.ok(&["stop", "tank"]);
    assert_eq!(mounted(&place), None);
}
