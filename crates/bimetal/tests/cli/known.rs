//! What this machine knows of groups, when that is not how things are: members that are gone, descriptions that are damaged or name
//! too much, daemons that cannot be reached.

use std::io::Write;

use crate::common::{checksum, done, Done, Place, MIB};
use crate::server::until;

fn description(p: &Place) -> std::path::PathBuf {
    p.path("etc/groups/tank.toml")
}

/// Two groups of one name, of which the first lies elsewhere now and the second is described.
fn namesakes(p: &Place) {
    p.tank();
    p.ok(&["destroy", "tank", "--forget", "--yes"]);
    for file in ["fast.img", "slow.img"] {
        std::fs::rename(p.path(file), p.path(&format!("old.{file}"))).expect("renamed");
    }
    p.tank();
}

#[test]
fn a_group_whose_members_are_gone_is_forgotten_without_a_device() {
    let p = Place::new();
    p.tank();
    for file in ["fast.img", "slow.img"] {
        std::fs::remove_file(p.path(file)).expect("removed");
    }
    p.refused(&["destroy", "tank", "--yes"], 1, &["no member", "nothing was changed", "bimetal destroy tank --forget"]);
    assert!(p.ok(&["status", "tank"]).contains("bimetal destroy tank --forget"));
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    let again = ["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--yes"];
    p.refused(&again, 1, &["already described", "bimetal destroy tank --forget"]);
    p.refused(&["destroy", "tank", "--forget"], 1, &["No device is touched", "fast.img", "--yes"]);
    assert_eq!(p.json(&["destroy", "tank", "--forget", "--yes"])["forgotten"], true);
    assert!(!description(&p).exists());
    p.refused(&["destroy", "tank", "--forget", "--yes"], 1, &["no group named 'tank' is described here"]);
    p.ok(&again);
}

