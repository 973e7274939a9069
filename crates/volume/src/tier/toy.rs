//! A group without devices for the tests of placement: a map, slots, a clock, and moves that take a fixed time.

use std::time::Duration;

use super::reserve::{Learned, Reserve};
use super::{DeviceRange, HeadTime, Job, Levels, Policy, Scheduler, Touch, View};
use crate::env::Instant;
use crate::units::{ChunkId, Tier, CHUNK};

/// Time that a move of a chunk takes.
const MOVE: Duration = Duration::from_millis(2);

/// Chunks of a part of the map.
const PART: usize = 252;

/// The map of a toy group.
pub(super) struct World {
    pub(super) now: Instant,
    chunks: Vec<(Option<Tier>, u16)>,
    fast: Vec<Option<ChunkId>>,
    slow_slots: u32,
    slow_used: u32,
    fast_used: u32,
    pub(super) reserve: u32,
    /// Fast chunks with a kept copy.
    pub(super) copies: std::collections::BTreeSet<ChunkId>,
    /// Whether the SSD's life allows to fill free slots.
    pub(super) life_to_spare: bool,
    /// What the reserve needs to know, as the policy said last.
    pub(super) learned: Learned,
    pub(super) rng: u64,
    /// Chunks that cannot be read where they are.
    pub(super) unreadable: std::collections::BTreeSet<ChunkId>,
}

impl View for World {
    fn now(&self) -> Instant {
        self.now
    }
    fn fast_slots(&self) -> u32 {
        self.fast.len() as u32
    }
    fn fast_at(&self, i: u32) -> Option<ChunkId> {
        self.fast[i as usize]
    }
    fn fast_slot(&self, c: ChunkId) -> Option<u32> {
        self.fast.iter().position(|s| *s == Some(c)).map(|i| i as u32)
    }
    fn heat(&self, c: ChunkId) -> u16 {
        self.chunks.get(c.0 as usize).map_or(0, |x| x.1)
    }
    fn set_heat(&mut self, c: ChunkId, heat: u16) {
        self.chunks[c.0 as usize].1 = heat;
    }
    fn parts(&self) -> u32 {
        self.chunks.len().div_ceil(PART) as u32
    }
    fn change_heats(&mut self, part: u32, change: impl Fn(u16) -> Option<u16>) -> bool {
        for (_, heat) in self.chunks.iter_mut().skip(part as usize * PART).take(PART) {
            *heat = change(*heat).unwrap_or(*heat);
        }
        true
    }
    fn tier_of(&self, c: ChunkId) -> Option<Tier> {
        self.chunks.get(c.0 as usize)?.0
    }
    fn free_fast(&self) -> u32 {
        self.fast.len() as u32 - self.fast_used
    }
    fn reserve(&self) -> u32 {
        self.reserve
    }
    fn keep_free(&self) -> u32 {
        self.room().to_keep_free() as u32
    }
    fn may_fill(&self) -> bool {
        self.life_to_spare
    }
    fn has_copy(&self, c: ChunkId) -> bool {
        self.copies.contains(&c)
    }
    fn random(&mut self) -> u32 {
        self.rng = self.rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.rng >> 32) as u32
    }
}

impl World {
    fn set(&mut self, c: ChunkId, to: Tier) {
        match self.tier_of(c) {
            Some(t) if t == to => return,
            Some(Tier::Fast) => self.forget(c),
            Some(Tier::Slow) => self.slow_used -= 1,
            None => {}
        }
        match to {
            Tier::Fast => {
                let slot = self.fast.iter().position(Option::is_none).expect("room on the fast tier");
                self.fast[slot] = Some(c);
                self.fast_used += 1;
            }
            Tier::Slow => {
                assert!(self.slow_used < self.slow_slots, "room on the slow tier");
                self.slow_used += 1;
            }
        }
        self.chunks[c.0 as usize].0 = Some(to);
    }

