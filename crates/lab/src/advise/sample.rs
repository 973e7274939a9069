//! What is kept of a trace while it is read: its pieces, or from so many on those of a part of the groups of chunks.

use std::collections::HashMap;

use bimetal_sim::prng::mix;
use bimetal_volume::tier::GROUP_CHUNKS;
use bimetal_volume::units::CHUNK;

use super::load::{Load, Whole};
use crate::policy::follow::{Ends, Follows};
use crate::policy::piece::Seen;
use crate::policy::{HeadCost, Kind, Piece, Start, Stream};
use crate::trace::{Access, Op};

/// The chunks of a group are followed together: the policy moves neighbours together. Larger groups were tried: what a sample
/// says varied more with them.
const IN_GROUP: usize = GROUP_CHUNKS as usize;
/// Up to here, 1 TiB, the chunks of a load that is followed whole keep their numbers: by them the policy chooses at random, and a
/// very small SSD lives on luck.
const OWN_NUMBERS: u64 = 1 << 23;
/// Where no request has a time, each comes so much later than the one before that all are visits of their own.
const APART_NS: u64 = 200_000_000;

/// What is kept at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Pieces.
    pub(super) pieces: usize,
    /// Groups of chunks.
    pub(super) groups: usize,
    /// A sample of fewer groups says nothing: the trace is cut instead.
    pub(super) least: usize,
}

impl Limits {
    /// 50 MB of pieces, and at most 40 MB of groups.
    const USUAL: Limits = Limits { pieces: 1 << 21, groups: 1 << 19, least: 1 << 9 };
}

/// A group that is followed.
struct Group {
    number: u64,
    seen: [Seen; IN_GROUP],
}

/// Reads a trace once and keeps what can be replayed.
pub struct Sample {
    start: Start,
    cost: HeadCost,
    limits: Limits,
    /// One group of 2^shift is followed.
    shift: u32,
    ends: Ends,
    /// Only looked up, never walked in its own order.
    index: HashMap<u64, u32>,
    groups: Vec<Group>,
    /// Their chunks are counted through `groups`.
    pieces: Vec<Piece>,
    first_us: Option<u64>,
    whole: Whole,
}

impl Sample {
    /// Begins. `start` says whether what is written first was there before.
    pub fn new(start: Start, cost: HeadCost) -> Sample {
        Sample::with_limits(start, cost, Limits::USUAL)
    }

    pub(super) fn with_limits(start: Start, cost: HeadCost, limits: Limits) -> Sample {
        Sample {
            start,
            cost,
            limits,
            shift: 0,
            ends: Ends::new(),
            index: HashMap::new(),
            groups: Vec::new(),
            pieces: Vec::new(),
            first_us: None,
            whole: Whole { timed: false, ..Whole::default() },
        }
    }

    /// Takes the next access of the trace.
    pub fn add(&mut self, a: &Access) {
        if self.whole.cut {
            return;
        }
        self.whole.requests += 1;
        let time_ns = self.time(a.time_us);
        let end = a.offset.saturating_add(a.len);
        match a.op {
            Op::Flush => {}
            _ if a.len == 0 => {}
            Op::Trim => self.discard(a.offset.div_ceil(CHUNK), end / CHUNK, time_ns),
            Op::Read | Op::Write => self.cut(a, end, time_ns),
        }
        while !self.whole.cut && (self.pieces.len() > self.limits.pieces || self.groups.len() > self.limits.groups) {
            self.halve();
        }
    }

    /// The time of a request, in ns.
    fn time(&mut self, us: u64) -> u64 {
        self.whole.duration_us = us;
        let first = *self.first_us.get_or_insert(us);
        if us != first && !self.whole.timed {
            // There are times after all: all so far came at once.
            self.whole.timed = true;
            self.pieces.iter_mut().for_each(|p| p.time_ns = first.saturating_mul(1000));
        }
        match self.whole.timed {
            true => us.saturating_mul(1000),
            false => self.whole.requests * APART_NS,
        }
    }

    /// Cuts a request that reads or writes into pieces.
    fn cut(&mut self, a: &Access, end: u64, time_ns: u64) {
        let run = self.ends.follow(a.offset, end);
        let before = run.bytes.saturating_sub(end - a.offset);
        let (mut at, mut follows) = (a.offset, run.follows);
        while at < end {
            let next = end.min((at / CHUNK + 1).saturating_mul(CHUNK));
            let piece = Piece {
                time_ns,
                chunk: 0,
                offset: (at % CHUNK) as u32,
                len: (next - at) as u32,
                kind: if a.op == Op::Read { Kind::Read } else { Kind::Write },
                follows,
                behind: Piece::behind(before.saturating_add(at - a.offset)),
                visit: false,
            };
            self.whole.accesses += 1;
            self.whole.alone_ns += self.alone(&piece);
            self.keep(at / CHUNK, a.op, piece);
            (at, follows) = (next, Follows::Before);
        }
    }

    /// What a disk without an SSD needs for a piece.
    fn alone(&self, piece: &Piece) -> u64 {
        self.cost.of(piece, (piece.follows != Follows::Nothing).then_some(0))
    }

