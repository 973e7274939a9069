//! For a repair: members whose labels are both damaged, by what else lies on them.
//!
//! The blocks of the away bitmap are on every member from the beginning, and their checksums say of which member of which
//! group they are, and where they lie. With the rows of the other members' tables that is all there is to know but what the
//! labels knew alone: which map and journal were current. So nothing on such a device is believed but the data in its slots,
//! and its map is written anew.

use bimetal_format::away;
use bimetal_format::label::{Label, MemberCode, MemberRow};
use bimetal_format::layout::{away_blocks, default_journal_blocks, Layout};
use bimetal_format::{Salt, BLOCK};

use super::{Found, Identified};
use crate::buf::BufMut;
use crate::env::{Device, Env};

/// Takes devices without a sound label for members of the group that the others belong to, where they prove to be.
pub(super) async fn recognise<E: Env>(env: &E, identified: &mut Identified<E::Device>) {
    let counting = identified.found.iter().map(|f| &f.label).filter(|l| !l.joining);
    let Some(base) = counting.max_by_key(|l| (l.tables, l.epoch.first_generation)).cloned() else { return };
    let mut rest = Vec::new();
    for (position, why, device) in std::mem::take(&mut identified.unusable) {
        let known: Vec<u8> = identified.found.iter().map(|f| f.label.member).collect();
        let recognised = match (&device, why.is_newer()) {
            (Some(device), false) => who_is(env, device, &base, &known).await,
            _ => None,
        };
        match (recognised, device) {
            (Some(label), Some(device)) => {
                let problems = vec![format!(
                    "member {}: both of its labels are damaged; it was recognised by what else is on it",
                    label.member
                )];
                identified.found.push(Found { device, label, position, weaker: 0, problems, recognised: true });
            }
            (_, device) => rest.push((position, why, device)),
        }
    }
    identified.unusable = rest;
}

/// A label for a device that is a member which is not `known` yet.
async fn who_is<E: Env>(env: &E, device: &E::Device, base: &Label, known: &[u8]) -> Option<Label> {
    let rows = base.members.iter().enumerate().map(|(i, row)| (i as u8, row));
    for (index, row) in rows.filter(|(i, row)| row.state != MemberCode::Left && !known.contains(i)) {
        if device.size() < row.size {
            continue;
        }
        for layout in layouts(base, row) {
            if is_member(device, base, index, &layout).await {
                return Some(label_of(env, base, index, &layout));
            }
        }
    }
    None
}

/// How a member of this row may be laid out: the number of its journal blocks is in its own label alone.
fn layouts(base: &Label, row: &MemberRow) -> Vec<Layout> {
    let own = base.layout();
    let mut journals = vec![default_journal_blocks(row.size), own.journal_blocks as u32];
    journals.dedup();
    let planned = journals.into_iter().filter_map(|blocks| Layout::plan(row.size, own.pages, blocks).ok());
    planned.filter(|l| l.slot_count == u64::from(row.slots)).collect()
}

/// Whether any block of the away bitmap is where this member would have it.
async fn is_member<D: Device>(device: &D, base: &Label, index: u8, layout: &Layout) -> bool {
    for block in 0..away_blocks(layout.pages) {
        for side in 0..2 {
            let place = layout.away_block(block, side);
            let (buf, result) = device.read(place, BufMut::new(BLOCK)).await;
            let salt = Salt { group: base.group, member: index, place };
            if result.is_ok() && away::decode(&buf, block, &salt).is_ok() {
                return true;
            }
        }
    }
    false
}

fn label_of<E: Env>(env: &E, base: &Label, index: u8, layout: &Layout) -> Label {
    let tail = env.random() >> 24;
    let mut label = Label {
        member: index,
        device_size: base.members[index as usize].size,
        zones: layout.zones(),
        clean: false,
        journal_tail: tail,
        journal_tail_hash: env.random(),
        journal_end: tail,
        checkpoint_generation: 0,
        root_generation: 0,
        root_side: 0,
        ..base.clone()
    };
    label.add_keys_zone();
    label
}
