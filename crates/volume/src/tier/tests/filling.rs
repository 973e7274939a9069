//! Free slots that streams fill.

use super::{group, FAST, RESERVE, SECOND};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View};
use crate::units::{ChunkId, CHUNK};

/// What was on the slow tier before anybody looked; it is read as one stream.
const FILM: std::ops::Range<u64> = 4000..4000 + FAST as u64 / 2;

/// Chunks of the fast tier that are used all the time.
const USED: u64 = 256;

/// A group with most slots of the fast tier free, and `FILM` and more on the slow one, in which nothing was born for long.
fn emptied() -> Toy {
    let mut g = group();
    g.w.reserve = 0;
    g.pass(0..u64::from(FAST), true);
    g.pass(4000..8000, true);
    (USED..u64::from(FAST)).for_each(|c| g.w.forget(ChunkId(c)));
    let cold = g.policy.restore(0, 0);
    (4000..8000).for_each(|c| g.w.set_heat(ChunkId(c), cold));
    g.w.reserve = RESERVE / 8;
    for _ in 0..80 {
        g.w.now = g.w.now.plus(10 * SECOND);
        assert!((0..USED).all(|c| g.request(c * CHUNK + 4096, 4096, false).is_some()));
    }
    g
}

/// Reads the film once and lets the mover work. How much of it is on the fast tier then.
fn watch(g: &mut Toy) -> usize {
    g.pass(FILM, false);
    g.quiet(120 * SECOND);
    g.fast_of(FILM)
}

#[test]
fn a_stream_fills_free_slots_at_its_first_pass() {
    let mut g = emptied();
    assert_eq!(watch(&mut g), FILM.count());
    assert_eq!(g.demoted, 0);
}

#[test]
fn it_fills_nothing_where_new_data_come() {
    let mut g = emptied();
    g.request(USED * CHUNK, 4096, true);
    // The first requests of a stream are taken for random ones, for which there is room.
    let begun = 64 + 8;
    assert!(watch(&mut g) <= begun, "{}", g.fast_of(FILM));
}

#[test]
fn it_fills_nothing_that_the_life_of_the_ssd_does_not_spare() {
    let mut g = emptied();
    g.w.life_to_spare = false;
    assert!(watch(&mut g) <= 64 + 8, "{}", g.fast_of(FILM));
}

#[test]
fn nothing_leaves_for_what_only_fills() {
    let mut g = emptied();
    // Longer than what is free: the end of it waits when the last slot has gone.
    for first in [4000, 5500] {
        g.pass(first..first + u64::from(FAST) * 3 / 4, false);
        g.quiet(120 * SECOND);
    }
    assert_eq!(g.demoted, 0);
    assert_eq!(g.fast_of(4000..4000 + u64::from(FAST) * 3 / 4), FAST as usize * 3 / 4);
    assert!(g.w.free_fast() >= g.w.keep_free(), "the reserve is not for it");
}

#[test]
fn what_filled_a_slot_makes_room_for_what_is_used() {
    let mut g = emptied();
    g.pass(4000..4000 + u64::from(FAST), false);
    g.quiet(120 * SECOND);
    let filled = g.fast_of(4000..4000 + u64::from(FAST));
    assert!(filled > FAST as usize * 13 / 16, "{filled}");
    for _ in 0..3 {
        for c in 7000..7200 {
            g.request(c * CHUNK + c % 32 * 4096, 4096, false);
            g.w.now = g.w.now.plus(SECOND / 50);
        }
        g.quiet(30 * SECOND);
    }
    assert_eq!(g.fast_of(7000..7200), 200);
}

/// How many of 1000 new chunks that come as a stream go to the fast tier, while the mover looks ten times a second.
fn of_new(g: &mut Toy) -> usize {
    for c in USED..USED + 1000 {
        g.request(c * CHUNK, CHUNK, true);
        g.w.now = g.w.now.plus(SECOND / 1000);
        if c % 64 == 0 {
            g.step(false);
        }
    }
    g.fast_of(USED..USED + 1000)
}

#[test]
fn new_data_find_what_they_would_have_found_without() {
    let mut g = emptied();
    let without = of_new(&mut g);
    let mut g = emptied();
    g.pass(4000..4000 + u64::from(FAST), false);
    g.quiet(120 * SECOND);
    let filled = g.fast_of(4000..4000 + u64::from(FAST));
    g.w.copies = (4000..4000 + u64::from(FAST)).map(ChunkId).filter(|c| g.fast_of(c.0..c.0 + 1) == 1).collect();
    let with = of_new(&mut g);
    assert!(filled > 1500 && without == 1000 && with >= 950, "{filled} filled; {with}, {without} without");
}

#[test]
fn what_is_overwritten_fills_nothing() {
    let mut g = emptied();
    let half = CHUNK / 2;
    (FILM.start * 2..FILM.end * 2).for_each(|n| assert!(g.request(n * half, half, true).is_some()));
    g.quiet(120 * SECOND);
    assert!(g.fast_of(FILM) <= 64 + 8, "{}", g.fast_of(FILM));
}

#[test]
fn what_was_read_again_is_no_filler_any_more() {
    let mut g = emptied();
    watch(&mut g);
    assert!(g.policy.filled().chunks > 900, "{:?}", g.policy.filled());
    g.w.now = g.w.now.plus(60 * SECOND);
    g.pass(FILM, false);
    assert_eq!(g.policy.filled().chunks, 0);
}

#[test]
fn the_mover_rests_when_enough_has_made_way() {
    let mut g = emptied();
    let long = 4000..4000 + u64::from(FAST);
    g.pass(long.clone(), false);
    g.quiet(120 * SECOND);
    g.w.copies = long.map(ChunkId).filter(|c| g.fast_of(c.0..c.0 + 1) == 1).collect();
    let filled = g.policy.filled().chunks;
    g.request(USED * CHUNK, 4096, true);
    g.quiet(10 * SECOND);
    let left = g.policy.filled();
    assert!(left.born == 1 && left.chunks < filled && left.chunks + 40 >= filled, "{left:?} of {filled}");
    let before = g.plans;
    g.quiet(600 * SECOND);
    assert!(g.plans - before <= 30, "{} plans in ten idle minutes", g.plans - before);
}
