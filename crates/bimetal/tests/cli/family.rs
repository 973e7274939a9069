//! Families of encrypted volumes, their passphrases and headers.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bimetal_host::luks::Luks;

use crate::attach::{possible, tool};
use crate::common::{installed, Daemon, Place, MIB};
use crate::server::{locator, Server};

pub(crate) const MEMBERS: [&str; 2] = ["fast.img", "slow.img"];

/// A served group with a family `private`, which passphrase `one` opens; nothing where there is no libcryptsetup.
pub(crate) fn private(p: &Place, volumes: &[&str]) -> Option<Daemon> {
    if let Err(why) = Luks::load() {
        eprintln!("skipped: {why}");
        return None;
    }
    p.tank_of(volumes);
    for (name, secret) in [("one", "correct horse\n"), ("two", "battery"), ("three", "staple\n")] {
        std::fs::write(p.path(name), secret).expect("written");
    }
    let daemon = p.serve(&["tank"]);
    let made = p.json(&["family", "create", "tank/private", "--passphrase-file", "one", "--cost", "light"]);
    assert_eq!((&made["change"], &made["recovery_key"]), (&"created".into(), &serde_json::Value::Null));
    Some(daemon)
}

pub(crate) fn unlock(p: &Place, secret: &str) {
    p.ok(&["family", "unlock", "tank/private", "--passphrase-file", secret]);
}

pub(crate) fn lock(p: &Place) {
    p.ok(&["family", "lock", "tank/private"]);
}

#[track_caller]
pub(crate) fn is_refused(p: &Place, secret: &str) {
    p.refused(&["family", "unlock", "tank/private", "--passphrase-file", secret], 1, &["wrong passphrase"]);
}

pub(crate) fn uri(p: &Place, volume: &str) -> String {
    format!("nbd+unix:///{volume}?socket={}", p.socket("nbd.sock").display())
}

/// So many bytes that are found again wherever they lie.
pub(crate) fn marked(marker: &str, len: u64) -> Vec<u8> {
    marker.bytes().cycle().take(len as usize).collect()
}

pub(crate) fn fill(p: &Place, volume: &str, content: &[u8]) {
    std::fs::write(p.path("in"), content).expect("written");
    let copied = Command::new("nbdcopy").arg("--flush").arg(p.path("in")).arg(uri(p, volume)).status();
    assert!(copied.expect("nbdcopy").success());
}

pub(crate) fn is_there(p: &Place, volume: &str, content: &[u8]) {
    let _ = std::fs::remove_file(p.path("out"));
    assert!(Command::new("nbdcopy").arg(uri(p, volume)).arg(p.path("out")).status().expect("nbdcopy").success());
    assert!(std::fs::read(p.path("out")).expect("read").starts_with(content), "{volume} holds something else");
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    position(bytes, part).is_some()
}

pub(crate) fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let candidates = bytes.iter().enumerate().filter(|(_, b)| **b == first);
    candidates.map(|(at, _)| at).find(|at| bytes[*at..].starts_with(part))
}

/// Whether members hold these bytes somewhere.
pub(crate) fn on_members(p: &Place, part: &[u8]) -> bool {
    MEMBERS.iter().any(|name| contains(&std::fs::read(p.path(name)).expect("read"), part))
}

