//! Stops and starts that are cut off between one member and the next, after which another one goes: nobody that is left may pass for
//! an old copy.

use bimetal_volume::env::Env;
use bimetal_volume::options::NewVolume;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::image::{
    check, create_sized, evacuate, flush, make, open, pass, read_only, small, stop, used, writable, write, Members, MIB,
};
use crate::memory::{MemoryDevice, MemoryEnv};

/// An environment whose epochs are no others'.
fn later(times: u32) -> MemoryEnv {
    let env = MemoryEnv::new();
    for _ in 0..times * 1000 {
        let _of_before = env.random();
    }
    env
}

/// More writes to a member than a start or a stop makes.
const WHOLE: u64 = 120;

/// A member that was leaving missed the mark of a stop; a start without it was cut off; then it is back.
#[test]
fn a_leaver_that_missed_the_mark_of_a_stop_is_no_old_copy() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[16], &[32, 32], Some(20 * MIB));
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 0, &[7; CHUNK as usize]).expect("write");
    flush(&env, &v).expect("flush");
    evacuate(&env, &g, 2);
    pass(&env, 30);
    assert_eq!(used(&g, 2), 0);
    env.kill();
    drop((g, v));
    let stopped = (0..WHOLE).find_map(|writes| {
        let (env, devices) = (later(1), m.copy());
        let g = open(&env, &devices.0, writable()).expect("after a crash");
        devices.0[2].writes_left.set(writes);
        let _cut_off = stop(&env, g);
        let marks: Vec<bool> = devices.0.iter().map(|d| d.label().stopped).collect();
        (marks == [true, true, false]).then(|| devices.copy())
    });
    let stopped = stopped.expect("a stop marks the last member last");
    let begun = (0..WHOLE).find_map(|writes| {
        let rest = Members(stopped.0[..2].iter().map(MemoryDevice::copy).collect());
        rest.0[1].writes_left.set(writes);
        let refused = open(&later(2), &rest.0, writable()).is_err();
        let label = rest.0[0].label();
        (refused && label.stopped && !label.epoch.confirmed).then(|| rest.copy())
    });
    let mut back = begun.expect("a start that both had stopped before").0;
    back.push(stopped.0[2].copy());
    let back = Members(back);
    let env = later(3);
    let seen = open(&env, &back.copy().0, read_only()).map(|_| ());
    assert!(seen.is_ok(), "{seen:?}");
    assert!(check(&env, &back.copy().0).is_ok());
    let (e, devices) = (env.clone(), back.copy().0);
    assert!(env.block_on(async move { Plan::new(e, devices, false).await.map(|_| ()) }).is_ok());
    assert!(open(&env, &back.0, writable()).is_ok());
}

/// Two fast members, the slow one between them in the order of their indexes.
fn slow_in_the_middle(env: &MemoryEnv) -> Members {
    let devices: Vec<MemoryDevice> = [16, 32, 16].map(|mib| MemoryDevice::new(mib * MIB)).to_vec();
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Fast]).collect();
    let volumes = vec![NewVolume { name: "main".into(), size: Some(4 * MIB), placement: Placement::Auto }];
    let options = small(volumes);
    make(env, members, options);
    Members(devices)
}

/// A commit reached one fast member alone; the start that brings the others up to it is cut off, and then that member dies.
#[test]
fn a_start_tells_no_slow_member_of_what_a_fast_one_does_not_have() {
    let env = MemoryEnv::new();
    let m = slow_in_the_middle(&env);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 0, &[1; CHUNK as usize]).expect("write");
    stop(&env, g).expect("an orderly stop: the disk has a directory");
    let env = later(1);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, CHUNK, &[2; CHUNK as usize]).expect("write");
    m.0[2].writes_left.set(0);
    assert!(flush(&env, &v).is_err(), "it does not get to all fast members");
    env.kill();
    drop((g, v));
    // What the disk has of the map is rotten, so that the start writes all of it anew.
    let root = m.0[1].layout();
    (0..4).for_each(|block| m.0[1].flip(root.root + block * 4096 + 100, 1));
    let mut rebuilt = 0;
    for writes in 0..WHOLE {
        let devices = m.copy();
        devices.0[2].writes_left.set(writes);
        let opened = open(&later(2), &devices.0, writable()).is_ok();
        let left: Vec<MemoryDevice> = devices.0[1..].iter().map(MemoryDevice::copy).collect();
        rebuilt += u64::from(left[0].label().checkpoint_generation > m.0[1].label().checkpoint_generation);
        match open(&later(3), &left, read_only()).map(|g| g.status().recovery) {
            Ok(found) => assert!(!found.iter().any(|f| f.contains("lacks commits")), "after {writes}: {found:?}"),
            Err(e) => panic!("after {writes}: {e}"),
        }
        if opened {
            assert!(rebuilt > 0, "the disk's map was never written anew: this is no test");
            return;
        }
    }
    panic!("a start has few writes");
}
