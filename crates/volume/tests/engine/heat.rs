//! Learned heat over stops, crashes and years: what is known of the chunks' use is there again at the next start.

use bimetal_volume::backend::Backend;
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{add, evacuate, flush, make, open, pass, read, small, stop, used, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// Chunks that are used, each in a page of the map of its own or nearly so.
const CHUNKS: u64 = 12;
const APART: u64 = 60;

fn options() -> OpenOptions {
    OpenOptions { migrate: false, ..OpenOptions::default() }
}

/// A group of members in this order, with a volume `main`.
fn create(env: &MemoryEnv, order: &[Tier]) -> Vec<MemoryDevice> {
    let device = |tier: &Tier| (MemoryDevice::new(if *tier == Tier::Fast { 64 } else { 128 } * MIB), *tier);
    let members: Vec<(MemoryDevice, Tier)> = order.iter().map(device).collect();
    let devices = members.iter().map(|(d, _)| d.clone()).collect();
    let options = small(vec![NewVolume { name: "main".into(), size: Some(100 * MIB), placement: Placement::Auto }]);
    make(env, members, options);
    devices
}

fn start(env: &MemoryEnv, devices: &[MemoryDevice]) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let g = open(env, devices, options()).expect("it opens");
    let v = g.volume("main").expect("its volume");
    (g, v)
}

/// The chunks get homes, and the group is stopped: all members have their pages.
fn fill(env: &MemoryEnv, devices: &[MemoryDevice]) {
    let (g, v) = start(env, devices);
    (0..CHUNKS).for_each(|c| write(env, &v, c * APART * CHUNK, &[1; 4096]).unwrap());
    flush(env, &v).unwrap();
    stop(env, g).unwrap();
}

fn heats(v: &Volume<MemoryEnv>) -> Vec<u8> {
    (0..CHUNKS).map(|c| v.extents(c * APART * CHUNK, CHUNK, 1).unwrap()[0].heat).collect()
}

/// Reads the chunks again and again; how hot that makes them.
fn learn(env: &MemoryEnv, v: &Volume<MemoryEnv>) -> Vec<u8> {
    for _ in 0..24 {
        (0..CHUNKS).for_each(|c| drop(read(env, v, c * APART * CHUNK, 4096).unwrap()));
        pass(env, 3);
    }
    let heats = heats(v);
    assert!(heats.iter().all(|h| *h >= 13), "{heats:?}");
    heats
}

/// Kept to half an octave.
fn assert_kept(env: &MemoryEnv, devices: &[MemoryDevice], before: &[u8], what: &str) {
    let (g, v) = start(env, devices);
    let after = heats(&v);
    assert!(before.iter().zip(&after).all(|(a, b)| a.abs_diff(*b) <= 1), "{what}: {before:?}, then {after:?}");
    stop(env, g).unwrap();
}

const FAST: Tier = Tier::Fast;
const SLOW: Tier = Tier::Slow;

#[test]
fn an_orderly_stop_saves_heat_where_the_next_start_reads_it() {
    for order in [&[FAST, SLOW][..], &[SLOW, FAST], &[SLOW, FAST, FAST], &[FAST, FAST, SLOW]] {
        let env = MemoryEnv::new();
        let devices = create(&env, order);
        fill(&env, &devices);
        let (g, v) = start(&env, &devices);
        let before = learn(&env, &v);
        stop(&env, g).unwrap();
        assert_kept(&env, &devices, &before, &format!("{order:?}"));
    }
}

#[test]
fn an_hour_of_reading_is_not_lost_in_a_crash() {
    for order in [&[FAST, SLOW][..], &[SLOW, FAST], &[FAST, FAST, SLOW], &[FAST, SLOW, FAST]] {
        let env = MemoryEnv::new();
        let devices = create(&env, order);
        fill(&env, &devices);
        let (_g, v) = start(&env, &devices);
        let before = learn(&env, &v);
        // Nothing is written, so nothing is committed.
        pass(&env, 3700);
        env.kill();
        assert_kept(&env, &devices, &before, &format!("{order:?}"));
    }
}

#[test]
fn an_idle_group_is_not_written_to() {
    let env = MemoryEnv::new();
    let devices = create(&env, &[FAST, SLOW]);
    fill(&env, &devices);
    let (g, v) = start(&env, &devices);
    learn(&env, &v);
    pass(&env, 3700);
    let saved = g.counters().checkpoints;
    pass(&env, 24 * 3600);
    assert_eq!(g.counters().checkpoints, saved);
    stop(&env, g).unwrap();
}

#[test]
fn heat_stays_when_a_member_joins_and_an_old_one_leaves() {
    let env = MemoryEnv::new();
    let devices = create(&env, &[FAST, SLOW]);
    fill(&env, &devices);
    let (g, v) = start(&env, &devices);
    let before = learn(&env, &v);
    // Pages are written to the new member: the old one still has to get their heat.
    let mut new = MemoryDevice::new(64 * MIB);
    new.env = Some(env.clone());
    add(&env, &g, &new, FAST);
    let all = [devices.clone(), vec![new.clone()]].concat();
    stop(&env, g).unwrap();
    assert_kept(&env, &all, &before, "joined");
    let (g, v) = start(&env, &all);
    evacuate(&env, &g, 0);
    pass(&env, 60);
    assert_eq!(used(&g, 0), 0);
    let gone = g.clone();
    env.block_on(async move { gone.remove_member(0).await }).expect("it is empty");
    let before = learn(&env, &v);
    stop(&env, g).unwrap();
    assert_kept(&env, &[devices[1].clone(), new], &before, "replaced");
}

#[test]
fn what_sleeps_for_long_is_cold_after_every_restart() {
    let env = MemoryEnv::new();
    let devices = create(&env, &[FAST, SLOW]);
    fill(&env, &devices);
    let (g, v) = start(&env, &devices);
    learn(&env, &v);
    stop(&env, g).unwrap();
    // The clock goes on by this many octaves: days of use of other chunks. Their pages are not written meanwhile.
    for octaves in [20, 100, 118, 124, 128, 200, 300, 505, 515, 1000] {
        let copies: Vec<MemoryDevice> = devices.iter().map(MemoryDevice::copy).collect();
        for d in &copies {
            let mut label = d.label();
            label.policy_clock += octaves << 32;
            d.set_label(&label);
        }
        let (g, v) = start(&env, &copies);
        assert_eq!(heats(&v), [0; CHUNKS as usize], "after {octaves} octaves");
        stop(&env, g).unwrap();
    }
}
