//! The mover: carries chunks between the tiers. Copy first, then switch, then free (B7).
//!
//! This file chooses moves and sends them off; `carry` carries them.
//!
//! Terms: a *move* takes a chunk from the slot `from` to the slot `to`. A *batch* is a set of moves of one kind that
//! are copied together. What has been copied is *finishing*: all moves of a kind that are, share syncs and a commit.
//!
//! Invariants:
//! 1. A copy begins only while no write is in flight on the chunk, and switches only if none touched it since (C3.1).
//! 2. The copy is synced before the switch; the switch is one step, before a commit's snapshot (C3.2, I3).
//! 3. A demotion is prepared durably in the slow member's journal before it switches; that journal is not checkpointed
//!    until the switch is committed, so the prepared record cannot be lost in between (C1.6).
//! 4. A chunk with a kept copy goes down without copying: to that slot, by the same steps (C9); but not to a member that leaves.
//! 5. No foreground request waits for a move (D7), but where room that was promised has to be brought back after a repair; on a
//!    nearly full group moves leave half of the headroom to them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::copies::Copies;
use super::under_way::{Planner, Stage, UnderWay};
use super::{relief, Job, Levels, Policy, Scheduler};
use crate::buf::Buf;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::io::place::Still;
use crate::kept::slots_of;
use crate::member::{add, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Placement, SlotId, Tier};
use crate::wait::{self, Mutex, Signal};

/// While the connection to a member is lost nothing is moved; whether the group ends is looked at so often.
const LOST: Duration = Duration::from_secs(10);
/// While all of a tier stands still, whether it still does is looked at so often.
const STILL: Duration = Duration::from_millis(500);

/// The mover's state and counters.
pub(crate) struct MoverState {
    pub(super) scheduler: RefCell<Scheduler>,
    pub(crate) words: RefCell<(String, String)>,
    pub(crate) promoted: Cell<u64>,
    pub(crate) demoted: Cell<u64>,
    pub(crate) cancelled: Cell<u64>,
    pub(crate) failed: Cell<u64>,
    /// Chunks on their way.
    pub(super) under_way: UnderWay,
    /// Moves that have been copied and wait for their finisher, and whether there is one, of each kind and target.
    pub(super) copied: RefCell<BTreeMap<(usize, MemberIndex), Vec<Move>>>,
    pub(super) finishers: RefCell<BTreeSet<(usize, MemberIndex)>>,
    /// Of each kind: held from the switches of a finisher until they are committed. So many at a time fit a commit.
    pub(super) switching: [Mutex; 2],
    /// Lifts whose data has come.
    pub(super) lifted: RefCell<Vec<(Move, Buf)>>,
    /// Chunks promoted by lifts.
    pub(crate) lifts: Cell<u64>,
    /// Chunks that came up because they were written whole.
    pub(crate) written_anew: Cell<u64>,
    /// Chunks that are being written anew: each has a slot more than it was promised.
    pub(crate) anew: Cell<u64>,
    /// The one begun last, and its slot: the map does not know that yet, and a neighbour should lie next to it.
    pub(crate) last_anew: Cell<Option<(ChunkId, SlotId)>>,
    pub(super) batches: Cell<usize>,
    /// Copies that give way to requests.
    pub(super) copies: Copies,
    /// What comes up to make room on the slow tier.
    pub(super) relief: relief::Cursor,
    pub(super) running: Cell<bool>,
    /// A task empties members that are leaving.
    pub(super) evacuating: Cell<bool>,
    /// A member begins to leave.
    pub(super) leaving: Signal,
    /// Batches of evacuations that are tasks of their own.
    pub(super) evacuations: Cell<usize>,
    /// Of the evacuation begun last: the slot that is left, and the one that was taken.
    pub(super) last_evacuated: Cell<Option<(SlotId, SlotId)>>,
    /// Chunks that went to another member of their tier.
    pub(crate) evacuated: Cell<u64>,
    /// Nothing new is begun.
    held: Cell<bool>,
    pub(super) ended: Signal,
    pub(super) next_move: Cell<u16>,
    /// Of each kind, the move begun last: the map does not know its target yet, and a neighbour should lie next to it.
    last: [Cell<Option<(ChunkId, SlotId)>>; 2],
    /// The mover sleeps for long; a change of levels wakes it.
    pub(super) resting: Cell<bool>,
    /// Fewer free fast slots than this wake it whatever it waits for; 0 when it has seen that.
    pub(super) low: Cell<u64>,
}

