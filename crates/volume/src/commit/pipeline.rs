//! One commit from its snapshot to the slots it frees, and the task that runs them.

use std::time::Duration;

use bimetal_format::journal::{Record, RecordKind};
use bimetal_format::Entry;

use super::telling::News;
use super::Left;
use crate::env::{DeviceError, Env, Instant};
use crate::error::Error;
use crate::group::core::Core;
use crate::kept::slots_of;
use crate::member::{add, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Tier};
use crate::wait;

/// What one commit makes durable, taken by value in one step (C1.1).
struct Snapshot {
    generation: u64,
    records: Vec<Record>,
    chunks: Vec<ChunkId>,
    left: Vec<Left>,
    /// Members that hold unsynced client data, and the newest such write.
    unsynced: Vec<(MemberIndex, u64)>,
}

pub(crate) fn set_record(chunk: ChunkId, entry: Entry) -> Record {
    Record { page: chunk.page(), index: chunk.index() as u8, kind: RecordKind::Set, move_id: 0, entry }
}

impl<E: Env> Core<E> {
    /// The committer: runs a commit when one is wanted, or when changes have waited for `commit_interval`.
    pub(crate) async fn run_committer(&self) {
        let mut since: Option<Instant> = None;
        while !self.stopped.get() && !self.health.is_latched() {
            let wake = self.commit.wake.wait();
            if self.commit.wanted.get() > self.commit.started.get() {
                since = None;
                let _latched = self.commit_once().await;
                self.commit.finished.set(self.commit.started.get());
                self.commit.done.notify();
                continue;
            }
            let waiting = !self.commit.pending.borrow().is_empty()
                || self.members.iter().any(|m| m.is_present() && m.sync.owes_client());
            if !waiting {
                since = None;
                self.commit.idle.set(true);
                wake.await;
                self.commit.idle.set(false);
                continue;
            }
            let waited = self.env.now().since(*since.get_or_insert(self.env.now()));
            let rest = self.options.commit_interval.saturating_sub(waited);
            if rest == Duration::ZERO {
                self.commit.want_next();
            } else {
                wait::first(wake, self.env.sleep(rest)).await;
            }
        }
    }

    /// Step 1, swap: takes pending changes, left slots and the set of unsynced members, before any sync is issued.
    fn take_snapshot(&self) -> Snapshot {
        let commit = &self.commit;
        add(&commit.started, 1);
        let before = std::mem::take(&mut *commit.pending.borrow_mut());
        let left = std::mem::take(&mut *commit.left.borrow_mut());
        let map = self.map.borrow();
        let now = |c: &ChunkId| map.get(*c).expect("no change reaches a damaged page");
        let mut records: Vec<Record> = before.keys().map(|c| set_record(*c, now(c))).collect();
        if mutant::on(Mutant::C1RecordIsDelta) {
            for (r, old) in records.iter_mut().zip(before.values()) {
                r.entry.mask &= !old.mask;
            }
        }
        if mutant::on(Mutant::TrimKeepsMask) {
            for (r, old) in records.iter_mut().zip(before.values()).filter(|(r, _)| !r.entry.is_mapped()) {
                r.entry = *old;
            }
        }
        let unsynced = self.members.iter().filter(|m| m.sync.owes_client());
        let unsynced = unsynced.map(|m| (m.index, m.sync.acknowledged())).collect();
        if !records.is_empty() {
            add(&commit.generation, 1);
        }
        let chunks = before.keys().copied().collect();
        *commit.committing.borrow_mut() = before;
        Snapshot { generation: commit.generation.get(), records, chunks, left, unsynced }
    }

    /// One commit. An error has latched the group.
    async fn commit_once(&self) -> Result<(), Error> {
        let _gate = self.commit.gate.lock().await;
        let mut snap = self.take_snapshot();
        self.cover_away(&snap).await?;
        self.sync_data(&snap).await?;
        self.health.check()?;
        if mutant::on(Mutant::C1RecordsFromLiveMap) {
            let map = self.map.borrow();
            snap.records = snap.chunks.iter().filter_map(|c| Some(set_record(*c, map.get(*c)?))).collect();
        }
        if !snap.records.is_empty() {
            self.append_everywhere(&snap).await?;
            add(&self.commit.count, 1);
        }
        self.publish(snap);
        Ok(())
    }

    /// C8.1: before a record of a region is written, every slow member that might be asked alone one day knows durably
    /// that it may not know that region. They all do by now: a start and [`Core::announce`] have seen to that.
    async fn cover_away(&self, snap: &Snapshot) -> Result<(), Error> {
        let mut regions: Vec<u32> = snap.records.iter().map(|r| r.page).collect();
        regions.dedup();
        self.cover_regions(&regions).await
    }

    /// Makes the away bits of `regions` durable on all slow members, side by side: it costs each disk a write and a sync.
    pub(crate) async fn cover_regions(&self, regions: &[u32]) -> Result<(), Error> {
        self.cover_regions_or(regions, |m, e| self.failed(m, "a metadata write", e)).await
    }

    /// The same before a chunk of these regions gets its first home, so that no commit has to wait for a member, or fails with it, that
    /// has nothing of what is committed. It is the write of that chunk that waits, alone and with nothing in its hands that others want;
    /// if a member is lost that would have to hear, that write alone fails.
    pub(crate) async fn announce(&self, regions: [u32; 2]) -> Result<(), Error> {
        if mutant::on(Mutant::AwayAtCommit) {
            return Ok(());
        }
        let behind = || self.members_of(Tier::Slow).filter(|m| !m.away_covers(&regions));
        if behind().next().is_some() {
            behind().try_for_each(|m| self.check_in_reach(m))?;
            // Those who wait for others at the same time are told of together.
            behind().for_each(|m| m.telling.note_regions(&regions));
            let lost = |m: &Member<E::Device>| self.is_out_of_reach(m) && !mutant::on(Mutant::AwayFailureLatches);
            self.cover_regions_or(&regions, |m, e| match lost(m) {
                true => Err(Error::Device { member: m.index, source: e }),
                false => self.failed(m, "a metadata write", e),
            })
            .await?;
        }
        self.announce_ahead(regions[1]);
        Ok(())
    }

