//! Commands that have a group, or wait at their question, beside others that want it.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{installed, Daemon, Place, MIB};
use crate::family::{stop, uri};
use crate::server::{locator, until, Server};

/// A command on a terminal of its own.
struct Asked {
    child: Child,
    screen: std::path::PathBuf,
}

impl Asked {
    /// Begins a command and waits until it asks.
    fn begin(p: &Place, args: &[&str]) -> Asked {
        let screen = p.path("screen");
        let line = [&[env!("CARGO_BIN_EXE_bimetal")], args].concat().join(" ");
        let mut command = p.here(Command::new("script"));
        command.args(["-qefc", &line, "/dev/null"]).stdin(Stdio::piped());
        command.stdout(std::fs::File::create(&screen).expect("a file"));
        let child = command.spawn().expect("script starts");
        let asked = Asked { child, screen };
        until(|| asked.says().contains("Type 'yes'"), "it asks");
        asked
    }

    fn says(&self) -> String {
        std::fs::read_to_string(&self.screen).unwrap_or_default().replace("\r\n", "\n").replace("\n  ", " ")
    }

    /// Its answer to "yes", and whether it has done what was asked.
    fn yes(mut self) -> (bool, String) {
        self.child.stdin.take().expect("a pipe").write_all(b"yes\n").expect("it reads");
        let status = self.child.wait().expect("it ends");
        (status.success(), self.says())
    }

