//! A copy of a member, made as a backup, is not taken for the member where something is to be destroyed.

use crate::common::{checksum, Place, MIB};
use crate::former::repaired;
use crate::loops::Loops;

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
    assert!(said.contains("Group 'tank' is destroyed"), "{said}");
}

#[test]
fn who_destroys_a_group_learns_that_a_former_member_goes_with_it() {
    let p = Place::new();
    repaired(&p);
    let all = ["destroy", "tank", "--member", "new.img", "slow.img", "fast.img"];
    p.refused(&all, 1, &["fast.img (48 MiB), which was fast member 0", "given up", "--yes"]);
}
