//! What holds on every group, whatever is done to it.

use std::time::Duration;

use super::SECOND;
use crate::tier::toy::Toy;
use crate::tier::{Policy, View};
use crate::units::ChunkId;

/// Random requests, hints, failures and moves on small groups: the map stays consistent (the toy asserts that only
/// chunks of the right tier are named), the reserve comes back, and the mover comes to rest.
#[test]
fn whatever_happens_the_reserve_comes_back_and_the_mover_rests() {
    for seed in 0..200u64 {
        let mut rng = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |n: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) % n
        };
        let fast = 8 + next(300) as u32;
        let reserve = next(u64::from(fast) / 4 + 1) as u32;
        let slow = 80 + next(2000) as u32;
        let mut g = Toy::new(fast, slow, reserve);
        g.w.rng = seed;
        let chunks = u64::from(fast + slow) - 64;
        for _ in 0..200 {
            let (start, len) = (next(chunks), next(200));
            let range = start..(start + len).min(chunks).max(start + 1);
            match next(6) {
                0 => drop(g.pass(range, true)),
                1 => drop(g.pass(range, false)),
                2 => drop((0..100).map(|_| g.random(range.clone(), false)).count()),
                3 => drop((0..100).map(|_| g.random(range.clone(), true)).count()),
                4 => g.policy.hint(&mut g.w, ChunkId(start)),
                _ => {
                    for c in g.policy.candidates(&mut g.w, 3) {
                        g.policy.gave_up(&mut g.w, c);
                    }
                    g.quiet(Duration::from_millis(next(3000)));
                }
            }
        }
        g.quiet(300 * SECOND);
        assert!(g.w.keep_free() >= reserve / 8, "seed {seed}: {} of {reserve}", g.w.keep_free());
        let reachable = g.w.keep_free().min(g.free() / 2);
        assert!(g.w.free_fast() >= reachable, "seed {seed}: {} of {reachable} free", g.w.free_fast());
        let plans = g.plans;
        g.quiet(600 * SECOND);
        assert!(g.plans - plans <= 20, "seed {seed}: {} plans in ten quiet minutes", g.plans - plans);
    }
}