    /// The same of one that has to be refused, in these words.
    #[track_caller]
    fn refused(self, words: &[&str]) {
        let (done, said) = self.yes();
        assert!(!done && words.iter().all(|w| said.contains(w)), "{said}");
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_destroy_that_waits_at_its_question_keeps_nobody_from_the_group() {
    if !installed("script") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    for args in [&["destroy", "tank"][..], &["destroy", "tank", "--forget"]] {
        let asked = Asked::begin(&p, args);
        assert!(p.ok(&["stop", "tank"]).contains("was not being served"));
        let daemon = p.serve(&["tank"]);
        asked.refused(&["already being served"]);
        assert_eq!(p.json(&["status", "tank"])["state"], "serving");
        stop(&p, daemon);
    }
    // What is to be destroyed is not what was asked about any more.
    let asked = Asked::begin(&p, &["destroy", "tank"]);
    p.ok(&["volume", "create", "tank/more", "--size", "4MiB"]);
    asked.refused(&["nothing was changed", "not so any more"]);
    assert!(p.ok(&["volume", "list", "tank"]).contains("more"));
    let (done, said) = Asked::begin(&p, &["destroy", "tank"]).yes();
    assert!(done && said.contains("is destroyed"), "{said}");
}

#[test]
fn a_restore_that_waits_at_its_question_looks_again_whether_the_group_was_used() {
    if !installed("script") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let asked = Asked::begin(&p, &["restore", "tank.saved"]);
    let daemon = p.serve(&["tank"]);
    asked.refused(&["already being served"]);
    stop(&p, daemon);
    p.ok(&["dump", "tank", "--save", "again.saved"]);
    let asked = Asked::begin(&p, &["restore", "again.saved"]);
    stop(&p, p.serve(&["tank"]));
    asked.refused(&["Nothing was written"]);
    p.ok(&["dump", "tank", "--save", "third.saved"]);
    let (done, said) = Asked::begin(&p, &["restore", "third.saved"]).yes();
    assert!(done && said.contains("is that of"), "{said}");
    stop(&p, p.serve(&["tank"]));
}

#[test]
fn a_repair_that_waits_at_its_question_looks_again_what_there_is_to_repair() {
    if !installed("script") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    p.file("new.img", 96 * MIB);
    let repair = ["repair", "tank", "--slow", "new.img", "--save", "before.saved"];
    let away = || std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("moved");
    away();
    let asked = Asked::begin(&p, &repair);
    assert!(p.ok(&["stop", "tank"]).contains("was not being served"));
    // The disk is back, and so there is nothing to repair.
    std::fs::rename(p.path("away.img"), p.path("slow.img")).expect("moved");
    let daemon = p.serve(&["tank"]);
    stop(&p, daemon);
    let (_, said) = asked.yes();
    assert!(said.contains("needs no repair"), "{said}");
    stop(&p, p.serve(&["tank"]));
    away();
    let (done, said) = Asked::begin(&p, &repair).yes();
    assert!(done && p.path("before.saved").exists(), "{said}");
}

#[test]
fn a_create_that_waits_at_its_question_takes_no_name() {
    if !installed("script") {
        return;
    }
    let p = Place::new();
    std::fs::write(p.file("full.img", 48 * MIB), "something").expect("written");
    std::fs::OpenOptions::new().write(true).open(p.path("full.img")).expect("open").set_len(48 * MIB).expect("size");
    p.file("empty.img", 96 * MIB);
    let asked = Asked::begin(&p, &["create", "tank", "--fast", "full.img", "--slow", "empty.img"]);
    p.refused(&["stop", "tank"], 1, &["no group named 'tank' is known here"]);
    p.file("f.img", 48 * MIB);
    p.file("s.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "f.img", "--slow", "s.img"]);
    asked.refused(&["a group named 'tank' is already described"]);
    assert!(std::fs::read(p.path("full.img")).expect("read").starts_with(b"something"));
}

/// A group whose members are behind servers `fast` and `slow`, of which the first answers no read of its map while there is a file
/// `gate`; the same behind `fast2` answers all.
fn gated(p: &Place) -> [Server; 3] {
    let gate = p.path("gate");
    let wait = format!("while [ $4 -ge 1048576 -a $4 -lt 16777216 -a -e {} ]; do sleep 0.05; done;", gate.display());
    let fast = Server::with_faults(p, "fast", 48 * MIB, &wait, "");
    let again = Server::with(p, "fast2", &["file", &p.path("fast.img").display().to_string()]);
    p.file("slow.img", 96 * MIB);
    let slow = Server::of(p, "slow");
    let (at, other) = (locator(p, "fast"), locator(p, "slow"));
    p.ok(&["create", "tank", "--fast", &at, "--slow", &other, "--volume", "main:8MiB", "--yes"]);
    // What has no map is not read.
    let daemon = p.serve(&["tank"]);
    let mut write = Command::new("qemu-io");
    write.args(["-f", "raw", "-c", "write 0 1M", &uri(p, "main")]).stdout(Stdio::null());
    assert!(write.status().expect("qemu-io").success());
    stop(p, daemon);
    std::fs::write(gate, "").expect("written");
    [fast, again, slow]
}

fn begun(p: &Place, args: &[&str]) -> Child {
    let child = p.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Until it waits at the gate.
    std::thread::sleep(Duration::from_millis(1500));
    child
}

/// What a command says until it ends.
fn ended(mut child: Child) -> (bool, String) {
    let mut said = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("read");
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("read");
    (child.wait().expect("it ends").success(), said.replace("\n  ", " "))
}

#[test]
fn who_only_lists_keeps_nobody_from_the_group() {
    if !installed("nbdkit") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    let _servers = gated(&p);
    let lists = [&["volume", "list", "tank"][..], &["member", "list", "tank"], &["family", "list", "tank"]];
    let lists = lists.map(|args| begun(&p, args));
    assert!(p.ok(&["stop", "tank"]).contains("was not being served"));
    let (fast, slow) = (locator(&p, "fast2"), locator(&p, "slow"));
    let daemon = p.serve(&["tank", "--member", &fast, "--member", &slow]);
    std::fs::remove_file(p.path("gate")).expect("removed");
    // What they have read until then is not all there is.
    for list in lists {
        let (done, said) = ended(list);
        assert!(!done && said.contains("has come to serve group 'tank' meanwhile"), "{said}");
    }
    stop(&p, daemon);
}

/// Has the lock of `tank` for so long, as a command of which the lock tells.
fn held_for(p: &Place, time: Duration) -> std::thread::JoinHandle<()> {
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let lock = std::fs::File::create(p.path("run/tank/lock")).expect("a file");
    lock.lock().expect("locked");
    (&lock).write_all(b"4711\nvolume create tank/other\n").expect("written");
    std::thread::spawn(move || {
        std::thread::sleep(time);
        drop(lock);
    })
}

#[test]
fn a_command_that_has_the_group_for_a_moment_only_is_waited_for() {
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    let moment = Duration::from_millis(1000);
    for command in [
        &["check", "tank"][..],
        &["volume", "list", "tank"],
        &["volume", "create", "tank/more", "--size", "4MiB"],
        &["dump", "tank", "--save", "tank.saved"],
        &["restore", "tank.saved", "--yes"],
        &["repair", "tank"],
    ] {
        let held = held_for(&p, moment);
        p.ok(command);
        held.join().expect("it ends");
    }
    let held = held_for(&p, moment);
    let daemon = p.serve(&["tank"]);
    held.join().expect("it ends");
    stop(&p, daemon);
    // The daemon of an attach is one in the background.
    let held = held_for(&p, moment);
    let attach = p.run(&["attach", "tank/no-volume"]);
    assert!(attach.err.contains("has no volume 'no-volume'"), "{}", attach.err);
    held.join().expect("it ends");
    let held = held_for(&p, moment);
    p.ok(&["destroy", "tank", "--yes"]);
    held.join().expect("it ends");
}

/// Each has the group for a moment, and tells who it is a moment after it has it.
#[test]
fn many_commands_at_once_take_turns() {
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    for round in 0..3 {
        let names = ["a", "b", "c", "d"].map(|name| format!("tank/{name}{round}"));
        let create = |name: &String| {
            let args = ["volume", "create", name, "--size", "4MiB"];
            p.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        for child in names.each_ref().map(create) {
            let (done, said) = ended(child);
            assert!(done, "{said}");
        }
    }
}

#[test]
fn what_has_a_group_for_itself_is_told_by_name_and_not_waited_for_long() {
    if !installed("nbdkit") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    let _servers = gated(&p);
    let create = begun(&p, &["volume", "create", "tank/more", "--size", "4MiB"]);
    let process = format!("process {}", create.id());
    let words = ["`bimetal volume create tank/more --size 4MiB`", &process];
    p.refused(&["stop", "tank"], 1, &words);
    p.refused(&["serve", "tank"], 1, &words);
    p.refused(&["volume", "list", "tank"], 1, &words);
    p.refused(&["check", "tank"], 1, &words);
    assert!(words.iter().all(|w| p.ok(&["status", "tank"]).contains(w)), "{}", p.ok(&["status", "tank"]));
    let said = p.run_for(&["attach", "tank", "--via", "nbd"], Duration::from_secs(10));
    assert!(words.iter().all(|w| said.contains(w)), "{said}");
    std::fs::remove_file(p.path("gate")).expect("removed");
    let (done, said) = ended(create);
    assert!(done, "{said}");
    assert!(p.ok(&["volume", "list", "tank"]).contains("more"));
}

/// The daemon is one of which no lock tells here.
#[test]
fn a_check_beside_which_a_daemon_has_started_calls_nothing_damaged() {
    if !installed("nbdkit") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    let _servers = gated(&p);
    let (fast, slow) = (locator(&p, "fast2"), locator(&p, "slow"));
    let serve = |run: &str| {
        let mut command = p.command(&["serve", "tank", "--member", &fast, "--member", &slow]);
        let log = std::fs::File::create(p.path("elsewhere.log")).expect("a file");
        command.env("BIMETAL_RUN_DIR", p.path(run)).stdout(Stdio::null()).stderr(log);
        let daemon = Daemon { child: command.spawn().expect("it starts") };
        let log = || std::fs::read_to_string(p.path("elsewhere.log")).unwrap_or_default();
        until(|| log().contains("serving group"), "it serves");
        daemon
    };
    for (run, stops) in [("elsewhere", false), ("run", false), ("run", true)] {
        std::fs::write(p.path("gate"), "").expect("written");
        let check = begun(&p, &["check", "tank"]);
        let mut daemon = serve(run);
        if stops {
            daemon.terminate();
            assert_eq!(daemon.wait(), 0);
        }
        std::fs::remove_file(p.path("gate")).expect("removed");
        let (done, said) = ended(check);
        assert!(!done && said.contains("was not verified") && said.contains("has come to serve"), "{said}");
        assert!(!said.contains("SERIOUS") && !said.contains("bimetal repair"), "{said}");
        drop(daemon);
    }
    assert!(p.ok(&["check", "tank"]).contains("Everything is in order"));
}

/// A server with one connection, which a daemon has that is starting.
#[test]
fn a_check_that_was_not_let_in_while_a_daemon_has_come_calls_nothing_missing() {
    if !installed("qemu-nbd") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let _slow = Server::one_at_a_time(&p, "slow");
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &locator(&p, "slow"), "--volume", "main:8MiB", "--yes"]);
    let mut user = Command::new("qemu-io");
    user.args(["-f", "raw", &locator(&p, "slow")]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let user = Daemon { child: user.spawn().expect("qemu-io") };
    std::thread::sleep(Duration::from_millis(500));
    let check = begun(&p, &["check", "tank"]);
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let lock = std::fs::File::create(p.path("run/tank/lock")).expect("a file");
    lock.lock().expect("locked");
    (&lock).write_all(b"4711\n").expect("written");
    let (done, said) = ended(check);
    assert!(!done && said.contains("was not verified: a daemon (process 4711) has come to serve it"), "{said}");
    drop((user, lock));
    assert!(p.ok(&["check", "tank"]).contains("Everything is in order"));
}
