//! A member whose device is there, and fails when it is to say who it is: no repair strikes it off unasked.

use crate::common::{checksum, installed, Place, MIB};
use crate::server::{locator, Server};

const SLOW: u64 = 96 * MIB;

/// A server of `slow.img`: reads of its labels fail while there is a file `labels`, all reads while there is one `all`, and syncs
/// while there is one `syncs`.
fn server(p: &Place) -> Server {
    let [labels, all, syncs] = ["labels", "all", "syncs"].map(|name| p.path(name).display().to_string());
    let fail = "{ echo EIO bad sector >&2; exit 1; }";
    let second = SLOW - 2 * MIB;
    let before_read = format!(
        "[ ! -e {all} ] || {fail}; \
         [ ! -e {labels} ] || [ $4 -ge 131072 -a $4 -lt {second} ] || {fail};"
    );
    Server::with_faults(p, "slow", SLOW, &before_read, &format!("[ ! -e {syncs} ] || {fail}"))
}

#[test]
fn a_member_whose_device_fails_is_not_struck_off_unasked() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let _server = server(&p);
    let slow = locator(&p, "slow");
    p.file("fast.img", 48 * MIB);
    p.file("new.img", SLOW);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    // The other one has the block that says who serves it, which changes with every command.
    let before = checksum(&p.path("fast.img"));
    let repair = ["repair", "tank", "--slow", "new.img", "--yes"];
    let alone = [&repair[..], &["--member", "fast.img"]].concat();
    let words = ["cannot be used now", &slow, "--give-up-unread"];
    let given_up = [&repair[..4], &["--give-up-unread"]].concat();
    for fault in ["labels", "all"] {
        std::fs::write(p.path(fault), "").expect("written");
        p.refused(&repair, 1, &words);
        p.refused(&alone, 1, &words);
        p.refused(&given_up, 1, &[&slow, "Struck off for ever", "(--give-up-unread)", "--yes"]);
        std::fs::remove_file(p.path(fault)).expect("removed");
        assert_eq!(checksum(&p.path("fast.img")), before, "{fault}");
    }
    // All that is on it can be read: it is not struck off while it is there.
    std::fs::write(p.path("syncs"), "").expect("written");
    for asked in [&repair[..], &given_up] {
        p.refused(
            asked,
            1,
            &["is not repaired", &slow, "the FLUSH of member 1 fails", "with this device disconnected"],
        );
    }
    std::fs::remove_file(p.path("syncs")).expect("removed");
    assert_eq!(checksum(&p.path("fast.img")), before, "syncs");
    p.refused(&alone, 1, &["carries a label of group 'tank' and was not named"]);
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "it can be read again");
    std::fs::write(p.path("all"), "").expect("written");
    let done = p.json(&[&repair[..], &["--give-up-unread"]].concat());
    assert_eq!((&done["repaired"], &done["struck_off"][0]), (&true.into(), &1.into()), "{done}");
}

/// A member `slow` behind a server of `slow.img` that works, a fast one, and a device that could take its place.
fn group_behind_a_server(p: &Place) -> String {
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", SLOW);
    p.file("new.img", SLOW);
    let _server = Server::of(p, "slow");
    let slow = locator(p, "slow");
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", &slow, "--volume", "main:16MiB", "--yes"]);
    slow
}

/// What commands say and do of a member at `place` that is there and cannot be used for `why`.
fn is_kept(p: &Place, place: &str, why: &str) {
    let before = checksum(&p.path("fast.img"));
    let repair = ["repair", "tank", "--slow", "new.img", "--yes"];
    p.refused(&repair, 1, &["cannot be used now", place, why, "--give-up-unread"]);
    let asked = [&repair[..4], &["--give-up-unread"]].concat();
    p.refused(&asked, 1, &[place, why, "Struck off for ever", "(--give-up-unread)", "--yes"]);
    let served = p.run(&["serve", "tank"]);
    assert_eq!(served.code, 1, "{}", served.err);
    assert!(served.err.contains("See first to") && served.err.contains(place), "{}", served.err);
    assert!(!served.err.contains("bimetal repair"), "a member is at hand: {}", served.err);
    assert_eq!(checksum(&p.path("fast.img")), before, "{why}");
}