    /// What comes one after the other waits for no disk: slow members hear in their own time of the regions that are next.
    fn announce_ahead(&self, region: u32) {
        for m in self.members_of(Tier::Slow) {
            let next = m.first_not_away(region + 1..=region.saturating_add(self.options.away_ahead / 2));
            m.telling.note_regions(next.as_slice());
        }
    }

    /// Makes them durable, with what comes of a member on which that fails.
    async fn cover_regions_or(
        &self,
        regions: &[u32],
        failed: impl Fn(&Member<E::Device>, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if mutant::on(Mutant::C1NoAwayBit) {
            return Ok(());
        }
        let cover = |m| self.cover_regions_on(m, regions, &failed);
        let behind = self.members_of(Tier::Slow).filter(|m| !m.away_covers(regions));
        wait::all(behind.map(cover).collect()).await.into_iter().collect()
    }

    async fn cover_regions_on(
        &self,
        m: &Member<E::Device>,
        regions: &[u32],
        failed: &impl Fn(&Member<E::Device>, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let cover = async {
            let _away = m.away_meta.lock().await;
            if m.away_covers(regions) || m.is_gone() {
                return Ok(());
            }
            m.set_away(regions, self.options.away_ahead).await.or_else(|e| failed(m, e))
        };
        // What it was asked for, it may never answer.
        let left = async {
            m.left().await;
            Ok(())
        };
        wait::first(cover, left).await
    }

    /// Step 2, sync: the members that held unsynced acknowledged data when the snapshot was taken, side by side.
    async fn sync_data(&self, snap: &Snapshot) -> Result<(), Error> {
        if mutant::on(Mutant::C1NoDataSync) {
            return Ok(());
        }
        let skip_slow = mutant::on(Mutant::FlushSkipsOldHome);
        let due = snap.unsynced.iter().filter(|(m, _)| !(skip_slow && self.left_by(snap, *m)));
        let syncs = due.map(|&(m, target)| self.sync_member(m, target)).collect();
        wait::all(syncs).await.into_iter().collect()
    }

    /// Mutants only: whether a chunk of this commit has left member `m`.
    fn left_by(&self, snap: &Snapshot, m: MemberIndex) -> bool {
        let left = snap.left.iter().any(|l| l.slot.member == m);
        if left {
            self.members[m as usize].sync.forget_client();
        }
        left
    }

    /// Steps 3 and 4, append and sync, on every fast member side by side.
    async fn append_everywhere(&self, snap: &Snapshot) -> Result<(), Error> {
        let fast = self.members_of(Tier::Fast).map(|m| self.append_on(m, snap)).collect();
        wait::all(fast).await.into_iter().collect()
    }

    async fn append_on(&self, m: &Member<E::Device>, snap: &Snapshot) -> Result<(), Error> {
        let blocks = m.blocks_for(snap.records.len());
        let _meta = self.lock_with_room(m, blocks).await?;
        let fail = |e| self.latch(m.index, "a journal write", e);
        m.append(&snap.records, snap.generation, self.epoch()).await.map_err(fail)?;
        if mutant::on(Mutant::JournalSyncSkipped) {
            return Ok(());
        }
        m.sync_all().await.map_err(|e| self.latch(m.index, "a journal sync", e))
    }

    /// Step 5: the commit is durable. Pages know their new generation, slow members what they lag behind, and the slots
    /// left are on their way to being free.
    fn publish(&self, snap: Snapshot) {
        let before = std::mem::take(&mut *self.commit.committing.borrow_mut());
        if !snap.records.is_empty() {
            self.commit.durable_generation.set(snap.generation);
            for m in self.members_of(Tier::Fast) {
                let mut j = m.journal.borrow_mut();
                j.durable = j.head;
            }
        }
        let mut map = self.map.borrow_mut();
        for r in &snap.records {
            if map.page(r.page).is_some() {
                map.set_generation(r.page, snap.generation);
            }
        }
        drop(map);
        let mut news = News::None;
        for (r, (chunk, old)) in snap.records.iter().zip(&before) {
            for slot in [old, &r.entry].into_iter().flat_map(slots_of) {
                self.note_lag_on(*chunk, slot.member);
                if self.tier_of_member(slot.member) == Tier::Slow {
                    let lives = r.entry.is_mapped() && r.entry.member == slot.member;
                    news = news.max(if lives { News::Data } else { News::Left });
                }
            }
        }
        // Also of what waits for no slot to be free: a new chunk, blocks that became valid or were trimmed. Alone it would not know of
        // flushed data that it has.
        if news != News::None && !mutant::on(Mutant::C8ChangeUntold) {
            self.tell_slow(news);
        }
        let mut left = snap.left;
        if !mutant::on(Mutant::LeftUntold) {
            // A chunk that went down and left again within one commit: the record of it names neither slot nor member, but
            // the prepared record of the move is in that member's journal.
            left.iter().for_each(|l| self.note_lag_on(l.chunk, l.slot.member));
        }
        if mutant::on(Mutant::C1DirtySetAfterSync) {
            left.append(&mut self.commit.left.borrow_mut());
        }
        self.reclaim_later(left);
        self.checkpoint_wake.notify();
    }
}
