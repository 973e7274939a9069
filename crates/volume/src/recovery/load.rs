//! Step 3: which member's map is the group's, and its pages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bimetal_format::directory::Expected;
use bimetal_format::journal::RecordKind;
use bimetal_format::{page, Entry};

use super::assemble::{describe, Absent};
use super::belief::{confirm_slow_homes, own_chunks, vouch};
use super::elsewhere::{load_elsewhere, Behind, Elsewhere};
use super::patience::read_patiently;
use super::replay::chunk_of;
use super::window::{batches, Window};
use super::{read_chain, Chain, Finding, OpenError};
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::{kept_slot, slots_of};
use crate::member::directory::{Directory, DirectoryError};
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::tier::Policy;
use crate::units::{MemberIndex, SlotId, Tier};
use crate::wait;

/// What step 6 needs to know of the journals, by member.
pub(super) struct Source {
    pub(super) chains: Vec<Option<Chain>>,
    pub(super) best: usize,
    /// Members whose map must be written anew.
    pub(super) rebuild: Vec<bool>,
    /// Members without a sound label, which only a repair opens.
    pub(super) recognised: Vec<MemberIndex>,
    /// Where the members are in the caller's list.
    pub(super) positions: Vec<usize>,
    /// Slow members that know of chunks on them, and are not believed.
    pub(super) doubted: Vec<MemberIndex>,
    /// Pages that no member has, and that some member might have if it could read them.
    pub(super) unread: u64,
    /// Members that lent pages which are damaged on the source.
    pub(super) lent: BTreeSet<MemberIndex>,
}

/// Loads the map from the best source and replays its journal.
pub(super) async fn load_map<E: Env>(core: &mut Core<E>, absent: Absent) -> Result<Source, OpenError> {
    let mut chains = Vec::new();
    let mut rebuild = absent.before.clone();
    let mut unread = None;
    for m in core.members.rows() {
        if !m.is_present() {
            chains.push(None);
            continue;
        }
        let fail = |source| OpenError::Member { member: m.index, source };
        chains.push(Some(read_chain(m).await.map_err(fail)?));
        // It is all that says what the pages of a member alone are, and is written anew if it is given up.
        let directory = m.load_directory(async |place| read_patiently(&core.env, m, place).await);
        match directory.await {
            Ok(d) => *m.directory.borrow_mut() = d,
            // What cannot be read is as good as rotten; a device that answers nothing has failed before.
            Err(e) => {
                if let DirectoryError::Device(source) = e {
                    unread = Some(OpenError::Member { member: m.index, source });
                }
                rebuild[m.index as usize] = true;
                let what = format!("member {}: {e}", m.index);
                core.findings.borrow_mut().push(Finding::mended(what));
            }
        }
        if m.tier == Tier::Slow {
            m.load_away().await.map_err(fail)?;
        }
    }
    let owned = owned(core, &chains, &rebuild).await;
    let best = choose(core, &chains, &rebuild, &owned)?;
    // It may be read the next time. To write another one over it, cut off, would leave a map that nobody can be sure of.
    if let Some(refusal) = unread.filter(|_| core.writable && core.members[best].tier == Tier::Slow) {
        return Err(refusal);
    }
    for (i, chain) in chains.iter().enumerate() {
        rebuild[i] |= i != best && chain.as_ref().is_some_and(|c| c.damaged);
    }
    // After an orderly stop every member has the whole map; else a slow member is an authority for its own slots only.
    core.map_complete = core.members[best].tier == Tier::Fast || core.members[best].label.borrow().clean;
    core.authority = best as u8;
    believe_kept(core, &rebuild, &absent.dead);
    let Loaded { lent, pages, behind, unread } = load_pages(core, best, &chains, &rebuild).await?;
    if !mutant::on(Mutant::C5OlderCopyAlone) {
        for member in &lent {
            replay(core, usize::from(*member), &chains, |page| behind.get(&page) == Some(member), &Behind::new())?;
        }
    }
    replay(core, best, &chains, |_| true, &behind)?;
    for page in pages {
        // Newer than what the source's directory says now, so that its checkpoint writes the page.
        let generation = core.map.borrow().generation(page);
        core.map.borrow_mut().set_generation(page, generation.max(FORGOTTEN + 1));
    }
    if core.journal_gap.get() && !mutant::on(Mutant::C5GapServesSlots) {
        confirm_slow_homes(core, &chains).await;
    }
    vouch(core, best, &chains, &rebuild).await;
    if mutant::on(Mutant::PreparedIsHome) {
        take_prepared(core, &chains);
    }
    set_generations(core, best, &chains);
    let (recognised, positions) = (absent.recognised.clone(), absent.positions.clone());
    let doubted = owned.iter().enumerate().filter(|(i, n)| *i != best && **n > 0).map(|(i, _)| i as u8).collect();
    release_dead(core, absent)?;
    Ok(Source { chains, best, rebuild, recognised, positions, doubted, unread, lent })
}

