//! What a member itself holds for true: its own page copies, and the records of its own journal over them. A slow slot is
//! given to another chunk only after its own member's journal has heard that the last one left (C2.1): what such a
//! member still believes of its own slots is so.

use std::collections::BTreeMap;
use std::ops::Range;

use bimetal_format::journal::{Record, RecordKind};
use bimetal_format::{page, Entry, ENTRIES_PER_PAGE};

use super::pages::is_possible;
use super::replay::chunk_of;
use super::window::{batches, Window};
use super::Chain;
use crate::env::Env;
use crate::group::core::Core;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Tier};
use crate::wait;

type Entries = [Entry; ENTRIES_PER_PAGE];

/// What a member knows of a page.
pub(super) struct Believed<'a> {
    pub(super) page: u32,
    /// By index; what is not known of holds no data.
    pub(super) entries: &'a Entries,
    /// Generation of its copy of the page; 0 without a sound one.
    in_page: u64,
    /// What its journal has on that, with generations.
    newer: &'a [(u64, Record)],
}

impl Believed<'_> {
    /// The commit with which an entry was true last, for all that the member knows, and whether its move was only prepared then.
    pub(super) fn age(&self, index: usize) -> (u64, bool) {
        let last = self.newer.iter().rev().find(|(_, r)| chunk_of(r).index() == index);
        last.map_or((self.in_page, false), |(generation, r)| (*generation, r.kind == RecordKind::Prepared))
    }
}

