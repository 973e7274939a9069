//! When to move, and how much at a time: a state machine over levels, latencies and the time, without I/O.
//!
//! What it holds to:
//! 1. Below the reserve something is always moved down, whatever the load (I6): at least the drip of [`Band::drip`] chunks
//!    each half second, and a forced group if for [`WATCHDOG`] nothing came through.
//! 2. Quiet disks are used to the full at once; under load at most [`WINDOW_LOAD`] chunks are on the move, fewer
//!    when the load suffers.
//! 3. Promotions never take the reserve: slots for them are freed first, in turns of [`TURN`] chunks, so that the disk
//!    writes for a while and reads for a while.
//! 4. It never spins: a plan without work says when to ask again, in 10 ms at the earliest.

use std::time::Duration;

use super::latency::Load;
use crate::env::Instant;
use crate::units::{Tier, CHUNK};

/// Most chunks on the move while nobody else uses the disks.
const WINDOW_IDLE: usize = 64;
/// Most chunks on the move under a load.
const WINDOW_LOAD: usize = 8;
/// Chunks freed for promotions at a time, at most.
const TURN: u32 = 256;
/// Chunks of a group, moved by force.
const FORCED: usize = 8;
/// Without progress for so long, a group is moved by force.
const WATCHDOG: Duration = Duration::from_secs(5);
/// Time between two drips.
const DRIP_EVERY: Duration = Duration::from_millis(500);
/// The window is adapted this often.
const PERIOD: Duration = Duration::from_millis(100);
/// Part of a period in which work goes on beside a light load.
const DUTY: Duration = Duration::from_millis(30);
/// A load below this share of the time is light.
const LIGHT_PERCENT: u32 = 15;
/// Quiet before promotions begin.
const QUIET_PROMOTE: Duration = Duration::from_millis(200);
/// Quiet before work that is not urgent uses the disks to the full.
const QUIET_LONG: Duration = Duration::from_secs(2);
/// Quiet of the fast tier before moves use the disks to the full.
const QUIET_FAST: Duration = Duration::from_millis(100);
/// Latencies below these are never held against the mover.
const FLOOR_SLOW: Duration = Duration::from_millis(25);
const FLOOR_FAST: Duration = Duration::from_millis(2);
/// Shortest and longest time to the next look.
const SOON: Duration = Duration::from_millis(10);
const REST: Duration = Duration::from_secs(60);
/// First and longest pause of a kind of work that found nothing to do or failed.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The two kinds of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// To the slow tier.
    Demote,
    /// To the fast tier.
    Promote,
}

/// What the scheduler is told of the group, in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// Fast slots that can be taken at once.
    pub free: u32,
    /// Fast slots to be kept free.
    pub reserve: u32,
    /// Fast slots left by demotions or TRIM that become free by a commit or discard that is under way.
    pub leaving: u32,
    /// Slow slots that can be taken at once.
    pub slow_free: u32,
    /// Chunks that want to be promoted.
    pub candidates: usize,
    /// Demotions begun and not yet counted in `leaving`.
    pub demoting: usize,
    /// Promotions begun whose slow slot is not free yet; their fast slots are no more in `free`.
    pub promoting: usize,
}

/// What the mover may do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Demotions that may be begun now, besides those on the way.
    pub demote: usize,
    /// Promotions that may be begun now, besides those on the way.
    pub promote: usize,
    /// What is being done, in plain words.
    pub doing: String,
    /// Why, in plain words.
    pub why: String,
    /// Ask again after this time at the latest (10 ms or more), or when a move ended, free slots fell below the reserve,
    /// or a candidate was found while there was none.
    pub next_check: Duration,
}

/// How short of the reserve the fast tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Band {
    Ok,
    Below,
    Low,
    Critical,
}

impl Band {
    fn of(free: u32, reserve: u32) -> Band {
        match free {
            f if f >= reserve => Band::Ok,
            f if f >= reserve / 2 => Band::Below,
            f if f >= reserve / 8 => Band::Low,
            _ => Band::Critical,
        }
    }

    /// Quiet of the slow tier after which it counts as idle.
    fn quiet(self) -> Duration {
        match self {
            Band::Ok => QUIET_LONG,
            Band::Below => Duration::from_millis(100),
            Band::Low => Duration::from_millis(20),
            Band::Critical => Duration::ZERO,
        }
    }

    /// Chunks moved in every [`DRIP_EVERY`] whatever the load.
    fn drip(self) -> usize {
        match self {
            Band::Ok => 0,
            Band::Below => 1,
            Band::Low => 4,
            Band::Critical => 16,
        }
    }
}

/// A kind of work that may have to pause.
#[derive(Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
}

