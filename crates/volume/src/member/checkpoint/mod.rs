//! Checkpoints: pages of the map written to one member, made current by one label flip (C5).
//!
//! Order: pages to the side not in use; directory blocks and root likewise; sync; read back; label flip. Only then is
//! the journal before the new tail free to be overwritten.
//!
//! On a fast member commits go on meanwhile: its journal is locked only while it is noted where it ends, which is the new tail, and
//! while the label is flipped. So pages may know commits that lie behind the tail; replay leaves out records that are older than
//! their page. A slow member's journal is locked all the time: nothing that waits for it is a client's.

mod blocks;
mod follow;
mod locks;

use std::time::Duration;

use bimetal_format::directory::{encode_directory, encode_root, Expected, DIRECTORIES_PER_ROOT};
use bimetal_format::page::{self, PageHead};
use bimetal_format::{Entry, ENTRIES_PER_PAGE};

use self::blocks::{read_back, write_all, Written};
pub(crate) use self::locks::{Haste, How, Hurry};
use super::directory::{block_of, Changes, Directory};
use super::journal::Position;
use super::{add, Member};
use crate::buf::{Buf, BufMut};
use crate::commit::lag;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::mutant::{self, Mutant};
use crate::tier::Policy;
use crate::units::{ChunkId, Tier, BLOCK};
use crate::wait::{self, Guard};

/// Pages of the map looked at without a pause.
const LOOKED_AT: u32 = 1 << 16;
/// How often heat that changed is saved while the group is in use.
const SAVE_HEAT: Duration = Duration::from_secs(3600);

/// A checkpoint that nobody waits for rests so long after each batch while clients use its tier: 10 MiB a second are written, and read back.
const REST: Duration = Duration::from_millis(100);

/// The end of a journal when a checkpoint began.
#[derive(Clone, Copy)]
struct Tail {
    at: Position,
    /// Of the newest durable commit.
    generation: u64,
}

impl<E: Env> Core<E> {
    /// The task that keeps journals of fast members at most half full, and saves heat now and then. It asks no slow member.
    pub(crate) async fn run_checkpointer(&self) {
        let (mut heat_saved, mut hour) = (self.env.now(), Box::pin(self.env.sleep(SAVE_HEAT)));
        while !self.stopped.get() && !self.health.is_latched() {
            let wake = self.checkpoint_wake.wait();
            if self.env.now().since(heat_saved) >= SAVE_HEAT {
                (heat_saved, hour) = (self.env.now(), Box::pin(self.env.sleep(SAVE_HEAT)));
                if self.save_heat().await.is_err() {
                    return;
                }
            }
            let mut written = false;
            for m in self.members_of(Tier::Fast) {
                if m.journal_used(1, 2) && m.journal_gains() {
                    if self.checkpoint_at(m, &[], Haste::Gently).await.is_err() {
                        return;
                    }
                    written = true;
                }
            }
            if written {
                self.have_slow_follow();
            }
            self.await_slow_by_mistake().await;
            wait::first(wake, hour.as_mut()).await;
        }
    }

    /// Mutants only: waits for all checkpoints of slow members, of those that have left too.
    async fn await_slow_by_mistake(&self) {
        let wrongly = mutant::on(Mutant::CheckpointsInOneTask);
        for m in self.members.rows().filter(|m| wrongly && m.tier == Tier::Slow) {
            drop(m.pages.lock().await);
        }
    }

    /// Saves what heat has changed, if any has, on all fast members: the next start reads the map of one of them, and which is not
    /// known after a crash.
    async fn save_heat(&self) -> Result<(), Error> {
        let _saving = self.saving_heat.lock().await;
        let changed = self.changed_heat().await;
        if !changed.is_empty() {
            for m in self.members_of(Tier::Fast) {
                self.checkpoint_at(m, &changed, Haste::Gently).await?;
            }
        }
        Ok(())
    }

