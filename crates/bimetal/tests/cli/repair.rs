//! `bimetal repair`: a group goes on without what is gone, or in spite of damage.

use std::os::unix::fs::FileExt;

use crate::common::{checksum, installed, Daemon, Place, MIB};
use crate::family::{fill, is_there, marked, private, stop, unlock};
use crate::family_headers::{damage, exported};
use crate::loops::{self, Loops};

/// Bytes of a label, and where a member has them.
const LABEL: usize = 64 << 10;
const FIRST_LABEL: u64 = 64 << 10;
const SECOND_FROM_END: u64 = 2 * MIB;
const DATA: u64 = 60 * MIB;

fn noise(len: u64) -> Vec<u8> {
    let mut state = 7u64;
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()
    };
    (0..len / 8).flat_map(word).collect()
}

/// A stopped group with data on both tiers.
fn filled(p: &Place) -> Vec<u8> {
    p.tank_of(&["main:80MiB"]);
    let daemon = p.serve(&["tank"]);
    let content = noise(DATA);
    fill(p, "main", &content);
    stop(p, daemon);
    content
}

/// Both labels of a member are overwritten.
fn without_labels(p: &Place, member: &str) {
    let file = std::fs::File::options().write(true).open(p.path(member)).expect("opened");
    let size = file.metadata().expect("size").len();
    for place in [FIRST_LABEL, size - SECOND_FROM_END] {
        file.write_all_at(&[0x5a; LABEL], place).expect("written");
    }
}

fn read(p: &Place, volume: &str) -> Vec<u8> {
    let _ = std::fs::remove_file(p.path("out"));
    let uri = format!("nbd+unix:///{volume}?socket={}", p.socket("nbd.sock").display());
    assert!(std::process::Command::new("nbdcopy").arg(uri).arg(p.path("out")).status().expect("nbdcopy").success());
    std::fs::read(p.path("out")).expect("read")
}

fn served(p: &Place) -> Daemon {
    let daemon = p.serve(&["tank"]);
    assert_eq!(p.json(&["status", "tank"])["state"], "serving");
    daemon
}

#[test]
fn a_new_disk_of_the_same_size_is_large_enough() {
    for (i, (fast, slow)) in [(48, 96), (300, 1024), (1024, 4096), (2048, 20_480)].into_iter().enumerate() {
        let p = Place::new();
        let group = format!("g{i}");
        p.file("fast.img", fast * MIB);
        p.file("slow.img", slow * MIB);
        p.ok(&["create", &group, "--fast", "fast.img", "--slow", "slow.img", "--yes"]);
        std::fs::remove_file(p.path("fast.img")).expect("removed");
        p.file("new.img", fast * MIB);
        p.ok(&["repair", &group, "--fast", "new.img", "--yes"]);
        assert_eq!(p.json(&["check", &group])["sound"], true, "{fast} MiB beside {slow} MiB");
    }
}

#[test]
fn a_group_goes_on_with_a_new_disk_in_place_of_a_dead_one() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = filled(&p);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    let lost = p.json(&["rescue", "tank"])["volumes"][0]["lost_bytes"].as_u64().expect("a number");
    assert!(lost > 0 && lost < DATA, "{lost} bytes are on the fast tier");
    let before = checksum(&p.path("slow.img"));
    p.refused(&["repair", "tank"], 1, &["no fast member is left", "--fast"]);
    p.file("new.img", 48 * MIB);
    let repair = ["repair", "tank", "--fast", "new.img"];
    p.refused(&repair, 1, &["missing: member 0", "GIVEN UP", "reads as zeros", "--yes"]);
    p.refused(
        &["repair", "tank", "--fast", "new.img", "slow.img", "--yes"],
        1,
        &["slow.img is member 1 of this group already"],
    );
    assert_eq!(checksum(&p.path("slow.img")), before, "nothing is done before the owner has said yes");
    let done = p.json(&[&repair[..], &["--yes"]].concat());
    assert_eq!(
        (&done["repaired"], &done["struck_off"][0], &done["new_members"][0]),
        (&true.into(), &0.into(), &2.into())
    );
    assert_eq!(done["volumes"][0]["lost_bytes"].as_u64(), Some(lost));
    assert_eq!(p.json(&["repair", "tank"])["repaired"], false, "once is enough");
    assert_eq!(p.json(&["check", "tank"])["problems"].as_array().map(Vec::len), Some(0));
    // What was kept is as it was, and what was given up is zeros, before and after a start.
    for _ in 0..2 {
        let daemon = served(&p);
        let now = read(&p, "main");
        let chunks = content.chunks(4096).zip(now.chunks(4096));
        let (same, other): (Vec<_>, Vec<_>) = chunks.partition(|(a, b)| a == b);
        assert!(other.iter().all(|(_, b)| b.iter().all(|byte| *byte == 0)));
        assert_eq!((same.len() as u64, other.len() as u64), ((DATA - lost) / 4096, lost / 4096));
        stop(&p, daemon);
    }
    // The dead one comes back, and is left alone.
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    let returned = checksum(&p.path("fast.img"));
    let daemon = p.serve(&["tank", "--member", "fast.img", "slow.img", "new.img"]);
    assert_eq!(p.json(&["status", "tank"])["members"].as_array().map(Vec::len), Some(2));
    stop(&p, daemon);
    assert_eq!(checksum(&p.path("fast.img")), returned);
}

