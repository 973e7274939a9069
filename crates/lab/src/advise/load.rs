//! A load as it is replayed, and what SSDs of a size take of it.

use bimetal_volume::units::CHUNK;

use super::ladder::{reserve, sizes};
use crate::policy::{replay, Budget, Follows, HeadCost, Kind, Piece, Production, Setup, Stream};

/// What a trace was like, whether its chunks were followed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) requests: u64,
    pub(super) accesses: u64,
    /// The disk's time for all accesses without an SSD, in ns.
    pub(super) alone_ns: u64,
    /// Time of the last request, in microseconds.
    pub(super) duration_us: u64,
    /// Not all requests came at the same time.
    pub(super) timed: bool,
    /// The trace goes on, but no more was taken.
    pub(super) cut: bool,
}

/// One size of SSD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Bytes of the SSD, as it is sold.
    pub size: u64,
    /// Share of chunk accesses that it takes, 0 to 1.
    pub io: f64,
    /// Share of the disk's time that it saves, at most 1. Below 0 the disk is busier than without it: it seeks over what
    /// lies on the SSD.
    pub time: f64,
}

/// What is replayed of a trace.
pub struct Load {
    stream: Stream,
    cost: HeadCost,
    /// One access of 2^shift is in it.
    shift: u32,
    pub(super) whole: Whole,
    /// Share of the disk's time that goes to what is read for the first time, 0 to 1.
    pub(super) first_reads: f64,
    /// Share of the disk's time that goes to what is written for the first time, or anew after a discard, 0 to 1.
    pub(super) new_data: f64,
}

impl Load {
    pub(super) fn new(stream: Stream, cost: HeadCost, shift: u32, whole: Whole) -> Load {
        let alone = |p: &Piece| cost.of(p, (p.follows != Follows::Nothing).then_some(0));
        let mut seen = vec![false; stream.chunks as usize];
        let mut first = |p: &&Piece| !std::mem::replace(&mut seen[p.chunk as usize], true);
        let first_ns: u64 = stream.pieces.iter().filter(|p| first(p) && p.kind == Kind::Read).map(alone).sum();
        let born_ns: u64 = stream.pieces.iter().filter(|p| p.kind == Kind::Birth).map(alone).sum();
        let of_all = |ns| share(ns, shift, whole.alone_ns).min(1.0);
        let (first_reads, new_data) = (of_all(first_ns), of_all(born_ns));
        Load { stream, cost, shift, whole, first_reads, new_data }
    }

    /// Bytes of the chunks touched; estimated if only a part of them was followed.
    pub fn footprint(&self) -> u64 {
        (u64::from(self.stream.footprint) << self.shift).saturating_mul(CHUNK)
    }

    /// Chunk accesses: none in a trace that neither reads nor writes.
    pub fn accesses(&self) -> u64 {
        self.whole.accesses
    }

    /// One MiB of so many was followed.
    pub fn sampled(&self) -> u64 {
        1 << self.shift
    }

    /// Sizes of SSD that are of interest, growing by factors of 2, up to the first that holds everything.
    pub fn sizes(&self) -> Vec<u64> {
        sizes(self.footprint())
    }

    /// What an SSD of so many bytes takes. That is a replay, which takes some seconds where the load is large.
    pub fn row(&self, size: u64) -> Row {
        let slots = |bytes: u64| u32::try_from((bytes / CHUNK) >> self.shift).unwrap_or(u32::MAX);
        let (fast_slots, reserve) = (slots(size).max(1), slots(reserve(size)));
        let setup = Setup { reserve, cost: self.cost, budget: Budget::UNLIMITED, ..Setup::new(fast_slots) };
        let r = replay(&self.stream, &mut Production::new(fast_slots), &setup);
        let left = |amount: u64, all: u64| share(amount, self.shift, all);
        let io = 1.0 - left(r.accesses - r.fast, self.whole.accesses).min(1.0);
        Row { size, io, time: 1.0 - left(r.foreground_ns, self.whole.alone_ns) }
    }
}

/// What part of the whole an amount in a sample stands for; an estimate can be more than all.
fn share(part: u64, shift: u32, whole: u64) -> f64 {
    // Of nothing, all is left: an SSD takes nothing.
    if whole == 0 {
        return 1.0;
    }
    part as f64 * (1u64 << shift) as f64 / whole as f64
}
