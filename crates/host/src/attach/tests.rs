use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::locator::NbdServer;

fn request<'a>(via: Option<Via>, show_file: &'a dyn Fn() -> Result<PathBuf, String>) -> Request<'a> {
    let export = NbdLocator { server: NbdServer::Unix("/nowhere/s.sock".into()), export: String::new() };
    Request { export, show_file, inode: 0, size: 0, read_only: false, sector_size: 4096, via, not_by_ublk: None }
}

#[test]
fn every_missing_way_has_its_reason() {
    for (via, result) in ways() {
        if let Err(why) = result {
            assert!(!why.is_empty(), "{via}");
        }
    }
}

#[test]
fn what_the_daemon_says_is_told_and_a_file_that_is_not_its_own_is_not_taken() {
    if !tools::is_root() || fuse::available().is_err() {
        eprintln!("skipped: attaching by FUSE does not work here");
        return;
    }
    let refused = || Err("the stars are wrong".to_owned());
    let error = attach(&request(Some(Via::Fuse), &refused)).expect_err("refused").to_string();
    assert!(error.contains("the stars are wrong"), "{error}");
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("main");
    std::fs::write(&file, [0; 8192]).expect("written");
    let shown = || Ok(file.clone());
    let error = attach(&request(Some(Via::Fuse), &shown)).expect_err("no mount of ours").to_string();
    assert!(error.contains("mount namespace"), "{error}");
}

#[test]
fn a_loop_device_that_has_another_file_now_is_left_alone() {
    if !tools::is_root() || fuse::available().is_err() {
        eprintln!("skipped: attaching by FUSE does not work here");
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("somebody-elses");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let device = match loop_device::attach(&file, 512, false) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("skipped: no loop device to be had: {error}");
            return;
        }
    };
    let record = |folder: &Path| Attached {
        via: Via::Fuse,
        device: device.clone(),
        mount_dir: Some(folder.to_owned()),
        helper_pid: None,
        why: String::new(),
    };
    assert!(is_anothers(&record(&dir.path().join("fuse"))) && !is_anothers(&record(dir.path())));
    detach(&record(&dir.path().join("fuse"))).expect("nothing to do");
    assert_eq!(loop_device::backing_file(&device).as_deref(), Some(file.as_path()));
    detach(&record(dir.path())).expect("detached");
    assert_ne!(loop_device::backing_file(&device), Some(file));
    detach(&record(dir.path())).expect("doing it twice is no error");
}

#[test]
fn a_free_device_that_others_take_and_let_go_is_waited_for() {
    let dir = tempfile::tempdir().expect("temp dir");
    let file = |of: u32| {
        let file = dir.path().join(of.to_string());
        std::fs::write(&file, vec![0; 1 << 20]).expect("written");
        file
    };
    if let Err(error) = loop_device::attach(&file(0), 512, false).and_then(|device| loop_device::detach(&device)) {
        eprintln!("skipped: no loop device to be had: {error}");
        return;
    }
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for file in [1, 2, 3, 4].map(file) {
            scope.spawn(move || {
                while begun.elapsed() < Duration::from_secs(2) {
                    let device = loop_device::attach(&file, 512, false).expect("attached");
                    loop_device::detach(&device).expect("let go");
                }
            });
        }
    });
}

#[test]
fn a_device_that_a_loop_device_is_made_of_is_not_let_go() {
    if !tools::is_root() || fuse::available().is_err() {
        eprintln!("skipped: attaching by FUSE does not work here");
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let file = dir.path().join("image");
    std::fs::write(&file, vec![0; 1 << 20]).expect("written");
    let (lower, upper) = match loop_device::attach(&file, 512, false) {
        Ok(lower) => (lower.clone(), loop_device::attach(&lower, 512, false).expect("a loop device of a loop device")),
        Err(error) => {
            eprintln!("skipped: no loop device to be had: {error}");
            return;
        }
    };
    let record = Attached {
        via: Via::Fuse,
        device: lower.clone(),
        mount_dir: Some(dir.path().to_owned()),
        helper_pid: None,
        why: String::new(),
    };
    let error = detach(&record).expect_err("refused");
    loop_device::detach(&upper).expect("detached");
    assert!(matches!(&error, AttachError::InUse { by, .. } if by.contains(&*upper.to_string_lossy())), "{error}");
    detach(&record).expect("nobody uses it any more");
    assert_ne!(loop_device::backing_file(&lower), Some(file));
}

#[test]
fn when_a_process_began_is_known_whatever_it_is_called() {
    let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 98 97";
    assert_eq!(began_by(stat), Some(4711));
    for bad in ["", "7 (x", "7 (x) S 1 2", "7 (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 soon"] {
        assert_eq!(began_by(bad), None, "{bad}");
    }
    let own = began(std::process::id()).expect("this process is there");
    assert_eq!(began(std::process::id()), Some(own));
    assert!(began(1).is_none_or(|first| first <= own));
}
