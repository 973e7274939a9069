//! Step 3: which member's map is the group's.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bimetal_format::label::{Epoch, Label};

use super::replay::{chunk_of, commits_before_tail};
use super::{Chain, Finding, OpenError};
use crate::env::{Device, Env};
use crate::group::core::Core;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::units::{MemberIndex, Tier};

/// The fast member whose journal reaches furthest; without a sound one the slow member whose does.
pub(super) async fn choose<E: Env>(
    core: &Core<E>,
    chains: &[Option<Chain>],
    rebuild: &[bool],
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
    let most = |i: &usize| (knows_all(core, &core.members[*i]), reach(i));
    let Some(best) = of(Tier::Fast).max_by_key(reach).or_else(|| of(Tier::Slow).max_by_key(most)) else {
        return Err(damaged("no member has a sound page directory".into()));
    };
    let furthest = chains[best].as_ref().expect("chosen among the present");
    let whole = core.members[best].tier == Tier::Fast || knows_all(core, &core.members[best]);
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
        } else if commits_behind(core, chains, rebuild, furthest.generation, c).await > 1 {
            // Commits are durable on all fast members before the next begins: two behind means broken promises, and
            // slots whose content is another chunk's.
            return Err(OpenError::Stale { name: core.name.clone(), member: i as u8 });
        }
    }
    check_confirmed(core, chains)?;
    // Behind a gap of its own nobody knows how far the best one had come.
    let is_behind = |tier| is_behind_unsound(core, chains, rebuild, best, tier);
    if !furthest.damaged && is_behind(Tier::Fast) {
        return Err(OpenError::Stale { name: core.name.clone(), member: best as u8 });
    }
    if !furthest.damaged && (is_behind_slow(core, chains, rebuild, best) || is_behind(Tier::Slow)) {
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
    let heard = |m: &Member<E::Device>| chains[m.index as usize].as_ref().map_or(0, |c| c.generation);
    let sound = core.members_of(Tier::Slow).filter(|m| !rebuild[m.index as usize]);
    let newest = sound.map(heard).max().unwrap_or(0);
    let is_fast = core.members[best].tier == Tier::Fast;
    is_fast && newest > heard(&core.members[best]) && !mutant::on(Mutant::C4OlderThanTold)
}

/// Whether a member of this tier that cannot be the source, because its journal has a gap or its map is lost, has blocks of commits
/// that the best one, a fast one, cannot lack: all but the newest are durable on every fast member, and slow ones hear of none that is
/// not. Ends of journals bear the number before the first of their epoch.
fn is_behind_unsound<E: Env>(
    core: &Core<E>,
    chains: &[Option<Chain>],
    rebuild: &[bool],
    best: usize,
    tier: Tier,
) -> bool {
    let before = core.members[best].label.borrow().epoch.first_generation.saturating_sub(1);
    let known = chains[best].as_ref().map_or(0, |c| c.generation).max(before);
    let knows_more = |m: &Member<E::Device>| {
        let i = m.index as usize;
        let ahead = u64::from(tier == Tier::Fast);
        let unsound = |c: &&Chain| i != best && (c.damaged || rebuild[i]);
        chains[i].as_ref().filter(unsound).is_some_and(|c| c.newest_seen > known + ahead)
    };
    let is_fast = core.members[best].tier == Tier::Fast && !mutant::on(Mutant::C6GapHidesNewer);
    is_fast && core.members_of(tier).any(knows_more)
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
    let beyond = chains.iter().flatten().flat_map(|c| &c.beyond_gap).copied();
    core.damaged_chunks.borrow_mut().extend(newer.map(|(_, r)| chunk_of(r)).chain(beyond));
    core.journal_gap.set(true);
}