/// A member that is leaving and not there has left if no chunk is on it; else the group waits for it.
fn release_dead<E: Env>(core: &Core<E>, absent: Absent) -> Result<(), OpenError> {
    let map = core.map.borrow();
    let used = |m: MemberIndex| map.mapped().any(|(_, e)| slots_of(&e).any(|s| s.member == m));
    let mut missing = Vec::new();
    for m in absent.dead {
        if used(m) && !mutant::on(Mutant::DeadLeaverNotEmpty) {
            let label = core.first_member().label.borrow();
            missing.push(describe((m as usize, &label.members[m as usize])));
        }
        core.members[m as usize].release();
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(absent
            .unusable
            .unwrap_or_else(|| OpenError::Incomplete { name: core.name.clone(), missing: missing.join(", ") })),
    }
}

/// Without a fast member, and with several slow ones of which only one will be believed: how many chunks each knows to
/// live on itself. Nothing else that it says of them counts for more.
async fn owned<E: Env>(core: &Core<E>, chains: &[Option<Chain>], rebuild: &[bool]) -> Vec<u64> {
    let mut owned = vec![0; chains.len()];
    let clean = |m: &&crate::member::Member<E::Device>| m.label.borrow().clean;
    let alone = core.members_of(Tier::Fast).next().is_none() && core.members_of(Tier::Slow).nth(1).is_some();
    if !alone || core.members_of(Tier::Slow).any(|m| clean(&m)) {
        return owned;
    }
    for m in core.members_of(Tier::Slow).filter(|m| !rebuild[m.index as usize]) {
        if let Some(chain) = &chains[m.index as usize] {
            owned[m.index as usize] = own_chunks(core, m, chain).await;
        }
    }
    if owned.iter().filter(|n| **n > 0).count() > 1 {
        let list: Vec<String> = core.members_of(Tier::Slow).map(|m| m.index.to_string()).collect();
        core.findings.borrow_mut().push(Finding::serious(format!(
            "without a fast member each slow one knows only what is its own, and one of members {} is believed: open the group with each of them alone to read what is on it",
            list.join(", ")
        )));
    }
    owned
}

