//! Bounds against exhaustive search on tiny inputs, and against every policy on small ones.

use super::replays::{every_policy, setups};
use super::*;
use crate::policy::bound::{epoch_oracle, lower_bound, min, Lagrange, Rise};

/// All sets of at most `slots` of the chunks below `chunks`, as masks.
fn sets(chunks: u32, slots: u32) -> Vec<usize> {
    (0..1usize << chunks).filter(|s| s.count_ones() <= slots).collect()
}

/// The most hits of any policy that may take in only what was just used.
fn most_hits(list: &[u32], chunks: u32, slots: u32) -> u64 {
    let sets = sets(chunks, slots);
    let mut best = vec![None; 1 << chunks];
    best[0] = Some(0u64);
    for c in list {
        let mut next = vec![None; 1 << chunks];
        for s in &sets {
            let Some(hits) = best[*s] else { continue };
            let hits = hits + (*s as u64 >> c & 1);
            // Any subset of what is there and the chunk itself.
            for t in sets.iter().filter(|t| **t & !(s | 1 << c) == 0) {
                next[*t] = next[*t].max(Some(hits));
            }
        }
        best = next;
    }
    best.into_iter().flatten().max().unwrap_or(0)
}

#[test]
fn min_is_optimal() {
    for seed in 0..80 {
        let (chunks, slots) = (2 + (seed % 4) as u32, 1 + (seed % 3) as u32);
        let list = mixed(seed, u64::from(chunks), 40);
        let got = min(&reads(&list), &HeadCost::default(), slots);
        assert_eq!(got.fast, most_hits(&list, chunks, slots), "seed {seed}");
    }
}

#[test]
fn min_is_not_beaten_by_algorithms_that_take_in_what_was_used() {
    for seed in 0..20 {
        let list = mixed(seed, 40, 2000);
        let s = reads(&list);
        for slots in [1, 5, 17] {
            let best = min(&s, &HeadCost::default(), slots);
            let setup = Setup { reserve: 0, budget: Budget::UNLIMITED, ..Setup::new(slots) };
            for policy in every_policy(&s, &setup).iter().filter(|r| !r.policy.starts_with("HeadTime")) {
                assert!(best.fast >= policy.fast, "seed {seed}: {policy:?}");
            }
        }
    }
}

/// The least head time of any schedule, moves included: all sets before each piece, any exchange between pieces.
fn least_total(s: &Stream, cost: &HeadCost, slots: u32) -> u64 {
    let sets = sets(s.chunks, slots);
    // What is mapped is on the slow tier at first; nothing of a chunk before its birth or after its discard.
    let mut best = vec![None; 1 << s.chunks];
    best[0] = Some(0u64);
    for p in &s.pieces {
        let bit = 1usize << p.chunk;
        let mut next: Vec<Option<u64>> = vec![None; 1 << s.chunks];
        for from in &sets {
            let Some(paid) = best[*from] else { continue };
            for to in &sets {
                // A chunk without a home cannot be moved: a birth chooses its tier, a discard empties the slot.
                let (from, kept) = match p.kind {
                    Kind::Birth => (from & !bit, to & !bit),
                    _ => (*from, *to),
                };
                let moves = u64::from((kept & !from).count_ones()) * cost.promote_ns
                    + u64::from((from & !kept).count_ones()) * cost.demote_ns;
                let served = if p.kind == Kind::Trim || to & bit != 0 { 0 } else { cost.least(p) };
                let to = if p.kind == Kind::Trim { to & !bit } else { *to };
                let all = paid + moves + served;
                next[to] = Some(next[to].map_or(all, |n| n.min(all)));
            }
        }
        best = next;
    }
    best.into_iter().flatten().min().unwrap_or(0)
}

#[test]
fn the_lagrange_bound_is_below_the_optimum_and_near_it() {
    let (mut sum, mut optimum) = (0, 0);
    for seed in 0..40 {
        let chunks = 3 + seed % 3;
        let slots = 1 + (seed % 2) as u32;
        let start = if seed % 2 == 0 { Start::Fresh } else { Start::Aged };
        let s = stream(seed, chunks, 40, start);
        let cost = HeadCost::default();
        let exact = least_total(&s, &cost, slots);
        for windows in [1, 4, 16] {
            let bound = lower_bound(&s, &cost, slots, &Lagrange { windows, ..Lagrange::new(&cost) });
            assert!(bound.total_ns <= exact, "seed {seed}, {windows} windows: {bound:?} {exact}");
        }
        let near = lower_bound(&s, &cost, slots, &Lagrange { windows: 40, rounds: 200, ..Lagrange::new(&cost) });
        assert!(near.total_ns <= exact);
        sum += near.total_ns;
        optimum += exact;
    }
    assert!(sum * 100 > optimum * 90, "{sum} of {optimum}");
}

