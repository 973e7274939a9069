//! Devices whose label names a group that goes on without them: they may hold what nothing else does.

use serde_json::Value;

use crate::common::{checksum, installed, scanned, Place, MIB};
use crate::family::{fill, stop};
use crate::loops::{listed, Loops};

const WAY: &str = "bimetal rescue tank --member";

/// A group `tank` on `new.img` and `slow.img` that was repaired without `fast.img`, which is there again and holds data.
pub(crate) fn repaired(p: &Place) {
    p.tank_of(&["main:80MiB"]);
    let daemon = p.serve(&["tank"]);
    if installed("nbdcopy") {
        fill(p, "main", &vec![0x42; 20 << 20]);
    }
    stop(p, daemon);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.file("new.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new.img", "--yes", "--save", "before"]);
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
}

/// Says no, and does nothing to the device.
fn keeps(p: &Place, device: &str, args: &[&str], words: &[&str]) {
    let before = checksum(&p.path(device));
    p.refused(args, 1, words);
    assert_eq!(checksum(&p.path(device)), before, "{args:?}");
}

#[test]
fn a_former_member_becomes_one_again_only_by_force() {
    let p = Place::new();
    repaired(&p);
    let add = ["member", "add", "tank", "--fast", "fast.img", "--yes"];
    let words = ["was fast member 0 of the Bimetal group 'tank'", WAY, "--force"];
    for served in [false, true] {
        let daemon = served.then(|| p.serve(&["tank"]));
        keeps(&p, "fast.img", &add, &words);
        keeps(&p, "fast.img", &["member", "replace", "tank", "new.img", "fast.img", "--yes"], &words);
        daemon.into_iter().for_each(|daemon| stop(&p, daemon));
    }
    // Whoever asks the daemon itself.
    let daemon = p.serve(&["tank"]);
    let before = checksum(&p.path("fast.img"));
    let post = |force: bool| {
        let at = p.path("fast.img");
        let body = format!(r#"{{"change":"add","locator":"{}","tier":"fast","force":{force}}}"#, at.display());
        p.ask("POST", "/v1/members", &body)
    };
    let answer = post(false);
    assert!(words.iter().all(|w| answer.contains(w)), "{answer}");
    assert_eq!(checksum(&p.path("fast.img")), before);
    stop(&p, daemon);
    p.ok(&["rescue", "tank", "--member", "fast.img"]);
    p.ok(&[&add[..], &["--force"]].concat());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    keeps(&p, "fast.img", &[&add[..], &["--force"]].concat(), &["member 3 of group 'tank' already"]);
}

#[test]
fn what_it_carries_besides_is_erased_when_it_is_taken_by_force() {
    let p = Place::new();
    repaired(&p);
    let file = std::fs::File::options().write(true).open(p.path("fast.img")).expect("opened");
    std::os::unix::fs::FileExt::write_all_at(&file, b"\x53\xef", 1080).expect("the magic of an ext4");
    drop(file);
    let add = ["member", "add", "tank", "--fast", "fast.img", "--yes"];
    keeps(&p, "fast.img", &add, &["ext4", "--force"]);
    p.ok(&[&add[..], &["--force"]].concat());
    let bytes = std::fs::read(p.path("fast.img")).expect("read");
    assert!(bytes[..64 << 10].iter().all(|b| *b == 0), "nothing takes it for an ext4");
}

#[test]
fn nobody_is_told_to_destroy_the_group_that_goes_on() {
    let p = Place::new();
    repaired(&p);
    p.file("a.img", 48 * MIB);
    p.file("b.img", 160 * MIB);
    let was = ["fast.img was fast member 0", "goes on without it", WAY];
    keeps(&p, "fast.img", &["create", "other", "--fast", "fast.img", "--slow", "b.img"], &was);
    let dissolve = |onto| ["dissolve", "tank", "--onto", onto, "--yes"];
    // One that is large enough.
    std::fs::File::options().write(true).open(p.path("fast.img")).expect("opened").set_len(160 * MIB).expect("size");
    let daemon = p.serve(&["tank"]);
    keeps(&p, "fast.img", &dissolve("fast.img"), &was);
    stop(&p, daemon);
    std::fs::File::options().write(true).open(p.path("fast.img")).expect("opened").set_len(48 * MIB).expect("size");
    std::fs::rename(p.path("new.img"), p.path("moved.img")).expect("renamed");
    // The group lacks a member, and neither of these is a new device.
    keeps(&p, "fast.img", &["repair", "tank", "--fast", "fast.img", "--yes"], &was);
    let own = ["no new device", "member 2 of this very group", "repair tank --member"];
    keeps(&p, "moved.img", &["repair", "tank", "--fast", "moved.img", "--yes"], &own);
    // Another group's living member is what it was.
    std::fs::rename(p.path("moved.img"), p.path("new.img")).expect("renamed");
    let living = ["is a member of the Bimetal group 'tank'", "destroy that group first"];
    keeps(&p, "new.img", &["create", "other", "--fast", "new.img", "--slow", "b.img"], &living);
}

#[test]
fn lists_say_what_it_is() {
    let p = Place::new();
    repaired(&p);
    let words = p.ok(&["scan", "fast.img"]);
    assert!(words.contains("fast.img was fast member 0") && words.contains(WAY), "{words}");
    let found = p.json(&["scan", "fast.img"]);
    let (group, at) = (scanned(&found, "tank").expect("found"), p.path("fast.img"));
    assert_eq!((&group["complete"], group["members"].as_array().map(Vec::len)), (&true.into(), Some(2)), "{found}");
    let apart = &group["no_members"][0];
    assert_eq!((&apart["index"], &apart["state"]), (&0.into(), &"former".into()), "{found}");
    assert_eq!(apart["found_at"], at.display().to_string());
    // Alone, it can only say what it was.
    std::fs::remove_dir_all(p.path("etc")).expect("removed");
    assert_eq!(scanned(&p.json(&["scan", "fast.img"]), "tank").expect("found")["complete"], false);
}

#[test]
fn a_list_of_block_devices_says_it_too() {
    let p = Place::new();
    repaired(&p);
    let Some(loops) = Loops::new(&p, &["fast.img"]) else { return };
    let used = listed(&p, &loops.0[0]);
    assert!(used.contains("was fast member 0") && used.contains(WAY), "{used}");
}

#[test]
fn a_member_is_not_served_bare() {
    let p = Place::new();
    p.tank();
    keeps(
        &p,
        "slow.img",
        &["serve", "--raw", "slow.img", "--nbd", "unix:bare"],
        &["group 'tank'", "--force", "--read-only"],
    );
    assert!(!p.path("bare").exists());
    for how in ["--force", "--read-only"] {
        let mut daemon = p.serve(&["--raw", "slow.img", "--nbd", "unix:bare", how]);
        daemon.terminate();
        assert_eq!(daemon.wait(), 0, "{}", p.log());
    }
}

#[test]
fn what_was_being_added_is_added_without_force() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    // As an adding that was cut off leaves it: a label that says so, of a member that the others do not know.
    let before = ["fast.img", "slow.img"].map(|name| std::fs::read(p.path(name)).expect("read"));
    p.ok(&["member", "add", "tank", "--slow", "more.img"]);
    for (name, bytes) in ["fast.img", "slow.img"].iter().zip(before) {
        std::fs::write(p.path(name), bytes).expect("written");
    }
    joining(&disk);
    let added: Value = p.json(&["member", "add", "tank", "--slow", "more.img", "--yes"]);
    assert_eq!(added["member"], 2, "{added}");
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
}

