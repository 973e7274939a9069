//! Verifying a group while it is in use: what its members hold must be what the engine believes that they hold.
//!
//! What is current on a member does not change in its place: a checkpoint writes to the other sides, the journal behind its
//! head, and a flip makes it current. So no lock is needed but for the labels, and the headers that they name. What was read is
//! compared with what the engine says of it afterwards; if that has changed meanwhile, it is read again or left out.
//!
//! The engine itself does not need what is damaged on a member before the next start: all of it is in memory. So damage can be
//! mended while the group runs, by a checkpoint that writes it anew ([`mend`]); headers from another member.
//!
//! A member whose connection is lost is neither read nor mended: all of it would seem damaged, and a write that fails would take
//! writes from those who do not need it.

mod areas;
mod mend;
mod pages;
mod slots;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use super::check::old_map;
use super::{Problem, Report};
use crate::env::{Device, Env, Instant};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::Group;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::units::Tier;
use crate::wait;

/// Tries to read what changes meanwhile.
const TRIES: usize = 5;
/// Problems that are told, at most, but for serious ones: a member that is noise has as many as pages.
const TOLD: usize = 1000;
/// Beside clients it rests so many times as long as it works, and after this time it counts as alone.
const REST: u32 = 3;
const QUIET: Duration = Duration::from_millis(100);

/// What is damaged on a member, and can be written anew.
#[derive(Default)]
struct Damaged {
    /// Pages of which the copy is no good, or the block of the directory that names them.
    pages: BTreeSet<u32>,
    /// A label, the root of the directory, or a block of the journal.
    rest: bool,
    /// Blocks of the away bitmap.
    away: BTreeSet<u64>,
    /// Headers of families that another member has whole.
    headers: bool,
}

impl Damaged {
    fn is_empty(&self) -> bool {
        self.is_map_whole() && self.away.is_empty() && !self.headers
    }

    fn is_map_whole(&self) -> bool {
        self.pages.is_empty() && !self.rest
    }
}

impl<E: Env> Group<E> {
    /// Verifies labels, page directories, current pages, journals, away bits and headers of all members against what the
    /// engine knows, and that every chunk has a slot of its own. Takes a quarter of the time at most while clients use the
    /// group. Writes nothing, unless it is to `mend`: then pages, directories, labels, journals, away bits and headers that are
    /// damaged are written anew, and verified again. `progress` hears how many map pages it has been over, and of how many, roughly.
    ///
    /// # Errors
    /// [`Error::Stopping`] if the group is stopped meanwhile; with `mend`, what keeps it from writing.
    pub async fn check(&self, mend: bool, progress: &dyn Fn(u64, u64)) -> Result<Report, Error> {
        let core = &*self.core;
        if mend {
            core.check_writable()?;
        }
        let all = core.volumes.all();
        let deleting = all.iter().filter(|v| v.deleted.get()).map(|v| v.name.borrow().clone()).collect();
        let report = Report { name: core.name.clone(), in_use: true, deleting, ..Report::default() };
        let named = |m: &Member<E::Device>| m.directory.borrow().pages.rows().count() as u64;
        let named: u64 = core.members.iter().filter(|m| m.is_present() && !m.is_lost()).map(named).sum();
        let all = named + core.map.borrow().len() as u64;
        let mut check = Check { core, report, over: 0, all, progress };
        check.known();
        for m in core.members.iter().filter(|m| m.is_present()) {
            check.member(m, mend).await?;
        }
        check.slots().await?;
        Ok(check.report)
    }
}

struct Check<'a, E: Env> {
    core: &'a Core<E>,
    report: Report,
    /// Map pages that it has been over, on members and in memory, and all of them.
    over: u64,
    all: u64,
    progress: &'a dyn Fn(u64, u64),
}

/// What `work` with a member gives; nothing if that has left meanwhile: it may never answer what it was asked before.
async fn unless_left<D: Device, T: Default>(
    m: &Member<D>,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let left = async {
        m.left().await;
        Ok(T::default())
    };
    match mutant::on(Mutant::CheckWaitsForLeft) {
        true => work.await,
        false => wait::first(work, left).await,
    }
}

