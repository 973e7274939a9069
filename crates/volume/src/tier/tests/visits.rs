//! What counts as a visit.

use std::time::Duration;

use super::{group, FAST};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View};
use crate::units::{ChunkId, Tier, CHUNK};

const CHUNK_READ: u64 = 9000;

/// A group with a chunk that was read once, and how warm that made it.
fn read_once(block: u64) -> (Toy, u16) {
    let mut g = group();
    g.pass(0..10_000, true);
    g.w.now = g.w.now.plus(Duration::from_secs(60));
    let cold = g.policy.restore(0, 0);
    g.w.set_heat(ChunkId(CHUNK_READ), cold);
    read(&mut g, block);
    let heat = g.w.heat(ChunkId(CHUNK_READ));
    (g, heat)
}

fn read(g: &mut Toy, block: u64) {
    g.request(CHUNK_READ * CHUNK + block * 4096, 4096, false);
}

/// 128ths of an octave that the chunk has become warmer since.
fn warmer(g: &Toy, since: u16) -> u16 {
    g.w.heat(ChunkId(CHUNK_READ)).wrapping_sub(since)
}

#[test]
fn a_walk_through_a_chunk_is_one_visit_however_slow() {
    let (mut g, heat) = read_once(0);
    for block in 1..32 {
        g.w.now = g.w.now.plus(Duration::from_secs(5));
        read(&mut g, block);
    }
    assert_eq!(warmer(&g, heat), 0);
}

#[test]
fn of_touches_that_seek_in_one_moment_four_are_a_visit() {
    let (mut g, heat) = read_once(31);
    for block in [24, 16, 8, 0] {
        read(&mut g, block);
    }
    // Two visits: an octave.
    assert!((112..=144).contains(&warmer(&g, heat)), "{}", warmer(&g, heat));
    g.w.now = g.w.now.plus(Duration::from_secs(5));
    read(&mut g, 3);
    // Three.
    assert!((184..=224).contains(&warmer(&g, heat)), "{}", warmer(&g, heat));
}

#[test]
fn a_file_that_is_read_as_a_whole_stays_equally_warm_everywhere() {
    let mut g = group();
    g.pass(0..10_000, true);
    let file = CHUNK_READ..CHUNK_READ + 16;
    for _ in 0..60 {
        g.w.now = g.w.now.plus(Duration::from_secs(60));
        g.pass(file.clone(), false);
    }
    let heats: Vec<u16> = file.map(|c| g.w.heat(ChunkId(c))).collect();
    let (least, most) = (heats.iter().min().expect("some"), heats.iter().max().expect("some"));
    // In 128ths of an octave: what is taken back each time a run doubles is rounded.
    assert!(most - least <= 4, "{heats:?}");
}

#[test]
fn a_chunk_that_sleeps_for_ever_is_never_taken_for_a_hot_one() {
    let mut g = Toy::new(256, 4096, 0);
    // The last of them find no room on the fast tier.
    g.pass(0..300, true);
    let sleepers = [7, 290].map(ChunkId);
    assert_eq!(sleepers.map(|c| g.w.tier_of(c)), [Some(Tier::Fast), Some(Tier::Slow)]);
    // Heats come round after 512 octaves. A few visits for each of them, instead of the thousands that there are.
    let mut hottest = 0;
    for octave in 0..1200 {
        g.policy.restore_clock(g.policy.clock() + (1 << 32));
        for c in 100..228 {
            g.w.now = g.w.now.plus(Duration::from_secs(1));
            g.request(c * CHUNK, 4096, false);
        }
        if octave > 20 {
            hottest = sleepers.iter().fold(hottest, |hottest, c| hottest.max(g.policy.heat_level(g.w.heat(*c))));
        }
    }
    assert_eq!(hottest, 0);
}

