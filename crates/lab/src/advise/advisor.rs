//! One access after another: its rank in every ranking, what it costs the disk at every size, its heat.

use bimetal_volume::units::CHUNK;

use super::chunks::Chunks;
use super::costs::Ranked;
use super::heat::Sums;
use super::ladder::{slots, NEVER, RANKINGS};
use super::ranking::Ranking;
use crate::policy::follow::{Ends, Follows, Run, ENDS};
use crate::policy::visit::Filter;
use crate::policy::{HeadCost, Kind, Piece, Start};
use crate::trace::{Access, Op};

/// Chunks that are followed at most: 256 GiB of touched data, in about 300 MB of memory (308 MB were seen).
const CHUNKS_MAX: usize = 1 << 21;
/// A stream of new data takes this part of the SSD where there is no other room: half of the reserve.
const RESERVE_HALF: u64 = 64;
/// Bytes of a run that is not yet a stream on the smallest SSD.
const SHORT: u64 = 1 << 20;

/// What an access asks of a chunk.
struct Asked {
    number: u64,
    op: Op,
    offset: u32,
    len: u32,
    time_ns: u64,
    run: Run,
    follows: Follows,
}

/// The least SSD in chunks that serves an access, in every ranking; [`NEVER`]: none does.
type Sizes = [u64; RANKINGS];

/// Counts of one ranking.
pub(super) struct Counts {
    /// Chunk accesses left to the disk.
    pub(super) accesses: Ranked,
    /// Head time of the disk, in ns.
    pub(super) time_ns: Ranked,
}

/// Reads a trace once and knows what every size of SSD would have done with it.
pub struct Advisor {
    start: Start,
    cost: HeadCost,
    sums: Sums,
    chunks: Chunks,
    rankings: [Ranking; RANKINGS],
    pub(super) counts: [Counts; RANKINGS],
    filter: Filter,
    ends: Ends,
    /// The sizes that served the chunk which each run touched last, as [`Sizes`].
    last: [Option<Sizes>; ENDS],
    pub(super) seen: Seen,
}

/// What a trace was like, whether chunks were followed or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) accesses: u64,
    /// Accesses of followed chunks, and those of them that read a chunk for the first time.
    pub(super) followed: u64,
    pub(super) first_reads: u64,
    /// The disk's time for these first reads, and for all accesses of followed chunks without an SSD, in ns.
    pub(super) first_reads_ns: u64,
    pub(super) alone_ns: u64,
    pub(super) duration_us: u64,
    pub(super) requests: u64,
}

impl Advisor {
    /// Begins. `start` says whether what is written first was there before.
    pub fn new(start: Start, cost: HeadCost) -> Advisor {
        Advisor::with_limit(start, cost, CHUNKS_MAX)
    }

    /// Begins, following at most so many chunks.
    pub(super) fn with_limit(start: Start, cost: HeadCost, chunks_max: usize) -> Advisor {
        Advisor {
            start,
            cost,
            sums: Sums::new(),
            chunks: Chunks::new(chunks_max),
            rankings: std::array::from_fn(Ranking::new),
            counts: std::array::from_fn(|_| Counts { accesses: Ranked::new(), time_ns: Ranked::new() }),
            filter: Filter::new(),
            ends: Ends::new(),
            last: [None; ENDS],
            seen: Seen::default(),
        }
    }

    /// Takes the next access of the trace.
    pub fn add(&mut self, a: &Access) {
        self.seen.duration_us = a.time_us;
        if a.op == Op::Flush || a.len == 0 {
            return;
        }
        self.seen.requests += 1;
        let end = a.offset.saturating_add(a.len);
        if a.op == Op::Trim {
            return self.discard(a.offset.div_ceil(CHUNK), end / CHUNK);
        }
        let run = self.ends.follow(a.offset, end);
        let (mut at, mut follows) = (a.offset, run.follows);
        while at < end {
            let next = end.min((at / CHUNK + 1).saturating_mul(CHUNK));
            let (offset, len) = ((at % CHUNK) as u32, (next - at) as u32);
            let time_ns = a.time_us.saturating_mul(1000);
            self.serve(&Asked { number: at / CHUNK, op: a.op, offset, len, time_ns, run, follows });
            (at, follows) = (next, Follows::Before);
        }
    }

    /// Bytes of the chunks touched; estimated if only a part of them is followed.
    pub(super) fn footprint(&self) -> u64 {
        ((self.chunks.len() as u64) << self.chunks.shift()).saturating_mul(CHUNK)
    }

    /// One chunk of 2^this is followed.
    pub(super) fn shift(&self) -> u32 {
        self.chunks.shift()
    }

    fn serve(&mut self, a: &Asked) {
        self.seen.accesses += 1;
        let visit = self.filter.counts(a.number, a.time_ns);
        if visit {
            self.rankings.iter_mut().for_each(|r| r.pass(a.run.bytes));
        }
        let Some(i) = self.chunks.find(a.number) else {
            // Its rank is not known; the next in the run is taken to be as hot.
            self.last[a.run.number] = None;
            return;
        };
        if self.chunks.get(i).empty {
            self.first(i, a);
        } else {
            let sizes = self.sizes(i, a.number);
            self.count(a, &sizes);
        }
        if visit {
            self.visit(i, a.run.bytes);
        }
        if self.chunks.too_many() {
            self.halve();
        }
    }

