//! One workload on one size of the fast tier.

use super::case::Origin;
use super::contest::{contest, Entry, Role, CONTESTANTS};
use crate::policy::bound::{epoch_oracle, lower_bound, min, Lagrange};
use crate::policy::{Budget, Replay, Setup, Stream};

/// Accesses of an epoch of the epoch oracle, per fast slot.
const EPOCH_PER_SLOT: usize = 4;

/// How a matrix is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct How {
    /// Sizes of the fast tier in percent of the chunks touched.
    pub percents: Vec<u32>,
    /// Moves that every policy may make.
    pub budget: Budget,
    /// Whether bounds are computed, which take as long as all policies together.
    pub bounds: bool,
}

impl How {
    /// Steps that the computation of a cell is told of.
    pub fn steps(&self) -> usize {
        CONTESTANTS + if self.bounds { 4 } else { 0 }
    }
}

impl Default for How {
    fn default() -> How {
        How { percents: vec![5, 10, 20], budget: Budget::USUAL, bounds: true }
    }
}

/// What nobody can do better. Head times in ns, over the whole stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Foreground of MIN with bypass, which makes the fewest misses and does not look at cost.
    pub min_foreground_ns: u64,
    /// Foreground and moves of the oracle of epochs.
    pub epoch_total_ns: u64,
    /// Foreground and moves: no policy needs less, in Bimetal's engine or elsewhere. What it moves up it uses next, which no policy
    /// can know.
    pub least_total_ns: u64,
    /// The same for who moves up what has just been used, and its neighbours of 1 MiB, and knows what of it will be used again.
    pub after_use_total_ns: u64,
}

impl Bounds {
    fn of(stream: &Stream, setup: &Setup, tell: &mut dyn FnMut()) -> Bounds {
        let (cost, slots) = (&setup.cost, setup.fast_slots);
        let min_foreground_ns = min(stream, cost, slots).foreground_ns;
        tell();
        let epoch = epoch_oracle(stream, cost, slots, EPOCH_PER_SLOT * slots as usize);
        tell();
        let how = Lagrange::engine(cost);
        let least_total_ns = lower_bound(stream, cost, slots, &how).total_ns;
        tell();
        // Each of the two is a bound by itself, as near as it came to the least: this one is no less than the other.
        let after_use_total_ns = lower_bound(stream, cost, slots, &how.after_use()).total_ns.max(least_total_ns);
        tell();
        let moves_ns = epoch.promotions * cost.promote_ns + epoch.demotions * cost.demote_ns;
        let epoch_total_ns = epoch.foreground_ns + moves_ns;
        Bounds { min_foreground_ns, epoch_total_ns, least_total_ns, after_use_total_ns }
    }
}

/// A workload on one size of the fast tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The workload's name.
    pub workload: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Size of the fast tier in percent of `footprint`.
    pub percent: u32,
    /// The same in chunks.
    pub fast_slots: u32,
    /// Chunk accesses.
    pub accesses: u64,
    /// Chunks touched.
    pub footprint: u32,
    /// The trace was longer than a replay may be and was cut.
    pub cut: bool,
    /// Every policy.
    pub entries: Vec<Entry>,
    /// Bounds, if they were asked for.
    pub bounds: Option<Bounds>,
}

impl Cell {
    /// What the production policy reached, in this role.
    pub fn of(&self, role: Role) -> Option<&Replay> {
        self.entries.iter().find(|e| e.role == role).map(|e| &e.replay)
    }

    /// What the policy of that name reached.
    pub fn named(&self, name: &str) -> Option<&Replay> {
        self.entries.iter().map(|e| &e.replay).find(|r| r.policy == name)
    }

    /// The baseline with the least foreground time.
    pub fn best_baseline(&self) -> Option<&Replay> {
        let baselines = self.entries.iter().filter(|e| e.role == Role::Baseline).map(|e| &e.replay);
        baselines.min_by_key(|r| r.foreground_ns)
    }

    /// Head time per access in ms, of a sum in ns.
    pub fn per_access_ms(&self, ns: u64) -> f64 {
        ns as f64 / 1e6 / self.accesses.max(1) as f64
    }
}

/// The cells of one stream.
pub fn cells_of(name: &str, origin: Origin, stream: &Stream, how: &How) -> Vec<Cell> {
    let slots = |percent: u32| (u64::from(stream.footprint) * u64::from(percent) / 100).max(1) as u32;
    how.percents
        .iter()
        .map(|p| Cell { percent: *p, ..cell_of(name, origin, stream, slots(*p), how, &mut || ()) })
        .collect()
}

/// The cell of one stream on a fast tier of so many chunks; tells of each of its steps ([`How::steps`]).
pub fn cell_of(name: &str, origin: Origin, stream: &Stream, slots: u32, how: &How, tell: &mut dyn FnMut()) -> Cell {
    let setup = Setup { budget: how.budget, ..Setup::new(slots) };
    let footprint = u64::from(stream.footprint.max(1));
    let percent = (u64::from(slots) * 100 + footprint / 2) / footprint;
    Cell {
        workload: name.to_owned(),
        origin,
        percent: u32::try_from(percent).unwrap_or(u32::MAX),
        fast_slots: slots,
        accesses: stream.accesses(),
        footprint: stream.footprint,
        cut: stream.cut,
        entries: contest(stream, &setup, tell),
        bounds: how.bounds.then(|| Bounds::of(stream, &setup, tell)),
    }
}
