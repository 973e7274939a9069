//! What is damaged on a member is written anew, from memory; headers from another member. One that is lost meanwhile is left alone, and
//! latches nothing: the engine needs none of this before the next start.

use bimetal_format::directory::PAGES_PER_DIRECTORY;

use super::Damaged;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::member::checkpoint::How;
use crate::member::directory::Directory;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::Tier;

impl Damaged {
    /// A block of the directory is damaged, or the root: a page that it names, written anew, has it written with it.
    pub(super) fn note_directory(&mut self, directory: &Directory, block: Option<usize>) {
        let all = directory.pages.len();
        let range = block.map_or(0..all, |b| b * PAGES_PER_DIRECTORY..all.min((b + 1) * PAGES_PER_DIRECTORY));
        self.pages.extend(range.into_iter().find(|page| directory.pages.get(*page).is_some()).map(|page| page as u32));
        self.rest = true;
    }
}

impl<E: Env> Core<E> {
    /// Headers, a checkpoint of `m` that takes these pages for changed: it writes them to their other sides, with the directory,
    /// both labels, and a tail of the journal beyond all that is on the ring; and away bits.
    pub(super) async fn write_anew(&self, m: &Member<E::Device>, damaged: Damaged) -> Result<(), Error> {
        if damaged.headers {
            self.mend_headers(m).await?;
        }
        if !damaged.is_map_whole() {
            self.write_map_anew(m, &damaged).await?;
        }
        // Last: where these cannot be written, all the rest has been.
        match mutant::on(Mutant::MendSkipsAway) {
            true => Ok(()),
            false => self.mend_away(m, &damaged).await,
        }
    }

    async fn write_map_anew(&self, m: &Member<E::Device>, damaged: &Damaged) -> Result<(), Error> {
        self.end_journal(m).await?;
        let locks = m.lock_for_checkpoint().await;
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        let pages: Vec<u32> = damaged.pages.iter().filter(|_| !mutant::on(Mutant::MendSkipsPages)).copied().collect();
        // Those in memory are written whatever their generation, the others because that is newer.
        pages.iter().for_each(|page| m.directory.borrow_mut().forget_generation(*page));
        self.check_in_reach(m)?;
        let how = How { also: &pages, commits: locks.commits(), ..How::ALONE };
        self.checkpoint_or(m, how, |what, e| self.mending_failed(m, what, e)).await
    }

    /// A sync or metadata write by which a member is mended has failed.
    fn mending_failed(&self, m: &Member<E::Device>, what: &str, e: DeviceError) -> Result<(), Error> {
        match mutant::on(Mutant::MendsLost) {
            true => self.failed(m, what, e),
            false => self.failed_in_its_time(m, what, e),
        }
    }

    /// A write that fails here has no other consequences: the bits are where they were, and count as set where they are not sound.
    async fn mend_away(&self, m: &Member<E::Device>, damaged: &Damaged) -> Result<(), Error> {
        for index in &damaged.away {
            let _away = m.away_meta.lock().await;
            if self.stopping.get() {
                return Err(Error::Stopping);
            }
            self.health.check()?;
            if m.is_gone() {
                return Ok(());
            }
            self.check_in_reach(m)?;
            let unsound = m.unsound_sides(*index, true).await;
            let mended = m.mend_sides(*index, &unsound).await;
            // Also of one that failed: it might land over what is written there later (C2.2).
            let synced = m.sync_all().await;
            synced.or_else(|e| self.mending_failed(m, "a sync", e))?;
            mended.map_err(|source| Error::Device { member: m.index, source })?;
        }
        Ok(())
    }

    /// Puts an end behind the journal of `m`, so that the block before the tail which the checkpoint gives it is whole: a start asks for
    /// that one (C6), and what is on the ring may be damaged in all places.
    async fn end_journal(&self, m: &Member<E::Device>) -> Result<(), Error> {
        // No commit is under way on a fast member: its blocks would count as durable with the end.
        let _no_commit = match m.tier {
            Tier::Fast => Some(self.commit.gate.lock().await),
            Tier::Slow => None,
        };
        let _meta = self.lock_with_room_or(m, 1, |what, e| self.mending_failed(m, what, e)).await?;
        // Behind a commit that has failed it would say that this was durable.
        if !mutant::on(Mutant::MendBehindLatch) {
            self.health.check()?;
        }
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        if m.is_gone() || mutant::on(Mutant::MendLeavesEnd) {
            return Ok(());
        }
        self.check_in_reach(m)?;
        // Slow members hear of no commit that is not durable: a start would take the SSD, which lacks it, for an older copy.
        let generation = match mutant::on(Mutant::MendNamesCommit) {
            true => self.commit.generation.get(),
            false => self.commit.durable_generation.get(),
        };
        let ended = m.append_durable_end(generation, self.epoch()).await;
        ended.or_else(|e| self.mending_failed(m, "a journal write", e))
    }
}
