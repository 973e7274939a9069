//! What is on a member.

use std::ops::Range;

use bimetal_format::ENTRIES_PER_PAGE;

use super::AGAIN;
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::kept_slot;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, SlotIndex, Tier};
use crate::wait;

/// Pages of the map looked through without a pause.
const PAGES_AT_ONCE: u32 = 512;
/// Fast slots in which copies are looked for without a pause.
const COPIES_AT_ONCE: u64 = 1 << 14;
/// Slots whose chunks are sorted without a pause.
const PART: usize = 1 << 14;

impl<E: Env> Core<E> {
    /// The chunks that live in these slots of `m`, in the order of the slots: so they are read without seeks, whatever order
    /// they have in their volumes.
    pub(super) async fn find_on(&self, m: MemberIndex, slots: Range<SlotIndex>) -> Vec<ChunkId> {
        // In parts, so that nobody waits while they are sorted.
        let part = |slot: SlotIndex| (slot - slots.start) as usize / PART;
        let mut found = vec![Vec::new(); slots.len().div_ceil(PART)];
        let pages = self.map.borrow().len() as u32;
        for page in 0..pages {
            if let Some(p) = self.map.borrow().page(page) {
                let start = u64::from(page) * ENTRIES_PER_PAGE as u64;
                for (i, e) in p.entries().enumerate().filter(|(_, e)| e.is_mapped()) {
                    let chunk = ChunkId(start + i as u64);
                    if e.member == m && slots.contains(&e.slot) {
                        found[part(e.slot)].push((e.slot, chunk));
                    }
                }
            }
            if (page + 1) % PAGES_AT_ONCE == 0 {
                wait::turn().await;
            }
        }
        let mut sorted = Vec::with_capacity(found.iter().map(Vec::len).sum());
        for mut part in found {
            part.sort_unstable();
            sorted.extend(part.into_iter().map(|(_, c)| c));
            wait::turn().await;
        }
        sorted
    }

    /// How many of these chunks, from the first on, lie in so many runs of slots of `m`. They are given in the order of their slots.
    pub(super) fn in_runs(&self, m: MemberIndex, chunks: &[ChunkId], runs: usize) -> usize {
        let (map, mut last, mut begun) = (self.map.borrow(), None, 0);
        for (n, chunk) in chunks.iter().enumerate() {
            let Some(e) = map.get(*chunk).filter(|e| e.is_mapped() && e.member == m) else { continue };
            begun += usize::from(last.is_none_or(|s: SlotIndex| s + 1 != e.slot));
            if begun > runs {
                return n;
            }
            last = Some(e.slot);
        }
        chunks.len()
    }

    /// Drops the kept copies on all members that leave: nothing goes down to them any more. A chunk that is on the move keeps its own
    /// for now.
    pub(super) async fn drop_copies_on_leavers(&self) {
        let leaves = |m: &Member<E::Device>| m.standing.get() == Standing::Leaving;
        let any = self.members.iter().any(|m| leaves(m) && m.copies.get() > 0);
        if !any || mutant::on(Mutant::C9DownToLeaver) {
            return;
        }
        // Who has a copy lives on the fast tier.
        for slot in 0..self.slots_present(Tier::Fast) {
            if slot % COPIES_AT_ONCE == COPIES_AT_ONCE - 1 {
                wait::turn().await;
            }
            let has = |c: &ChunkId| self.copy_at(*c).is_some_and(|s| leaves(&self.members[s.member as usize]));
            let Some(chunk) = self.chunk_in_fast(slot).filter(has) else { continue };
            while !self.commit.has_room(1) && self.evacuates() {
                self.commit.want_next();
                wait::first(self.commit.done.wait(), self.env.sleep(AGAIN)).await;
            }
            if self.evacuates() && has(&chunk) && !self.claims.in_motion(chunk) {
                let entry = self.map.borrow().get(chunk).expect("it was just found there");
                self.change_entry(chunk, entry.without_kept());
            }
        }
        self.commit.want_next();
    }

    fn copy_at(&self, chunk: ChunkId) -> Option<SlotId> {
        self.map.borrow().get(chunk).and_then(|e| kept_slot(&e))
    }
}
