use std::path::Path;

use super::*;
use crate::Reactor;

/// A mount, if this machine allows it.
fn mounted(folder: &Path) -> Option<OwnedFd> {
    match mount(folder, "test") {
        Ok(file) => Some(file),
        Err(error @ (MountError::NoFuse | MountError::Refused { .. })) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_payload_of_a_write_begins_on_a_page() {
    let area = request_area();
    assert_eq!(area.len(), WRITE_HEAD + MAX_TRANSFER);
    assert!(area.freeze().slice(WRITE_HEAD, MAX_TRANSFER).is_aligned());
}

#[test]
fn the_kernel_greets_and_an_unmount_ends_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("made");
    let Some(file) = mounted(&folder) else { return };
    assert!(is_mounted(&folder));
    assert!(!remove_dead(dir.path()).expect("looked"));
    let above = mount(dir.path(), "test").expect_err("it is not empty");
    assert!(matches!(above, MountError::NotEmpty { .. }), "nothing is mounted on the folder above: {above}");
    let beside = dir.path().join("beside");
    // Nobody serves it: dead as soon as its device closes.
    drop(mount(&beside, "test").expect("mounted"));
    assert!(remove_dead(&beside).expect("removed"));
    let reactor = Reactor::new().expect("io_uring");
    let (env, at) = (reactor.env(), folder.clone());
    reactor.block_on(async move {
        let device = Device::new(&env, file);
        let (mut area, got) = device.receive(request_area()).await;
        let got = got.expect("INIT");
        assert_eq!(u32::from_ne_bytes(area[..4].try_into().expect("four")) as usize, got);
        assert_eq!(u32::from_ne_bytes(area[4..8].try_into().expect("four")), 26, "the number of INIT");
        assert_eq!(device.try_receive(&mut area).expect_err("nothing more").kind(), io::ErrorKind::WouldBlock);
        let waiting = device.clone();
        let limit = std::time::Duration::from_millis(20);
        assert!(env.timeout(limit, waiting.receive(area)).await.is_none(), "it waits");
        let unmounting = env.blocking(move || unmount(&at, Fashion::IfUnused));
        let (mut area, gone) = device.receive(request_area()).await;
        assert_eq!(gone.expect_err("gone").raw_os_error(), Some(libc::ENODEV));
        unmounting.await.expect("run").expect("unmounted");
        assert_eq!(device.try_receive(&mut area).expect_err("gone").raw_os_error(), Some(libc::ENODEV));
    });
    assert!(!is_mounted(&folder));
}

#[test]
fn a_dead_mount_is_recognised_and_gives_way() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("fuse");
    let Some(file) = mounted(&folder) else { return };
    drop(file);
    assert!(is_mounted(&folder), "dead, but there");
    let Some(next) = mounted(&folder) else { panic!("the dead mount is in the way") };
    unmount(&folder, Fashion::IfUnused).expect("unmounted");
    assert!(!is_mounted(&folder), "the dead one is gone too");
    drop(next);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let error = mount(&file, "test").expect_err("not a folder").to_string();
    assert!(error.contains("file"), "{error}");
    let error = mount(Path::new("/proc"), "test").expect_err("taken");
    assert!(matches!(error, MountError::Taken { .. }), "{error}");
    assert!(error.to_string().contains("proc"), "{error}");
}
