//! The replay: pieces in, tiers, a budget for moves, and what it all cost a disk's head. No queues, no time but that of
//! the trace: it says which chunks a policy keeps fast, not how long anybody waited.

use bimetal_volume::tier::reserve;
use bimetal_volume::units::{Tier, CHUNK};

use super::cost::HeadCost;
use super::engine::{write_anew, Copies};
use super::follow::Follows;
use super::piece::{Kind, Piece, Stream};
use super::seat::Seat;
use super::tiers::Tiers;

/// Moves that all policies of a comparison may make alike. A promotion or a demotion is one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Moves earned by a thousand accesses.
    pub per_thousand: u64,
    /// Moves that can be saved up.
    pub burst: u64,
    /// The mover looks for work once in so many accesses, at least 1.
    pub every: u64,
}

impl Budget {
    /// Moves cost nothing and are made at once.
    pub const UNLIMITED: Budget = Budget { per_thousand: u64::MAX, burst: u64::MAX, every: 1 };

    /// 10 moves per 100 accesses (POLICY 6), a batch of up to 256 saved up, made without waiting for a quiet moment.
    pub const USUAL: Budget = Budget { per_thousand: 100, burst: 256, every: 64 };
}

/// Slots freed for promotions at a time, at least: the engine's scheduler does the same.
const EXCHANGES: usize = 8;

/// What a replay is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Chunks that the fast tier holds.
    pub fast_slots: u32,
    /// Of these, for new writes.
    pub reserve: u32,
    /// Head times.
    pub cost: HeadCost,
    /// Moves.
    pub budget: Budget,
    /// Of the policy's random numbers.
    pub seed: u64,
}

impl Setup {
    /// A fast tier of so many slots with the usual budget and the share of reserve that 4 GiB of 128 GB are: a
    /// thirty-second.
    pub fn new(fast_slots: u32) -> Setup {
        let (cost, budget) = (HeadCost::default(), Budget::USUAL);
        Setup { fast_slots, reserve: fast_slots / 32, cost, budget, seed: 1 }
    }
}

/// What a replay found. Times are head times of the slow tier's disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The policy.
    pub policy: String,
    /// Pieces that read or wrote.
    pub accesses: u64,
    /// Those that the fast tier served.
    pub fast: u64,
    /// Of these, those that gave a chunk its first home.
    pub fast_births: u64,
    /// Those that the slow tier served after a seek.
    pub slow_seeks: u64,
    /// Those that the slow tier served where the head was.
    pub slow_follows: u64,
    /// Foreground head time, in ns.
    pub foreground_ns: u64,
    /// Head time of moves, in ns.
    pub background_ns: u64,
    /// Chunks moved up.
    pub promotions: u64,
    /// Chunks moved down.
    pub demotions: u64,
    /// Chunks that went down to the copy that they had kept: nothing was moved.
    pub let_go: u64,
    /// Chunks of the slow tier that were replaced whole, and are on the fast one since.
    pub written_anew: u64,
    /// Bytes read and written by pieces.
    pub user_bytes: u64,
}

impl Replay {
    /// Foreground head time per access, in ms.
    pub fn foreground_ms(&self) -> f64 {
        self.foreground_ns as f64 / 1e6 / self.accesses.max(1) as f64
    }

    /// Head time of foreground and moves per access, in ms.
    pub fn total_ms(&self) -> f64 {
        self.total_ns() as f64 / 1e6 / self.accesses.max(1) as f64
    }

    /// Head time of foreground and moves, in ns.
    pub fn total_ns(&self) -> u64 {
        self.foreground_ns + self.background_ns
    }

    /// Share of accesses that the fast tier served, 0 to 1.
    pub fn fast_share(&self) -> f64 {
        self.fast as f64 / self.accesses.max(1) as f64
    }

    /// Bytes moved per byte read or written by users.
    pub fn moved_per_user_byte(&self) -> f64 {
        (self.promotions + self.demotions) as f64 * CHUNK as f64 / self.user_bytes.max(1) as f64
    }
}