#[test]
fn the_new_disk_may_stand_where_the_dead_one_stood() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    p.file("fast.img", 48 * MIB);
    p.refused(&["repair", "tank", "--member", "fast.img", "--yes"], 1, &[]);
    p.refused(
        &["repair", "tank", "--fast", "fast.img"],
        1,
        &["Struck off for ever", "member 0", "fast.img (fast, new"],
    );
    p.ok(&["repair", "tank", "--fast", "fast.img", "--yes"]);
    let daemon = served(&p);
    stop(&p, daemon);
}

#[test]
fn a_member_that_was_forgotten_on_the_command_line_is_not_struck_off() {
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    p.file("slow.img", 96 * MIB);
    p.file("more.img", 96 * MIB);
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "slow.img", "more.img", "--volume", "main:40MiB"]);
    let before = checksum(&p.path("slow.img"));
    let repair = ["repair", "tank", "--member", "fast.img", "slow.img", "--yes"];
    p.refused(&repair, 1, &["more.img carries a label of group 'tank' and was not named"]);
    assert_eq!(checksum(&p.path("slow.img")), before);
    std::fs::remove_file(p.path("more.img")).expect("removed");
    assert_eq!(p.json(&repair)["struck_off"][0], 2);
}

#[test]
fn a_member_that_was_forgotten_and_has_another_name_now_is_not_struck_off() {
    let p = Place::new();
    // Block devices are looked at, and other tests have theirs.
    let name = &format!("renamed-{}", std::process::id());
    for file in ["fast.img", "slow.img", "more.img"] {
        p.file(file, 96 * MIB);
    }
    p.ok(&["create", name, "--fast", "fast.img", "--slow", "slow.img", "more.img", "--volume", "main:40MiB"]);
    let Some(mut loops) = Loops::new(&p, &["fast.img", "slow.img", "more.img"]) else { return };
    let all = loops.0.clone();
    let [fast, slow, more] = [0, 1, 2].map(|i| all[i].as_str());
    let config = p.path("etc/groups").join(format!("{name}.toml"));
    let mut text = std::fs::read_to_string(&config).expect("a configuration");
    for (file, now) in [("fast.img", fast), ("slow.img", slow), ("more.img", "/dev/was-here-once")] {
        text = text.replace(&p.path(file).display().to_string(), now);
    }
    std::fs::write(&config, text).expect("written");
    let before = checksum(&p.path("slow.img"));
    let repair = ["repair", name, "--member", fast, slow, "--yes"];
    let words = format!("{more} carries a label of group '{name}' and was not named");
    p.refused(&repair, 1, &[&words]);
    // A device that is to be new is refused as what it is.
    p.refused(&[&repair[..], &["--slow", more]].concat(), 1, &[more, "is no new device", "member 2"]);
    // On a machine that does not know the group.
    std::fs::remove_file(&config).expect("removed");
    p.refused(&repair, 1, &[&words]);
    assert_eq!(checksum(&p.path("slow.img")), before);
    loops.0.pop();
    loops::detach(more);
    assert_eq!(p.json(&repair)["struck_off"][0], 2);
    // That it is at hand again is nothing to a repair any more.
    let _again = Loops::new(&p, &["more.img"]);
    assert_eq!(p.json(&repair)["repaired"], false);
}

