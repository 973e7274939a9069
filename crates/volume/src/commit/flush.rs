//! FLUSH and FUA: waiting for the right commit.

use std::collections::BTreeMap;
use std::ops::Range;

use bimetal_format::Entry;

use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex};

impl<E: Env> Core<E> {
    /// Whether nothing that was acknowledged needs a commit or a sync, work in progress included (C1.3).
    fn nothing_to_flush(&self) -> bool {
        self.commit.pending.borrow().is_empty()
            && !self.commit.is_running()
            && !self.members.iter().any(|m| m.sync.owes_client())
    }

    /// Makes everything durable that was acknowledged before this call (I2), as a client asks for.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        self.commit_changes().await?;
        self.has_flushed();
        Ok(())
    }

    /// The same for ourselves, the mover above all.
    pub(crate) async fn commit_changes(&self) -> Result<(), Error> {
        self.health.check()?;
        if !self.writable || self.nothing_to_flush() {
            return Ok(());
        }
        let commit = &self.commit;
        let target = match mutant::on(Mutant::C1FlushJoinsRunning) && commit.is_running() {
            true => commit.started.get(),
            false => commit.want_next(),
        };
        while commit.finished.get() < target {
            self.health.check()?;
            let done = commit.done.wait();
            done.await;
        }
        self.health.check()
    }

    /// Makes a completed write of `chunk` durable (FUA). An overwrite in place needs only its member's sync.
    pub(crate) async fn make_durable(&self, chunks: impl Iterator<Item = ChunkId> + Clone) -> Result<(), Error> {
        let uncommitted = chunks.clone().any(|c| self.is_uncommitted(c)) || mutant::on(Mutant::FuaAsksAll);
        if uncommitted && !mutant::on(Mutant::FuaNotCommitted) {
            return self.flush().await;
        }
        let mut members: Vec<MemberIndex> = Vec::new();
        for c in chunks {
            let home = self.map.borrow().get(c).filter(|e| e.is_mapped()).map(|e| e.member);
            members.extend(home.filter(|m| !members.contains(m)));
        }
        for m in members {
            let target = self.members[m as usize].sync.acknowledged();
            self.sync_member(m, target).await?;
        }
        self.has_flushed();
        self.health.check()
    }

    /// Waits until the death of this process cannot undo a completed change of `chunks` (`WriteFlags::outlives`). The
    /// data are with the members by then; what only this process knows is what no commit has made durable.
    pub(crate) async fn make_outlive(&self, mut chunks: impl Iterator<Item = ChunkId>) -> Result<(), Error> {
        self.outlive_if(chunks.any(|c| self.is_uncommitted(c))).await
    }

    /// The same for a range, which may have many more chunks than there are changes.
    pub(crate) async fn make_range_outlive(&self, v: &VolumeInfo, offset: u64, len: u64) -> Result<(), Error> {
        self.outlive_if(v.chunk_ranges(offset, len).any(|chunks| self.any_uncommitted_in(chunks))).await
    }

    async fn outlive_if(&self, uncommitted: bool) -> Result<(), Error> {
        if mutant::on(Mutant::DiesWithDaemon) || !uncommitted {
            return Ok(());
        }
        self.flush().await
    }

    fn any_uncommitted_in(&self, chunks: Range<ChunkId>) -> bool {
        let any = |changed: &BTreeMap<ChunkId, Entry>| changed.range(chunks.clone()).next().is_some();
        any(&self.commit.pending.borrow()) || any(&self.commit.committing.borrow())
    }

    /// Whether a change of the chunk is not durable yet.
    pub(crate) fn is_uncommitted(&self, chunk: ChunkId) -> bool {
        self.commit.pending.borrow().contains_key(&chunk) || self.commit.committing.borrow().contains_key(&chunk)
    }

    /// Syncs a member up to write `target`, or latches.
    pub(crate) async fn sync_member(&self, member: MemberIndex, target: u64) -> Result<(), Error> {
        let m = &self.members[member as usize];
        m.sync_to(target).await.or_else(|e| self.failed(m, "a sync", e))
    }
}
