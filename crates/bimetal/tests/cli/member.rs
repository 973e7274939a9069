//! Members listed and added, served and not.

use crate::common::{Place, MIB};

fn states(list: &serde_json::Value) -> Vec<(String, String)> {
    let text = |m: &serde_json::Value, k: &str| m[k].as_str().unwrap_or_default().to_string();
    list["members"].as_array().expect("a list").iter().map(|m| (text(m, "tier"), text(m, "state"))).collect()
}

#[test]
fn a_member_is_added_without_a_daemon_and_found_at_the_next_start() {
    let p = Place::new();
    p.tank();
    let disk = p.file("more.img", 64 * MIB);
    let disk = disk.to_str().expect("plain");
    let added = p.json(&["member", "add", "tank", "--fast", disk]);
    assert_eq!((&added["member"], &added["tier"]), (&2.into(), &"fast".into()), "{added}");
    let list = p.json(&["member", "list", "tank"]);
    assert_eq!(states(&list).len(), 3, "{list}");
    assert_eq!(list["members"][2]["locator"], disk);
    assert!(states(&list).iter().all(|(_, s)| s == "in use"), "{list}");
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
    let _daemon = p.serve(&["tank"]);
    let words = p.ok(&["member", "list", "tank"]);
    assert!(words.contains("more.img") && words.contains("in use"), "{words}");
}

#[test]
fn a_member_is_added_while_the_group_is_served() {
    let p = Place::new();
    p.tank();
    let mut daemon = p.serve(&["tank"]);
    let disk = p.file("more.img", 64 * MIB);
    let disk = disk.to_str().expect("plain");
    let before = p.json(&["status", "tank"])["fast_free_bytes"].as_u64().expect("a number");
    let words = p.ok(&["member", "add", "tank", "--fast", disk]);
    assert!(words.contains("fast member 2 of group 'tank'") && words.contains("can grow by"), "{words}");
    let status = p.json(&["status", "tank"]);
    assert!(status["fast_free_bytes"].as_u64().expect("a number") > before + 40 * MIB, "{status}");
    assert_eq!(status["members"][2]["locator"], disk);
    p.refused(&["member", "add", "tank", "--slow", disk, "--yes"], 1, &["member 2 of group 'tank' already"]);
    p.ok(&["stop", "tank"]);
    daemon.wait();
    let report = p.json(&["check", "tank"]);
    assert_eq!((&report["sound"], &report["clean"]), (&true.into(), &true.into()), "{report}");
}

#[test]
fn what_cannot_be_added_is_refused_and_not_written_down() {
    let p = Place::new();
    p.tank();
    let before = p.json(&["member", "list", "tank"]);
    let small = p.file("small.img", MIB);
    let known = p.file("known.img", 64 * MIB);
    std::fs::write(&known, {
        let mut ext4 = vec![0; 64 << 20];
        ext4[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        ext4
    })
    .expect("written");
    for (device, words) in [
        (small.to_str().expect("plain"), &["too small"][..]),
        (known.to_str().expect("plain"), &["--force"]),
        (p.path("nothing.img").to_str().expect("plain"), &["nothing.img"]),
        (before["members"][0]["locator"].as_str().expect("a path"), &["already"]),
    ] {
        p.refused(&["member", "add", "tank", "--slow", device, "--yes"], 1, words);
    }
    p.refused(&["member", "add", "tank"], 2, &["--fast"]);
    assert_eq!(p.json(&["member", "list", "tank"]), before);
    assert_eq!(p.json(&["status", "tank"])["configured_members"].as_array().map(Vec::len), Some(2));
}