    /// For an orderly stop: writes the map to all members, and all heat to the fast ones, which come first.
    pub(crate) async fn checkpoint_all(&self) -> Result<(), Error> {
        let _saving = self.saving_heat.lock().await;
        let changed = self.changed_heat().await;
        for m in self.members_of(Tier::Fast) {
            self.checkpoint(m, &changed).await?;
        }
        for m in self.members_of(Tier::Slow) {
            self.unless_silent(m, "a metadata write", self.checkpoint(m, &[])).await?;
        }
        Ok(())
    }

    /// Pages with heat that has changed since it was last asked for, in order. The caller, who holds `saving_heat`, writes them.
    async fn changed_heat(&self) -> Vec<u32> {
        let mut changed = Vec::new();
        let mut next = 0;
        loop {
            let len = self.map.borrow().len() as u32;
            let end = len.min(next + LOOKED_AT);
            self.map.borrow_mut().take_changed_heat(next..end, &mut changed);
            if end == len {
                return changed;
            }
            next = end;
            wait::turn().await;
        }
    }

    /// Writes a checkpoint of a member. That it is lost meanwhile is an error of the caller alone.
    pub(crate) async fn checkpoint_while_reached(&self, m: &Member<E::Device>) -> Result<(), Error> {
        let locks = m.lock_for_checkpoint().await;
        let how = How { commits: locks.commits(), ..How::ALONE };
        self.checkpoint_or(m, how, |what, e| self.failed_in_its_time(m, what, e)).await
    }

    /// Writes a checkpoint of member `m`, also of these pages (in order), though no commit has changed them. The caller does not hold
    /// `meta`.
    pub(crate) async fn checkpoint(&self, m: &Member<E::Device>, also: &[u32]) -> Result<(), Error> {
        self.checkpoint_at(m, also, Haste::AtOnce).await
    }

    async fn checkpoint_at(&self, m: &Member<E::Device>, also: &[u32], haste: Haste) -> Result<(), Error> {
        let locks = m.lock_for_checkpoint().await;
        self.checkpoint_as(m, How { also, haste, commits: locks.commits() }).await
    }

