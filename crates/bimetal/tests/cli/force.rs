//! What a device carried is gone when it was made a member by force: nothing may take it for what it was.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{checksum, installed, Place, MIB};

const SIZE: u64 = 512 * MIB;

/// What the system takes a file for. Nothing is an exit code of 2.
fn seen(path: &Path) -> Option<String> {
    let out = Command::new("blkid").arg("-p").arg(path).output().expect("blkid runs");
    (out.status.code() != Some(2)).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Files that carry something: by the tools that are here, and what needs none.
fn carriers(p: &Place) -> Vec<String> {
    let tools = [
        ("mkfs.ext4", &["-q", "-F"][..]),
        ("mkfs.xfs", &["-q", "-f"]),
        ("mkfs.btrfs", &["-q", "-f"]),
        ("mkfs.f2fs", &["-q", "-f"]),
        ("mkfs.vfat", &[]),
        ("mkswap", &["-q"]),
        ("sgdisk", &["-n", "1"]),
        ("mdadm-1.0", &[]),
        ("luks", &[]),
    ];
    let mut made = Vec::new();
    for (tool, args) in tools {
        let path = p.file(tool, SIZE);
        let ready = match tool {
            // The first header of LUKS2, and the second where the first is 4 MiB long.
            "luks" => plant(&path, &[(0, b"LUKS\xba\xbe\0\x02"), (4 * MIB, b"SKUL\xba\xbe\0\x02")]),
            "mdadm-1.0" => plant(&path, &[(SIZE - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]),
            _ => installed(tool) && run(tool, args, &path),
        };
        if ready {
            made.push(tool.to_string());
        }
    }
    made
}

fn run(tool: &str, args: &[&str], path: &Path) -> bool {
    let quiet = |c: &mut Command| c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let done = quiet(Command::new(tool).args(args).arg(path));
    let done = done.is_ok_and(|status| status.success());
    if !done {
        eprintln!("skipped: {tool} does not work here");
    }
    done
}

fn plant(path: &Path, pieces: &[(u64, &[u8])]) -> bool {
    let file = std::fs::File::options().write(true).open(path).expect("opened");
    for (offset, bytes) in pieces {
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, *offset).expect("written");
    }
    true
}

#[test]
fn nothing_is_seen_any_more_on_devices_that_were_taken_by_force() {
    let p = Place::new();
    if !installed("blkid") {
        return;
    }
    for (i, name) in carriers(&p).iter().enumerate() {
        let slow = format!("slow-{i}.img");
        p.file(&slow, 96 * MIB);
        let group = format!("g{i}");
        let args = ["create", &group, "--fast", name, "--slow", &slow];
        p.refused(&args, 1, &["--force"]);
        p.ok(&[&args[..], &["--force", "--yes"]].concat());
        assert_eq!(seen(&p.path(name)), None, "{name}");
        assert_eq!(p.json(&["check", &group])["sound"], true);
    }
}

#[test]
fn nor_on_one_that_was_added() {
    let p = Place::new();
    p.tank();
    for (served, name) in [(false, "a.img"), (true, "b.img")] {
        let path = p.file(name, 64 * MIB);
        // The magic of an ext4, and of an MD RAID.
        plant(&path, &[(1080, b"\x53\xef"), (64 * MIB - 8192, b"\xfc\x4e\x2b\xa9")]);
        let daemon = served.then(|| p.serve(&["tank"]));
        p.refused(&["member", "add", "tank", "--slow", name, "--yes"], 1, &["ext4", "--force"]);
        p.ok(&["member", "add", "tank", "--slow", name, "--yes", "--force"]);
        let bytes = std::fs::read(&path).expect("read");
        assert!(bytes[..64 << 10].iter().all(|b| *b == 0) && bytes[63 << 20..].iter().all(|b| *b == 0), "{name}");
        if let Some(mut daemon) = daemon {
            p.ok(&["stop", "tank"]);
            assert_eq!(daemon.wait(), 0, "{}", p.log());
        }
    }
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    // What does not become a member is as it was.
    let path = p.file("tiny.img", MIB);
    plant(&path, &[(1080, b"\x53\xef")]);
    let before = checksum(&path);
    p.refused(&["member", "add", "tank", "--slow", "tiny.img", "--yes", "--force"], 1, &["too small"]);
    assert_eq!(checksum(&path), before);
}