    /// The fast chunk has no home any more.
    pub(super) fn forget(&mut self, c: ChunkId) {
        let slot = self.fast.iter().position(|s| *s == Some(c)).expect("a fast chunk has a slot");
        self.fast[slot] = None;
        self.fast_used -= 1;
        self.chunks[c.0 as usize].0 = None;
    }

    fn room(&self) -> Reserve {
        Reserve { slots: self.reserve.into(), copies: self.copies.len() as u64, learned: self.learned }
    }

    fn slow_free(&self) -> u32 {
        self.slow_slots - self.slow_used
    }
}

/// A toy group: its map, the policy, the scheduler, and a mover that carries out plans.
pub(super) struct Toy {
    pub(super) w: World,
    pub(super) policy: HeadTime,
    pub(super) scheduler: Scheduler,
    pub(super) promoted: u64,
    pub(super) demoted: u64,
    pub(super) plans: u64,
    /// Moves that failed because the chunk could not be read.
    pub(super) unread: u64,
    /// Chunks that have a home and were not written yet.
    placed: Vec<ChunkId>,
}

impl Toy {
    pub(super) fn new(fast: u32, slow: u32, reserve: u32) -> Toy {
        let w = World {
            now: Instant(1),
            chunks: vec![(None, 0); (fast + slow) as usize],
            fast: vec![None; fast as usize],
            slow_slots: slow,
            slow_used: 0,
            fast_used: 0,
            reserve,
            copies: Default::default(),
            life_to_spare: true,
            learned: Learned::default(),
            rng: 42,
            unreadable: Default::default(),
        };
        let scheduler = Scheduler::new(w.now);
        Toy {
            w,
            policy: HeadTime::new(fast),
            scheduler,
            promoted: 0,
            demoted: 0,
            plans: 0,
            unread: 0,
            placed: Vec::new(),
        }
    }

    /// A request inside one chunk; the tier that served it. Time passes by what it takes there.
    pub(super) fn request(&mut self, offset: u64, len: u64, write: bool) -> Option<Tier> {
        let chunk = ChunkId(offset / CHUNK);
        let mut t = Touch { chunk, write, offset_in_group: offset, len, born: false };
        if write && self.w.tier_of(chunk).is_none() {
            t.born = true;
            self.place(&t);
        } else if self.placed.contains(&chunk) {
            t.born = write;
            self.placed.retain(|c| *c != chunk);
        }
        let tier = self.w.tier_of(chunk)?;
        self.policy.touch(&mut self.w, &t);
        self.scheduler.foreground_started(tier, self.w.now);
        let latency = match tier {
            Tier::Fast => Duration::from_micros(100),
            Tier::Slow => Duration::from_millis(1),
        };
        self.w.now = self.w.now.plus(latency);
        let range = DeviceRange { member: tier as u8, offset, bytes: len };
        self.scheduler.foreground_done(tier, &range, latency, self.w.now);
        Some(tier)
    }

    fn place(&mut self, t: &Touch) {
        let wish = self.policy.place(&mut self.w, t);
        let room = |tier| match tier {
            Tier::Fast => self.w.free_fast() > 0,
            Tier::Slow => self.w.slow_free() > 0,
        };
        let tier = if room(wish) { wish } else { wish.other() };
        self.w.set(t.chunk, tier);
    }

    /// Gives new chunks their homes, as a large write does before any of them is counted.
    pub(super) fn place_all(&mut self, chunks: std::ops::Range<u64>) {
        for chunk in chunks.map(ChunkId) {
            let t = Touch { chunk, write: true, offset_in_group: chunk.0 * CHUNK, len: CHUNK, born: true };
            self.place(&t);
            self.placed.push(chunk);
        }
    }

    /// Requests of a whole chunk each over a range of chunks; how many the fast tier served.
    pub(super) fn pass(&mut self, chunks: std::ops::Range<u64>, write: bool) -> usize {
        chunks.filter(|c| self.request(c * CHUNK, CHUNK, write) == Some(Tier::Fast)).count()
    }

