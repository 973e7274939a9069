//! How moves are carried: copied, synced, switched, committed. Invariants: see [`super::mover`].

use std::cell::Cell;
use std::rc::Rc;

use bimetal_format::journal::{Record, RecordKind};
use bimetal_format::Entry;

use super::mover::{is_written_down, take_from, target, Move, MoverState};
use super::under_way::Stage;
use super::{Job, Policy};
use crate::buf::{Buf, BufMut};
use crate::commit::telling::News;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::io::split::runs;
use crate::io::write::home;
use crate::member::{add, Member, Standing, WriteFor};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, SlotId, Tier, BLOCK, BLOCKS_PER_CHUNK, CHUNK};
use crate::wait;

/// The half of a copy that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    Read,
    Write,
    /// Nothing was written: the target is lost.
    Unsent,
}

/// What became of a copy.
pub(super) type Copied = Result<(), Failed>;

/// Chunks that one device request of a copy carries at most: 1 MiB.
const RUN: usize = 8;

impl<E: Env> Core<E> {
    /// Copies a batch, all of it to one member, and sees to it that what was copied is switched. `lifted`: what is to be written, of a batch of
    /// lifts.
    pub(super) async fn run_batch(self: Rc<Self>, job: Job, moves: Vec<Move>, lifted: Vec<Buf>) {
        let m = &self.mover;
        let target = moves[0].to.member;
        let copied = match lifted.is_empty() {
            true => self.copy_all(job, &moves).await,
            false => self.write_lifted(&moves, &lifted).await,
        };
        add(&m.lifts, lifted.len() as u64);
        moves.iter().for_each(|mv| m.under_way.ends(job, Stage::Copying, mv));
        let (good, bad): (Vec<_>, Vec<_>) = moves.into_iter().zip(copied).partition(|(_, copied)| copied.is_ok());
        for (mv, copied) in bad {
            self.is_over(job, &mv);
            self.copy_failed(job, &mv, copied);
        }
        let good: Vec<Move> = good.into_iter().map(|(mv, _)| mv).collect();
        good.iter().for_each(|mv| m.under_way.begins(job, Stage::Finishing, mv));
        let finisher = (job as usize, target);
        m.copied.borrow_mut().entry(finisher).or_default().extend(good);
        self.mover_wake.notify();
        // Whoever evacuates goes on copying.
        m.ended.notify();
        let is_first = m.finishers.borrow_mut().insert(finisher);
        if is_first {
            self.finish_copied(job, target).await;
            m.finishers.borrow_mut().remove(&finisher);
        }
        take_from(&m.batches, 1);
        m.ended.notify();
        self.mover_wake.notify();
    }

    /// A move is not on its way any more.
    fn is_over(&self, job: Job, mv: &Move) {
        self.mover.under_way.ends(job, Stage::OnItsWay, mv);
        if is_written_down(job, mv) {
            self.mover.under_way.ends(job, Stage::Unsettled, mv);
        }
    }

    fn copy_failed(&self, job: Job, mv: &Move, copied: Copied) {
        add(&self.mover.failed, 1);
        let now = self.env.now();
        // What a member that leaves cannot do says nothing of the others.
        let leaves = self.members[mv.from.member as usize].standing.get() == Standing::Leaving;
        if !leaves {
            let mut scheduler = self.mover.scheduler.borrow_mut();
            match copied {
                Err(Failed::Read) => scheduler.cannot_read(job, now),
                _ => scheduler.came_to_nothing(job, now),
            }
        }
        // Nor does a lost connection say anything of the chunk.
        let lost = self.members[mv.from.member as usize].is_lost();
        match copied {
            Err(Failed::Read) if !lost => self.abandon_unread(mv),
            _ => self.abandon(mv),
        }
    }