/// The fast member whose journal reaches furthest; without a fast member the slow one that has most chunks.
fn choose<E: Env>(
    core: &Core<E>,
    chains: &[Option<Chain>],
    rebuild: &[bool],
    owned: &[u64],
) -> Result<usize, OpenError> {
    let damaged = |what: String| OpenError::Damaged { name: core.name.clone(), what };
    let sound = |i: &usize| chains[*i].is_some() && !rebuild[*i];
    let of = |tier| (0..chains.len()).filter(move |i| core.members[*i].tier == tier).filter(sound);
    // Of two that hold the same last commit, one may hold only a part of it; the whole one must win. Of equals the first, which heat
    // is saved to before the others.
    let reach = |i: &usize| {
        let c = chains[*i].as_ref().expect("filtered");
        (!c.damaged, reach(&core.members[*i], c), Reverse(*i))
    };
    let most = |i: &usize| (owned[*i], reach(i));
    let Some(best) = of(Tier::Fast).max_by_key(reach).or_else(|| of(Tier::Slow).max_by_key(most)) else {
        return Err(damaged("no member has a sound page directory".into()));
    };
    let furthest = chains[best].as_ref().expect("chosen among the present");
    let whole = core.members[best].tier == Tier::Fast || core.members[best].label.borrow().clean;
    if core.writable && !whole {
        return Err(damaged(
            "no fast member has a sound page directory, and the slow members' maps may be older".into(),
        ));
    }
    for i in of(Tier::Fast).filter(|i| *i != best) {
        let c = chains[i].as_ref().expect("filtered");
        if c.damaged {
            let what = format!("member {i}: the journal is damaged in the middle; another member's records are used");
            core.findings.borrow_mut().push(Finding::mended(what));
        } else if commits_behind(core, chains, rebuild, furthest.generation, c) > 1 {
            // Commits are durable on all fast members before the next begins: two behind means broken promises, and
            // slots whose content is another chunk's.
            return Err(OpenError::Stale { name: core.name.clone(), member: i as u8 });
        }
    }
    check_confirmed(core, chains)?;
    if !furthest.damaged && is_behind_slow(core, chains, rebuild, best) {
        if core.writable {
            return Err(OpenError::Stale { name: core.name.clone(), member: best as u8 });
        }
        doubt_what_slow_heard(core, chains, best, furthest.generation);
    }
    if furthest.damaged {
        let what =
            format!("the journal of member {best} is damaged in the middle, and no other member has the same records");
        core.findings.borrow_mut().push(Finding::serious(what.clone()));
        if core.writable {
            return Err(damaged(what));
        }
        core.damaged_chunks.borrow_mut().extend(&furthest.beyond_gap);
        core.journal_gap.set(true);
    }
    Ok(best)
}

/// Whether a slow member has heard of a commit that the best fast one does not have. It only hears of those that are durable there: an
/// old copy was put in its place, or it lost what it had confirmed.
fn is_behind_slow<E: Env>(core: &Core<E>, chains: &[Option<Chain>], rebuild: &[bool], best: usize) -> bool {
    let heard = |m: &crate::member::Member<E::Device>| chains[m.index as usize].as_ref().map_or(0, |c| c.generation);
    let sound = core.members_of(Tier::Slow).filter(|m| !rebuild[m.index as usize]);
    let newest = sound.map(heard).max().unwrap_or(0);
    let is_fast = core.members[best].tier == Tier::Fast;
    is_fast && newest > heard(&core.members[best]) && !mutant::on(Mutant::C4OlderThanTold)
}

/// What slow members have heard of since is not known any more, and slots may have gone to other chunks: as behind a hole in the journal,
/// nothing is read but what a slow member confirms.
fn doubt_what_slow_heard<E: Env>(core: &Core<E>, chains: &[Option<Chain>], best: usize, known: u64) {
    let what = format!(
        "member {best} lacks commits of which a slow member has heard: it lost what it had confirmed, or an old copy was put in its \
         place. Its chunks cannot be read, because their slots may be others' by now"
    );
    core.findings.borrow_mut().push(Finding::serious(what));
    let newer = chains.iter().flatten().flat_map(|c| &c.records).filter(|(generation, _)| *generation > known);
    core.damaged_chunks.borrow_mut().extend(newer.map(|(_, r)| chunk_of(r)));
    core.journal_gap.set(true);
}

