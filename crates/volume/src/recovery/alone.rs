//! Step 4, where no fast member knows the map, after a crash: what all slow members that are left know, each of its own slots.
//!
//! Terms: the *source* is the member whose map was loaded. A member *claims* a chunk if the newest that it knows says that the chunk
//! lives on it, or has a kept copy there.
//!
//! 1. A claim counts whatever others say: a slot is given to another chunk only after its own member's journal has heard that the last
//!    one left (C2.1). What another member says of that slot counts for nothing: it may be older.
//! 2. Of two claims of one chunk a home counts more than a copy, which nobody reads unasked; else that which was true last. The other
//!    member has not heard yet that the chunk left it, and what is there is as old as that. A move that was only prepared counts less
//!    than any home: writes in place raise no generation, so that one which was cancelled looks newer than what was written since.
//!    One that was made is confirmed to its target within seconds.
//! 3. What nobody claims is where the newest says that anybody knows. If that is on a slow member that was asked, the chunk is lost:
//!    that one has not heard of it, or of another chunk in its place.
//! 4. A page that is damaged on the source, and lent by nobody, is known by its claims only ([`crate::fate`]).

use std::collections::{BTreeMap, BTreeSet};

use bimetal_format::journal::RecordKind;
use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use super::belief::{all_pages, beliefs, Believed};
use super::pages::is_possible;
use super::replay::chunk_of;
use super::{Chain, Finding};
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::kept_slot;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Tier};

/// What a member has of a chunk, for all that it knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    None,
    Copy,
    Prepared,
    Home,
}

/// How much counts what a member knows of a chunk: its claim, then what was true last.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u64);

impl Weight {
    /// Generations end before.
    const NEWEST: u64 = (1 << 62) - 1;

    fn new(claim: Claim, generation: u64, prepared: bool) -> Weight {
        let prepared = prepared && claim == Claim::Home && !mutant::on(Mutant::C8PreparedIsNewer);
        let claim = if prepared { Claim::Prepared } else { claim };
        Weight((claim as u64) << 62 | generation.min(Weight::NEWEST))
    }
}

/// Pages of which all members are heard before the next: their weights take 64 MiB.
const MERGED_AT_ONCE: u32 = 1 << 15;

/// Weights of all entries of a page.
type PageWeights = Box<[Weight; ENTRIES_PER_PAGE]>;

/// The source's journal where it is newer than the pages that were loaded for it.
struct Loaded {
    in_pages: Vec<u64>,
    newer: BTreeMap<ChunkId, (u64, bool)>,
}

/// What is put together from all members.
struct Merge<'a, E: Env> {
    core: &'a Core<E>,
    source: MemberIndex,
    /// Members that say what is on them.
    asked: &'a BTreeSet<MemberIndex>,
    loaded: Loaded,
    /// Of pages that are being merged.
    weights: BTreeMap<u32, PageWeights>,
}

/// Puts into the map of the `source` what the other slow members claim, and out of it what they do not. `in_pages`: the generations of the
/// pages that were loaded, before any journal was replayed. Gives the number of pages that could not be read.
pub(super) async fn hear_all<E: Env>(
    core: &mut Core<E>,
    source: usize,
    chains: &[Option<Chain>],
    rebuild: &[bool],
    in_pages: Vec<u64>,
) -> u64 {
    let (asked, damaged): (Vec<MemberIndex>, Vec<MemberIndex>) =
        core.members_of(Tier::Slow).map(|m| m.index).partition(|m| !rebuild[*m as usize]);
    for m in damaged {
        let what = format!(
            "the map of member {m} is damaged or old, so that nobody can tell what is on it: that reads as errors"
        );
        core.findings.borrow_mut().push(Finding::serious(what));
    }
    if asked.len() < 2 || mutant::on(Mutant::C8OneBelieved) {
        return 0;
    }
    core.vouching.extend(&asked);
    let core = &*core;
    let chain = |m: MemberIndex| chains[m as usize].as_ref().expect("it is present");
    let source = source as MemberIndex;
    let loaded = Loaded::new(chain(source), in_pages);
    let mut merge = Merge { core, source, asked: &core.vouching, loaded, weights: BTreeMap::new() };
    merge.open_damaged_pages(chain(source));
    merge.drop_unclaimed();
    let mut unread = 0;
    let others: Vec<MemberIndex> = asked.into_iter().filter(|m| *m != source).collect();
    let all = all_pages(core);
    for first in all.clone().step_by(MERGED_AT_ONCE as usize) {
        let some = first..(first + MERGED_AT_ONCE).min(all.end);
        for m in &others {
            let member = &core.members[*m as usize];
            unread += beliefs(core, member, chain(*m), some.clone(), |_| true, |page| merge.hear(*m, &page)).await;
        }
        merge.weights.clear();
    }
    unread
}

impl Loaded {
    fn new(chain: &Chain, in_pages: Vec<u64>) -> Loaded {
        let known = chain.records.iter().filter(|(_, r)| (r.page as usize) < in_pages.len());
        let newer = known.filter(|(generation, r)| *generation >= in_pages[r.page as usize]);
        let newer = newer.map(|(generation, r)| (chunk_of(r), (*generation, r.kind == RecordKind::Prepared))).collect();
        Loaded { in_pages, newer }
    }

