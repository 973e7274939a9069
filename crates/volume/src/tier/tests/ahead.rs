//! Streams that come to the slow tier in a moment.

use std::time::Duration;

use super::{group, FAST, SECOND};
use crate::tier::toy::Toy;
use crate::tier::Policy;
use crate::units::CHUNK;

/// The first chunk of the slow tier in [`split`].
const BELOW: u64 = 1000;

/// A group with a file that lies on the fast tier up to [`BELOW`], and on the slow one from there on.
fn split() -> Toy {
    let mut g = group();
    g.w.reserve = 0;
    g.pass(0..BELOW, true);
    // What fills the fast tier sends the rest of the file to the slow one.
    g.pass(4000..4000 + u64::from(FAST) - BELOW, true);
    g.pass(BELOW..2000, true);
    assert_eq!((g.fast_of(0..BELOW), g.fast_of(BELOW..2000)), (BELOW as usize, 0));
    g.w.now = g.w.now.plus(60 * SECOND);
    g
}

/// Reads chunks one after the other, so many in a second. The first at which a stream is seen to come.
fn reads(g: &mut Toy, chunks: std::ops::Range<u64>, in_a_second: u32) -> Option<u64> {
    let mut first = None;
    for c in chunks {
        g.w.now = g.w.now.plus(SECOND / in_a_second);
        g.request(c * CHUNK, CHUNK, false);
        first = first.or(g.policy.stream_comes(g.w.now).then_some(c));
    }
    first
}

#[test]
fn a_fast_stream_is_seen_to_come_a_moment_before_and_no_earlier() {
    let first = reads(&mut split(), 0..BELOW, 400).unwrap();
    assert!((BELOW - 110..BELOW - 80).contains(&first), "{first}");
}

#[test]
fn a_slow_one_is_not_awaited() {
    assert_eq!(reads(&mut split(), 0..BELOW, 40), None);
}

#[test]
fn nor_is_one_that_stays_on_the_fast_tier() {
    assert_eq!(reads(&mut split(), 0..BELOW / 2, 400), None);
}

#[test]
fn one_that_has_ended_is_forgotten() {
    let mut g = split();
    assert!(reads(&mut g, 0..BELOW - 50, 400).is_some());
    g.w.now = g.w.now.plus(Duration::from_millis(1900));
    assert!(g.policy.stream_comes(g.w.now));
    g.w.now = g.w.now.plus(Duration::from_millis(200));
    assert!(!g.policy.stream_comes(g.w.now));
}
