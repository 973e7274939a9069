//! The policy in use, in the seat of the baselines; with its own scheduler, or moved as freely as they are.

use std::time::Duration;

use bimetal_volume::env::Instant;
use bimetal_volume::tier::{DeviceRange, HeadTime, Job, Levels, Plan, Policy, Scheduler, Touch};
use bimetal_volume::units::{ChunkId, Tier, CHUNK};

use super::piece::{Kind, Piece};
use super::seat::Seat;
use super::tiers::Tiers;

/// Time that the fast tier takes for a request, as the scheduler is told.
const FAST: Duration = Duration::from_micros(100);
/// Shortest time between two plans.
const SOON: Duration = Duration::from_millis(10);

/// A scheduler, and the time as the disk sees it: a request that comes before the last is done has to wait.
struct Paced {
    scheduler: Scheduler,
    now: Instant,
    /// When the mover wants to look again.
    next: Instant,
    /// No chunk was moved since the last plan.
    idle: bool,
}

/// [`HeadTime`] over the tiers of a replay.
pub struct Production {
    policy: HeadTime,
    paced: Option<Paced>,
}

impl Production {
    /// The policy alone: it moves what it likes within the budget.
    pub fn new(fast_slots: u32) -> Production {
        Production { policy: HeadTime::new(fast_slots), paced: None }
    }

    /// The policy with the scheduler, which says within the budget when and how much is moved.
    pub fn scheduled(fast_slots: u32) -> Production {
        let now = Instant(1);
        let paced = Some(Paced { scheduler: Scheduler::new(now), now, next: now, idle: false });
        Production { policy: HeadTime::new(fast_slots), paced }
    }
}

fn touch_of(p: &Piece) -> Touch {
    let offset_in_group = u64::from(p.chunk) * CHUNK + u64::from(p.offset);
    let (chunk, len) = (ChunkId(u64::from(p.chunk)), u64::from(p.len));
    Touch { chunk, write: p.writes(), offset_in_group, len, born: p.kind == Kind::Birth }
}

/// Chunks of a replay are below 2^26.
fn number(c: ChunkId) -> u32 {
    c.0 as u32
}

impl Seat for Production {
    fn name(&self) -> String {
        if self.paced.is_some() { "HeadTime + scheduler" } else { "HeadTime" }.into()
    }

    fn place(&mut self, tiers: &mut Tiers, piece: &Piece) -> Tier {
        self.policy.place(tiers, &touch_of(piece))
    }

    fn touch(&mut self, tiers: &mut Tiers, piece: &Piece) {
        self.policy.touch(tiers, &touch_of(piece));
        tiers.learn(self.policy.room(tiers));
    }

    fn victims(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let found: Vec<u32> = self.policy.victims(tiers, max).into_iter().map(number).collect();
        if let (Some(p), true) = (&mut self.paced, found.is_empty()) {
            p.scheduler.came_to_nothing(Job::Demote, p.now);
        }
        found
    }

    fn to_make_way(&self, beyond: u64) -> u64 {
        self.policy.filled().to_let_go(beyond)
    }

    fn let_go(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let found: Vec<u32> = self.policy.let_go(tiers, max).into_iter().map(number).collect();
        if let (Some(p), true) = (&mut self.paced, max > 0) {
            p.scheduler.let_go(found.len(), p.now);
        }
        found
    }

    fn candidates(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        let found: Vec<u32> = self.policy.candidates(tiers, max).into_iter().map(number).collect();
        if let (Some(p), true) = (&mut self.paced, found.is_empty()) {
            p.scheduler.came_to_nothing(Job::Promote, p.now);
        }
        found
    }

    fn waiting(&self) -> usize {
        self.policy.candidate_count()
    }

    fn in_engine(&self) -> bool {
        true
    }

    fn wants(&mut self, tiers: &mut Tiers, chunk: u32) -> bool {
        self.policy.wants(tiers, ChunkId(u64::from(chunk)))
    }

    fn written_anew(&mut self, tiers: &mut Tiers, chunk: u32) {
        self.policy.moved(tiers, ChunkId(u64::from(chunk)), Tier::Fast);
    }

    fn moved(&mut self, tiers: &mut Tiers, chunk: u32, to: Tier, ns: u64) {
        self.policy.moved(tiers, ChunkId(u64::from(chunk)), to);
        if let Some(p) = &mut self.paced {
            let job = if to == Tier::Fast { Job::Promote } else { Job::Demote };
            p.now = p.now.plus(Duration::from_nanos(ns));
            p.idle = false;
            p.scheduler.moved(job, p.now);
        }
    }

    fn served(&mut self, _tiers: &Tiers, piece: &Piece, ns: u64) {
        let Some(p) = &mut self.paced else { return };
        let came = Instant(piece.time_ns.saturating_add(1));
        p.now = p.now.max(came);
        let (tier, time) = if ns > 0 { (Tier::Slow, Duration::from_nanos(ns)) } else { (Tier::Fast, FAST) };
        p.scheduler.foreground_started(tier, p.now);
        p.now = p.now.plus(time);
        let offset = u64::from(piece.chunk) * CHUNK + u64::from(piece.offset);
        let range = DeviceRange { member: tier as u8, offset, bytes: piece.len.into() };
        p.scheduler.foreground_done(tier, &range, time, p.now);
    }

    fn clock_ns(&self) -> Option<u64> {
        self.paced.as_ref().map(|p| p.now.0)
    }

    fn plan(&mut self, tiers: &Tiers, until_ns: u64) -> Option<Plan> {
        let p = self.paced.as_mut()?;
        if std::mem::take(&mut p.idle) && p.now.0 < until_ns {
            // Nothing came of the last plan.
            p.now = p.next.min(Instant(until_ns));
        }
        loop {
            // Beside a disk that is never done the mover still looks for work when it said it would.
            let late = p.now.0 >= until_ns;
            if late && p.now < p.next {
                return None;
            }
            let levels = Levels {
                fast_slots: tiers.fast_slots(),
                free: tiers.free(),
                keep_free: tiers.keep_free(),
                low: tiers.low(),
                filled: self.policy.filled(),
                // The slow tier of a replay is never full.
                slow_free: u32::MAX / 4,
                stream_comes: self.policy.stream_comes(p.now),
                candidates: self.policy.candidate_count(),
                ..Levels::default()
            };
            let plan = p.scheduler.plan(&levels, p.now);
            p.next = p.now.plus(plan.next_check.max(SOON));
            if plan.demote + plan.promote + plan.let_go > 0 {
                p.idle = true;
                return Some(plan);
            }
            if late {
                return None;
            }
            // The next request wakes the mover anyway.
            p.now = p.next.min(Instant(until_ns));
        }
    }
}
