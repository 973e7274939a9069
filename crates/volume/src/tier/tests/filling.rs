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
