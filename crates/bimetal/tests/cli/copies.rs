//! A copy of a member, made as a backup, is not taken for the member where something is to be destroyed.

use std::os::unix::fs::FileExt;

use bimetal_format::layout::{label_b, LABEL_A};

use crate::common::{checksum, installed, Place, MIB};
use crate::former::repaired;
use crate::loops::Loops;
use crate::saved::run_limited;

/// A group `tank`, and copies of both members.
fn copied(p: &Place) {
    p.tank();
    for name in ["fast", "slow"] {
        std::fs::copy(p.path(&format!("{name}.img")), p.path(&format!("{name}.copy"))).expect("copied");
    }
}

const ALL: [&str; 4] = ["fast.img", "slow.img", "fast.copy", "slow.copy"];

/// The configuration has come to name the copies as well.
#[test]
fn a_group_and_its_backup_are_not_destroyed_by_its_name() {
    let p = Place::new();
    copied(&p);
    let config = p.path("etc/groups/tank.toml");
    let mut text = std::fs::read_to_string(&config).expect("described");
    for (name, tier) in [("fast.copy", "fast"), ("slow.copy", "slow")] {
        text += &format!("\n[[member]]\nlocator = \"{}\"\ntier = \"{tier}\"\n", p.path(name).display());
    }
    std::fs::write(&config, text).expect("written");
    let before = ALL.map(|name| checksum(&p.path(name)));
    p.refused(&["destroy", "tank", "--yes"], 1, &["fast.copy", "one of them is a copy", "--member"]);
    assert_eq!(ALL.map(|name| checksum(&p.path(name))), before);
    p.ok(&["destroy", "tank", "--member", "fast.copy", "slow.copy", "--yes"]);
    assert_eq!([0, 1].map(|i| checksum(&p.path(ALL[i]))), [before[0], before[1]]);
    p.ok(&["check", "--member", "fast.img", "slow.img"]);
}

/// The group goes on with its members.
#[test]
fn who_destroys_copies_of_members_keeps_the_description_of_the_group() {
    let p = Place::new();
    copied(&p);
    let said = p.ok(&["destroy", "tank", "--member", "slow.copy", "--yes"]);
    assert!(said.contains("Copies") && said.contains("as they were") && !said.contains("is destroyed"), "{said}");
    p.ok(&["check", "tank"]);
    let asked = p.run(&["destroy", "tank", "--member", "fast.copy"]);
    assert!(asked.err.contains("seems to go on without: copies"), "{}", asked.err);
    let done = p.json(&["destroy", "tank", "--member", "fast.copy", "--yes"]);
    assert!(done["destroyed"] == false && done["namesake"] == false, "{done}");
    p.ok(&["destroy", "tank", "--yes"]);
}

/// The members by other names, which do not tell that they are the same.
#[test]
fn a_group_that_is_destroyed_by_other_names_of_its_members_is_destroyed() {
    let p = Place::new();
    p.tank();
    let Some(loops) = Loops::new(&p, &["fast.img", "slow.img"]) else { return };
    let all = [&["destroy", "tank", "--yes", "--member"][..], &[&loops.0[0], &loops.0[1]]].concat();
    let said = p.ok(&all);
    assert!(said.contains("Group 'tank' is destroyed"), "{said}");
    assert!(!p.path("etc/groups/tank.toml").exists(), "nothing is left that it could describe");
}

/// Nobody is told to destroy the group, whose own members that would wipe.
#[test]
fn a_copy_is_taken_for_a_new_group_by_force_and_the_group_stays() {
    let p = Place::new();
    copied(&p);
    p.file("other.img", 64 * MIB);
    let create = ["create", "other", "--fast", "fast.copy", "--slow", "other.img", "--yes"];
    let refused = p.run(&create);
    assert!(refused.code == 1 && refused.err.contains("one of them is a copy"), "{}", refused.err);
    assert!(refused.err.contains("fast.img") && !refused.err.contains("destroy"), "{}", refused.err);
    p.ok(&[&create[..], &["--force"]].concat());
    p.ok(&["check", "tank"]);
}