    /// Switches what has been copied to a member, all that is there at a time: a sync and a journal write cost the same for one
    /// chunk as for hundreds, and what is copied meanwhile must not pile up.
    async fn finish_copied(&self, job: Job, target: MemberIndex) {
        let m = &self.mover;
        // One commit takes them, beside the changes of clients.
        let most = (self.commit.limit.get() / 2).max(1);
        loop {
            let mut part: Vec<Move> = match m.copied.borrow_mut().get_mut(&(job as usize, target)) {
                Some(copied) => copied.drain(..copied.len().min(most)).collect(),
                None => return,
            };
            if part.is_empty() {
                return;
            }
            part.sort_by_key(|mv| mv.to);
            let unswitched = Unswitched::new(m, job, &part);
            let _latched = match job {
                Job::Demote => self.finish_demotions(target, &part, &unswitched).await,
                Job::Promote => self.finish_promotions(target, &part, &unswitched).await,
            };
            drop(unswitched);
            part.iter().for_each(|mv| self.is_over(job, mv));
            self.mover_wake.notify();
        }
    }

    /// Copies all moves, neighbours together; says for each whether it worked.
    async fn copy_all(&self, job: Job, moves: &[Move]) -> Vec<Copied> {
        let mut together = Vec::new();
        let mut rest = moves;
        while let Some(first) = rest.first() {
            let mut n = 1;
            while first.mask == u32::MAX && n < RUN.min(rest.len()) && follows(&rest[n - 1], &rest[n]) {
                n += 1;
            }
            together.push(&rest[..n]);
            rest = &rest[n..];
        }
        let copied = match self.gives_way(job, moves) {
            true => self.copy_in_turn(job, &together).await,
            false => wait::all(together.iter().map(|run| self.copy_run(run)).collect()).await,
        };
        copied.into_iter().flatten().collect()
    }

    pub(super) async fn copy_run(&self, run: &[Move]) -> Vec<Copied> {
        let _pins: Vec<_> = run.iter().flat_map(|m| [self.claims.pin(m.from), self.claims.pin(m.to)]).collect();
        if self.settle_sources(run).await.is_err() {
            return vec![Err(Failed::Write); run.len()];
        }
        let copied = self.copy_blocks(run).await;
        let alone = match run {
            [one] => return vec![self.copied_one(one, copied)],
            _ => || wait::all(run.iter().map(|mv| self.copy_one(mv)).collect()),
        };
        // One that cannot be read or written takes no neighbour with it.
        match copied {
            Ok(()) => vec![Ok(()); run.len()],
            Err(Failed::Unsent) => vec![copied; run.len()],
            Err(Failed::Read) => alone().await,
            Err(Failed::Write) => {
                let to = run[0].to.member;
                run.iter().for_each(|mv| self.members[to as usize].taint(mv.to.slot));
                // After a sync the write that failed cannot land any more (C2.2).
                match self.is_settled(&self.members[to as usize]).await {
                    true => alone().await,
                    false => vec![Err(Failed::Write); run.len()],
                }
            }
        }
    }

    /// What a write of unknown outcome left in a slot is certain only after a sync (C2.2): it may land after the copy was read, be
    /// read by a client, be flushed, and be undone by the switch. Writes that come later cancel the move.
    async fn settle_sources(&self, run: &[Move]) -> Result<(), Error> {
        if mutant::on(Mutant::C2TaintedCopied) {
            return Ok(());
        }
        for mv in run.iter().filter(|mv| !mv.kept) {
            let m = &self.members[mv.from.member as usize];
            while m.is_tainted(mv.from.slot) && !self.claims.is_cancelled(mv.chunk) {
                self.sync_member(m.index, m.sync.written()).await?;
            }
        }
        Ok(())
    }

    async fn copy_one(&self, mv: &Move) -> Copied {
        let copied = self.copy_blocks(std::slice::from_ref(mv)).await;
        self.copied_one(mv, copied)
    }

    /// What became of it. If it failed, a write of unknown outcome may be on its way to the target (C2.2), and the next copy
    /// should go elsewhere.
    fn copied_one(&self, mv: &Move, copied: Copied) -> Copied {
        let target = &self.members[mv.to.member as usize];
        if copied.is_err() && copied != Err(Failed::Unsent) {
            target.taint(mv.to.slot);
        }
        if copied == Err(Failed::Write) {
            target.unwritable.borrow_mut().insert(mv.to.slot);
        }
        copied
    }

