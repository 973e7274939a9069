//! Two groups of one name on block devices, as with the disks of another machine beside one's own.

use crate::common::{checksum, Place, MIB};
use crate::loops::Loops;

#[test]
fn of_two_groups_of_one_name_that_nothing_describes_none_is_taken() {
    const FILES: [&str; 4] = ["one.fast", "one.slow", "two.fast", "two.slow"];
    let p = Place::new();
    // Block devices are looked at, and other tests have theirs.
    let name = &format!("namesake-{}", std::process::id());
    let mut uuids = Vec::new();
    for of in FILES.chunks(2) {
        p.file(of[0], 48 * MIB);
        p.file(of[1], 96 * MIB);
        let made = p.json(&["create", name, "--fast", of[0], "--slow", of[1]]);
        uuids.push(made["uuid"].as_str().expect("a UUID").to_string());
        std::fs::remove_dir_all(p.path("etc")).expect("removed");
    }
    let Some(loops) = Loops::new(&p, &FILES) else { return };
    let devices: Vec<&str> = loops.0.iter().map(String::as_str).collect();
    let before = FILES.map(|f| checksum(&p.path(f)));
    let words: Vec<&str> =
        uuids.iter().map(String::as_str).chain(devices.clone()).chain(["2 groups are named", "--member"]).collect();
    for args in [&["destroy", name, "--yes"][..], &["serve", name], &["check", name], &["repair", name, "--yes"]] {
        p.refused(args, 1, &words);
    }
    // Also where they are named all.
    let named = [&["destroy", name, "--yes", "--member"], &devices[..]].concat();
    p.refused(&named, 1, &[&words[..], &["nothing was changed"]].concat());
    assert_eq!(FILES.map(|f| checksum(&p.path(f))), before);

    p.ok(&["destroy", name, "--yes", "--member", devices[0], devices[1]]);
    assert_eq!(FILES.map(|f| checksum(&p.path(f)))[2..], before[2..]);
    // It is the only one of its name now.
    assert_eq!(p.json(&["check", name])["sound"], true);
    p.ok(&["destroy", name, "--yes"]);
    p.refused(&["check", name], 1, &["no block device carries it"]);
}

/// Names of disks change at a restart: what is at a member's old place now has nothing to do with the group.
#[test]
fn a_group_whose_members_have_other_names_now_is_in_order() {
    let p = Place::new();
    let name = &format!("moved-{}", std::process::id());
    for (file, mib) in [("fast", 48), ("slow", 96), ("blank", 96)] {
        p.file(file, mib * MIB);
    }
    let Some(first) = Loops::new(&p, &["fast", "blank"]) else { return };
    // Under the name that the blank disk has.
    p.ok(&["create", name, "--fast", &first.0[0], "--slow", "slow", "--yes"]);
    let config = p.path(&format!("etc/groups/{name}.toml"));
    let text = std::fs::read_to_string(&config).expect("there");
    let slow = p.path("slow").display().to_string();
    assert!(text.contains(&slow), "{text}");
    std::fs::write(&config, text.replace(&slow, &first.0[1])).expect("written");
    let Some(_second) = Loops::new(&p, &["slow"]) else { return };
    let blank = checksum(&p.path("blank"));
    let checked = p.json(&["check", name]);
    assert_eq!((&checked["sound"], &checked["problems"]), (&true.into(), &serde_json::json!([])), "{checked}");
    let told = p.ok(&["check", name]);
    assert!(
        told.contains(&format!("{} carries no sound Bimetal label", first.0[1])) && told.contains("found elsewhere"),
        "{told}"
    );
    assert_eq!(checksum(&p.path("blank")), blank);
    p.ok(&["destroy", name, "--yes"]);
    assert_eq!(checksum(&p.path("blank")), blank);
}
