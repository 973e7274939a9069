//! What is damaged on a member is written anew, from memory; headers from another member.

use bimetal_format::directory::PAGES_PER_DIRECTORY;

use super::Damaged;
use crate::env::Env;
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
    /// Headers, and a checkpoint of `m` that takes these pages for changed: it writes them to their other sides, with the directory,
    /// both labels, and a tail of the journal beyond all that is on the ring.
    pub(super) async fn write_anew(&self, m: &Member<E::Device>, damaged: Damaged) -> Result<(), Error> {
        if damaged.headers {
            self.mend_headers(m).await?;
        }
        if damaged.is_map_whole() {
            return Ok(());
        }
        self.end_journal(m).await?;
        let locks = m.lock_for_checkpoint().await;
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        for page in damaged.pages.into_iter().filter(|_| !mutant::on(Mutant::MendSkipsPages)) {
            m.directory.borrow_mut().forget_generation(page);
        }
        self.checkpoint_as(m, How { commits: locks.commits(), ..How::ALONE }).await
    }

    /// Puts an end behind the journal of `m`, so that the block before the tail which the checkpoint gives it is whole: a start asks for
    /// that one (C6), and what is on the ring may be damaged in all places.
    async fn end_journal(&self, m: &Member<E::Device>) -> Result<(), Error> {
        // No commit is under way on a fast member: its blocks would count as durable with the end.
        let _no_commit = match m.tier {
            Tier::Fast => Some(self.commit.gate.lock().await),
            Tier::Slow => None,
        };
        let _meta = self.lock_with_room(m, 1).await?;
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        if m.is_gone() || mutant::on(Mutant::MendLeavesEnd) {
            return Ok(());
        }
        let ended = m.append_durable_end(self.commit.generation.get(), self.epoch()).await;
        ended.or_else(|e| self.failed(m, "a journal write", e))
    }
}
