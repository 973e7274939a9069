//! A member that cannot be synced: that is written down, for ublk devices that outlive the daemon.

use std::path::PathBuf;

use crate::common::{installed, Place, MIB};
use crate::server::{locator, until, Server};

/// A server of `fast.img` whose FLUSH fails while there is a file `broken`.
fn server(p: &Place) -> Server {
    let flush = format!("if [ -e {} ]; then echo EIO the cache is gone >&2; exit 1; fi", p.path("broken").display());
    Server::with_faults(p, "fast", 48 * MIB, "", &flush)
}

#[test]
fn a_failed_sync_is_written_down_whoever_was_told() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let _server = server(&p);
    p.file("slow.img", 96 * MIB);
    let fast = locator(&p, "fast");
    p.ok(&["create", "tank", "--fast", &fast, "--slow", "slow.img", "--volume", "main:16MiB", "--yes"]);
    let (note, broken): (PathBuf, PathBuf) = (p.path("run/tank/lost.json"), p.path("broken"));
    let said = || std::fs::read_to_string(&note).unwrap_or_default();
    let breaks = || std::fs::write(&broken, "").expect("written");
    let mended = || std::fs::remove_file(&broken).expect("removed");
    let forgotten = || std::fs::remove_file(&note).expect("removed");

    // A daemon that is killed when it has latched.
    let daemon = p.serve(&["tank"]);
    assert!(!note.exists());
    breaks();
    assert_ne!(p.run(&["volume", "create", "tank/more", "--size", "1MiB"]).code, 0);
    until(|| said().contains("member 0"), "the latch is written down");
    drop(daemon);

    // A start that is refused, and a command that only wanted to look.
    forgotten();
    assert_ne!(p.run(&["serve", "tank"]).code, 0);
    assert!(said().contains("could not be synced when it was opened"), "{}", said());
    forgotten();
    p.run(&["rescue", "tank"]);
    assert!(note.exists());

    // A stop that fails.
    mended();
    forgotten();
    let mut daemon = p.serve(&["tank"]);
    until(|| !note.exists(), "no device is left to be told");
    breaks();
    assert_ne!(p.run(&["stop", "tank"]).code, 0);
    assert_ne!(daemon.wait(), 0, "{}", p.log());
    assert!(note.exists());
}

/// A command that opens the group and stops it in order takes away what the next daemon could see a dead one by.
#[test]
fn what_a_server_may_have_lost_is_written_down_by_a_command_too() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    ["fast.img", "slow.img"].iter().zip([48, 96]).for_each(|(name, mib)| drop(p.file(name, mib * MIB)));
    let _server = Server::of(&p, "fast");
    p.ok(&["create", "tank", "--fast", &locator(&p, "fast"), "--slow", "slow.img", "--volume", "main:16MiB", "--yes"]);
    let note = p.path("run/tank/lost.json");
    p.ok(&["volume", "create", "tank/one", "--size", "1MiB"]);
    assert!(!note.exists(), "it was stopped in order before");
    let mut daemon = p.serve(&["tank"]);
    daemon.child.kill().expect("killed");
    daemon.wait();
    p.ok(&["volume", "list", "tank"]);
    assert!(!note.exists(), "who only looks takes nothing away");
    p.ok(&["volume", "create", "tank/two", "--size", "1MiB"]);
    let said = std::fs::read_to_string(&note).expect("written down");
    assert!(said.contains("may have been started anew"), "{said}");
    let _daemon = p.serve(&["tank"]);
    until(|| !note.exists(), "no device is left to be told");
}
