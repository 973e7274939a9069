//! Headers of families: passphrases in them, out to other tools and back, damaged.

use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use bimetal_host::luks::{Header, Luks};

use crate::attach::tool;
use crate::common::{installed, Place};
use crate::family::{is_refused, lock, on_members, position, private, stop, unlock};

/// Bytes of a header before its slots, and of a slot.
const METADATA: usize = 32 << 10;
const SLOT: usize = 128 << 10;

/// The header as it is exported.
pub(crate) fn exported(p: &Place, name: &str) -> Vec<u8> {
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
fn an_exported_header_is_there_after_a_power_cut_too() {
    if !installed("strace") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let export = p.command(&["family", "export-header", "tank/private", "h.luks"]);
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-e", "trace=fsync", "-o", "trace"]).arg(export.get_program()).args(export.get_args());
    let done = crate::common::done(p.here(traced).output().expect("strace"));
    if done.err.contains("ptrace") {
        eprintln!("skipped: no process may be traced here ({})", done.err.trim());
    } else {
        assert_eq!(done.code, 0, "{}", done.err);
        let trace = std::fs::read_to_string(p.path("trace")).expect("read");
        let home = p.path("h.luks").canonicalize().expect("there");
        let synced = |place: &std::path::Path| trace.find(&format!("<{}>)", place.display()));
        let (file, folder) = (synced(&home), synced(home.parent().expect("a folder")));
        assert!(file.is_some() && file < folder, "first the file, then its name: {trace}");
    }
    stop(&p, daemon);
}

#[test]
fn how_a_line_ends_in_other_systems_is_no_part_of_a_passphrase() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    for (name, secret) in [("dos", "stable\r\n"), ("unix", "stable\n"), ("odd", "odd\r"), ("dos-odd", "odd\r\n")] {
        std::fs::write(p.path(name), secret).expect("written");
    }
    let add = ["family", "add-passphrase", "tank/private", "--cost", "light", "--passphrase-file"];
    p.ok(&[&add[..], &["one", "--new-passphrase-file", "dos"]].concat());
    // As it was chosen from such a file before that was so.
    p.ok(&[&add[..], &["dos", "--new-passphrase-file", "odd"]].concat());
    for name in ["dos", "unix", "odd", "dos-odd"] {
        lock(&p);
        unlock(&p, name);
    }
    // What is removed by a file does not open by it any more, and what it is changed to does.
    p.ok(&[&add[..], &["dos", "--new-passphrase-file", "dos-odd"]].concat());
    p.ok(&["family", "remove-passphrase", "tank/private", "--passphrase-file", "dos-odd"]);
    lock(&p);
    is_refused(&p, "odd");
    is_refused(&p, "dos-odd");
    p.ok(&[&add[..], &["dos", "--new-passphrase-file", "odd"]].concat());
    let change = ["family", "passwd", "tank/private", "--cost", "light", "--passphrase-file", "odd"];
    p.ok(&[&change[..], &["--new-passphrase-file", "dos-odd"]].concat());
    unlock(&p, "dos-odd");
    stop(&p, daemon);
}

#[test]
fn a_passphrase_that_was_added_twice_is_changed_and_removed_wherever_it_is() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let add = |by: &str, new: &str| {
        let add = ["family", "add-passphrase", "tank/private", "--passphrase-file", by, "--new-passphrase-file", new];
        p.ok(&[&add[..], &["--cost", "light"]].concat());
    };
    add("one", "one");
    let change = ["family", "passwd", "tank/private", "--passphrase-file", "one", "--new-passphrase-file"];
    let change = |new: &str| p.json(&[&change[..], &[new, "--cost", "light"]].concat())["removed_slots"].clone();
    change("one");
    let slots = p.json(&["family", "slots", "tank/private"])["slots"].clone();
    assert_eq!(slots.as_array().map(Vec::len), Some(2), "what opens it still is not to go");
    let removed = change("two");
    lock(&p);
    is_refused(&p, "one");
    assert_eq!(removed.as_array().map(Vec::len), Some(1));
    unlock(&p, "two");
    add("two", "two");
    let remove = ["family", "remove-passphrase", "tank/private", "--passphrase-file", "two"];
    p.refused(&remove, 1, &["is the last one", "lost for ever"]);
    add("two", "three");
    assert_eq!(p.json(&remove)["slots"].as_array().map(Vec::len), Some(2));
    lock(&p);
    is_refused(&p, "two");
    unlock(&p, "three");
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

/// It is typed by who has forgotten the passphrase, and is the only way in then.
#[test]
fn a_recovery_key_is_not_used_up_by_a_change_of_the_passphrase() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    let add = ["family", "add-recovery-key", "tank/private", "--passphrase-file", "one", "--cost", "light"];
    let key = p.json(&add)["recovery_key"].as_str().expect("a key").to_string();
    let header = exported(&p, "before.luks");
    let with = ["tank/private", "--cost", "light", "--passphrase-file", "key", "--new-passphrase-file", "two"];
    for typed in [key.clone(), key.to_uppercase().replace('-', " ") + "\n"] {
        std::fs::write(p.path("key"), typed).expect("written");
        let words = ["recovery key in slot 1", "nothing was changed", "add-passphrase tank/private", "--slot N"];
        p.refused(&[&["family", "passwd"], &with[..]].concat(), 1, &words);
    }
    assert_eq!(exported(&p, "after.luks"), header);
    // The way that is told.
    p.ok(&[&["family", "add-passphrase"], &with[..]].concat());
    p.ok(&["family", "remove-passphrase", "tank/private", "--passphrase-file", "key", "--slot", "0"]);
    lock(&p);
    is_refused(&p, "one");
    unlock(&p, "two");
    lock(&p);
    unlock(&p, "key");
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
pub(crate) fn damage(p: &Place, member: &str, header: &[u8]) {
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
    // The start has mended the first one.
    damage(&p, "fast.img", &header);
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
