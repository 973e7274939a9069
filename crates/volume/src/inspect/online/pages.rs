//! Copies of map pages.

use bimetal_format::{page, Entry, ENTRIES_PER_PAGE};

use super::{Check, Damaged};
use crate::buf::BufMut;
use crate::env::Env;
use crate::error::Error;
use crate::member::Member;
use crate::units::{ChunkId, Tier, BLOCK};
use crate::wait;

/// Pages read side by side.
const WINDOW: usize = 64;
/// Pages of which no member has any, looked at without a pause.
const LOOKED_AT: u32 = 1 << 16;

impl<E: Env> Check<'_, E> {
    pub(super) async fn pages(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        let len = self.core.map.borrow().len() as u32;
        let mut next = 0;
        while next < len {
            let begun = self.core.env.now();
            let mut numbers = Vec::with_capacity(WINDOW);
            let limit = len.min(next + LOOKED_AT);
            while next < limit && numbers.len() < WINDOW {
                let named = m.directory.borrow().pages.get(next as usize).is_some();
                numbers.extend(named.then_some(next));
                next += 1;
            }
            self.is_over(numbers.len() as u64);
            let found = wait::all(numbers.iter().map(|n| self.page(m, *n)).collect()).await;
            for (number, found) in numbers.into_iter().zip(found) {
                match found {
                    Some(Ok(())) => self.report.pages += 1,
                    Some(Err(what)) => {
                        damaged.pages.insert(number);
                        self.note_whole(m, format!("map page {number} {what}"));
                    }
                    None => {}
                }
            }
            self.rest(begun).await?;
        }
        Ok(())
    }

    /// What is wrong with a page copy; nothing if another one is current by now.
    async fn page(&self, m: &Member<E::Device>, number: u32) -> Option<Result<(), String>> {
        let expected = m.directory.borrow().pages.get(number as usize);
        let place = m.layout.page(number, expected.side());
        let read = m.read(place, BufMut::new(BLOCK as usize)).await;
        if m.directory.borrow().pages.get(number as usize) != expected {
            return None;
        }
        let Ok(bytes) = read else { return Some(Err("cannot be read".into())) };
        let (head, entries) = match page::decode(&bytes, &m.salt(place)) {
            Ok(found) => found,
            Err(e) => return Some(Err(format!("is damaged: {e}"))),
        };
        if head.page != number || head.generation < expected.generation() {
            return Some(Err("is an older one, or another".into()));
        }
        Some(match self.differs(number, head.generation, &entries) {
            Some(i) => Err(format!("is not what the group knows: entry {i}")),
            None => Ok(()),
        })
    }

    /// The first entry of a copy that is not what the newest durable commit says, if no commit has changed the page since.
    fn differs(&self, number: u32, generation: u64, entries: &[Entry; ENTRIES_PER_PAGE]) -> Option<usize> {
        let core = self.core;
        let map = core.map.borrow();
        // A slow member alone knows more by its journal than its pages say, at the same generation.
        let guessed = core.members[core.authority as usize].tier == Tier::Slow && !core.writable;
        if map.generation(number) > generation || map.is_damaged(number) || core.is_partly_known(number) || guessed {
            return None;
        }
        let first = u64::from(number) * ENTRIES_PER_PAGE as u64;
        let homes = |e: &Entry| e.is_mapped().then(|| (e.flags, e.member, e.slot, e.mask, e.kept()));
        (0..ENTRIES_PER_PAGE).find(|i| {
            let chunk = ChunkId(first + *i as u64);
            let known = core.commit.durable_entry(chunk, map.get(chunk).unwrap_or_default());
            // Kept copies that were there before this start count for it, if the group was stopped in order; not for the next.
            let read = [entries[*i], core.kept.believed(generation, entries[*i])];
            !read.iter().any(|e| homes(e) == homes(&known))
        })
    }
}