/// Commits of an epoch prove that all its members had confirmed it (C4.1). A label that has not is a copy from its start.
fn check_confirmed<E: Env>(core: &Core<E>, chains: &[Option<Chain>]) -> Result<(), OpenError> {
    let there =
        || core.members.rows().zip(chains).filter_map(|(m, c)| Some((m.label.borrow().epoch.clone(), m, c.as_ref()?)));
    let served: Vec<u64> =
        there().filter(|(epoch, _, c)| c.generation >= epoch.first_generation).map(|(epoch, ..)| epoch.id).collect();
    let old = there().find(|(epoch, ..)| !epoch.confirmed && served.contains(&epoch.id));
    match old.filter(|_| !mutant::on(Mutant::C4CopyOfStartAccepted)) {
        Some((_, m, _)) => Err(OpenError::Stale { name: core.name.clone(), member: m.index }),
        None => Ok(()),
    }
}

/// Decides which recorded kept copies count. A slow member alone that was not stopped in order remembers those of its
/// last session, whose slots it has not given away, as perhaps old (C9.2).
fn believe_kept<E: Env>(core: &Core<E>, rebuild: &[bool], dead: &[MemberIndex]) {
    // With a member gone for good some may be on it; without that start they would not count either.
    let from = kept_from(core, rebuild).filter(|_| dead.is_empty());
    let old = from.is_none() && !core.writable && !core.map_complete && !core.journal_gap.get();
    let remembered = || core.members[core.authority as usize].label.borrow().mirrors_from;
    core.kept.count_from(if old { Some(remembered()) } else { from });
    core.kept.set_old(old);
}

/// The generation from which recorded kept copies count; none do unless every member was stopped in order (C9).
fn kept_from<E: Env>(core: &Core<E>, rebuild: &[bool]) -> Option<u64> {
    let all_there = core.members.iter().all(|m| m.is_present());
    let present = || core.members.iter().filter(|m| m.is_present());
    if core.journal_gap.get() {
        return None;
    }
    let orderly = present().all(|m| m.label.borrow().clean && !rebuild[m.index as usize]);
    let trusted = match all_there {
        true => mutant::on(Mutant::C9CopiesSurviveCrash) || mutant::on(Mutant::C9WriteKeepsCopy),
        false => mutant::on(Mutant::C9ServedAlone),
    };
    (orderly || trusted).then(|| present().map(|m| m.label.borrow().mirrors_from).max().unwrap_or(0))
}

/// How far a member reaches: its newest generation, and how much it knows of that commit. All of it, if its pages have it: they have
/// only what was durable, or what a start had from a member that has it whole; or if a start has put an end behind it. Else a journal
/// alone does not tell a whole commit from one that was cut off, or of which the last block has rotted.
pub(super) fn reach<D: crate::env::Device>(m: &Member<D>, c: &Chain) -> (u64, usize) {
    let whole = m.label.borrow().checkpoint_generation >= c.generation || c.sealed;
    match whole && !mutant::on(Mutant::C6HalfBeatsPages) {
        true => (c.generation, usize::MAX),
        false => c.reach(),
    }
}

/// How many commits chain `c` lacks of those up to `newest`, by the journals of fast members that go back as far; several if none does.
fn commits_behind<E: Env>(core: &Core<E>, chains: &[Option<Chain>], rebuild: &[bool], newest: u64, c: &Chain) -> usize {
    if c.generation >= newest {
        return 0;
    }
    let fast = core.members_of(Tier::Fast).filter(|m| !rebuild[m.index as usize]);
    let known = fast.filter_map(|m| Some((m.label.borrow().checkpoint_generation, chains[m.index as usize].as_ref()?)));
    let missing = |d: &Chain| d.records.iter().map(|(g, _)| *g).filter(|g| *g > c.generation).collect::<BTreeSet<_>>();
    let far_back = known.filter(|(from, d)| *from <= c.generation && !d.damaged && d.generation >= newest);
    far_back.map(|(_, d)| missing(d).len()).min().unwrap_or(usize::MAX)
}

