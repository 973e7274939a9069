//! Step 5: what follows from the map: which slots are taken, how many chunks live where, and whether two chunks claim
//! one slot (C7.3).

use super::OpenError;
use crate::env::Env;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, SlotId};

pub(super) fn settle<E: Env>(core: &Core<E>) -> Result<(), OpenError> {
    let doubles = take_slots(core);
    if doubles.is_empty() || mutant::on(Mutant::C7DoubleHomes) {
        set_limits(core);
        return Ok(());
    }
    for slot in doubles {
        let loser = older_on(core, slot);
        core.findings.borrow_mut().push(format!(
            "chunk {} and another are both on slot {} of member {}; the newer one is kept, this one reads as an error",
            loser.0, slot.slot, slot.member
        ));
        core.damaged_chunks.borrow_mut().insert(loser);
    }
    if core.writable {
        let what = "two chunks claim one slot".to_string();
        return Err(OpenError::Damaged { name: core.name.clone(), what });
    }
    set_limits(core);
    Ok(())
}

/// Takes the slot of every mapped chunk; gives the slots that were taken already.
fn take_slots<E: Env>(core: &Core<E>) -> Vec<SlotId> {
    let mut doubles = Vec::new();
    let map = core.map.borrow();
    for (chunk, e) in map.mapped() {
        let slot = SlotId { member: e.member, slot: e.slot };
        if !core.members[e.member as usize].free.borrow_mut().take_exact(e.slot) {
            doubles.push(slot);
        }
        core.set_chunk_of(slot, chunk.0 as u32);
        core.count_chunk(chunk, e.member, 1);
    }
    doubles
}

/// Of the chunks on one slot, the one whose page is older.
fn older_on<E: Env>(core: &Core<E>, slot: SlotId) -> ChunkId {
    let map = core.map.borrow();
    let on_slot = map.mapped().filter(|(_, e)| e.member == slot.member && e.slot == slot.slot);
    on_slot.map(|(c, _)| c).min_by_key(|c| map.generation(c.page())).expect("found on the slot before")
}

/// How many changes may be pending: what fits a quarter of the smallest fast journal (I10).
fn set_limits<E: Env>(core: &Core<E>) {
    let fast = core.members_of(crate::units::Tier::Fast).map(|m| m.layout.journal_blocks / 4).min().unwrap_or(1);
    core.commit.limit.set(fast.max(1) as usize * bimetal_format::journal::RECORDS_PER_BLOCK);
}
