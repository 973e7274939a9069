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