pub(crate) fn stop(p: &Place, mut daemon: Daemon) {
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn what_is_in_a_family_is_ciphertext_and_waits_for_a_passphrase() {
    if !installed("nbdcopy") || !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let made = p.json(&["volume", "create", "tank/home", "--size", "16MiB", "--family", "private"]);
    assert_eq!(made["size_bytes"], 16 * MIB);
    let (secret, open) = (marked("Nobody shall read this. ", 6 * MIB), marked("Everybody may read this. ", 2 * MIB));
    fill(&p, "home", &secret);
    fill(&p, "plain", &open);
    is_there(&p, "home", &secret);
    stop(&p, daemon);
    assert!(on_members(&p, b"Everybody may read this."), "else the next line says nothing");
    assert!(!on_members(&p, b"Nobody shall read"));
    let offline = p.json(&["family", "list", "tank"]);
    assert_eq!(
        (&offline["families"][0]["name"], &offline["families"][0]["unlocked"]),
        (&"private".into(), &false.into())
    );

    let daemon = p.serve(&["tank"]);
    for words in ["family 'private' is locked", "home", "`bimetal family unlock tank/private`"] {
        assert!(p.log().contains(words), "{}", p.log());
    }
    let words = p.ok(&["status", "tank"]);
    assert!(words.contains("private (locked)") && words.contains("cannot be read or written"), "{words}");
    let refused = Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 4k", &uri(&p, "home")]).output();
    let said = String::from_utf8_lossy(&refused.expect("qemu-io").stderr).into_owned();
    assert!(said.contains("home is locked") && said.contains("bimetal family unlock"), "{said}");
    let words = ["volume 'home' is locked", "bimetal family unlock tank/private"];
    p.refused(&["attach", "tank/home", "--via", "nbd"], 1, &words);
    p.refused(
        &["volume", "create", "tank/more", "--size", "1MiB", "--family", "private"],
        1,
        &["bimetal family unlock tank/private"],
    );
    is_there(&p, "plain", &open);
    is_refused(&p, "two");
    unlock(&p, "one");
    is_there(&p, "home", &secret);
    let home = &p.json(&["status", "tank"])["volumes"][1];
    let fields = (&home["family"], &home["locked"], &home["encrypting"]);
    assert_eq!(fields, (&"private".into(), &false.into(), &serde_json::Value::Null));
    stop(&p, daemon);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn what_is_in_use_is_locked_by_force_only() {
    if !installed("qemu-io") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "16MiB", "--family", "private"]);
    let mut user = Command::new("qemu-io");
    user.args(["-f", "raw", &uri(&p, "home")]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut user = user.spawn().expect("qemu-io");
    let mut commands = user.stdin.take().expect("piped");
    commands.write_all(b"write -P 9 0 64k\n").expect("told");
    let is_client = || !p.json(&["status", "tank"])["clients"].as_array().expect("a list").is_empty();
    while !is_client() {
        std::thread::sleep(Duration::from_millis(20));
    }
    p.refused(&["family", "lock", "tank/private"], 1, &["in use", "volume 'home'", "1 NBD client", "--force"]);
    p.ok(&["family", "lock", "tank/private", "--force"]);
    commands.write_all(b"read 0 64k\nquit\n").expect("told");
    drop(commands);
    let out = user.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(words.contains("wrote 65536/65536") && words.contains("read failed"), "{words}");
    assert!(p.ok(&["family", "lock", "tank/private"]).contains("locked already"));
    // Its family is locked, or is nobody's.
    p.refused(&["family", "lock", "tank/other"], 1, &["no family 'other'", "it has: private"]);
    stop(&p, daemon);
    assert!(p.ok(&["family", "lock", "tank/private"]).contains("is not served"));
}

#[test]
fn a_plain_volume_is_encrypted_and_nothing_plain_is_left() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:40MiB"]) else { return };
    let content = marked("Once this was plain. ", 30 * MIB);
    fill(&p, "plain", &content);
    // What is deleted, too, leaves something.
    p.ok(&["volume", "create", "tank/gone", "--size", "8MiB"]);
    fill(&p, "gone", &marked("Once this was plain. ", 8 * MIB));
    p.ok(&["volume", "delete", "tank/gone", "--yes"]);
    assert!(on_members(&p, b"Once this was plain."));
    let encrypt = ["volume", "encrypt", "tank/plain", "--family", "private"];
    p.refused(&encrypt, 1, &["30 MiB of data", "overwritten", "--yes"]);
    p.refused(&["volume", "encrypt", "tank/plain", "--family", "none", "--yes"], 1, &["no family 'none'"]);
    let done = p.json(&[&encrypt[..], &["--yes", "--wait"]].concat());
    assert_eq!(done["change"], "encrypted");
    assert!(!on_members(&p, b"Once this was plain."));
    is_there(&p, "plain", &content);
    p.refused(&[&encrypt[..], &["--yes"]].concat(), 1, &["belongs to a family already"]);
    lock(&p);
    unlock(&p, "one");
    is_there(&p, "plain", &content);
    stop(&p, daemon);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    // Without a daemon there is no key.
    p.refused(&[&encrypt[..], &["--yes"]].concat(), 1, &["is not served", "bimetal family unlock tank/private"]);
}

#[test]
fn what_is_lost_with_a_member_is_told_without_a_passphrase() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["main:20MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "20MiB", "--family", "private"]);
    fill(&p, "home", &marked("On the fast member. ", 4 * MIB));
    stop(&p, daemon);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    let lost = |p: &Place| p.json(&["rescue", "tank"])["volumes"][1].clone();
    let alone = lost(&p);
    assert_eq!((&alone["name"], alone["lost_bytes"].as_u64()), (&"home".into(), Some(4 * MIB)), "{alone}");
    let daemon = p.serve(&["tank", "--read-only", "--allow-missing"]);
    assert_eq!(lost(&p), alone, "as the daemon says it");
    stop(&p, daemon);
}

#[test]
fn encryption_goes_on_when_the_family_is_unlocked_again() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:40MiB"]) else { return };
    let content = marked("Once this was plain. ", 32 * MIB);
    fill(&p, "plain", &content);
    p.ok(&["volume", "encrypt", "tank/plain", "--family", "private", "--yes"]);
    p.ok(&["family", "lock", "tank/private", "--force"]);
    let encrypting = || p.json(&["status", "tank"])["volumes"][0]["encrypting"].clone();
    if encrypting().is_null() {
        eprintln!("skipped: it was encrypted before it could be locked");
        return;
    }
    assert_eq!(encrypting()["waits_for"], "locked");
    let words = p.ok(&["status", "tank"]);
    assert!(words.contains("half encrypted") && words.contains("waits until its family is unlocked"), "{words}");
    let metrics = p.ask("GET", "/v1/metrics", "");
    assert!(metrics.contains("bimetal_family_unlocked{group=\"tank\",family=\"private\"} 0"), "{metrics}");
    assert!(metrics.contains("bimetal_volume_encrypting_chunks_left{group=\"tank\",volume=\"plain\"}"), "{metrics}");
    stop(&p, daemon);
    let daemon = p.serve(&["tank"]);
    assert_eq!(encrypting()["waits_for"], "locked");
    unlock(&p, "one");
    // Asked again, it is waited for, and nobody is asked.
    p.ok(&["volume", "encrypt", "tank/plain", "--family", "private", "--wait"]);
    assert!(encrypting().is_null() && !on_members(&p, b"Once this was plain."));
    is_there(&p, "plain", &content);
    stop(&p, daemon);
}

