//! The replay itself: sums by hand, budgets, determinism, inclusive caches.

use super::*;
use crate::policy::cache::{Arc, Cache, Lfu, Lru, S3Fifo, TinyLfu};
use bimetal_volume::units::Tier;

/// Small tiers with all kinds of budgets.
pub(super) fn setups() -> Vec<Setup> {
    let mut out = Vec::new();
    for slots in [8, 40] {
        for budget in [Budget::USUAL, Budget::UNLIMITED, Budget { per_thousand: 20, burst: 8, every: 16 }] {
            out.push(Setup { reserve: slots / 8, budget, ..Setup::new(slots) });
        }
    }
    out
}

/// What each policy makes of a stream.
pub(super) fn every_policy(s: &Stream, setup: &Setup) -> Vec<Replay> {
    let (n, slots) = (s.chunks, setup.fast_slots);
    let hold = (slots - setup.reserve) as usize;
    let caches: Vec<Box<dyn Cache>> = vec![
        Box::new(Lru::new(n, hold)),
        Box::new(Lfu::new(n, hold, 0)),
        Box::new(Lfu::new(n, hold, 16 * u64::from(slots))),
        Box::new(Arc::new(n, hold)),
        Box::new(S3Fifo::new(n, hold)),
        Box::new(TinyLfu::new(n, hold)),
    ];
    let mut out: Vec<Replay> = caches.into_iter().map(|c| replay(s, &mut Seated(Shadow::new(c)), setup)).collect();
    out.push(replay(s, &mut Seated(FirstFit), setup));
    out.push(replay(s, &mut Seated(Smq::new(n, slots)), setup));
    out.push(replay(s, &mut Seated(ClockBloom::new(slots, 2)), setup));
    out.push(replay(s, &mut Seated(ClockBloom::new(slots, 3)), setup));
    out.push(replay(s, &mut Production::new(slots), setup));
    out.push(replay(s, &mut Production::scheduled(slots), setup));
    out
}

#[test]
fn every_policy_serves_every_access_within_its_budget() {
    for seed in 0..4 {
        let s = stream(seed, 200, 5000, Start::Fresh);
        for setup in setups() {
            let all = every_policy(&s, &setup);
            for r in &all {
                assert_eq!(r.fast + r.slow_seeks + r.slow_follows, s.accesses(), "{r:?}");
                assert_eq!((r.accesses, r.user_bytes), (s.accesses(), s.user_bytes));
                let background = r.promotions * setup.cost.promote_ns + r.demotions * setup.cost.demote_ns;
                assert_eq!(r.background_ns, background);
                let earned = u128::from(setup.budget.per_thousand) * s.pieces.len() as u128 / 1000;
                assert!(u128::from(r.promotions + r.demotions) <= earned, "{r:?}");
                assert!(r.fast > 0 && (r.policy == "first fit" || r.promotions > 0), "{r:?}");
            }
            assert_eq!(all, every_policy(&s, &setup), "the same again");
        }
    }
}

/// Head time of a read of so many chunks, all but the first and the last of which are fast.
fn read_over_a_hole(hole: u64, cost: HeadCost) -> u64 {
    let list = [
        Access { time_us: 0, op: Op::Write, offset: CHUNK, len: hole * CHUNK },
        Access { time_us: 5_000_000, op: Op::Read, offset: 0, len: (hole + 2) * CHUNK },
    ];
    let s = Stream::new(list, Start::Fresh).expect("small enough");
    let r = replay(&s, &mut Seated(FirstFit), &Setup { cost, ..Setup::new(hole as u32) });
    assert_eq!((r.fast, r.slow_seeks + r.slow_follows), (2 * hole, 2));
    r.foreground_ns
}

