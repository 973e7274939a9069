//! A lower bound on head time, moves included, by Lagrange relaxation (POLICY 3).
//!
//! The one thing that ties chunks together is that the fast tier holds only so many at a time. Give a slot a price per
//! access, and each chunk can be scheduled alone, by dynamic programming over its own visits: be slow and pay the head,
//! or be fast and pay the price, and pay for the moves between. The sum over all chunks, less what all slots cost over
//! the whole time, is a lower bound for any prices that are not negative. Prices are constant in *windows*; they are
//! raised where the sum of the schedules uses more slots than there are, and lowered where it uses fewer.

use crate::policy::cost::HeadCost;
use crate::policy::piece::{Kind, Stream};
use bimetal_volume::tier::GROUP_CHUNKS;
use bimetal_volume::units::CHUNK;

/// When a chunk may come up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rise {
    /// At any time: just before a visit that nothing foretold.
    AnyTime,
    /// Right after an access to a chunk of its group of so many neighbours, at least 1: itself alone with 1. What waits for its turn
    /// longer than that and comes up just in time would save the price of a slot until then; nobody knows that moment.
    AfterUse(u32),
}

/// How the bound is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagrange {
    /// Windows of equal prices.
    pub windows: usize,
    /// Times that prices are changed. Each gives a valid bound; the best is taken.
    pub rounds: usize,
    /// When chunks may come up.
    pub rise: Rise,
    /// Head time of a demotion of what was not written since it came up, in ns: that of any other, unless the slow tier
    /// keeps a copy.
    pub demote_clean_ns: u64,
    /// Whether what replaces a whole chunk of the slow tier can be written to the fast one.
    pub anew: bool,
}

impl Lagrange {
    /// The bound for tiers without kept copies.
    pub fn new(cost: &HeadCost) -> Lagrange {
        let (rise, demote_clean_ns) = (Rise::AnyTime, cost.demote_ns);
        Lagrange { windows: 64, rounds: 60, rise, demote_clean_ns, anew: false }
    }

    /// The bound for Bimetal's engine ([`super::super::engine`]), and for all that do less.
    pub fn engine(cost: &HeadCost) -> Lagrange {
        Lagrange { demote_clean_ns: 0, anew: true, ..Lagrange::new(cost) }
    }

    /// The same bound for who moves up what was used, and its neighbours.
    pub fn after_use(self) -> Lagrange {
        Lagrange { rise: Rise::AfterUse(GROUP_CHUNKS as u32), ..self }
    }
}

/// A lower bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bound {
    /// No policy needs less head time for foreground and moves together, in ns.
    pub total_ns: u64,
    /// Of the schedules at the best prices: foreground, in ns. They may use more slots than there are at times.
    pub foreground_ns: u64,
}

/// The bound for a stream, a disk, and so many fast slots.
pub fn lower_bound(stream: &Stream, cost: &HeadCost, slots: u32, how: &Lagrange) -> Bound {
    let n = stream.pieces.len();
    if n == 0 {
        return Bound::default();
    }
    let mut problem = Problem::new(stream, cost, how);
    let windows = how.windows.clamp(1, n);
    let all: u64 = stream.pieces.iter().filter(|p| p.kind != Kind::Trim).map(|p| cost.least(p)).sum();
    let usual = all as f64 / (n as f64 * f64::from(slots.max(1)));
    let mut prices = vec![0.0; windows];
    let mut best = Bound::default();
    for round in 0..=how.rounds {
        let found = problem.solve(&prices, slots);
        if found.bound.total_ns > best.total_ns {
            best = found.bound;
        }
        let step = 1.0 / (1.0 + round as f64 / 6.0);
        for (price, used) in prices.iter_mut().zip(&found.used) {
            // Prices move by factors, so that they find their order of magnitude soon.
            let excess = match slots {
                0 => used.min(2.0),
                _ => (used / f64::from(slots) - 1.0).clamp(-1.0, 2.0),
            };
            *price = if round == 0 { usual / 8.0 } else { *price * (step * excess).exp() };
        }
    }
    best
}

/// States of a chunk while one of its visits is served.
const SLOW: usize = 0;
const CLEAN: usize = 1;
const DIRTY: usize = 2;
/// No way leads there.
const NO: f64 = f64::INFINITY;

/// Since when a chunk has been up without a break.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Since {
    /// At the visit before, or longer.
    #[default]
    Before,
    /// It came up in between.
    Rise,
    /// This visit.
    Here,
}

/// How a state was reached: from which state at the visit before, and since when the chunk is up, if it is.
#[derive(Clone, Copy, Default)]
struct Way {
    from: u8,
    since: Since,
}

