//! What placement promises (DESIGN section 5), each as a test over a toy group. Chunks are 128 KiB; "quiet" runs the
//! scheduler and a mover that takes 2 ms per chunk.

mod ahead;
mod births;
mod exchange;
mod filling;
mod let_go;
mod property;
mod recency;
mod relief;
mod unreadable;
mod visits;

use std::time::Duration;

use super::toy::Toy;
use super::{Policy, Touch, View};
use crate::units::{ChunkId, Tier, CHUNK};

const SECOND: Duration = Duration::from_secs(1);

/// 256 MiB fast, 2 GiB slow, reserve 64 MiB.
const FAST: u32 = 2048;
const SLOW: u32 = 16384;
const RESERVE: u32 = 512;

fn group() -> Toy {
    Toy::new(FAST, SLOW, RESERVE)
}

/// A group whose fast tier holds "the system": 1024 chunks in random use.
fn group_with_system() -> Toy {
    let mut g = group();
    for c in 0..1024 {
        g.request(c * 128 * 1024 + 4096 * (c % 32), 4096, true);
    }
    use_system(&mut g, 20_000);
    g
}

/// Random use of the system, a minute long; the share served by the fast tier, in percent.
fn use_system(g: &mut Toy, requests: usize) -> usize {
    let mut fast = 0;
    for _ in 0..requests {
        fast += usize::from(g.random(0..1024, false));
        g.w.now = g.w.now.plus(Duration::from_millis(3));
    }
    fast * 100 / requests
}

#[test]
fn new_data_goes_to_the_fast_tier_until_a_stream_has_most_of_the_reserve() {
    let mut g = group();
    g.pass(0..4096, true);
    assert_eq!(g.w.free_fast(), RESERVE / 8);
    assert_eq!(g.fast_of(0..4096), (FAST - RESERVE / 8) as usize);
    // Small writes may take all of it, and then they go to the slow tier.
    for c in 0..RESERVE as u64 {
        g.request((5000 + c * 9) * 128 * 1024, 4096, true);
    }
    assert_eq!(g.w.free_fast(), 0);
}

#[test]
fn a_copy_leaves_more_of_the_reserve_than_new_data_do() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    for c in 0..1000u64 {
        g.pass(4000 + c..4001 + c, false);
        g.pass(9000 + c..9001 + c, true);
    }
    assert_eq!(g.w.free_fast(), RESERVE * 5 / 8);
    // What is written without anything being read is no copy, though it takes a while to be sure.
    g.pass(11_000..11_500, true);
    g.pass(12_000..13_000, true);
    assert_eq!(g.w.free_fast(), RESERVE / 8);
}

#[test]
fn a_stream_that_went_to_the_slow_tier_stays_there_while_slots_trickle_in() {
    let mut g = group();
    g.pass(0..3000, true);
    let before = g.fast_of(0..3000);
    for c in 3000..4000u64 {
        g.pass(c..c + 1, true);
        if c % 10 == 0 {
            // The mover frees a few.
            for v in g.policy.victims(&mut g.w, 1) {
                g.w.reserve = RESERVE;
                g.demote(v);
            }
        }
    }
    assert_eq!(g.fast_of(3000..4000), 0);
    assert!(g.fast_of(0..3000) < before);
}

#[test]
fn the_reserve_is_back_soon_after_a_burst() {
    let mut g = group();
    g.pass(0..4096, true);
    let missing = RESERVE - g.w.free_fast();
    g.quiet(Duration::from_millis(200) + Duration::from_millis(2) * missing);
    assert!(g.w.free_fast() >= RESERVE);
    g.quiet(10 * SECOND);
    // And then it rests: a plan a minute.
    let (moved, plans) = (g.demoted + g.promoted, g.plans);
    g.quiet(600 * SECOND);
    assert_eq!(g.demoted + g.promoted, moved);
    assert!(g.plans - plans <= 11, "{}", g.plans - plans);
}

