//! Step 3: the map of the group, from the member that was chosen for it, and that one's journal over it.

use std::collections::{BTreeMap, BTreeSet};

use bimetal_format::journal::RecordKind;

use super::alone;
use super::assemble::{describe, Absent};
use super::belief::{confirm_slow_homes, vouch};
use super::choose::{choose, knows_all, only_leavers};
use super::elsewhere::Behind;
use super::pages::{believed, load_pages, Loaded, FORGOTTEN};
use super::patience::read_patiently;
use super::replay::chunk_of;
use super::{read_chain, Chain, Finding, OpenError};
use crate::env::{DeviceError, Env};
use crate::group::core::Core;
use crate::kept::slots_of;
use crate::map::Map;
use crate::member::directory::DirectoryError;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{MemberIndex, Tier};

/// What step 6 needs to know of the journals, by member.
pub(super) struct Source {
    pub(super) chains: Vec<Option<Chain>>,
    pub(super) best: usize,
    /// Members whose map must be written anew.
    pub(super) rebuild: Vec<bool>,
    /// Members without a sound label, which only a repair opens.
    pub(super) recognised: Vec<MemberIndex>,
    /// A member whose FLUSH fails, and what it said.
    pub(super) unflushed: Option<(MemberIndex, DeviceError)>,
    /// Where the members are in the caller's list.
    pub(super) positions: Vec<usize>,
    /// What no member has, and some member might have if it could read it.
    pub(super) unread: Unread,
    /// Members that lent pages which are damaged on the source.
    pub(super) lent: BTreeSet<MemberIndex>,
}

/// Metadata that a device fails to read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unread {
    /// Pages of the map.
    pub(crate) pages: u64,
    /// A directory, or a block of a journal: what it would tell is not known.
    pub(crate) more: bool,
}

/// What the members say of themselves, by member.
struct Members {
    chains: Vec<Option<Chain>>,
    rebuild: Vec<bool>,
    /// Why a directory could not be read, if one could not.
    unread: Option<OpenError>,
}

/// Reads journals, directories, and what has left slow members.
async fn read_members<E: Env>(core: &Core<E>, mut rebuild: Vec<bool>) -> Result<Members, OpenError> {
    let mut chains = Vec::new();
    let mut unread = None;
    for m in core.members.rows() {
        if !m.is_present() {
            chains.push(None);
            continue;
        }
        let fail = |source| OpenError::Member { member: m.index, source };
        chains.push(Some(read_chain(&core.env, m).await.map_err(fail)?));
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
    Ok(Members { chains, rebuild, unread })
}

/// Loads the map from the best source and replays its journal.
pub(super) async fn load_map<E: Env>(core: &mut Core<E>, absent: Absent) -> Result<Source, OpenError> {
    let Members { chains, mut rebuild, unread } = read_members(core, absent.before.clone()).await?;
    let best = choose(core, &chains, &rebuild).await?;
    // It may be read the next time. To write another one over it, cut off, would leave a map that nobody can be sure of.
    let refusal = unread.filter(|_| core.members[best].tier == Tier::Slow);
    let may_be_read = refusal.is_some();
    match refusal {
        Some(refusal) if core.writable => return Err(refusal),
        Some(why) => core.findings.borrow_mut().push(Finding::serious(no_start_writes(&core.name, &why))),
        None => {}
    }
    for (i, chain) in chains.iter().enumerate() {
        rebuild[i] |= i != best && chain.as_ref().is_some_and(|c| c.damaged);
    }
    // After an orderly stop every member has the whole map; else a slow member is an authority for its own slots only.
    core.map_complete = core.members[best].tier == Tier::Fast || knows_all(core, &core.members[best]);
    if only_leavers(core) {
        doubt_all(core, best);
    }
    core.authority = best as u8;
    core.vouching = BTreeSet::from([best as u8]);
    believe_kept(core, &absent);
    let alone = !core.map_complete && !core.journal_gap.get();
    let asked = |i: usize| i == best || (alone && core.members[i].tier == Tier::Slow);
    let unread_journal = |(i, c): (usize, &Option<Chain>)| asked(i) && c.as_ref().is_some_and(|c| c.unread);
    let more = may_be_read || chains.iter().enumerate().any(unread_journal);
    let Loaded { lent, pages, behind, mut unread } = load_pages(core, best, &chains, &rebuild).await?;
    let in_pages = alone.then(|| generations(&core.map.borrow()));
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
    if let Some(in_pages) = in_pages {
        unread += alone::hear_all(core, best, &chains, &rebuild, in_pages).await;
    }
    if mutant::on(Mutant::PreparedIsHome) {
        take_prepared(core, &chains);
    }
    set_generations(core, best, &chains);
    let (recognised, positions, unflushed) = (absent.recognised.clone(), absent.positions.clone(), absent.unflushed);
    release_dead(core, absent)?;
    let unread = Unread { pages: unread, more };
    Ok(Source { chains, best, rebuild, recognised, unflushed, positions, unread, lent })
}

/// The group may have gone on without the members that are here: what they lack, and what they say of others, is not certain.
fn doubt_all<E: Env>(core: &Core<E>, best: usize) {
    let what = "only members that were to leave are here: the group may have gone on without them since, so that what they say may be old";
    core.findings.borrow_mut().push(Finding::serious(what));
    match core.members[best].tier {
        Tier::Fast => {
            core.left_behind.set(!core.journal_gap.get());
            core.journal_gap.set(true);
        }
        Tier::Slow => core.members_of(Tier::Slow).filter(|m| m.is_present()).for_each(Member::take_all_for_away),
    }
}

/// What is said of a page directory that is not readable, where only a disk's map stands in for it.
fn no_start_writes(group: &str, why: &OpenError) -> String {
    format!(
        "a page directory cannot be read: {why}; that may be otherwise another time, so no start writes another map over it. If it \
         stays so: `bimetal repair {group}`"
    )
}

/// The generations of all pages, by number.
fn generations(map: &Map) -> Vec<u64> {
    (0..map.len() as u32).map(|page| map.generation(page)).collect()
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
        note_plaintext(core, m);
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(absent
            .unusable
            .unwrap_or_else(|| OpenError::Incomplete { name: core.name.clone(), missing: missing.join(", ") })),
    }
}