/// One chunk on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub(super) chunk: ChunkId,
    pub(super) from: SlotId,
    pub(super) to: SlotId,
    pub(super) mask: u32,
    /// `to` is the chunk's kept copy: there is nothing to be copied, and the slot is not the move's to give back.
    pub(super) kept: bool,
    /// No write of unknown outcome could reach `from` when the move began, and later ones cancel it: what is copied is
    /// what stays there.
    pub(super) certain: bool,
    /// Its member is to leave: it goes beside what the scheduler plans.
    pub(super) evacuates: bool,
    /// It takes what its volume was promised on the slow tier from one member to another: see [`Stage::Rehoming`].
    pub(super) rehomes: bool,
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
            under_way: UnderWay::default(),
            copied: RefCell::default(),
            finishers: RefCell::default(),
            switching: Default::default(),
            lifted: RefCell::default(),
            lifts: Cell::default(),
            written_anew: Cell::default(),
            anew: Cell::default(),
            last_anew: Cell::default(),
            batches: Cell::default(),
            copies: Copies::default(),
            relief: relief::Cursor::default(),
            running: Cell::default(),
            evacuating: Cell::default(),
            leaving: Signal::default(),
            evacuations: Cell::default(),
            last_evacuated: Cell::default(),
            evacuated: Cell::default(),
            held: Cell::default(),
            ended: Signal::default(),
            next_move: Cell::new(1),
            last: Default::default(),
            resting: Cell::default(),
            low: Cell::default(),
        }
    }
}

/// See [`MoverState::hold`].
pub(crate) struct Held<'a>(&'a Cell<bool>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl MoverState {
    /// Whether chunks may change their tier now.
    pub(crate) fn moves(&self) -> bool {
        self.running.get() && !self.held.get()
    }

    /// Whether chunks are on their way.
    pub(crate) fn any_under_way(&self) -> bool {
        let all = [Planner::Scheduler, Planner::Evacuation];
        all.iter().any(|p| self.under_way.of_both(*p, Stage::OnItsWay, &Still::default()) > 0)
    }

    /// Chunks on their way to the slow tier, but for those of evacuations.
    pub(crate) fn going_down(&self) -> usize {
        self.under_way.of(Job::Demote, Planner::Scheduler, Stage::OnItsWay, &Still::default())
    }

    /// Chunks that have changed their tier.
    pub(crate) fn moved(&self) -> u64 {
        self.promoted.get() + self.demoted.get()
    }

    /// Whether no move is to begin.
    pub(super) fn is_held(&self) -> bool {
        self.held.get()
    }

    /// Chunks that are leaving a member and whose switch is not committed, but for those that hang on one of these.
    pub(super) fn leaving_now(&self, but: &Still) -> usize {
        self.under_way.of_both(Planner::Evacuation, Stage::OnItsWay, but)
    }

    /// No move is begun until this is dropped. The caller holds the lock of changes.
    pub(crate) fn hold(&self) -> Held<'_> {
        self.held.set(true);
        Held(&self.held)
    }
}

/// Whether a move of the scheduler's is written to the slow tier.
pub(super) fn is_written_down(job: Job, mv: &Move) -> bool {
    job == Job::Demote && !mv.kept && !mv.evacuates
}

pub(super) fn target(job: Job) -> Tier {
    match job {
        Job::Demote => Tier::Slow,
        Job::Promote => Tier::Fast,
    }
}

