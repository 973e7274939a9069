//! Pages that are damaged on the member whose map is the group's, taken from others.
//!
//! Terms: the *source* is the member whose map is the group's. A copy *knows enough* if it is as new as the source's directory expects,
//! or as where the source's journal begins: the source's records follow. A member is *whole* if its pages and its own journal hold all
//! commits, but for what the source's journal still has: a fast one whose journal is sound and is known to have all of the last commit that
//! the source's does not have; and any after an orderly stop.
//!
//! 1. A whole member's page counts whatever its generation is, with the records of that member's journal; also one that it has never
//!    written, which is empty. (Members make checkpoints at times of their own: how new a copy is says nothing of whether the journal
//!    beside it goes on from there.)
//! 2. The source's records follow those, from the last commit that the other one has on: it may have only a part of that.
//! 3. What was taken from elsewhere is written to the source before anything is served ([`super::start`]).

use std::collections::BTreeMap;

use super::choose::{knows_all, reach};
use super::pages::take_page;
use super::patience::read_patiently;
use super::replay::commits_before_tail;
use super::Chain;
use crate::env::Env;
use crate::group::core::Core;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{MemberIndex, Tier};

/// Pages that were taken from members whose journals have to follow, with these members.
pub(super) type Behind = BTreeMap<u32, MemberIndex>;

/// What others have of a page.
pub(super) enum Elsewhere {
    /// It was taken; with `behind` the lender's journal must follow.
    Taken { from: MemberIndex, behind: bool },
    /// `unread`: one that should have it failed to read it.
    Nowhere { unread: bool },
}

/// Takes a page that is damaged on the source from another member.
pub(super) async fn load_elsewhere<E: Env>(
    core: &Core<E>,
    source: usize,
    chains: &[Option<Chain>],
    rebuild: &[bool],
    page: u32,
) -> Elsewhere {
    let expected = core.members[source].directory.borrow().pages.get(page as usize).generation();
    let wanted = expected.min(core.members[source].label.borrow().checkpoint_generation);
    // Alone after a crash it knows its own slots only, and the others are asked about theirs. A page as it was before it rotted may give
    // back what left a slot since: the start after that has not told a member what it could not believe any more (C2.1).
    let alone = core.members[source].tier == Tier::Slow && !knows_all(core, &core.members[source]);
    if alone && !mutant::on(Mutant::C8PageLent) {
        return Elsewhere::Nowhere { unread: false };
    }
    let others = || core.members.iter().filter(|m| m.is_present() && m.index as usize != source);
    let mut unread = false;
    for m in others().filter(|m| !rebuild[m.index as usize]) {
        let copy = m.directory.borrow().pages.get(page as usize);
        let behind = !copy.is_some() || copy.generation() < wanted;
        let journal = chains[m.index as usize].as_ref().expect("it is present");
        if behind && !is_whole(core, source, m, journal).await {
            continue;
        }
        if copy.is_some() {
            let place = m.layout.page(page, copy.side());
            let Ok(buf) = read_patiently(&core.env, m, place).await else {
                unread = true;
                continue;
            };
            if !take_page(core, page, &buf, &m.salt(place), copy.generation()) {
                continue;
            }
        }
        core.members[source].directory.borrow_mut().forget_generation(page);
        return Elsewhere::Taken { from: m.index, behind };
    }
    Elsewhere::Nowhere { unread }
}

/// Whether a member's pages and journal hold all that the source's do, but for what follows from the source's journal. If its own ends
/// with the last commit that the source's pages have, it may have only a part of that: the source's ring knows how much it was.
async fn is_whole<E: Env>(core: &Core<E>, source: usize, m: &Member<E::Device>, journal: &Chain) -> bool {
    let source = &core.members[source];
    let from = source.label.borrow().checkpoint_generation;
    let stopped = knows_all(core, m) && knows_all(core, source);
    if mutant::on(Mutant::C5OlderCopyRefused) || (m.tier == Tier::Slow && !stopped) {
        return false;
    }
    if stopped || journal.generation != from {
        return stopped || journal.generation > from;
    }
    if reach(m, journal) == (from, usize::MAX) {
        return true;
    }
    let before = commits_before_tail(source, |_| true).await;
    before.commits.first().is_some_and(|(generation, chunks)| *generation == from && journal.reach().1 >= *chunks)
}