#[test]
fn the_head_passes_over_what_the_fast_tier_serves() {
    let cost = HeadCost { bytes_per_second: 1_000_000_000, ..HeadCost::default() };
    // So do the disks that it stands for.
    assert_eq!(cost.pass_over, bimetal_sim::model::catalog::hdd2012().pass_over);
    let most = cost.pass_over / CHUNK;
    for hole in 1..=most {
        assert_eq!(read_over_a_hole(hole, cost), cost.seek_read_ns + cost.follow_ns + (hole + 2) * CHUNK);
    }
    assert_eq!(read_over_a_hole(most + 1, cost), 2 * (cost.seek_read_ns + CHUNK), "too far: it seeks");
}

/// However fast a policy moves up what the disk has read, the head stands where it read that.
#[test]
fn a_run_that_comes_up_behind_the_head_is_read_in_one_go() {
    let chunks = 64;
    let reads = (0..chunks).map(|i| Access { time_us: i * 1000, op: Op::Read, offset: i * CHUNK, len: CHUNK });
    let s = Stream::new(reads, Start::Aged).expect("small enough");
    let setup = Setup { budget: Budget::UNLIMITED, ..Setup::new(2 * chunks as u32) };
    let r = replay(&s, &mut Seated(Shadow::new(Lru::new(s.chunks, 2 * chunks as usize))), &setup);
    assert_eq!((r.promotions, r.slow_seeks, r.slow_follows), (chunks, 1, chunks - 1));
}

#[test]
fn a_replay_adds_up_as_by_hand() {
    let cost = HeadCost {
        seek_read_ns: 1000,
        seek_write_ns: 500,
        follow_ns: 10,
        pass_over: 0,
        bytes_per_second: 1_000_000_000,
        promote_ns: 70,
        demote_ns: 30,
    };
    let at = |i: u64, op, offset, len| Access { time_us: i * 5_000_000, op, offset, len };
    let list = [
        at(0, Op::Write, 0, 512),          // Born fast.
        at(1, Op::Read, CHUNK, 1024),      // There before: a seek. Comes up, chunk 0 leaves.
        at(2, Op::Read, CHUNK, 1024),      // Fast.
        at(3, Op::Write, 512, 512),        // Chunk 0: slow by now; goes on after the first request. Comes up.
        at(4, Op::Write, CHUNK, 512),      // Chunk 1: slow again, a seek. Comes up.
        at(5, Op::Read, CHUNK + 512, 512), // Fast.
        at(6, Op::Trim, CHUNK, CHUNK),     // The slot is free.
        at(7, Op::Write, CHUNK, 512),      // Born fast.
    ];
    let s = Stream::new(list, Start::Fresh).expect("small enough");
    let setup = Setup { fast_slots: 1, reserve: 0, cost, budget: Budget::UNLIMITED, seed: 1 };
    let r = replay(&s, &mut Seated(Shadow::new(Lru::new(s.chunks, 1))), &setup);
    assert_eq!((r.fast, r.fast_births, r.slow_seeks, r.slow_follows), (4, 2, 2, 1));
    assert_eq!(r.foreground_ns, (1000 + 1024) + (10 + 512) + (500 + 512));
    assert_eq!((r.promotions, r.demotions, r.background_ns), (3, 3, 3 * 70 + 3 * 30));
    assert_eq!(r.moved_per_user_byte(), 6.0 * CHUNK as f64 / (512.0 * 5.0 + 1024.0 * 2.0));
}

/// A seat in the engine whose policy is that of an algorithm.
struct InEngine(Seated<Shadow<Lru>>);

impl Seat for InEngine {
    fn name(&self) -> String {
        self.0.name()
    }
    fn place(&mut self, tiers: &mut Tiers, piece: &Piece) -> Tier {
        self.0.place(tiers, piece)
    }
    fn touch(&mut self, tiers: &mut Tiers, piece: &Piece) {
        self.0.touch(tiers, piece);
    }
    fn victims(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        self.0.victims(tiers, max)
    }
    fn candidates(&mut self, tiers: &mut Tiers, max: usize) -> Vec<u32> {
        self.0.candidates(tiers, max)
    }
    fn waiting(&self) -> usize {
        self.0.waiting()
    }
    fn moved(&mut self, tiers: &mut Tiers, chunk: u32, to: Tier, ns: u64) {
        self.0.moved(tiers, chunk, to, ns);
    }
    fn in_engine(&self) -> bool {
        true
    }
}