/// What came of the pages.
#[derive(Default)]
struct Loaded {
    /// Members that lent pages which are damaged on the source.
    lent: BTreeSet<MemberIndex>,
    /// These pages.
    pages: Vec<u32>,
    /// Those of these pages that the lender's journal must bring up to date.
    behind: Behind,
    /// Pages that may be read another time, and cannot be now.
    unread: u64,
}

/// Loads all pages.
async fn load_pages<E: Env>(
    core: &Core<E>,
    best: usize,
    chains: &[Option<Chain>],
    rebuild: &[bool],
) -> Result<Loaded, OpenError> {
    let pages = core.map.borrow().len() as u32;
    let mut bad = Vec::new();
    let m = &core.members[best];
    for batch in batches(pages) {
        let reads = batch.into_iter().map(|window| Window::read(&core.env, m, window, |_, _| true)).collect();
        for read in wait::all(reads).await.into_iter().flatten() {
            for (page, expected, copy) in read.copies(m) {
                let (generation, unread) = (expected.generation(), copy.is_none());
                let taken = copy.is_some_and(|(bytes, salt)| take_page(core, page, bytes, &salt, generation));
                if !taken {
                    bad.push((page, unread));
                }
            }
        }
    }
    let mut loaded = Loaded::default();
    for (page, unread) in bad {
        match load_elsewhere(core, best, chains, rebuild, page).await {
            Elsewhere::Taken { from, behind } => {
                loaded.lent.insert(from);
                loaded.pages.push(page);
                loaded.behind.extend(behind.then_some((page, from)));
                let what = format!("map page {page}: damaged on member {best}, taken from another");
                core.findings.borrow_mut().push(Finding::mended(what));
            }
            Elsewhere::Nowhere { unread: there } => {
                loaded.unread += u64::from(unread || there);
                without_page(core, page, unread || there)?;
            }
        }
    }
    Ok(loaded)
}

/// Nobody has the page.
fn without_page<E: Env>(core: &Core<E>, page: u32, unread: bool) -> Result<(), OpenError> {
    let what = match unread {
        true => format!("map page {page} cannot be read now: a device fails, and no other member has the page"),
        false => format!("map page {page} is damaged on every member that could have it"),
    };
    core.findings.borrow_mut().push(Finding::serious(what.clone()));
    if core.writable {
        return Err(OpenError::Damaged { name: core.name.clone(), what });
    }
    core.map.borrow_mut().set_damaged(page);
    Ok(())
}

/// Takes a page copy if it is sound and as new as expected.
pub(super) fn take_page<E: Env>(
    core: &Core<E>,
    page: u32,
    bytes: &[u8],
    salt: &bimetal_format::Salt,
    generation: u64,
) -> bool {
    let Ok((head, mut entries)) = page::decode(bytes, salt) else { return false };
    let old = head.generation < generation && !mutant::on(Mutant::C5OldPageAccepted);
    if head.page != page || old {
        return false;
    }
    for e in entries.iter_mut() {
        let Some(counts) = believed(core, head.generation, *e) else { return false };
        *e = counts;
    }
    let policy = core.policy.borrow();
    let mut map = core.map.borrow_mut();
    let Some(p) = map.page_mut(page) else { return false };
    for (i, e) in entries.iter().enumerate() {
        p.set_entry(i, *e);
        p.set_heat(i, policy.restore(e.heat, head.clock));
    }
    map.set_generation(page, head.generation);
    true
}

/// What counts of an entry; `None` if that names slots which do not exist. A copy that does not count may be on a member
/// that has left since: nothing that changes the entry has to come in between.
fn believed<E: Env>(core: &Core<E>, generation: u64, e: Entry) -> Option<Entry> {
    let counts = core.kept.believed(generation, e);
    let asked = if mutant::on(Mutant::C9ForgottenMustExist) { &e } else { &counts };
    is_possible(core, asked).then_some(counts)
}

