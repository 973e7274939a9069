//! Families of encrypted volumes, their passphrases and headers.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use bimetal_host::luks::{Header, Luks};

use crate::attach::{possible, tool};
use crate::common::{installed, Daemon, Place, MIB};

/// Bytes of a header before its slots, and of a slot.
const METADATA: usize = 32 << 10;
const SLOT: usize = 128 << 10;
const MEMBERS: [&str; 2] = ["fast.img", "slow.img"];

/// A served group with a family `private`, which passphrase `one` opens; nothing where there is no libcryptsetup.
fn private(p: &Place, volumes: &[&str]) -> Option<Daemon> {
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

fn unlock(p: &Place, secret: &str) {
    p.ok(&["family", "unlock", "tank/private", "--passphrase-file", secret]);
}

fn lock(p: &Place) {
    p.ok(&["family", "lock", "tank/private"]);
}

#[track_caller]
fn is_refused(p: &Place, secret: &str) {
    p.refused(&["family", "unlock", "tank/private", "--passphrase-file", secret], 1, &["wrong passphrase"]);
}

fn uri(p: &Place, volume: &str) -> String {
    format!("nbd+unix:///{volume}?socket={}", p.socket("nbd.sock").display())
}

/// So many bytes that are found again wherever they lie.
fn marked(marker: &str, len: u64) -> Vec<u8> {
    marker.bytes().cycle().take(len as usize).collect()
}

fn fill(p: &Place, volume: &str, content: &[u8]) {
    std::fs::write(p.path("in"), content).expect("written");
    let copied = Command::new("nbdcopy").arg("--flush").arg(p.path("in")).arg(uri(p, volume)).status();
    assert!(copied.expect("nbdcopy").success());
}

fn is_there(p: &Place, volume: &str, content: &[u8]) {
    let _ = std::fs::remove_file(p.path("out"));
    assert!(Command::new("nbdcopy").arg(uri(p, volume)).arg(p.path("out")).status().expect("nbdcopy").success());
    assert!(std::fs::read(p.path("out")).expect("read").starts_with(content), "{volume} holds something else");
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    position(bytes, part).is_some()
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let candidates = bytes.iter().enumerate().filter(|(_, b)| **b == first);
    candidates.map(|(at, _)| at).find(|at| bytes[*at..].starts_with(part))
}

/// Whether members hold these bytes somewhere.
fn on_members(p: &Place, part: &[u8]) -> bool {
    MEMBERS.iter().any(|name| contains(&std::fs::read(p.path(name)).expect("read"), part))
}

fn stop(p: &Place, mut daemon: Daemon) {
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

/// The header as it is exported.
fn exported(p: &Place, name: &str) -> Vec<u8> {
    p.ok(&["family", "export-header", "tank/private", name]);
    std::fs::read(p.path(name)).expect("read")
}

/// What nobody can guess of the first slots of a header that hold anything, and where it is in the header.
fn pieces(header: &[u8]) -> Vec<Vec<u8>> {
    let slots = header[METADATA..].chunks(SLOT).filter(|slot| slot.iter().any(|b| *b != 0));
    slots.map(|slot| slot[70_000..70_064].to_vec()).collect()
}

#[test]
fn a_passphrase_that_was_changed_or_removed_is_gone_from_the_members() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let before = pieces(&exported(&p, "before.luks"));
    assert_eq!(before.len(), 1);
    assert!(on_members(&p, &before[0]), "else what follows says nothing");
    let change = ["family", "passwd", "tank/private", "--passphrase-file", "one", "--new-passphrase-file", "two"];
    p.ok(&[&change[..], &["--cost", "light"]].concat());
    assert!(!on_members(&p, &before[0]));
    p.refused(&change, 1, &["wrong passphrase"]);
    lock(&p);
    is_refused(&p, "one");
    unlock(&p, "two");
    let add =
        ["family", "add-passphrase", "tank/private", "--passphrase-file", "two", "--new-passphrase-file", "three"];
    p.ok(&[&add[..], &["--cost", "light"]].concat());
    let slots = |p: &Place| p.json(&["family", "slots", "tank/private"])["slots"].as_array().expect("a list").clone();
    assert_eq!(slots(&p).iter().map(|s| s["what"].clone()).collect::<Vec<_>>(), ["passphrase", "passphrase"]);
    let both = pieces(&exported(&p, "both.luks"));
    assert!(both.len() == 2 && both.iter().all(|slot| on_members(&p, slot)));
    p.ok(&["family", "remove-passphrase", "tank/private", "--passphrase-file", "two"]);
    let left = pieces(&exported(&p, "left.luks"));
    for slot in &both {
        assert_eq!(on_members(&p, slot), left.contains(slot), "what is removed, and that alone, is gone");
    }
    lock(&p);
    is_refused(&p, "two");
    let last = ["family", "remove-passphrase", "tank/private", "--passphrase-file", "three"];
    p.refused(&last, 1, &["is the last one", "lost for ever"]);
    p.refused(&[&last[..], &["--slot", "7"]].concat(), 1, &["no slot 7"]);
    unlock(&p, "three");
    // What was exported before opens still, as it is said.
    let luks = Luks::load().expect("there");
    luks.unlock(&Header::from_bytes(std::fs::read(p.path("before.luks")).expect("read")), b"correct horse")
        .expect("opens");
    let words = p.ok(&[&last[..], &["--force"]].concat());
    assert!(words.contains("nothing opens it any more"), "{words}");
    lock(&p);
    p.refused(&["family", "unlock", "tank/private", "--passphrase-file", "three"], 1, &["no slot", "exported copy"]);
    stop(&p, daemon);
}

#[test]
fn a_recovery_key_opens_however_it_is_typed() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let add = ["family", "add-recovery-key", "tank/private", "--passphrase-file", "one", "--cost", "light"];
    let key = p.json(&add)["recovery_key"].as_str().expect("a key").to_string();
    assert_eq!(key.len(), 71);
    assert_eq!(p.json(&["family", "slots", "tank/private"])["slots"][1]["what"], "recovery key");
    for typed in [key.clone(), key.to_uppercase() + "\n", key.replace('-', " ")] {
        std::fs::write(p.path("typed"), typed).expect("written");
        lock(&p);
        unlock(&p, "typed");
    }
    // It is a passphrase like any other, also where one is needed for a change.
    p.ok(&["family", "remove-passphrase", "tank/private", "--passphrase-file", "typed", "--slot", "0"]);
    lock(&p);
    is_refused(&p, "one");
    unlock(&p, "typed");
    let words =
        p.ok(&["family", "create", "tank/more", "--passphrase-file", "one", "--recovery-key", "--cost", "light"]);
    assert!(words.contains("shown only now") && words.contains("tank/more; it is unlocked"), "{words}");
    p.ok(&["family", "rename", "tank/more", "other"]);
    p.refused(&["family", "rename", "tank/other", "private"], 1, &["family 'private' already"]);
    p.refused(&["family", "delete", "tank/other"], 1, &["for good", "--yes"]);
    p.ok(&["family", "delete", "tank/other", "--yes"]);
    p.ok(&["volume", "create", "tank/home", "--size", "1MiB", "--family", "private"]);
    p.refused(&["family", "delete", "tank/private", "--yes"], 1, &["has volumes (home)"]);
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
fn a_passphrase_comes_through_a_pipe() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    lock(&p);
    let mut command = p.command(&["family", "unlock", "tank/private", "--passphrase-file", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("started");
    child.stdin.take().expect("piped").write_all(b"correct horse").expect("told");
    assert!(child.wait().expect("ended").success());
    assert_eq!(p.json(&["family", "list", "tank"])["families"][0]["unlocked"], true);
    stop(&p, daemon);
}

#[test]
fn a_header_leaves_for_other_tools_and_comes_back() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    exported(&p, "h");
    assert_eq!(std::fs::metadata(p.path("h")).expect("there").permissions().mode() & 0o777, 0o600);
    p.refused(&["family", "export-header", "tank/private", "h"], 1, &["is there already"]);
    let import = ["family", "import-header", "tank/private", "h", "--yes", "--passphrase-file"];
    p.refused(&[&import[..], &["two"]].concat(), 1, &["wrong passphrase"]);
    // Of another family, and of nobody.
    p.ok(&["family", "create", "tank/other", "--passphrase-file", "one", "--cost", "light"]);
    p.ok(&["family", "export-header", "tank/other", "others"]);
    let foreign = ["family", "import-header", "tank/private", "others", "--yes", "--passphrase-file", "one"];
    p.refused(&foreign, 1, &["is the header of something else", "nothing was changed"]);
    // Even if it says that it is the family's: the key is another.
    let mut forged = std::fs::read(p.path("others")).expect("read");
    let uuid = p.json(&["family", "list", "tank"])["families"][0]["uuid"].as_str().expect("a UUID").to_string();
    let luks = Luks::load().expect("there");
    let header = luks.format(&uuid, "x", &[7; 32], 1, b"correct horse", bimetal_host::luks::Cost::Light).expect("made");
    forged.clear();
    forged.extend(header.as_bytes());
    std::fs::write(p.path("others"), forged).expect("written");
    p.refused(&foreign, 1, &["the key is not that of family 'private'"]);
    std::fs::write(p.path("others"), "not at all").expect("written");
    p.refused(&foreign, 1, &["no LUKS2 header"]);
    if installed("cryptsetup") {
        let path = |name: &str| p.path(name).display().to_string();
        let dump = Command::new("cryptsetup").args(["luksDump", &path("h")]).output().expect("cryptsetup");
        assert!(String::from_utf8_lossy(&dump.stdout).contains("bimetal"), "{dump:?}");
        std::fs::write(p.path("one.key"), "correct horse").expect("written");
        let light = ["--pbkdf-memory", "64", "--pbkdf-force-iterations", "4", "--key-file"];
        let (one, h, two) = (path("one.key"), path("h"), path("two"));
        tool("cryptsetup", &[&["luksAddKey"], &light[..], &[&one, &h, &two]].concat());
        p.refused(&[&import[..5], &["--passphrase-file", "three"]].concat(), 1, &["wrong passphrase"]);
        let words = p.ok(&[&import[..], &["two"]].concat());
        assert!(words.contains("2 passphrases"), "{words}");
        lock(&p);
        unlock(&p, "two");
        lock(&p);
        unlock(&p, "one");
    }
    stop(&p, daemon);
}

/// Overwrites the header where a member has it.
fn damage(p: &Place, member: &str, header: &[u8]) {
    let file = std::fs::File::options().read(true).write(true).open(p.path(member)).expect("opened");
    let content = std::fs::read(p.path(member)).expect("read");
    let at = position(&content, &header[..METADATA]).expect("it is there");
    file.write_all_at(&[0xa5; METADATA + SLOT], at as u64).expect("written");
}

#[test]
fn a_damaged_header_is_read_from_another_member_and_comes_from_a_file_if_there_is_none() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "1MiB", "--family", "private"]);
    let header = exported(&p, "h");
    stop(&p, daemon);
    damage(&p, "fast.img", &header);
    let daemon = p.serve(&["tank"]);
    unlock(&p, "one");
    stop(&p, daemon);
    damage(&p, "slow.img", &header);
    let daemon = p.serve(&["tank"]);
    let words = ["damaged on every member", "bimetal family import-header"];
    p.refused(&["family", "unlock", "tank/private", "--passphrase-file", "one"], 1, &words);
    p.refused(&["family", "import-header", "tank/private", "h"], 1, &["Now it is lost", "1 passphrase", "--yes"]);
    p.ok(&["family", "import-header", "tank/private", "h", "--yes", "--passphrase-file", "one"]);
    unlock(&p, "one");
    assert_eq!(exported(&p, "again"), header);
    stop(&p, daemon);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn a_key_is_taken_only_from_a_fifo_of_the_one_who_asks() {
    use rustix::fs::{mknodat, FileType, Mode, CWD};
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    lock(&p);
    let name = |n: u8| format!("key-{}", format!("{n:02x}").repeat(16));
    let ask = |key: &str| {
        let body = format!(r#"{{"change":"unlock","name":"private","key":"{key}"}}"#);
        p.ask("POST", "/v1/families", &body)
    };
    for bad in ["", "lock", "../tank/lock", "/etc/passwd", "key-../../x"] {
        let answer = ask(bad);
        assert!(answer.contains("409") && answer.contains("where the key is"), "{answer}");
    }
    assert!(ask(&name(0)).contains("cannot be taken"));
    std::fs::write(p.path("run/tank").join(name(1)), [7; 32]).expect("written");
    assert!(ask(&name(1)).contains("is not a FIFO"));
    std::os::unix::fs::symlink(p.path("one"), p.path("run/tank").join(name(2))).expect("made");
    assert!(ask(&name(2)).contains("cannot be taken"));
    let fifo = |n: u8, mode: Mode| {
        let path = p.path("run/tank").join(name(n));
        mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("made");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode.bits())).expect("set");
        std::fs::File::options().read(true).write(true).open(path).expect("opened")
    };
    let _open_for_all = fifo(3, Mode::RUSR | Mode::WUSR | Mode::ROTH);
    assert!(ask(&name(3)).contains("is not a FIFO"));
    let mut own = fifo(4, Mode::RUSR | Mode::WUSR);
    assert!(ask(&name(4)).contains("no key came"));
    own.write_all(&[7; 32]).expect("written");
    let answer = ask(&name(4));
    assert!(answer.contains("the key is not that of family"), "{answer}");
    own.write_all(&[7; 33]).expect("written");
    assert!(ask(&name(4)).contains("too long"));
    // A header is replaced only by who can open the family.
    own.read_exact(&mut []).expect("nothing");
    let mut other = fifo(5, Mode::RUSR | Mode::WUSR);
    other.write_all(&[7; 32]).expect("written");
    let body = format!(r#"{{"change":"header","name":"private","key":"{}","header":"00"}}"#, name(5));
    assert!(p.ask("POST", "/v1/families", &body).contains("the key is not that of family"));
    unlock(&p, "one");
    // Commands leave nothing, and a start takes away what was left.
    stop(&p, daemon);
    let daemon = p.serve(&["tank"]);
    let left = std::fs::read_dir(p.path("run/tank")).expect("read").flatten();
    let left: Vec<_> = left.map(|e| e.file_name()).filter(|n| n.to_string_lossy().starts_with("key-")).collect();
    assert!(left.is_empty(), "{left:?}");
    stop(&p, daemon);
}

