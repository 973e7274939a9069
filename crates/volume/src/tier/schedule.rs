//! When to move, and how much at a time: a state machine over levels, latencies and the time, without I/O.
//!
//! What it holds to:
//! 1. While less is free than should be, something is always moved down, whatever the load (I6): at least the drip of
//!    a `Band`, and a forced group if nothing came through for long ([`Shortage`]).
//! 2. Besides, moves run as freely as the foreground allows ([`Foreground`]).
//! 3. Promotions never take the reserve: slots for them are freed first, in turns, so that the disk
//!    writes for a while and reads for a while.
//! 4. Promotions stop when they have had their share of the SSD's life ([`Endurance`]); demotions never do.
//! 5. While free slots are few, what can be let go is let go beside any load: nothing is copied for it ([`reserve`]).
//! 6. What volumes bound to the slow tier lack of their room there is made free before anything else, from the reserve too and beyond
//!    the SSD's share, beside any load: nothing can go down meanwhile.
//! 7. It never spins: a plan without work says when to ask again, in 10 ms at the earliest.

use std::time::Duration;

use super::endurance::{Endurance, BURST};
use super::foreground::{Foreground, Leave, PERIOD, WINDOW_IDLE, WINDOW_LOAD};
use super::levels::{mib, shortage, unreadable, Band, Goal, Levels};
use super::pause::Pause;
use super::plan::{Job, Plan};
use super::reserve;
use super::seeks::DeviceRange;
use super::share::TOGETHER;
use super::shortage::{Shortage, FORCED, WATCHDOG};
use super::GROUP_CHUNKS;
use crate::env::Instant;
use crate::units::Tier;

/// Quiet before promotions begin.
pub(super) const QUIET_PROMOTE: Duration = Duration::from_millis(200);
/// Shortest and longest time to the next look.
const SOON: Duration = Duration::from_millis(10);
const REST: Duration = Duration::from_secs(60);

/// Decides how many chunks may be on the move.
pub struct Scheduler {
    pub(super) foreground: Foreground,
    /// Freeing slots until the goal is reached; then promotions have their turn.
    refilling: bool,
    shortage: Shortage,
    pauses: [Pause; 2],
    /// Of letting go.
    let_go_pause: Pause,
    endurance: Endurance,
}

impl Scheduler {
    /// A scheduler that has seen nothing yet.
    pub fn new(now: Instant) -> Scheduler {
        Scheduler::with_burst(BURST, now)
    }

    /// The same with so many chunks that may be promoted at once; then the endurance budget is all there is.
    pub fn with_burst(burst: u64, now: Instant) -> Scheduler {
        Scheduler {
            foreground: Foreground::new(now),
            refilling: false,
            shortage: Shortage::new(now),
            pauses: [Pause::none(now); 2],
            let_go_pause: Pause::none(now),
            endurance: Endurance::new(burst, now),
        }
    }

    /// A foreground request was sent to a tier. Each is followed by one [`Scheduler::foreground_done`].
    pub fn foreground_started(&mut self, tier: Tier, now: Instant) {
        self.foreground.started(tier, now);
    }

    /// A foreground request to a tier came back, well or not.
    pub fn foreground_done(&mut self, tier: Tier, range: &DeviceRange, latency: Duration, now: Instant) {
        self.foreground.done(tier, range, latency, now);
    }

    /// A move was committed.
    pub fn moved(&mut self, job: Job, now: Instant) {
        self.pauses[job as usize] = Pause::none(now);
        match job {
            Job::Demote => self.shortage.progress(now),
            Job::Promote => self.endurance.spend(),
        }
    }

    /// The policy named no chunk, or a device refused the move: this kind of work pauses, longer every time until a
    /// move succeeds. (A move cancelled by a write is no reason to pause.)
    pub fn came_to_nothing(&mut self, job: Job, now: Instant) {
        self.pauses[job as usize].failed(now);
        if job == Job::Demote {
            // What room there is beyond the reserve may still be used; `take_turns` decides anew.
            self.refilling = false;
        }
    }

    /// A chunk could not be read: such work pauses only if that has become so of a great many in a row.
    pub fn cannot_read(&mut self, job: Job, now: Instant) {
        self.pauses[job as usize].unread(now);
    }

    /// Some chunks were let go, or the policy named none, which makes for pauses as above.
    pub fn let_go(&mut self, chunks: usize, now: Instant) {
        match chunks {
            0 => self.let_go_pause.failed(now),
            _ => self.let_go_pause = Pause::none(now),
        }
    }

