//! Relief of the slow tier: chunks that may live on both tiers come up where they take what volumes bound to the slow tier were
//! promised (I5). So it is after a repair without a disk that has died, and while a volume is being bound to a slow tier that is
//! full. There is room above then: all that is promised fits the group as a whole.

use std::cell::Cell;
use std::rc::Rc;

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use super::{Job, Policy};
use crate::env::Env;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, Placement, Tier};

/// Pages of the map looked through without a pause.
const PAGES_AT_ONCE: usize = 1024;

/// Where the map is looked through next.
#[derive(Default)]
pub(crate) struct Cursor {
    page: Cell<usize>,
    /// Pages looked through since a chunk was found.
    in_vain: Cell<usize>,
}

impl<E: Env> Core<E> {
    /// Slow slots that volumes bound to the slow tier were promised, and that are neither free nor on their way to it.
    pub(crate) fn owed_below(&self) -> u64 {
        let owed = self.volumes.promised(Placement::SlowOnly) + self.set_aside(Tier::Slow);
        let coming: u64 = self.open_to_chunks(Tier::Slow).map(|m| m.on_the_way.get()).sum();
        match mutant::on(Mutant::I5OwedBelowForEver) {
            true => 0,
            false => owed.saturating_sub(self.free_in(Tier::Slow) + coming + self.kept.count()),
        }
    }

    /// Sends so many chunks up, or fewer. False if there are none in the whole map.
    pub(super) fn relieve(self: &Rc<Self>, wanted: usize) -> bool {
        let chunks = self.next_to_come_up(wanted);
        let begun = self.begin_batch(Job::Promote, chunks);
        let cursor = &self.mover.relief;
        if begun > 0 {
            cursor.in_vain.set(0);
        }
        cursor.in_vain.get() < self.map.borrow().len()
    }

    fn next_to_come_up(&self, wanted: usize) -> Vec<ChunkId> {
        let (map, cursor, mut found) = (self.map.borrow(), &self.mover.relief, Vec::new());
        let policy = self.policy.borrow();
        let leaves = |e: &Entry| {
            let m = &self.members[e.member as usize];
            m.tier == Tier::Slow && m.takes_slots()
        };
        for _ in 0..PAGES_AT_ONCE.min(map.len()) {
            let page = cursor.page.get() % map.len();
            let first = page as u64 * ENTRIES_PER_PAGE as u64;
            // A page belongs to one volume.
            if self.placement_of(ChunkId(first)) == Some(Placement::Auto) {
                let entries = map.page(page as u32).into_iter().flat_map(|p| p.entries());
                let there = entries.enumerate().filter(|(_, e)| e.is_mapped() && leaves(e));
                let may = |c: &ChunkId| !self.claims.in_motion(*c) && !policy.has_to_wait(&self.view(), *c);
                let chunks = there.map(|(i, _)| ChunkId(first + i as u64)).filter(may);
                found.extend(chunks.take(wanted - found.len()));
            }
            if found.len() == wanted {
                break;
            }
            cursor.page.set(page + 1);
            cursor.in_vain.set(cursor.in_vain.get() + 1);
        }
        found
    }
}
