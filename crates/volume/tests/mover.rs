//! The mover on devices that fail in places, and beside volumes that are bound to the fast tier.

mod image;
mod memory;

use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};
use image::{open, pass, read, write};
use memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;

/// A group of two members of so many MiB with these volumes.
fn create(env: &MemoryEnv, mib: [u64; 2], volumes: Vec<NewVolume>) -> [MemoryDevice; 2] {
    let mut devices = mib.map(|mib| MemoryDevice::new(mib << 20));
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
    let options =
        CreateOptions { name: "tank".into(), volumes, sector_size: 4096, reserve: None, journal_blocks: Some(64) };
    let e = env.clone();
    env.block_on(async move { Group::create(&e, members, &options).await }).expect("creation");
    devices
}

fn volume(name: &str, mib: u64, placement: Placement) -> NewVolume {
    NewVolume { name: name.into(), size: Some(mib << 20), placement }
}

fn open_main(env: &MemoryEnv, devices: &[MemoryDevice]) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let group = open(env, devices, OpenOptions::default()).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    (group, volume)
}

fn is_fast(v: &Volume<MemoryEnv>, chunk: u64) -> bool {
    v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].tier != 2
}

fn millis(env: &MemoryEnv, n: u64) {
    let sleep = env.sleep(Duration::from_millis(n));
    env.block_on(sleep);
}

/// Visits chunks of a list some times, in no order that looks like a stream.
fn use_much(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: &[u64]) {
    for _ in 0..6 {
        for i in 0..chunks.len() {
            let _read = read(env, v, chunks[i * 7 % chunks.len()] * CHUNK + 2 * BLOCK, 4096);
            millis(env, 5);
        }
        millis(env, 300);
    }
}

#[test]
fn a_place_that_takes_no_writes_does_not_stop_what_is_used_from_coming_up() {
    let env = MemoryEnv::new();
    let devices = create(&env, [64, 256], vec![volume("main", 130, Placement::Auto)]);
    let (g, v) = open_main(&env, &devices);
    (0..800).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    pass(&env, 200);
    let layout = devices[0].layout();
    let mut slots = (0..g.status().members[0].slots as u32).map(|s| layout.slot(s) / BLOCK);
    let free = slots.find(|b| !devices[0].blocks.borrow().contains_key(b)).expect("there is a reserve");
    devices[0].bad.borrow_mut().extend(free..free + 32);
    for round in 0..12 {
        let slow = (0..800).filter(|c| !is_fast(&v, *c));
        let used: Vec<u64> = slow.skip(round % 5 * 60).take(40).collect();
        use_much(&env, &v, &used);
        pass(&env, 120);
        let came = used.iter().filter(|c| is_fast(&v, **c)).count();
        let s = g.status();
        assert!(came >= 30, "round {round}: {came} of 40, quarantined {}, {:?}", s.members[0].quarantined, s.mover);
    }
    let s = g.status();
    assert_eq!((s.members[0].quarantined, s.members[0].leaving), (1, 0), "{s:?}");
}
