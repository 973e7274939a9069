//! What was used a moment ago, and what it changes.

use super::{FAST, SECOND};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View, GROUP_CHUNKS};
use crate::units::{ChunkId, Tier, CHUNK};

const SLOTS: u32 = 512;

/// A full fast tier, and as much again on the slow one.
fn full() -> Toy {
    let mut g = Toy::new(SLOTS, FAST, 0);
    g.pass(0..2 * u64::from(SLOTS), true);
    assert_eq!(g.fast_of(0..u64::from(SLOTS)), SLOTS as usize);
    g
}

/// Uses each of these chunks, one after the other and far apart.
fn used(g: &mut Toy, chunks: std::ops::Range<u64>) {
    for c in chunks {
        g.w.now = g.w.now.plus(3 * SECOND);
        g.request(c * CHUNK + c % 2 * 65536, 4096, false);
    }
}

/// The chunks that would leave if all of the fast tier were as hot.
fn would_leave(g: &mut Toy) -> Vec<u64> {
    let heat = g.policy.heat_of_visits(2);
    (0..u64::from(SLOTS)).for_each(|c| g.w.set_heat(ChunkId(c), heat));
    g.w.now = g.w.now.plus(60 * SECOND);
    // What was seen before does not count any more.
    (0..200).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    g.policy.victims(&mut g.w, 64).into_iter().map(|c| c.0).collect()
}

#[test]
fn of_what_is_as_hot_that_stays_which_was_used_a_moment_ago() {
    let mut g = full();
    used(&mut g, 0..256);
    let out = would_leave(&mut g);
    assert!(out.len() >= 8 && out.iter().all(|c| *c >= 256), "{out:?}");
    // Since then the other half was used.
    used(&mut g, 256..512);
    let out = would_leave(&mut g);
    assert!(out.len() >= 8 && out.iter().all(|c| *c < 256), "{out:?}");
}

#[test]
fn what_comes_to_a_slot_in_a_stream_has_nothing_of_what_was_there_before() {
    let mut g = full();
    used(&mut g, 128..512);
    used(&mut g, 0..128);
    for c in 0..128 {
        g.w.forget(ChunkId(c));
    }
    g.w.now = g.w.now.plus(60 * SECOND);
    g.pass(1024..1152, true);
    assert_eq!(g.fast_of(1024..1152), 128);
    let heat = g.policy.heat_of_visits(2);
    (1024..1152).for_each(|c| g.w.set_heat(ChunkId(c), heat));
    let out = would_leave(&mut g);
    // The first ones were not known to be a stream.
    assert!(out.len() >= 8 && out.iter().all(|c| *c >= 1024), "{out:?}");
}

#[test]
fn what_has_to_leave_is_found_though_heat_has_faded_and_recency_has_not() {
    let mut g = full();
    used(&mut g, 0..512);
    let heat = g.policy.heat_of_visits(2);
    (0..u64::from(SLOTS)).for_each(|c| g.w.set_heat(ChunkId(c), heat));
    (0..200).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    // Only the slow tier is used: that is no use of the fast one.
    for round in 0..40 {
        used(&mut g, 512 + round..1024);
        assert!(!g.policy.victims(&mut g.w, 8).is_empty(), "round {round}");
    }
}

#[test]
fn regions_of_what_was_used_a_moment_ago_do_not_hide_what_has_to_leave() {
    const REGION: u64 = 256;
    let slots = 60 * REGION;
    let mut g = Toy::new(slots as u32, FAST, 0);
    g.pass(0..slots, true);
    // One in eight of the first regions has less to show than one in eight of the others, but was used just now.
    let (hot, cold, colder) = (g.policy.heat_of_visits(100), g.policy.heat_of_visits(3), g.policy.heat_of_visits(2));
    let odd = |c: u64| c / GROUP_CHUNKS % 8 == 0;
    let lately = |c: u64| odd(c) && c < 20 * REGION;
    (0..slots).filter(|c| lately(*c)).for_each(|c| g.policy.moved(&mut g.w, ChunkId(c), Tier::Fast));
    for c in 0..slots {
        let heat = if lately(c) { colder } else { cold };
        g.w.set_heat(ChunkId(c), if odd(c) { heat } else { hot });
    }
    g.w.now = g.w.now.plus(60 * SECOND);
    (0..200).for_each(|_| drop(g.policy.victims(&mut g.w, 1)));
    for round in 0..60 {
        let out = g.policy.victims(&mut g.w, 8);
        assert!(!out.is_empty() && out.iter().all(|c| odd(c.0) && !lately(c.0)), "round {round}: {out:?}");
    }
}
