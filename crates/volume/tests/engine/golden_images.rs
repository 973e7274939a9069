//! Stored groups of format version 1. Every later program must open them and read the right data.
//!
//! The images are written by `cargo run -p bimetal-volume --example golden_images`, and only for a new version, beside
//! the old ones.

use bimetal_volume::backend::Backend;
use bimetal_volume::units::CHUNK;

use crate::image::{check, open, read, read_only, repair, repaired_content, stop, writable, Members};
use crate::memory::MemoryEnv;

const KILLED: &[u8] = include_bytes!("golden/v1-killed.img");
const STOPPED: &[u8] = include_bytes!("golden/v1-stopped.img");
/// A journal block of the only fast member is damaged; a repair of that was begun; it is done on the slow member.
const DAMAGED: &[u8] = include_bytes!("golden/v1-damaged.img");
const REPAIR_BEGUN: &[u8] = include_bytes!("golden/v1-repair-begun.img");
const REPAIR_HALF: &[u8] = include_bytes!("golden/v1-repair-half.img");
/// What the volume of these holds when it is repaired.
const REPAIRED: u32 = 0x6ce0_12cb;
/// CRC-32C of what the volume of the stored groups holds.
const CONTENT: u32 = 0x2e8a_a1f0;

/// What the volume holds must be what was stored, also after a writable start and a stop.
fn verify(file: &[u8], records: bool) {
    let env = MemoryEnv::new();
    let members = Members::load(file);
    let report = check(&env, &members.0).expect("check runs");
    assert_eq!(report.problems, []);
    assert_eq!((report.clean, report.records > 0), (!records, records));
    for options in [read_only(), writable(), writable()] {
        let group = open(&env, &members.0, options).expect("opens");
        assert_eq!(group.status().recovery, Vec::<String>::new());
        let volume = group.volume("main").expect("its volume");
        let content: Vec<u8> =
            (0..volume.size() / CHUNK).flat_map(|c| read(&env, &volume, c * CHUNK, CHUNK).expect("readable")).collect();
        assert_eq!(bimetal_format::block::crc32c(&content), CONTENT);
        stop(&env, group).expect("orderly stop");
    }
    assert_eq!(check(&env, &members.0).expect("check runs").problems, []);
}

#[test]
fn a_group_that_was_killed_is_read() {
    verify(KILLED, true);
}

#[test]
fn a_group_that_was_stopped_is_read() {
    verify(STOPPED, false);
}

#[test]
fn what_is_stored_for_later_is_what_is_read() {
    for file in [KILLED, STOPPED, DAMAGED, REPAIR_BEGUN, REPAIR_HALF] {
        assert_eq!(Members::load(file).save(), file);
    }
}

/// No start may write to it; a repair keeps what was always kept.
fn verify_repair(file: &[u8], words: &str) {
    let env = MemoryEnv::new();
    let members = Members::load(file);
    let refusal = open(&env, &members.0, writable()).err().expect("a writable start is refused").to_string();
    assert!(refusal.contains(words), "{refusal}");
    let report = repair(&env, &members.0).expect("it can be repaired");
    assert!(report.struck_off.is_empty());
    assert_eq!(check(&env, &members.0).expect("check runs").problems, []);
    assert_eq!(repaired_content(&members), REPAIRED);
    let group = open(&env, &members.0, writable()).expect("opens");
    stop(&env, group).expect("orderly stop");
    assert_eq!(repaired_content(&members), REPAIRED);
}

#[test]
fn a_group_with_a_damaged_journal_is_repaired() {
    verify_repair(DAMAGED, "damaged in the middle");
}

#[test]
fn a_repair_that_was_cut_off_goes_on() {
    verify_repair(REPAIR_BEGUN, "a repair of group");
    verify_repair(REPAIR_HALF, "a repair of group");
}

#[test]
fn the_stored_groups_hold_every_kind_of_structure() {
    let members = Members::load(KILLED);
    for d in &members.0 {
        let (label, layout) = (d.label(), d.layout());
        assert!(label.root_generation > 0 && label.journal_tail > 0);
        let ring = d.peek(layout.journal, layout.journal_blocks as usize * 4096);
        assert!(ring.chunks_exact(4096).filter(|b| b.starts_with(b"BMjr")).count() > 3);
        for side in 0..2 {
            assert!(d.peek(layout.page(0, side), 4096).starts_with(b"BMmp"), "both sides were written");
        }
    }
}
