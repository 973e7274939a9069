//! A group is verified while it is served, and what is damaged under it is mended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::common::{installed, Place, MIB};

const BLOCK: usize = 4096;
/// Where labels begin; before that is nothing of Bimetal.
const LABEL: usize = 64 << 10;

/// Flips a bit in every block of metadata of a member but for its first label; gives the number of blocks.
fn damage(p: &Place, member: &str) -> usize {
    let file = File::options().read(true).write(true).open(p.path(member)).expect("a member");
    let mut zone = vec![0; MIB as usize * 4];
    file.read_exact_at(&mut zone, 0).expect("read");
    let mut changed = 0;
    for (n, block) in zone.chunks_mut(BLOCK).enumerate().skip((LABEL + LABEL) / BLOCK) {
        // Metadata begin with a magic; data of this test do not.
        if block.starts_with(b"BM") {
            block[100] ^= 4;
            file.write_all_at(block, (n * BLOCK) as u64).expect("written");
            changed += 1;
        }
    }
    file.sync_all().expect("synced");
    changed
}

fn fill(p: &Place) {
    let file = p.path("content");
    std::fs::write(&file, vec![b'x'; 20 << 20]).expect("written");
    let uri = format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display());
    let copied = Command::new("nbdcopy").arg("--flush").arg(&file).arg(uri).status().expect("nbdcopy");
    assert!(copied.success());
}

#[test]
fn a_group_in_use_is_verified_and_mended() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.tank_of(&["main:40MiB"]);
    p.refused(&["check", "tank", "--mend"], 1, &["is not served", "bimetal serve tank"]);
    let mut daemon = p.serve(&["tank"]);
    fill(&p);
    let whole = p.json(&["check", "tank"]);
    assert_eq!((&whole["sound"], &whole["in_use"]), (&true.into(), &true.into()), "{whole}");
    assert!(whole["chunks"].as_u64() >= Some(160) && whole["records_to_replay"].as_u64() > Some(0), "{whole}");
    let fast = &whole["slots"][0];
    assert_eq!((&fast["tier"], &fast["locator"]), (&"fast".into(), &p.path("fast.img").display().to_string().into()));
    assert_eq!(fast["used_bytes"].as_u64(), fast["used"].as_u64().map(|slots| slots * (128 << 10)), "{whole}");
    let told = p.ok(&["check", "tank"]);
    assert!(told.contains("Group 'tank' is in use.") && told.contains("fast.img\n"), "{told}");
    assert!(damage(&p, "fast.img") > 3);
    let told = p.run(&["check", "tank"]);
    assert_eq!(told.code, 1, "{}", told.out);
    for words in
        ["member 0: ", "is not sound (the daemon has it whole)", "Nothing was written", "bimetal check tank --mend"]
    {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    let mended = p.ok(&["check", "tank", "--mend"]);
    assert!(mended.contains("(mended)") && !mended.contains("in memory"), "{mended}");
    let again = p.json(&["check", "tank"]);
    assert_eq!(again["problems"].as_array().map(Vec::len), Some(0), "{again}");
    assert!(p.log().contains("is not sound (mended)"), "{}", p.log());
    // What was mended is on the member: nothing else has it after a kill.
    daemon.child.kill().expect("killed");
    daemon.wait();
    let after = p.json(&["check", "tank"]);
    assert_eq!((&after["sound"], &after["in_use"]), (&true.into(), &false.into()), "{after}");
    assert_eq!(after["slots"], p.json(&["check", "--member", "slow.img", "fast.img"])["slots"], "in any order");
    assert_eq!((&after["slots"][1]["tier"], after["slots"][1]["locator"].is_string()), (&"slow".into(), true));
    let mut daemon = p.serve(&["tank"]);
    let uri = format!("nbd+unix:///main?socket={}", p.socket("nbd.sock").display());
    let back = p.path("back");
    assert!(Command::new("nbdcopy").arg(uri).arg(&back).status().expect("nbdcopy").success());
    let back = std::fs::read(&back).expect("read");
    assert!(back[..20 << 20].iter().all(|b| *b == b'x') && back[20 << 20..].iter().all(|b| *b == 0));
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
}