/// A replay of requests, seconds apart, with all but one of the fast slots reserved.
fn in_engine(list: &[(Op, u64, u64)], slots: u32, budget: Budget) -> Replay {
    let access = |(i, (op, offset, len)): (usize, &(Op, u64, u64))| Access {
        time_us: i as u64 * 5_000_000,
        op: *op,
        offset: *offset,
        len: *len,
    };
    let s = Stream::new(list.iter().enumerate().map(access), Start::Aged).expect("small enough");
    let setup = Setup { reserve: slots - 1, budget, ..Setup::new(slots) };
    replay(&s, &mut InEngine(Seated(Shadow::new(Lru::new(s.chunks, 1)))), &setup)
}

#[test]
fn what_came_up_and_was_not_written_goes_down_without_a_move() {
    let (read, write) = (|c: u64| (Op::Read, c * CHUNK, 4096), |c: u64| (Op::Write, c * CHUNK, 4096));
    // Chunk 0 comes up and leaves for chunk 1, which leaves for chunk 0.
    let r = in_engine(&[read(0), read(1), read(0)], 1, Budget::UNLIMITED);
    assert_eq!((r.promotions, r.let_go, r.demotions), (3, 2, 0));
    assert_eq!(r.background_ns, 3 * HeadCost::default().promote_ns);
    // It is written while it is fast: its copy is old.
    let r = in_engine(&[read(0), write(0), read(1)], 1, Budget::UNLIMITED);
    assert_eq!((r.promotions, r.let_go, r.demotions), (2, 0, 1));
    // The write came before it was promoted.
    let r = in_engine(&[write(0), read(1)], 1, Budget::UNLIMITED);
    assert_eq!((r.promotions, r.let_go, r.demotions), (2, 1, 0));
    // What is new has no copy, though another chunk had that number once.
    let r = in_engine(&[read(0), (Op::Trim, 0, CHUNK), write(0), read(1)], 1, Budget::UNLIMITED);
    assert_eq!((r.promotions, r.let_go, r.demotions), (2, 0, 1));
}

#[test]
fn what_replaces_a_whole_chunk_of_the_slow_tier_goes_to_the_fast_one() {
    let whole = |c: u64| (Op::Write, c * CHUNK, CHUNK);
    let r = in_engine(&[whole(0), (Op::Write, CHUNK, CHUNK - 512), (Op::Read, 2 * CHUNK, CHUNK)], 4, Budget::UNLIMITED);
    assert_eq!((r.written_anew, r.fast, r.slow_seeks + r.slow_follows), (1, 1, 2));
    // Nobody wants them, so the reserve is left; without the engine it goes nowhere else.
    let none = Budget { per_thousand: 0, ..Budget::USUAL };
    let r = in_engine(&[0, 2, 4, 6].map(whole), 4, none);
    assert_eq!((r.written_anew, r.fast), (1, 1));
    let s =
        Stream::new([Access { time_us: 0, op: Op::Write, offset: 0, len: CHUNK }], Start::Aged).expect("small enough");
    assert_eq!(replay(&s, &mut Seated(FirstFit), &Setup::new(8)).fast, 0);
}