    /// Keeps a piece of a chunk that is followed.
    fn keep(&mut self, chunk: u64, op: Op, piece: Piece) {
        let number = chunk / GROUP_CHUNKS;
        if self.shift > 0 && !is_followed(number, self.shift) {
            return;
        }
        let i = *self.index.entry(number).or_insert_with(|| {
            self.groups.push(Group { number, seen: [Seen::Never; IN_GROUP] });
            self.groups.len() as u32 - 1
        });
        let within = (chunk % GROUP_CHUNKS) as usize;
        let seen = &mut self.groups[i as usize].seen[within];
        let Some(kind) = seen.kind(op, u64::from(piece.len) == CHUNK, self.start) else {
            // It read what was discarded: no access of a device, also of those chunks for which this one stands.
            self.whole.accesses = self.whole.accesses.saturating_sub(1 << self.shift);
            self.whole.alone_ns = self.whole.alone_ns.saturating_sub(self.alone(&piece) << self.shift);
            return;
        };
        *seen = Seen::after(kind);
        self.pieces.push(Piece { chunk: i * IN_GROUP as u32 + within as u32, kind, ..piece });
    }

    /// Chunks that are discarded whole lose their homes.
    fn discard(&mut self, first: u64, end: u64, time_ns: u64) {
        let (from, to) = (first / GROUP_CHUNKS, end.div_ceil(GROUP_CHUNKS));
        // A discard of the whole disk names more groups than were ever touched.
        let found: Vec<u32> = if to.saturating_sub(from) > self.groups.len() as u64 {
            (0..self.groups.len() as u32).filter(|i| (from..to).contains(&self.groups[*i as usize].number)).collect()
        } else {
            (from..to).filter_map(|number| self.index.get(&number).copied()).collect()
        };
        for i in found {
            let group = &mut self.groups[i as usize];
            let first_of_group = group.number * GROUP_CHUNKS;
            for (within, seen) in group.seen.iter_mut().enumerate() {
                let inside = (first..end).contains(&(first_of_group + within as u64));
                let Some(kind) = seen.kind(Op::Trim, inside, self.start) else { continue };
                *seen = Seen::after(kind);
                let (chunk, follows) = (i * IN_GROUP as u32 + within as u32, Follows::Nothing);
                let (offset, len) = (0, CHUNK as u32);
                self.pieces.push(Piece { time_ns, chunk, offset, len, kind, follows, behind: 0, visit: false });
            }
        }
    }

    /// Follows one group of two that were followed, or nothing any more.
    fn halve(&mut self) {
        if self.groups.len() < 2 * self.limits.least {
            self.whole.cut = true;
            return;
        }
        self.shift += 1;
        let (shift, mut next) = (self.shift, 0);
        let kept = |g: &Group| is_followed(g.number, shift);
        let new: Vec<Option<u32>> = self
            .groups
            .iter()
            .map(|g| {
                next += u32::from(kept(g));
                kept(g).then(|| next - 1)
            })
            .collect();
        self.groups.retain(kept);
        self.index = self.groups.iter().enumerate().map(|(i, g)| (g.number, i as u32)).collect();
        self.pieces.retain_mut(|p| {
            let group = new[p.chunk as usize / IN_GROUP];
            p.chunk = group.unwrap_or(0) * IN_GROUP as u32 + p.chunk % IN_GROUP as u32;
            group.is_some()
        });
    }

    /// Ends the trace.
    pub fn finish(mut self) -> Load {
        let (first, chunks) = self.renumber();
        self.pieces.iter_mut().for_each(|p| p.chunk = first[p.chunk as usize / IN_GROUP] + p.chunk % IN_GROUP as u32);
        let touched = self.groups.iter().flat_map(|g| &g.seen).filter(|seen| **seen != Seen::Never).count();
        let stream = Stream {
            user_bytes: self.pieces.iter().filter(|p| p.kind != Kind::Trim).map(|p| u64::from(p.len)).sum(),
            pieces: self.pieces,
            chunks,
            footprint: touched as u32,
            cut: self.whole.cut,
        };
        self.whole.timed |= self.whole.requests < 2;
        Load::new(stream, self.cost, self.shift, self.whole)
    }

    /// The first chunk of each group as the replay counts them, and one more than the last: their own numbers, or else in
    /// the order in which they lie on the disk, without what lies unused between them. What is not adjacent is kept apart.
    fn renumber(&self) -> (Vec<u32>, u32) {
        let end = self.groups.iter().map(|g| g.number + 1).max().unwrap_or(0) * GROUP_CHUNKS;
        if self.shift == 0 && end <= OWN_NUMBERS {
            return (self.groups.iter().map(|g| (g.number * GROUP_CHUNKS) as u32).collect(), end as u32);
        }
        // In a sample the next of a run are those that are followed of those that are near.
        let near = if self.shift == 0 { 1 } else { 8 << self.shift };
        let mut order: Vec<usize> = (0..self.groups.len()).collect();
        order.sort_unstable_by_key(|i| self.groups[*i].number);
        let (mut first, mut end, mut before) = (vec![0; self.groups.len()], 0u32, None);
        for i in order {
            let number = self.groups[i].number;
            let apart = before.is_some_and(|b| number - b > near);
            first[i] = end + if apart { IN_GROUP as u32 } else { 0 };
            (end, before) = (first[i] + IN_GROUP as u32, Some(number));
        }
        (first, end)
    }
}

fn is_followed(group: u64, shift: u32) -> bool {
    mix(group).trailing_zeros() >= shift
}
