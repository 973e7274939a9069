//! Moves beside requests to the same disk, which has one head: evacuations, and promotions that were begun in a quiet moment.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use crate::image;
use crate::image::{create_sized, evacuate, flush, open, pass, stop, used, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// So many chunks of the volume hold data.
const FILLED: u64 = 230 * MIB / CHUNK;

/// What a chunk is filled with: its number, again and again.
fn content(chunk: u64) -> Vec<u8> {
    chunk.to_le_bytes().repeat(CHUNK as usize / 8)
}

/// Fills the chunks, and waits until moves have made room.
fn fill(env: &MemoryEnv, g: &Group<MemoryEnv>) {
    let v = g.volume("main").expect("made at creation");
    for chunk in 0..FILLED {
        write(env, &v, chunk * CHUNK, &content(chunk)).expect("write");
    }
    flush(env, &v).expect("flush");
    pass(env, 60);
}

/// So many of the filled chunks that lie furthest behind on a device: they leave it last.
fn last_on(device: &MemoryDevice, most: usize) -> Vec<u64> {
    let blocks = device.blocks.borrow();
    let of_chunk = |block: &[u8]| {
        let number: [u8; 8] = block[..8].try_into().expect("eight bytes");
        let chunk = u64::from_le_bytes(number);
        (chunk < FILLED && block.chunks(8).all(|word| word == number)).then_some(chunk)
    };
    let mut last: Vec<u64> = blocks.values().rev().filter_map(|b| of_chunk(b)).take(most * 32).collect();
    last.dedup();
    last
}

/// Reads a block of these chunks `requests` times, one after the other; gives what each took.
fn reads(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: &[u64], requests: usize, think: Duration) -> Vec<Duration> {
    let (e, v, chunks, took) = (env.clone(), v.clone(), chunks.to_vec(), Rc::new(RefCell::new(Vec::new())));
    let out = took.clone();
    env.block_on(async move {
        for n in 0..requests {
            let (begun, chunk) = (e.now(), chunks[n * 7 % chunks.len()]);
            let block = (n as u64 * 13) % 31 + 1;
            v.read(chunk * CHUNK + block * 4096, 4096).await.expect("read");
            took.borrow_mut().push(e.now().since(begun));
            e.sleep(think).await;
        }
    });
    let mut took = out.borrow().clone();
    took.sort_unstable();
    took
}

/// One fast member, two slow ones with one head each; most is on the second of those.
fn group(env: &MemoryEnv) -> (image::Members, Group<MemoryEnv>, Vec<u64>) {
    let mut m = create_sized(env, "tank", &[16], &[256, 256], Some(250 * MIB));
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(env, &m.0, writable()).expect("opens");
    fill(env, &g);
    let leaving = (1..3).max_by_key(|i| used(&g, *i)).expect("two");
    let last = last_on(&m.0[leaving], 64);
    m.0[1..].iter().for_each(|d| d.read_takes.set(Duration::from_millis(10)));
    (m, g, last)
}

#[test]
fn an_evacuation_keeps_the_tail_of_requests_to_the_disk_that_is_emptied() {
    let env = MemoryEnv::new();
    let (_m, g, last) = group(&env);
    let v = g.volume("main").expect("made at creation");
    let leaving = (1..3).max_by_key(|i| used(&g, *i)).expect("two");
    let alone = reads(&env, &v, &last, 1000, Duration::ZERO);
    let limit = alone[alone.len() * 99 / 100] * 3 / 2;
    let before = used(&g, leaving);
    evacuate(&env, &g, leaving);
    let beside = reads(&env, &v, &last, 3000, Duration::ZERO);
    let late = beside.iter().filter(|took| **took > limit).count();
    assert!(late <= beside.len() / 100, "{late} of {} took more than {limit:?}", beside.len());
    let gone = before - used(&g, leaving);
    assert!(gone > 30 * MIB / CHUNK, "only {gone} chunks went meanwhile");
    pass(&env, 60);
    assert_eq!(used(&g, leaving), 0, "then it goes on alone");
    stop(&env, g).expect("orderly stop");
}

#[test]
fn between_requests_an_evacuation_has_a_short_queue() {
    let env = MemoryEnv::new();
    let (_m, g, last) = group(&env);
    let v = g.volume("main").expect("made at creation");
    let leaving = (1..3).max_by_key(|i| used(&g, *i)).expect("two");
    let before = used(&g, leaving);
    reads(&env, &v, &last, 1, Duration::from_millis(200));
    evacuate(&env, &g, leaving);
    let beside = reads(&env, &v, &last, 16, Duration::from_millis(200));
    // 32 chunks at most are being read, in a few runs that take 5 to 18 ms each; alone it would be four times that.
    assert!(beside[beside.len() / 2] < Duration::from_millis(80), "{beside:?}");
    let gone = before - used(&g, leaving);
    assert!(gone > 60 * MIB / CHUNK, "only {gone} chunks went meanwhile");
    stop(&env, g).expect("orderly stop");
}

/// For three seconds after it begins to leave, what is in the slots of a disk cannot be read.
fn evacuate_with_an_outage(env: &MemoryEnv, g: &Group<MemoryEnv>, leaving: usize, device: &MemoryDevice) {
    let slots = device.layout().slots / 4096;
    let gone = device.blocks.borrow_mut().split_off(&slots);
    device.holes_fail.set(true);
    let takes = device.read_takes.replace(Duration::ZERO);
    evacuate(env, g, leaving);
    pass(env, 3);
    assert!(device.failed_reads.get() > 0, "nothing was tried");
    device.blocks.borrow_mut().extend(gone);
    device.holes_fail.set(false);
    device.read_takes.set(takes);
}

#[test]
fn after_an_outage_an_evacuation_goes_as_before() {
    let env = MemoryEnv::new();
    let (m, g, last) = group(&env);
    let v = g.volume("main").expect("made at creation");
    m.0[1..].iter().for_each(|d| d.sync_takes.set(Duration::from_millis(15)));
    let leaving = (1..3).max_by_key(|i| used(&g, *i)).expect("two");
    let alone = reads(&env, &v, &last, 1000, Duration::ZERO);
    let limit = alone[alone.len() * 99 / 100] * 3 / 2;
    evacuate_with_an_outage(&env, &g, leaving, &m.0[leaving]);
    let beside = reads(&env, &v, &last, 1000, Duration::ZERO);
    let late = beside.iter().filter(|took| **took > limit).count();
    assert!(late <= beside.len() / 100, "{late} of {} took more than {limit:?}", beside.len());
    pass(&env, 20);
    assert_eq!(used(&g, leaving), 0, "alone it is fast");
}

/// A group most of which went down, and chunks that are on the slow member, in its order.
fn group_with_a_mover(env: &MemoryEnv) -> (image::Members, Group<MemoryEnv>, Vec<u64>) {
    let mut m = create_sized(env, "tank", &[128], &[256], Some(250 * MIB));
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(env, &m.0, OpenOptions { migrate: true, ..writable() }).expect("opens");
    fill(env, &g);
    let slow = last_on(&m.0[1], 1000);
    assert!(slow.len() > 600, "{} on the slow member", slow.len());
    (m, g, slow)
}

#[test]
fn promotions_that_began_in_a_quiet_moment_give_way_to_requests() {
    let env = MemoryEnv::new();
    let (m, g, slow) = group_with_a_mover(&env);
    let v = g.volume("main").expect("made at creation");
    // Chunks here and there are used until they are to come up.
    let used: Vec<u64> = slow.iter().copied().step_by(9).collect();
    reads(&env, &v, &used, used.len() * 4, Duration::ZERO);
    m.0[1].read_takes.set(Duration::from_millis(40));
    let before = g.status().mover.promoted;
    let mut first = Vec::new();
    for n in 0..20 {
        // Nobody wants anything for a moment, and then a few requests come, one after the other.
        let e = env.clone();
        env.block_on(async move { e.sleep(Duration::from_millis(900)).await });
        let some = reads(&env, &v, &slow[n + 1..n + 2], 5, Duration::from_millis(10));
        assert!(some[3] < Duration::from_millis(150), "more than one waited for a queue: {some:?}");
        first.push(some[4]);
    }
    // 16 copies of 20 to 60 ms are before the first of them, and not the 64 that were planned.
    let longest = first.iter().max().expect("some");
    assert!(*longest < Duration::from_millis(900), "{first:?}");
    let gone = g.status().mover.promoted - before;
    assert!(gone as usize > used.len() * 9 / 10, "only {gone} chunks came up");
    stop(&env, g).expect("orderly stop");
}
