//! Lifts: promotions of chunks that a client's read has just brought into memory, so that the slow disk is asked only
//! once.
//!
//! A lift is a move (see [`super::mover`]) whose copy comes from the read: the chunk is in motion from before the read
//! is sent, so that a write in between cancels it (C3.1); what was read waits in `lifted` until the mover writes it,
//! several together, in the mover's time. The client never waits for it (D7).
//!
//! Lifts take room that is free beyond the reserve, at most [`LIFTS_MAX`] chunks at a time; none makes room for itself.

use smallvec::SmallVec;

use super::carry::{Copied, Failed};
use super::mover::Move;
use super::under_way::{Planner, Stage};
use super::{Job, Policy};
use crate::backend::{Piece, Pieces};
use crate::buf::{Buf, BufMut};
use crate::env::Env;
use crate::group::core::Core;
use crate::io::place::Still;
use crate::io::split::Part;
use crate::member::WriteFor;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, Placement, Tier, CHUNK};
use crate::wait;

/// Chunks that are lifted at a time, at most: 16 MiB of memory.
const LIFTS_MAX: usize = 64;

/// Lifts that one read began. Those whose data never came are given up when this is dropped.
pub(crate) struct Lifts<'a, E: Env> {
    core: &'a Core<E>,
    /// Each with the first byte of its chunk within the request.
    moves: SmallVec<[(Move, u64); 8]>,
}

impl<E: Env> Drop for Lifts<'_, E> {
    fn drop(&mut self) {
        for (mv, _) in self.moves.drain(..) {
            self.core.end_lift(&mv);
        }
    }
}

impl<E: Env> Lifts<'_, E> {
    /// Hands over what was read: `pieces` are whole blocks, which begin `before` bytes before the request.
    pub(crate) fn carry(mut self, before: u64, pieces: &Pieces) {
        let core = self.core;
        if self.moves.is_empty() || core.stopping.get() || !core.mover.running.get() {
            return;
        }
        // A slice keeps the whole of what was read in memory (I10).
        let read: u64 = pieces.iter().map(Piece::len).sum();
        let sparse = self.moves.len() as u64 * CHUNK * 2 < read;
        for (mv, at) in self.moves.drain(..) {
            let found = whole_chunk(pieces, before + at);
            match found.map(|data| if sparse { copy_of(&data) } else { data }) {
                Some(data) => core.mover.lifted.borrow_mut().push((mv, data)),
                None => core.end_lift(&mv),
            }
        }
        core.mover_wake.notify();
    }
}

/// The chunk that lies `at` bytes into the answer, if it came in one piece.
fn whole_chunk(pieces: &Pieces, mut at: u64) -> Option<Buf> {
    for p in pieces {
        match p {
            Piece::Data(b) if at + CHUNK <= p.len() => return Some(b.slice(at as usize, CHUNK as usize)),
            _ => at = at.checked_sub(p.len())?,
        }
    }
    None
}

fn copy_of(data: &Buf) -> Buf {
    let mut copy = BufMut::new(data.len());
    copy.copy_from_slice(data);
    copy.freeze()
}