/// It holds nothing that the group knows: that goes on, and stays described.
#[test]
fn who_destroys_a_former_member_keeps_the_description_of_the_group() {
    let p = Place::new();
    repaired(&p);
    let wipe = ["destroy", "tank", "--member", "fast.img"];
    p.refused(&wipe, 1, &["go on without", "fast.img (48 MiB)"]);
    let said = p.ok(&[&wipe[..], &["--yes"]].concat());
    assert!(said.contains("former members, are wiped") && !said.contains("is destroyed"), "{said}");
    p.ok(&["check", "tank"]);
    // A member is none, also where its name is another.
    let said = p.ok(&["destroy", "tank", "--member", "new.img", "--yes"]);
    assert!(said.contains("Members of group 'tank' are wiped"), "{said}");
}

/// The others still carry the group, and only the description says where they are.
#[test]
fn who_destroys_a_member_that_was_missing_keeps_the_description_of_the_others() {
    let p = Place::new();
    p.tank_of(&["main:8MiB"]);
    let described = std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("described");
    std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("moved");
    let wipe = ["destroy", "tank", "--member", "away.img"];
    p.refused(&wipe, 1, &["wipes members of group 'tank'", "main (8 MiB)", "away.img (96 MiB)"]);
    let done = p.json(&[&wipe[..], &["--yes"]].concat());
    assert!(done["destroyed"] == false && done["absent"].to_string().contains("/fast.img"), "{done}");
    assert_eq!(std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("still"), described);
    p.refused(&["serve", "tank"], 1, &["bimetal repair tank"]);
    // Now it is all of it that can be found.
    let said = p.ok(&["destroy", "tank", "--yes"]);
    assert!(said.contains("Group 'tank' is destroyed") && !p.path("etc/groups/tank.toml").exists(), "{said}");
}

/// What has become of the others is said, and the same command goes on.
#[test]
fn a_destruction_that_fails_half_way_says_what_is_wiped() {
    if !installed("prlimit") {
        return;
    }
    let p = Place::new();
    p.tank();
    // The second label of the slow member lies behind that.
    let failed = run_limited(&p, &["destroy", "tank", "--yes"], 60);
    let words = ["slow.img could not be wiped", "fast.img is wiped already", "the same command goes on"];
    assert!(failed.code == 1 && words.iter().all(|w| failed.err.contains(w)), "{}", failed.err);
    let said = p.ok(&["destroy", "tank", "--yes"]);
    assert!(said.contains("Group 'tank' is destroyed"), "{said}");
}

/// The one that is left out holds the group as well, though nobody can look at it now.
#[test]
fn who_destroys_a_member_beside_one_that_cannot_be_read_now_keeps_the_description() {
    let p = Place::new();
    p.tank();
    let user = std::fs::File::options().read(true).write(true).open(p.path("fast.img")).expect("open");
    user.lock().expect("locked");
    std::fs::copy(p.path("slow.img"), p.path("copy.img")).expect("copied");
    let stays = |member: &str| {
        let said = p.ok(&["destroy", "tank", "--member", member, "--yes"]);
        assert!(said.contains("Members of group 'tank' are wiped"), "{said}");
        assert!(p.path("etc/groups/tank.toml").exists(), "{said}");
    };
    stays("slow.img");
    drop(user);
    // Nor if its labels are damaged.
    let damaged = std::fs::File::options().write(true).open(p.path("fast.img")).expect("opened");
    for place in [LABEL_A, label_b(48 * MIB)] {
        damaged.write_all_at(&[0x5a; 4096], place + 512).expect("written");
    }
    stays("copy.img");
}

#[test]
fn who_destroys_a_group_learns_that_a_former_member_goes_with_it() {
    let p = Place::new();
    repaired(&p);
    let all = ["destroy", "tank", "--member", "new.img", "slow.img", "fast.img"];
    p.refused(&all, 1, &["fast.img (48 MiB), which was fast member 0", "given up", "--yes"]);
}