#[test]
fn a_member_whose_server_does_not_let_us_in_is_not_struck_off_unasked() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let slow = group_behind_a_server(&p);
    let file = p.path("slow.img").display().to_string();
    let read = format!("pread=dd if={file} skip=$4 count=$3 bs=64k iflag=skip_bytes,count_bytes status=none");
    let (size, write) = (format!("get_size=echo {SLOW}"), "pwrite=exit 1");
    let servers: [(&[&str], &str); 3] = [
        (&["-r", "file", &file], "the export is read-only"),
        (&["eval", &size, &read, write, "can_write=exit 0", "can_flush=exit 3"], "does not offer FLUSH"),
        (&["--filter=exportname", "file", &file, "exportname=other", "exportname-strict=true"], "no export named ''"),
    ];
    for (server, why) in servers {
        let _server = Server::with(&p, "slow", server);
        is_kept(&p, &slow, why);
    }
    // It was named no export that is there: not even a command that only reads gets in.
    let _server = Server::with(&p, "slow", servers[2].0);
    let checked = p.run(&["check", "tank"]);
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert!(checked.out.contains("Next: see to") && checked.out.contains(&slow), "{}", checked.out);
    assert!(!checked.out.contains("bimetal repair"), "{}", checked.out);
    let forgotten = ["repair", "tank", "--member", "fast.img", "--slow", "new.img", "--yes"];
    p.refused(&forgotten, 1, &["cannot be used now", &slow, "was not named", "--give-up-unread"]);
    let _server = Server::of(&p, "slow");
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "it lets us in again");
}

#[test]
fn a_member_whose_server_answers_nobody_is_not_struck_off_unasked() {
    if !installed("nbdkit") {
        return;
    }
    let p = Place::new();
    let slow = group_behind_a_server(&p);
    let socket = p.path("slow.sock");
    std::fs::remove_file(&socket).expect("removed");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let repair = ["repair", "tank", "--slow", "new.img", "--yes"];
    p.refused(&repair, 1, &["cannot be used now", &slow, "the server does not answer", "--give-up-unread"]);
    std::fs::remove_file(&socket).expect("removed");
    let done = p.json(&repair);
    assert_eq!((&done["repaired"], &done["struck_off"][0]), (&true.into(), &1.into()), "nobody is there: {done}");
}

/// The same on files.
fn group_of_files(p: &Place) {
    for name in ["fast.img", "slow.img", "new.img"] {
        p.file(name, SLOW);
    }
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--volume", "main:16MiB", "--yes"]);
}

#[test]
fn a_member_that_cannot_be_opened_now_is_not_struck_off_unasked() {
    let p = Place::new();
    group_of_files(&p);
    let (slow, aside) = (p.path("slow.img"), p.path("aside.img"));
    std::fs::rename(&slow, &aside).expect("renamed");
    // Stands for a drive that is not ready: that, too, is neither missing nor in use.
    std::os::unix::fs::symlink("slow.img", &slow).expect("a loop");
    is_kept(&p, &slow.display().to_string(), "cannot be opened");
    let forgotten = ["repair", "tank", "--member", "fast.img", "--slow", "new.img", "--yes"];
    p.refused(&forgotten, 1, &["cannot be used now", "slow.img was not named", "--give-up-unread"]);
    std::fs::remove_file(&slow).expect("removed");
    std::fs::rename(&aside, &slow).expect("renamed");
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "it is ready again");
}