/// While a volume is being encrypted no member is taken out that may hold plaintext of it. One that is not there any more has taken that
/// along, and this is the last start that knows of it.
fn note_plaintext<E: Env>(core: &Core<E>, m: MemberIndex) {
    for v in core.volumes.living().iter().filter(|v| v.cipher.is_encrypting()) {
        let label = core.first_member().label.borrow();
        let (member, name) = (describe((m as usize, &label.members[m as usize])), v.name.borrow());
        core.findings.borrow_mut().push(Finding::serious(format!(
            "member {member} may hold plaintext of volume '{name}', which was being encrypted when it was taken away: nothing overwrites \
             that any more. Erase or destroy it"
        )));
    }
}

/// Decides which recorded kept copies count. Where a fast member is gone and the others were not stopped in order, those of the last
/// session, whose slots were not given away, are remembered as perhaps old (C9.2).
fn believe_kept<E: Env>(core: &Core<E>, absent: &Absent) {
    // With a member gone for good some may be on it; without that start they would not count either.
    let from = kept_from(core, absent).filter(|_| absent.dead.is_empty());
    let own = core.members[core.authority as usize].label.borrow();
    let alone = core.tier_of_member(core.authority) == Tier::Slow && !own.clean;
    let home_gone = alone || core.members.iter().any(|m| m.tier == Tier::Fast && !m.is_present());
    let old = from.is_none() && !core.writable && home_gone && !core.journal_gap.get();
    let remembered = || own.mirrors_from;
    core.kept.count_from(if old { Some(remembered()) } else { from });
    core.kept.set_old(old);
}

/// The generation from which recorded kept copies count; none do unless every member was stopped in order (C9). Those say so whose
/// labels are sound, also if the rest of their metadata is not: one that has lost its labels says nothing.
fn kept_from<E: Env>(core: &Core<E>, absent: &Absent) -> Option<u64> {
    let all_there = core.members.iter().all(|m| m.is_present());
    let present = || core.members.iter().filter(|m| m.is_present());
    if core.journal_gap.get() || only_leavers(core) {
        return None;
    }
    let says = |m: &&Member<E::Device>| !absent.recognised.contains(&m.index);
    let orderly = present().filter(says).all(|m| m.label.borrow().clean && !absent.before[m.index as usize]);
    let trusted = match all_there {
        true => mutant::on(Mutant::C9CopiesSurviveCrash) || mutant::on(Mutant::C9WriteKeepsCopy),
        false => mutant::on(Mutant::C9ServedAlone),
    };
    (orderly || trusted).then(|| present().map(|m| m.label.borrow().mirrors_from).max().unwrap_or(0))
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
        map.set(chunk_of(r), r.entry);
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
