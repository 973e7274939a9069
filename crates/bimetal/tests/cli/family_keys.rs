//! Keys of families: how they come to the daemon, and that they leave its memory.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;

use bimetal_host::luks::{Header, Luks};

use crate::common::{installed, Place, MIB};
use crate::family::{contains, fill, is_refused, is_there, lock, marked, private, stop, unlock};
use crate::family_headers::exported;

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
fn who_adds_a_device_to_encrypted_volumes_is_told_that_it_keeps_what_it_held() {
    let p = Place::new();
    let words = ["can be read from it until", "blkdiscard", "shred", "dd if="];
    let used = |name: &str| {
        std::fs::write(p.path(name), marked("plain", 64 * MIB)).expect("written");
        p.path(name).to_str().expect("plain").to_string()
    };
    let Some(daemon) = private(&p, &["plain:16MiB"]) else { return };
    let (one, two) = (used("one.img"), used("two.img"));
    p.refused(&["member", "add", "tank", "--slow", &one], 1, &words);
    let said = p.ok(&["member", "add", "tank", "--slow", &one, "--yes"]);
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    p.refused(&["member", "replace", "tank", &one, &two], 1, &words);
    let empty = p.file("empty.img", 64 * MIB);
    let said = p.ok(&["member", "add", "tank", "--slow", empty.to_str().expect("plain")]);
    assert!(!said.contains(words[0]), "{said}");
    // At rest it is known too.
    stop(&p, daemon);
    p.refused(&["member", "add", "tank", "--slow", &two], 1, &words);
    // A group without families promises nothing.
    let p = Place::new();
    p.tank();
    let done = p.run(&["member", "add", "tank", "--slow", &two]);
    assert!(done.code == 1 && done.err.contains("will be lost") && !done.err.contains(words[0]), "{}", done.err);
}