/// An LRU cache of 4 KiB blocks in frames, with sets.
fn naive_cache(s: &Stream, frames: usize, writes: Writes) -> (u64, u64) {
    use std::collections::BTreeSet;
    let mut lru: Vec<(u32, BTreeSet<u32>, bool)> = Vec::new();
    let (mut hits, mut written_back) = (0, 0);
    for p in &s.pieces {
        let at = lru.iter().position(|f| f.0 == p.chunk);
        let mut frame = at.map_or((p.chunk, BTreeSet::new(), false), |at| lru[at].clone());
        let blocks: BTreeSet<u32> = (p.offset / 4096..(p.offset + p.len).div_ceil(4096)).collect();
        let whole = (p.offset.div_ceil(4096)..(p.offset + p.len) / 4096).collect();
        let held = blocks.is_subset(&frame.1);
        let hit = match (p.kind, writes) {
            (Kind::Trim, _) => {
                lru.retain(|f| f.0 != p.chunk);
                continue;
            }
            (Kind::Read, _) => held,
            (_, Writes::Back) => p.kind == Kind::Birth || blocks.difference(&whole).all(|b| frame.1.contains(b)),
            _ => false,
        };
        hits += u64::from(hit);
        match (p.kind, writes) {
            (Kind::Write | Kind::Birth, Writes::Around) => {
                frame.1 = frame.1.difference(&blocks).copied().collect();
                if let Some(at) = at {
                    lru[at] = frame;
                }
                continue;
            }
            (Kind::Write | Kind::Birth, Writes::Through) => frame.1.extend(whole),
            (kind, _) => {
                frame.1.extend(blocks);
                frame.2 |= kind != Kind::Read;
            }
        }
        lru.retain(|f| f.0 != p.chunk);
        lru.insert(0, frame);
        if lru.len() > frames {
            written_back += u64::from(lru.pop().is_some_and(|f| f.2));
        }
    }
    (hits, written_back)
}

#[test]
fn inclusive_caches_are_as_the_naive_one() {
    for seed in 0..8 {
        let s = stream(seed, 60, 3000, Start::Fresh);
        for writes in [Writes::Around, Writes::Through, Writes::Back] {
            for frames in [1, 7, 30] {
                let r = Inclusive { frames, writes }.replay(&s, &HeadCost::default());
                assert_eq!((r.fast, r.demotions), naive_cache(&s, frames, writes), "seed {seed}: {r:?}");
                assert_eq!(r.accesses, s.accesses());
            }
        }
    }
}

#[test]
fn a_larger_cache_hits_no_less() {
    for seed in 0..8 {
        let s = stream(seed, 60, 3000, Start::Aged);
        let hits = |frames| Inclusive { frames, writes: Writes::Back }.replay(&s, &HeadCost::default()).fast;
        let all: Vec<u64> = (1..40).map(hits).collect();
        assert!(all.windows(2).all(|w| w[0] <= w[1]), "seed {seed}: {all:?}");
    }
}

/// New chunks, fifty a second, among reads that come faster than a disk can serve.
#[test]
fn the_scheduler_frees_slots_beside_a_disk_that_is_never_done() {
    let mut rng = Prng::new(2);
    let mut list = Vec::new();
    for i in 0..20_000u64 {
        let (op, c) = if i % 20 == 0 { (Op::Write, i / 20) } else { (Op::Read, rng.below(i / 20 + 1)) };
        list.push(Access { time_us: i * 1000, op, offset: c * CHUNK, len: 4096 });
    }
    let s = Stream::new(list, Start::Fresh).expect("small enough");
    let setup = Setup { reserve: 32, ..Setup::new(256) };
    let first_fit = replay(&s, &mut Seated(FirstFit), &setup);
    let r = replay(&s, &mut Production::scheduled(256), &setup);
    assert!(r.demotions > 32 && r.fast_births > first_fit.fast_births, "{r:?}");
    // The same requests with time between them: what is used again comes up. All chunks are used alike, so that few are
    // worth a move.
    let pieces = s.pieces.iter().map(|p| Piece { time_ns: p.time_ns * 1000, ..*p }).collect();
    let quiet = replay(&Stream { pieces, ..s }, &mut Production::scheduled(256), &setup);
    assert!(quiet.promotions > 30, "{quiet:?}");
}