/// The same in the engine: what came up and was not written goes down for nothing, what replaces a whole chunk can be written to
/// the fast tier. Chunks are 0 slow, 1 clean, 2 dirty.
fn least_total_in_engine(s: &Stream, cost: &HeadCost, slots: u32, rise: Rise) -> u64 {
    let n = s.chunks as usize;
    let states: Vec<Vec<u8>> = (0..3usize.pow(s.chunks))
        .map(|code| (0..n).map(|i| (code / 3usize.pow(i as u32) % 3) as u8).collect())
        .filter(|state: &Vec<u8>| state.iter().filter(|c| **c > 0).count() <= slots as usize)
        .collect();
    let moved = |from: u8, to: u8| match (from, to) {
        (0, 1) => Some(cost.promote_ns),
        (2, 0) => Some(cost.demote_ns),
        (2, 1) => Some(cost.demote_ns + cost.promote_ns),
        _ if from == to || to == 0 => Some(0),
        _ => None,
    };
    // A piece of a chunk in `from` leaves it in `to`.
    let served = |p: &Piece, from: u8, to: u8| match (p.kind, from, to) {
        (Kind::Trim, _, 0) | (Kind::Read, 1, 1) | (Kind::Read, 2, 2) | (Kind::Write, 1 | 2, 2) => Some(0),
        (Kind::Write, 0, 2) if u64::from(p.len) == CHUNK => Some(0),
        (Kind::Birth, 0, 2) => Some(0),
        (Kind::Read | Kind::Write | Kind::Birth, 0, 0) => Some(cost.least(p)),
        _ => None,
    };
    let mut best: Vec<Option<u64>> = states.iter().map(|s| s.iter().all(|c| *c == 0).then_some(0)).collect();
    let mut before: Option<&Piece> = None;
    for p in &s.pieces {
        // Only what the last access has used, or a neighbour of it, comes up now.
        let rises = |i: usize| match (rise, before) {
            (Rise::AnyTime, _) => true,
            (Rise::AfterUse(group), Some(b)) => b.kind != Kind::Trim && b.chunk / group == i as u32 / group,
            (Rise::AfterUse(_), None) => false,
        };
        let moved = |i: usize, from: u8, to: u8| match (from, to) {
            (0 | 2, 1) if !rises(i) => None,
            _ => moved(from, to),
        };
        let mut next = vec![None; states.len()];
        for (from, paid) in states.iter().zip(&best).filter_map(|(s, b)| b.map(|b| (s, b))) {
            for (to, least) in states.iter().zip(&mut next) {
                let at = p.chunk as usize;
                let others = (0..n).filter(|i| *i != at).map(|i| moved(i, from[i], to[i])).sum::<Option<u64>>();
                // The chunk itself may be moved before it is used.
                let own = (0..3)
                    .filter_map(|between| Some(moved(at, from[at], between)? + served(p, between, to[at])?))
                    .min();
                if let (Some(others), Some(own)) = (others, own) {
                    let all = paid + others + own;
                    *least = Some(least.map_or(all, |l: u64| l.min(all)));
                }
            }
        }
        best = next;
        before = Some(p);
    }
    best.into_iter().flatten().min().unwrap_or(0)
}

#[test]
fn the_lagrange_bound_of_the_engine_is_below_its_optimum_and_near_it() {
    let (mut sum, mut optimum, mut others) = (0, 0, 0);
    for seed in 0..30 {
        let slots = 1 + (seed % 2) as u32;
        let s = stream(seed, 3, 40, if seed % 2 == 0 { Start::Fresh } else { Start::Aged });
        let cost = HeadCost::default();
        let exact = least_total_in_engine(&s, &cost, slots, Rise::AnyTime);
        let how = Lagrange { windows: 40, rounds: 200, ..Lagrange::engine(&cost) };
        let near = lower_bound(&s, &cost, slots, &how).total_ns;
        assert!(near <= exact, "seed {seed}: {near} {exact}");
        sum += near;
        optimum += exact;
        others += least_total(&s, &cost, slots);
    }
    assert!(optimum < others, "the engine makes no difference");
    assert!(sum * 100 > optimum * 90, "{sum} of {optimum}");
}

