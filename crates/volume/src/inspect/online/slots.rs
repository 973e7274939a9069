//! Every chunk has a slot of its own, which is not free.

use std::collections::{BTreeMap, BTreeSet};

use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use super::Check;
use crate::env::Env;
use crate::error::Error;
use crate::inspect::check::wrong_content;
use crate::kept::{kept_slot, slots_of};
use crate::units::{ChunkId, SlotId, Tier};

/// Pages looked at without a pause.
const AT_ONCE: u32 = 64;

/// Slots that a chunk was seen to have, and those that two were: not at the same time, perhaps.
struct Seen {
    taken: Vec<Vec<u64>>,
    twice: BTreeSet<SlotId>,
}

impl Seen {
    fn take(&mut self, s: SlotId) {
        let Some(word) = self.taken[s.member as usize].get_mut(s.slot as usize / 64) else { return };
        let bit = 1 << (s.slot % 64);
        if *word & bit != 0 {
            self.twice.insert(s);
        }
        *word |= bit;
    }
}

impl<E: Env> Check<'_, E> {
    pub(super) async fn slots(&mut self) -> Result<(), Error> {
        let core = self.core;
        // More members than there are now, if some are added meanwhile.
        let words = |i| core.members.get(i).map_or(0, |m| m.free.borrow().count().div_ceil(64) as usize);
        let taken = (0..usize::from(u8::MAX) + 1).map(|i| vec![0; words(i)]).collect();
        let mut seen = Seen { taken, twice: BTreeSet::new() };
        let pages = core.map.borrow().len() as u32;
        let mut begun = core.env.now();
        for page in 0..pages {
            for (chunk, e) in self.on_page(page) {
                self.look_at(chunk, &e, &mut seen);
            }
            if page % AT_ONCE == AT_ONCE - 1 {
                self.is_over(u64::from(AT_ONCE));
                self.rest(begun).await?;
                begun = core.env.now();
            }
        }
        let claimants = self.claimants(&seen.twice).await?;
        self.look_at_doubles(&claimants);
        for m in core.members.iter().filter(|m| m.is_present()) {
            let used = seen.taken[m.index as usize].iter().map(|w| u64::from(w.count_ones())).sum();
            let free = m.free.borrow().free();
            self.report.slots.push((m.index, used, free));
        }
        Ok(())
    }

    /// Chunks of a page that have a home.
    fn on_page(&self, page: u32) -> Vec<(ChunkId, Entry)> {
        let map = self.core.map.borrow();
        let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
        let entries = map.page(page).into_iter().flat_map(|p| p.entries().enumerate());
        entries.filter(|(_, e)| e.is_mapped()).map(|(i, e)| (ChunkId(first + i as u64), e)).collect()
    }

    fn look_at(&mut self, chunk: ChunkId, e: &Entry, seen: &mut Seen) {
        self.report.chunks += 1;
        self.report.kept += u64::from(kept_slot(e).is_some());
        for s in slots_of(e) {
            seen.take(s);
            if let Some(what) = self.wrong_slot(chunk, s, kept_slot(e) == Some(s)) {
                self.note(s.member, true, what);
            }
        }
        if let Some(what) = wrong_content(self.core, chunk, e) {
            self.note(None, true, what);
        }
    }

    fn wrong_slot(&self, chunk: ChunkId, s: SlotId, copy: bool) -> Option<String> {
        let m = &self.core.members[s.member as usize];
        if u64::from(s.slot) >= m.free.borrow().count() {
            return Some(format!("chunk {} has slot {}, which does not exist", chunk.0, s.slot));
        }
        if m.free.borrow().is_free(s.slot) {
            return Some(format!("chunk {} has slot {}, which is free", chunk.0, s.slot));
        }
        let lives_there = copy || m.tier != Tier::Fast || m.occupants.borrow().get(s.slot) == Some(chunk);
        (!lives_there).then(|| format!("chunk {} has slot {}, which is another's", chunk.0, s.slot))
    }

    /// Chunks that have, or had a moment ago, one of these slots.
    async fn claimants(&self, twice: &BTreeSet<SlotId>) -> Result<BTreeMap<SlotId, Vec<ChunkId>>, Error> {
        let mut found: BTreeMap<SlotId, Vec<ChunkId>> = BTreeMap::new();
        let pages = if twice.is_empty() { 0 } else { self.core.map.borrow().len() as u32 };
        let mut begun = self.core.env.now();
        for page in 0..pages {
            for (chunk, e) in self.on_page(page) {
                slots_of(&e).filter(|s| twice.contains(s)).for_each(|s| found.entry(s).or_default().push(chunk));
            }
            if page % AT_ONCE == AT_ONCE - 1 {
                self.rest(begun).await?;
                begun = self.core.env.now();
            }
        }
        Ok(found)
    }

    /// Which of them share a slot at this very moment.
    fn look_at_doubles(&mut self, claimants: &BTreeMap<SlotId, Vec<ChunkId>>) {
        for (slot, chunks) in claimants {
            let map = self.core.map.borrow();
            let has = |c: &&ChunkId| map.get(**c).is_some_and(|e| slots_of(&e).any(|s| s == *slot));
            let owners: Vec<String> = chunks.iter().filter(has).map(|c| c.0.to_string()).collect();
            drop(map);
            if owners.len() > 1 {
                let what = format!("chunks {} have the same slot, {}", owners.join(", "), slot.slot);
                self.note(slot.member, true, what);
            }
        }
    }
}