#[test]
fn a_repair_is_undone_until_the_group_is_started() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = filled(&p);
    let slow = std::fs::read(p.path("slow.img")).expect("read");
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.file("new.img", 48 * MIB);
    let repair = ["repair", "tank", "--fast", "new.img", "--yes", "--save", "before"];
    // For ublk devices that outlived their daemon.
    let noted = || std::fs::read_to_string(p.path("run/tank/lost.json")).expect("noted");
    p.ok(&repair);
    assert!(noted().contains("was repaired"), "{}", noted());
    assert!(p.ok(&repair).contains("needs no repair"), "the new one is a member now");
    // The dead one was not dead.
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    p.ok(&["restore", "before", "--yes"]);
    assert!(noted().contains("was put back"), "{}", noted());
    assert!(std::fs::read(p.path("slow.img")).expect("read") == slow, "every byte is as it was");
    std::fs::remove_file(p.path("new.img")).expect("removed");
    let daemon = served(&p);
    is_there(&p, "main", &content);
    stop(&p, daemon);
    p.refused(&["restore", "before", "--yes"], 1, &["Nothing was written", "was used since"]);
    // A file that is there is not overwritten, and then nothing is repaired.
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.file("new.img", 48 * MIB);
    let before = checksum(&p.path("slow.img"));
    p.refused(&repair, 1, &["before", "nothing was repaired", "--save"]);
    assert_eq!(checksum(&p.path("slow.img")), before);
}

#[test]
fn what_the_first_of_two_repairs_has_saved_undoes_both() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = filled(&p);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.file("new1.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new1.img", "--yes", "--save", "first"]);
    std::fs::remove_file(p.path("new1.img")).expect("removed");
    p.file("new2.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new2.img", "--yes", "--save", "second"]);
    // The dead one was not dead.
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    p.ok(&["restore", "first", "--yes"]);
    let daemon = served(&p);
    is_there(&p, "main", &content);
    stop(&p, daemon);
    p.refused(&["restore", "second", "--yes"], 1, &["Nothing was written", "was used since"]);
}

#[test]
fn a_member_without_labels_is_recognised_and_nothing_is_lost() {
    if !installed("nbdcopy") {
        return;
    }
    for name in ["fast.img", "slow.img"] {
        let p = Place::new();
        let content = filled(&p);
        without_labels(&p, name);
        p.refused(&["serve", "tank"], 1, &["bimetal repair tank"]);
        p.refused(&["repair", "tank"], 1, &["both labels of member", "Nothing is given up"]);
        let done = p.json(&["repair", "tank", "--yes"]);
        assert_eq!(done["struck_off"].as_array().map(Vec::len), Some(0), "{done}");
        assert_eq!(done["volumes"][0]["lost_bytes"], 0, "{done}");
        let daemon = served(&p);
        is_there(&p, "main", &content);
        stop(&p, daemon);
        assert_eq!(p.json(&["check", "tank"])["sound"], true);
    }
}

/// An old image of the SSD is all that has a label, and knows nothing of when the disk was used last: that is neither written over as a new
/// device nor struck off.
#[test]
fn a_member_without_labels_that_was_used_after_the_others_is_not_given_up() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    filled(&p);
    std::fs::copy(p.path("fast.img"), p.path("old.img")).expect("copied");
    for _ in 0..2 {
        let daemon = served(&p);
        fill(&p, "main", &noise(DATA));
        stop(&p, daemon);
    }
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    without_labels(&p, "slow.img");
    p.file("blank.img", 96 * MIB);
    let before = checksum(&p.path("slow.img"));
    for new in [&["--slow", "slow.img"][..], &["--slow", "blank.img"], &["--slow", "blank.img", "--force"]] {
        let repair = ["repair", "tank", "--member", "old.img", "--yes"];
        p.refused(&[&repair[..], new].concat(), 1, &["slow.img", "member 1", "in use after", "Nothing was changed"]);
        assert_eq!(checksum(&p.path("slow.img")), before, "{new:?}");
    }
}

