//! Step 5: what follows from the map: which slots are taken, how many chunks live where, and whether two chunks claim
//! one slot (C7.3).

use std::collections::{BTreeMap, BTreeSet};

use bimetal_format::Entry;

use super::{Finding, OpenError};
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::kept_slot;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, SlotId};

pub(super) fn settle<E: Env>(core: &Core<E>) -> Result<(), OpenError> {
    let doubles = take_slots(core);
    take_kept(core);
    if doubles.is_empty() || mutant::on(Mutant::C7DoubleHomes) {
        set_limits(core);
        return Ok(());
    }
    for (slot, claimants) in claimants(core, &doubles) {
        let losers = losers(&claimants);
        let all: Vec<String> = claimants.iter().map(|(c, _)| c.0.to_string()).collect();
        let kept =
            if losers.len() < claimants.len() { "the newest is kept, the others read" } else { "all of them read" };
        core.findings.borrow_mut().push(Finding::serious(format!(
            "chunks {} claim the same slot, {} of member {}; {kept} as errors",
            all.join(", "),
            slot.slot,
            slot.member
        )));
        core.damaged_chunks.borrow_mut().extend(losers);
    }
    if core.writable {
        let what = "two chunks claim one slot".to_string();
        return Err(OpenError::Damaged { name: core.name.clone(), what });
    }
    set_limits(core);
    Ok(())
}

/// Takes the slot of every mapped chunk; gives the slots that were taken already.
fn take_slots<E: Env>(core: &Core<E>) -> BTreeSet<SlotId> {
    let mut doubles = BTreeSet::new();
    let map = core.map.borrow();
    for (chunk, e) in map.mapped() {
        let slot = SlotId { member: e.member, slot: e.slot };
        if !core.members[e.member as usize].free.borrow_mut().take_exact(e.slot) {
            doubles.insert(slot);
        }
        core.set_occupant(slot, Some(chunk));
        core.count_chunk(chunk, e.member, 1);
    }
    doubles
}

/// Takes the slots of kept copies. If one is another chunk's too, no copy is believed: the labels will say so.
fn take_kept<E: Env>(core: &Core<E>) {
    let mut map = core.map.borrow_mut();
    let copies: Vec<(ChunkId, Entry)> = map.mapped().filter(|(_, e)| kept_slot(e).is_some()).collect();
    let mut taken = Vec::with_capacity(copies.len());
    for slot in copies.iter().filter_map(|(_, e)| kept_slot(e)) {
        if core.members[slot.member as usize].free.borrow_mut().take_exact(slot.slot) {
            taken.push(slot);
        }
    }
    let void = taken.len() < copies.len() && !mutant::any();
    if void {
        core.kept.count_from(None);
        let what = "kept copies on slow members contradict the map; none of them is used".to_string();
        core.findings.borrow_mut().push(Finding::mended(what));
        taken.iter().for_each(|s| core.members[s.member as usize].free.borrow_mut().give(s.slot));
    }
    for (chunk, e) in copies {
        match void {
            true => map.set(chunk, e.without_kept()),
            false => core.count_copies(&Entry::default(), &e),
        }
    }
}

/// The chunks on each of `slots`, with the generations of their pages.
fn claimants<E: Env>(core: &Core<E>, slots: &BTreeSet<SlotId>) -> BTreeMap<SlotId, Vec<(ChunkId, u64)>> {
    let map = core.map.borrow();
    let mut found: BTreeMap<SlotId, Vec<(ChunkId, u64)>> = BTreeMap::new();
    for (chunk, e) in map.mapped() {
        let slot = SlotId { member: e.member, slot: e.slot };
        if slots.contains(&slot) {
            found.entry(slot).or_default().push((chunk, map.generation(chunk.page())));
        }
    }
    found
}

/// Those that cannot be the true owner. If no one is newer than all others, nobody can say who it is.
fn losers(claimants: &[(ChunkId, u64)]) -> Vec<ChunkId> {
    let newest = claimants.iter().map(|(_, g)| *g).max().unwrap_or(0);
    let one_newest = claimants.iter().filter(|(_, g)| *g == newest).count() == 1;
    claimants.iter().filter(|(_, g)| !one_newest || *g < newest).map(|(c, _)| *c).collect()
}

/// How many changes may be pending: what fits a quarter of the smallest journal (I10).
fn set_limits<E: Env>(core: &Core<E>) {
    let quarter = |m: &crate::member::Member<E::Device>| (m.layout.journal_blocks / 4) as usize * m.journal_records;
    core.commit.limit.set(core.members.iter().map(quarter).min().unwrap_or(1).max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_chunks_on_one_slot_only_a_newest_one_is_kept() {
        let chunks = |list: &[u64]| list.iter().map(|c| ChunkId(*c)).collect::<Vec<_>>();
        assert_eq!(losers(&[(ChunkId(1), 5), (ChunkId(2), 7)]), chunks(&[1]));
        assert_eq!(losers(&[(ChunkId(1), 5), (ChunkId(2), 7), (ChunkId(3), 6)]), chunks(&[1, 3]));
        assert_eq!(losers(&[(ChunkId(1), 7), (ChunkId(2), 7)]), chunks(&[1, 2]), "nobody knows whose it is");
        assert_eq!(losers(&[(ChunkId(1), 7), (ChunkId(2), 7), (ChunkId(3), 6)]), chunks(&[1, 2, 3]));
    }
}
