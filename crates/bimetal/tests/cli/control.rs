//! The control API, asked by good and bad clients.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{checksum, installed, Daemon, Place};
use crate::family::stop;

/// Sends bytes and reads until the daemon closes.
fn raw(p: &Place, bytes: &[u8]) -> String {
    let mut s = UnixStream::connect(p.socket("control.sock")).expect("control socket");
    s.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    // The daemon may close before it has read everything.
    let _ = s.write_all(bytes);
    let mut answer = Vec::new();
    let _ = s.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(p: &Place, path: &str) -> String {
    raw(p, format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
}

#[test]
fn it_answers_status_health_and_metrics() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    assert!(get(&p, "/v1/status").contains("\"state\":\"serving\""));
    assert!(get(&p, "/v1/health").contains("\"healthy\":true"));
    assert!(get(&p, "/v1/attachments").contains("\"attachments\":[]"));
    let metrics = get(&p, "/v1/metrics");
    assert!(metrics.contains("bimetal_up{group=\"tank\"} 1"), "{metrics}");
    for line in metrics.split("\r\n\r\n").nth(1).unwrap_or_default().lines().filter(|l| !l.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap_or_default();
        assert!(value.parse::<u64>().is_ok(), "{line}");
    }
}

#[test]
fn bad_requests_get_words_and_harm_nobody() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    assert!(get(&p, "/v2/status").contains("404"));
    assert!(raw(&p, b"POST /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        .contains("405"));
    let bad = b"POST /v1/stop HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\n{\"for";
    assert!(raw(&p, bad).contains("400"));
    let huge = [
        b"POST /v1/stop HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 9999999\r\n\r\n".to_vec(),
        vec![b' '; 200_000],
    ];
    assert!(!raw(&p, &huge.concat()).contains("200 OK"));
    raw(&p, &vec![b'A'; 300_000]);
    raw(&p, b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03");
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let connect = || UnixStream::connect(p.socket("control.sock")).expect("control socket");
    let _silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let begun = Instant::now();
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn even_the_last_place_is_given_back() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let connect = || UnixStream::connect(p.socket("control.sock")).expect("control socket");
    // More than are served at a time; they are dropped when their heads do not come.
    let _silent: Vec<_> = (0..40).map(|_| connect()).collect();
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
}

#[test]
fn who_stops_in_the_middle_of_a_body_keeps_nobody_out_for_long() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let half = b"POST /v1/volumes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"cre";
    let stuck = || {
        let mut s = UnixStream::connect(p.socket("control.sock")).expect("control socket");
        s.write_all(half).expect("it listens");
        s
    };
    // As many as there are places.
    let mut stuck: Vec<_> = (0..32).map(|_| stuck()).collect();
    let begun = Instant::now();
    assert!(get(&p, "/v1/status").contains("\"state\":\"serving\""));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let mut answer = String::new();
    stuck[0].read_to_string(&mut answer).expect("an answer, and the end");
    assert!(answer.contains("400") && answer.contains("did not come"), "{answer}");
}

#[test]
fn what_somebody_asked_for_who_has_gone_while_the_daemon_stood_still_is_not_done() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let names = || p.json(&["volume", "list", "tank"])["volumes"].to_string();
    let before = names();
    daemon.signal(rustix::process::Signal::STOP);
    let bodies = [
        ("/v1/volumes", r#"{"change":"create","name":"late","size_bytes":1048576,"placement":"auto"}"#),
        ("/v1/volumes", r#"{"change":"rename","name":"main","new_name":"late","force":true}"#),
        ("/v1/stop", r#"{"force":true}"#),
        ("/v1/stop", ""),
    ];
    for (path, body) in bodies {
        let mut s = UnixStream::connect(p.socket("control.sock")).expect("control socket");
        let len = body.len();
        write!(s, "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}")
            .expect("sent");
    }
    daemon.signal(rustix::process::Signal::CONT);
    // Whoever asks now comes after all of them.
    assert_eq!(names(), before);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(names(), before);
    let asked = raw(&p, b"POST /v1/stop HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(asked.starts_with("HTTP/1.1 200"), "{asked}");
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_socket_at_which_a_process_listens_that_stands_still_is_in_use() {
    let p = Place::new();
    p.tank();
    let other = UnixListener::bind(p.path("other.sock")).expect("a socket");
    let socket = p.path("other.sock");
    // Nobody takes them: the last one waits until there is no listener any more.
    std::thread::spawn(move || while UnixStream::connect(&socket).is_ok() {});
    std::thread::sleep(Duration::from_millis(500));
    for option in [["--nbd", "unix:other.sock"], ["--control", "other.sock"]] {
        let said = p.run_for(&[&["serve", "tank"][..], &option].concat(), Duration::from_secs(15));
        assert!(said.contains("other.sock is in use: a process listens there"), "{said}");
    }
    drop(other);
    stop(&p, p.serve(&["tank", "--nbd", "unix:other.sock"]));
}

#[test]
fn a_control_socket_takes_nobodys_place() {
    let p = Place::new();
    p.tank();
    let before = checksum(&p.path("fast.img"));
    p.refused(&["serve", "tank", "--control", "fast.img"], 1, &["fast.img", "no socket", "--control"]);
    assert_eq!(checksum(&p.path("fast.img")), before);
    let taken = p.path("taken.sock");
    let listener = UnixListener::bind(&taken).expect("a socket");
    p.refused(&["serve", "tank", "--control", "taken.sock"], 1, &["taken.sock", "in use"]);
    assert!(UnixStream::connect(&taken).is_ok(), "its owner still listens there");
    drop(listener);
    let mut daemon = p.serve(&["tank", "--control", "taken.sock"]);
    assert_eq!(p.json(&["status", "tank"])["state"], "serving", "a socket that nobody listens on is replaced");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_stop_that_fails_says_so() {
    let p = Place::new();
    p.tank();
    if !installed("prlimit") {
        return;
    }
    // Members that take no writes any more: those beyond a limit fail.
    let hurt = |daemon: &Daemon| {
        let pid = daemon.child.id().to_string();
        let limited = std::process::Command::new("prlimit").args(["--pid", &pid, "--fsize=65536"]).status();
        assert!(limited.expect("prlimit").success());
    };
    let mut daemon = p.serve(&["tank"]);
    hurt(&daemon);
    let d = p.run(&["stop", "tank", "--json"]);
    assert_eq!(d.code, 1, "{}{}", d.out, d.err);
    let answer: serde_json::Value = serde_json::from_str(&d.out).expect("JSON");
    assert_eq!((&answer["stopped"], &answer["ended"]), (&false.into(), &true.into()), "{answer}");
    for word in ["could not be stopped in order", "before is safe", "bimetal check tank"] {
        assert!(
            d.err.contains(word) && answer["error"].as_str().is_some_and(|e| e.contains(word)),
            "{}{}",
            d.out,
            d.err
        );
    }
    assert_eq!(daemon.wait(), 1, "{}", p.log());
    let mut daemon = p.serve(&["tank"]);
    hurt(&daemon);
    daemon.terminate();
    assert_eq!(daemon.wait(), 1, "a service manager learns it, too: {}", p.log());
    // The next one has nothing of that.
    let mut daemon = p.serve(&["tank"]);
    assert_eq!(p.json(&["stop", "tank"])["stopped"], true);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn files_that_could_be_locked_are_for_their_owner_alone() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    for name in ["lock", "nbd.sock", "control.sock"] {
        let mode = std::fs::metadata(p.socket(name)).expect(name).permissions().mode();
        let others = if name == "lock" { 0o077 } else { 0o007 };
        assert_eq!(mode & others, 0, "{name} has mode {mode:o}");
    }
}

/// A volume of which one answer does not tell everything: whoever asks goes on where it ended.
#[test]
fn fates_come_in_pages_that_join() {
    const GIB: u64 = 1 << 30;
    let p = Place::new();
    p.file("fast.img", 64 << 20);
    p.file("slow.img", 40 * GIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:35GiB"]);
    let daemon = p.serve(&["tank"]);
    let page = |from: u64| -> serde_json::Value {
        let answer = get(&p, &format!("/v1/volumes/main/fates/{from}"));
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON")
    };
    let (mut from, mut pages) = (0, 0);
    while from < 35 * GIB {
        let page = page(from);
        let runs = page["runs"].as_array().expect("a list");
        let first = runs.first().expect("a run")["offset_bytes"].as_u64();
        let bytes: u64 = runs.iter().filter_map(|r| r["length_bytes"].as_u64()).sum();
        assert_eq!((first, page["size_bytes"].as_u64()), (Some(from), Some(35 * GIB)), "{page}");
        from += bytes;
        assert_eq!(page["until_bytes"].as_u64(), Some(from), "{page}");
        pages += 1;
    }
    assert_eq!((from, pages), (35 * GIB, 3));
    assert!(get(&p, &format!("/v1/volumes/main/fates/{}", 36 * GIB)).contains("404"));
    // The command puts them together.
    let volume = |p: &Place| p.json(&["rescue", "tank"])["volumes"][0].clone();
    let served = volume(&p);
    assert_eq!(served["never_written_bytes"].as_u64(), Some(35 * GIB), "{served}");
    assert_eq!(served["runs"].as_array().map(Vec::len), Some(1), "{served}");
    drop(daemon);
    assert_eq!(volume(&p), served, "as the members say themselves");
}

#[test]
fn a_list_of_attached_devices_that_is_damaged_stops_nothing_and_is_told() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let list = p.path("run/tank/attachments.json");
    for half in ["", "[{\"volume\": \"ma"] {
        std::fs::write(&list, half).expect("written");
        let words = ["attachments.json is damaged", "what is attached is not known"];
        p.refused(&["detach", "tank"], 1, &words);
        p.refused(&["volume", "delete", "tank/main", "--yes"], 1, &words);
        assert!(get(&p, "/v1/attachments").contains("500"));
        let status = p.json(&["status", "tank"]);
        assert!(status["summary"][0].as_str().is_some_and(|s| s.contains(words[0])), "{status}");
    }
    std::fs::write(p.path("run/notes"), "no group").expect("written");
    p.refused(&["stop", "tank", "--timeout", "2"], 1, &["still serves", "attachments.json is damaged"]);
    std::fs::remove_file(&list).expect("removed");
    assert_eq!(daemon.wait(), 0, "it stops when what is attached is known");
    p.refused(&["detach", "/dev/null"], 1, &["was not attached by Bimetal"]);
}

/// One group's list is not another's.
#[test]
fn a_damaged_list_of_another_group_keeps_no_device() {
    if !crate::attach::possible() {
        return;
    }
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/aaa")).expect("a folder");
    std::fs::write(p.path("run/aaa/attachments.json"), "[{").expect("written");
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    p.ok(&["detach", &device]);
    let device = p.ok(&["attach", "tank/main", "--via", "fuse"]).trim().to_string();
    p.refused(&["detach", "--all"], 1, &["aaa/attachments.json is damaged", "detached", &device]);
    p.refused(&["detach", &device], 1, &["aaa/attachments.json is damaged"]);
    p.ok(&["stop", "tank"]);
}

#[test]
fn the_usual_socket_under_another_name_is_the_usual_one() {
    let p = Place::new();
    p.tank();
    std::os::unix::fs::symlink(p.path("run"), p.path("var-run")).expect("a link");
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    for alias in ["var-run/tank/control.sock", "run/../run/tank/control.sock"] {
        let mut daemon = p.serve(&["tank", "--control", alias]);
        assert_eq!(p.json(&["status", "tank"])["state"], "serving", "{alias}");
        p.ok(&["stop", "tank"]);
        assert_eq!(daemon.wait(), 0);
        assert!(!p.socket("control.sock").exists(), "{alias}");
    }
}

#[test]
fn attach_waits_for_a_daemon_that_somebody_else_is_starting() {
    let p = Place::new();
    p.tank();
    // Opening the group takes as long as a member is another's.
    let member = std::fs::File::options().read(true).write(true).open(p.path("fast.img")).expect("a member");
    member.lock().expect("locked");
    let log = p.path("run/tank/log");
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    std::fs::write(&log, "what the first one has said\n").expect("written");
    let mut first = p.command(&["serve", "tank"]).stderr(Stdio::null()).spawn().expect("the program starts");
    let lock = p.path("run/tank/lock");
    while !std::fs::read_to_string(&lock).is_ok_and(|pid| !pid.is_empty()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let attach = p.command(&["attach", "tank/nothing"]).stderr(Stdio::piped()).spawn().expect("the program starts");
    std::thread::sleep(Duration::from_millis(500));
    drop(member);
    let said = attach.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("has no volume 'nothing'"), "{said}");
    assert!(!said.contains("is stopped again"), "the daemon is somebody else's: {said}");
    assert_eq!(p.json(&["status", "tank"])["pid"], first.id());
    let text = std::fs::read_to_string(&log).expect("a log");
    assert!(text.starts_with("what the first one has said\n"), "{text}");
    p.ok(&["stop", "tank"]);
    first.wait().expect("it ends");
}

#[test]
fn a_daemon_that_ends_while_it_is_asked_is_not_running() {
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let socket = p.socket("control.sock");
    // One that is there and says nothing more, whether it has read the question or not.
    for reads in [false, true] {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let last = std::thread::spawn(move || {
            let (mut asked, _) = listener.accept().expect("somebody asks");
            if reads {
                let _ = asked.read(&mut [0; 4096]);
            }
        });
        assert_eq!(p.json(&["status", "tank"])["state"], "not running");
        last.join().expect("it was asked");
        std::fs::remove_file(&socket).expect("removed");
    }
}

#[test]
fn a_stop_that_comes_too_late_to_be_answered_learns_how_the_daemon_ended() {
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    // Who is no owner of the lock cannot tell which process it was.
    for (process, error, code) in [("4711", "null", 0), ("4711", "\"a disk is broken\"", 1), ("", "null", 0)] {
        let _ = std::fs::remove_file(p.path("run/tank/ended.json"));
        let lock = std::fs::File::create(p.path("run/tank/lock")).expect("a lock");
        lock.lock().expect("locked");
        (&lock).write_all(process.as_bytes()).expect("written");
        let listener = UnixListener::bind(p.socket("control.sock")).expect("a socket");
        let (end, socket) = (p.path("run/tank/ended.json"), p.socket("control.sock"));
        let last = std::thread::spawn(move || {
            drop(listener.accept().expect("somebody asks"));
            std::fs::remove_file(&socket).expect("removed");
            std::thread::sleep(Duration::from_millis(200));
            std::fs::write(end, format!("{{\"schema\":1,\"process\":4711,\"error\":{error},\"cut_off\":[]}}"))
                .expect("written");
            drop(lock);
        });
        let d = p.run(&["stop", "tank"]);
        last.join().expect("it was asked");
        assert_eq!(d.code, code, "{}{}", d.out, d.err);
        assert!([d.out, d.err].concat().contains(["everything is flushed", "a disk is broken"][code as usize]));
    }
}

#[test]
fn a_stop_names_the_nbd_clients_that_it_cuts_off_and_no_other() {
    if !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:20MiB"]);
    let connect = || {
        let uri = format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display());
        let mut user = Command::new("qemu-io");
        user.args(["-f", "raw", &uri]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let user = user.spawn().expect("qemu-io");
        let is_there = || p.json(&["status", "tank"])["clients"].as_array().is_some_and(|all| !all.is_empty());
        let begun = Instant::now();
        while !is_there() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{}", p.json(&["status", "tank"]));
            std::thread::sleep(Duration::from_millis(20));
        }
        user
    };
    let mut daemon = p.serve(&["tank"]);
    let mut user = connect();
    let stopped = p.json(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    let named = format!("an NBD client of volume 'main' (pid {}) was connected", user.id());
    assert_eq!(stopped["cut_off"], serde_json::json!([named]), "{stopped}");
    drop(user.stdin.take());
    let _ = user.wait();
    // One that has just ended was not cut off.
    let mut daemon = p.serve(&["tank"]);
    let mut user = connect();
    user.kill().and_then(|()| user.wait()).expect("ended");
    let words = p.ok(&["stop", "tank"]);
    assert!(words.contains("everything is flushed"), "{words}");
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_stop_that_is_not_answered_does_not_stop_the_next_daemon() {
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let (lock, socket) = (p.path("run/tank/lock"), p.socket("control.sock"));
    let (end, next) = (p.path("run/tank/ended.json"), std::fs::File::create(&lock).expect("a lock"));
    next.lock().expect("locked");
    (&next).write_all(b"4711").expect("written");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let daemons = std::thread::spawn(move || {
        // One looks whether it is there, one asks it to stop.
        (0..2).for_each(|_| drop(listener.accept().expect("somebody asks")));
        std::fs::write(end, "{\"schema\":1,\"process\":4711,\"error\":null,\"cut_off\":[]}").expect("written");
        // The next one takes its place before it is asked again.
        next.set_len(0).and_then(|()| std::fs::write(&lock, "4712")).expect("written");
        listener.set_nonblocking(true).expect("set");
        std::thread::sleep(Duration::from_millis(1500));
        let mut asked = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(true).expect("set");
            let mut text = [0; 4096];
            let n = stream.read(&mut text).unwrap_or(0);
            asked.push(String::from_utf8_lossy(&text[..n]).into_owned());
        }
        std::fs::remove_file(&socket).expect("removed");
        asked
    });
    let d = p.run(&["stop", "tank"]);
    let asked = daemons.join().expect("they were asked");
    assert!(!asked.iter().any(|text| text.contains("/v1/stop")), "{asked:?}");
    assert!(d.code == 0 && d.out.contains("everything is flushed"), "{}{}", d.out, d.err);
}

#[test]
fn a_stop_learns_of_an_orderly_end_though_the_next_daemon_starts_at_once() {
    let p = Place::new();
    p.tank();
    for _ in 0..3 {
        let daemon = p.serve(&["tank"]);
        let done = std::sync::atomic::AtomicBool::new(false);
        let (p, done) = (&p, &done);
        let stopped = std::thread::scope(|threads| {
            let next = threads.spawn(move || {
                // Each waits a moment for the lock.
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    p.run_for(&["serve", "tank"], Duration::from_millis(700));
                }
            });
            let stopped = p.run(&["stop", "tank"]);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            next.join().expect("ended");
            stopped
        });
        assert!(stopped.code == 0 && stopped.out.contains("everything is flushed"), "{}{}", stopped.out, stopped.err);
        drop(daemon);
    }
}

/// Each is refused when the members are open already, by a systemd unit again and again.
#[test]
fn what_cannot_be_served_at_an_address_stays_stopped_in_order() {
    let p = Place::new();
    p.tank();
    stop(&p, p.serve(&["tank"]));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = format!("tcp:{}", taken.local_addr().expect("its address"));
    let refusals =
        [["--nbd", port.as_str()], ["--nbd", "unix:/no/folder/nbd.sock"], ["--control", "/no/folder/control.sock"]];
    for wanted in refusals {
        let refused = p.run(&[&["serve", "tank"][..], &wanted].concat());
        assert_ne!(refused.code, 0, "{wanted:?}: {}", refused.out);
        assert!(
            refused.err.contains(wanted[1].trim_start_matches("unix:").trim_start_matches("tcp:")),
            "{}",
            refused.err
        );
        assert_eq!(p.json(&["check", "tank"])["clean"], true, "{wanted:?}");
    }
}