    /// How often the watchdog had to force a move.
    pub fn forced(&self) -> u64 {
        self.shortage.forced()
    }

    /// Whether so many promotions, those under way counted in, are within the endurance budget.
    pub(super) fn affords(&mut self, promotions: usize, fast_slots: u32, now: Instant) -> bool {
        self.endurance.tokens(fast_slots, now) >= promotions as u64
    }

    /// Whether the endurance budget has some to spare for chunks that are not used again yet.
    pub(super) fn has_life_to_spare(&mut self, fast_slots: u32, now: Instant) -> bool {
        self.endurance.is_to_spare(fast_slots, now)
    }

    /// What may be done now.
    pub fn plan(&mut self, l: &Levels, now: Instant) -> Plan {
        let mut plan = self.plan_moves(l, now);
        plan.let_go = self.to_let_go(l, now);
        if plan.let_go > 0 {
            plan.doing =
                "making room for new data by letting go of cold chunks that the slow tier has a copy of".into();
            plan.why = if l.free < l.keep_free { shortage(l) } else { "new data come".into() };
        }
        if l.unreadable != [0; 2] {
            plan.why.push_str(&unreadable(l));
        }
        if l.low > 0 && l.free < l.keep_free || to_make_way(l) > 0 {
            // New data may come fast.
            plan.next_check = plan.next_check.min(PERIOD);
        }
        plan
    }

    /// Chunks to be let go now.
    fn to_let_go(&self, l: &Levels, now: Instant) -> usize {
        let coming = l.coming();
        let short = if coming < l.low { l.keep_free.saturating_sub(coming) } else { 0 };
        match self.let_go_pause.is_over(now) {
            true => to_make_way(l).max(short as usize).min(reserve::AT_ONCE),
            false => 0,
        }
    }

    fn plan_moves(&mut self, l: &Levels, now: Instant) -> Plan {
        self.foreground.adapt(l, now);
        let goal = Goal::of(l);
        self.take_turns(l, &goal);
        let band = self.shortage.band(l, &goal, now);
        let may = l.demoting + l.promoting + FORCED <= WINDOW_IDLE;
        let forced = self.shortage.force(l, may, now);
        if forced > 0 {
            let why = format!("{}; nothing has come through for {} s", shortage(l), WATCHDOG.as_secs());
            return Plan { demote: forced, ..Plan::nothing("moving cold chunks to the slow tier", why, PERIOD) };
        }
        let plan = match l.owed_below {
            0 => self.plan_turn(l, &goal, band, now),
            // This can wait for nothing, and makes way for nothing else.
            _ => self.plan_relief(l, now),
        };
        self.foreground.moves_begin(plan.demote + plan.promote, l, now);
        plan
    }

    /// What it is the turn of: freeing slots or promoting, and beside a load an exchange.
    fn plan_turn(&mut self, l: &Levels, goal: &Goal, band: Band, now: Instant) -> Plan {
        let mut plan = match self.refilling {
            true => self.plan_demotion(l, goal, band, now),
            false => self.plan_promotion(l, goal, now),
        };
        if plan.demote + plan.promote == 0 {
            self.exchange_a_few(l, goal, now, &mut plan);
            return plan;
        }
        self.spare_the_fast_tier(l, now, &mut plan);
        if plan.demote + plan.promote > 0 {
            self.foreground.share.clear();
        }
        plan
    }

    /// Moves that can wait are no faster than a load on the fast tier allows that never pauses.
    fn spare_the_fast_tier(&mut self, l: &Levels, now: Instant, plan: &mut Plan) {
        if l.free < l.keep_free || !self.foreground.is_steady(now) {
            return;
        }
        let (wanted, down) = (plan.demote.max(plan.promote), plan.demote > 0);
        let chunks = self.foreground.spare(wanted, now).unwrap_or_else(|wait| {
            plan.next_check = plan.next_check.min(wait.max(SOON));
            0
        });
        (plan.demote, plan.promote) = (plan.demote.min(chunks), plan.promote.min(chunks));
        let what = if down { "cold chunks to the slow tier" } else { "chunks to the fast tier" };
        plan.doing = format!("moving {what}, slowly, so that requests to the fast tier do not feel it");
    }

