//! Everything here is compared with something simpler: naive forms of the algorithms, exhaustive search, sums by hand.

mod baselines;
mod bounds;
mod caches;
mod pieces;
mod replays;

use bimetal_sim::prng::Prng;
use bimetal_volume::units::CHUNK;

use super::*;
use crate::trace::{Access, Op};

/// Chunk numbers in which all that policies know happens: a hot set, a long tail, loops and scans.
fn mixed(seed: u64, chunks: u64, visits: usize) -> Vec<u32> {
    let mut rng = Prng::new(seed);
    let mut out = Vec::new();
    while out.len() < visits {
        let base = rng.below(chunks);
        match rng.below(10) {
            0 => out.extend((0..rng.below(chunks)).map(|i| ((base + i) % chunks) as u32)),
            1 => {
                let (length, times) = (rng.range(2, 6), rng.range(2, 4));
                out.extend((0..length * times).map(|i| ((base + i % length) % chunks) as u32));
            }
            _ => out.extend((0..10).map(|_| (rng.skewed(chunks) - 1) as u32)),
        }
    }
    out.truncate(visits);
    out
}

/// A trace of requests of all sizes on a few chunks, with discards; 10 ms to 3 s apart.
fn requests(seed: u64, chunks: u64, count: usize) -> Vec<Access> {
    let mut rng = Prng::new(seed);
    let mut time_us = 0;
    let mut next = 0;
    let mut out = Vec::new();
    for _ in 0..count {
        time_us += rng.skewed(3_000_000).max(10_000);
        let op = match rng.below(40) {
            0 => Op::Trim,
            1..=15 => Op::Write,
            _ => Op::Read,
        };
        // A third goes on where the last ended.
        let at = if rng.below(3) == 0 { next } else { (rng.skewed(chunks) - 1) * CHUNK + rng.below(32) * 4096 };
        let len = if op == Op::Trim { CHUNK * rng.range(1, 3) } else { rng.skewed(2 * CHUNK).max(512) };
        let offset = if op == Op::Trim { at / CHUNK * CHUNK } else { at };
        let len = len.min((chunks * CHUNK).saturating_sub(offset));
        out.push(Access { time_us, op, offset, len });
        next = (offset + len) % (chunks * CHUNK);
    }
    out
}

fn stream(seed: u64, chunks: u64, count: usize, start: Start) -> Stream {
    Stream::new(requests(seed, chunks, count), start).expect("small enough")
}

/// Reads of whole chunks, far enough apart that each is a visit.
fn reads(chunks: &[u32]) -> Stream {
    let access = |(i, c): (usize, &u32)| Access {
        time_us: i as u64 * 5_000_000,
        op: Op::Read,
        offset: u64::from(*c) * CHUNK,
        len: 4096,
    };
    Stream::new(chunks.iter().enumerate().map(access), Start::Aged).expect("small enough")
}
