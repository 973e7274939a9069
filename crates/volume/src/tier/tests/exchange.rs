//! Which chunks change places, and together with which.

use super::{group, FAST, RESERVE, SECOND};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View, GROUP_CHUNKS};
use crate::units::{ChunkId, CHUNK};

/// Uses `used` chunks of a cold group of eight on the slow tier, and lets the mover work. How many of the eight are on
/// the fast tier then.
fn brought(used: u64) -> usize {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    let first = 6000 / GROUP_CHUNKS * GROUP_CHUNKS;
    assert_eq!(g.fast_of(first..first + GROUP_CHUNKS), 0);
    for round in 0..40 {
        for c in first..first + used {
            g.request(c * CHUNK + round % 32 * 4096, 4096, false);
        }
        g.w.now = g.w.now.plus(20 * SECOND);
    }
    g.quiet(30 * SECOND);
    g.fast_of(first..first + GROUP_CHUNKS)
}

#[test]
fn half_of_a_group_brings_the_rest() {
    assert_eq!(brought(3), 3);
    assert_eq!(brought(4), GROUP_CHUNKS as usize);
}

#[test]
fn victims_are_found_behind_many_regions_that_hold_none() {
    let slots = 60 * 256;
    let mut g = Toy::new(slots, FAST, 0);
    g.pass(0..u64::from(slots), true);
    g.w.reserve = slots;
    // All but the last regions are left to nobody.
    for c in 0..u64::from(slots) - 512 {
        g.w.forget(ChunkId(c));
    }
    assert_eq!(g.fast_of(0..u64::from(slots)), 512);
    assert!(!g.policy.victims(&mut g.w, 8).is_empty(), "found by the first call");
}

#[test]
fn what_a_read_brought_is_taken_only_while_it_is_wanted() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    let c = ChunkId(6000);
    for round in 0..40 {
        g.request(c.0 * CHUNK + round % 32 * 4096, 4096, false);
        g.w.now = g.w.now.plus(20 * SECOND);
    }
    let (hot, cold) = (g.w.heat(c), g.policy.restore(0));
    assert!(!g.policy.wants(&mut g.w, ChunkId(6001)), "nobody asked for it");
    g.w.set_heat(c, cold);
    assert!(!g.policy.wants(&mut g.w, c), "it has cooled since");
    g.w.set_heat(c, hot);
    assert!(g.policy.wants(&mut g.w, c));
    assert!(!g.policy.wants(&mut g.w, c), "it is taken once");
}

#[test]
fn of_a_loop_that_is_larger_than_the_fast_tier_as_much_as_fits_stays_there() {
    let mut g = group();
    // The loop was on the slow tier before the rest of the group was emptied.
    g.w.reserve = 0;
    g.pass(0..u64::from(FAST), true);
    g.pass(4000..8000, true);
    for c in 0..u64::from(FAST) {
        g.w.forget(ChunkId(c));
    }
    g.w.reserve = RESERVE / 8;
    for _ in 0..6 {
        g.pass(4000..8000, false);
        g.quiet(60 * SECOND);
    }
    let fast = g.fast_of(4000..8000);
    assert!(fast >= FAST as usize * 7 / 8, "{fast} of {FAST}");
    let (served, promoted) = (g.pass(4000..8000, false), g.promoted);
    g.quiet(60 * SECOND);
    g.pass(4000..8000, false);
    assert!(served >= fast && g.promoted - promoted < 16, "{served} served, {} moved", g.promoted - promoted);
}

/// How far the policy's clock goes with a visit, in parts of what it does usually.
fn pace(g: &mut Toy) -> u64 {
    let visits = 8 * u64::from(g.w.fast_slots());
    let before = g.policy.clock();
    g.w.now = g.w.now.plus(SECOND);
    g.request(0, 4096, false);
    (visits * (g.policy.clock() - before) + (1 << 31)) >> 32
}

#[test]
fn where_one_project_follows_another_heat_fades_sooner() {
    let mut g = Toy::new(512, 8192, 64);
    g.pass(0..8000, true);
    assert_eq!(pace(&mut g), 1);
    for project in 0..30u64 {
        let first = project * 1000 % 8000;
        for _ in 0..6000 {
            g.random(first..first + 1000, false);
            g.w.now = g.w.now.plus(SECOND / 4);
        }
    }
    assert_eq!(pace(&mut g), 2);
}
