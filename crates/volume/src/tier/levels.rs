//! What the scheduler measures the group by: levels, how short of free slots it is, and what it aims at.

use std::time::Duration;

use super::reserve::Filled;
use crate::units::CHUNK;

/// Chunks freed for promotions at a time, at most.
const TURN: u32 = 256;

/// Chunks of the reserve that promotions may take while the slow tier is full: each frees a slow slot, to which a cold
/// chunk can then go, so that chunks change places on a full group.
const SWAP: u32 = 8;

/// What the scheduler is told of the group, in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// Slots of the fast tier.
    pub fast_slots: u32,
    /// Fast slots that can be taken at once.
    pub free: u32,
    /// Fast slots to be kept free: the reserve, or the part of it that no chunk with a kept copy stands for.
    pub keep_free: u32,
    /// Free slots below which chunks with a kept copy are let go; 0 where there are none.
    pub low: u32,
    /// Chunks that only fill fast slots.
    pub filled: Filled,
    /// Fast slots left by demotions or TRIM that become free by a commit or discard that is under way.
    pub leaving: u32,
    /// Slow slots that can be taken at once.
    pub slow_free: u32,
    /// Slow slots that volumes bound to the slow tier were promised, and that are neither free nor on their way to it.
    pub owed_below: u32,
    /// A fast stream that the fast tier serves comes to chunks of the slow one in a moment.
    pub stream_comes: bool,
    /// Chunks that want to be promoted.
    pub candidates: usize,
    /// Demotions begun and not yet counted in `leaving`.
    pub demoting: usize,
    /// Demotions whose data are being written or may still be in a disk's cache, until they have switched.
    pub unsettled: usize,
    /// Promotions begun whose slow slot is not free yet; their fast slots are no more in `free`.
    pub promoting: usize,
    /// Of these, the ones that are being copied: the others ask nothing of the disk any more, and wait for their commit.
    pub copying_up: usize,
    /// Chunks that are leaving a member and have not switched for good, by no plan of the scheduler's.
    pub evacuating: usize,
    /// Chunks of the fast and of the slow tier that could not be read when they were to be moved.
    pub unreadable: [usize; 2],
}

impl Levels {
    /// Free fast slots when what is under way has ended.
    pub(super) fn coming(&self) -> u32 {
        self.free.saturating_add(self.leaving).saturating_add(self.demoting as u32)
    }

    /// Chunks that requests may have to wait for: being moved, or in a disk's cache still.
    pub(super) fn under_way(&self) -> usize {
        self.promoting + self.demoting.max(self.unsettled)
    }
}

/// How short of free slots the fast tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Band {
    Ok,
    /// By less than an eighth, and not for long.
    Nearly,
    /// By up to half.
    Below,
    Low,
    /// Less than a sixteenth is left.
    Critical,
}

impl Band {
    pub(super) fn of(free: u32, keep_free: u32) -> Band {
        match free {
            f if f >= keep_free => Band::Ok,
            f if keep_free - f < keep_free.div_ceil(8) => Band::Nearly,
            f if f.saturating_mul(2) >= keep_free => Band::Below,
            f if f.saturating_mul(16) >= keep_free => Band::Low,
            _ => Band::Critical,
        }
    }

    /// Quiet of the slow tier after which it counts as idle.
    pub(super) fn quiet(self) -> Duration {
        match self {
            Band::Ok => Duration::from_secs(2),
            Band::Nearly | Band::Below => Duration::from_millis(100),
            Band::Low => Duration::from_millis(20),
            Band::Critical => Duration::ZERO,
        }
    }

    /// Chunks moved whatever the load, and how often: seldom but a whole group at a time, because a stream on the disk
    /// pays for each interruption: seeks, syncs, a journal write. A reserve that is nearly whole is in no hurry.
    pub(super) fn drip(self) -> Option<(usize, Duration)> {
        match self {
            Band::Ok => None,
            Band::Nearly => Some((16, Duration::from_secs(64))),
            Band::Below => Some((32, Duration::from_secs(16))),
            Band::Low => Some((64, Duration::from_secs(16))),
            Band::Critical => Some((32, Duration::from_secs(2))),
        }
    }
}

/// What is to be reached, in chunks.
pub(super) struct Goal {
    /// What is to be kept free, or as much as a group that is nearly full can have.
    pub(super) keep_free: u32,
    /// Chunks that are freed beyond that for promotions.
    pub(super) turn: u32,
    /// Freeing goes on up to this.
    pub(super) refill: u32,
}

impl Goal {
    pub(super) fn of(l: &Levels) -> Goal {
        let all = l.free.saturating_add(l.leaving).saturating_add(l.slow_free);
        let keep_free = l.keep_free.min(all);
        let turn = (l.candidates.min(TURN as usize) as u32).min((keep_free / 8).max(8)).min((all / 4).max(1));
        Goal { keep_free, turn, refill: keep_free.saturating_add(keep_free / 10).saturating_add(turn) }
    }

    /// Free fast slots that promotions may take.
    pub(super) fn room(&self, l: &Levels) -> u32 {
        match l.slow_free {
            0 => SWAP.min(l.free.div_ceil(2)),
            _ => l.free.saturating_sub(self.keep_free),
        }
    }
}

/// How short the group is, in words.
pub(super) fn shortage(l: &Levels) -> String {
    format!("only {} of {} for new data are free", mib(l.free.into()), mib(l.keep_free.into()))
}

/// What cannot be moved because it cannot be read, in words that follow others.
pub(super) fn unreadable(l: &Levels) -> String {
    let [fast, slow] = l.unreadable;
    let chunks = |n| if n == 1 { "1 chunk".into() } else { format!("{n} chunks") };
    let which = match (fast, slow) {
        (_, 0) => format!("{} of 128 KiB on the fast tier", chunks(fast)),
        (0, _) => format!("{} of 128 KiB on the slow tier", chunks(slow)),
        _ => format!("{} of 128 KiB on the fast tier and {slow} on the slow tier", chunks(fast)),
    };
    format!("; {which} cannot be read and stay{} there", if fast + slow == 1 { "s" } else { "" })
}

/// Chunks in words, to a tenth of a MiB: a chunk more or less is seen.
pub(super) fn mib(chunks: u64) -> String {
    let mib = (chunks * CHUNK) as f64 / f64::from(1 << 20);
    match mib.fract() {
        0.0 => format!("{mib} MiB"),
        _ => format!("{mib:.1} MiB"),
    }
}