/// Replays a stream on a policy.
pub fn replay(stream: &Stream, seat: &mut impl Seat, setup: &Setup) -> Replay {
    let mut tiers = Tiers::new(stream.chunks, setup.fast_slots, setup.reserve, setup.seed);
    tiers.copies = seat.in_engine().then(|| Copies::new(stream.chunks));
    let by_disk = vec![false; stream.chunks as usize];
    let mut run = Run { tiers, seat, setup, by_disk, out: Replay::default(), credit: 0 };
    run.out.policy = run.seat.name();
    let every = setup.budget.every.max(1);
    for (i, piece) in stream.pieces.iter().enumerate() {
        if run.seat.clock_ns().is_some() {
            run.pass_time(piece.time_ns);
        }
        // A policy with a clock of its own may be late: its disk has not done the requests before this one.
        run.tiers.set_now(piece.time_ns.max(run.seat.clock_ns().unwrap_or(0)));
        match piece.kind {
            Kind::Trim => run.discard(piece.chunk),
            _ => run.serve(piece),
        }
        if (i as u64 + 1) % every == 0 {
            run.earn(every);
            if run.seat.clock_ns().is_none() {
                run.turn();
            }
        }
    }
    run.out
}

struct Run<'a, S> {
    tiers: Tiers,
    seat: &'a mut S,
    setup: &'a Setup,
    /// By chunk: the disk served its last access, wherever it has gone since.
    by_disk: Vec<bool>,
    out: Replay,
    /// Moves that may be made, in thousandths.
    credit: u64,
}