    async fn copy_blocks(&self, run: &[Move]) -> Copied {
        if run[0].kept {
            return Ok(());
        }
        let (from, to) = (&self.members[run[0].from.member as usize], &self.members[run[0].to.member as usize]);
        let (src, dst) = (from.layout.slot(run[0].from.slot), to.layout.slot(run[0].to.slot));
        let pieces: Vec<(u64, u64)> = match run {
            [one] => runs(one.mask, 0, BLOCKS_PER_CHUNK)
                .filter(|r| r.2)
                .map(|(a, b, _)| (u64::from(a) * BLOCK, u64::from(b - a) * BLOCK))
                .collect(),
            many => vec![(0, many.len() as u64 * CHUNK)],
        };
        let mut nothing_sent = true;
        for (at, len) in pieces {
            if run.iter().all(|m| self.claims.is_cancelled(m.chunk)) {
                return Ok(());
            }
            let buf = from.read(src + at, BufMut::new(len as usize)).await.map_err(|_| Failed::Read)?;
            // A write that fails is followed by a sync, which would fail and latch the group.
            if nothing_sent && to.is_lost() {
                return Err(Failed::Unsent);
            }
            nothing_sent = false;
            to.write(dst + at, buf.freeze(), WriteFor::Engine).await.map_err(|_| Failed::Write)?;
        }
        Ok(())
    }

    /// Sync, prepare, switch, commit: per slow member, because each has a journal of its own.
    async fn finish_demotions(
        &self,
        member: MemberIndex,
        moves: &[Move],
        unswitched: &Unswitched<'_>,
    ) -> Result<(), Error> {
        if mutant::on(Mutant::SourceFreedEarly) {
            moves.iter().for_each(|m| self.free_now(m.from));
        }
        if mutant::on(Mutant::C9LetGoAtOnce) {
            moves.iter().filter(|m| m.kept).for_each(|m| self.free_now(m.from));
        }
        let m = &self.members[member as usize];
        if m.is_lost() {
            // A sync would fail, and latch the group.
            moves.iter().for_each(|mv| self.abandon(mv));
            return Ok(());
        }
        if !mutant::on(Mutant::C1NoDataSync) {
            if let Err(e) = m.sync_all().await {
                return self.demotions_failed(m, moves, "a sync", e);
            }
        }
        let _meta = m.meta.lock().await;
        let (dropped, live): (Vec<Move>, Vec<Move>) = moves.iter().partition(|mv| self.claims.is_cancelled(mv.chunk));
        for mv in &dropped {
            add(&self.mover.cancelled, 1);
            self.abandon(mv);
        }
        let records: Vec<Record> = live.iter().map(|mv| self.prepared_record(mv)).collect();
        if !records.is_empty() && !mutant::on(Mutant::C1NoPreparedRecord) {
            let prepared = self.append_to_slow(m, &records, &|what, e| self.failed_in_its_time(m, what, e)).await;
            if let Err(Error::Device { source, .. }) = prepared {
                return self.demotions_failed(m, &live, "a journal write", source);
            }
            prepared?;
        }
        let _switching = self.mover.switching[Job::Demote as usize].lock().await;
        let switched = self.switch_all(&live, |mv| {
            // The prepared record names the slot: it is free only after this member's journal has heard otherwise.
            self.note_lag_on(mv.chunk, mv.to.member);
            if !mv.kept {
                self.reclaim_slot(mv.to, mv.chunk);
            }
        });
        unswitched.end();
        self.settle_moves(Job::Demote, switched).await
    }

    /// What was copied to a member that takes nothing more stays where it was. If its connection is lost by now, that is all: nothing names
    /// the copies.
    fn demotions_failed(&self, m: &Member<E::Device>, moves: &[Move], what: &str, e: DeviceError) -> Result<(), Error> {
        if !self.is_out_of_reach(m) {
            self.failed(m, what, e)?;
        }
        moves.iter().for_each(|mv| self.abandon(mv));
        Ok(())
    }

    fn prepared_record(&self, mv: &Move) -> Record {
        let id = self.mover.next_move.get();
        self.mover.next_move.set(id.wrapping_add(1).max(1));
        Record {
            page: mv.chunk.page(),
            index: mv.chunk.index() as u8,
            kind: RecordKind::Prepared,
            move_id: id,
            entry: home(mv.to, mv.mask, self.holds_ciphertext(mv.chunk)),
        }
    }

    fn holds_ciphertext(&self, chunk: ChunkId) -> bool {
        let encrypted = self.map.borrow().get(chunk).is_some_and(|e| e.is_encrypted());
        encrypted && !mutant::on(Mutant::PreparedWithoutFlag)
    }