    /// Locks the journal of a fast member with room for so many blocks, which fit the ring; of one that is gone, without.
    pub(crate) async fn lock_with_room<'a>(&self, m: &'a Member<E::Device>, blocks: u64) -> Result<Guard<'a>, Error> {
        self.lock_with_room_or(m, blocks, |what, e| self.failed(m, what, e)).await
    }

    /// The same of any member, with what comes of a checkpoint for it that fails.
    pub(crate) async fn lock_with_room_or<'a>(
        &self,
        m: &'a Member<E::Device>,
        blocks: u64,
        failed: impl Fn(&str, DeviceError) -> Result<(), Error>,
    ) -> Result<Guard<'a>, Error> {
        assert!(blocks <= m.layout.journal_blocks, "journal invariant 1");
        loop {
            let meta = m.meta.lock().await;
            if m.journal_has_room(blocks) || m.is_gone() {
                return Ok(meta);
            }
            drop(meta);
            let locks = m.lock_for_checkpoint().await;
            // The one that was under way may have made room.
            if !m.journal_has_room(blocks) {
                self.checkpoint_or(m, How { commits: locks.commits(), ..How::ALONE }, &failed).await?;
            }
            self.health.check()?;
        }
    }

    /// A checkpoint by a caller who holds `meta`: of a slow member, or while nothing else is going on.
    pub(crate) async fn checkpoint_locked(&self, m: &Member<E::Device>) -> Result<(), Error> {
        self.checkpoint_as(m, How::ALONE).await
    }

    /// A checkpoint by a caller who holds the locks for it.
    pub(crate) async fn checkpoint_as(&self, m: &Member<E::Device>, how: How<'_>) -> Result<(), Error> {
        self.checkpoint_or(m, how, |what, e| self.failed(m, what, e)).await
    }

    /// The same, with what comes of one that fails.
    pub(crate) async fn checkpoint_or(
        &self,
        m: &Member<E::Device>,
        how: How<'_>,
        failed: impl Fn(&str, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Whoever waited for a lock while another's checkpoint failed must not go on from what that left behind: which side
        // of the pages, which label is current is not known any more.
        self.health.check()?;
        if m.is_gone() {
            return Ok(());
        }
        let result = self.checkpoint_steps(m, how).await;
        result.or_else(|e| failed("a metadata write", e))?;
        self.health.check()
    }

    /// The same without consequences for the group if it fails. For a device that is not a member yet.
    pub(crate) async fn checkpoint_steps(&self, m: &Member<E::Device>, how: How<'_>) -> Result<(), DeviceError> {
        add(&self.counters.checkpoints, 1);
        let (mut begun, lag_settled) = {
            let _meta = how.commits.keep_out(m).await;
            (self.here(m), m.lag.borrow().clone())
        };
        if mutant::on(Mutant::C5TailBeforePages) {
            self.flip_to_tail(m, begun).await?;
        }
        let mut written = Vec::new();
        let dirty = self.dirty_pages(m, how.also).await;
        let mut changes = Changes::default();
        let batch = self.options.checkpoint_batch.max(1);
        for (n, part) in dirty.chunks(batch).enumerate() {
            self.give_way(m, how.haste, n).await;
            self.write_pages(m, part, &mut changes, &mut written).await?;
        }
        if !dirty.is_empty() {
            self.write_directory(m, &mut changes, &mut written).await?;
            m.sync_all().await?;
            for (n, part) in written.chunks(batch).enumerate() {
                self.give_way(m, how.haste, n).await;
                read_back(m, part).await?;
            }
            m.directory.borrow_mut().change(changes);
        }
        if mutant::on(Mutant::C5TailMovesOn) {
            begun = self.here(m);
        }
        let _meta = how.commits.keep_out(m).await;
        if self.health.is_latched() {
            // It may have been a flip that failed: how far it came is not known, and the other label is the only one that is.
            return Ok(());
        }
        self.flip_to_tail(m, begun).await?;
        lag::forget(m, &lag_settled);
        Ok(())
    }

    /// Where the journal ends now, as far as it is durable: everything before is in the pages as they are from now on.
    fn here(&self, m: &Member<E::Device>) -> Tail {
        Tail { at: m.journal.borrow().durable, generation: self.commit.durable_generation.get() }
    }

    /// Before a further batch: gives way to clients, unless somebody waits for the end, or the journal is about to be full.
    async fn give_way(&self, m: &Member<E::Device>, haste: Haste, batch: usize) {
        let nearly_full = || self.members_of(Tier::Fast).any(|m| m.journal_used(3, 4));
        let waited_for = || m.hurry.is_waited_for() || self.stopping.get() || nearly_full();
        if haste == Haste::Gently && batch > 0 && !waited_for() && self.quiet_for(m.tier) < REST {
            wait::first(self.env.sleep(REST), m.hurry.called.wait()).await;
        }
    }

    /// The caller holds `meta`.
    async fn flip_to_tail(&self, m: &Member<E::Device>, tail: Tail) -> Result<(), DeviceError> {
        let Tail { at: Position { sequence, hash }, generation } = tail;
        let mut label = m.label.borrow().clone();
        let root = m.directory.borrow().root;
        label.journal_tail = sequence;
        label.journal_tail_hash = hash;
        label.checkpoint_generation = generation;
        label.root_generation = root.generation();
        label.root_side = root.side();
        m.promise_journal(&mut label, self.commit.generation.get());
        label.policy_clock = self.policy.borrow().clock();
        m.flip(label).await?;
        m.journal.borrow_mut().tail = sequence;
        Ok(())
    }

    /// Pages whose newest durable state this member does not have, and those in `also` of which it has a copy. Those that a
    /// commit changes meanwhile may or may not be among them: the journal has them.
    pub(crate) async fn dirty_pages(&self, m: &Member<E::Device>, also: &[u32]) -> Vec<u32> {
        let mut dirty = Vec::new();
        let mut next = 0;
        loop {
            let len = self.map.borrow().len() as u32;
            let end = len.min(next + LOOKED_AT);
            dirty.extend((next..end).filter(|page| self.is_behind(m, *page, also)));
            if end == len {
                return dirty;
            }
            next = end;
            wait::turn().await;
        }
    }

    fn is_behind(&self, m: &Member<E::Device>, page: u32, also: &[u32]) -> bool {
        let (map, directory) = (self.map.borrow(), m.directory.borrow());
        let expected = directory.pages.get(page as usize);
        let newer = map.generation(page) > expected.generation();
        let changed = || also.binary_search(&page).is_ok() && expected.is_some() && map.page(page).is_some();
        newer || changed()
    }

    async fn write_pages(
        &self,
        m: &Member<E::Device>,
        pages: &[u32],
        changes: &mut Changes,
        written: &mut Vec<Written>,
    ) -> Result<(), DeviceError> {
        let mut images = Vec::with_capacity(pages.len());
        for &page in pages {
            let current = m.directory.borrow().pages.get(page as usize);
            let side = match mutant::on(Mutant::C5SameSide) {
                true => current.side(),
                false => Directory::other_side(current),
            };
            let place = m.layout.page(page, side);
            let (generation, content) = self.page_image(m, page, place);
            changes.pages.push((page, Expected::new(generation, side)));
            images.push((place, content));
        }
        write_all(m, images, written).await
    }

    /// The page as of the newest durable commit: pending changes are overlaid with their committed value (C5.1).
    fn page_image(&self, m: &Member<E::Device>, page: u32, place: u64) -> (u64, Buf) {
        let mut map = self.map.borrow_mut();
        let volume = self.volume_of(ChunkId(u64::from(page) * ENTRIES_PER_PAGE as u64)).map_or(0, |v| v.id);
        let p = map.page_mut(page).expect("a dirty page is in memory");
        let policy = self.policy.borrow();
        let mut entries = [Entry::default(); ENTRIES_PER_PAGE];
        for (i, e) in entries.iter_mut().enumerate() {
            let current = Entry { heat: policy.coarse(p.heat(i)), ..p.entry(i) };
            let chunk = ChunkId(u64::from(page) * ENTRIES_PER_PAGE as u64 + i as u64);
            *e = match mutant::on(Mutant::C5PageWithPending) {
                true => current,
                false => self.commit.durable_entry(chunk, current),
            };
        }
        let generation = self.commit.durable_generation.get().max(1);
        let head = PageHead { page, volume, generation, epoch: self.epoch(), clock: policy.octave() };
        let mut buf = BufMut::new(BLOCK as usize);
        page::encode(&mut buf, &head, &entries, &m.salt(place));
        (generation, buf.freeze())
    }

    /// Writes the directory's blocks that name changed pages, and the root.
    async fn write_directory(
        &self,
        m: &Member<E::Device>,
        changes: &mut Changes,
        written: &mut Vec<Written>,
    ) -> Result<(), DeviceError> {
        let mut images = Vec::new();
        let (mut blocks, root) = (m.directory.borrow().blocks.clone(), m.directory.borrow().root);
        // Never less than that of any block that a root names: a directory begun anew must differ from all of them.
        let generation = self.commit.durable_generation.get().max(root.generation()).max(1);
        for changed in changes.pages.chunk_by(|a, b| block_of(a.0) == block_of(b.0)) {
            let b = block_of(changed[0].0);
            let side = Directory::other_side(blocks[b]);
            let place = m.layout.directory_block(b as u64, side);
            let content = m.directory.borrow().block_with(b, changed);
            let mut buf = BufMut::new(BLOCK as usize);
            encode_directory(&mut buf, b as u64, generation, &content, &m.salt(place));
            blocks[b] = Expected::new(generation, side);
            changes.blocks.push((b as u32, blocks[b]));
            images.push((place, buf.freeze()));
        }
        let side = Directory::other_side(root);
        for (index, blocks) in blocks.chunks(DIRECTORIES_PER_ROOT).enumerate() {
            let place = m.layout.root_block(index as u64, side);
            let mut buf = BufMut::new(BLOCK as usize);
            encode_root(&mut buf, index as u64, generation, blocks, &m.salt(place));
            images.push((place, buf.freeze()));
        }
        changes.root = Expected::new(generation, side);
        write_all(m, images, written).await
    }
}