impl<E: Env> Check<'_, E> {
    /// All that one member holds beside data.
    async fn member(&mut self, m: &Member<E::Device>, mend: bool) -> Result<(), Error> {
        let (first, untold) = (self.report.problems.len(), self.report.untold);
        if self.forget_unreached(m, first, untold) {
            return Ok(());
        }
        let damaged = self.areas_unless_left(m).await?;
        if self.forget_unreached(m, first, untold) || damaged.is_empty() || !mend {
            return Ok(());
        }
        if m.standing.get() == Standing::Leaving {
            // It may be a disk that dies: a write that fails would end the writes of all.
            return Ok(());
        }
        let before = self.report.problems.split_off(first);
        self.report.untold = untold;
        match unless_left(m, self.core.write_anew(m, damaged)).await {
            Err(Error::Stopping) => return Err(Error::Stopping),
            Err(e) => self.note(m.index, true, format!("what is damaged could not be written anew: {e}")),
            Ok(()) => {}
        }
        self.areas_unless_left(m).await?;
        if self.forget_unreached(m, first, untold) {
            return Ok(());
        }
        let mut still = self.report.problems.split_off(first);
        for mut problem in before {
            let same = still.iter().position(|p| p.what == problem.what);
            problem.mended = same.map(|i| still.swap_remove(i)).is_none();
            self.report.problems.push(problem);
        }
        self.report.problems.extend(still);
        Ok(())
    }

    /// Whether a member has left meanwhile, or the connection to it is lost: then nothing counts that was found on it.
    fn forget_unreached(&mut self, m: &Member<E::Device>, first: usize, untold: u64) -> bool {
        let lost = m.is_lost() && !mutant::on(Mutant::MendsLost);
        if !m.is_gone() && !lost {
            return false;
        }
        self.report.problems.truncate(first);
        self.report.untold = untold;
        if lost {
            self.note(m.index, true, "it cannot be reached, and was not verified".into());
        }
        true
    }

    /// Each area of a member; nothing of one that has left meanwhile.
    async fn areas_unless_left(&mut self, m: &Member<E::Device>) -> Result<Damaged, Error> {
        unless_left(m, self.areas(m)).await
    }

    /// Each area of a member.
    async fn areas(&mut self, m: &Member<E::Device>) -> Result<Damaged, Error> {
        let mut damaged = Damaged::default();
        self.labels(m, &mut damaged).await?;
        self.directory(m, &mut damaged).await?;
        self.pages(m, &mut damaged).await?;
        self.journal(m, &mut damaged).await?;
        self.away(m, &mut damaged).await?;
        self.headers(m, &mut damaged).await?;
        Ok(damaged)
    }

    fn note(&mut self, member: impl Into<Option<u8>>, serious: bool, what: String) {
        if serious || self.report.problems.len() < TOLD {
            self.report.problems.push(Problem {
                member: member.into(),
                what,
                serious,
                in_memory: false,
                by_check: false,
                mended: false,
            });
        } else {
            self.report.untold += 1;
        }
    }

    /// Something on a member is damaged that is whole in memory or on another member, if the group is written.
    fn note_whole(&mut self, m: &Member<E::Device>, what: String) {
        let told = self.report.problems.len();
        self.note(m.index, false, what);
        let in_memory = self.core.writable && !self.core.health.is_latched() && m.standing.get() != Standing::Leaving;
        self.report.problems.iter_mut().skip(told).for_each(|p| p.in_memory = in_memory);
    }

    /// What is known without looking.
    fn known(&mut self) {
        let core = self.core;
        if let Some(why) = core.health.latched() {
            self.note(None, true, format!("it has stopped accepting writes: {why}"));
        }
        for m in core.members.iter().filter(|m| !m.is_present()) {
            self.note(m.index, true, "it is missing".into());
        }
        // What a start has found and, if it writes, mended.
        let findings = core.findings.borrow().clone();
        for f in findings.into_iter().filter(|f| f.serious || !core.writable) {
            self.note(None, f.serious, f.what);
        }
        if let Some(what) = old_map(core) {
            self.note(None, true, what.into());
        }
    }

    fn is_over(&mut self, pages: u64) {
        self.over += pages;
        (self.progress)(self.over.min(self.all), self.all);
    }

    /// Lets others do their work, more so while there are clients.
    async fn rest(&self, begun: Instant) -> Result<(), Error> {
        let core = self.core;
        wait::turn().await;
        if core.quiet_for(Tier::Fast).min(core.quiet_for(Tier::Slow)) < QUIET {
            core.env.sleep(core.env.now().since(begun) * REST).await;
        }
        match core.stopping.get() {
            true => Err(Error::Stopping),
            false => Ok(()),
        }
    }
}