    /// An access to a chunk that has no home yet, or none that the trace has shown.
    fn first(&mut self, i: usize, a: &Asked) {
        let born = a.op == Op::Write && (self.start == Start::Fresh || !self.chunks.get(i).new);
        let c = self.chunks.get(i);
        if a.op == Op::Read && !c.new {
            // What was discarded is read without the disk.
            return;
        }
        (c.empty, c.new) = (false, false);
        if !born {
            self.seen.first_reads += u64::from(a.op == Op::Read);
            self.seen.first_reads_ns += if a.op == Op::Read { self.time_of(a).0 as u64 } else { 0 };
            return self.count(a, &[NEVER; RANKINGS]);
        }
        let size = self.birth_size(a);
        let c = self.chunks.get(i);
        for (r, ranking) in self.rankings.iter_mut().enumerate().filter(|(r, _)| slots(*r) >= size) {
            ranking.enter(c.heat[r]);
            c.ranked |= 1 << r;
        }
        self.count(a, &[size; RANKINGS]);
    }

    /// New data begins on the SSD, unless it is a stream for which there is no room.
    fn birth_size(&self, a: &Asked) -> u64 {
        let all = (self.chunks.len() as u64) << self.chunks.shift();
        if a.run.bytes <= SHORT {
            0
        } else {
            (a.run.bytes / CHUNK).saturating_mul(RESERVE_HALF).min(all)
        }
    }

    fn sizes(&mut self, i: usize, number: u64) -> Sizes {
        let (shift, tie) = (self.chunks.shift(), Chunks::tie(number));
        let c = *self.chunks.get(i);
        std::array::from_fn(|r| match c.ranked >> r & 1 {
            1 => (self.rankings[r].rank(c.heat[r], tie) << shift) + 1,
            _ => NEVER,
        })
    }

    /// Disk time of an access where the disk is there already, and where it has to seek first.
    fn time_of(&self, a: &Asked) -> (i64, i64) {
        let kind = if a.op == Op::Write { Kind::Write } else { Kind::Read };
        let piece = Piece {
            time_ns: a.time_ns,
            chunk: 0,
            offset: a.offset,
            len: a.len,
            kind,
            follows: a.follows,
            behind: 0,
            visit: false,
        };
        let ns = |there: bool| i64::try_from(self.cost.of(&piece, there.then_some(0))).unwrap_or(i64::MAX);
        (ns(a.follows != Follows::Nothing), ns(false))
    }

    /// Counts an access that the disk serves for every SSD smaller than these.
    fn count(&mut self, a: &Asked, sizes: &Sizes) {
        let (there, apart) = self.time_of(a);
        self.seen.followed += 1;
        self.seen.alone_ns += there as u64;
        let before = self.last[a.run.number].unwrap_or(*sizes);
        for (r, counts) in self.counts.iter_mut().enumerate() {
            let size = sizes[r];
            // With an SSD smaller than this the disk served the one before, too.
            let both = if a.follows == Follows::Before { before[r].min(size) } else { size };
            below(&mut counts.accesses, size, 1);
            below(&mut counts.time_ns, size, apart);
            below(&mut counts.time_ns, both, there - apart);
        }
        self.last[a.run.number] = Some(*sizes);
    }

    fn visit(&mut self, i: usize, run: u64) {
        let c = self.chunks.get(i);
        if c.empty {
            return;
        }
        for (r, ranking) in self.rankings.iter_mut().enumerate() {
            let ranked = c.ranked >> r & 1 == 1;
            let (heat, earned) = ranking.visited(c.heat[r], run, &self.sums);
            if ranked {
                ranking.leave(c.heat[r]);
            }
            if ranked || earned {
                ranking.enter(heat);
                c.ranked |= 1 << r;
            }
            c.heat[r] = heat;
        }
    }

    /// Chunks that were discarded whole lose their homes and their heat.
    fn discard(&mut self, first: u64, end: u64) {
        // A discard of the whole disk names more chunks than were ever touched.
        if end.saturating_sub(first) > self.chunks.len() as u64 {
            for i in 0..self.chunks.len() {
                if (first..end).contains(&self.chunks.get(i).number()) {
                    self.forget(i);
                }
            }
            return;
        }
        for number in first..end {
            if let Some(i) = self.chunks.known(number) {
                self.forget(i);
            }
        }
    }

    fn forget(&mut self, i: usize) {
        let c = self.chunks.get(i);
        for (r, ranking) in self.rankings.iter_mut().enumerate() {
            if c.ranked >> r & 1 == 1 {
                ranking.leave(c.heat[r]);
            }
        }
        (c.empty, c.ranked, c.heat) = (true, 0, [0; RANKINGS]);
    }

    fn halve(&mut self) {
        for c in self.chunks.halve() {
            for (r, ranking) in self.rankings.iter_mut().enumerate() {
                if c.ranked >> r & 1 == 1 {
                    ranking.leave(c.heat[r]);
                }
            }
        }
    }
}

/// An amount that is the disk's if the SSD has fewer than `size` chunks; of size 0 there is none.
fn below(ranked: &mut Ranked, size: u64, amount: i64) {
    if size > 0 {
        ranked.add(size - 1, amount);
    }
}
