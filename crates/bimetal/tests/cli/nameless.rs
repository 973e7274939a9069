//! A member file is removed, or replaced by another of its name, while it is served: what the daemon has open is all that is left.

use crate::common::{installed, Place, MIB};

#[test]
fn the_last_of_a_member_file_that_was_removed_is_not_let_go_without_a_word() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:40MiB"]);
    let mut daemon = p.serve(&["tank"]);
    let uri = format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display());
    let data: Vec<u8> = (0..30 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), &data).expect("file");
    let copy = |from: &std::ffi::OsStr, to: &std::ffi::OsStr| {
        let done = std::process::Command::new("nbdcopy").arg("--flush").args([from, to]).status();
        assert!(done.expect("nbdcopy").success());
    };
    copy(p.path("in.raw").as_os_str(), uri.as_ref());
    assert!(p.ask("GET", "/v1/health", "").contains("\"healthy\":true"));
    let fast = p.path("fast.img");
    std::fs::remove_file(&fast).expect("removed");
    let place = fast.display().to_string();
    let said = [p.ask("GET", "/v1/health", ""), p.ok(&["status", "tank"])];
    for said in &said {
        assert!(said.contains("removed or replaced") && said.contains(&place) && said.contains("/proc/"), "{said}");
    }
    assert!(said[0].contains("\"healthy\":false"), "{}", said[0]);
    while !p.log().contains("removed or replaced") {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let replace = format!("bimetal member replace tank {place} NEW");
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &["removed or replaced", &replace]);
    // As it says: then the stop goes on by itself, and nothing is lost.
    p.file("new.img", 96 * MIB);
    p.ok(&["member", "replace", "tank", &place, "new.img", "--yes"]);
    assert_eq!(daemon.wait(), 0);
    let _daemon = p.serve(&["tank"]);
    copy(uri.as_ref(), p.path("out.raw").as_os_str());
    let is = std::fs::read(p.path("out.raw")).expect("read");
    assert!(is[..data.len()] == data, "all is there");
}

#[test]
fn whoever_forces_a_stop_is_not_kept_by_a_member_file_that_was_removed() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    p.ok(&["stop", "tank", "--force"]);
    daemon.wait();
}
