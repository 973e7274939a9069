//! What requests of users need of the disks, and how freely moves may run beside them.
//!
//! What it holds to:
//! 1. Quiet disks are used to the full at once; under load at most [`WINDOW_LOAD`] chunks are on the move, fewer
//!    when the load suffers.
//! 2. A disk that is never quiet still gets a few moves ([`Share`]).
//! 3. A load on the fast tier that never pauses does not feel moves that can wait ([`Pace`]).
//! 4. A disk to which a fast stream comes in a moment is no quiet disk for moves that can wait.
//! 5. A load on the slow tier keeps its tail beside moves that can wait, and beside evacuations ([`TailBudget`]).

use std::time::Duration;

use super::latency::{Load, Verdict};
use super::levels::{Band, Levels};
use super::pace::Pace;
use super::seeks::{DeviceRange, Seeks};
use super::share::Share;
use super::tail_budget::{TailBudget, BY_EVACUATIONS, BY_MOVES};
use crate::env::Instant;
use crate::units::Tier;

/// Most chunks on the move while nobody else uses the disks.
pub(super) const WINDOW_IDLE: usize = 64;
/// Most chunks on the move under a load.
pub(super) const WINDOW_LOAD: usize = 16;
/// The window is adapted this often.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// Part of a period in which work goes on beside a light load, and quiet before it does: a stream that the disk's cache serves is
/// no light load, but leaves no such gap.
const DUTY: Duration = Duration::from_millis(30);
pub(super) const QUIET_LIGHT: Duration = Duration::from_millis(5);
/// A load below this share of the time is light.
const LIGHT_PERCENT: u32 = 15;
/// Quiet before work that is not urgent uses the disks to the full.
pub(super) const QUIET_LONG: Duration = Duration::from_millis(700);
/// Quiet of the fast tier before moves use the disks to the full.
const QUIET_FAST: Duration = Duration::from_millis(100);
/// New data come in a burst if there were fewer free slots than before in this time.
const SINKING: Duration = Duration::from_millis(300);
/// A quiet disk is kept clear for a stream that comes, but not for longer than this: streams may come for ever.
const KEEPS_CLEAR: Duration = Duration::from_secs(30);
/// Latencies below these are never held against the mover.
const FLOOR_SLOW: Duration = Duration::from_millis(25);
const FLOOR_FAST: Duration = Duration::from_millis(2);

/// How freely moves may run now.
pub(super) enum Leave {
    /// So many chunks on the move, for this reason.
    Go(usize, &'static str),
    /// Not before this time has passed.
    Wait(Duration),
}

/// Watches the requests to both tiers.
pub(super) struct Foreground {
    fast: Load,
    slow: Load,
    /// Chunks on the move under a load: one more each period, half when the load suffers.
    pub(super) window: usize,
    period_began: Instant,
    /// Free slots at the last look, and when they were last seen to become fewer.
    free_before: u32,
    sank: Option<Instant>,
    seeks: Seeks,
    /// What a disk that is never quiet has earned.
    pub(super) share: Share,
    pace: Pace,
    /// What requests to the slow tier bear of evacuations, and of moves that can wait.
    evacuation_budget: TailBudget,
    move_budget: TailBudget,
    /// Whether the mover copies something; whether it has something on the way, in a disk's cache too; and whether a member is
    /// being emptied.
    copies: bool,
    moves: bool,
    evacuates: bool,
    /// A stream is about to come to the slow tier, and since when moves have waited for it.
    stream_comes: bool,
    clear_since: Option<Instant>,
}

impl Foreground {
    pub(super) fn new(now: Instant) -> Foreground {
        Foreground {
            fast: Load::new(now),
            slow: Load::new(now),
            window: 1,
            period_began: now,
            free_before: 0,
            sank: None,
            seeks: Seeks::default(),
            share: Share::default(),
            pace: Pace::new(now),
            evacuation_budget: TailBudget::new(BY_EVACUATIONS, now),
            move_budget: TailBudget::new(BY_MOVES, now),
            copies: false,
            moves: false,
            evacuates: false,
            stream_comes: false,
            clear_since: None,
        }
    }

    /// A request was sent to a tier. Each is followed by one [`Foreground::done`].
    pub(super) fn started(&mut self, tier: Tier, now: Instant) {
        match tier {
            Tier::Fast => self.fast.started(now),
            Tier::Slow => self.slow.started(now),
        }
    }

    /// So many of the requests to a tier hang on a member that stands still: they are no load for the others.
    pub(super) fn hang(&mut self, tier: Tier, requests: u32, now: Instant) {
        match tier {
            Tier::Fast => self.fast.hang(requests, now),
            Tier::Slow => self.slow.hang(requests, now),
        }
    }

    /// Whether any do.
    pub(super) fn hangs(&self) -> bool {
        self.fast.hangs() || self.slow.hangs()
    }

    /// A request to a tier came back, well or not.
    pub(super) fn done(&mut self, tier: Tier, range: &DeviceRange, latency: Duration, now: Instant) {
        match tier {
            Tier::Slow => {
                self.slow.done(latency, now);
                self.share.served(self.seeks.add(range), latency, now);
                self.evacuation_budget.served(latency, now);
                self.move_budget.served(latency, now);
            }
            Tier::Fast => {
                self.fast.done(latency, now);
                self.pace.served(range.bytes, latency, now);
            }
        }
    }