    /// A 4 KiB request at a random place of a random chunk of a range; whether the fast tier served it.
    pub(super) fn random(&mut self, chunks: std::ops::Range<u64>, write: bool) -> bool {
        let r = u64::from(self.w.random());
        let c = chunks.start + r % (chunks.end - chunks.start);
        let block = u64::from(self.w.random()) % 32;
        self.request(c * CHUNK + block * 4096, 4096, write) == Some(Tier::Fast)
    }

    /// How many chunks of a range are on the fast tier.
    pub(super) fn fast_of(&self, chunks: std::ops::Range<u64>) -> usize {
        chunks.filter(|c| self.w.tier_of(ChunkId(*c)) == Some(Tier::Fast)).count()
    }

    /// Asks for a plan and carries it out at once; `MOVE` passes for each chunk if `takes_time`. When to ask again.
    pub(super) fn step(&mut self, takes_time: bool) -> Duration {
        self.w.learned = self.policy.room(&self.w);
        let levels = Levels {
            free: self.w.free_fast(),
            keep_free: self.w.keep_free(),
            low: self.w.room().low() as u32,
            filled: self.policy.filled(),
            slow_free: self.w.slow_free(),
            stream_comes: self.policy.stream_comes(self.w.now),
            candidates: self.policy.candidate_count(),
            unreadable: self.policy.unreadable(&self.w),
            ..Levels::default()
        };
        let plan = self.scheduler.plan(&levels, self.w.now);
        self.plans += 1;
        assert!(plan.next_check >= Duration::from_millis(10));
        assert!(!plan.doing.is_empty() && !plan.why.is_empty());
        let gone = self.policy.let_go(&mut self.w, plan.let_go);
        if plan.let_go > 0 {
            self.scheduler.let_go(gone.len(), self.w.now);
        }
        for c in &gone {
            assert!(self.w.copies.remove(c), "only what has a copy is let go");
            self.demote(*c);
        }
        let down = self.policy.victims(&mut self.w, plan.demote);
        let up = self.policy.candidates(&mut self.w, plan.promote);
        assert!(down.len() <= plan.demote && up.len() <= plan.promote);
        for (job, asked, list) in [(Job::Demote, plan.demote, &down), (Job::Promote, plan.promote, &up)] {
            if asked > 0 && list.is_empty() {
                self.scheduler.came_to_nothing(job, self.w.now);
            }
        }
        let moves = down.iter().map(|c| (Job::Demote, *c)).chain(up.iter().map(|c| (Job::Promote, *c)));
        for (job, c) in moves {
            let to = if job == Job::Demote { Tier::Slow } else { Tier::Fast };
            assert_eq!(self.w.tier_of(c), Some(to.other()), "only what is on the other tier is named, and once");
            if takes_time {
                self.w.now = self.w.now.plus(MOVE);
            }
            self.carry(job, c, to);
        }
        if down.len() + up.len() + gone.len() > 0 {
            return Duration::ZERO;
        }
        plan.next_check
    }

    fn carry(&mut self, job: Job, c: ChunkId, to: Tier) {
        if self.w.unreadable.contains(&c) {
            self.policy.cannot_read(&mut self.w, c, to.other());
            self.scheduler.cannot_read(job, self.w.now);
            self.unread += 1;
            return;
        }
        self.w.set(c, to);
        self.policy.moved(&mut self.w, c, to);
        self.scheduler.moved(job, self.w.now);
        let moved = if job == Job::Demote { &mut self.demoted } else { &mut self.promoted };
        *moved += 1;
    }

    /// Free slots on both tiers.
    pub(super) fn free(&self) -> u32 {
        self.w.free_fast() + self.w.slow_free()
    }

    /// Moves one chunk down.
    pub(super) fn demote(&mut self, c: ChunkId) {
        self.w.set(c, Tier::Slow);
        self.policy.moved(&mut self.w, c, Tier::Slow);
    }

    /// Lets time pass without requests.
    pub(super) fn quiet(&mut self, time: Duration) {
        let end = self.w.now.plus(time);
        while self.w.now < end {
            let wait = self.step(true);
            self.w.now = self.w.now.plus(wait);
        }
    }
}