impl<E: Env> Core<E> {
    pub(super) fn has_work(&self) -> bool {
        // Every request asks: the reserve is worked out only where it may be short.
        let free = self.available(Tier::Fast, Placement::Auto);
        let short = free < self.reserve.max(1) && free < self.keep_free_slots();
        short || self.policy.borrow().candidate_count() > 0 || self.kept_excess() > 0
    }

    /// Whether free slots have become so few that chunks should be let go, and the mover does not know it.
    pub(super) fn runs_low(&self) -> bool {
        let low = self.mover.low.get();
        low > 0 && self.available(Tier::Fast, Placement::Auto) < low
    }

    /// The mover's task.
    pub(crate) async fn run_mover(self: Rc<Self>) {
        self.mover.running.set(true);
        while !self.stopping.get() && !self.stopped.get() && !self.health.is_latched() {
            let wake = self.mover_wake.wait();
            if mutant::on(Mutant::MoverStuck) && self.mover.cancelled.get() > 0 {
                break;
            }
            if let Some((why, rest)) = self.reason_to_rest() {
                *self.mover.words.borrow_mut() = ("nothing is moved".into(), why);
                self.mover.resting.set(false);
                wait::first(wake, self.env.sleep(rest)).await;
                continue;
            }
            self.drop_kept(self.kept_excess()).await;
            // Others may have had their turn.
            if self.stopping.get() || self.health.is_latched() || self.lost_member().is_some() {
                continue;
            }
            self.start_lifted();
            self.tell_what_hangs();
            let levels = self.levels();
            let plan = self.mover.scheduler.borrow_mut().plan(&levels, self.env.now());
            self.mover.low.set(if levels.free < levels.low { 0 } else { levels.low.into() });
            *self.mover.words.borrow_mut() = (plan.doing, plan.why);
            if plan.let_go > 0 {
                let begun = self.start_letting_go(plan.let_go);
                self.mover.scheduler.borrow_mut().let_go(begun, self.env.now());
            }
            for (job, wanted) in [(Job::Demote, plan.demote), (Job::Promote, plan.promote)] {
                if wanted > 0 && !self.start_batch(job, wanted) {
                    self.mover.scheduler.borrow_mut().came_to_nothing(job, self.env.now());
                    if mutant::on(Mutant::MoverSpinsWhenFull) && job == Job::Demote {
                        self.mover.running.set(false);
                        return;
                    }
                }
            }
            self.mover.resting.set(plan.next_check >= Duration::from_secs(1) && !self.has_work());
            wait::first(wake, self.env.sleep(plan.next_check)).await;
        }
        self.mover.running.set(false);
        self.drop_lifted();
        self.mover.ended.notify();
    }

    /// Why nothing can be moved now, and when to look again.
    fn reason_to_rest(&self) -> Option<(String, Duration)> {
        if let Some(m) = self.lost_member() {
            self.drop_lifted();
            return Some((format!("the connection to the {} member {} is lost", m.tier, m.index), LOST));
        }
        let still = self.standing_still();
        let stands = |tier: &Tier| {
            let mut open = self.open_to_chunks(*tier).peekable();
            open.peek().is_some() && open.all(|m| still.has(m.index))
        };
        let tier = [Tier::Fast, Tier::Slow].into_iter().find(stands)?;
        Some((format!("the {tier} tier stands still: nothing has been answered there for some time"), STILL))
    }

    /// A member whose requests all fail: a move would fail, or latch the group, which may go on with what does not need it. None is one
    /// that the group does without in any case.
    pub(crate) fn lost_member(&self) -> Option<&Member<E::Device>> {
        self.members.iter().find(|m| self.is_out_of_reach(m))
    }

    /// Whether a member is such a one.
    pub(crate) fn is_out_of_reach(&self, m: &Member<E::Device>) -> bool {
        m.is_lost() && !self.can_do_without(m)
    }

    /// Waits until no move is under way; the mover has been told to stop.
    pub(crate) async fn mover_ended(&self) {
        while self.mover.running.get() || self.mover.evacuating.get() || self.mover.batches.get() > 0 {
            self.mover.ended.wait().await;
        }
    }