#[test]
fn the_later_chunks_may_come_up_the_more_it_takes_and_the_bound_knows() {
    // Chunks 0 and 1 are neighbours, where two are.
    let kinds = [Rise::AnyTime, Rise::AfterUse(4), Rise::AfterUse(2), Rise::AfterUse(1)];
    let (mut sums, mut optima) = ([0; 4], [0; 4]);
    for seed in 0..30 {
        let slots = 1 + (seed % 2) as u32;
        let s = stream(seed, 3, 40, if seed % 2 == 0 { Start::Fresh } else { Start::Aged });
        let cost = HeadCost::default();
        for (rise, (sum, optimum)) in kinds.into_iter().zip(sums.iter_mut().zip(&mut optima)) {
            let exact = least_total_in_engine(&s, &cost, slots, rise);
            let how = Lagrange { windows: 40, rounds: 200, rise, ..Lagrange::engine(&cost) };
            let near = lower_bound(&s, &cost, slots, &how).total_ns;
            assert!(near <= exact, "seed {seed}, {rise:?}: {near} {exact}");
            *sum += near;
            *optimum += exact;
        }
    }
    assert!(optima.is_sorted_by(|a, b| a < b) && sums.is_sorted_by(|a, b| a < b), "{sums:?} {optima:?}");
    assert!(sums.iter().zip(&optima).all(|(sum, optimum)| sum * 100 > optimum * 90), "{sums:?} {optima:?}");
}

#[test]
fn the_lagrange_bound_is_exact_where_all_fits_or_nothing_does() {
    for seed in 0..20 {
        let s = stream(seed, 12, 300, Start::Fresh);
        let cost = HeadCost { promote_ns: 0, ..HeadCost::default() };
        let how = Lagrange::new(&cost);
        // Whatever comes up before it is used first, for nothing, is always fast.
        assert_eq!(lower_bound(&s, &cost, 12, &how).total_ns, 0);
        let all: u64 = s.pieces.iter().filter(|p| p.kind != Kind::Trim).map(|p| cost.least(p)).sum();
        let none = lower_bound(&s, &HeadCost::default(), 0, &Lagrange { rounds: 200, ..how }).total_ns;
        assert!(none <= all && none as f64 > all as f64 * 0.95, "{none} {all}");
    }
}

#[test]
fn no_policy_is_below_the_lagrange_bound() {
    for seed in 0..6 {
        for start in [Start::Fresh, Start::Aged] {
            let s = stream(seed, 200, 4000, start);
            for setup in setups() {
                let how = Lagrange::new(&setup.cost);
                let bound = lower_bound(&s, &setup.cost, setup.fast_slots, &how).total_ns;
                let demand = Lagrange { rise: Rise::AfterUse(1), ..how };
                let demand = lower_bound(&s, &setup.cost, setup.fast_slots, &demand).total_ns;
                assert!(bound > 0 && demand >= bound / 100 * 99);
                let engine = lower_bound(&s, &setup.cost, setup.fast_slots, &Lagrange::engine(&setup.cost)).total_ns;
                let after_use = Lagrange::engine(&setup.cost).after_use();
                let after_use = lower_bound(&s, &setup.cost, setup.fast_slots, &after_use).total_ns;
                for policy in every_policy(&s, &setup) {
                    assert!(policy.total_ns() >= after_use, "seed {seed}: {after_use} {policy:?}");
                    let in_engine = policy.policy.starts_with("HeadTime");
                    let bound = if in_engine { engine } else { bound.max(engine) };
                    assert!(policy.total_ns() >= bound, "seed {seed}: {bound} {policy:?}");
                    assert!(in_engine || policy.total_ns() >= demand, "seed {seed}: {demand} {policy:?}");
                }
                for epoch in [10, 300] {
                    let oracle = epoch_oracle(&s, &setup.cost, setup.fast_slots, epoch);
                    let moves = oracle.promotions * setup.cost.promote_ns + oracle.demotions * setup.cost.demote_ns;
                    assert!(oracle.foreground_ns + moves >= bound, "seed {seed}: {bound} {oracle:?}");
                }
            }
        }
    }
}

#[test]
fn the_epoch_oracle_takes_what_saves_most() {
    // Chunk 0 four times, 1 twice, 2 once; then 2 five times, 0 once. One slot.
    let s = reads(&[0, 1, 0, 2, 0, 1, 0, 2, 2, 2, 2, 2, 0]);
    let got = epoch_oracle(&s, &HeadCost::default(), 1, 7);
    assert_eq!((got.fast, got.promotions, got.demotions), (4 + 5, 2, 1));
    let none = epoch_oracle(&s, &HeadCost::default(), 0, 7);
    assert_eq!((none.fast, none.promotions), (0, 0));
}
