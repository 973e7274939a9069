//! Where on members lies what a start depends on.

use std::ops::Range;

use bimetal_format::directory::{decode_directory, decode_root, Expected, PAGES_PER_DIRECTORY};
use bimetal_format::journal;
use bimetal_format::label::{TierCode, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_format::{page, Entry, Salt, ENTRIES_PER_PAGE};

use super::Members;
use crate::memory::MemoryDevice;

const BLOCK: usize = 4096;

/// A structure that is in use on a member.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) what: &'static str,
    pub(crate) member: usize,
    pub(crate) bytes: Range<u64>,
}

pub(crate) fn salt(d: &MemoryDevice, place: u64) -> Salt {
    let label = d.label();
    Salt { group: label.group, member: label.member, place }
}

/// Every structure that a start depends on.
pub(crate) fn places(members: &Members) -> Vec<Place> {
    let mut out = Vec::new();
    for (member, d) in members.0.iter().enumerate() {
        let mut add = |what, at: u64, len: usize| out.push(Place { what, member, bytes: at..at + len as u64 });
        let (label, layout) = (d.label(), d.layout());
        add("label", LABEL_A, LABEL_SIZE);
        add("label", label_b(d.size), LABEL_SIZE);
        let mut blocks = journal_blocks(d);
        if let Some(last) = blocks.pop() {
            add("last commit", last, BLOCK);
        }
        blocks.into_iter().for_each(|at| add("journal", at, BLOCK));
        let root = layout.root_block(0, label.root_side);
        add("root", root, BLOCK);
        let rows = decode_root(&d.peek(root, BLOCK), 0, label.root_generation, &salt(d, root)).expect("sound");
        for (i, e) in rows.iter().enumerate().filter(|(_, e)| e.is_some()) {
            let at = layout.directory_block(i as u64, e.side());
            add("directory", at, BLOCK);
            for (page, e) in directory(d, at, i as u64, *e).into_iter().filter(|(_, e)| e.is_some()) {
                add("page", layout.page(page, e.side()), BLOCK);
            }
        }
        if label.members[member].tier == TierCode::Slow {
            (0..2).for_each(|side| add("away", layout.away_block(0, side), BLOCK));
        }
    }
    out
}

/// The entries of a page copy.
pub(crate) fn entries(d: &MemoryDevice, at: u64) -> Box<[Entry; ENTRIES_PER_PAGE]> {
    page::decode(&d.peek(at, BLOCK), &salt(d, at)).expect("sound").1
}

/// Has a page copy say something else, with the same head and a good checksum: what a write that was lost, or a fault of the
/// engine, leaves.
pub(crate) fn forge(d: &MemoryDevice, at: u64, change: impl FnOnce(&mut [Entry; ENTRIES_PER_PAGE])) {
    let (head, mut entries) = page::decode(&d.peek(at, BLOCK), &salt(d, at)).expect("sound");
    change(&mut entries);
    let mut block = vec![0; BLOCK];
    page::encode(&mut block, &head, &entries, &salt(d, at));
    d.poke(at, &block);
}

pub(crate) fn directory(d: &MemoryDevice, at: u64, index: u64, e: Expected) -> Vec<(u32, Expected)> {
    let rows = decode_directory(&d.peek(at, BLOCK), index, e.generation(), &salt(d, at)).expect("sound");
    (index as u32 * PAGES_PER_DIRECTORY as u32..).zip(rows).collect()
}

/// Places of the journal blocks that a start replays. (The commits of the sample have one block each.)
pub(crate) fn journal_blocks(d: &MemoryDevice) -> Vec<u64> {
    let (label, layout) = (d.label(), d.layout());
    let mut out = Vec::new();
    let (mut at, mut hash) = (label.journal_tail, label.journal_tail_hash);
    loop {
        let place = layout.journal_block(at);
        match journal::decode(&d.peek(place, BLOCK), &salt(d, place)) {
            Ok((head, _, own)) if head.sequence == at && head.previous == hash => hash = own,
            _ => return out,
        }
        out.push(place);
        at += 1;
    }
}

/// Words that a finding or error must have when this structure is damaged.
pub(crate) fn expected_words(what: &str) -> &'static str {
    match what {
        "label" => "label",
        "journal" | "last commit" => "journal",
        "root" | "directory" => "page directory",
        "page" => "map page",
        _ => "away",
    }
}