    /// Switches between freeing slots and promoting.
    fn take_turns(&mut self, l: &Levels, goal: &Goal) {
        let coming = l.coming();
        if l.slow_free == 0 {
            // Nothing can go down before something has come up.
            self.refilling = false;
        } else if coming < goal.keep_free || (goal.turn > 0 && goal.room(l) == 0 && coming <= goal.keep_free) {
            self.refilling = true;
        } else if coming >= goal.refill {
            self.refilling = false;
        }
    }

    fn plan_demotion(&mut self, l: &Levels, goal: &Goal, band: Band, now: Instant) -> Plan {
        let why =
            if l.free < goal.keep_free { shortage(l) } else { "making room for chunks that are used more".into() };
        let missing = goal.refill.saturating_sub(l.coming()).min(l.slow_free) as usize;
        if missing == 0 {
            let why = if l.slow_free == 0 { "the slow tier has no free slot".into() } else { why };
            return Plan::nothing("waiting for moves to end", why, PERIOD);
        }
        // Room for promotions is as urgent as these are.
        let quiet = if goal.turn > 0 { band.quiet().min(QUIET_PROMOTE) } else { band.quiet() };
        let (drip, due) = self.drip(Job::Demote, band, l.demoting.max(l.unsettled), now);
        let (demote, how, next_check) = match self.leave(Job::Demote, band, quiet, now) {
            // A load that suffers makes the window small, but not smaller than what goes down in any case.
            Leave::Go(window, how) => (window.saturating_sub(on_the_way(l, window)).max(drip), how, PERIOD),
            Leave::Wait(t) => (drip, "a little at a time beside other requests", t.min(due)),
        };
        let demote = demote.min(missing);
        let doing = match demote + l.demoting {
            0 => "waiting for a quiet moment to move cold chunks to the slow tier".into(),
            _ => format!("moving cold chunks to the slow tier, {how}"),
        };
        // The end of a move brings the mover back anyway.
        let soonest = if demote + l.demoting > 0 { PERIOD } else { SOON };
        Plan { demote, promote: 0, let_go: 0, doing, why, next_check: next_check.max(soonest) }
    }

    /// Volumes bound to the slow tier lack what they were promised there: chunks that may live on both come up, used again or not.
    fn plan_relief(&mut self, l: &Levels, now: Instant) -> Plan {
        let missing = (l.owed_below as usize).saturating_sub(l.promoting).min(l.free as usize);
        let (drip, due) = match missing {
            0 => (0, REST),
            _ => self.drip(Job::Promote, Band::Critical, l.promoting, now),
        };
        let (promote, next_check) = match self.leave(Job::Promote, Band::Critical, Duration::ZERO, now) {
            Leave::Go(window, _) => (window.saturating_sub(l.promoting).max(drip), PERIOD),
            Leave::Wait(t) => (drip, t.min(due)),
        };
        let doing = match l.free as usize + l.promoting {
            0 => "waiting for free slots on the fast tier",
            _ => "moving chunks to the fast tier for what volumes bound to the slow tier were promised there",
        };
        let why = format!("{} of it are taken", mib(l.owed_below.into()));
        Plan { promote: promote.min(missing), ..Plan::nothing(doing, why, next_check.max(SOON)) }
    }

    fn plan_promotion(&mut self, l: &Levels, goal: &Goal, now: Instant) -> Plan {
        if l.candidates == 0 {
            let (doing, next_check) = match l.demoting + l.promoting {
                0 => ("resting", REST),
                _ => ("waiting for moves to end", PERIOD),
            };
            let why = match (l.free < l.keep_free, l.slow_free) {
                (true, 0) => format!("{}, and the slow tier has no free slot for more", shortage(l)),
                (true, _) => format!("{}, and the others are on their way", shortage(l)),
                (false, _) => {
                    "nothing on the slow tier is used enough to be moved, and enough is free for new data".into()
                }
            };
            return Plan::nothing(doing, why, next_check);
        }
        let why = format!("{} there wait for it", mib(l.candidates as u64));
        let promotable = self.promotable(l, now);
        if promotable < l.candidates.min(GROUP_CHUNKS as usize) && l.promoting == 0 {
            let why = format!("{why}, but promotions have had their share of the SSD's life for now");
            let next_check = Endurance::next_group(l.fast_slots).clamp(PERIOD, REST);
            return Plan::nothing("sparing the SSD", why, next_check);
        }
        let room = goal.room(l) as usize;
        let (promote, how, next_check) = match self.leave(Job::Promote, Band::Ok, QUIET_PROMOTE, now) {
            Leave::Go(window, how) => (window.saturating_sub(l.demoting + l.promoting), how, PERIOD),
            Leave::Wait(t) => (0, "", t),
        };
        let promote = promote.min(room).min(l.candidates).min(promotable);
        let doing = match promote + l.promoting {
            0 if room == 0 => "waiting for free slots on the fast tier".into(),
            0 => "waiting for a quiet moment to move chunks to the fast tier".into(),
            _ => format!("moving chunks to the fast tier, {how}"),
        };
        Plan { demote: 0, promote, let_go: 0, doing, why, next_check: next_check.max(SOON) }
    }