/// How freely a job may run now.
enum Leave {
    /// So many chunks on the move, for this reason.
    Go(usize, &'static str),
    /// Not before this time has passed.
    Wait(Duration),
}

/// Decides how many chunks may be on the move.
pub struct Scheduler {
    fast: Load,
    slow: Load,
    /// Chunks on the move under a load: one more each period, half when the load suffers.
    window: usize,
    period_began: Instant,
    /// Something was on the move in this period.
    moving: bool,
    /// Freeing slots until the goal is reached; then promotions have their turn.
    refilling: bool,
    last_drip: Instant,
    last_progress: Instant,
    pauses: [Pause; 2],
    forced: u64,
}

impl Scheduler {
    /// A scheduler that has seen nothing yet.
    pub fn new(now: Instant) -> Scheduler {
        let pause = Pause { until: now, length: PAUSE_FIRST };
        Scheduler {
            fast: Load::new(now),
            slow: Load::new(now),
            window: 1,
            period_began: now,
            moving: false,
            refilling: false,
            last_drip: now,
            last_progress: now,
            pauses: [pause; 2],
            forced: 0,
        }
    }

    /// A foreground request was sent to a tier. Each is followed by one [`Scheduler::foreground_done`].
    pub fn foreground_started(&mut self, tier: Tier, now: Instant) {
        self.load(tier).started(now);
    }

    /// A foreground request to a tier came back, well or not.
    pub fn foreground_done(&mut self, tier: Tier, latency: Duration, now: Instant) {
        self.load(tier).done(latency, now);
    }

    /// A move was committed.
    pub fn moved(&mut self, job: Job, now: Instant) {
        self.pauses[job as usize] = Pause { until: now, length: PAUSE_FIRST };
        if job == Job::Demote {
            self.last_progress = now;
        }
    }

    /// The policy named no chunk, or a device refused the move: this kind of work pauses, longer every time until a move
    /// succeeds. (A move cancelled by a write is no reason to pause.)
    pub fn came_to_nothing(&mut self, job: Job, now: Instant) {
        let p = &mut self.pauses[job as usize];
        p.until = now.plus(p.length);
        p.length = (p.length * 2).min(PAUSE_MAX);
    }

    /// How often the watchdog had to force a move.
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// What may be done now.
    pub fn plan(&mut self, l: &Levels, now: Instant) -> Plan {
        self.adapt(l, now);
        let goal = Goal::of(l);
        self.take_turns(l, &goal);
        if !self.short(l, &goal) {
            self.last_progress = now;
        }
        let forced = self.force(l, &goal, now);
        if forced > 0 {
            return Plan {
                demote: forced,
                promote: 0,
                doing: "moving cold chunks to the slow tier".into(),
                why: format!("{}; nothing has come through for {} s", shortage(l), WATCHDOG.as_secs()),
                next_check: PERIOD,
            };
        }
        if self.refilling {
            self.plan_demotion(l, &goal, now)
        } else {
            self.plan_promotion(l, &goal, now)
        }
    }

    fn load(&mut self, tier: Tier) -> &mut Load {
        match tier {
            Tier::Fast => &mut self.fast,
            Tier::Slow => &mut self.slow,
        }
    }

    /// Additive increase, multiplicative decrease of the window under load.
    fn adapt(&mut self, l: &Levels, now: Instant) {
        self.moving |= l.demoting + l.promoting > 0;
        if now.since(self.period_began) < PERIOD {
            return;
        }
        let slow = self.slow.suffers(self.moving, FLOOR_SLOW).unwrap_or(false);
        let fast = self.fast.suffers(self.moving, FLOOR_FAST).unwrap_or(false);
        self.window = if slow || fast { (self.window / 2).max(1) } else { (self.window + 1).min(WINDOW_LOAD) };
        self.period_began = now;
        self.moving = false;
    }

    /// Switches between freeing slots and promoting.
    fn take_turns(&mut self, l: &Levels, goal: &Goal) {
        let coming = goal.coming(l);
        if coming < goal.reserve || (goal.turn > 0 && goal.room(l) == 0 && coming <= goal.reserve) {
            self.refilling = true;
        } else if coming >= goal.refill {
            self.refilling = false;
        }
    }

    fn short(&self, l: &Levels, goal: &Goal) -> bool {
        l.free < goal.reserve && l.slow_free > 0
    }

    fn force(&mut self, l: &Levels, goal: &Goal, now: Instant) -> usize {
        let stuck = self.short(l, goal) && now.since(self.last_progress) >= WATCHDOG;
        if !stuck || l.demoting + l.promoting + FORCED > WINDOW_IDLE {
            return 0;
        }
        self.last_progress = now;
        self.forced += 1;
        FORCED.min(l.slow_free as usize)
    }

    fn plan_demotion(&mut self, l: &Levels, goal: &Goal, now: Instant) -> Plan {
        let why = if l.free < goal.reserve { shortage(l) } else { "making room for chunks that are used again".into() };
        let missing = goal.refill.saturating_sub(goal.coming(l)).min(l.slow_free) as usize;
        if missing == 0 {
            let why = if l.slow_free == 0 { "the slow tier has no free slot".into() } else { why };
            return Plan { demote: 0, promote: 0, doing: "waiting for moves to end".into(), why, next_check: PERIOD };
        }
        let band = Band::of(l.free, goal.reserve);
        // Room for promotions is as urgent as these are.
        let quiet = if goal.turn > 0 { band.quiet().min(QUIET_PROMOTE) } else { band.quiet() };
        let (demote, how, next_check) = match self.leave(Job::Demote, band, quiet, now) {
            Leave::Go(window, how) => (window.saturating_sub(l.demoting + l.promoting), how, PERIOD),
            Leave::Wait(t) => {
                let drip = self.drip(band, l.demoting, now);
                let drip_due =
                    if band == Band::Ok { REST } else { DRIP_EVERY.saturating_sub(now.since(self.last_drip)) };
                (drip, "a little at a time beside other requests", t.min(drip_due))
            }
        };
        let demote = demote.min(missing);
        let doing = match demote + l.demoting {
            0 => "waiting for a quiet moment to move cold chunks to the slow tier".into(),
            _ => format!("moving cold chunks to the slow tier, {how}"),
        };
        Plan { demote, promote: 0, doing, why, next_check: next_check.max(SOON) }
    }

