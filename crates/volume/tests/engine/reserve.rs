//! The reserve: new data in small writes find it, though most of it holds chunks that serve reads meanwhile.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions, Status};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{make, open, pass, read, small, stop, write};
use crate::memory::{MemoryDevice, MemoryEnv};

/// Whether a chunk lives on the fast tier, and its place on the slow one is kept.
pub(crate) fn has_copy(v: &Volume<MemoryEnv>, chunk: u64) -> bool {
    v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].tier == 3
}

pub(crate) fn is_fast(v: &Volume<MemoryEnv>, chunk: u64) -> bool {
    v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].tier != 2
}

pub(crate) fn millis(env: &MemoryEnv, n: u64) {
    let sleep = env.sleep(Duration::from_millis(n));
    env.block_on(sleep);
}

/// A group of 64 and 256 MiB with the usual reserve, on devices that take their time.
pub(crate) fn create(env: &MemoryEnv) -> [MemoryDevice; 2] {
    let mut devices = [64, 256].map(|mib| MemoryDevice::new(mib << 20));
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
    let options = CreateOptions {
        reserve: None,
        ..small(vec![NewVolume { name: "main".into(), size: None, placement: Placement::Auto }])
    };
    make(env, members, options);
    devices
}

/// Visits chunks of a list in no order that looks like a stream.
pub(crate) fn visit(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: &[u64]) {
    for i in 0..chunks.len() {
        let c = chunks[i * 61 % chunks.len()];
        read(env, v, c * CHUNK + 8192, 4096).expect("read");
        millis(env, 5);
    }
}

pub(crate) fn byte(chunk: u64) -> u8 {
    (chunk % 250) as u8 + 1
}

/// A group whose fast tier is full but for the reserve, with chunks that came up and keep their places: these. Chunks below 200 are
/// free, those from 200 to 900 are written.
fn come_up(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) -> Vec<u64> {
    let cold = come_up_with(env, v, |c| vec![byte(c); CHUNK as usize]);
    assert!(g.status().mover.kept > 80, "{:?}", g.status().mover);
    cold.into_iter().filter(|c| is_fast(v, *c)).collect()
}

/// The same with such contents; and these chunks were asked to come up.
pub(crate) fn come_up_with(env: &MemoryEnv, v: &Volume<MemoryEnv>, content: impl Fn(u64) -> Vec<u8>) -> Vec<u64> {
    (0..900).for_each(|c| write(env, v, c * CHUNK, &content(c)).expect("write"));
    pass(env, 60);
    let trimmed = v.clone();
    env.block_on(async move { trimmed.trim(0, 200 * CHUNK, WriteFlags::default()).await.expect("trim") });
    pass(env, 10);
    let cold: Vec<u64> = (200..900).filter(|c| !is_fast(v, *c)).take(150).collect();
    visit(env, v, &cold);
    pass(env, 60);
    cold
}

/// The same, and others are used than what came up.
fn with_copies(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) {
    let up = come_up(env, g, v);
    // It is not as if they had just been used.
    let others: Vec<u64> = (200..900).filter(|c| is_fast(v, *c) && !up.contains(c)).collect();
    (0..80).for_each(|_| visit(env, v, &others));
    // As much new data as leaves a third of the reserve free: more of it is asked for than that, so the rest has to be had at once.
    let room = (g.status().fast_free.saturating_sub(g.status().reserve / 3)) / CHUNK;
    (1000..1000 + room).for_each(|c| write(env, v, c * CHUNK, &[byte(c); CHUNK as usize]).expect("write"));
    pass(env, 60);
}

