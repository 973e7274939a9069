//! Moves wait for a stream that is about to come to the slow tier.

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;

use crate::image::{open, pass, read, stop, write};
use crate::memory::MemoryEnv;
use crate::reserve::{byte, create, is_fast, millis, visit};

/// What is written: more than the fast tier holds.
const FILE: std::ops::Range<u64> = 0..900;
/// Its first chunks, which make room for promotions; what follows is on the fast tier, and the rest on the slow one.
const TRIMMED: u64 = 260;
/// Chunks that a stream reads, and chunks of the slow tier that are wanted after that.
const READ: u64 = 140;
const WANTED: u64 = 40;

/// Chunks that came up in the second after they were used, and in the end, where a stream has just been read that ended near
/// the first chunk of the slow tier or far from it.
fn come_up_after_a_stream(near: bool) -> (u64, u64) {
    let env = MemoryEnv::new();
    let g = open(&env, &create(&env), OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    FILE.for_each(|c| write(&env, &v, c * CHUNK, &[byte(c); CHUNK as usize]).expect("write"));
    pass(&env, 60);
    let below = TRIMMED + (TRIMMED..FILE.end).take_while(|c| is_fast(&v, *c)).count() as u64;
    assert!((TRIMMED + READ + 60..FILE.end - 200).contains(&below), "up to {below} on the fast tier");
    let trimmed = v.clone();
    env.block_on(async move { trimmed.trim(0, TRIMMED * CHUNK, WriteFlags::default()).await.expect("trim") });
    pass(&env, 60);
    let before = g.status().mover.promoted;
    let first = if near { below - READ - 5 } else { TRIMMED };
    for c in first..first + READ {
        read(&env, &v, c * CHUNK, CHUNK).expect("read");
        millis(&env, 5);
    }
    let wanted: Vec<u64> = (FILE.end - 2 * WANTED..FILE.end).step_by(2).filter(|c| !is_fast(&v, *c)).collect();
    assert_eq!(wanted.len() as u64, WANTED);
    visit(&env, &v, &wanted);
    millis(&env, 1000);
    let soon = g.status().mover.promoted - before;
    pass(&env, 60);
    let up = wanted.iter().filter(|c| is_fast(&v, **c)).count() as u64;
    for c in TRIMMED..FILE.end {
        let data = read(&env, &v, c * CHUNK, 4096).expect("read");
        assert!(data.iter().all(|b| *b == byte(c)), "chunk {c}");
    }
    stop(&env, g).expect("orderly stop");
    (soon, up)
}

#[test]
fn the_disk_is_kept_clear_for_a_stream_that_is_about_to_come_to_it() {
    let [near, far] = [true, false].map(come_up_after_a_stream);
    assert!(near.0 == 0 && far.0 > WANTED / 2, "at once {} and {}", near.0, far.0);
    assert!(near.1 + 2 >= WANTED && far.1 + 2 >= WANTED, "in the end {} and {}", near.1, far.1);
}
