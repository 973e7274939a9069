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
fn what_is_read_together_leaves_before_what_is_as_hot_and_stands_alone() {
    let mut g = Toy::new(512, FAST, 0);
    g.pass(0..512, true);
    let alone = |c: u64| c < 64 && c % GROUP_CHUNKS == 3;
    (0..64).filter(|c| !alone(*c)).for_each(|c| g.w.forget(ChunkId(c)));
    let heat = g.policy.heat_of_visits(4);
    (0..512).for_each(|c| g.w.set_heat(ChunkId(c), heat));
    g.w.reserve = 128;
    // What was seen before does not count any more.
    (0..200).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    let leave = g.policy.victims(&mut g.w, 64);
    assert!(leave.len() >= 8 && !leave.iter().any(|c| alone(c.0)), "{leave:?}");
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
    let (hot, cold) = (g.w.heat(c), g.policy.restore(0, 0));
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

#[test]
fn while_there_is_room_a_chunk_comes_up_at_its_first_visit_though_it_had_to_wait() {
    let mut g = Toy::new(FAST, 16384, 0);
    g.pass(0..10_000, true);
    (0..u64::from(FAST)).for_each(|c| g.w.forget(ChunkId(c)));
    g.w.reserve = RESERVE;
    for c in (6000..8000).step_by(20) {
        g.request(c * CHUNK + 8192, 4096, false);
    }
    // Others are used before the mover has a moment, so that what was counted is not worth as much any more.
    for n in 0..2 * u64::from(FAST) {
        g.w.now = g.w.now.plus(SECOND / 2);
        g.request(9000 * CHUNK + n % 7 * CHUNK, 4096, false);
    }
    g.quiet(20 * SECOND);
    let up = (6000..8000).step_by(20).filter(|c| g.w.tier_of(ChunkId(*c)) == Some(crate::units::Tier::Fast)).count();
    assert!(up >= 95, "{up} of 100");
}

/// A full fast tier on which each chunk was used `usual` times, and one on the slow tier that was used `more` times, `alone` or
/// as often as its neighbour; whether that one is to come up.
fn comes_up(usual: i32, more: i32, alone: bool) -> bool {
    let mut g = group();
    g.w.reserve = 0;
    g.pass(0..8000, true);
    let used = |g: &mut Toy, c: u64, times: i32| {
        let heat = g.policy.heat_of_visits(times);
        g.w.set_heat(ChunkId(c), heat);
    };
    (0..8000).for_each(|c| used(&mut g, c, if c < u64::from(FAST) { usual } else { 0 }));
    used(&mut g, 6000, more - 1);
    used(&mut g, 6001, if alone { 0 } else { more });
    g.w.reserve = RESERVE;
    g.w.now = g.w.now.plus(60 * SECOND);
    // One more makes a candidate of it, after the others have been looked at.
    (0..8).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    g.request(6000 * CHUNK + 4096, 4096, false);
    g.policy.candidate_count() > 0
}

#[test]
fn the_more_was_counted_the_less_a_candidate_must_be_ahead() {
    assert!(!comes_up(4, 5, false), "a visit more pays for no exchange");
    assert!(comes_up(4, 6, false), "half as much again does");
    assert!(!comes_up(400, 410, false), "within what chance does");
    assert!(comes_up(400, 430, false), "a standard deviation is 20");
}

#[test]
fn a_chunk_that_stands_alone_comes_up_for_fewer_visits() {
    assert!(comes_up(4, 5, true));
    assert!(comes_up(400, 310, true));
    assert!(!comes_up(400, 270, true));
}

/// A full fast tier whose chunks were all used a hundred times, but those of `once` once.
fn used_once(once: impl Fn(u64) -> bool) -> Toy {
    let mut g = Toy::new(FAST, 16384, 0);
    g.pass(0..8000, true);
    let (hot, cold) = (g.policy.heat_of_visits(100), g.policy.heat_of_visits(1));
    (0..u64::from(FAST)).for_each(|c| g.w.set_heat(ChunkId(c), if once(c) { cold } else { hot }));
    g.w.now = g.w.now.plus(60 * SECOND);
    // Where the coldest lie is found out.
    (0..200).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    g
}

#[test]
fn nothing_leaves_from_the_middle_of_what_stays_while_something_else_can() {
    // One as cold as the others lies among chunks that stay.
    let mut g = used_once(|c| c == 403 || (1000..1200).contains(&c));
    for _ in 0..20 {
        let out = g.policy.victims(&mut g.w, 8);
        assert!(!out.is_empty() && out.iter().all(|c| (1000..1200).contains(&c.0)), "{out:?}");
        out.into_iter().for_each(|c| g.demote(c));
    }
}

#[test]
fn where_only_holes_can_be_made_they_are() {
    // One in four is cold: six that stay are its neighbours.
    let mut g = used_once(|c| c % 4 == 0);
    let out = g.policy.victims(&mut g.w, 8);
    assert!(!out.is_empty() && out.iter().all(|c| c.0 % 4 == 0), "{out:?}");
}

#[test]
fn of_a_tier_full_of_what_is_equally_cold_what_leaves_comes_from_one_place_after_the_other() {
    let slots = 120 * 256;
    let mut g = Toy::new(slots, FAST, 0);
    // The last chunks of the volume lie in the first slots.
    (0..u64::from(slots)).rev().for_each(|c| g.place_all(c..c + 1));
    let heat = g.policy.heat_of_visits(1);
    (0..u64::from(slots)).for_each(|c| g.w.set_heat(ChunkId(c), heat));
    (g.w.reserve, g.w.now) = (slots / 8, g.w.now.plus(60 * SECOND));
    // What was seen before does not count any more.
    (0..5).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    for turn in 5..9 {
        let out = g.policy.victims(&mut g.w, 64);
        let regions: Vec<u32> = out.iter().map(|c| g.w.fast_slot(*c).expect("on the fast tier") / 256).collect();
        assert_eq!(regions, [turn; 64]);
        out.into_iter().for_each(|c| g.demote(c));
    }
}
