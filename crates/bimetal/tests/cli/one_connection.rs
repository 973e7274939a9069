//! Servers that take one connection at a time: no command opens a device while it has it open.

use std::time::{Duration, Instant};

use crate::common::{installed, Place, MIB};
use crate::former::joining;
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

/// The members themselves cannot be asked: the daemon has their connections, or the very command.
#[test]
fn what_is_no_member_is_taken_beside_servers_whose_only_connections_are_taken() {
    if !installed("qemu-nbd") {
        return;
    }
    let p = Place::new();
    p.tank();
    let state = ["fast.img", "slow.img"].map(|name| (p.path(name), std::fs::read(p.path(name)).expect("read")));
    let config = p.path("etc/groups/tank.toml");
    let mut text = std::fs::read_to_string(&config).expect("described");
    p.file("half.img", 96 * MIB);
    p.ok(&["member", "add", "tank", "--slow", "half.img", "--yes"]);
    // That was cut off.
    state.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("written"));
    joining(&p.path("half.img"));
    for name in ["fast", "slow"] {
        text = text.replace(&p.path(&format!("{name}.img")).display().to_string(), &locator(&p, name));
    }
    std::fs::write(&config, text).expect("written");
    let mut servers = ["fast", "slow"].map(|name| Some(Server::one_at_a_time(&p, name)));
    let begun = Instant::now();
    let daemon = p.serve(&["tank"]);
    p.ok(&["member", "add", "tank", "--slow", "half.img", "--yes"]);
    p.refused(
        &["member", "add", "tank", "--slow", "half.img", "--yes", "--force"],
        1,
        &["is member 2 of group 'tank' already"],
    );
    p.ok(&["stop", "tank"]);
    drop(daemon);

    // One that was struck off is used again for the one that took its place and has died.
    servers[0].take();
    p.file("new.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new.img", "--yes", "--save", "first.saved"]);
    std::fs::remove_file(p.path("new.img")).expect("it has died");
    let again = ["repair", "tank", "--fast", "fast.img", "--yes", "--save", "second.saved"];
    p.refused(&again, 1, &["fast.img was fast member 0", "add --force"]);
    p.ok(&[&again[..], &["--force"]].concat());
    let daemon = p.serve(&["tank"]);
    std::fs::copy(p.path("half.img"), p.path("copy.img")).expect("copied");
    let copy = ["label of member 2 of group 'tank'", "half.img: one of them is a copy"];
    p.refused(&["member", "add", "tank", "--slow", "copy.img", "--yes"], 1, &copy);
    p.ok(&["stop", "tank"]);
    drop(daemon);
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
}