#[test]
fn where_nothing_new_comes_less_of_the_reserve_is_free_and_all_of_it_after_a_burst() {
    let mut g = group();
    g.pass(0..4096, true);
    g.quiet(20 * SECOND);
    assert_eq!(g.w.keep_free(), RESERVE);
    use_system(&mut g, 40_000);
    g.step(false);
    assert_eq!(g.w.keep_free(), RESERVE / 8);
    // Twice what comes, and no more than all. What replaces a whole chunk of the slow tier would go where new data go.
    let chunk = |i: u64| ChunkId(5000 + 9 * i);
    for i in 0..1000 {
        g.request(chunk(i).0 * CHUNK, 4096, true);
    }
    use_system(&mut g, 40_000);
    let slow: Vec<ChunkId> = (0..1000).map(chunk).filter(|c| g.w.tier_of(*c) == Some(Tier::Slow)).collect();
    for (from, births, free) in [(0, 100, 200), (100, 100, 400), (200, 200, RESERVE)] {
        for c in &slow[from..from + births] {
            let touch = Touch { chunk: *c, write: true, offset_in_group: c.0 * CHUNK, len: CHUNK, born: false };
            g.policy.touch(&mut g.w, &touch);
        }
        g.step(false);
        assert_eq!(g.w.keep_free(), free);
    }
    // What is known is forgotten when the fast tier changes.
    use_system(&mut g, 40_000);
    g.step(false);
    assert_eq!(g.w.keep_free(), RESERVE / 8);
    g.policy.resized(FAST);
    g.step(false);
    assert_eq!(g.w.keep_free(), RESERVE);
}

#[test]
fn a_stream_leaves_half_of_what_is_free_to_small_writes_where_few_new_data_came() {
    let mut g = group();
    g.pass(0..4096, true);
    g.quiet(20 * SECOND);
    use_system(&mut g, 40_000);
    g.step(false);
    assert_eq!((g.w.keep_free(), g.w.copies.len()), (RESERVE / 8, 0));
    g.pass(5000..5000 + 2 * u64::from(RESERVE), true);
    assert_eq!(g.w.free_fast(), RESERVE / 16);
}

#[test]
fn a_range_read_twice_is_promoted_as_a_whole() {
    for (start, late) in [(6000, false), (6003, true)] {
        let mut g = group();
        g.pass(0..8000, true);
        g.quiet(20 * SECOND);
        if late {
            // Nothing is known of the range, as after the loss of its heat.
            for c in start..start + 500 {
                let cold = g.policy.restore(0, 0);
                g.w.set_heat(ChunkId(c), cold);
            }
        }
        assert_eq!(g.pass(start..start + 500, false), 0);
        if late {
            g.quiet(30 * SECOND);
            assert!(g.fast_of(start..start + 500) < 100, "one pass is not enough");
        }
        g.pass(start..start + 500, false);
        g.quiet(30 * SECOND);
        assert_eq!(g.pass(start..start + 500, false), 500);
        assert!(g.w.free_fast() >= RESERVE, "promotions do not take the reserve");
    }
}

#[test]
fn a_range_read_twice_in_4_kib_requests_is_promoted_too() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    for _ in 0..2 {
        for b in 0..300 * 32 {
            g.request(6000 * 128 * 1024 + b * 4096, 4096, false);
        }
    }
    g.quiet(30 * SECOND);
    assert_eq!(g.fast_of(6000..6300), 300);
}

#[test]
fn after_a_write_of_twice_the_fast_tier_a_range_used_again_is_promoted_within_a_minute() {
    // PITFALLS 15, REFERENCE F9: Fusion stopped migrating here until it was restarted.
    let mut g = group();
    g.pass(0..2 * u64::from(FAST), true);
    let range = 2000..2000 + 512;
    g.quiet(5 * SECOND);
    for write in [false, false] {
        g.pass(range.clone(), write);
    }
    g.quiet(50 * SECOND);
    assert_eq!(g.fast_of(range), 512);
}