    /// Beside a load that leaves no time for exchanges, a few chunks change places. What new data take from the reserve is
    /// freed at the same rate while chunks want to come up: else a busy group that is written to would never adapt.
    fn exchange_a_few(&mut self, l: &Levels, goal: &Goal, now: Instant, plan: &mut Plan) {
        let (room, promotable) = (goal.room(l) as usize, self.promotable(l, now));
        let (job, most, under_way) = match room {
            0 => (Job::Demote, (l.slow_free as usize).min(TOGETHER), on_the_way(l, WINDOW_LOAD)),
            // A commit waits for what the disk has in its cache, for seconds perhaps: those that are copied go together.
            _ => {
                let more = WINDOW_IDLE.saturating_sub(l.promoting);
                (Job::Promote, room.min(GROUP_CHUNKS as usize).min(more), l.demoting + l.copying_up)
            }
        };
        let most = most.min(promotable).min(l.candidates);
        let paused = !self.pauses[job as usize].is_over(now) || self.foreground.bears_moves(now).is_err();
        if most == 0 || paused || self.foreground.quiet(Tier::Slow, now) >= QUIET_PROMOTE || goal.turn == 0 {
            return;
        }
        let chunks = self.foreground.share.take(most.saturating_sub(under_way));
        match job {
            Job::Demote => plan.demote = chunks,
            Job::Promote => plan.promote = chunks,
        }
        if chunks > 0 {
            plan.doing = "exchanging a few chunks beside a steady load".into();
            plan.why = format!("{} on the slow tier wait for it", mib(l.candidates as u64));
        }
        plan.next_check = plan.next_check.min(PERIOD);
    }

    /// Chunks that may still be promoted without wearing the SSD out, those on the way counted in.
    fn promotable(&mut self, l: &Levels, now: Instant) -> usize {
        let tokens = self.endurance.tokens(l.fast_slots, now);
        usize::try_from(tokens).unwrap_or(usize::MAX).saturating_sub(l.promoting)
    }

    /// How freely a job may run: not at all during its pause, else as the foreground allows.
    fn leave(&mut self, job: Job, band: Band, quiet: Duration, now: Instant) -> Leave {
        let pause = &self.pauses[job as usize];
        match pause.is_over(now) {
            true => self.foreground.leave(band, quiet, now),
            false => Leave::Wait(pause.left(now)),
        }
    }

    /// The chunks that are moved whatever the load, those still on the way counted in; and when more will be due.
    fn drip(&mut self, job: Job, band: Band, on_the_way: usize, now: Instant) -> (usize, Duration) {
        // A pause after failures holds for the drip too; the watchdog goes through it.
        if !self.pauses[job as usize].is_over(now) {
            return (0, REST);
        }
        match self.shortage.drip(band, on_the_way, now) {
            Some((0, due)) => (0, due.max(PERIOD)),
            Some(due) => due,
            None => (0, REST),
        }
    }
}

/// Chunks that only fill slots and are to make way for new data: once there is room enough for what may come, none.
fn to_make_way(l: &Levels) -> usize {
    l.filled.to_let_go(l.coming().saturating_sub(l.keep_free).into()) as usize
}

/// Demotions that count for a window of this size. A disk takes writes into its cache in no time, and then nobody is served until
/// they are on its platters: beside a load, those in the cache count like those being copied. Of room for promotions, which comes in small
/// turns, a quiet disk's worth may be there: who reads from the SSD may come to what is on the disk in a moment, and bears no more.
fn on_the_way(l: &Levels, window: usize) -> usize {
    // Those being copied may go to kept copies: then they are not among the unsettled.
    let cached = l.unsettled.saturating_sub(l.demoting);
    let borne = if window < WINDOW_IDLE && l.free < l.keep_free { 0 } else { WINDOW_IDLE };
    l.demoting + l.promoting + cached.saturating_sub(borne)
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod sync_tests;
#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