    fn age(&self, chunk: ChunkId) -> (u64, bool) {
        self.newer.get(&chunk).copied().unwrap_or((self.in_pages[chunk.page() as usize], false))
    }
}

impl<E: Env> Merge<'_, E> {
    /// Pages that are damaged on the source hold no data, as far as is known, but what its journal says.
    fn open_damaged_pages(&mut self, chain: &Chain) {
        let core = self.core;
        let damaged: Vec<u32> =
            (0..core.map.borrow().len() as u32).filter(|page| core.map.borrow().is_damaged(*page)).collect();
        for page in damaged {
            let mut map = core.map.borrow_mut();
            map.forget_page(page);
            // An empty one would be taken for one in which nothing was ever written.
            map.page_mut(page).expect("it is not damaged any more");
            core.partly_known.borrow_mut().insert(page);
        }
        for (generation, r) in chain.records.iter().filter(|(_, r)| core.is_partly_known(r.page)) {
            if is_possible(core, &r.entry.without_kept()) {
                let e = self.believed(self.source, *generation, r.entry);
                self.put(self.source, chunk_of(r), *generation, e);
            }
        }
    }

    /// What the source says of the slots of others that say themselves what is on them.
    fn drop_unclaimed(&mut self) {
        let on_others = |e: &Entry| {
            self.claim(self.source, e) == Claim::None && (self.speaks_for_itself(e) || kept_slot(e).is_some())
        };
        let others: Vec<(ChunkId, Entry)> = self.core.map.borrow().mapped().filter(|(_, e)| on_others(e)).collect();
        for (chunk, e) in others {
            self.put(self.source, chunk, self.loaded.age(chunk).0, e);
        }
    }

    /// Takes of what a member knows of a page what counts more than what is known so far.
    fn hear(&mut self, member: MemberIndex, page: &Believed<'_>) {
        let mut weights = self.weights.remove(&page.page).unwrap_or_else(|| self.weigh_source(page.page));
        let first = u64::from(page.page) * ENTRIES_PER_PAGE as u64;
        for (i, (e, known)) in page.entries.iter().zip(weights.iter_mut()).enumerate() {
            let (generation, prepared) = page.age(i);
            if !is_possible(self.core, &e.without_kept()) {
                continue;
            }
            let e = self.believed(member, generation, *e);
            let weight = Weight::new(self.claim(member, &e), generation, prepared);
            if weight > *known {
                *known = weight;
                self.put(member, ChunkId(first + i as u64), generation, e);
            }
        }
        self.weights.insert(page.page, weights);
    }

    fn weigh_source(&self, page: u32) -> PageWeights {
        let map = self.core.map.borrow();
        let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
        let weigh = |i: usize| {
            let chunk = ChunkId(first + i as u64);
            let (generation, prepared) = self.loaded.age(chunk);
            let claim = map.get(chunk).map_or(Claim::None, |e| self.claim(self.source, &e));
            Weight::new(claim, generation, prepared)
        };
        Box::new(std::array::from_fn(weigh))
    }

    /// A copy counts from the member's own label on, and as perhaps old only (C9).
    fn believed(&self, member: MemberIndex, generation: u64, e: Entry) -> Entry {
        let from = self.core.members[member as usize].label.borrow().mirrors_from;
        let counts = self.core.kept.may_be_old() && generation >= from && is_possible(self.core, &e);
        if counts {
            e
        } else {
            e.without_kept()
        }
    }

    fn claim(&self, member: MemberIndex, e: &Entry) -> Claim {
        match e.is_mapped() {
            true if e.member == member => Claim::Home,
            true if kept_slot(e).is_some_and(|kept| kept.member == member) => Claim::Copy,
            _ => Claim::None,
        }
    }

    /// Whether an entry is of a slow member that says itself what is on it.
    fn speaks_for_itself(&self, e: &Entry) -> bool {
        e.is_mapped() && self.asked.contains(&e.member)
    }

    /// Puts what a member says into the map.
    fn put(&self, member: MemberIndex, chunk: ChunkId, generation: u64, e: Entry) {
        let core = self.core;
        let mut damaged = core.damaged_chunks.borrow_mut();
        let mut map = core.map.borrow_mut();
        let newest = map.generation(chunk.page()).max(generation);
        map.set_generation(chunk.page(), newest);
        let claim = self.claim(member, &e) != Claim::None;
        let unclaimed = !claim && self.speaks_for_itself(&e) && !mutant::on(Mutant::C8UnclaimedServed);
        match unclaimed {
            true => damaged.insert(chunk),
            false => damaged.remove(&chunk),
        };
        map.set(
            chunk,
            match (claim, unclaimed) {
                (true, _) => e,
                (false, true) => Entry::default(),
                (false, false) => e.without_kept(),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_counts_more_than_a_copy_and_of_two_the_newer() {
        let by_weight = [
            Weight::new(Claim::None, 0, false),
            Weight::new(Claim::None, 9, false),
            Weight::new(Claim::Copy, 5, false),
            Weight::new(Claim::Home, 9, true),
            Weight::new(Claim::Home, 3, false),
            Weight::new(Claim::Home, 4, false),
            Weight::new(Claim::Home, u64::MAX, false),
        ];
        assert!(by_weight.windows(2).all(|w| w[0] < w[1]));
    }
}