#[test]
fn bad_wishes_are_refused_in_words() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    std::fs::write(p.path("empty"), "\n").expect("written");
    std::fs::write(p.path("long"), vec![b'x'; 70_000]).expect("written");
    let create = ["family", "create", "tank/new", "--cost", "light"];
    let with = |file: &'static str| [&create[..], &["--passphrase-file", file]].concat();
    p.refused(&with("empty"), 1, &["the passphrase is empty"]);
    p.refused(&with("long"), 1, &["64 KiB"]);
    p.refused(&with("nowhere"), 1, &["nowhere"]);
    p.refused(&create, 1, &["no terminal", "--passphrase-file"]);
    p.refused(&["family", "create", "tank/private", "--passphrase-file", "one"], 1, &["family 'private' already"]);
    for name in ["tank/../etc", "tank/Private", "tank/a/b", "tank/"] {
        p.refused(&["family", "create", name, "--passphrase-file", "one"], 2, &["names begin"]);
    }
    p.refused(&["family", "create", "tank", "--passphrase-file", "one"], 2, &["name the family: tank/FAMILY"]);
    p.refused(&["family", "unlock", "tank/none", "--passphrase-file", "one"], 1, &["no family 'none'", "private"]);
    p.refused(&["family", "list", "nowhere"], 1, &["nowhere"]);
    let both = ["family", "passwd", "tank/private", "--passphrase-file", "-", "--new-passphrase-file", "-"];
    p.refused(&both, 1, &["standard input gives one passphrase"]);
    let list = p.json(&["family", "list", "tank"]);
    assert_eq!(list["families"].as_array().expect("a list").len(), 1, "{list}");
    stop(&p, daemon);
}

#[test]
fn an_attached_device_gives_errors_after_a_lock_by_force() {
    if !possible() {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "16MiB", "--family", "private"]);
    let device = p.ok(&["attach", "tank/home", "--via", "fuse"]).trim().to_string();
    let of = format!("of={device}");
    tool("dd", &["if=/dev/urandom", &of, "bs=64k", "count=4", "oflag=direct", "conv=fsync", "status=none"]);
    p.refused(&["family", "lock", "tank/private"], 1, &["in use", "its file in", "detach"]);
    p.ok(&["family", "lock", "tank/private", "--force"]);
    let from = format!("if={device}");
    let read = || {
        let mut dd = Command::new("dd");
        dd.args([&from, "of=/dev/null", "bs=64k", "count=4", "iflag=direct", "status=none"]);
        dd.stderr(Stdio::null()).status().expect("dd").success()
    };
    assert!(!read());
    unlock(&p, "one");
    assert!(read(), "and works again when it is unlocked");
    p.ok(&["detach", "tank/home"]);
    lock(&p);
    stop(&p, daemon);
}

/// A disk stands still, and what is to be changed waits for it.
#[test]
fn a_family_is_locked_by_force_however_many_changes_wait() {
    if !installed("nbdkit") || Luks::load().is_err() {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    std::fs::write(p.path("one"), "correct horse\n").expect("written");
    let server = Server::of(&p, "slow");
    let slow = locator(&p, "slow");
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &slow, "--volume", "main:8MiB", "--yes"]);
    let daemon = p.serve(&["tank"]);
    p.ok(&["family", "create", "tank/private", "--passphrase-file", "one", "--cost", "light"]);
    server.stand_still();
    let lock = ["family", "lock", "tank/private", "--force"];
    std::thread::scope(|threads| {
        // Each is answered after a while that it is under way.
        for n in 0..32 {
            let body =
                format!("{{\"change\":\"create\",\"name\":\"v{n}\",\"size_bytes\":1048576,\"placement\":\"auto\"}}");
            let p = &p;
            threads.spawn(move || p.ask("POST", "/v1/volumes", &body));
        }
    });
    // It waits for none of them, nor for the disk.
    let begun = std::time::Instant::now();
    assert!(p.ok(&lock).contains("Locked family"));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(p.json(&["family", "list", "tank"])["families"][0]["unlocked"], false);
    server.go_on();
    assert!(p.ok(&lock).contains("ocked"));
    assert_eq!(p.json(&["family", "list", "tank"])["families"][0]["unlocked"], false);
    stop(&p, daemon);
}