/// Commits of an epoch prove that all its members had confirmed it (C4.1), and they do so one after the other. A label that has not is a
/// copy from its start: beside commits, or beside one that confirms later.
fn check_confirmed<E: Env>(core: &Core<E>, chains: &[Option<Chain>]) -> Result<(), OpenError> {
    let there =
        || core.members.rows().zip(chains).filter_map(|(m, c)| Some((m.label.borrow().epoch.clone(), m, c.as_ref()?)));
    let served: Vec<u64> =
        there().filter(|(epoch, _, c)| c.generation >= epoch.first_generation).map(|(epoch, ..)| epoch.id).collect();
    let same = |a: &Epoch, b: &Epoch| (a.id, a.first_generation) == (b.id, b.first_generation);
    let is_before_one = |epoch: &Epoch, index: MemberIndex| {
        let confirms = |o: &Epoch| o.confirmed && same(o, epoch) && !mutant::on(Mutant::C4ConfirmsInAnyOrder);
        there().any(|(o, later, _)| later.index > index && confirms(&o))
    };
    let is_old = |epoch: &Epoch, index| served.contains(&epoch.id) || is_before_one(epoch, index);
    let old = there().find(|(epoch, m, _)| !epoch.confirmed && is_old(epoch, m.index));
    match old.filter(|_| !mutant::on(Mutant::C4CopyOfStartAccepted)) {
        Some((_, m, _)) => Err(OpenError::Stale { name: core.name.clone(), member: m.index }),
        None => Ok(()),
    }
}

/// Whether a member's pages and journal have all that was ever flushed: it says so, or another one that has not confirmed the same epoch,
/// in which nothing was served then, was stopped in order before it.
pub(super) fn knows_all<E: Env>(core: &Core<E>, m: &Member<E::Device>) -> bool {
    if only_leavers(core) {
        return false;
    }
    let own = m.label.borrow();
    if mutant::on(Mutant::C5CutOffForgetsStop) {
        return own.clean;
    }
    let unserved = |o: &Label| o.stopped && !o.epoch.confirmed && o.epoch.id == own.epoch.id;
    own.knows_all() || core.members.iter().any(|o| o.is_present() && unserved(&o.label.borrow()))
}

/// Whether none is here but such as were to leave, while others are not: those go on without a leaving member that is empty and not there,
/// and nothing tells that one of it. However it was stopped, it vouches for nothing.
pub(super) fn only_leavers<E: Env>(core: &Core<E>) -> bool {
    let leaves = |m: &Member<E::Device>| m.standing.get() == Standing::Leaving;
    core.members.iter().all(|m| leaves(m) || !m.is_present()) && core.members.iter().any(|m| !leaves(m) && !m.is_gone())
}

/// How far a member reaches: its newest generation, and how much it knows of that commit. All of it, if its pages have it: they have
/// only what was durable, or what a start had from a member that has it whole; or if a start has put an end behind it. Else a journal
/// alone does not tell a whole commit from one that was cut off, or of which the last block has rotted.
pub(super) fn reach<D: Device>(m: &Member<D>, c: &Chain) -> (u64, usize) {
    let whole = m.label.borrow().checkpoint_generation >= c.generation || c.sealed;
    match whole && !mutant::on(Mutant::C6HalfBeatsPages) {
        true => (c.generation, usize::MAX),
        false => c.reach(),
    }
}

/// How many commits chain `c` lacks of those up to `newest`, by the journals of fast members that go back as far, or by what still
/// lies on their rings before that; several if none does.
async fn commits_behind<E: Env>(
    core: &Core<E>,
    chains: &[Option<Chain>],
    rebuild: &[bool],
    newest: u64,
    c: &Chain,
) -> usize {
    if c.generation >= newest {
        return 0;
    }
    let mut least = usize::MAX;
    for m in core.members_of(Tier::Fast).filter(|m| !rebuild[m.index as usize]) {
        let from = m.label.borrow().checkpoint_generation;
        let known = chains[m.index as usize].as_ref().filter(|d| !d.damaged && d.generation >= newest);
        let Some(known) = known else { continue };
        let mut missing: BTreeSet<u64> = known.records.iter().map(|(g, _)| *g).collect();
        if from > c.generation {
            let before = commits_before_tail(m, |g| g <= c.generation).await;
            let goes_back = before.from_start || before.commits.last().is_some_and(|(g, _)| *g <= c.generation);
            if !goes_back {
                continue;
            }
            missing.extend(before.commits.iter().map(|(g, _)| *g));
        }
        least = least.min(missing.range(c.generation + 1..).count());
    }
    least
}