/// Everything that a process has in memory.
fn memory_of(pid: u32) -> std::io::Result<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut all = Vec::new();
    for line in maps.lines().filter(|l| l.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))) {
        let (from, to) = line.split(' ').next().and_then(|r| r.split_once('-')).expect("a range");
        let [from, to] = [from, to].map(|n| u64::from_str_radix(n, 16).expect("a number"));
        let mut part = vec![0; (to - from) as usize];
        // Some areas cannot be read, such as those of devices.
        if memory.seek(SeekFrom::Start(from)).is_ok() && memory.read_exact(&mut part).is_ok() {
            all.extend(part);
        }
    }
    Ok(all)
}

#[test]
fn keys_leave_the_memory_of_the_daemon_when_the_family_is_locked() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let pid = daemon.child.id();
    if let Err(why) = memory_of(pid) {
        eprintln!("skipped: the memory of the daemon cannot be read ({why}); it needs root");
        return;
    }
    p.ok(&["volume", "create", "tank/home", "--size", "16MiB", "--family", "private"]);
    let content = marked("Nobody shall read this. ", 4 * MIB);
    fill(&p, "home", &content);
    let header = Header::from_bytes(exported(&p, "h"));
    let key = Luks::load().expect("there").unlock(&header, b"correct horse").expect("opens").key;
    let uuid = p.json(&["status", "tank"])["volumes"][1]["uuid"].as_str().expect("a UUID").replace('-', "");
    let uuid: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&uuid[2 * i..2 * i + 2], 16).expect("hex")).collect();
    let volume = key.derived_bytes(&uuid.try_into().expect("16 bytes"));
    let secrets = [&key.as_bytes()[..], &volume[..32], &volume[32..]];
    let found = || {
        let memory = memory_of(pid).expect("read");
        secrets.map(|secret| contains(&memory, secret))
    };
    assert_eq!(found(), [true; 3], "else what follows says nothing");
    lock(&p);
    assert_eq!(found(), [false; 3]);
    is_refused(&p, "two");
    unlock(&p, "one");
    is_there(&p, "home", &content);
    assert_eq!(found(), [true; 3]);
    lock(&p);
    assert_eq!(found(), [false; 3]);
    assert!(!p.log().contains("correct horse"));
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
