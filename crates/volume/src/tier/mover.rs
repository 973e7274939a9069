//! The mover: carries chunks between the tiers. Copy first, then switch, then free (B7).
//!
//! Terms: a *move* takes a chunk from the slot `from` to the slot `to`. A *batch* is a set of moves of one kind that
//! share syncs and a commit. A batch is *copying*, then *finishing*.
//!
//! Invariants:
//! 1. A copy begins only while no write is in flight on the chunk, and switches only if none touched it since (C3.1).
//! 2. The copy is synced before the switch; the switch is one step, before a commit's snapshot (C3.2, I3).
//! 3. A demotion is prepared durably in the slow member's journal before it switches; that journal is not checkpointed
//!    until the switch is committed, so the prepared record cannot be lost in between (C1.6).
//! 4. A chunk with a kept copy goes down without copying: to that slot, by the same steps (C9).
//! 5. No foreground request waits for a move (D7); on a nearly full group moves leave half of the headroom to them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bimetal_format::journal::{Record, RecordKind};
use bimetal_format::Entry;

use super::{Job, Levels, Policy, Scheduler};
use crate::buf::{Buf, BufMut};
use crate::commit::Left;
use crate::env::{Env, Instant};
use crate::error::Error;
use crate::group::core::Core;
use crate::io::split::runs;
use crate::io::write::home;
use crate::kept::kept_slot;
use crate::member::{add, WriteFor};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier, BLOCK, BLOCKS_PER_CHUNK, CHUNK};
use crate::wait::{self, Signal};

/// Chunks that one device request of a copy carries at most: 1 MiB.
const RUN: usize = 8;

/// The mover's state and counters.
pub(crate) struct MoverState {
    pub(super) scheduler: RefCell<Scheduler>,
    pub(crate) words: RefCell<(String, String)>,
    pub(crate) promoted: Cell<u64>,
    pub(crate) demoted: Cell<u64>,
    pub(crate) cancelled: Cell<u64>,
    pub(crate) failed: Cell<u64>,
    /// Chunks of each kind being copied.
    pub(super) copying: [Cell<usize>; 2],
    /// Chunks of each kind copied and not switched yet.
    finishing: [Cell<usize>; 2],
    /// Chunks of each kind in batches that have not ended.
    pub(super) under_way: [Cell<usize>; 2],
    /// Lifts whose data has come.
    pub(super) lifted: RefCell<Vec<(Move, Buf)>>,
    /// Chunks promoted by lifts.
    pub(crate) lifts: Cell<u64>,
    batches: Cell<usize>,
    pub(super) running: Cell<bool>,
    ended: Signal,
    next_move: Cell<u16>,
    /// Of each kind, the move begun last: the map does not know its target yet, and a neighbour should lie next to it.
    last: [Cell<Option<(ChunkId, SlotId)>>; 2],
    /// The mover sleeps for long; a change of levels wakes it.
    resting: Cell<bool>,
}

/// One chunk on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(super) chunk: ChunkId,
    from: SlotId,
    pub(super) to: SlotId,
    mask: u32,
    /// `to` is the chunk's kept copy: there is nothing to be copied, and the slot is not the move's to give back.
    kept: bool,
    /// No write of unknown outcome could reach `from` when the move began, and later ones cancel it: what is copied is what
    /// stays there.
    certain: bool,
}

impl MoverState {
    pub(crate) fn new(burst: u64, now: Instant) -> MoverState {
        MoverState {
            scheduler: RefCell::new(Scheduler::with_burst(burst, now)),
            words: RefCell::new(("resting".into(), "the group has just been opened".into())),
            promoted: Cell::default(),
            demoted: Cell::default(),
            cancelled: Cell::default(),
            failed: Cell::default(),
            copying: Default::default(),
            finishing: Default::default(),
            under_way: Default::default(),
            lifted: RefCell::default(),
            lifts: Cell::default(),
            batches: Cell::default(),
            running: Cell::default(),
            ended: Signal::default(),
            next_move: Cell::new(1),
            last: Default::default(),
            resting: Cell::default(),
        }
    }
}