#[test]
fn writes_count_like_reads() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    for round in 0..2 {
        for i in 0..200u64 {
            g.request((6000 + (i * 77) % 200 * 5) * 128 * 1024 + round * 8192, 4096, true);
        }
        g.quiet(3 * SECOND);
    }
    g.quiet(20 * SECOND);
    assert_eq!((0..200).filter(|i| g.w.tier_of(ChunkId(6000 + i * 5)) == Some(Tier::Fast)).count(), 200);
}

#[test]
fn a_film_does_not_evict_the_system() {
    let mut g = group_with_system();
    // 1 GiB of films, copied in and seen.
    g.pass(2000..10_000, true);
    g.quiet(60 * SECOND);
    for start in [2000, 4000, 6000, 8000] {
        g.pass(start..start + 2000, false);
        g.quiet(60 * SECOND);
    }
    assert!(g.fast_of(0..1024) >= 1014, "{}", g.fast_of(0..1024));
    assert!(use_system(&mut g, 2000) >= 98);
}

#[test]
fn repeated_scans_of_everything_promote_next_to_nothing() {
    let mut g = group_with_system();
    g.pass(2000..16_000, true);
    g.quiet(60 * SECOND);
    let before = g.promoted;
    for _ in 0..6 {
        g.pass(0..16_000, false);
        g.quiet(60 * SECOND);
        use_system(&mut g, 1000);
    }
    // At most the part of the reserve that nothing new asks for is filled, once.
    assert!(g.promoted - before < u64::from(RESERVE), "{}", g.promoted - before);
    assert!(g.fast_of(0..1024) >= 1014, "{}", g.fast_of(0..1024));
}

#[test]
fn a_small_hot_set_among_cold_data_moves_up() {
    let mut g = group();
    g.pass(0..12_000, true);
    g.quiet(20 * SECOND);
    let hot = 9000..9500;
    for _ in 0..5000 {
        g.random(hot.clone(), false);
        g.random(0..12_000, false);
        g.w.now = g.w.now.plus(Duration::from_millis(2));
    }
    g.quiet(30 * SECOND);
    assert!(g.fast_of(hot.clone()) >= 490, "{}", g.fast_of(hot));
}

#[test]
fn when_the_hot_set_shifts_the_new_one_takes_over() {
    let mut g = group();
    g.pass(0..12_000, true);
    let mut hot = 5000..6000;
    for round in 0..2 {
        for _ in 0..60 {
            for _ in 0..2000 {
                g.random(hot.clone(), round == 1);
                g.w.now = g.w.now.plus(Duration::from_millis(4));
            }
            g.quiet(3 * SECOND);
        }
        assert!(g.fast_of(hot.clone()) >= 980, "round {round}: {}", g.fast_of(hot.clone()));
        hot = 9000..10_000;
    }
    // No thrashing: the two sets were promoted about once.
    assert!(g.promoted < 4000, "{}", g.promoted);
}

#[test]
fn a_cache_hint_promotes() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    for c in 7000..7100 {
        g.policy.hint(&mut g.w, ChunkId(c));
    }
    g.quiet(10 * SECOND);
    assert_eq!(g.fast_of(7000..7100), 100);
}

#[test]
fn a_full_group_still_exchanges_chunks() {
    let mut g = Toy::new(FAST, SLOW, RESERVE);
    let volume = u64::from(FAST + SLOW) - 64;
    g.pass(0..volume, true);
    g.quiet(60 * SECOND);
    let hot = volume - 300..volume;
    for _ in 0..6000 {
        g.random(hot.clone(), false);
        g.w.now = g.w.now.plus(Duration::from_millis(4));
    }
    g.quiet(120 * SECOND);
    assert!(g.fast_of(hot.clone()) >= 290, "{}", g.fast_of(hot));
}

#[test]
fn heat_survives_a_restart() {
    let mut g = group_with_system();
    g.pass(2000..9000, true);
    g.quiet(60 * SECOND);
    let (clock, at) = (g.policy.clock(), g.policy.octave());
    let saved: Vec<u8> = (0..9000).map(|c| g.policy.coarse(g.w.heat(ChunkId(c)))).collect();
    g.policy = super::HeadTime::new(FAST);
    g.policy.restore_clock(clock);
    for (c, coarse) in saved.iter().enumerate() {
        let heat = g.policy.restore(*coarse, at);
        g.w.set_heat(ChunkId(c as u64), heat);
    }
    g.pass(9000..16_000, true);
    g.quiet(60 * SECOND);
    assert!(g.fast_of(0..1024) >= 1000, "{}", g.fast_of(0..1024));
}

