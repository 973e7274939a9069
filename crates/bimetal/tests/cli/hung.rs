//! A member behind a server that stands still, or goes.

use std::time::{Duration, Instant};

use crate::common::{installed, Place, MIB};
use crate::server::{locator, until, Server};

/// A group `tank` whose slow member is behind a server.
fn tank(p: &Place) -> (Server, String) {
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let server = Server::of(p, "slow");
    let slow = locator(p, "slow");
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    (server, slow)
}

#[test]
fn a_member_that_does_not_answer_is_named_and_a_forced_end_does_not_wait_for_it() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let (server, slow) = tank(&p);
    let mut daemon = p.serve(&["tank"]);
    server.stand_still();
    // The end itself asks the member, and waits.
    daemon.terminate();
    let named = format!("Slow member 1 ({slow}) has not answered for 1");
    until(|| p.log().contains(&named), "the log names it");
    // Who wonders why that takes so long is told as well.
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["state"], "stopping");
    assert!(status["summary"].as_array().is_some_and(|lines| lines.len() > 1), "{status}");
    assert!(p.ok(&["status", "tank"]).replace("\n  ", " ").contains("has not answered for"), "{status}");
    p.refused(&["volume", "create", "tank/more", "--size", "4MiB"], 1, &["is being stopped"]);
    daemon.terminate();
    until(|| p.log().contains("and is not waited for"), "it is given up");
    assert_eq!(daemon.wait(), 1, "{}", p.log());
    let end = p.log();
    assert!(end.contains("could not be stopped in order") && end.contains(&format!("slow member 1 ({slow})")), "{end}");
    assert!(p.path("run/tank/lost.json").exists());
    // It is not clean.
    drop(server);
    let _server = Server::of(&p, "slow");
    drop(p.serve(&["tank"]));
}

#[test]
fn a_server_that_goes_is_a_lost_connection_at_once() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let (server, slow) = tank(&p);
    let _daemon = p.serve(&["tank"]);
    assert!(p.ask("GET", "/v1/health", "").contains("\"healthy\":true"));
    drop(server);
    let words = format!("The connection to slow member 1 ({slow}) is lost");
    until(|| p.ok(&["status", "tank"]).replace("\n  ", " ").contains("is lost: "), "status tells");
    let status = p.json(&["status", "tank"]);
    assert_eq!(status["members"][1]["state"], "connection lost", "{status}");
    assert!(status["summary"][0].as_str().is_some_and(|line| line.contains(&words)), "{status}");
    until(|| p.log().contains(&words), "the log tells");
    let metrics = p.ask("GET", "/v1/metrics", "");
    assert!(
        metrics.contains("bimetal_member_connection_lost{group=\"tank\",member=\"1\",tier=\"slow\"} 1"),
        "{metrics}"
    );
    assert!(p.ask("GET", "/v1/health", "").contains("\"healthy\":false"));
}

/// A group whose configuration names three more places, at each of which a server stands still.
fn beside_servers_that_stand_still() -> (Place, [Server; 3]) {
    let p = Place::new();
    p.tank();
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let config = p.path("etc/groups/tank.toml");
    let mut text = std::fs::read_to_string(&config).expect("described");
    let servers = ["a", "b", "c"].map(|name| {
        p.file(&format!("{name}.img"), 96 * MIB);
        text += &format!("\n[[member]]\nlocator = \"{}\"\ntier = \"slow\"\n", locator(&p, name));
        let server = Server::of(&p, name);
        server.stand_still();
        server
    });
    std::fs::write(&config, text).expect("written");
    (p, servers)
}

/// Each of them takes its time, and all take it together.
#[test]
fn several_servers_that_stand_still_are_waited_for_side_by_side() {
    if !installed("nbdkit") {
        return;
    }
    let took = |args: &[&str]| {
        let (p, _servers) = beside_servers_that_stand_still();
        std::fs::copy(p.path("slow.img"), p.path("copy.img")).expect("copied");
        let begun = Instant::now();
        p.ok(args);
        begun.elapsed()
    };
    let (repair, restore, destroy) = std::thread::scope(|scope| {
        let repair = scope.spawn(|| took(&["repair", "tank", "--member", "fast.img", "slow.img"]));
        let restore = ["restore", "tank.saved", "--yes", "--member", "fast.img", "copy.img"];
        let restore = scope.spawn(move || took(&restore));
        // It looks twice.
        let destroy = scope.spawn(|| took(&["destroy", "tank", "--member", "copy.img", "--yes"]));
        (repair.join().expect("done"), restore.join().expect("done"), destroy.join().expect("done"))
    });
    let once = Duration::from_secs(45);
    assert!(repair < once && restore < 2 * once && destroy < 2 * once, "{repair:?}, {restore:?}, {destroy:?}");
}

#[test]
fn a_server_that_shakes_hands_and_answers_no_read_is_told_and_given_up() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let (server, slow) = tank(&p);
    drop(server);
    let _server = Server::with(&p, "slow", &["eval", "get_size=echo 100663296", "pread=exec sleep 60"]);
    let begun = Instant::now();
    let waiting = format!("waiting for {slow} (10 s)");
    let check = p.run(&["check", "tank"]);
    let said = format!("{}{}", check.out, check.err);
    assert!(check.code == 1 && check.err.contains(&waiting), "{said}");
    assert!(said.replace("\n  ", " ").contains("the server does not answer reads"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(55), "{:?}", begun.elapsed());
}