fn target(job: Job) -> Tier {
    match job {
        Job::Demote => Tier::Slow,
        Job::Promote => Tier::Fast,
    }
}

impl<E: Env> Core<E> {
    /// A foreground request goes to a device of `tier`.
    pub(crate) fn foreground_begins(&self, tier: Tier) -> Instant {
        let now = self.env.now();
        self.mover.scheduler.borrow_mut().foreground_started(tier, now);
        now
    }

    /// It came back.
    pub(crate) fn foreground_ends(&self, tier: Tier, begun: Instant) {
        let now = self.env.now();
        self.mover.scheduler.borrow_mut().foreground_done(tier, now.since(begun), now);
        if self.mover.resting.get() && self.has_work() {
            self.mover.resting.set(false);
            self.mover_wake.notify();
        }
    }

    fn has_work(&self) -> bool {
        let short = self.free_in(Tier::Fast) < self.reserve_slots;
        short || self.policy.borrow().candidate_count() > 0 || self.kept_excess() > 0
    }

    /// The mover's task.
    pub(crate) async fn run_mover(self: Rc<Self>) {
        self.mover.running.set(true);
        while !self.stopping.get() && !self.stopped.get() && !self.health.is_latched() {
            let wake = self.mover_wake.wait();
            if mutant::on(Mutant::MoverStuck) && self.mover.cancelled.get() > 0 {
                break;
            }
            self.drop_kept(self.kept_excess());
            self.start_lifted();
            let plan = self.mover.scheduler.borrow_mut().plan(&self.levels(), self.env.now());
            *self.mover.words.borrow_mut() = (plan.doing, plan.why);
            for (job, wanted) in [(Job::Demote, plan.demote), (Job::Promote, plan.promote)] {
                if wanted > 0 && !self.start_batch(job, wanted) {
                    self.mover.scheduler.borrow_mut().came_to_nothing(job, self.env.now());
                    if mutant::on(Mutant::MoverSpinsWhenFull) && job == Job::Demote {
                        self.mover.running.set(false);
                        return;
                    }
                }
            }
            self.mover.resting.set(plan.next_check >= std::time::Duration::from_secs(1) && !self.has_work());
            wait::first(wake, self.env.sleep(plan.next_check)).await;
        }
        self.mover.running.set(false);
        self.drop_lifted();
        self.mover.ended.notify();
    }

    /// Waits until no move is under way; the mover has been told to stop.
    pub(crate) async fn mover_ended(&self) {
        while self.mover.running.get() || self.mover.batches.get() > 0 {
            self.mover.ended.wait().await;
        }
    }

    fn levels(&self) -> Levels {
        let m = &self.mover;
        let of = |cells: &[Cell<usize>; 2], job: Job| cells[job as usize].get();
        let unswitched = |job| of(&m.copying, job) + of(&m.finishing, job);
        let at_home: u64 = self.volumes.iter().map(|v| v.fast_chunks.get()).sum();
        let used = self.free_in(Tier::Fast) + at_home + unswitched(Job::Promote) as u64;
        let left = self.slots_in(Tier::Fast).saturating_sub(used) as usize;
        Levels {
            fast_slots: self.slots_in(Tier::Fast) as u32,
            free: self.available(Tier::Fast, Placement::Auto) as u32,
            reserve: self.reserve_slots as u32,
            leaving: (left + of(&m.finishing, Job::Demote)) as u32,
            slow_free: self.available(Tier::Slow, Placement::Auto) as u32,
            candidates: self.policy.borrow().candidate_count(),
            demoting: of(&m.copying, Job::Demote),
            promoting: of(&m.under_way, Job::Promote),
        }
    }