#[test]
fn victims_are_found_while_the_reserve_is_short_even_if_everything_is_hot() {
    let mut g = group();
    for c in 0..u64::from(FAST) {
        g.request(c * 128 * 1024 * 3 % (18_000 * 128 * 1024), 4096, true);
    }
    for _ in 0..20_000 {
        g.random(0..6144, false);
        g.w.now = g.w.now.plus(Duration::from_millis(1));
    }
    g.w.reserve = RESERVE;
    let mut calls = 0;
    while g.w.free_fast() < RESERVE {
        let v = g.policy.victims(&mut g.w, 8);
        calls += 1;
        assert!(calls < 1000, "stuck with {} free", g.w.free_fast());
        for c in v {
            g.demote(c);
        }
    }
}

#[test]
fn chunks_given_up_come_again_a_bounded_number_of_times() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    g.pass(6000..6100, false);
    g.pass(6000..6100, false);
    let mut offered = std::collections::HashMap::new();
    for _ in 0..2000 {
        for c in g.policy.candidates(&mut g.w, 64) {
            g.policy.gave_up(&mut g.w, c);
            *offered.entry(c).or_insert(0) += 1;
        }
        g.w.now = g.w.now.plus(Duration::from_millis(100));
    }
    assert!((6000..6100).all(|c| (2..=4).contains(&offered[&ChunkId(c)])), "{offered:?}");
    assert_eq!(g.policy.candidate_count(), 0);
}

#[test]
fn requests_that_overtake_each_other_change_nothing() {
    let mut g = group();
    g.pass(0..8000, true);
    g.quiet(20 * SECOND);
    for _ in 0..2 {
        for c in 6000..6512u64 {
            g.request((c ^ 1) * 128 * 1024, 128 * 1024, false);
        }
    }
    g.quiet(30 * SECOND);
    assert_eq!(g.fast_of(6000..6512), 512);
}

#[test]
fn four_streams_at_once_leave_a_part_of_the_reserve() {
    // In requests of a chunk, of 4 KiB, and of 4 MiB, whose chunks are all placed before the first is counted.
    for (parts, together) in [(1, 1), (32, 1), (1, 32)] {
        let mut g = group();
        for c in (0..1024u64).step_by(together) {
            for k in 0..4 {
                let first = k * 4000 + c;
                g.place_all(first..first + together as u64);
                for part in 0..parts * together as u64 {
                    let len = 128 * 1024 / parts;
                    g.request(first * 128 * 1024 + part * len, len, true);
                }
            }
        }
        assert_eq!(g.w.free_fast(), RESERVE / 8, "{parts} {together}");
    }
}

#[test]
fn a_file_that_spilled_to_the_slow_tier_moves_up_once_it_is_read() {
    // It was written once and read once; what leaves for it was only written.
    let mut g = group();
    g.pass(0..12_000, true);
    g.quiet(20 * SECOND);
    g.pass(7000..7400, false);
    g.quiet(20 * SECOND);
    assert!(g.fast_of(7000..7400) >= 390, "{}", g.fast_of(7000..7400));
}

#[test]
fn a_range_inside_a_large_file_read_at_random_moves_up_after_two_passes() {
    // REFERENCE B9, G4: Fusion needed 34 passes.
    let mut g = group();
    g.pass(0..14_000, true);
    g.quiet(20 * SECOND);
    for _ in 0..2 {
        for i in 0..600u64 {
            g.request((9000 + i * 7 % 600) * 128 * 1024, 4096, false);
        }
        g.quiet(3 * SECOND);
    }
    g.quiet(20 * SECOND);
    assert!(g.fast_of(9000..9600) >= 590, "{}", g.fast_of(9000..9600));
}