#[test]
fn small_new_data_find_the_whole_reserve_though_most_of_it_holds_other_chunks() {
    let env = MemoryEnv::new();
    let g = open(&env, &create(&env), OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    with_copies(&env, &g, &v);
    let before = g.status();
    let free = |s: &Status| s.fast_free / CHUNK;
    let reserve = before.reserve / CHUNK;
    assert!(before.keep_free * 2 < before.reserve && free(&before) < reserve * 2 / 3, "{before:?}");
    let new: Vec<u64> = (0..reserve).map(|i| i * 61 % 200).collect();
    // The disk is never quiet, so the mover has no time to copy.
    let mut busy = (200..900).filter(|c| !is_fast(&v, *c)).collect::<Vec<u64>>().into_iter().cycle();
    for c in &new {
        write(&env, &v, c * CHUNK, &[byte(*c); 4096]).expect("write");
        for at in busy.by_ref().take(3) {
            read(&env, &v, at * CHUNK, 4096).expect("read");
            millis(&env, 2);
        }
    }
    let after = g.status();
    let fast = new.iter().filter(|c| is_fast(&v, **c)).count() as u64;
    assert!(fast + 2 >= reserve, "{fast} of {reserve} are on the fast tier: {:?}", after.mover);
    assert!(after.mover.let_go > 0, "{:?}", after.mover);
    pass(&env, 60);
    assert!(g.status().fast_free >= g.status().keep_free, "{:?}", g.status().mover);
    for c in (200..900).chain(new) {
        let data = read(&env, &v, c * CHUNK, 4096).expect("read");
        assert!(data.iter().all(|b| *b == byte(c)), "chunk {c}");
    }
    stop(&env, g).expect("orderly stop");
}

#[test]
fn what_came_up_and_is_used_stands_for_nothing() {
    let env = MemoryEnv::new();
    let g = open(&env, &create(&env), OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let up = come_up(&env, &g, &v);
    (0..80).for_each(|_| visit(&env, &v, &up));
    pass(&env, 60);
    let s = g.status();
    assert!(s.mover.kept as usize >= up.len() && s.room_at_once * 10 <= s.reserve, "{s:?}");
    assert!(s.fast_free >= s.keep_free, "{s:?}");
    stop(&env, g).expect("orderly stop");
}

#[test]
fn most_of_it_is_in_use_while_nothing_new_comes_and_it_comes_back_with_new_data() {
    let env = MemoryEnv::new();
    let g = open(&env, &create(&env), OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (200..900).for_each(|c| write(&env, &v, c * CHUNK, &[byte(c); CHUNK as usize]).expect("write"));
    pass(&env, 60);
    let before = g.status();
    assert!(before.keep_free == before.reserve && before.fast_free >= before.reserve, "{before:?}");
    // More is used than there is room for beside the reserve.
    let used: Vec<u64> = (200..900).collect();
    (0..20).for_each(|_| visit(&env, &v, &used));
    pass(&env, 60);
    let quiet = g.status();
    assert_eq!(quiet.keep_free / CHUNK, (before.reserve / CHUNK / 8).max(1), "{quiet:?}");
    // New data ask for more, and get all of it back.
    for c in (0..before.reserve / CHUNK).map(|i| i * 61 % 200) {
        write(&env, &v, c * CHUNK, &[byte(c); 4096]).expect("write");
        millis(&env, 5);
    }
    pass(&env, 60);
    let after = g.status();
    assert!(after.keep_free + after.room_at_once >= after.reserve, "{after:?}");
    assert!(after.fast_free >= after.keep_free && after.keep_free > quiet.keep_free, "{after:?}");
    for c in (200..900).chain((0..before.reserve / CHUNK).map(|i| i * 61 % 200)) {
        let data = read(&env, &v, c * CHUNK, 4096).expect("read");
        assert!(data.iter().all(|b| *b == byte(c)), "chunk {c}");
    }
    stop(&env, g).expect("orderly stop");
}

#[test]
fn new_data_find_it_also_while_the_mover_waits_for_something_else() {
    let env = MemoryEnv::new();
    let devices = create(&env);
    let g = open(&env, &devices, OpenOptions::default()).expect("opens");
    with_copies(&env, &g, &g.volume("main").expect("made at creation"));
    stop(&env, g).expect("orderly stop");
    // Nothing may be promoted, and so the mover waits for as long as an SSD needs for a share of its life.
    let options = OpenOptions { promotion_burst: 0, ..OpenOptions::default() };
    let g = open(&env, &devices, options).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let cold: Vec<u64> = (200..900).filter(|c| !is_fast(&v, *c)).take(40).collect();
    for _ in 0..3 {
        visit(&env, &v, &cold);
        millis(&env, 500);
    }
    let before = g.status();
    assert!(before.mover.candidates > 0 && before.mover.doing.contains("sparing"), "{:?}", before.mover);
    for c in (0..before.reserve / CHUNK).map(|i| i * 61 % 200) {
        write(&env, &v, c * CHUNK, &[byte(c); 4096]).expect("write");
        // Later it may be moved down: the disk is quiet.
        assert!(is_fast(&v, c), "{:?}", g.status());
        millis(&env, 5);
    }
    assert!(g.status().mover.let_go > 0, "{:?}", g.status().mover);
    stop(&env, g).expect("orderly stop");
}

/// More new chunks than the reserve has.
const NEW: std::ops::Range<u64> = 1100..1450;

/// Of so many new chunks that come one after another, those that find a place on the fast tier, in a group with many free slots there and
/// cold data below, which were read in one go before or not; and how many of those came up by that.
fn new_after_a_stream(read_before: bool) -> (usize, usize) {
    let env = MemoryEnv::new();
    let g = open(&env, &create(&env), OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (200..1000).for_each(|c| write(&env, &v, c * CHUNK, &[byte(c); CHUNK as usize]).expect("write"));
    pass(&env, 60);
    let (used, gone): (Vec<u64>, Vec<u64>) = (200..1000).filter(|c| is_fast(&v, *c)).partition(|c| c % 8 == 0);
    for c in gone {
        let trimmed = v.clone();
        env.block_on(async move { trimmed.trim(c * CHUNK, CHUNK, WriteFlags::default()).await.expect("trim") });
    }
    // Until births and the heat of what lies below are forgotten.
    (0..12_000 / used.len()).for_each(|_| visit(&env, &v, &used));
    let below: Vec<u64> =
        (200..1000).filter(|c| v.extents(c * CHUNK, CHUNK, 1).expect("inside")[0].tier == 2).collect();
    if read_before {
        below.iter().for_each(|c| drop(read(&env, &v, c * CHUNK, CHUNK).expect("read")));
        pass(&env, 60);
    }
    let up = below.iter().filter(|c| is_fast(&v, **c)).count();
    for c in NEW {
        write(&env, &v, c * CHUNK, &[byte(c); CHUNK as usize]).expect("write");
    }
    let new = NEW.filter(|c| is_fast(&v, *c)).count();
    pass(&env, 60);
    for c in below.into_iter().chain(used).chain(NEW) {
        let data = read(&env, &v, c * CHUNK, 4096).expect("read");
        assert!(data.iter().all(|b| *b == byte(c)), "chunk {c}");
    }
    assert!(!read_before || g.status().mover.let_go > 0, "{:?}", g.status().mover);
    stop(&env, g).expect("orderly stop");
    (new, up)
}

#[test]
fn what_was_read_in_one_go_fills_free_slots_and_makes_way_for_new_data() {
    let [(without, none), (with, up)] = [false, true].map(new_after_a_stream);
    assert!(none == 0 && up > 250, "{none} and {up} came up");
    assert!(with >= without && without > 300, "{with} new chunks, {without} without what fills");
}
