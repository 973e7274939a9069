//! Apple's Fusion Drive, as the reviews saw it (B1 to B13) and as its patents tell (US 9710397, US 8914381).
//!
//! - *Unit*: 128 KiB of the volume; its *home* is a *slot* of either device. A unit without a home is a hole.
//! - *Reserve*: what is kept free on the SSD. New data go there as long as anything is free, and straight to the disk after
//!   that (B2); when the machine is idle, the reserve is made good again (B3).
//! - *Extent*: a part of a request that lies in one piece on one device. The extents of a request are carried out one after
//!   another. So a file that was scattered over the SSD is read at the speed of single units (B13).
//!
//! Reading order: `watch` (what is noticed of the requests), `homes` (the map), `moves` (what moves when), `front` (requests
//! of the host), `back` (moves carried out), `pair` (devices). [`Concat`] is what a set becomes that was made by hand without
//! the right incantation (B12).
//!
//! The numbers that nobody published are in [`FusionSpec`], with what they were fitted to.

mod back;
mod concat;
mod front;
mod homes;
mod moves;
mod pair;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;

use bimetal_sim::model::catalog::Spec;
use bimetal_sim::model::{BadSpec, END_OF_TIME};
use bimetal_volume::units::Tier;

pub use self::concat::Concat;
use self::homes::Homes;
use self::moves::Moves;
use self::pair::Pair;
use self::watch::{Correlation, Kind, Streams};
use super::{Completion, Facts, Request, System};
use crate::policy::{Clock, VisitQueue};

/// Bytes of a unit.
pub const UNIT: u64 = 128 << 10;

/// What Fusion's makers decided.
#[derive(Clone, Debug, PartialEq)]
pub struct FusionSpec {
    /// Visits within the window that promote a unit.
    pub visits: usize,
    /// Bytes kept free on the SSD (B3).
    pub reserve: u64,
    /// Bytes below which promotions under load do not take the free space ("seen as low as 1-2 GB under pressure", B3).
    pub pressed: u64,
    /// Nanoseconds without a request after which moves begin (POLICY 1e).
    pub idle_delay_ns: u64,
    /// Bytes per second that are moved when idle (POLICY 1e).
    pub idle_rate: u64,
    /// Units per second that are promoted beside a load, if what made them hot was reading a stream, writing one, or
    /// neither. Fitted to the whole experiments G4 (34 passes), G5 (15) and F3; the research notes derive 20, 45 and 60
    /// from passes of constant length, but passes become shorter as the range moves up.
    pub loaded_rates: [u32; 3],
    /// Nanoseconds from the visit that promotes a unit to its promotion, beside a load: in G4 the first units moved after the
    /// second pass, not during it.
    pub lag_ns: u64,
    /// Bytes written in one stream after which moves stop until the machine is restarted (B11: seen after 260 GB).
    pub stuck_after: u64,
}

impl Default for FusionSpec {
    fn default() -> FusionSpec {
        FusionSpec {
            visits: 2,
            reserve: 4_000_000_000,
            pressed: 1_000_000_000,
            idle_delay_ns: 20_000_000_000,
            idle_rate: 80_000_000,
            loaded_rates: [40, 90, 60],
            lag_ns: 30_000_000_000,
            stuck_after: 250_000_000_000,
        }
    }
}

impl FusionSpec {
    fn loaded_rate(&self, kind: Kind) -> f64 {
        let [read, write, random] = self.loaded_rates;
        f64::from(match kind {
            Kind::StreamRead => read,
            Kind::StreamWrite => write,
            Kind::Random => random,
        })
    }
}

/// A Fusion Drive of two modelled devices.
pub struct Fusion {
    spec: FusionSpec,
    now: u64,
    size: u64,
    pair: Pair,
    homes: Homes,
    correlation: Correlation,
    streams: Streams,
    queue: VisitQueue,
    clock: Clock,
    moves: Moves,
    /// Requests of the host that are being carried out, by tag.
    asks: Vec<Option<front::Ask>>,
    spare_tags: Vec<usize>,
    done: VecDeque<Completion>,
    promoted: u64,
    demoted: u64,
}