struct Problem<'a> {
    stream: &'a Stream,
    cost: &'a HeadCost,
    how: Lagrange,
    /// Indices of pieces, chunk after chunk, and where each chunk's begin.
    order: Vec<u32>,
    first: Vec<u32>,
    /// For each piece after which one its chunk may have come up, at the latest: its index plus one. Empty if that is at any time.
    risen: Vec<u32>,
    ways: Vec<[Way; 3]>,
    /// Price of a slot from the start to each piece.
    paid: Vec<f64>,
}

struct Found {
    bound: Bound,
    /// Mean number of slots used in each window.
    used: Vec<f64>,
}

/// What the schedules of a round add up to.
struct Sums {
    total: f64,
    foreground: u64,
    /// Slots taken and left at each piece.
    change: Vec<i32>,
}

impl<'a> Problem<'a> {
    fn new(stream: &'a Stream, cost: &'a HeadCost, how: &Lagrange) -> Problem<'a> {
        let mut first = vec![0u32; stream.chunks as usize + 1];
        stream.pieces.iter().for_each(|p| first[p.chunk as usize + 1] += 1);
        (1..first.len()).for_each(|i| first[i] += first[i - 1]);
        let mut at = first.clone();
        let mut order = vec![0; stream.pieces.len()];
        for (i, p) in stream.pieces.iter().enumerate() {
            order[at[p.chunk as usize] as usize] = i as u32;
            at[p.chunk as usize] += 1;
        }
        let risen = match how.rise {
            Rise::AnyTime => Vec::new(),
            Rise::AfterUse(group) => uses_before(stream, group),
        };
        let (n, how) = (stream.pieces.len(), *how);
        Problem { stream, cost, how, order, first, risen, ways: vec![Default::default(); n], paid: vec![0.0; n + 1] }
    }

    /// The last moment before piece `i` at which its chunk may come up, as the index of the piece that follows; `None` if there is none.
    fn rise_before(&self, i: usize) -> Option<usize> {
        match self.how.rise {
            Rise::AnyTime => Some(i),
            Rise::AfterUse(_) => Some(self.risen[i] as usize).filter(|after| *after > 0),
        }
    }

    fn window(&self, i: usize, windows: usize) -> usize {
        (i as u64 * windows as u64 / self.stream.pieces.len() as u64) as usize
    }

    /// The bound at these prices.
    fn solve(&mut self, prices: &[f64], slots: u32) -> Found {
        let n = self.stream.pieces.len();
        for i in 0..n {
            self.paid[i + 1] = self.paid[i] + prices[self.window(i, prices.len())];
        }
        let mut sums = Sums { total: 0.0, foreground: 0, change: vec![0; n + 1] };
        for chunk in 0..self.stream.chunks as usize {
            let (mut from, end) = (self.first[chunk] as usize, self.first[chunk + 1] as usize);
            while from < end {
                from = self.schedule(from, end, &mut sums);
            }
        }
        let free = self.paid[n] * f64::from(slots);
        // Sums of floats err by less than this.
        let bound = (sums.total - free - 1e-9 * (sums.total + free)).max(0.0);
        let mut used = vec![0.0; prices.len()];
        let mut pieces = vec![0u32; prices.len()];
        let mut now = 0i64;
        for i in 0..n {
            now += i64::from(sums.change[i]);
            let w = self.window(i, prices.len());
            used[w] += now as f64;
            pieces[w] += 1;
        }
        used.iter_mut().zip(pieces).for_each(|(u, n)| *u /= f64::from(n.max(1)));
        Found { bound: Bound { total_ns: bound as u64, foreground_ns: sums.foreground }, used }
    }

    /// Price of a slot over the pieces `from..to`.
    fn hold(&self, from: usize, to: usize) -> f64 {
        self.paid[to] - self.paid[from]
    }

    fn leave(&self, state: usize) -> f64 {
        match state {
            CLEAN => self.how.demote_clean_ns as f64,
            DIRTY => self.cost.demote_ns as f64,
            _ => 0.0,
        }
    }

    /// Schedules one life of a chunk: from `from` to its discard or to `end`. Returns where the next life begins.
    fn schedule(&mut self, from: usize, end: usize, sums: &mut Sums) -> usize {
        let pieces = &self.stream.pieces;
        let mut costs = [NO; 3];
        let mut at = from;
        while at < end {
            let i = self.order[at] as usize;
            let p = &pieces[i];
            if p.kind == Kind::Trim {
                break;
            }
            costs = match (at == from, p.kind) {
                (true, Kind::Birth) => [self.cost.least(p) as f64, NO, self.hold(i, i + 1)],
                // It was there before, on the slow tier.
                (true, _) => self.step(at, None, [0.0, NO, NO]),
                (false, _) => self.step(at, Some(self.order[at - 1] as usize), costs),
            };
            at += 1;
        }
        if at == from {
            return at + 1;
        }
        let gone = if at < end { self.order[at] as usize } else { pieces.len() };
        self.trace_back(from, at, gone, costs, sums);
        at + usize::from(at < end)
    }

    /// From the visit before to this one: the least cost of each state, and how it is reached.
    fn step(&mut self, at: usize, before: Option<usize>, costs: [f64; 3]) -> [f64; 3] {
        let i = self.order[at] as usize;
        let p = &self.stream.pieces[i];
        let (serve, last) = (self.hold(i, i + 1), before.map_or(0, |b| b + 1));
        let fare = self.cost.promote_ns as f64;
        let mut down = (NO, Way::default());
        let mut next = [NO; 3];
        let mut ways = [Way::default(); 3];
        for (state, c) in costs.iter().enumerate() {
            down = lesser(down, (c + self.leave(state), Way { from: state as u8, since: Since::Rise }));
        }
        next[SLOW] = down.0 + self.cost.least(p) as f64;
        ways[SLOW] = down.1;
        // Up again, or for the first time, as late as it may be: a slot has its price. An own visit is a use, so it is not before the last.
        let up = match self.rise_before(i) {
            Some(after) => (down.0 + fare + self.hold(after.max(last), i + 1), down.1),
            None => (NO, down.1),
        };
        let stay =
            |state: usize| (costs[state] + self.hold(last, i + 1), Way { from: state as u8, since: Since::Before });
        let (clean, dirty) = (lesser(up, stay(CLEAN)), stay(DIRTY));
        let whole = self.how.anew && u64::from(p.len) == CHUNK;
        if p.writes() {
            let here = Way { since: Since::Here, ..down.1 };
            let anew = if whole { (down.0 + serve, here) } else { (NO, here) };
            (next[DIRTY], ways[DIRTY]) = lesser(lesser(clean, dirty), anew);
        } else {
            (next[CLEAN], ways[CLEAN]) = clean;
            (next[DIRTY], ways[DIRTY]) = dirty;
        }
        self.ways[at] = ways;
        next
    }

    /// Follows the cheapest schedule of the visits `from..to` back, and adds up what it costs and holds.
    fn trace_back(&self, from: usize, to: usize, gone: usize, costs: [f64; 3], sums: &mut Sums) {
        let last = self.order[to - 1] as usize;
        let rest = self.hold(last + 1, gone);
        // After its last visit a fast chunk stays until the end, or goes down.
        let ends = |s: usize| costs[s] + if s == SLOW { 0.0 } else { rest.min(self.leave(s)) };
        let mut state = (SLOW..=DIRTY).min_by(|a, b| ends(*a).total_cmp(&ends(*b))).unwrap_or(SLOW);
        sums.total += ends(state);
        let mut until = if state != SLOW && rest <= self.leave(state) { gone } else { last + 1 };
        for at in (from..to).rev() {
            let i = self.order[at] as usize;
            let p = &self.stream.pieces[i];
            let way = self.ways[at][state];
            let first = at == from;
            let before = if first { 0 } else { self.order[at - 1] as usize + 1 };
            if state == SLOW {
                sums.foreground += self.cost.least(p);
            } else {
                let born = first && p.kind == Kind::Birth;
                let since = match way.since {
                    _ if born => i,
                    Since::Here => i,
                    Since::Rise => self.rise_before(i).unwrap_or(i).max(before),
                    Since::Before => before,
                };
                sums.change[since] += 1;
                sums.change[until] -= 1;
            }
            if first {
                return;
            }
            // What was up at the visit before stayed so until that was served, and longer only if it stayed up.
            until = before;
            state = usize::from(way.from);
        }
    }
}

/// For each piece the index plus one of the last access before it to a chunk of the same group; 0 if there is none.
fn uses_before(stream: &Stream, group: u32) -> Vec<u32> {
    let group = group.max(1);
    let mut last = vec![0; (stream.chunks / group) as usize + 1];
    let uses = stream.pieces.iter().enumerate().map(|(i, p)| {
        let last = &mut last[(p.chunk / group) as usize];
        let now = if p.kind == Kind::Trim { *last } else { i as u32 + 1 };
        std::mem::replace(last, now)
    });
    uses.collect()
}

fn lesser(a: (f64, Way), b: (f64, Way)) -> (f64, Way) {
    if b.0 < a.0 {
        b
    } else {
        a
    }
}
