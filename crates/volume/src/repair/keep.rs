//! What is kept of the map.

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use crate::env::Env;
use crate::fate::Fate;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::slots::FreeSlots;
use crate::units::ChunkId;
use crate::wait;

/// Pages looked at without a pause.
const AT_ONCE: usize = 256;

/// Reduces the map to what is kept, as of `generation`. The number of chunks of which something is given up comes back.
pub(super) async fn reduce<E: Env>(core: &Core<E>, generation: u64) -> u64 {
    let pages: Vec<u32> = (0..core.map.borrow().len() as u32).filter(|page| is_known(core, *page)).collect();
    for m in core.members.iter() {
        let count = m.free.borrow().count();
        m.free.replace(FreeSlots::new(count));
    }
    let mut given_up = 0;
    for (n, page) in pages.into_iter().enumerate() {
        if n % AT_ONCE == 0 {
            wait::turn().await;
        }
        let entries: Vec<(Entry, bool)> = chunks_of(page).map(|c| kept(core, c)).collect();
        given_up += entries.iter().filter(|(_, whole)| !whole).count() as u64;
        let mut map = core.map.borrow_mut();
        if map.is_damaged(page) {
            map.forget_page(page);
        }
        for (chunk, (entry, _)) in chunks_of(page).zip(entries) {
            map.set(chunk, entry);
        }
        map.set_generation(page, generation);
    }
    given_up
}

fn chunks_of(page: u32) -> impl Iterator<Item = ChunkId> {
    let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
    (first..first + ENTRIES_PER_PAGE as u64).map(ChunkId)
}

/// Whether any member may know anything of a page.
fn is_known<E: Env>(core: &Core<E>, page: u32) -> bool {
    let map = core.map.borrow();
    let named = || core.members.iter().any(|m| m.directory.borrow().pages.get(page as usize).is_some());
    map.is_damaged(page) || map.page(page).is_some() || map.generation(page) > 0 || named()
}

/// What is kept of a chunk, and whether that is all of it.
fn kept<E: Env>(core: &Core<E>, chunk: ChunkId) -> (Entry, bool) {
    let nothing = Entry::default();
    if core.volume_of(chunk).is_none() {
        return (nothing, true);
    }
    let known = core.known(chunk);
    let served = |fate| core.is_served(fate) || mutant::on(Mutant::RepairKeepsDoubt);
    let whole = known.fate(true) == Fate::Whole || known.mask() == 0;
    let whole = whole && known.fate(false) == Fate::NeverWritten;
    if known.mask() == 0 || !served(known.fate(true)) {
        return (nothing, whole);
    }
    let entry = known.entry.without_kept();
    // Its slot is its own: what two chunks claim is served to neither, or to one.
    let own = core.members[entry.member as usize].free.borrow_mut().take_exact(entry.slot);
    match own || mutant::any() {
        true => (entry, whole),
        false => (nothing, false),
    }
}