#[test]
fn a_group_is_not_forgotten_with_another_one_of_its_name() {
    let p = Place::new();
    namesakes(&p);
    let described = std::fs::read_to_string(description(&p)).expect("there");
    let said = p.ok(&["destroy", "tank", "--member", "old.fast.img", "old.slow.img", "--yes"]);
    assert!(said.contains("The other group that is named 'tank'"), "{said}");
    assert!(!said.contains("Not wiped"), "{said}");
    assert_eq!(std::fs::read_to_string(description(&p)).expect("there still"), described);
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

#[test]
fn members_of_a_group_are_not_written_into_the_description_of_another_one_of_its_name() {
    let p = Place::new();
    namesakes(&p);
    let described = std::fs::read_to_string(description(&p)).expect("there");
    let old = ["tank", "--member", "old.fast.img", "old.slow.img"];
    let mut daemon = p.serve(&old);
    p.file("more.img", 96 * MIB);
    let said = p.ok(&["member", "add", "tank", "--slow", "more.img"]);
    assert!(said.contains("describes another group") && said.contains("serve tank --member"), "{said}");
    assert_eq!(std::fs::read_to_string(description(&p)).expect("there"), described);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    p.refused(&[&["serve"], &old[..]].concat(), 1, &["name all members: --member"]);
    p.file("new.img", 48 * MIB);
    let repair = ["repair", "tank", "--member", "old.slow.img", "more.img", "--fast", "new.img", "--yes"];
    let said = p.ok(&repair);
    assert!(said.contains("describes another group") && said.contains("new.img is written down nowhere"), "{said}");
    assert_eq!(std::fs::read_to_string(description(&p)).expect("there"), described);
}

#[test]
fn a_member_that_leaves_is_not_struck_out_of_the_description_of_another_group_of_its_name() {
    let p = Place::new();
    namesakes(&p);
    let third = p.file("third.img", 48 * MIB);
    let mut daemon = p.serve(&["tank", "--member", "old.fast.img", "old.slow.img"]);
    p.ok(&["member", "add", "tank", "--fast", "third.img"]);
    let mut file = std::fs::File::options().append(true).open(description(&p)).expect("there");
    write!(file, "\n[[member]]\nlocator = \"{}\"\ntier = \"fast\"\n", third.display()).expect("written");
    let described = std::fs::read_to_string(description(&p)).expect("there");
    p.ok(&["member", "remove", "tank", "third.img", "--yes"]);
    assert_eq!(std::fs::read_to_string(description(&p)).expect("there"), described);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
}

#[test]
fn a_description_that_is_damaged_hides_no_other_group_and_can_be_removed() {
    let p = Place::new();
    p.tank();
    std::fs::write(p.path("etc/groups/bad.toml"), "schema = [").expect("written");
    let Done { code, out, err } = p.run(&["status"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("tank: not running"), "{out}");
    assert!(err.contains("bad.toml is damaged") && err.contains("bimetal destroy bad --forget"), "{err}");
    let listed = p.run(&["status", "--json"]);
    assert!(listed.code == 1 && listed.out.contains("bad.toml is damaged"), "{}", listed.out);
    p.ok(&["destroy", "bad", "--forget", "--yes"]);
    p.ok(&["status"]);
}

/// It could not be erased when it left, or somebody has brought an image of it back.
#[test]
fn a_device_that_has_left_is_no_problem_of_the_group_for_ever() {
    let p = Place::new();
    p.tank();
    let more = p.file("more.img", 96 * MIB);
    p.ok(&["member", "add", "tank", "--slow", "more.img", "--yes"]);
    std::fs::copy(&more, p.path("kept.img")).expect("copied");
    p.ok(&["member", "remove", "tank", "more.img", "--yes"]);
    std::fs::rename(p.path("kept.img"), &more).expect("renamed");
    let mut file = std::fs::File::options().append(true).open(description(&p)).expect("there");
    write!(file, "\n[[member]]\nlocator = \"{}\"\ntier = \"slow\"\n", more.display()).expect("written");
    let report = p.json(&["check", "tank"]);
    assert_eq!(report["sound"], true, "{report}");
    let told = p.ok(&["check", "tank"]);
    assert!(told.contains("more.img was slow member 2") && told.contains("the next start strikes it out"), "{told}");
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(!std::fs::read_to_string(description(&p)).expect("there").contains("more.img"));
}

#[test]
fn a_place_in_the_description_without_a_member_is_named_and_struck_out() {
    let p = Place::new();
    p.tank();
    let stray = p.file("stray.img", 48 * MIB);
    let mut file = std::fs::File::options().append(true).open(description(&p)).expect("there");
    write!(file, "\n[[member]]\nlocator = \"{}\"\ntier = \"fast\"\n", stray.display()).expect("written");
    let told = p.ok(&["check", "tank"]);
    assert!(told.contains("stray.img carries no sound Bimetal label; no member is there"), "{told}");
    assert!(told.contains("the next start strikes it out") && !told.contains("other copy"), "{told}");
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    let text = std::fs::read_to_string(description(&p)).expect("there");
    assert!(!text.contains("stray.img") && text.contains("fast.img"), "{text}");
}

/// A new device is where the one was whose place it takes, and was named otherwise.
#[test]
fn a_device_that_the_description_names_twice_is_opened_once() {
    let p = Place::new();
    p.tank();
    std::os::unix::fs::symlink(p.path("slow.img"), p.path("named")).expect("linked");
    let mut file = std::fs::File::options().append(true).open(description(&p)).expect("there");
    write!(file, "\n[[member]]\nlocator = \"{}\"\ntier = \"slow\"\n", p.path("named").display()).expect("written");
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("gone");
    p.ok(&["rescue", "tank"]);
    p.refused(&["repair", "tank", "--member", "slow.img"], 1, &["no fast member is left"]);
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("back");
    let told = p.ok(&["check", "tank"]);
    assert!(told.contains("which needs no second name, though") && !told.contains("no member is there"), "{told}");
    let mut daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    let text = std::fs::read_to_string(description(&p)).expect("there");
    assert!(!text.contains("slow.img") && text.contains("named") && text.contains("fast.img"), "{text}");
}

/// A name like /dev/sda is another device's after a start, now and then; the links in /dev/disk are not.
#[test]
fn of_two_names_of_a_device_the_link_stays_in_the_description() {
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    std::os::unix::fs::symlink(p.path("slow.img"), p.path("named")).expect("linked");
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "named", "--yes"]);
    let mut file = std::fs::File::options().append(true).open(description(&p)).expect("there");
    // And one name twice, which does not go for that.
    for name in ["slow.img", "named"] {
        write!(file, "\n[[member]]\nlocator = \"{}\"\ntier = \"slow\"\n", p.path(name).display()).expect("written");
    }
    let daemon = p.serve(&["tank"]);
    p.ok(&["stop", "tank"]);
    drop(daemon);
    let text = std::fs::read_to_string(description(&p)).expect("there");
    assert!(text.contains("named") && !text.contains("slow.img"), "{text}");
}