/// Nobody has to remember it.
#[test]
fn the_daemon_verifies_its_group_now_and_then() {
    let p = Place::new();
    p.tank_of(&["main:40MiB"]);
    let mut daemon = p.serve(&["tank", "--check-first", "2"]);
    assert!(p.json(&["status", "tank"])["last_check"].is_null());
    let changed = damage(&p, "fast.img") as u64;
    assert!(changed > 0);
    let status = loop {
        let status = p.json(&["status", "tank"]);
        if !status["last_check"].is_null() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    };
    let last = &status["last_check"];
    assert_eq!((&last["by_itself"], &last["serious"]), (&true.into(), &false.into()), "{last}");
    assert!(last["problems"].as_u64() > Some(0) && last["mended"] == last["problems"], "{last}");
    assert!(status["summary"].to_string().contains("damaged beside the data"), "{status}");
    assert!(p.ask("GET", "/v1/metrics", "").contains("bimetal_check_problems{group=\"tank\"} 0"));
    assert!(p.log().contains("(mended)"), "{}", p.log());
    assert_eq!(p.json(&["check", "tank"])["problems"].as_array().map(Vec::len), Some(0));
    assert_eq!(p.json(&["status", "tank"])["last_check"]["by_itself"], false);
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn what_no_start_can_use_leads_on_to_the_repair() {
    let p = Place::new();
    p.tank();
    std::fs::rename(p.path("slow.img"), p.path("away")).expect("renamed");
    let told = p.run(&["check", "tank"]);
    assert_eq!(told.code, 1, "{}", told.err);
    for words in ["slow.img does not exist", "missing: member 1 (slow", "1 problem was found", "bimetal rescue tank"] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    std::fs::rename(p.path("away"), p.path("slow.img")).expect("renamed");
    if !installed("nbdcopy") {
        return;
    }
    let mut daemon = p.serve(&["tank"]);
    fill(&p);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(damage(&p, "fast.img") > 0 && damage(&p, "slow.img") > 0);
    let words = ["cannot be verified", "no member has a sound page directory", "bimetal repair tank"];
    p.refused(&["check", "tank"], 1, &words);
}

#[test]
fn a_check_by_hand_is_a_job() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let mut answer = p.ask("POST", "/v1/check", "");
    let number = answer.split_once("\"job\":").expect("numbered").1.split([',', '}']).next().expect("a number");
    let path = format!("/v1/jobs/{number}");
    while answer.contains("\"done\":false") {
        answer = p.ask("GET", &path, "");
    }
    assert!(answer.contains("\"done\":true") && answer.contains("\"sound\":true"), "{answer}");
    let refused = p.ask("POST", "/v1/check", "{\"mend\":7}");
    assert!(refused.contains("400") && refused.contains("the request is not understood"), "{refused}");
}

/// What a daemon answers to a request that its version does not know yet.
const UNKNOWN: &str = "{\"schema\":1,\"error\":\"no such path; see /v1/status, /v1/health, /v1/metrics\"}";

#[test]
fn a_daemon_of_an_earlier_version_is_named_and_what_to_do() {
    let p = Place::new();
    p.tank();
    std::fs::create_dir_all(p.path("run/tank")).expect("a folder");
    let listener = UnixListener::bind(p.socket("control.sock")).expect("a socket");
    // It holds the lock of the group, with its process in it.
    let lock = File::create(p.socket("lock")).expect("a lock");
    (&lock).write_all(b"4711\n").and_then(|()| lock.lock()).expect("locked");
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut piece = [0; 1024];
            let n = stream.read(&mut piece).expect("a request");
            assert!(n > 0, "{}", String::from_utf8_lossy(&request));
            request.extend(&piece[..n]);
        }
        let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", UNKNOWN.len());
        stream.write_all((head + UNKNOWN).as_bytes()).expect("answered");
        String::from_utf8_lossy(&request).into_owned()
    });
    let told = p.run(&["check", "tank"]);
    assert!(daemon.join().expect("it answers").starts_with("POST /v1/check "));
    assert_eq!((told.code, told.out.as_str()), (1, ""), "{}", told.err);
    for words in ["group 'tank'", "process 4711", "earlier version", "bimetal stop tank", "bimetal check tank"] {
        assert!(told.err.contains(words), "{words}: {}", told.err);
    }
    assert!(!told.err.contains("no such path"), "{}", told.err);
}
