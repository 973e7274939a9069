//! Labels that a newer version has written: they are whole, and nothing is done as if there were none.

use std::os::unix::fs::FileExt;

use bimetal_format::block::crc32c;

use crate::common::{checksum, Place, MIB};

const LABEL: usize = 64 << 10;
const FIRST: u64 = 64 << 10;
const FAST: u64 = 48 * MIB;
const SLOW: u64 = 96 * MIB;

/// A field of a label: where, and its bytes.
type Field<'a> = (usize, &'a [u8]);
const VERSION_2: Field<'_> = (12, &[2, 0]);
const UNKNOWN_FEATURE: Field<'_> = (40, &[64 | 3]);

/// Changes the label of a member at this place, under a checksum that is right.
fn forge(p: &Place, member: &str, place: u64, (offset, bytes): Field<'_>) {
    let file = std::fs::File::options().read(true).write(true).open(p.path(member)).expect("opened");
    let mut label = vec![0; LABEL];
    file.read_exact_at(&mut label, place).expect("read");
    label[offset..offset + bytes.len()].copy_from_slice(bytes);
    label[8..12].fill(0);
    let crc = crc32c(&[&label[..], &place.to_le_bytes()].concat());
    label[8..12].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&label, place).expect("written");
}

/// Both labels of a member.
fn newer(p: &Place, member: &str, size: u64, field: Field<'_>) {
    [FIRST, size - 2 * MIB].into_iter().for_each(|place| forge(p, member, place, field));
}

fn members(p: &Place) -> [u64; 2] {
    ["fast.img", "slow.img"].map(|f| checksum(&p.path(f)))
}

/// Refused with these words, without those, and with nothing changed.
fn refused(p: &Place, args: &[&str], words: &[&str]) {
    let before = members(p);
    let done = p.run(args);
    assert_eq!(done.code, 1, "bimetal {args:?}: {}{}", done.out, done.err);
    words
        .iter()
        .for_each(|word| assert!(done.err.contains(word), "bimetal {args:?} does not say '{word}': {}", done.err));
    for never in ["No label is left", "restore FILE", "`bimetal repair", "--force"] {
        assert!(!done.err.contains(never), "bimetal {args:?} says '{never}': {}", done.err);
    }
    assert_eq!(members(p), before, "bimetal {args:?} changed a member");
}

#[test]
fn a_group_of_a_newer_version_is_not_called_one_without_labels_and_not_written_over() {
    for field in [VERSION_2, UNKNOWN_FEATURE] {
        let p = Place::new();
        p.tank();
        p.ok(&["dump", "tank", "--save", "tank.saved"]);
        [("fast.img", FAST), ("slow.img", SLOW)].into_iter().for_each(|(member, size)| newer(&p, member, size, field));
        let commands = [
            &["serve", "tank"][..],
            &["serve", "tank", "--read-only", "--allow-missing"],
            &["check", "tank"],
            &["rescue", "tank"],
            &["repair", "tank", "--yes"],
        ];
        commands.iter().for_each(|command| refused(&p, command, &["use a newer Bimetal", "fast.img", "whole"]));
        let restore = ["restore", "tank.saved", "--yes", "--force"];
        for named in [&[][..], &["--member", "fast.img", "slow.img"]] {
            refused(&p, &[&restore[..], named].concat(), &["Nothing was written", "use a newer Bimetal", "fast.img"]);
        }
        let destroyed = p.run(&["destroy", "tank", "--yes"]);
        assert_ne!(destroyed.code, 0, "{}", destroyed.out);
    }
}

#[test]
fn a_member_of_a_newer_version_is_not_struck_off() {
    for field in [VERSION_2, UNKNOWN_FEATURE] {
        let p = Place::new();
        p.tank();
        newer(&p, "slow.img", SLOW, field);
        p.file("new.img", SLOW);
        refused(&p, &["serve", "tank"], &["use a newer Bimetal", "slow.img"]);
        for repair in [
            &["repair", "tank", "--yes"][..],
            &["repair", "tank", "--yes", "--slow", "new.img"],
            &["repair", "tank", "--yes", "--member", "fast.img", "slow.img", "--slow", "new.img"],
            &["repair", "tank", "--yes", "--member", "fast.img", "--slow", "new.img"],
            &["repair", "tank", "--yes", "--slow", "slow.img", "--force"],
        ] {
            refused(&p, repair, &["use a newer Bimetal", "slow.img", "nothing was repaired"]);
        }
        // Who takes it away means it.
        std::fs::rename(p.path("slow.img"), p.path("away.img")).expect("moved");
        p.ok(&["repair", "tank", "--yes", "--slow", "new.img"]);
    }
}
