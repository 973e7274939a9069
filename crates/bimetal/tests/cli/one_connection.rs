//! Servers that take one connection at a time: no command opens a device while it has it open.

use std::time::{Duration, Instant};

use crate::common::{installed, Place, MIB};
use crate::server::{locator, Server};

#[test]
fn servers_that_take_one_connection_at_a_time_are_enough_for_everything() {
    if !installed("qemu-nbd") {
        return;
    }
    let p = Place::new();
    let names = ["fast", "slow", "more", "other", "again"];
    let mut servers = names.map(|name| {
        p.file(&format!("{name}.img"), if name == "fast" { 48 * MIB } else { 96 * MIB });
        Some(Server::one_at_a_time(&p, name))
    });
    let [fast, slow, more, other, again] = names.map(|name| locator(&p, name));
    let begun = Instant::now();
    p.ok(&["create", "tank", "--fast", &fast, "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    let daemon = p.serve(&["tank"]);
    p.ok(&["member", "add", "tank", "--slow", &more, "--yes"]);
    p.ok(&["member", "replace", "tank", "2", &other, "--yes"]);
    p.ok(&["stop", "tank"]);
    drop(daemon);
    p.ok(&["check", "tank"]);
    p.ok(&["member", "list", "tank"]);
    let scanned = p.ok(&["scan", &fast, &slow, &other]);
    assert!(!scanned.contains("twice"), "{scanned}");
    servers[3].take();
    p.ok(&["repair", "tank", "--member", &fast, "--member", &slow, "--slow", &again, "--give-up-unread", "--yes"]);
    p.ok(&["destroy", "tank", "--yes"]);
    // A second connection would have waited so long for the first.
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
}
