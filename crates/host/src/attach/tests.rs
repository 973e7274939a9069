use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;
use crate::locator::NbdServer;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn request(dir: &std::path::Path, via: Option<Via>) -> Request {
    let export = NbdLocator { server: NbdServer::Unix(dir.join("s.sock")), export: String::new() };
    Request { export, mount_dir: dir.join("fuse"), read_only: false, sector_size: 4096, via, not_by_ublk: None }
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
fn a_fuse_file_under_a_loop_device_and_back() {
    if !tools::is_root() {
        eprintln!("skipped: attaching needs root");
        return;
    }
    if let Err(why) = fuse::available() {
        eprintln!("skipped: {why}");
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let socket = dir.path().join("s.sock");
    let kit =
        Command::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(["memory", "32M"]).stderr(Stdio::null()).spawn();
    let Ok(kit) = kit else {
        eprintln!("skipped: nbdkit is not installed");
        return;
    };
    let _server = Server(kit);
    assert!(tools::wait_until(Duration::from_secs(5), || socket.exists()));
    let attached = match attach(&request(dir.path(), Some(Via::Fuse))) {
        Ok(attached) => attached,
        Err(AttachError::Step { step, why }) if why.contains("ermission denied") || why.contains("not permitted") => {
            eprintln!("skipped: no right to do this here: {step}: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let device = std::fs::OpenOptions::new().read(true).write(true).open(&attached.device).expect("the device opens");
    device.write_all_at(&[7u8; 8192], 4096).expect("written");
    device.sync_all().expect("synced");
    let again = attach(&request(dir.path(), Some(Via::Fuse))).expect_err("refused");
    assert!(matches!(again, AttachError::InUse { .. }), "{again}");
    drop(device);
    detach(&attached).expect("detached");
    detach(&attached).expect("doing it twice is no error");
    assert!(!dir.path().join("fuse").exists());
    let readback = attach(&request(dir.path(), Some(Via::Fuse))).expect("attached again");
    let mut buf = [0u8; 4096];
    std::fs::File::open(&readback.device).expect("opens").read_exact_at(&mut buf, 8192).expect("read");
    assert!(buf.iter().all(|b| *b == 7));
    detach(&readback).expect("detached");
}

#[test]
fn a_dead_daemon_is_told_in_words_and_nothing_stays_behind() {
    if !tools::is_root() || fuse::available().is_err() {
        eprintln!("skipped: attaching by FUSE does not work here");
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let error = attach(&request(dir.path(), Some(Via::Fuse))).expect_err("no server").to_string();
    assert!(error.contains("nbdfuse") && error.contains("s.sock"), "{error}");
    assert!(!dir.path().join("fuse").exists());
}