    fn levels(&self) -> Levels {
        let m = &self.mover;
        self.kept.learn(self.policy.borrow_mut().room(&self.view()));
        let unreadable = self.policy.borrow_mut().unreadable(&self.view());
        let still = self.standing_still();
        let of = |job, stage| m.under_way.of(job, Planner::Scheduler, stage, &still);
        let left: u64 = self.open_to_chunks(Tier::Fast).map(|m| m.on_the_way.get()).sum();
        let demoted = of(Job::Demote, Stage::Finishing);
        Levels {
            fast_slots: self.slots_in(Tier::Fast) as u32,
            free: self.available(Tier::Fast, Placement::Auto) as u32,
            keep_free: self.keep_free_slots() as u32,
            low: self.low_slots() as u32,
            filled: self.policy.borrow().filled(),
            leaving: (left + demoted as u64) as u32,
            slow_free: self.available(Tier::Slow, Placement::Auto) as u32,
            owed_below: self.owed_below() as u32,
            stream_comes: self.policy.borrow().stream_comes(self.env.now()),
            candidates: self.policy.borrow().candidate_count(),
            demoting: of(Job::Demote, Stage::Copying),
            unsettled: of(Job::Demote, Stage::Unsettled),
            promoting: of(Job::Promote, Stage::OnItsWay),
            copying_up: of(Job::Promote, Stage::Copying),
            evacuating: m.leaving_now(&still),
            unreadable,
        }
    }

    /// Chooses chunks and sends them off. False if none could be moved.
    fn start_batch(self: &Rc<Self>, job: Job, wanted: usize) -> bool {
        if self.mover.held.get() {
            return false;
        }
        let free = self.available(Tier::Fast, Placement::Auto) + self.available(Tier::Slow, Placement::Auto);
        let wanted = wanted.min(free.saturating_sub(self.headroom() / 2) as usize);
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
        match job == Job::Promote && self.owed_below() > 0 {
            true => self.relieve(chunks, wanted),
            false => self.begin_batch(job, chunks) > 0,
        }
    }

    /// Chooses chunks that go down to their kept copies, and sends them off: how many.
    fn start_letting_go(self: &Rc<Self>, wanted: usize) -> usize {
        if self.mover.held.get() {
            return 0;
        }
        let wanted = wanted.min((self.commit.limit.get() / 2).max(1));
        let chunks = self.policy.borrow_mut().let_go(&mut self.view(), wanted);
        let begun = self.begin_batch(Job::Demote, chunks);
        add(&self.kept.let_go, begun as u64);
        begun
    }

