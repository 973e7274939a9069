//! `bimetal demo` in a folder of somebody else.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, kill_process_group, Pid, Signal};

use crate::attach;
use crate::common::{done, mounts, Place};

/// Everything below a folder, by name and content.
fn tree(p: &Place, folder: &str) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    let mut folders = vec![p.path(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            all.push((entry.path().display().to_string(), std::fs::read_to_string(entry.path()).ok()));
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    all.sort();
    all
}

#[test]
fn what_lies_beside_the_demo_stays() {
    let p = Place::new();
    // So long that no socket fits below it: the demo fails early, and has less to take away.
    let long = format!("home-{}", "x".repeat(90));
    for file in ["etc/fstab", "run/state", "mnt/photo", "daemon.log"] {
        let path = p.path(&long).join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, file).expect("written");
    }
    let before = tree(&p, &long);
    p.refused(&["demo", "--via", "nbd", "--dir", &long], 1, &["too long", "--dir"]);
    assert_eq!(tree(&p, &long), before);
    let own = p.path(&long).join("bimetal-demo");
    std::fs::create_dir(&own).expect("made");
    std::fs::write(own.join("fast.img"), "mine").expect("written");
    let before = tree(&p, &long);
    p.refused(&["demo", "--via", "nbd", "--dir", &long], 1, &["bimetal-demo is there already", "another --dir"]);
    assert_eq!(tree(&p, &long), before);
}

/// A demo that has come so far.
fn begun(p: &Place, via: &str, is_there: impl Fn() -> bool) -> Child {
    std::fs::create_dir(p.path("home")).expect("a folder");
    let mut command = p.command(&["demo", "--via", via, "--dir", "home"]);
    // As a shell starts it.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let begun = Instant::now();
    while !is_there() {
        assert!(child.try_wait().expect("child").is_none() && begun.elapsed() < Duration::from_secs(60), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Ended with words, and left nothing.
fn is_gone(p: &Place, child: Child) {
    let done = done(child.wait_with_output().expect("ended"));
    assert_eq!(done.code, 1, "{}", done.err);
    let said = ["Taking away what the demo has made", "the demo was interrupted"];
    assert!(said.iter().all(|s| done.err.contains(s)), "{}", done.err);
    assert!(tree(p, "home").is_empty(), "{:?} {}", tree(p, "home"), done.err);
    let home = p.path("home").display().to_string();
    let works_there = |process: &Path| std::fs::read_link(process.join("cwd")).is_ok_and(|at| at.starts_with(&home));
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    assert!(!processes.map(|e| e.path()).any(|process| works_there(&process)), "a process stays");
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32).expect("a process id")
}

#[test]
fn a_demo_that_is_terminated_leaves_nothing() {
    let p = Place::new();
    let socket = p.path("home/bimetal-demo/run/demo/nbd.sock");
    let child = begun(&p, "nbd", || socket.exists());
    kill_process(pid(&child), Signal::TERM).expect("signal");
    is_gone(&p, child);
}

#[test]
fn nor_does_one_that_is_interrupted_with_all_that_it_has_started() {
    if !attach::possible() {
        return;
    }
    let p = Place::new();
    let at = p.path("home/bimetal-demo/mnt/file-00").display().to_string();
    let child = begun(&p, "mount", || Path::new(&at).exists());
    kill_process_group(pid(&child), Signal::INT).expect("signal");
    is_gone(&p, child);
    let home = p.path("home").display().to_string();
    let mounts = mounts();
    assert!(!mounts.contains(&home), "{mounts}");
    let loops = std::process::Command::new("losetup").arg("-a").output().expect("losetup");
    assert!(!String::from_utf8_lossy(&loops.stdout).contains(&home), "a loop device stays");
}