/// Whether an entry names slots that exist.
pub(super) fn is_possible<E: Env>(core: &Core<E>, e: &Entry) -> bool {
    let exists = |s: SlotId| {
        core.members.get(s.member as usize).is_some_and(|m| !m.is_gone() && u64::from(s.slot) < m.free.borrow().count())
    };
    // A copy lies on the other tier than the home.
    let apart = |s: SlotId| core.tier_of_member(e.member) == Tier::Fast && core.tier_of_member(s.member) == Tier::Slow;
    slots_of(e).all(exists) && kept_slot(e).is_none_or(apart)
}

/// Replays the records of a member about some pages, where they are newer than these; or as new, on a page that is `behind`, of which the
/// other member may have had only a part of its last commit.
fn replay<E: Env>(
    core: &Core<E>,
    member: usize,
    chains: &[Option<Chain>],
    of: impl Fn(u32) -> bool,
    behind: &Behind,
) -> Result<(), OpenError> {
    let chain = chains[member].as_ref().expect("it is present");
    let tier = core.members[member].tier;
    let mut map = core.map.borrow_mut();
    // What each page held when it was loaded; its generation in memory grows with the replay.
    let mut loaded: BTreeMap<u32, u64> = BTreeMap::new();
    for (generation, r) in chain.records.iter().filter(|(_, r)| of(r.page)) {
        let entry = believed(core, *generation, r.entry).filter(|_| (r.page as usize) < map.len());
        let Some(entry) = entry else {
            let what = format!("the journal of member {member} names a page or slot that does not exist");
            return Err(OpenError::Damaged { name: core.name.clone(), what });
        };
        if map.is_damaged(r.page) || (r.kind == RecordKind::Prepared && !takes_prepared(core)) {
            continue;
        }
        let in_page = *loaded.entry(r.page).or_insert(map.generation(r.page));
        // Records of a slow member are written after the page image that they follow, with the same generation.
        let as_new = tier == Tier::Slow || behind.contains_key(&r.page);
        if *generation > in_page || (as_new && *generation == in_page) {
            map.set(chunk_of(r), entry);
            let newest = map.generation(r.page).max(*generation);
            map.set_generation(r.page, newest);
        }
    }
    Ok(())
}

/// With the fast members gone, a prepared move is the best that is known of its chunk; else the fast members' journals
/// decide (C1.6).
fn takes_prepared<E: Env>(core: &Core<E>) -> bool {
    core.members[core.authority as usize].tier == Tier::Slow
}

/// Mutants only: takes prepared moves for finished ones.
fn take_prepared<E: Env>(core: &Core<E>, chains: &[Option<Chain>]) {
    let mut map = core.map.borrow_mut();
    for (_, r) in chains.iter().flatten().flat_map(|c| &c.records).filter(|(_, r)| r.kind == RecordKind::Prepared) {
        map.set(super::replay::chunk_of(r), r.entry);
    }
}

/// Generations are never given out twice, also not those of commits that were cut off.
fn set_generations<E: Env>(core: &Core<E>, best: usize, chains: &[Option<Chain>]) {
    let seen = chains.iter().flatten().map(|c| c.newest_seen);
    let labels = core.members.iter().filter(|m| m.is_present()).map(|m| m.label.borrow().generation);
    let durable = chains[best].as_ref().map_or(0, |c| c.generation);
    let newest = match mutant::on(Mutant::C7GenerationReused) {
        true => durable,
        false => seen.chain(labels).max().unwrap_or(0) + 1,
    };
    core.commit.generation.set(newest);
    core.commit.durable_generation.set(durable);
}

/// What a directory says of a copy that is worthless.
const FORGOTTEN: u64 = 1;

impl Directory {
    /// The current copy of a page is worthless: any state of the page is newer.
    pub(crate) fn forget_generation(&mut self, page: u32) {
        let e = self.pages.get(page as usize);
        if e.is_some() && e.generation() > FORGOTTEN {
            self.pages.set(page as usize, Expected::new(FORGOTTEN, e.side()));
        }
    }
}