    /// For how long it has left a tier alone.
    pub(super) fn quiet(&self, tier: Tier, now: Instant) -> Duration {
        match tier {
            Tier::Fast => self.fast.quiet(now),
            Tier::Slow => self.slow.quiet(now),
        }
    }

    /// Whether small requests to the fast tier come without a pause.
    pub(super) fn is_steady(&mut self, now: Instant) -> bool {
        self.pace.quiet(now) < QUIET_FAST && self.fast.busy_percent(now) >= LIGHT_PERCENT
    }

    /// Of so many chunks that could be moved, those that a steady load on the fast tier allows now; or how long to wait.
    pub(super) fn spare(&mut self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        self.pace.take(wanted, now)
    }

    /// Whether requests to the slow tier bear that some chunks leave a member; or how long to wait.
    pub(super) fn bears_evacuations(&self, now: Instant) -> Result<(), Duration> {
        self.evacuation_budget.allows(now)
    }

    /// The same of moves that can wait.
    pub(super) fn bears_moves(&self, now: Instant) -> Result<(), Duration> {
        self.move_budget.allows(now)
    }

    /// Chunks begin to leave a member.
    pub(super) fn evacuation_begins(&mut self, now: Instant) {
        self.evacuation_budget.begins(now);
        self.evacuates(true, now);
    }

    /// Chunks are leaving a member from here on, or none is: then requests say what is usual.
    pub(super) fn evacuates(&mut self, evacuates: bool, now: Instant) {
        self.evacuates = evacuates;
        let moving = self.copies || self.evacuates;
        self.pace.beside(moving);
        // A mover that never pauses leaves no moment in which nothing is on the way: what is usual must be found out all the same.
        self.evacuation_budget.beside(moving, self.evacuates, now);
        self.move_budget.beside(self.moves || self.evacuates, self.moves, now);
    }

    /// So many moves begin now, and the levels tell of those that are under way.
    pub(super) fn moves_begin(&mut self, begun: usize, l: &Levels, now: Instant) {
        if begun > 0 {
            self.move_budget.begins(now);
            self.clear_since = None;
        }
        self.beside(begun > 0);
        self.copies = begun + l.demoting + l.promoting > 0;
        self.moves = begun + l.under_way() > 0;
        self.evacuates(l.evacuating > 0, now);
    }

    /// Requests that are observed now have moves beside them, or not.
    fn beside(&mut self, moving: bool) {
        self.slow.beside(moving);
        self.fast.beside(moving);
    }

    /// Additive increase, multiplicative decrease of the window under load.
    pub(super) fn adapt(&mut self, l: &Levels, now: Instant) {
        self.beside(l.under_way() > 0);
        self.stream_comes = l.stream_comes;
        if !l.stream_comes {
            self.clear_since = None;
        }
        if l.free < self.free_before {
            self.sank = Some(now);
        }
        self.free_before = l.free;
        if now.since(self.period_began) < PERIOD {
            return;
        }
        let verdicts = [self.slow.suffers(FLOOR_SLOW), self.fast.suffers(FLOOR_FAST)];
        if verdicts.contains(&Verdict::Suffers) {
            self.window = (self.window / 2).max(1);
        } else if !verdicts.contains(&Verdict::Unknown) {
            self.window = (self.window + 1).min(WINDOW_LOAD);
        }
        self.period_began = now;
    }

    /// How freely moves may run, by what else the disks have to do and by how urgent they are: promotions that can wait are as urgent
    /// as a group is that lacks nothing. `quiet` of the slow tier is enough for them.
    pub(super) fn leave(&mut self, band: Band, quiet: Duration, now: Instant) -> Leave {
        let (slow, fast) = (self.slow.quiet(now), self.fast.quiet(now));
        let can_wait = band <= Band::Below;
        if let (true, Err(wait)) = (can_wait && slow < QUIET_LONG, self.move_budget.allows(now)) {
            return Leave::Wait(wait);
        }
        if can_wait && slow >= QUIET_LIGHT && self.stream_comes {
            let since = *self.clear_since.get_or_insert(now);
            if now.since(since) < KEEPS_CLEAR {
                return Leave::Wait(PERIOD);
            }
        }
        let full = if band != Band::Ok { quiet } else { QUIET_LONG };
        if slow >= full && slow > Duration::ZERO && fast >= QUIET_FAST {
            return Leave::Go(WINDOW_IDLE, "at full speed");
        }
        // While a burst of new data comes in, making room can wait: what finds none goes to the slow tier, which costs no more than
        // a cold chunk that goes there in its place.
        let sinking = self.sank.is_some_and(|t| now.since(t) < SINKING);
        let burst = band != Band::Ok && fast < QUIET_FAST && sinking;
        if slow >= quiet && !burst {
            return Leave::Go(self.window, "at a moderate speed");
        }
        let in_period = Duration::from_nanos(now.0 % PERIOD.as_nanos() as u64);
        let light = self.slow.busy_percent(now) < LIGHT_PERCENT && !burst;
        if light && in_period < DUTY && slow >= QUIET_LIGHT {
            return Leave::Go(self.window, "beside a light load");
        }
        let wait = if burst { QUIET_FAST - fast } else { quiet.saturating_sub(slow) };
        Leave::Wait(if light { wait.min(PERIOD - in_period) } else { wait })
    }
}