    /// Chooses chunks, takes slots for them, and sends them off as a batch of their own. False if none could be moved.
    fn start_batch(self: &Rc<Self>, job: Job, wanted: usize) -> bool {
        let free = self.available(Tier::Fast, Placement::Auto) + self.available(Tier::Slow, Placement::Auto);
        let wanted = wanted.min(free.saturating_sub(self.headroom / 2) as usize);
        // A batch is one commit, beside the changes of clients.
        let wanted = wanted.min((self.commit.limit.get() / 2).max(1));
        if wanted == 0 {
            return false;
        }
        let chunks = {
            let (mut view, mut policy) = (self.view(), self.policy.borrow_mut());
            match job {
                Job::Demote => policy.victims(&mut view, wanted),
                Job::Promote => policy.candidates(&mut view, wanted),
            }
        };
        let mut moves = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            match self.begin_move(job, chunk) {
                Some(m) => moves.push(m),
                None => self.policy.borrow_mut().gave_up(&mut self.view(), chunk),
            }
        }
        if moves.is_empty() {
            return false;
        }
        moves.sort_by_key(|m| m.to);
        add_to(&self.mover.batches, 1);
        add_to(&self.mover.copying[job as usize], moves.len());
        add_to(&self.mover.under_way[job as usize], moves.len());
        let core = self.clone();
        self.env.spawn(async move { core.run_batch(job, moves, Vec::new()).await });
        true
    }

    /// Sends off as one batch what reads have brought.
    fn start_lifted(self: &Rc<Self>) {
        let (moves, data) = self.take_lifted();
        if moves.is_empty() {
            return;
        }
        add_to(&self.mover.batches, 1);
        let core = self.clone();
        self.env.spawn(async move { core.run_batch(Job::Promote, moves, data).await });
    }

    pub(super) fn begin_move(&self, job: Job, chunk: ChunkId) -> Option<Move> {
        let to_tier = target(job);
        let entry = self.entry(chunk).ok().filter(|e| e.is_mapped())?;
        let wrong_place = self.tier_of_member(entry.member) == to_tier;
        if wrong_place || self.placement_of(chunk) != Some(Placement::Auto) {
            return None;
        }
        let copy = kept_slot(&entry);
        let room = copy.is_some() || self.available(to_tier, Placement::Auto) > 0;
        if !room || !self.claims.begin_motion(chunk) {
            return None;
        }
        let Some(to) = copy.or_else(|| self.take_target(job, chunk)) else {
            self.claims.end_motion(chunk);
            return None;
        };
        let from = SlotId { member: entry.member, slot: entry.slot };
        let certain = !self.members[from.member as usize].tainted.borrow().contains(&from.slot);
        Some(Move { chunk, from, to, mask: entry.mask, kept: copy.is_some(), certain })
    }

    /// A slot for a chunk on its way, after the one taken last if the chunks are neighbours.
    fn take_target(&self, job: Job, chunk: ChunkId) -> Option<SlotId> {
        let last = &self.mover.last[job as usize];
        let after = last.get().and_then(|l| self.take_after(l, chunk));
        let to = after.or_else(|| self.take_slot(target(job), chunk))?;
        last.set(Some((chunk, to)));
        Some(to)
    }

    /// `lifted`: what is to be written, of a batch of lifts.
    async fn run_batch(self: Rc<Self>, job: Job, moves: Vec<Move>, lifted: Vec<Buf>) {
        let m = &self.mover;
        let (count, kind) = (moves.len(), job as usize);
        let copied = match lifted.is_empty() {
            true => self.copy_all(&moves).await,
            false => self.write_lifted(&moves, &lifted).await,
        };
        add(&m.lifts, lifted.len() as u64);
        let (good, bad): (Vec<_>, Vec<_>) = moves.into_iter().zip(copied).partition(|(_, ok)| *ok);
        for (mv, _) in bad {
            add(&m.failed, 1);
            m.scheduler.borrow_mut().came_to_nothing(job, self.env.now());
            self.abandon(&mv);
        }
        let good: Vec<Move> = good.into_iter().map(|(mv, _)| mv).collect();
        m.copying[kind].set(m.copying[kind].get() - count);
        add_to(&m.finishing[kind], good.len());
        let unswitched = Unswitched(&m.finishing[kind], Cell::new(good.len()));
        self.mover_wake.notify();
        let _latched = match job {
            Job::Demote => self.finish_demotions(good, &unswitched).await,
            Job::Promote => self.finish_promotions(good, &unswitched).await,
        };
        drop(unswitched);
        m.under_way[kind].set(m.under_way[kind].get() - count);
        m.batches.set(m.batches.get() - 1);
        m.ended.notify();
        self.mover_wake.notify();
    }

    /// Ends a move that will not switch; no record names its target slot.
    pub(super) fn abandon(&self, mv: &Move) {
        self.claims.end_motion(mv.chunk);
        self.policy.borrow_mut().gave_up(&mut self.view(), mv.chunk);
        if !mv.kept {
            self.untake(mv.to, mv.chunk);
        }
    }

    /// Copies all moves, neighbours together; says for each whether it worked.
    async fn copy_all(&self, moves: &[Move]) -> Vec<bool> {
        let mut copies = Vec::new();
        let mut rest = moves;
        while let Some(first) = rest.first() {
            let mut n = 1;
            while first.mask == u32::MAX && n < RUN.min(rest.len()) && follows(&rest[n - 1], &rest[n]) {
                n += 1;
            }
            copies.push(self.copy_run(&rest[..n]));
            rest = &rest[n..];
        }
        wait::all(copies).await.into_iter().flatten().collect()
    }

    async fn copy_run(&self, run: &[Move]) -> Vec<bool> {
        let _pins: Vec<_> = run.iter().flat_map(|m| [self.claims.pin(m.from), self.claims.pin(m.to)]).collect();
        let ok = match self.copy_blocks(run).await {
            Ok(()) => true,
            Err(()) => {
                run.iter().for_each(|m| self.members[m.to.member as usize].taint(m.to.slot));
                false
            }
        };
        vec![ok; run.len()]
    }

    async fn copy_blocks(&self, run: &[Move]) -> Result<(), ()> {
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
        for (at, len) in pieces {
            if run.iter().all(|m| self.claims.is_cancelled(m.chunk)) {
                return Ok(());
            }
            let buf = from.read(src + at, BufMut::new(len as usize)).await.map_err(drop)?;
            to.write(dst + at, buf.freeze(), WriteFor::Engine).await.map_err(drop)?;
        }
        Ok(())
    }

    /// Sync, prepare, switch, commit: per slow member, because each has a journal of its own.
    async fn finish_demotions(&self, moves: Vec<Move>, unswitched: &Unswitched<'_>) -> Result<(), Error> {
        if mutant::on(Mutant::SourceFreedEarly) {
            moves.iter().for_each(|m| self.free_now(m.from));
        }
        let mut targets: Vec<MemberIndex> = moves.iter().map(|m| m.to.member).collect();
        targets.dedup();
        let mut outcome = Ok(());
        for t in targets {
            let part: Vec<Move> = moves.iter().filter(|m| m.to.member == t).copied().collect();
            let result = self.finish_demotions_to(t, &part, unswitched).await;
            outcome = outcome.and(result);
        }
        outcome
    }

    async fn finish_demotions_to(
        &self,
        member: MemberIndex,
        moves: &[Move],
        unswitched: &Unswitched<'_>,
    ) -> Result<(), Error> {
        let m = &self.members[member as usize];
        if !mutant::on(Mutant::C1NoDataSync) {
            self.sync_member(member, m.sync.written()).await?;
        }
        let _meta = m.meta.lock().await;
        let (dropped, live): (Vec<Move>, Vec<Move>) = moves.iter().partition(|mv| self.claims.is_cancelled(mv.chunk));
        for mv in &dropped {
            add(&self.mover.cancelled, 1);
            self.abandon(mv);
        }
        let records: Vec<Record> = live.iter().map(|mv| self.prepared_record(mv)).collect();
        if !records.is_empty() && !mutant::on(Mutant::C1NoPreparedRecord) {
            self.append_to_slow(m, &records).await?;
        }
        let switched = self.switch_all(&live, |mv| {
            // The prepared record names the slot: it is free only after this member's journal has heard otherwise.
            self.note_lag_on(mv.chunk, mv.to.member);
            if !mv.kept {
                self.reclaim.add(vec![Left { slot: mv.to, chunk: mv.chunk }]);
            }
        });
        unswitched.less(moves.len());
        self.settle_moves(Job::Demote, switched).await
    }

    fn prepared_record(&self, mv: &Move) -> Record {
        let id = self.mover.next_move.get();
        self.mover.next_move.set(id.wrapping_add(1).max(1));
        Record {
            page: mv.chunk.page(),
            index: mv.chunk.index() as u8,
            kind: RecordKind::Prepared,
            move_id: id,
            entry: home(mv.to, mv.mask),
        }
    }

    async fn finish_promotions(&self, moves: Vec<Move>, unswitched: &Unswitched<'_>) -> Result<(), Error> {
        let mut targets: Vec<MemberIndex> = moves.iter().map(|m| m.to.member).collect();
        targets.dedup();
        if !mutant::on(Mutant::C1NoDataSync) && !mutant::on(Mutant::SourceFreedEarly) {
            for t in targets {
                self.sync_member(t, self.members[t as usize].sync.written()).await?;
            }
        }
        let mut regions: Vec<u32> = moves.iter().map(|m| m.chunk.page()).collect();
        regions.sort_unstable();
        regions.dedup();
        self.cover_regions(&regions).await?;
        if mutant::on(Mutant::SourceFreedEarly) {
            moves.iter().for_each(|m| self.free_now(m.from));
        }
        let switched = self.switch_all(&moves, |mv| self.untake(mv.to, mv.chunk));
        unswitched.less(moves.len());
        self.settle_moves(Job::Promote, switched).await
    }

    /// Switches every move that was not cancelled, in one step; `drop_target` gets rid of the others' slots.
    fn switch_all(&self, moves: &[Move], drop_target: impl Fn(&Move)) -> Vec<Move> {
        let mut switched = Vec::with_capacity(moves.len());
        for mv in moves {
            let intact = self.claims.end_motion(mv.chunk) && !self.health.is_latched();
            let entry = self.map.borrow().get(mv.chunk).filter(|e| e.is_mapped());
            let there = |e: &Entry| !mv.kept || kept_slot(e) == Some(mv.to);
            match entry.filter(|e| intact && there(e)) {
                Some(e) => {
                    let after = Entry { member: mv.to.member, slot: mv.to.slot, ..e.without_kept() };
                    self.change_entry(
                        mv.chunk,
                        match mv.certain && self.may_keep(mv.from.member) {
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
            self.reclaim.tell_slow();
        }
        let now = self.env.now();
        for mv in &switched {
            self.policy.borrow_mut().moved(&mut self.view(), mv.chunk, target(job));
            self.mover.scheduler.borrow_mut().moved(job, now);
            add(if job == Job::Demote { &self.mover.demoted } else { &self.mover.promoted }, 1);
            add(&self.kept.used, u64::from(mv.kept));
        }
        Ok(())
    }
}

/// Chunks of a batch that are counted as finishing until they have switched.
struct Unswitched<'a>(&'a Cell<usize>, Cell<usize>);

impl Unswitched<'_> {
    fn less(&self, n: usize) {
        self.0.set(self.0.get() - n);
        self.1.set(self.1.get() - n);
    }
}

impl Drop for Unswitched<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1.get());
    }
}

fn add_to(c: &Cell<usize>, n: usize) {
    c.set(c.get() + n);
}

/// Whether `b` lies right after `a` on both members, wholly valid, and both have to be copied.
fn follows(a: &Move, b: &Move) -> bool {
    let next = |s: SlotId, t: SlotId| s.member == t.member && s.slot + 1 == t.slot;
    b.mask == u32::MAX && !a.kept && !b.kept && next(a.from, b.from) && next(a.to, b.to)
}
