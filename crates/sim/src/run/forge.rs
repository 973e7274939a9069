//! Metadata that no engine wrote, with correct checksums.

use std::collections::BTreeSet;
use std::ops::Range;

use bimetal_format::label::{Epoch, Label, LABEL_SIZE};
use bimetal_format::layout::{away_blocks, label_b, Layout, LABEL_A};
use bimetal_format::{journal, page, Salt};

use bimetal_volume::env::Device as _;

use crate::disk::{Cell, SimDisk, Store, BLOCK};

/// The label of a member, if its first copy is sound.
fn label(store: &Store, disk: usize) -> Option<Label> {
    let first = LABEL_A / BLOCK as u64;
    let blocks = first..first + (LABEL_SIZE / BLOCK) as u64;
    let bytes: Vec<u8> = blocks.flat_map(|b| store.durable(b).bytes(disk, b)).collect();
    Label::decode(&bytes, LABEL_A).ok()
}

/// Where everything lies on a member, if the first copy of its label is sound.
pub(super) fn layout(store: &Store, disk: usize) -> Option<Layout> {
    let label = label(store, disk)?;
    Layout::from_zones(&label.zones, label.device_size).ok()
}

/// The UUID of the member that a disk says it is.
pub(super) fn own_uuid(disk: &SimDisk) -> Option<[u8; 16]> {
    own_label(disk).map(|label| label.members[label.member as usize].uuid)
}

/// The epoch of the label of a disk.
pub(super) fn epoch(disk: &SimDisk) -> Option<Epoch> {
    own_label(disk).map(|label| label.epoch)
}

pub(super) fn own_label(disk: &SimDisk) -> Option<Label> {
    label_at(disk, LABEL_A).or_else(|| label_at(disk, label_b(disk.size())))
}

/// The label of a disk that counts.
pub(super) fn newest_label(disk: &SimDisk) -> Option<Label> {
    let both = [LABEL_A, label_b(disk.size())].into_iter().filter_map(|place| label_at(disk, place));
    both.max_by_key(|label| label.sequence)
}

fn label_at(disk: &SimDisk, place: u64) -> Option<Label> {
    let store = disk.store();
    let first = place / BLOCK as u64;
    let blocks = first..first + (LABEL_SIZE / BLOCK) as u64;
    let bytes: Vec<u8> = blocks.flat_map(|b| store.durable(b).bytes(disk.index(), b)).collect();
    Label::decode(&bytes, place).ok()
}

/// Whether this block of a member is one of its away bitmap.
pub(super) fn is_of_away(disk: &SimDisk, block: u64) -> bool {
    let layout = own_label(disk).and_then(|label| Layout::from_zones(&label.zones, label.device_size).ok());
    let zone = layout.map(|l| l.away_block(0, 0)..l.away_block(away_blocks(l.pages), 0));
    zone.is_some_and(|zone| zone.contains(&(block * BLOCK as u64)))
}

/// Blocks before `end` that hold sound map pages.
pub(super) fn pages(store: &Store, disk: usize, end: u64) -> Vec<u64> {
    let Some(label) = label(store, disk) else { return Vec::new() };
    let is_page = |block: &u64| {
        let salt = Salt { group: label.group, member: label.member, place: block * BLOCK as u64 };
        page::decode(&store.durable(*block).bytes(disk, *block), &salt).is_ok()
    };
    (LABEL_A / BLOCK as u64..end).filter(is_page).collect()
}

/// Whether the block before the tail of a journal is there, whose hash the label has, and counts for something: the group was in use.
pub(super) fn has_block_before_tail(disk: &SimDisk, label: &Label) -> bool {
    if label.clean || !label.epoch.confirmed || label.journal_tail == 0 {
        return false;
    }
    journal_block(disk, label, label.journal_tail - 1).is_some_and(|(_, own)| own == label.journal_tail_hash)
}

/// What the journal of a disk has in place of block `sequence`, if it is sound: its head and hash.
pub(super) fn journal_block(disk: &SimDisk, label: &Label, sequence: u64) -> Option<(journal::JournalHead, u64)> {
    let layout = Layout::from_zones(&label.zones, label.device_size).ok()?;
    let place = layout.journal_block(sequence);
    let bytes = disk.store().durable(place / BLOCK as u64).bytes(disk.index(), place / BLOCK as u64);
    let salt = Salt { group: label.group, member: label.member, place };
    journal::decode(&bytes, &salt).ok().map(|(head, _, own)| (head, own))
}

/// Sound journal blocks among `blocks`, each with its generation.
pub(super) fn journal_blocks(store: &Store, disk: usize, blocks: Range<u64>) -> Vec<(u64, u64)> {
    let Some(label) = label(store, disk) else { return Vec::new() };
    let generation = |block: u64| {
        let salt = Salt { group: label.group, member: label.member, place: block * BLOCK as u64 };
        let (head, ..) = journal::decode(&store.durable(block).bytes(disk, block), &salt).ok()?;
        Some((block, head.generation))
    };
    blocks.filter_map(generation).collect()
}

/// The journal blocks of the last so many commits since the last checkpoint; none if there are fewer.
pub(super) fn last_commits(store: &Store, disk: usize, blocks: Range<u64>, count: usize) -> Vec<u64> {
    let Some(label) = label(store, disk) else { return Vec::new() };
    let head = |block: u64| {
        let salt = Salt { group: label.group, member: label.member, place: block * BLOCK as u64 };
        let (head, records, _) = journal::decode(&store.durable(block).bytes(disk, block), &salt).ok()?;
        let counts = head.sequence >= label.journal_tail && head.epoch == label.epoch.id && !records.is_empty();
        counts.then_some((head.generation, block))
    };
    let found: Vec<(u64, u64)> = blocks.filter_map(head).collect();
    let generations: BTreeSet<u64> = found.iter().map(|(generation, _)| *generation).collect();
    let Some(first) = generations.iter().rev().nth(count - 1) else { return Vec::new() };
    found.iter().filter(|(generation, _)| generation >= first).map(|(_, block)| *block).collect()
}

/// Gives the last mapped chunk of every map page the home of the first one. `end` is the first block after the zones.
pub(super) fn double_homes(store: &mut Store, disk: usize, end: u64) {
    let Some(label) = label(store, disk) else { return };
    for block in pages(store, disk, end) {
        let salt = Salt { group: label.group, member: label.member, place: block * BLOCK as u64 };
        let mut bytes = store.durable(block).bytes(disk, block);
        let Ok((head, mut entries)) = page::decode(&bytes, &salt) else { continue };
        let mapped: Vec<usize> = (0..entries.len()).filter(|i| entries[*i].is_mapped()).collect();
        if let [owner, .., thief] = mapped[..] {
            (entries[thief].member, entries[thief].slot) = (entries[owner].member, entries[owner].slot);
            page::encode(&mut bytes, &head, &entries, &salt);
            store.put(block, Cell::from_bytes(&bytes));
        }
    }
}