#[test]
fn a_daemon_with_another_run_directory_is_found_by_what_it_has_open() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let by = format!("process {}", daemon.child.id());
    let from_elsewhere = |args: &[&str]| {
        let mut command = p.command(args);
        done(command.env("BIMETAL_RUN_DIR", p.path("run2")).output().expect("the program starts"))
    };
    for args in [&["stop", "tank"][..], &["serve", "tank"], &["destroy", "tank", "--yes"]] {
        let Done { code, out, err } = from_elsewhere(args);
        assert!(code == 1 && err.contains(&by) && err.contains("BIMETAL_RUN_DIR"), "{args:?}: {out}{err}");
        assert!(!err.contains("take it out of"), "{args:?}: {err}");
    }
    let told = from_elsewhere(&["status", "tank"]).out;
    assert!(told.contains(&by) && !told.contains("not running"), "{told}");
    let told = from_elsewhere(&["scan"]).out;
    assert!(told.contains(&by), "{told}");
    p.ok(&["stop", "tank"]);
    assert_eq!(daemon.wait(), 0, "{}", p.log());
    assert!(from_elsewhere(&["status", "tank"]).out.contains("not running"));
}

#[test]
fn a_daemon_that_was_started_for_nothing_is_gone_when_the_command_ends() {
    let p = Place::new();
    p.tank();
    for args in [&["attach", "tank/nothere"][..], &["attach", "tank", "--via", "ublk"]] {
        let Done { code, err, .. } = p.run(args);
        if code == 0 {
            p.ok(&["detach", "tank"]);
            p.ok(&["stop", "tank"]);
            eprintln!("skipped: ublk works here");
            continue;
        }
        assert!(err.contains("started for this is stopped again"), "{err}");
        assert_eq!(p.json(&["status", "tank"])["state"], "not running");
    }
    p.ok(&["destroy", "tank", "--yes"]);
}

/// A script that is started twice: one comes to its end while the other waits, and has found that no group has this name.
#[test]
fn of_two_groups_that_are_made_under_one_name_at_once_one_is_made() {
    let p = Place::new();
    p.tank();
    let config = std::fs::read_to_string(description(&p)).expect("described");
    std::fs::remove_file(description(&p)).expect("not made yet");
    let before = checksum(&p.path("fast.img"));
    let path = p.path("run/tank/lock");
    let lock = std::fs::File::options().write(true).create(true).truncate(false).open(&path).expect("a file");
    lock.lock().expect("locked");
    let mut second = p.command(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "--force", "--yes"]);
    let second = second.stderr(std::process::Stdio::piped()).spawn().expect("starts");
    let opened = format!("/proc/{}/fd", second.id());
    let files = || std::fs::read_dir(&opened).into_iter().flatten().flatten();
    let has_it = || files().filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file == path);
    until(|| has_it() || files().next().is_none(), "it waits for the lock, or has given up");
    std::fs::write(description(&p), config).expect("made");
    drop(lock);
    let second = second.wait_with_output().expect("ends");
    assert!(!second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    assert_eq!(checksum(&p.path("fast.img")), before);
    p.ok(&["check", "tank"]);
}
