//! Chunks with a kept copy that make room for new data.

use std::time::Duration;

use super::{group, RESERVE};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View};
use crate::units::{ChunkId, Tier, CHUNK};

/// Chunks that have a copy, half of them in use.
const COPIES: std::ops::Range<u64> = 0..1200;
const USED: std::ops::Range<u64> = 0..600;

/// A group that is full but for the reserve, of which most is held by chunks with copies.
fn with_copies() -> Toy {
    let mut g = group();
    g.pass(0..1536, true);
    g.w.copies = COPIES.map(ChunkId).collect();
    for _ in 0..6000 {
        g.random(USED, false);
        g.w.now = g.w.now.plus(Duration::from_millis(3));
    }
    g
}

#[test]
fn what_is_let_go_has_a_copy_and_is_the_coldest_of_that_kind() {
    let mut g = with_copies();
    let mut gone = Vec::new();
    for _ in 0..10 {
        let found = g.policy.let_go(&mut g.w, 40);
        assert!(found.len() <= 40 && found.is_sorted(), "{found:?}");
        for c in found {
            assert!(g.w.copies.remove(&c), "{c:?} has no copy");
            g.demote(c);
            gone.push(c.0);
        }
    }
    assert!(gone.len() >= 300, "{}", gone.len());
    assert!(gone.iter().all(|c| !USED.contains(c)), "{gone:?}");
}

#[test]
fn what_is_used_more_than_new_data_is_not_let_go() {
    let mut g = with_copies();
    g.w.copies = USED.map(ChunkId).collect();
    let found: usize = (0..20).map(|_| g.policy.let_go(&mut g.w, 100).len()).sum();
    assert_eq!(found, 0);
    // So it stands for nothing.
    for _ in 0..40_000 {
        g.random(USED, false);
        g.w.now = g.w.now.plus(Duration::from_millis(3));
    }
    g.step(false);
    // Nothing was born meanwhile, for which nothing has to be free: that is not asked here.
    g.w.learned.influx = None;
    assert!(g.w.keep_free() >= RESERVE * 9 / 10, "{} of {RESERVE}", g.w.keep_free());
}

#[test]
fn few_copies_are_found_among_many_chunks_as_cold() {
    // 160 regions; the copies are in the last ones, and were there before the policy was told of any.
    let (fast, reserve) = (40_960, 512);
    let mut g = Toy::new(fast, 10_000, reserve);
    let full = u64::from(fast - reserve);
    g.pass(0..full, true);
    g.w.copies = (full - 800..full).map(ChunkId).collect();
    for _ in 0..20_000 {
        g.random(0..2000, false);
    }
    // All regions were looked at, and all look alike.
    (0..400).for_each(|_| drop(g.policy.victims(&mut g.w, 512)));
    let mut gone = 0;
    for _ in 0..4 {
        for c in g.policy.let_go(&mut g.w, 200) {
            assert!(g.w.copies.remove(&c), "{c:?} has no copy");
            g.demote(c);
            gone += 1;
        }
    }
    assert_eq!(gone, 800);
}

#[test]
fn small_new_data_find_the_reserve_and_a_stream_leaves_of_it_what_it_did() {
    let mut g = with_copies();
    assert_eq!(g.w.keep_free(), RESERVE / 4);
    let copies = g.w.copies.len();
    // The disk is never quiet.
    g.scheduler.foreground_started(Tier::Slow, g.w.now);
    // Of a stream no more than without copies, however many are let go for it.
    let first = g.fast_of(4000..6000);
    for c in 4000..4000 + u64::from(RESERVE) * 3 {
        g.pass(c..c + 1, true);
        g.step(false);
    }
    // What need not be free, and seven eighths of the reserve; a few were moved meanwhile.
    let (beyond, of_reserve) = (RESERVE as usize * 3 / 4, RESERVE as usize * 7 / 8);
    let taken = g.fast_of(4000..6000) - first - beyond;
    assert!((of_reserve..of_reserve + 32).contains(&taken), "{taken}");
    assert!(g.w.copies.len() + RESERVE as usize > copies, "{} {copies}", g.w.copies.len());
    let small: Vec<u64> = (0..u64::from(RESERVE) / 8).map(|i| 8000 + i * 9).collect();
    for c in &small {
        g.request(c * CHUNK, 4096, true);
        g.step(false);
    }
    assert!(small.iter().all(|c| g.fast_of(*c..*c + 1) == 1));
}