/// Has both labels of a member say that it is being added.
pub(crate) fn joining(path: &std::path::Path) {
    use bimetal_format::label::{Label, LABEL_SIZE};
    use bimetal_format::layout::{label_b, LABEL_A};
    let mut bytes = std::fs::read(path).expect("read");
    for place in [LABEL_A, label_b(bytes.len() as u64)] {
        let range = place as usize..place as usize + LABEL_SIZE;
        let mut label = Label::decode(&bytes[range.clone()], place).expect("a label");
        label.joining = true;
        bytes[range].copy_from_slice(&label.encode(place));
    }
    std::fs::write(path, bytes).expect("written");
}

/// Both labels are gone, and all data is there: a repair takes it for the member that it is.
#[test]
fn a_place_that_a_configuration_names_is_taken_only_by_force_while_that_group_lacks_a_member() {
    let p = Place::new();
    p.tank_of(&["main:80MiB"]);
    let whole = std::fs::read(p.path("slow.img")).expect("read");
    let mut bare = whole.clone();
    for place in [64 << 10, whole.len() - (2 << 20)] {
        bare[place..place + (64 << 10)].fill(0);
    }
    std::fs::write(p.path("slow.img"), &bare).expect("written");
    p.file("new.img", 48 * MIB);
    let create = ["create", "other", "--fast", "new.img", "--slow", "slow.img", "--yes"];
    keeps(&p, "slow.img", &create, &["group 'tank' has a member", "bimetal repair tank", "--force"]);
    // The group is whole without it.
    std::fs::write(p.path("elsewhere.img"), &whole).expect("written");
    let moved = |from: &str, to: &str| {
        let file = p.path("etc/groups/tank.toml");
        let text = std::fs::read_to_string(&file).expect("described");
        std::fs::write(&file, text.replace(from, to)).expect("written");
    };
    moved("slow.img", "elsewhere.img");
    p.ok(&create);
}
