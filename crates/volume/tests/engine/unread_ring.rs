//! A part of a journal's ring cannot be read: an erase block of an SSD, or more. That the device has died it does not mean. What matters is
//! where the hole lies: behind the end of the journal nothing is lost.

use std::ops::Range;

use bimetal_volume::group::OpenError;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::CHUNK;

use crate::image::{open, read, read_only, writable, Members};
use crate::lost_journal::{crash, with_ring};
use crate::memory::{MemoryDevice, MemoryEnv};

const CHUNKS: u64 = 8;
const RING: u64 = 1024;

/// A group with so many SSDs that has crashed; each chunk was made durable.
fn crashed(fast: usize) -> Members {
    let m = with_ring(fast, RING as u32);
    crash(&m, CHUNKS, 7);
    m
}

/// How many blocks the journal has.
fn end(d: &MemoryDevice) -> u64 {
    let first = d.layout().journal / 4096;
    d.blocks.borrow().range(first..first + RING).count() as u64
}

/// The same members, and these blocks of a ring cannot be read.
fn with_hole(m: &Members, member: usize, blocks: Range<u64>) -> Members {
    let m = m.copy();
    let first = m.0[member].layout().journal / 4096;
    m.0[member].unread.borrow_mut().extend(blocks.map(|n| (first + n, u32::MAX)));
    m
}

/// How many chunks are as they were written.
fn got(m: &Members, options: OpenOptions) -> Result<u64, OpenError> {
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, options)?;
    let v = g.volume("main").expect("there");
    let whole = |n: &u64| read(&env, &v, n * CHUNK, 4096).is_ok_and(|d| d == [7; 4096]);
    let all = (0..CHUNKS).filter(whole).count() as u64;
    drop((g, v));
    env.kill();
    Ok(all)
}

/// What is wrong, as a repair says.
fn reasons(m: &Members) -> Vec<String> {
    let (env, devices) = (MemoryEnv::new(), m.0.clone());
    let e = env.clone();
    env.block_on(async move { Plan::new(e, devices, false).await }).expect("a plan").reasons()
}

/// Nobody writes; a read-only start and a repair go by the rules for a journal that is damaged in its midst.
fn is_damaged(m: &Members) {
    let why = got(m, writable()).expect_err("not to be served for writing");
    assert!(matches!(why, OpenError::Damaged { .. }), "{why}");
    got(m, read_only()).expect("opens to be read");
    let reasons = reasons(m);
    assert!(reasons.iter().any(|r| r.contains("journal of member 0")), "{reasons:?}");
}

#[test]
fn a_hole_behind_the_end_of_the_journal_costs_nothing() {
    for fast in [1, 2] {
        let whole = crashed(fast);
        for (from, blocks) in [(256, 15), (256, 16), (256, 64), (250, 64), (100, 900), (700, 300)] {
            let of = || with_hole(&whole, 0, from..from + blocks);
            assert_eq!(reasons(&of()), Vec::<String>::new(), "{fast} SSDs, {blocks} blocks from {from}");
            for options in [read_only(), writable()] {
                assert_eq!(got(&of(), options).expect("opens"), CHUNKS, "{fast} SSDs, {blocks} blocks from {from}");
            }
        }
    }
}

#[test]
fn another_ssd_has_what_a_hole_has_taken() {
    let whole = crashed(2);
    for member in 0..2 {
        for hole in [0..64, 3..80, 0..RING] {
            for options in [read_only(), writable()] {
                assert_eq!(got(&with_hole(&whole, member, hole.clone()), options).expect("opens"), CHUNKS, "{hole:?}");
            }
        }
    }
}

#[test]
fn a_hole_where_the_only_journal_may_go_on_is_not_its_end() {
    let whole = crashed(1);
    let end = end(&whole.0[0]);
    for hole in [0..64, 3..80, 0..RING, end..end + 64, end..RING, end - 1..end + 20] {
        is_damaged(&with_hole(&whole, 0, hole));
    }
}

/// Whether a block that has rotted was the last one, what comes behind it tells.
#[test]
fn a_hole_behind_a_rotten_block_is_not_the_end_of_the_only_journal() {
    let whole = crashed(1);
    let end = end(&whole.0[0]);
    whole.0[0].flip(whole.0[0].layout().journal_block(end - 1) + 4095, 1);
    is_damaged(&with_hole(&whole, 0, end..end + 1));
    is_damaged(&with_hole(&whole, 0, end..end + 64));
    assert_eq!(got(&whole.copy(), read_only()).expect("it counts as cut off"), CHUNKS - 1);
    assert_eq!(got(&with_hole(&whole, 0, end + 1..end + 64), writable()).expect("so does this"), CHUNKS - 1);
}

/// A disk tries for seconds before it says that it cannot read.
#[test]
fn a_long_hole_is_not_gone_through_block_by_block() {
    let m = with_hole(&crashed(2), 0, 0..RING);
    assert_eq!(got(&m, read_only()).expect("opens"), CHUNKS);
    assert!(m.0[0].failed_reads.get() < 80, "{} reads failed", m.0[0].failed_reads.get());
}