impl<S: Seat> Run<'_, S> {
    fn serve(&mut self, p: &Piece) {
        let home = self.tiers.tier(p.chunk).unwrap_or_else(|| self.first_home(p));
        let anew = home == Tier::Slow && self.tiers.copies.is_some() && write_anew(self.seat, &mut self.tiers, p);
        let tier = if anew { Tier::Fast } else { home };
        self.out.written_anew += u64::from(anew);
        if p.writes() {
            self.end_copy(p.chunk);
        }
        self.out.accesses += 1;
        if p.visit || p.kind == Kind::Birth {
            self.tiers.used(p.kind == Kind::Birth);
        }
        self.out.user_bytes += u64::from(p.len);
        let mut ns = 0;
        if tier == Tier::Fast {
            self.out.fast += 1;
            self.out.fast_births += u64::from(p.kind == Kind::Birth);
        } else {
            let passed = self.passed_over(p);
            ns = self.setup.cost.of(p, passed);
            self.out.foreground_ns += ns;
            self.out.slow_follows += u64::from(passed.is_some());
            self.out.slow_seeks += u64::from(passed.is_none());
        }
        self.by_disk[p.chunk as usize] = tier == Tier::Slow;
        self.seat.touch(&mut self.tiers, p);
        self.seat.served(&self.tiers, p, ns);
    }

    fn discard(&mut self, chunk: u32) {
        self.end_copy(chunk);
        self.tiers.unmap(chunk);
        self.seat.discarded(chunk);
    }

    /// Whether the chunk had a copy on the slow tier.
    fn end_copy(&mut self, chunk: u32) -> bool {
        self.tiers.copies.as_mut().is_some_and(|copies| copies.end(chunk))
    }

    /// A home for a chunk that has none: what is not born now was there before the trace, on the slow tier.
    fn first_home(&mut self, p: &Piece) -> Tier {
        let wish = match p.kind {
            Kind::Birth => self.seat.place(&mut self.tiers, p),
            _ => Tier::Slow,
        };
        if !self.tiers.set(p.chunk, wish) {
            self.tiers.set(p.chunk, Tier::Slow);
        }
        let tier = if self.tiers.is_on(p.chunk, Tier::Fast) { Tier::Fast } else { Tier::Slow };
        self.seat.settled(&self.tiers, p.chunk, tier);
        tier
    }

    /// Bytes between where the disk served the piece's run last and the piece, if the head passes over them: the fast tier
    /// served what lies there. What the disk has read may be promoted before the run goes on: the head stands there all the same.
    fn passed_over(&self, p: &Piece) -> Option<u64> {
        let by_disk = |chunk: u32| self.by_disk[chunk as usize];
        match p.follows {
            Follows::Nothing => None,
            // Should the chunk have gone down since, the head has been there for that.
            Follows::Same => Some(0),
            Follows::Before => {
                let most = (self.setup.cost.pass_over / CHUNK + 1).min(p.behind.into()).min(p.chunk.into());
                let chunks = (1..=most as u32).find(|n| by_disk(p.chunk - n))?;
                Some(u64::from(chunks - 1) * CHUNK)
            }
        }
    }

    fn earn(&mut self, accesses: u64) {
        let budget = &self.setup.budget;
        let earned = budget.per_thousand.saturating_mul(accesses);
        self.credit = self.credit.saturating_add(earned).min(budget.burst.saturating_mul(1000));
    }

    fn affordable(&self) -> usize {
        usize::try_from(self.credit / 1000).unwrap_or(usize::MAX)
    }

    /// Lets a policy with a clock of its own move what it likes before the next request comes.
    fn pass_time(&mut self, until_ns: u64) {
        // To let go costs nothing.
        while self.affordable() > 0 || self.tiers.free() < self.tiers.low() || self.makes_way() > 0 {
            let Some(plan) = self.seat.plan(&self.tiers, until_ns) else { return };
            self.tiers.set_now(self.seat.clock_ns().unwrap_or(until_ns));
            self.let_go(plan.let_go);
            self.demote(plan.demote);
            self.promote(plan.promote);
        }
    }

    /// Moves what the policy wants and the budget allows.
    fn turn(&mut self) {
        self.make_room();
        loop {
            let short = self.tiers.keep_free().saturating_sub(self.tiers.free()) as usize;
            let room = self.tiers.free().saturating_sub(self.tiers.keep_free()) as usize;
            let waiting = self.seat.waiting();
            let done = if short > 0 {
                self.demote(short)
            } else if waiting == 0 {
                0
            } else if room > 0 {
                self.promote(room.min(waiting))
            } else {
                // Both halves of an exchange have to be paid, and not all who wait come: a few at a time.
                let batch = (self.tiers.reserve() as usize / 8).max(EXCHANGES);
                self.demote(waiting.min(self.affordable() / 2).min(batch))
            };
            if done == 0 {
                return;
            }
        }
    }

    fn demote(&mut self, max: usize) -> usize {
        let max = max.min(self.affordable());
        if max == 0 {
            return 0;
        }
        let chunks = self.seat.victims(&mut self.tiers, max);
        chunks.into_iter().filter(|c| self.leave(*c)).count()
    }

    /// Chunks that are to make way for new data.
    fn makes_way(&self) -> u64 {
        self.seat.to_make_way(self.tiers.free().saturating_sub(self.tiers.keep_free()).into())
    }

    /// Lets chunks go where free slots are few, as the engine's scheduler does.
    fn make_room(&mut self) {
        let (free, keep_free) = (self.tiers.free(), self.tiers.keep_free());
        let short = if free < self.tiers.low() { keep_free.saturating_sub(free) } else { 0 };
        let make_way = self.makes_way();
        if short > 0 || make_way > 0 {
            self.let_go((make_way.max(short.into()) as usize).min(reserve::AT_ONCE));
        }
    }

    fn let_go(&mut self, max: usize) {
        for chunk in self.seat.let_go(&mut self.tiers, max) {
            self.leave(chunk);
        }
    }

    /// Takes a chunk down, to the copy it has kept if there is one. Whether it went.
    fn leave(&mut self, chunk: u32) -> bool {
        if self.end_copy(chunk) {
            self.tiers.set(chunk, Tier::Slow);
            self.seat.moved(&mut self.tiers, chunk, Tier::Slow, 0);
            self.out.let_go += 1;
            return true;
        }
        let ns = self.setup.cost.demote_ns;
        let went = self.carry(chunk, Tier::Slow, ns);
        self.out.demotions += u64::from(went);
        went
    }

    fn promote(&mut self, max: usize) -> usize {
        let max = max.min(self.affordable());
        if max == 0 {
            return 0;
        }
        let chunks = self.seat.candidates(&mut self.tiers, max);
        let ns = self.setup.cost.promote_ns;
        let done = chunks.into_iter().filter(|c| self.carry(*c, Tier::Fast, ns)).count();
        self.out.promotions += done as u64;
        done
    }

    /// Copies a chunk to the other tier, in so many ns of head time.
    fn carry(&mut self, chunk: u32, to: Tier, ns: u64) -> bool {
        if !self.tiers.is_on(chunk, to.other()) || !self.tiers.set(chunk, to) {
            return false;
        }
        self.credit = self.credit.saturating_sub(1000);
        self.out.background_ns += ns;
        if let (Some(copies), Tier::Fast) = (&mut self.tiers.copies, to) {
            copies.keep(chunk);
        }
        self.seat.moved(&mut self.tiers, chunk, to, ns);
        true
    }
}
