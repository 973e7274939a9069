//! Step 3: the pages of the map, from the source or from who lends them.

use std::collections::BTreeSet;

use bimetal_format::directory::Expected;
use bimetal_format::{page, Entry};

use super::elsewhere::{load_elsewhere, Behind, Elsewhere};
use super::window::{batches, Window};
use super::{Chain, Finding, OpenError};
use crate::env::Env;
use crate::group::core::Core;
use crate::kept::{kept_slot, slots_of};
use crate::member::directory::Directory;
use crate::mutant::{self, Mutant};
use crate::tier::Policy;
use crate::units::{MemberIndex, SlotId, Tier};
use crate::wait;

/// What a directory says of a copy that is worthless.
pub(super) const FORGOTTEN: u64 = 1;

/// What came of the pages.
#[derive(Default)]
pub(super) struct Loaded {
    /// Members that lent pages which are damaged on the source.
    pub(super) lent: BTreeSet<MemberIndex>,
    /// These pages.
    pub(super) pages: Vec<u32>,
    /// Those of these pages that the lender's journal must bring up to date.
    pub(super) behind: Behind,
    /// Pages that may be read another time, and cannot be now.
    pub(super) unread: u64,
}

/// Loads all pages.
pub(super) async fn load_pages<E: Env>(
    core: &Core<E>,
    best: usize,
    chains: &[Option<Chain>],
    rebuild: &[bool],
) -> Result<Loaded, OpenError> {
    let pages = core.map.borrow().len() as u32;
    let mut bad = Vec::new();
    let m = &core.members[best];
    for batch in batches(0..pages) {
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
pub(super) fn believed<E: Env>(core: &Core<E>, generation: u64, e: Entry) -> Option<Entry> {
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

impl Directory {
    /// The current copy of a page is worthless: any state of the page is newer.
    pub(crate) fn forget_generation(&mut self, page: u32) {
        let e = self.pages.get(page as usize);
        if e.is_some() && e.generation() > FORGOTTEN {
            self.pages.set(page as usize, Expected::new(FORGOTTEN, e.side()));
        }
    }
}