/// How much colder, in 128ths of an octave, a run of so many chunks leaves each of them than a visit of one alone; the least and
/// the most.
fn colder(chunks: u64, request: u64) -> (i32, i32) {
    let (mut g, alone) = read_once(9);
    let cold = g.policy.restore(0, 0);
    let run = 9200..9200 + chunks;
    run.clone().for_each(|c| g.w.set_heat(ChunkId(c), cold));
    let first = run.start * CHUNK;
    (0..chunks * CHUNK / request).for_each(|n| {
        g.request(first + n * request, request, false);
    });
    let less: Vec<i32> = run.map(|c| i32::from(alone.wrapping_sub(g.w.heat(ChunkId(c))) as i16)).collect();
    (less.iter().copied().min().expect("some"), less.iter().copied().max().expect("some"))
}

#[test]
fn the_longer_a_run_the_less_a_visit_of_each_of_its_chunks_counts() {
    for request in [CHUNK, 4096] {
        for (chunks, less) in [(1, 0), (2, 32), (8, 96), (32, 160)] {
            let (least, most) = colder(chunks, request);
            assert!(least >= less - 4 && most <= less + 4, "{chunks} by {request}: {least} to {most}, not {less}");
        }
    }
}

#[test]
fn what_was_counted_before_a_run_is_not_taken_back_with_it() {
    let (mut g, _) = read_once(9);
    let c = ChunkId(9203);
    let hot = g.policy.heat_of_visits(8);
    g.w.set_heat(c, hot);
    g.pass(9200..9216, false);
    let (most, now) = (g.policy.heat_of_visits(9), g.w.heat(c));
    assert!((hot..most).contains(&now), "{now}, not from {hot} to {most}");
}

#[test]
fn while_the_slow_tier_has_to_serve_what_is_used_the_past_fades_twice_as_fast() {
    let mut g = group();
    g.pass(0..10_000, true);
    let mut passes = |c: u64| {
        let before = g.policy.clock();
        g.w.now = g.w.now.plus(Duration::from_secs(60));
        let idle = g.policy.clock() - before;
        g.request(c * CHUNK + 4096, 4096, false);
        (g.w.tier_of(ChunkId(c)), g.policy.clock() - before - idle)
    };
    let ((fast, served), (slow, missed)) = (passes(7), passes(9000));
    assert_eq!((fast, slow), (Some(Tier::Fast), Some(Tier::Slow)));
    // The minute itself is in both.
    assert!((missed - served).abs_diff((1 << 32) / (8 * 2048)) < 4, "{served} {missed}");
}

#[test]
fn nothing_is_taken_back_of_visits_that_were_not_counted() {
    let mut g = group();
    g.pass(0..10_000, true);
    g.w.now = g.w.now.plus(Duration::from_secs(60));
    let (first, cold) = (CHUNK_READ - 2, g.policy.restore(0, 0));
    (first..first + 4).for_each(|c| g.w.set_heat(ChunkId(c), cold));
    // A file of four chunks, again and again; the third is entered by a small request, as if by a walk.
    let mut read = || {
        g.w.now = g.w.now.plus(Duration::from_millis(100));
        for (at, len) in
            [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, 4096), (2 * CHUNK + 4096, CHUNK - 4096), (3 * CHUNK, CHUNK)]
        {
            g.request(first * CHUNK + at, len, false);
        }
        g.w.heat(ChunkId(CHUNK_READ))
    };
    let once = read();
    let often = (0..100).map(|_| read()).last().expect("it was read");
    // Five times at least, by the longest of the windows.
    assert!((256..1024).contains(&often.wrapping_sub(once)), "{}", often.wrapping_sub(once) as i16);
}

#[test]
fn heat_lasts_as_suits_a_fast_tier_that_has_grown() {
    let octaves = |g: &mut Toy| {
        let before = g.policy.clock();
        for _ in 0..3000 {
            g.random(0..1000, false);
            g.w.now = g.w.now.plus(Duration::from_millis(20));
        }
        g.policy.clock() - before
    };
    let mut g = group();
    g.pass(0..1000, true);
    let small = octaves(&mut g);
    g.policy.resized(8 * FAST);
    let large = octaves(&mut g);
    assert!(large * 7 < small && small < large * 9, "{small} {large}");
}
