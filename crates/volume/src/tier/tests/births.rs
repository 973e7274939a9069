//! What new data weigh.

use std::time::Duration;

use super::{group, FAST};
use crate::tier::toy::Toy;
use crate::tier::{Policy, View};
use crate::units::{ChunkId, CHUNK};

/// How warm a chunk counts, 0 to 15.
fn level(g: &Toy, chunk: u64) -> u8 {
    g.policy.heat_level(g.w.heat(ChunkId(chunk)))
}

#[test]
fn the_beginning_of_a_new_stream_is_as_cold_as_the_rest() {
    let mut g = group();
    g.pass(0..200, true);
    assert_eq!((0..200).map(|c| level(&g, c)).max(), Some(level(&g, 190)));
    // Small new files are warmer than that.
    g.request(1000 * CHUNK, 4096, true);
    assert!(level(&g, 1000) > level(&g, 190));
}

#[test]
fn new_data_age_older_data_even_in_streams() {
    let mut g = group();
    g.request(6000 * CHUNK, 4096, true);
    let fresh = level(&g, 6000);
    g.pass(10_000..10_000 + 4 * u64::from(FAST), true);
    assert!(level(&g, 6000) < fresh);
}

#[test]
fn small_new_data_that_nobody_comes_back_for_weigh_less_and_less() {
    let mut g = group();
    let mut levels = Vec::new();
    for i in 0..4000u64 {
        let chunk = 1000 + i * 4;
        g.request(chunk * CHUNK, 4096, true);
        levels.push(level(&g, chunk));
        if i % 64 == 0 {
            g.quiet(Duration::from_secs(10));
        }
    }
    assert!(levels.is_sorted_by(|a, b| a >= b) && levels[0] > levels[3999], "{levels:?}");
}
