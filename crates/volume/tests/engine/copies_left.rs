//! Kept copies on a disk that is to leave: nothing goes down to them any more. It may be leaving because it dies.

use std::time::Duration;

use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{evacuate, flush, make, open, pass, read, small, used, write};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::reserve::{come_up_with, has_copy, is_fast, millis, visit};

/// What a chunk holds, unlike any other.
fn content(chunk: u64) -> Vec<u8> {
    (chunk | 0x5151_0000_0000).to_le_bytes().repeat(CHUNK as usize / 8)
}

/// Whether a device holds the content of a chunk.
fn holds(d: &MemoryDevice, chunk: u64) -> bool {
    let first = &content(chunk)[..4096];
    d.blocks.borrow().values().any(|b| b[..] == *first)
}

/// Some sectors of the device cannot be read any more: those with the content of these chunks.
fn lose(d: &MemoryDevice, chunks: &[u64]) {
    let contents: Vec<Vec<u8>> = chunks.iter().map(|c| content(*c)[..4096].to_vec()).collect();
    d.blocks.borrow_mut().retain(|_, b| contents.iter().all(|c| **c != b[..]));
    d.holes_fail.set(true);
}

/// The fast tier is full but for the reserve, and has cold chunks that came up and keep their places on the slow members.
fn fill_with_copies(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) {
    let cold = come_up_with(env, v, content);
    let others: Vec<u64> = (200..900).filter(|c| is_fast(v, *c) && !cold.contains(c)).collect();
    (0..80).for_each(|_| visit(env, v, &others));
    let room = g.status().fast_free.saturating_sub(g.status().reserve / 3) / CHUNK;
    (1000..1000 + room).for_each(|c| write(env, v, c * CHUNK, &content(c)).expect("write"));
    flush(env, v).expect("flush");
    pass(env, 60);
}

/// New data, for which chunks are let go.
fn new_data_come(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) {
    for c in (0..g.status().reserve / CHUNK).map(|i| i * 61 % 200) {
        write(env, v, c * CHUNK, &content(c)[..4096]).expect("write");
        millis(env, 20);
    }
}

/// Two disks are to leave. While the first is being emptied, which takes long, the second begins to lose sectors, with copies of
/// chunks that the SSD has. With `on_the_way` some are about to go down when it begins to leave.
fn second_disk_loses_copies(on_the_way: bool) {
    let env = MemoryEnv::new();
    let mut d: Vec<MemoryDevice> = [64, 256, 256, 256].map(|mib| MemoryDevice::new(mib << 20)).into();
    d.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let volume = |name: &str, mib: u64, placement| NewVolume { name: name.into(), size: Some(mib << 20), placement };
    let volumes = vec![volume("main", 150, Placement::Auto), volume("cold", 60, Placement::SlowOnly)];
    let options = CreateOptions { reserve: None, journal_blocks: Some(64), ..small(volumes) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow, Tier::Slow]).collect(), options);
    let g = open(&env, &d, OpenOptions::default()).expect("opens");
    let cold = g.volume("cold").expect("made at creation");
    (0..480).for_each(|c| write(&env, &cold, c * CHUNK, &[0x77; CHUNK as usize]).expect("write"));
    let v = g.volume("main").expect("made at creation");
    fill_with_copies(&env, &g, &v);
    let copied_on = |m: usize| (200..900).filter(|c| has_copy(&v, *c) && holds(&d[m], *c)).collect::<Vec<u64>>();
    let second = (1..4).max_by_key(|m| copied_on(*m).len()).expect("three disks");
    let first = (1..4).filter(|m| *m != second).max_by_key(|m| used(&g, *m)).expect("two more");
    let mut copied = copied_on(second);
    assert!(copied.len() > 20 && used(&g, first) > 100, "{} {}", copied.len(), used(&g, first));
    d[first].read_takes.set(Duration::from_secs(4));
    evacuate(&env, &g, first);
    if on_the_way {
        // What goes down is written to the journals of the disks first.
        d.iter().skip(1).for_each(|d| d.sync_takes.set(Duration::from_secs(20)));
        new_data_come(&env, &g, &v);
    }
    evacuate(&env, &g, second);
    assert_eq!(g.counters().going_down > 0, on_the_way);
    if on_the_way {
        copied.retain(|c| has_copy(&v, *c));
        // The third disk has none: these are room for nobody.
        assert_eq!((copied.len() > 20, g.status().mover.kept), (true, 0), "{}", copied.len());
    }
    lose(&d[second], &copied);
    d.iter().for_each(|d| d.sync_takes.set(Duration::ZERO));
    new_data_come(&env, &g, &v);
    pass(&env, 3600);
    let lost = copied.iter().filter(|c| read(&env, &v, **c * CHUNK, CHUNK).map_or(true, |b| b != content(**c)));
    assert_eq!(lost.count(), 0, "of {} chunks that the SSD had", copied.len());
    assert_eq!(used(&g, second), 0);
}

#[test]
fn nothing_goes_down_to_copies_on_a_disk_that_leaves() {
    second_disk_loses_copies(false);
}

#[test]
fn what_was_about_to_go_down_to_a_disk_stays_when_that_leaves() {
    second_disk_loses_copies(true);
}
