//! Restores to devices that do not say who they are, or lie elsewhere than before.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{checksum, installed, Place, MIB};
use crate::family::{fill, is_there, marked, stop};

/// A group `tank`, with its metadata saved in `tank.saved`; what is written to it then, if it is used again.
fn saved(p: &Place) -> Option<Vec<u8>> {
    if !installed("nbdcopy") {
        return None;
    }
    p.tank_of(&["main:40MiB"]);
    let content = marked("First. ", 20 * MIB);
    used(p, &content);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    Some(content)
}

fn used(p: &Place, content: &[u8]) {
    let daemon = p.serve(&["tank"]);
    fill(p, "main", content);
    stop(p, daemon);
}

fn holds(p: &Place, content: &[u8]) {
    let daemon = p.serve(&["tank"]);
    is_there(p, "main", content);
    stop(p, daemon);
}

/// Both labels of a member go, and nothing else.
fn lose_labels(p: &Place, file: &str) {
    let path = p.path(file);
    let size = std::fs::metadata(&path).expect("there").len();
    let file = File::options().write(true).open(path).expect("opened");
    for at in [64 << 10, size - 2 * MIB] {
        file.write_all_at(&[0; 64 << 10], at).expect("written");
    }
}

fn refused_untouched(p: &Place, args: &[&str], files: &[&str], words: &[&str]) {
    let sums = || files.iter().map(|f| checksum(&p.path(f))).collect::<Vec<_>>();
    let before = sums();
    p.refused(args, 1, words);
    assert_eq!(sums(), before, "bimetal {args:?} changed a member");
}

#[test]
fn a_member_that_was_used_since_is_not_written_over_though_an_old_image_of_another_one_fits() {
    let p = Place::new();
    let Some(_) = saved(&p) else { return };
    std::fs::copy(p.path("fast.img"), p.path("old.img")).expect("copied");
    let newer = marked("Second. ", 20 * MIB);
    used(&p, &newer);
    lose_labels(&p, "slow.img");
    let words =
        ["was used since it was saved", "the journal of", "slow.img", "older image", "`bimetal repair tank --member"];
    let old = ["restore", "tank.saved", "--yes", "--force", "--member", "old.img", "slow.img"];
    refused_untouched(&p, &old, &["old.img", "slow.img"], &words);
    // Nor if there is nothing that says when it was used last but what lies on it.
    lose_labels(&p, "old.img");
    std::fs::rename(p.path("fast.img"), p.path("away.img")).expect("unplugged");
    refused_untouched(&p, &old, &["old.img", "slow.img"], &words);
    std::fs::rename(p.path("away.img"), p.path("fast.img")).expect("plugged in");
    // The way that is said.
    p.ok(&["repair", "tank", "--yes", "--member", "fast.img", "slow.img"]);
    holds(&p, &newer);
}

#[test]
fn members_of_one_size_without_labels_are_told_apart() {
    if !installed("nbdcopy") {
        return;
    }
    let p = Place::new();
    p.file("fast.img", 48 * MIB);
    for f in ["a.img", "b.img"] {
        p.file(f, 48 * MIB);
    }
    p.ok(&["create", "tank", "--fast", "fast.img", "--slow", "a.img", "b.img", "--volume", "main:80MiB"]);
    let content = marked("On all of them. ", 70 * MIB);
    used(&p, &content);
    p.ok(&["dump", "tank", "--save", "tank.saved"]);
    let all = ["fast.img", "a.img", "b.img"];
    for f in all {
        lose_labels(&p, f);
    }
    let named = ["restore", "tank.saved", "--yes", "--member", "b.img", "fast.img", "a.img"];
    refused_untouched(&p, &named, &all, &["no device carries a label", "--force"]);
    let answer = p.json(&[&named[..], &["--force"]].concat());
    let members = answer["members"].as_array().expect("a list");
    let of = |m: &serde_json::Value| (m["locator"].as_str().expect("one").to_owned(), m["proof"].clone());
    let expected = all.map(|f| (p.path(f).display().to_string(), "traces".into()));
    assert_eq!(members.iter().map(of).collect::<Vec<_>>(), expected);
    holds(&p, &content);
    // One of three is left without anything.
    p.ok(&["dump", "tank", "--save", "again.saved"]);
    lose_labels(&p, "b.img");
    std::fs::copy(p.path("b.img"), p.path("copy.img")).expect("copied");
    let twice = ["restore", "again.saved", "--yes", "--force", "--member", "b.img", "copy.img", "fast.img", "a.img"];
    refused_untouched(&p, &twice, &all, &["metadata of member 2", "name only the right one"]);
}