/// Shows `visit` each of the `pages` that is `wanted` and `m` knows anything of. Of one whose copy is damaged that is what its journal says.
/// Gives the number of copies that could not be read.
pub(super) async fn beliefs<E: Env>(
    core: &Core<E>,
    m: &Member<E::Device>,
    chain: &Chain,
    pages: Range<u32>,
    wanted: impl Fn(u32) -> bool,
    mut visit: impl FnMut(Believed<'_>),
) -> u64 {
    let mut unread = 0;
    let mut records: BTreeMap<u32, Vec<(u64, Record)>> = BTreeMap::new();
    for (generation, r) in chain.records.iter().filter(|(_, r)| pages.contains(&r.page) && wanted(r.page)) {
        records.entry(r.page).or_default().push((*generation, *r));
    }
    for batch in batches(pages) {
        let reads =
            batch.into_iter().map(|window| Window::read(&core.env, m, window, |page, _| wanted(page))).collect();
        for read in wait::all(reads).await.into_iter().flatten() {
            for (page, expected, copy) in read.copies(m) {
                unread += u64::from(copy.is_none());
                let Some(Ok((head, mut entries))) = copy.map(|(bytes, salt)| page::decode(bytes, &salt)) else {
                    continue;
                };
                if head.page != page || head.generation < expected.generation() {
                    continue;
                }
                let newer = records.remove(&page).unwrap_or_default();
                show(page, &mut entries, head.generation, newer, &mut visit);
            }
        }
    }
    for (page, newer) in records {
        show(page, &mut [Entry::default(); ENTRIES_PER_PAGE], 0, newer, &mut visit);
    }
    unread
}

pub(super) fn all_pages<E: Env>(core: &Core<E>) -> Range<u32> {
    0..core.map.borrow().len() as u32
}

/// Records of a slow member are written after the page image that they follow, with the same generation.
fn show(
    page: u32,
    entries: &mut Entries,
    in_page: u64,
    mut newer: Vec<(u64, Record)>,
    visit: &mut impl FnMut(Believed<'_>),
) {
    newer.retain(|(generation, _)| *generation >= in_page);
    for (_, r) in &newer {
        entries[chunk_of(r).index()] = r.entry;
    }
    visit(Believed { page, entries, in_page, newer: &newer });
}

fn is_at_home(e: &Entry, member: MemberIndex) -> bool {
    e.is_mapped() && e.member == member
}

/// Behind a hole in the journal whose map was loaded: a chunk whose home on a slow member that one does not confirm is
/// lost, because the slot may be another's by now (I1). For fast slots there is nobody to ask; see [`crate::fate`].
pub(super) async fn confirm_slow_homes<E: Env>(core: &Core<E>, chains: &[Option<Chain>]) {
    for m in core.members_of(Tier::Slow) {
        let mut confirmed = std::collections::BTreeSet::new();
        if let Some(chain) = chains[m.index as usize].as_ref().filter(|c| !c.damaged) {
            beliefs(
                core,
                m,
                chain,
                all_pages(core),
                |_| true,
                |Believed { page, entries, .. }| {
                    let map = core.map.borrow();
                    let Some(loaded) = map.page(page) else { return };
                    let same =
                        |(a, b): (Entry, &Entry)| is_at_home(&a, m.index) && is_at_home(b, m.index) && a.slot == b.slot;
                    let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
                    let agreed = loaded.entries().zip(entries).enumerate().filter(|(_, pair)| same(*pair));
                    confirmed.extend(agreed.map(|(i, _)| first + i as u64));
                },
            )
            .await;
        }
        let map = core.map.borrow();
        let doubtful = map.mapped().filter(|(c, e)| is_at_home(e, m.index) && !confirmed.contains(&c.0));
        core.damaged_chunks.borrow_mut().extend(doubtful.map(|(c, _)| c));
    }
}

/// Of pages that no member has, in a group that is not written: what slow members know of their own slots, and the source's journal
/// of what has changed since. Other chunks of such a page may hold data that is lost, or none.
pub(super) async fn vouch<E: Env>(core: &Core<E>, source: usize, chains: &[Option<Chain>], rebuild: &[bool]) {
    let lost: Vec<u32> =
        (0..core.map.borrow().len() as u32).filter(|page| core.map.borrow().is_damaged(*page)).collect();
    if lost.is_empty() || core.members[source].tier != Tier::Fast || core.journal_gap.get() {
        return;
    }
    for page in &lost {
        let mut map = core.map.borrow_mut();
        map.forget_page(*page);
        // An empty one would be taken for one in which nothing was ever written.
        map.page_mut(*page).expect("it is not damaged any more");
    }
    core.partly_known.borrow_mut().extend(lost);
    for m in core.members_of(Tier::Slow).filter(|m| !rebuild[m.index as usize]) {
        let chain = chains[m.index as usize].as_ref().expect("it is present");
        beliefs(
            core,
            m,
            chain,
            all_pages(core),
            |page| core.is_partly_known(page),
            |Believed { page, entries, .. }| {
                let first = u64::from(page) * ENTRIES_PER_PAGE as u64;
                let home =
                    |e: &Entry| is_at_home(e, m.index) || (e.is_mapped() && mutant::on(Mutant::C5OthersVouchedFor));
                let own = |e: &Entry| home(e) && is_possible(core, &e.without_kept());
                for (i, e) in entries.iter().enumerate().filter(|(_, e)| own(e)) {
                    vouch_for(core, ChunkId(first + i as u64), e);
                }
            },
        )
        .await;
    }
    let chain = chains[source].as_ref().expect("the source is present");
    let mut map = core.map.borrow_mut();
    for (_, r) in chain.records.iter().filter(|(_, r)| core.is_partly_known(r.page)) {
        // It says whose the chunk is, whoever else had it before.
        core.damaged_chunks.borrow_mut().remove(&chunk_of(r));
        map.set(chunk_of(r), r.entry.without_kept());
    }
}

/// Two that say that a chunk lives on them cannot both be right, and which of them is is not known.
fn vouch_for<E: Env>(core: &Core<E>, chunk: ChunkId, e: &Entry) {
    let mut map = core.map.borrow_mut();
    if map.get(chunk).is_some_and(|known| known.is_mapped()) {
        core.damaged_chunks.borrow_mut().insert(chunk);
    }
    map.set(chunk, e.without_kept());
}
