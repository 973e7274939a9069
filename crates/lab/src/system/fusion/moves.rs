//! What is to be moved, what is being moved, and when the next move may begin.
//!
//! - *Wish*: a slow unit that was visited often enough. *Move*: up to 1 MiB that is copied, then gets new homes.
//! - *Idle*: nothing on its way for [`FusionSpec::idle_delay_ns`]. *Loaded*: requests come. In between nothing begins.
//!
//! 1. A unit is in at most one move. A write to it, or its TRIM, cancels its part of the move.
//! 2. The old home is kept until the copy is complete (B7).

use std::collections::{BTreeMap, VecDeque};

use super::homes::Slot;
use super::watch::Kind;
use super::FusionSpec;

/// Nanoseconds without a request after which the load has ended.
const LOAD_ENDS_NS: u64 = 100_000_000;
/// Moves on their way at a time: one reads while the other writes.
const MOVES: usize = 2;
/// Nanoseconds until the next attempt after one that found nothing to move.
const PAUSE_NS: u64 = 1_000_000_000;

/// A slow unit that should be promoted.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) unit: u32,
    pub(super) kind: Kind,
    since: u64,
}

/// Units that change their homes together.
pub(super) struct Move {
    pub(super) units: Vec<u32>,
    pub(super) from: Vec<Slot>,
    pub(super) to: Vec<Slot>,
    /// Whether it is being written by now.
    pub(super) writing: bool,
    /// Device requests on their way.
    pub(super) waits: u32,
}

/// What may begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Demote,
    Promote,
}

/// The mover's books.
pub(super) struct Moves {
    wishes: VecDeque<Wish>,
    /// A bit per unit: among the wishes.
    wished: Vec<u64>,
    pub(super) under_way: BTreeMap<u64, Move>,
    numbers: u64,
    /// Units on the move, and whether that was cancelled.
    moving: BTreeMap<u32, bool>,
    next_start: u64,
    /// Requests of the host on their way, and when there was one last.
    pub(super) outstanding: usize,
    pub(super) last_request: u64,
}

impl Moves {
    pub(super) fn new(units: u32) -> Moves {
        Moves {
            wishes: VecDeque::new(),
            wished: vec![0; units.div_ceil(64) as usize],
            under_way: BTreeMap::new(),
            numbers: 0,
            moving: BTreeMap::new(),
            next_start: 0,
            outstanding: 0,
            last_request: 0,
        }
    }

    /// A slow unit was visited often enough at `since`.
    pub(super) fn wish(&mut self, unit: u32, kind: Kind, since: u64) {
        let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
        if self.wished[word] & bit == 0 {
            self.wished[word] |= bit;
            self.wishes.push_back(Wish { unit, kind, since });
        }
    }

    /// The oldest wish.
    pub(super) fn first_wish(&self) -> Option<Wish> {
        self.wishes.front().copied()
    }

    /// Takes the oldest wish from the queue.
    pub(super) fn take_wish(&mut self) {
        if let Some(Wish { unit, .. }) = self.wishes.pop_front() {
            self.wished[unit as usize / 64] &= !(1 << (unit % 64));
        }
    }

    pub(super) fn forget_wishes(&mut self) {
        self.wishes.clear();
        self.wished.fill(0);
    }

    pub(super) fn is_moving(&self, unit: u32) -> bool {
        self.moving.contains_key(&unit)
    }

    pub(super) fn take_up(&mut self, unit: u32) {
        self.moving.insert(unit, false);
    }

    /// The unit changes, or is gone.
    pub(super) fn cancel(&mut self, unit: u32) {
        if let Some(cancelled) = self.moving.get_mut(&unit) {
            *cancelled = true;
        }
    }

    /// The unit's move ends; whether it was cancelled.
    pub(super) fn put_down(&mut self, unit: u32) -> bool {
        self.moving.remove(&unit).unwrap_or(true)
    }

    /// Enters a move; its number.
    pub(super) fn begin(&mut self, new: Move) -> u64 {
        self.numbers += 1;
        self.under_way.insert(self.numbers, new);
        self.numbers
    }

    fn loaded(&self, at: u64) -> bool {
        self.outstanding > 0 || at < self.last_request + LOAD_ENDS_NS
    }

    /// When the oldest wish is acted on beside a load.
    fn ripe(&self, spec: &FusionSpec) -> u64 {
        self.wishes.front().map_or(0, |w| w.since + spec.lag_ns)
    }

    /// What may begin at `at`, which is not before now; `None` if nothing may.
    pub(super) fn turn(&self, spec: &FusionSpec, free: u64, at: u64) -> Option<Turn> {
        if self.under_way.len() >= MOVES || at < self.next_start {
            return None;
        }
        let promote = self.wishes.front().map(|_| Turn::Promote);
        if self.loaded(at) {
            return promote.filter(|_| free > spec.pressed && at >= self.ripe(spec));
        }
        if at < self.last_request + spec.idle_delay_ns {
            return None;
        }
        if free < spec.reserve {
            return Some(Turn::Demote);
        }
        promote
    }

    /// When something may begin, from `now` on, if nothing else happens.
    pub(super) fn wake(&self, spec: &FusionSpec, free: u64, now: u64) -> Option<u64> {
        let soon = now.max(self.next_start);
        let idle = soon.max(self.last_request + spec.idle_delay_ns);
        let may = |at: &u64| (self.outstanding == 0 || *at < idle) && self.turn(spec, free, *at).is_some();
        [soon, soon.max(self.ripe(spec)), idle].into_iter().find(may)
    }

    /// A move of so many units begins now; the next one waits as the pace demands. `kind`: of a promotion.
    pub(super) fn pace(&mut self, spec: &FusionSpec, units: usize, kind: Option<Kind>, now: u64) {
        let per_second = match kind {
            Some(kind) if self.loaded(now) => spec.loaded_rate(kind),
            _ => spec.idle_rate as f64 / super::UNIT as f64,
        };
        self.next_start = now + (units as f64 * 1e9 / per_second) as u64;
    }

    /// Nothing was found to move.
    pub(super) fn rest(&mut self, now: u64) {
        self.next_start = now + PAUSE_NS;
    }
}