#[test]
fn a_member_that_lies_on_a_larger_device_now_is_written_back_to() {
    let p = Place::new();
    let Some(content) = saved(&p) else { return };
    std::fs::rename(p.path("slow.img"), p.path("large.img")).expect("moved");
    let large = File::options().write(true).open(p.path("large.img")).expect("opened");
    large.set_len(160 * MIB).expect("grown");
    large.write_all_at(&[0x5a; 4096], MIB + 65_536).expect("something is damaged");
    let named = ["restore", "tank.saved", "--yes", "--member", "fast.img", "large.img"];
    p.ok(&named);
    p.ok(&["dump", "tank", "--save", "again.saved"]);
    let again = ["restore", "again.saved", "--yes", "--member", "fast.img", "large.img"];
    // The label of something else at its end would be taken for its own as long as that is away.
    p.file("x.img", 160 * MIB);
    p.file("y.img", 48 * MIB);
    p.ok(&["create", "other", "--fast", "y.img", "--slow", "x.img"]);
    let (end, mut others) = (158 * MIB, vec![0; 64 << 10]);
    File::open(p.path("x.img")).expect("opened").read_exact_at(&mut others, end).expect("read");
    large.write_all_at(&others, end).expect("written");
    let words = ["Nothing was written", "the label of a member of group 'other' at its end", "with zeros"];
    refused_untouched(&p, &[&again[..], &["--force"]].concat(), &["fast.img", "large.img"], &words);
    large.write_all_at(&[0; 64 << 10], end).expect("written");
    // Where its own labels are gone: the second one is where it was.
    for at in [64 << 10, 94 * MIB] {
        large.write_all_at(&[0; 64 << 10], at).expect("written");
    }
    refused_untouched(&p, &again, &["fast.img", "large.img"], &["by what else is on it", "older copy", "--force"]);
    p.ok(&[&again[..], &["--force"]].concat());
    assert_eq!(p.json(&["check", "tank"])["sound"], true);
    holds(&p, &content);
}

#[test]
fn copies_that_are_written_back_to_are_not_written_down_beside_the_members() {
    let p = Place::new();
    let Some(content) = saved(&p) else { return };
    let config = || std::fs::read_to_string(p.path("etc/groups/tank.toml")).expect("described");
    let before = config();
    for (from, to) in [("fast.img", "copy-f.img"), ("slow.img", "copy-s.img")] {
        std::fs::copy(p.path(from), p.path(to)).expect("copied");
    }
    let named = ["restore", "tank.saved", "--yes", "--force", "--member", "copy-f.img", "copy-s.img"];
    let said = p.ok(&named);
    assert_eq!(config(), before);
    assert!(said.contains("names other devices") && said.contains("`bimetal serve tank --member "), "{said}");
    // Nor where the members lack their labels: it is tried on copies first.
    for f in ["fast.img", "slow.img"] {
        lose_labels(&p, f);
    }
    p.ok(&named);
    assert_eq!(config(), before);
    p.ok(&["restore", "tank.saved", "--yes", "--force", "--member", "fast.img", "slow.img"]);
    holds(&p, &content);
    // Copies whose members are gone are the members.
    for f in ["fast.img", "slow.img"] {
        std::fs::remove_file(p.path(f)).expect("gone");
    }
    p.ok(&named);
    assert!(config().contains("copy-s.img"));
    holds(&p, &content);
}