impl Fusion {
    /// A new, empty Fusion Drive. Fails if a device cannot be made.
    pub fn new(fast: &Spec, slow: &Spec, spec: FusionSpec) -> Result<Fusion, BadSpec> {
        let pair = Pair::new(fast, slow)?;
        let slots = |tier| u32::try_from(pair.size(tier) / UNIT).ok().filter(|n| *n > 0 && *n < 1 << 30);
        let wrong = BadSpec("a member of a Fusion Drive has at least 128 KiB and at most 128 TiB");
        let (Some(fast), Some(slow)) = (slots(Tier::Fast), slots(Tier::Slow)) else { return Err(wrong) };
        Ok(Fusion {
            now: 0,
            size: u64::from(fast + slow) * UNIT,
            homes: Homes::new(fast + slow, fast, slow),
            correlation: Correlation::new(),
            streams: Streams::default(),
            queue: VisitQueue::new(fast, spec.visits),
            clock: Clock::new(fast),
            moves: Moves::new(fast + slow),
            asks: Vec::new(),
            spare_tags: Vec::new(),
            done: VecDeque::new(),
            promoted: 0,
            demoted: 0,
            pair,
            spec,
        })
    }

    /// The machine is restarted, in no time: what is only known in memory is forgotten, and moves that had stopped go on
    /// (B11).
    pub fn restart(&mut self) {
        let fast = (self.pair.size(Tier::Fast) / UNIT) as u32;
        self.queue = VisitQueue::new(fast, self.spec.visits);
        self.clock = Clock::new(fast);
        self.streams = Streams::default();
        self.moves.forget_wishes();
    }

    /// Whether moves have stopped for good (B11).
    pub fn is_stuck(&self) -> bool {
        self.streams.longest_write() >= self.spec.stuck_after
    }

    fn free_bytes(&self) -> u64 {
        u64::from(self.homes.free(Tier::Fast)) * UNIT
    }

    fn wake(&self) -> Option<u64> {
        match self.is_stuck() {
            true => None,
            false => self.moves.wake(&self.spec, self.free_bytes(), self.now),
        }
    }

    /// One step at the present time: a device request that is complete, or a move that may begin.
    fn step(&mut self) {
        match self.pair.complete(self.now) {
            Some(tag) if tag & back::MOVE != 0 => self.move_went_on(tag & !back::MOVE),
            Some(tag) => self.ask_went_on(tag as usize),
            None if self.wake() == Some(self.now) => self.begin_move(),
            None => {}
        }
    }
}

impl System for Fusion {
    fn name(&self) -> String {
        "Fusion Drive".into()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn submit(&mut self, id: u64, request: Request) {
        assert!(request.offset + request.len <= self.size, "{request:?} does not fit {} bytes", self.size);
        self.ask(id, request);
    }

    fn run(&mut self, until: u64) -> Option<Completion> {
        let until = until.clamp(self.now, END_OF_TIME.max(self.now));
        loop {
            if let Some(done) = self.done.pop_front() {
                return Some(done);
            }
            let next = [self.pair.next_event(), self.wake()].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= until) else {
                self.now = until;
                return None;
            };
            self.now = self.now.max(at);
            self.step();
        }
    }

    fn fast_bytes(&self, offset: u64, len: u64) -> u64 {
        front::pieces(offset, len)
            .filter(|(unit, _)| self.homes.of(*unit).is_some_and(|h| h.tier == Tier::Fast))
            .map(|(_, bytes)| bytes)
            .sum()
    }

    fn facts(&self) -> Facts {
        Facts {
            promoted: self.promoted,
            demoted: self.demoted,
            fast_free: self.free_bytes(),
            fast: self.pair.traffic(Tier::Fast),
            slow: self.pair.traffic(Tier::Slow),
        }
    }
}
