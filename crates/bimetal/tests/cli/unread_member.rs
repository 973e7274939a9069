//! A member whose device is there, and fails when it is to say who it is: no repair strikes it off unasked.

use crate::common::{checksum, installed, Place, MIB};
use crate::server::{locator, Server};

const SLOW: u64 = 96 * MIB;

/// A server of `slow.img`: reads of its labels fail while there is a file `labels`, all reads while there is one `all`, and syncs
/// while there is one `syncs`.
fn server(p: &Place) -> Server {
    let [labels, all, syncs] = ["labels", "all", "syncs"].map(|name| p.path(name).display().to_string());
    let fail = "{ echo EIO bad sector >&2; exit 1; }";
    let second = SLOW - 2 * MIB;
    let before_read = format!(
        "[ ! -e {all} ] || {fail}; \
         [ ! -e {labels} ] || [ $4 -ge 131072 -a $4 -lt {second} ] || {fail};"
    );
    Server::with_faults(p, "slow", SLOW, &before_read, &format!("[ ! -e {syncs} ] || {fail}"))
}

#[test]
fn a_member_whose_device_fails_is_not_struck_off_unasked() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let _server = server(&p);
    let slow = locator(&p, "slow");
    p.file("fast.img", 48 * MIB);
    p.file("new.img", SLOW);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    // The other one has the block that says who serves it, which changes with every command.
    let before = checksum(&p.path("fast.img"));
    let repair = ["repair", "tank", "--slow", "new.img", "--yes"];
    let alone = [&repair[..], &["--member", "fast.img"]].concat();
    let words = ["cannot be read now", &slow, "--give-up-unread"];
    for fault in ["labels", "all", "syncs"] {
        std::fs::write(p.path(fault), "").expect("written");
        p.refused(&repair, 1, &words);
        if fault != "syncs" {
            p.refused(&alone, 1, &words);
        }
        let asked = [&repair[..4], &["--give-up-unread"]].concat();
        p.refused(&asked, 1, &[&slow, "Struck off for ever", "GIVEN UP (--give-up-unread)", "--yes"]);
        std::fs::remove_file(p.path(fault)).expect("removed");
        assert_eq!(checksum(&p.path("fast.img")), before, "{fault}");
    }
    p.refused(&alone, 1, &["carries a label of group 'tank' and was not named"]);
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "it can be read again");
    std::fs::write(p.path("all"), "").expect("written");
    let done = p.json(&[&repair[..], &["--give-up-unread"]].concat());
    assert_eq!((&done["repaired"], &done["struck_off"][0]), (&true.into(), &1.into()), "{done}");
}