#[test]
fn neither_of_two_devices_that_may_be_the_member_without_labels_is_given_up() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = filled(&p);
    without_labels(&p, "slow.img");
    std::fs::copy(p.path("slow.img"), p.path("clone.img")).expect("copied");
    let places = ["slow.img", "clone.img"];
    let before = places.map(|name| checksum(&p.path(name)));
    let both = ["--slow", "slow.img", "--slow", "clone.img"];
    for members in [&[][..], &["--member", "fast.img"]] {
        let repair = [&["repair", "tank", "--yes"][..], members, &both].concat();
        p.refused(&repair, 1, &["member 1", "a copy", "Nothing was changed"]);
        p.refused(&[&repair[..], &["--force"]].concat(), 1, &["member 1", "Nothing was changed"]);
        assert_eq!(places.map(|name| checksum(&p.path(name))), before, "{members:?}");
    }
    std::fs::remove_file(p.path("clone.img")).expect("removed");
    p.ok(&["repair", "tank", "--yes"]);
    let daemon = served(&p);
    assert!(read(&p, "main").starts_with(&content));
    stop(&p, daemon);
}

#[test]
fn a_member_without_labels_is_not_taken_for_a_new_device() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let content = filled(&p);
    without_labels(&p, "fast.img");
    std::os::unix::fs::symlink(p.path("fast.img"), p.path("link.img")).expect("linked");
    let before = [checksum(&p.path("fast.img")), checksum(&p.path("slow.img"))];
    for name in ["fast.img", "link.img"] {
        for force in [&["--yes"][..], &["--yes", "--force"]] {
            let words = ["no new device", "member 0", "Leave --fast", "is kept: bimetal repair tank"];
            p.refused(&[&["repair", "tank", "--fast", name], force].concat(), 1, &words);
        }
    }
    // Where nobody knows of it, it is to be named, and the other member with it.
    std::fs::rename(p.path("fast.img"), p.path("moved.img")).expect("renamed");
    p.file("blank.img", 48 * MIB);
    p.refused(
        &["repair", "tank", "--fast", "blank.img", "moved.img", "--yes"],
        1,
        &["moved.img is no new device", "member 0", "bimetal repair tank --member", "slow.img", "/moved.img"],
    );
    assert_eq!([checksum(&p.path("moved.img")), checksum(&p.path("slow.img"))], before, "nothing was written");
    std::fs::rename(p.path("moved.img"), p.path("fast.img")).expect("renamed");
    // Where the configuration knows of it, and the others were named.
    let named = ["repair", "tank", "--yes", "--fast", "blank.img", "--member", "slow.img"];
    p.refused(
        &named,
        1,
        &["fast.img was not named", "it is member 0", "bimetal repair tank --member", "/fast.img ..."],
    );
    assert_eq!([checksum(&p.path("fast.img")), checksum(&p.path("slow.img"))], before, "nothing was written");
    p.ok(&["repair", "tank", "--yes"]);
    let daemon = served(&p);
    is_there(&p, "main", &content);
    stop(&p, daemon);
}