    /// Takes slots for chunks and sends them off as a batch of their own: how many.
    pub(super) fn begin_batch(self: &Rc<Self>, job: Job, chunks: Vec<ChunkId>) -> usize {
        let mut moves = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            match self.begin_move(job, chunk) {
                Some(m) => moves.push(m),
                None => self.policy.borrow_mut().gave_up(&mut self.view(), chunk),
            }
        }
        let count = moves.len();
        for moves in by_way(moves) {
            for mv in &moves {
                self.begins(job, mv);
            }
            self.spawn_batch(job, moves, Vec::new());
        }
        count
    }

    /// Counts a move that begins.
    pub(super) fn begins(&self, job: Job, mv: &Move) {
        let under_way = &self.mover.under_way;
        under_way.begins(job, Stage::Copying, mv);
        under_way.begins(job, Stage::OnItsWay, mv);
        if is_written_down(job, mv) {
            under_way.begins(job, Stage::Unsettled, mv);
        }
    }

    fn spawn_batch(self: &Rc<Self>, job: Job, moves: Vec<Move>, lifted: Vec<Buf>) {
        add_to(&self.mover.batches, 1);
        let core = self.clone();
        self.env.spawn(async move { core.run_batch(job, moves, lifted).await });
    }

    /// Sends off what reads have brought, as a batch for each target.
    fn start_lifted(self: &Rc<Self>) {
        let (moves, data) = self.take_lifted();
        let mut data = data.into_iter();
        for moves in runs_of(moves, |mv| mv.to.member) {
            let lifted = data.by_ref().take(moves.len()).collect();
            self.spawn_batch(Job::Promote, moves, lifted);
        }
    }

    pub(super) fn begin_move(&self, job: Job, chunk: ChunkId) -> Option<Move> {
        let to_tier = target(job);
        let entry = self.entry(chunk).ok().filter(|e| e.is_mapped())?;
        let wrong_place = self.tier_of_member(entry.member) == to_tier;
        if wrong_place || self.placement_of(chunk) != Some(Placement::Auto) {
            return None;
        }
        let still = self.standing_still();
        if slots_of(&entry).any(|s| still.has(s.member)) {
            return None;
        }
        let copy = self.copy_of(&entry);
        let room = copy.is_some() || self.available(to_tier, Placement::Auto) > 0;
        if !room || !self.claims.begin_motion(chunk) {
            return None;
        }
        let Some(to) = copy.or_else(|| self.take_target(job, chunk, &still)) else {
            self.claims.end_motion(chunk);
            return None;
        };
        let from = SlotId { member: entry.member, slot: entry.slot };
        let certain = !self.members[from.member as usize].is_tainted(from.slot);
        Some(Move {
            chunk,
            from,
            to,
            mask: entry.mask,
            kept: copy.is_some(),
            certain,
            evacuates: false,
            rehomes: false,
        })
    }

    /// A slot for a chunk on its way, after the one taken last if the chunks are neighbours.
    fn take_target(&self, job: Job, chunk: ChunkId, still: &Still) -> Option<SlotId> {
        let last = &self.mover.last[job as usize];
        let after = last.get().and_then(|l| self.take_after(l, chunk, still));
        let to = after.or_else(|| self.take_slot(target(job), chunk, still))?;
        last.set(Some((chunk, to)));
        Some(to)
    }

    /// Ends a move that will not switch; no record names its target slot.
    pub(super) fn abandon(&self, mv: &Move) {
        self.claims.end_motion(mv.chunk);
        self.policy.borrow_mut().gave_up(&mut self.view(), mv.chunk);
        self.drop_target(mv);
    }

    /// The same of one whose chunk could not be read.
    pub(super) fn abandon_unread(&self, mv: &Move) {
        self.claims.end_motion(mv.chunk);
        let tier = self.tier_of_member(mv.from.member);
        self.policy.borrow_mut().cannot_read(&mut self.view(), mv.chunk, tier);
        self.drop_target(mv);
    }

    /// A move has switched, or will not.
    pub(super) fn no_more_rehomed(&self, mv: &Move) {
        if mv.rehomes {
            self.mover.under_way.ends(Job::Demote, Stage::Rehoming, mv);
        }
    }

    fn drop_target(&self, mv: &Move) {
        self.no_more_rehomed(mv);
        if !mv.kept {
            self.untake(mv.to, mv.chunk);
        }
    }
}

/// The moves of each way between two members, in the order of their targets: what hangs on one of the two keeps no others waiting.
pub(super) fn by_way(mut moves: Vec<Move>) -> Vec<Vec<Move>> {
    moves.sort_by_key(|mv| (mv.from.member, mv.to));
    runs_of(moves, |mv| (mv.from.member, mv.to.member))
}

/// Neighbours of the same key together.
fn runs_of<K: PartialEq>(moves: Vec<Move>, key: impl Fn(&Move) -> K) -> Vec<Vec<Move>> {
    moves.chunk_by(|a, b| key(a) == key(b)).map(<[Move]>::to_vec).collect()
}

pub(super) fn add_to(c: &Cell<usize>, n: usize) {
    c.set(c.get() + n);
}

pub(super) fn take_from(c: &Cell<usize>, n: usize) {
    c.set(c.get() - n);
}
