//! What is refused, in words, with the targets left as they were.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use crate::common::{checksum, installed, Place, MIB};

/// Of Linux everywhere.
const O_EXCL: i32 = 0o200;

/// Runs `create` and expects a refusal that changes nothing.
fn create_refused(p: &Place, args: &[&str], code: i32, words: &[&str]) {
    let files: Vec<_> =
        ["fast.img", "slow.img", "third.img"].iter().map(|f| p.path(f)).filter(|f| f.exists()).collect();
    let sums = || files.iter().map(|f| checksum(f)).collect::<Vec<_>>();
    let before = sums();
    let mut all = vec!["create"];
    all.extend(args);
    p.refused(&all, code, words);
    assert_eq!(sums(), before, "create {args:?} changed a file");
}

#[test]
fn creation_with_wrong_devices() {
    let p = Place::new();
    create_refused(&p, &["tank", "--fast", "fast.img", "--slow", "slow.img"], 1, &["does not exist", "truncate -s"]);
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    create_refused(&p, &["tank", "--fast", "fast.img", "--slow", "fast.img"], 1, &["the same device"]);
    create_refused(&p, &["tank", "--fast", "fast.img", "--slow", "./fast.img"], 1, &["the same device"]);
    create_refused(&p, &["tank", "--fast", ".", "--slow", "slow.img"], 1, &["block device or a regular file"]);
    create_refused(&p, &["tank", "--fast", "nfs://x/y", "--slow", "slow.img"], 1, &["unknown", "nbd://"]);
    create_refused(&p, &["tank", "--fast", "emulated:floppy:fast.img", "--slow", "slow.img"], 1, &["floppy"]);
    p.file("third.img", 100);
    create_refused(
        &p,
        &["tank", "--fast", "third.img", "--slow", "slow.img"],
        1,
        &["third.img has 100 B", "too small"],
    );
    p.file("third.img", MIB);
    create_refused(&p, &["tank", "--fast", "third.img", "--slow", "slow.img"], 1, &["third.img", "too small"]);
    assert!(!p.path("etc/groups/tank.toml").exists());
}

#[test]
fn creation_with_wrong_wishes() {
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let base = ["tank", "--fast", "fast.img", "--slow", "slow.img"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    create_refused(&p, &with(&["--volume", "big:1TiB"]), 1, &["1 TiB", "fit"]);
    create_refused(&p, &with(&["--volume", "a:1MiB", "--volume", "a:2MiB"]), 1, &["a"]);
    create_refused(&p, &with(&["--volume", "zero:0"]), 1, &["zero"]);
    create_refused(&p, &with(&["--volume", "Root"]), 2, &["names begin with"]);
    create_refused(&p, &with(&["--volume", "root:lots"]), 2, &["not a size"]);
    create_refused(&p, &with(&["--sector", "520"]), 2, &["512 or 4096"]);
    create_refused(&p, &with(&["--reserve", "many"]), 2, &["not a size"]);
    create_refused(&p, &["Tank", "--fast", "fast.img", "--slow", "slow.img"], 2, &["names begin with"]);
    create_refused(&p, &["tank", "--fast", "fast.img"], 2, &["--slow"]);
    create_refused(&p, &["../x", "--fast", "fast.img", "--slow", "slow.img"], 2, &["names begin with"]);
}

#[test]
fn creation_over_something_known_asks_for_force() {
    let p = Place::new();
    p.file("slow.img", 96 * MIB);
    // The superblock of an ext4 has its magic at byte 1080.
    let mut image = vec![0; (48 * MIB) as usize];
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(p.path("fast.img"), image).expect("file");
    let args = ["tank", "--fast", "fast.img", "--slow", "slow.img"];
    create_refused(&p, &args, 1, &["fast.img", "ext", "--force"]);
    let forced = [&args[..], &["--force"]].concat();
    create_refused(&p, &forced, 1, &["will be lost", "fast.img", "--yes"]);
    let impossible = [&forced[..], &["--yes", "--volume", "big:1TiB"]].concat();
    create_refused(&p, &impossible, 1, &["1 TiB", "fit"]);
    p.ok(&[&["create"], &forced[..], &["--yes"]].concat());
    create_refused(&p, &args, 1, &["already described", "destroy tank"]);
    create_refused(
        &p,
        &["other", "--fast", "fast.img", "--slow", "slow.img"],
        1,
        &["member of the Bimetal group 'tank'"],
    );
    let other = ["other", "--fast", "fast.img", "--slow", "slow.img", "--force"];
    create_refused(&p, &other, 1, &["will be lost", "fast.img (fast, 48 MiB, a member of the Bimetal group 'tank')"]);
}

/// Nothing is stored in the last part of a block; but others recognise their devices by what is there.
#[test]
fn what_stands_behind_the_last_whole_block_is_seen_and_erased() {
    use std::os::unix::fs::FileExt;
    let p = Place::new();
    p.file("slow.img", 96 * MIB);
    let odd = p.file("odd.img", 48 * MIB + 1024);
    let file = std::fs::File::options().read(true).write(true).open(&odd).expect("opened");
    file.write_all_at(b"Intel Raid ISM Cfg Sig. 1.0.00", 48 * MIB).expect("written");
    drop(file);
    let create = ["create", "tank", "--fast", "odd.img", "--slow", "slow.img", "--yes"];
    p.refused(&create, 1, &["odd.img", "a member of a mainboard's RAID", "--force"]);
    p.ok(&[&create[..], &["--force"]].concat());
    let mut end = [1; 1024];
    std::fs::File::open(&odd).and_then(|f| f.read_exact_at(&mut end, 48 * MIB)).expect("read");
    assert_eq!(end, [0; 1024]);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// A name that leads to another device as soon as somebody connects to the server: by then it was looked at, and is not open yet.
fn turned_when_asked(p: &Place, link: &std::path::Path, other: &std::path::Path) -> std::path::PathBuf {
    let (from, to) = (p.path("slow-to-answer.sock"), p.path("slow.sock"));
    let listener = std::os::unix::net::UnixListener::bind(&from).expect("a socket");
    let (link, other) = (link.to_owned(), other.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            std::fs::remove_file(&link).and_then(|()| std::os::unix::fs::symlink(&other, &link)).expect("turned");
            let (mut client, mut server) =
                (client.expect("a client"), std::os::unix::net::UnixStream::connect(&to).expect("a server"));
            let (mut answers, mut back) = (server.try_clone().expect("cloned"), client.try_clone().expect("cloned"));
            std::thread::spawn(move || std::io::copy(&mut client, &mut server));
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        }
    });
    from
}