impl<E: Env> Core<E> {
    /// Begins to lift those chunks of a read that are wanted on the fast tier. To be called in the step that looks the
    /// chunks up, before anything is read.
    pub(crate) fn begin_lifts(&self, parts: impl Iterator<Item = Part>) -> Lifts<'_, E> {
        let mut lifts = Lifts { core: self, moves: SmallVec::new() };
        if !self.mover.running.get() || self.policy.borrow().candidate_count() == 0 {
            return lifts;
        }
        if self.lost_member().is_some() {
            return lifts;
        }
        for part in parts.filter(|p| p.len == CHUNK) {
            lifts.moves.extend(self.begin_lift(part.chunk).map(|mv| (mv, part.at)));
        }
        lifts
    }

    fn begin_lift(&self, chunk: ChunkId) -> Option<Move> {
        let entry = self.entry(chunk).ok().filter(|e| e.is_mapped() && e.mask == u32::MAX)?;
        if self.tier_of_member(entry.member) != Tier::Slow {
            return None;
        }
        // Where a write of unknown outcome may still land, what is read now is not certain (C2.2).
        if self.members[entry.member as usize].is_tainted(entry.slot) && !mutant::on(Mutant::C2TaintedLifted) {
            return None;
        }
        // A batch is one commit, beside the changes of clients.
        let most = LIFTS_MAX.min(self.commit.limit.get() / 2);
        let under_way = self.promotions();
        let room = self.available(Tier::Fast, Placement::Auto) > self.keep_free_slots() && under_way < most;
        let fast_slots = self.slots_in(Tier::Fast) as u32;
        let afford = |core: &Core<E>| {
            let mut scheduler = core.mover.scheduler.borrow_mut();
            scheduler.affords(under_way + 1, fast_slots, core.env.now())
        };
        if !room || !afford(self) {
            return None;
        }
        if !self.policy.borrow_mut().wants(&mut self.view(), chunk) {
            return None;
        }
        match self.begin_move(Job::Promote, chunk) {
            Some(mv) => {
                self.begins(Job::Promote, &mv);
                Some(mv)
            }
            None => {
                self.policy.borrow_mut().gave_up(&mut self.view(), chunk);
                None
            }
        }
    }

    /// Chunks on their way up, whoever sent them off.
    fn promotions(&self) -> usize {
        let of = |planner| self.mover.under_way.of(Job::Promote, planner, Stage::OnItsWay, &Still::default());
        of(Planner::Scheduler) + of(Planner::Evacuation)
    }

    /// A lift that came to nothing before it was part of a batch.
    fn end_lift(&self, mv: &Move) {
        for stage in [Stage::Copying, Stage::OnItsWay] {
            self.mover.under_way.ends(Job::Promote, stage, mv);
        }
        self.abandon(mv);
    }

    /// What reads have brought since the last call, in the order of their new slots.
    pub(super) fn take_lifted(&self) -> (Vec<Move>, Vec<Buf>) {
        let mut lifted = std::mem::take(&mut *self.mover.lifted.borrow_mut());
        lifted.sort_by_key(|(mv, _)| mv.to);
        lifted.into_iter().unzip()
    }

    /// Gives up what the mover will not write any more.
    pub(super) fn drop_lifted(&self) {
        let (moves, _) = self.take_lifted();
        moves.iter().for_each(|mv| self.end_lift(mv));
    }

    /// Writes what was read to the new slots, neighbours together; says for each whether it worked.
    pub(super) async fn write_lifted(&self, moves: &[Move], data: &[Buf]) -> Vec<Copied> {
        let mut writes = Vec::new();
        let mut first = 0;
        while first < moves.len() {
            let (mut end, mut run) = (first + 1, data[first].clone());
            while let Some(joined) = self.joins(moves, data, &run, end) {
                run = joined;
                end += 1;
            }
            writes.push(self.write_run(&moves[first..end], run));
            first = end;
        }
        wait::all(writes).await.into_iter().flatten().collect()
    }

    fn joins(&self, moves: &[Move], data: &[Buf], run: &Buf, next: usize) -> Option<Buf> {
        let (a, b) = (moves.get(next - 1)?.to, moves.get(next)?.to);
        let follows = a.member == b.member && a.slot + 1 == b.slot;
        run.join(data.get(next)?).filter(|_| follows)
    }

    async fn write_run(&self, run: &[Move], data: Buf) -> Vec<Copied> {
        let _pins: Vec<_> = run.iter().map(|mv| self.claims.pin(mv.to)).collect();
        let m = &self.members[run[0].to.member as usize];
        let written = m.write(m.layout.slot(run[0].to.slot), data, WriteFor::Engine).await.map_err(|_| Failed::Write);
        if written.is_err() {
            run.iter().for_each(|mv| m.taint(mv.to.slot));
        }
        vec![written; run.len()]
    }
}

/// Mutants only: whether lifts begin after the read instead of before.
pub(crate) fn begins_late() -> bool {
    mutant::on(Mutant::C3LiftBegunLate)
}