    fn plan_promotion(&mut self, l: &Levels, goal: &Goal, now: Instant) -> Plan {
        if l.candidates == 0 {
            let (doing, next_check) = match l.demoting + l.promoting {
                0 => ("resting", REST),
                _ => ("waiting for moves to end", PERIOD),
            };
            let why = "nothing on the slow tier is used enough to be moved, and the reserve is free".into();
            return Plan { demote: 0, promote: 0, doing: doing.into(), why, next_check };
        }
        let why = format!("{} there are used again", mib(l.candidates as u64, "MiB"));
        let room = goal.room(l) as usize;
        let (promote, how, next_check) = match self.leave(Job::Promote, Band::Ok, QUIET_PROMOTE, now) {
            Leave::Go(window, how) => (window.saturating_sub(l.demoting + l.promoting), how, PERIOD),
            Leave::Wait(t) => (0, "", t),
        };
        let promote = promote.min(room).min(l.candidates);
        let doing = match promote + l.promoting {
            0 if room == 0 => "waiting for free slots on the fast tier".into(),
            0 => "waiting for a quiet moment to move chunks to the fast tier".into(),
            _ => format!("moving chunks to the fast tier, {how}"),
        };
        Plan { demote: 0, promote, doing, why, next_check: next_check.max(SOON) }
    }

    /// How freely a job may run, by what else the disks have to do.
    fn leave(&mut self, job: Job, band: Band, quiet: Duration, now: Instant) -> Leave {
        let pause = self.pauses[job as usize].until;
        if pause > now {
            return Leave::Wait(pause.since(now));
        }
        let (slow, fast) = (self.slow.quiet(now), self.fast.quiet(now));
        let full = if job == Job::Demote && band != Band::Ok { quiet } else { QUIET_LONG };
        if slow >= full && slow > Duration::ZERO && fast >= QUIET_FAST {
            return Leave::Go(WINDOW_IDLE, "at full speed");
        }
        if slow >= quiet {
            return Leave::Go(self.window, "at a moderate speed");
        }
        let in_period = Duration::from_nanos(now.0 % PERIOD.as_nanos() as u64);
        let light = self.slow.busy_percent(now) < LIGHT_PERCENT;
        if light && in_period < DUTY {
            return Leave::Go(self.window, "beside a light load");
        }
        let wait = quiet - slow;
        Leave::Wait(if light { wait.min(PERIOD - in_period) } else { wait })
    }

    /// The chunks that go down whatever the load; those still on the way count.
    fn drip(&mut self, band: Band, demoting: usize, now: Instant) -> usize {
        // A pause after failures holds for the drip too; the watchdog goes through it.
        if now.since(self.last_drip) < DRIP_EVERY || self.pauses[Job::Demote as usize].until > now {
            return 0;
        }
        let n = band.drip().saturating_sub(demoting);
        if n > 0 {
            self.last_drip = now;
        }
        n
    }
}

/// What is to be reached, in chunks.
struct Goal {
    /// The reserve, or what a group that is nearly full can have of it.
    reserve: u32,
    /// Chunks that are freed beyond the reserve for promotions.
    turn: u32,
    /// Freeing goes on up to this.
    refill: u32,
}

impl Goal {
    fn of(l: &Levels) -> Goal {
        // On a full group only the swap headroom is free: half of it on each side lets chunks change places.
        let all = l.free.saturating_add(l.leaving).saturating_add(l.slow_free);
        let reserve = l.reserve.min(all / 2);
        let turn = (l.candidates.min(TURN as usize) as u32).min((reserve / 8).max(8)).min(all / 4);
        Goal { reserve, turn, refill: reserve.saturating_add(reserve / 10).saturating_add(turn) }
    }

    /// Free fast slots when what is under way has ended.
    fn coming(&self, l: &Levels) -> u32 {
        l.free.saturating_add(l.leaving).saturating_add(l.demoting as u32)
    }

    /// Free fast slots that promotions may take.
    fn room(&self, l: &Levels) -> u32 {
        l.free.saturating_sub(self.reserve)
    }
}

fn shortage(l: &Levels) -> String {
    format!("only {} of the {} reserve are free", mib(l.free.into(), "MiB"), mib(l.reserve.into(), "MiB"))
}

fn mib(chunks: u64, unit: &str) -> String {
    format!("{} {unit}", (chunks * CHUNK).div_ceil(1 << 20))
}