#[test]
fn encrypted_volumes_open_after_a_repair_with_the_passphrase_that_they_had() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    let Some(daemon) = private(&p, &["main:8MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "20MiB", "--family", "private", "--placement", "slow-only"]);
    let content = marked("On the slow member. ", 20 * MIB);
    fill(&p, "home", &content);
    stop(&p, daemon);
    std::fs::remove_file(p.path("fast.img")).expect("removed");
    p.file("new.img", 48 * MIB);
    p.ok(&["repair", "tank", "--fast", "new.img", "--yes"]);
    // The new member has the header, too: the check would tell.
    let check = || p.json(&["check", "tank"])["problems"].clone();
    assert_eq!(check().as_array().map(Vec::len), Some(0), "{}", check());
    let daemon = served(&p);
    unlock(&p, "one");
    is_there(&p, "home", &content);
    let header = exported(&p, "h");
    stop(&p, daemon);
    // A repair mends it where it is damaged, as well.
    damage(&p, "slow.img", &header);
    let told = p.run(&["check", "tank"]).out;
    assert!(told.contains("the header of family private is damaged"), "{told}");
    without_labels(&p, "new.img");
    assert!(p.ok(&["repair", "tank", "--yes"]).contains("It cannot be undone"));
    assert_eq!(check().as_array().map(Vec::len), Some(0), "{}", check());
}

/// Its blocks are whole, and nobody can decrypt them: that is told before the member that has the header is struck off.
#[test]
fn a_volume_whose_family_nobody_opens_any_more_is_not_called_whole() {
    let p = Place::new();
    let Some(daemon) = private(&p, &["plain:8MiB"]) else { return };
    p.ok(&["volume", "create", "tank/home", "--size", "1MiB", "--placement", "slow-only", "--family", "private"]);
    let header = exported(&p, "h");
    stop(&p, daemon);
    damage(&p, "slow.img", &header);
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    p.file("new.img", 48 * MIB);
    let words = ["NOT TO BE OPENED", "'private'", "home", "import-header"];
    let tells = |told: &str| {
        words.iter().for_each(|word| assert!(told.contains(word), "no '{word}': {told}"));
        assert!(told.contains("Nothing else is") && !told.contains("Nothing is"), "{told}");
    };
    tells(&p.ok(&["rescue", "tank"]));
    assert_eq!(p.json(&["rescue", "tank"])["lost_families"][0]["volumes"][0], "home");
    let daemon = p.serve(&["tank", "--read-only", "--allow-missing"]);
    tells(&p.ok(&["rescue", "tank"]));
    stop(&p, daemon);
    let repair = ["repair", "tank", "--fast", "new.img"];
    tells(&p.run(&repair).err);
    // The other one has it.
    std::fs::rename(p.path("gone.img"), p.path("fast.img")).expect("renamed");
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("renamed");
    assert_eq!(p.json(&["rescue", "tank"])["lost_families"].as_array().map(Vec::len), Some(0));
    std::fs::rename(p.path("fast.img"), p.path("gone.img")).expect("renamed");
    std::fs::rename(p.path("away.img"), p.path("slow.img")).expect("renamed");
    let done = p.json(&[&repair[..], &["--yes"]].concat());
    assert_eq!(done["lost_families"][0]["name"], "private", "{done}");
}

#[test]
fn what_needs_no_repair_or_cannot_have_one_is_told_so() {
    let p = Place::new();
    p.tank_of(&["main:120MiB"]);
    assert!(p.ok(&["repair", "tank"]).contains("needs no repair"));
    p.file("new.img", 48 * MIB);
    p.refused(&["repair", "tank", "--fast", "new.img", "--yes"], 1, &["needs no repair", "bimetal member add"]);
    let daemon = p.serve(&["tank"]);
    p.refused(&["repair", "tank", "--yes"], 1, &["is being served"]);
    stop(&p, daemon);
    // The volumes would not fit what is left.
    std::fs::rename(p.path("slow.img"), p.path("gone.img")).expect("renamed");
    p.refused(&["repair", "tank", "--slow", "new.img", "--yes"], 1, &["need 120 MiB", "are left", "--slow"]);
    // A member of another group is not taken by mistake.
    p.file("a.img", 48 * MIB);
    p.file("b.img", 96 * MIB);
    p.ok(&["create", "other", "--fast", "a.img", "--slow", "b.img"]);
    let before = (checksum(&p.path("b.img")), checksum(&p.path("fast.img")));
    p.refused(&["repair", "tank", "--slow", "b.img", "--yes"], 1, &["is a member of the Bimetal group 'other'"]);
    p.refused(&["repair", "tank", "--member", "a.img", "--yes"], 1, &["belong to group 'other'"]);
    p.refused(&["repair", "tank", "--slow", "b.img", "--force"], 1, &["everything on it is lost", "--yes"]);
    assert_eq!((checksum(&p.path("b.img")), checksum(&p.path("fast.img"))), before);
    p.ok(&["repair", "tank", "--slow", "b.img", "--force", "--yes"]);
    let daemon = served(&p);
    stop(&p, daemon);
}
