//! Relief of the slow tier: chunks that may live on both tiers come up where they take what volumes bound to the slow tier were
//! promised (I5). So it is after a repair without a disk that has died, and while a volume is being bound to a slow tier that is
//! full. There is room above then: all that is promised fits the group as a whole.
//!
//! Those that are used again come first, then whatever the map names next. A *pass* goes to the end of the map; one in which nothing
//! could be moved is followed by a pause.

use std::cell::Cell;
use std::rc::Rc;

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use super::{Job, Policy};
use crate::env::Env;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, Placement, Tier};

/// Pages of the map looked through without a pause, and pages skipped at a time because nothing lives there.
const PAGES_AT_ONCE: usize = 1024;
const SKIPPED_AT_ONCE: u64 = 1 << 18;

/// Where the map is looked through next.
#[derive(Default)]
pub(crate) struct Cursor {
    page: Cell<u64>,
    /// Something was moved in this pass.
    moved: Cell<bool>,
}

impl<E: Env> Core<E> {
    /// Slow slots that volumes bound to the slow tier were promised, and that are neither free nor on their way to it.
    pub(crate) fn owed_below(&self) -> u64 {
        let owed = self.volumes.promised(Placement::SlowOnly) + self.set_aside(Tier::Slow);
        let coming: u64 = self.open_to_chunks(Tier::Slow).map(|m| m.on_the_way.get()).sum();
        let taken = self.rehomed(Tier::Slow);
        match mutant::on(Mutant::I5OwedBelowForEver) {
            true => 0,
            false => owed.saturating_sub(self.free_in(Tier::Slow) + coming + self.copies() + taken),
        }
    }

    /// Sends so many chunks up, or fewer: `hot` ones first, that the policy has named. False after a pass in vain.
    pub(super) fn relieve(self: &Rc<Self>, hot: Vec<ChunkId>, wanted: usize) -> bool {
        let (hot, elsewhere) = hot.into_iter().partition(|c| self.takes_room_below(*c));
        let elsewhere: Vec<ChunkId> = elsewhere;
        elsewhere.iter().for_each(|c| self.policy.borrow_mut().gave_up(&mut self.view(), *c));
        let mut begun = self.begin_batch(Job::Promote, hot);
        if begun >= wanted {
            return true;
        }
        let (chunks, ended) = self.next_to_come_up(wanted - begun);
        begun += self.begin_batch(Job::Promote, chunks);
        let cursor = &self.mover.relief;
        let moved = begun > 0 || cursor.moved.get();
        cursor.moved.set(moved && !ended);
        moved || !ended
    }

    fn takes_room_below(&self, chunk: ChunkId) -> bool {
        self.entry(chunk).is_ok_and(|e| e.is_mapped() && self.leaves_room(&e))
    }

    /// Whether a bound volume could have the slot of this entry.
    fn leaves_room(&self, e: &Entry) -> bool {
        let m = &self.members[e.member as usize];
        m.tier == Tier::Slow && m.takes_slots()
    }

    /// So many chunks or fewer, and whether the pass has ended.
    fn next_to_come_up(&self, wanted: usize) -> (Vec<ChunkId>, bool) {
        let (map, policy, cursor) = (self.map.borrow(), self.policy.borrow(), &self.mover.relief);
        let may = |c: &ChunkId| !self.claims.in_motion(*c) && !policy.has_to_wait(&self.view(), *c);
        let (mut found, still) = (Vec::new(), self.standing_still());
        for _ in 0..PAGES_AT_ONCE {
            let next = self.volumes.auto_from(ChunkId(cursor.page.get() * ENTRIES_PER_PAGE as u64));
            let Some(page) = next.map(|c| c.page()).filter(|page| (*page as usize) < map.len()) else {
                cursor.page.set(0);
                return (found, true);
            };
            let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
            let unused = map.unused_from(ChunkId(first), SKIPPED_AT_ONCE);
            let entries = map.page(page).into_iter().flat_map(|p| p.entries());
            let there =
                entries.enumerate().filter(|(_, e)| e.is_mapped() && self.leaves_room(e) && !still.has(e.member));
            let chunks = there.map(|(i, _)| ChunkId(first + i as u64)).filter(may);
            found.extend(chunks.take(wanted - found.len()));
            // More may be found in this page when it is looked at again.
            cursor.page.set(u64::from(page) + if found.len() < wanted { unused.max(1) } else { 0 });
            if found.len() == wanted {
                break;
            }
        }
        (found, false)
    }
}