#[test]
fn a_member_that_has_become_smaller_is_not_struck_off_unasked() {
    let p = Place::new();
    group_of_files(&p);
    let (slow, aside) = (p.path("slow.img"), p.path("aside.img"));
    std::fs::copy(&slow, &aside).expect("copied");
    let place = slow.display().to_string();
    for (size, why) in [(SLOW - 4096, "bring the whole file"), (0, "Bring the whole file")] {
        let file = std::fs::OpenOptions::new().write(true).open(&slow).expect("opened");
        file.set_len(size).expect("cut");
        is_kept(&p, &place, why);
        let named = ["repair", "tank", "--slow", "new.img", "--yes", "--member", "fast.img", "slow.img"];
        p.refused(&named, 1, &["cannot be used now", &place, why, "--give-up-unread"]);
        let checked = p.run(&["check", "tank"]);
        assert!(checked.out.contains("Next: see to") && checked.out.contains(&place), "{}", checked.out);
        assert!(!checked.out.contains("bimetal repair") && !checked.out.contains("device 1"), "{}", checked.out);
        let served = p.run(&["serve", "tank"]);
        for said in [&served.err, &checked.out] {
            assert!(said.contains("cut off") && !said.contains("size back"), "{said}");
        }
        let rescued = p.ok(&["rescue", "tank"]);
        assert!(rescued.contains("See first to") && rescued.contains(&place), "{rescued}");
        assert!(!rescued.contains("device 1"), "{rescued}");
    }
    std::fs::rename(&aside, &slow).expect("renamed");
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "it is whole again");
}

/// What lay behind the end of a file that was cut off is gone, and a file that grows again holds zeros there.
#[test]
fn a_file_that_was_cut_off_and_grew_again_is_not_started_with_unasked() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.file("fast", 48 * MIB);
    let slow = p.file("slow", SLOW);
    p.ok(&["create", "tank", "--fast", "fast", "--slow", "slow", "--volume", "films:80MiB:slow-only"]);
    let mut daemon = p.serve(&["tank"]);
    let uri = format!("nbd+unix:///films?socket={}", p.socket("nbd.sock").display());
    let data: Vec<u8> = (0..80 * MIB).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    std::fs::write(p.path("in.raw"), &data).expect("file");
    let copy = |from: &std::ffi::OsStr, to: &std::ffi::OsStr| {
        let done = std::process::Command::new("nbdcopy").arg("--flush").args([from, to]).status();
        assert!(done.expect("nbdcopy").success());
    };
    copy(p.path("in.raw").as_os_str(), uri.as_ref());
    p.ok(&["stop", "tank"]);
    daemon.wait();
    p.ok(&["dump", "tank", "--save", "now.saved"]);
    let whole = p.path("whole");
    std::fs::rename(&slow, &whole).and_then(|()| std::fs::copy(&whole, &slow)).expect("copied");
    let file = std::fs::File::options().write(true).open(&slow).expect("opened");
    file.set_len(40 * MIB).expect("cut off");
    p.refused(&["restore", "now.saved", "--force", "--yes"], 1, &["cut off", "bring the whole file"]);
    file.set_len(SLOW).expect("its size");
    let place = slow.display().to_string();
    p.refused(&["serve", "tank"], 1, &[&place, "cut off", "bring all of it", "bimetal repair tank"]);
    let checked = p.run(&["check", "tank"]);
    assert!(checked.code != 0 && checked.out.contains("only zeros"), "{}", checked.out);
    p.refused(&["restore", "now.saved", "--yes"], 1, &[&place, "Bring all of it", "--force"]);
    // Who has nothing else may take it as it is; whoever has the whole file goes on with that.
    p.refused(&["repair", "tank"], 1, &["only zeros", "reads as zeros, or", "--yes"]);
    std::fs::copy(p.path("fast"), p.path("fast.before")).expect("copied");
    std::fs::rename(&slow, p.path("cut")).and_then(|()| std::fs::rename(&whole, &slow)).expect("brought");
    let mut daemon = p.serve(&["tank"]);
    copy(uri.as_ref(), p.path("out.raw").as_os_str());
    assert!(std::fs::read(p.path("out.raw")).expect("read") == data, "all is there");
    p.ok(&["stop", "tank"]);
    daemon.wait();
    for (from, to) in [("cut", &slow), ("fast.before", &p.path("fast"))] {
        std::fs::rename(p.path(from), to).expect("as it was");
    }
    assert_eq!(p.json(&["repair", "tank", "--yes"])["repaired"], true);
    drop(p.serve(&["tank"]));
}