#[test]
fn what_a_name_leads_to_when_it_is_opened_counts() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let (empty, full, link) = (p.file("empty.img", 48 * MIB), p.file("full.img", 48 * MIB), p.path("link"));
    p.file("slow.img", 96 * MIB);
    std::os::unix::fs::FileExt::write_all_at(
        &File::options().write(true).open(&full).expect("opened"),
        &[0x53, 0xef],
        1080,
    )
    .expect("written");
    std::os::unix::fs::symlink(&empty, &link).expect("a link");
    let _server = crate::server::Server::of(&p, "slow");
    let socket = turned_when_asked(&p, &link, &full);
    let before = checksum(&full);
    let slow = format!("nbd+unix:///?socket={}", socket.display());
    let create = ["create", "tank", "--fast", "link", "--slow", &slow, "--yes"];
    p.refused(&create, 1, &["link", "carries an ext2, ext3 or ext4 file system", "--force"]);
    assert_eq!(checksum(&full), before);
    p.ok(&[&create[..], &["--force"]].concat());
}

#[test]
fn members_in_use_are_not_taken_even_by_force() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let args = ["create", "other", "--fast", "fast.img", "--slow", "slow.img", "--force", "--yes"];
    p.refused(&args, 1, &["in use"]);
}

/// A loop device over a file; taken away with the test.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn over(file: &std::path::Path) -> Option<Loop> {
        if !installed("losetup") {
            return None;
        }
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().expect("losetup runs");
        if !made.status.success() {
            eprintln!("skipped: no loop device can be made here");
            return None;
        }
        Some(Loop(String::from_utf8_lossy(&made.stdout).trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// The same with options of losetup.
fn loop_with(options: &[&str], file: &str) -> Option<Loop> {
    if !installed("losetup") || !installed("mkfs.ext4") {
        return None;
    }
    let made = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().expect("losetup");
    if !made.status.success() {
        eprintln!("skipped: no loop device can be made here");
        return None;
    }
    Some(Loop(String::from_utf8_lossy(&made.stdout).trim().to_string()))
}

/// A file system that is mounted; unmounted with the test.
pub(crate) struct Mounted(pub(crate) String);

impl Mounted {
    pub(crate) fn new(p: &Place, device: &str) -> Mounted {
        let at = p.path("mnt");
        std::fs::create_dir_all(&at).expect("folder");
        crate::attach::tool("mkfs.ext4", &["-q", "-F", device]);
        let at = at.display().to_string();
        crate::attach::tool("mount", &[device, &at]);
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        crate::attach::unmount(&self.0);
    }
}

#[test]
fn a_mounted_device_is_not_taken_through_loop_devices_over_it() {
    let p = Place::new();
    p.tank();
    p.file("new.img", 96 * MIB);
    let Some(lower) = loop_with(&[], &p.file("disk.img", 48 * MIB).display().to_string()) else { return };
    let upper = loop_with(&[], &lower.0).expect("a loop device of a loop device");
    let top = loop_with(&["-o", "1048576"], &upper.0).expect("and a third");
    let twins = ["create", "other", "--fast", &top.0, "--slow", &lower.0, "--force", "--yes"];
    p.refused(&twins, 1, &["are both made of", &lower.0]);
    let mounted = Mounted::new(&p, &lower.0);
    let words = [lower.0.as_str(), "in use", "mounted on", &mounted.0, "unmount"];
    let (daemon, before) = (p.serve(&["tank"]), checksum(&p.path("disk.img")));
    for device in [&upper.0, &top.0] {
        p.refused(&["create", "other", "--fast", device, "--slow", "new.img", "--force", "--yes"], 1, &words);
        p.refused(&["member", "add", "tank", "--fast", device, "--force", "--yes"], 1, &words);
        p.refused(&["dissolve", "tank/main", "--onto", device, "--force", "--yes"], 1, &words[..4]);
    }
    assert_eq!(checksum(&p.path("disk.img")), before, "nothing was written");
    drop((daemon, mounted));
    // The other way round: what is mounted is made of what is to be taken.
    let mounted = Mounted::new(&p, &upper.0);
    let create = ["create", "other", "--fast", &lower.0, "--slow", "new.img", "--force", "--yes"];
    // Either of the two above it may be named.
    p.refused(&create, 1, &[&lower.0, "in use", "as a loop device"]);
    drop(mounted);
    drop(top);
    p.ok(&["create", "other", "--fast", &upper.0, "--slow", "new.img", "--force", "--yes"]);
    drop(upper);
}

#[test]
fn a_loop_device_over_a_disk_with_a_mounted_partition_is_not_taken() {
    use std::os::unix::fs::FileExt;
    let p = Place::new();
    p.file("slow.img", 96 * MIB);
    let disk = p.file("disk.img", 96 * MIB);
    // One partition from the second to the 64th MiB.
    let mut table = [0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&(63 * 2048u32).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    File::options().write(true).open(&disk).and_then(|f| f.write_all_at(&table, 0)).expect("written");
    let Some(lower) = loop_with(&[], &disk.display().to_string()) else { return };
    // Not every kernel reads the table itself.
    let _ = Command::new("partx").args(["-a", &lower.0]).output();
    let partition = format!("{}p1", lower.0);
    if !std::path::Path::new(&partition).exists() {
        println!("skipped: no partitions of loop devices here");
        return;
    }
    let by_offset = loop_with(&["-o", "1048576"], &lower.0).expect("a loop device of a loop device");
    let by_name = loop_with(&[], &partition).expect("a loop device of a partition");
    let behind = loop_with(&["-o", "67108864"], &lower.0).expect("a loop device behind the partition");
    let mounted = Mounted::new(&p, &partition);
    for device in [&by_offset.0, &by_name.0, &lower.0] {
        let create = ["create", "tank", "--fast", device, "--slow", "slow.img", "--force", "--yes"];
        p.refused(&create, 1, &[device, "in use", "mounted on", &mounted.0]);
    }
    drop((by_offset, by_name));
    p.ok(&["create", "tank", "--fast", &behind.0, "--slow", "slow.img", "--yes"]);
    drop((mounted, behind));
}

#[test]
fn the_map_of_a_group_that_is_served_is_not_printed() {
    let p = Place::new();
    p.tank();
    let _daemon = p.serve(&["tank"]);
    let begun = std::time::Instant::now();
    p.refused(&["dump", "tank"], 1, &["is being served; stop it first: bimetal stop tank"]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "nobody waits for what does not come");
}

#[test]
fn members_that_the_kernel_uses_are_not_served() {
    let p = Place::new();
    p.tank();
    let Some(used) = Loop::over(&p.path("fast.img")) else { return };
    // As a mount would: one that nobody holds is a member itself, and would be served.
    let held = File::options().read(true).custom_flags(O_EXCL).open(&used.0).expect("held");
    for command in [&["serve", "tank"][..], &["destroy", "tank", "--yes"]] {
        p.refused(command, 1, &["fast.img is in use by the loop device", &used.0]);
    }
    assert_eq!(p.json(&["check", "tank"])["sound"], true, "a look harms nobody");
    drop((held, used));
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_member_of_a_served_group_is_not_taken_through_a_loop_device() {
    let p = Place::new();
    p.tank();
    p.file("slow2.img", 96 * MIB);
    p.file("fast3.img", 48 * MIB);
    p.file("slow3.img", 96 * MIB);
    p.ok(&["create", "pool", "--fast", "fast3.img", "--slow", "slow3.img", "--yes"]);
    let daemon = p.serve(&["tank"]);
    let Some(other_name) = Loop::over(&p.path("fast.img")) else { return };
    let by = format!("(pid {})", daemon.child.id());
    let create = ["create", "other", "--fast", &other_name.0, "--slow", "slow2.img", "--force", "--yes"];
    p.refused(&create, 1, &[&other_name.0, "in use", "fast.img", &by]);
    p.refused(&["member", "add", "pool", "--fast", &other_name.0, "--force", "--yes"], 1, &["in use", "fast.img", &by]);
    p.refused(&["dissolve", "tank/main", "--onto", &other_name.0, "--force", "--yes"], 1, &["in use"]);
    drop(daemon);
    assert_eq!(p.json(&["check", "tank"])["sound"], true, "nothing was written");
}

#[test]
fn serving_the_wrong_thing() {
    let p = Place::new();
    p.refused(&["serve", "nothere"], 1, &["no group named 'nothere'", "bimetal scan"]);
    p.refused(&["serve"], 2, &["<GROUP|--raw", "required"].map(|w| if w == "required" { w } else { "GROUP" }));
    p.tank();
    p.refused(&["serve", "tank", "--nbd", "tcp:0.0.0.0:0"], 1, &["--allow-remote", "no encryption"]);
    p.refused(&["serve", "tank", "--nbd", "10809"], 2, &["unix:PATH or tcp:HOST:PORT"]);
    p.refused(&["serve", "tank", "--allow-missing"], 2, &["--read-only"]);
    p.refused(&["serve", "other", "--member", "fast.img", "slow.img"], 1, &["belong to group 'tank'"]);
    p.file("empty.img", 48 * MIB);
    p.refused(&["serve", "tank", "--member", "empty.img", "slow.img"], 1, &["empty.img", "no Bimetal label"]);
    p.refused(&["serve", "tank", "--member", "fast.img"], 1, &["fast.img", "missing"]);
    std::fs::copy(p.path("fast.img"), p.path("copy.img")).expect("copy");
    p.refused(&["serve", "tank", "--member", "fast.img", "copy.img", "slow.img"], 1, &["copy.img", "are both member"]);
}

#[test]
fn members_of_two_groups_do_not_mix() {
    let p = Place::new();
    p.tank();
    p.file("f2.img", 48 * MIB);
    p.file("s2.img", 96 * MIB);
    p.ok(&["create", "pool", "--fast", "f2.img", "--slow", "s2.img"]);
    p.refused(&["check", "--member", "fast.img", "s2.img"], 1, &["belongs to group"]);
    p.refused(&["destroy", "tank", "--member", "fast.img", "s2.img", "--yes"], 1, &["s2.img", "nothing was changed"]);
    assert_eq!(p.json(&["check", "pool"])["sound"], true);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn damaged_images_end_in_words() {
    let p = Place::new();
    p.tank();
    let whole = std::fs::read(p.path("fast.img")).expect("file");
    for cut in [0, 4096, 65_536 + 100, 2 << 20, whole.len() - (3 << 20)] {
        std::fs::write(p.path("fast.img"), &whole[..cut]).expect("file");
        let d = p.run(&["check", "tank"]);
        assert_eq!(d.code, 1, "check of an image cut to {cut}: {}{}", d.out, d.err);
        assert!(!d.err.contains("panicked"), "{}", d.err);
        // What is left can be looked at, and what is not is named.
        let d = p.run(&["dump", "tank"]);
        assert!(!d.err.contains("panicked"), "{}", d.err);
        assert!(d.out.contains("is not used"), "dump of an image cut to {cut}: {}{}", d.out, d.err);
    }
    let mut noise = whole.clone();
    let mut x = 1u32;
    for byte in &mut noise[65_536..65_536 + 131_072] {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (x >> 24) as u8;
    }
    std::fs::write(p.path("fast.img"), &noise).expect("file");
    let d = p.run(&["check", "tank"]);
    assert!(!d.err.contains("panicked") && !d.out.is_empty() | !d.err.is_empty(), "{}{}", d.out, d.err);
}

#[test]
fn attachments_and_stops_of_what_is_not_there() {
    let p = Place::new();
    // The machine's own disks are looked at, too: on one of them there may be a tank.
    p.refused(&["attach", "nobody"], 1, &["no group named 'nobody'"]);
    p.refused(&["attach", "nobody", "--no-start"], 1, &["not being served", "bimetal serve nobody"]);
    p.refused(&["attach", "nobody/"], 2, &["names begin with"]);
    p.refused(&["detach", "nobody"], 1, &["not attached"]);
    p.refused(&["detach", "/dev/null"], 1, &["was not attached by Bimetal"]);
    p.refused(&["frobnicate"], 2, &["unrecognized"]);
    p.refused(&["stop", "nobody"], 1, &["no group named 'nobody'", "bimetal status"]);
    p.refused(&["status", "nobody"], 1, &["no group named 'nobody'"]);
}

#[test]
fn failures_are_json_too() {
    let p = Place::new();
    let d = p.run(&["check", "nobody", "--json"]);
    assert_eq!(d.code, 1);
    let failure: serde_json::Value = serde_json::from_str(&d.out).expect("JSON");
    assert_eq!(failure["schema"], 1);
    assert!(failure["error"].as_str().is_some_and(|e| e.contains("nobody")), "{failure}");
}

#[test]
fn a_mistyped_name_leaves_nothing() {
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    let commands = [
        &["serve", "nope"][..],
        &["attach", "nope"],
        &["create", "nope", "--fast", "fast.img", "--slow", "nope.img"],
        &["volume", "list", "nope"],
        &["destroy", "nope", "--yes"],
        &["stop", "nope"],
    ];
    for command in commands {
        assert_eq!(p.run(command).code, 1, "{command:?}");
        assert!(!p.path("run/nope").exists(), "{command:?} leaves run state");
    }
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    p.ok(&["destroy", "tank", "--yes"]);
    assert!(!p.path("run/tank").exists(), "destroyed");
}

#[test]
fn who_destroys_a_copy_is_told_what_is_left() {
    let p = Place::new();
    p.tank();
    std::fs::copy(p.path("fast.img"), p.path("copy.img")).expect("copied");
    let said = p.ok(&["destroy", "tank", "--member", "copy.img", "slow.img", "--yes"]);
    let left = said.lines().find(|l| l.starts_with("Not wiped: "));
    assert!(left.is_some_and(|l| l.contains("/fast.img")) && said.matches("Not wiped").count() == 1, "{said}");
}

#[test]
fn nothing_is_said_twice() {
    let p = Place::new();
    p.tank();
    p.file("empty.img", 48 * MIB);
    for command in ["serve", "check", "dump", "destroy"] {
        p.refused(&[command, "tank", "--member", "fast.img", "./fast.img"], 1, &["the same device", "only once"]);
    }
    for command in [&["check", "--member", "empty.img"][..], &["serve", "tank", "--member", "empty.img", "slow.img"]] {
        let d = p.run(command);
        assert_eq!((d.code, d.err.matches("no Bimetal label").count()), (1, 1), "{}", d.err);
    }
    let d = p.run(&["serve", "nothere"]);
    assert!(d.code == 1 && d.err.starts_with("bimetal: no group named 'nothere'"), "{}", d.err);
}

#[test]
fn a_look_at_what_is_not_there() {
    let p = Place::new();
    p.tank();
    let d = p.run(&["scan", "nope.img"]);
    assert_eq!((d.code, d.out.matches("nope.img").count()), (1, 1), "{}", d.out);
    assert!(d.out.contains("nope.img does not exist\n"), "{}", d.out);
    p.file("empty.img", 48 * MIB);
    assert!(p.ok(&["scan", "nope.img", "empty.img"]).contains("empty.img: no Bimetal label"));
    assert!(p.ok(&["scan", "fast.img"]).contains("tank  complete"));
}

#[test]
fn a_damaged_configuration_is_named() {
    let p = Place::new();
    p.tank();
    std::fs::write(p.path("etc/groups/tank.toml"), "schema = 1\nname = ").expect("file");
    p.refused(&["serve", "tank"], 1, &["tank.toml", "damaged"]);
}