    async fn finish_promotions(
        &self,
        member: MemberIndex,
        moves: &[Move],
        unswitched: &Unswitched<'_>,
    ) -> Result<(), Error> {
        if !mutant::on(Mutant::C1NoDataSync) && !mutant::on(Mutant::SourceFreedEarly) {
            self.sync_member(member, self.members[member as usize].sync.written()).await?;
        }
        let mut regions: Vec<u32> = moves.iter().map(|m| m.chunk.page()).collect();
        regions.sort_unstable();
        regions.dedup();
        self.cover_regions(&regions).await?;
        if mutant::on(Mutant::SourceFreedEarly) {
            moves.iter().for_each(|m| self.free_now(m.from));
        }
        let _switching = self.mover.switching[Job::Promote as usize].lock().await;
        let switched = self.switch_all(moves, |mv| self.untake(mv.to, mv.chunk));
        unswitched.end();
        self.settle_moves(Job::Promote, switched).await
    }

    /// Switches every move that was not cancelled, in one step; `drop_target` gets rid of the others' slots. The member of a kept copy may
    /// have begun to leave meanwhile.
    fn switch_all(&self, moves: &[Move], drop_target: impl Fn(&Move)) -> Vec<Move> {
        let mut switched = Vec::with_capacity(moves.len());
        for mv in moves {
            let intact = self.claims.end_motion(mv.chunk) && !self.health.is_latched();
            self.no_more_rehomed(mv);
            let entry = self.map.borrow().get(mv.chunk).filter(|e| e.is_mapped());
            let there = |e: &Entry| !mv.kept || self.copy_of(e) == Some(mv.to);
            match entry.filter(|e| intact && there(e)) {
                Some(e) => {
                    let after = Entry { member: mv.to.member, slot: mv.to.slot, ..e.without_kept() };
                    let promoted = self.tier_of_member(mv.to.member) == Tier::Fast;
                    self.change_entry(
                        mv.chunk,
                        match mv.certain && promoted && self.may_keep(mv.from.member) {
                            true => after.with_kept(mv.from.member, mv.from.slot),
                            false => after,
                        },
                    );
                    switched.push(*mv);
                }
                None => {
                    add(&self.mover.cancelled, 1);
                    self.policy.borrow_mut().gave_up(&mut self.view(), mv.chunk);
                    drop_target(mv);
                }
            }
        }
        switched
    }

    /// Commits the switches and counts them.
    async fn settle_moves(&self, job: Job, switched: Vec<Move>) -> Result<(), Error> {
        if switched.is_empty() {
            return Ok(());
        }
        self.commit_changes().await?;
        if job == Job::Promote {
            self.tell_slow(News::Left);
        }
        let now = self.env.now();
        for mv in &switched {
            if self.tier_of_member(mv.from.member) == target(job) {
                add(&self.mover.evacuated, 1);
                self.policy.borrow_mut().was_read(mv.chunk);
                continue;
            }
            self.policy.borrow_mut().moved(&mut self.view(), mv.chunk, target(job));
            self.mover.scheduler.borrow_mut().moved(job, now);
            add(if job == Job::Demote { &self.mover.demoted } else { &self.mover.promoted }, 1);
            add(&self.kept.used, u64::from(mv.kept));
        }
        Ok(())
    }
}

/// Chunks of a batch that are counted as finishing until they have switched.
struct Unswitched<'a> {
    mover: &'a MoverState,
    job: Job,
    moves: Cell<&'a [Move]>,
}

impl<'a> Unswitched<'a> {
    fn new(mover: &'a MoverState, job: Job, moves: &'a [Move]) -> Unswitched<'a> {
        Unswitched { mover, job, moves: Cell::new(moves) }
    }

    fn end(&self) {
        self.moves.take().iter().for_each(|mv| self.mover.under_way.ends(self.job, Stage::Finishing, mv));
    }
}

impl Drop for Unswitched<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether `b` lies right after `a` on both members, wholly valid, and both have to be copied.
fn follows(a: &Move, b: &Move) -> bool {
    let next = |s: SlotId, t: SlotId| s.member == t.member && s.slot + 1 == t.slot;
    b.mask == u32::MAX && !a.kept && !b.kept && next(a.from, b.from) && next(a.to, b.to)
}
