//! The mover on devices that fail in places, and beside volumes that are bound to the fast tier.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{flush, make, open, pass, read, repair, small, stop, used, write};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;

/// A group of two members of so many MiB with these volumes.
fn create(env: &MemoryEnv, mib: [u64; 2], volumes: Vec<NewVolume>) -> [MemoryDevice; 2] {
    let mut devices = mib.map(|mib| MemoryDevice::new(mib << 20));
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
    let options = CreateOptions { reserve: None, journal_blocks: Some(64), ..small(volumes) };
    make(env, members, options);
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

/// A block that only this chunk holds.
fn stamp(chunk: u64) -> Vec<u8> {
    (chunk | 0x5151_0000_0000).to_le_bytes().repeat(512)
}

/// What these chunks hold on a device cannot be read any more.
fn lose(device: &MemoryDevice, chunks: &[u64]) {
    let lost: std::collections::BTreeSet<Vec<u8>> = chunks.iter().map(|c| stamp(*c)).collect();
    device.blocks.borrow_mut().retain(|_, block| !lost.contains(&block.to_vec()));
    device.holes_fail.set(true);
}

#[test]
fn room_for_new_data_is_made_though_hundreds_of_cold_chunks_cannot_be_read() {
    let env = MemoryEnv::new();
    let devices = create(&env, [256, 512], vec![volume("main", 500, Placement::Auto)]);
    let (g, v) = open_main(&env, &devices);
    let written = g.status().members[0].slots * 3 / 4 - 20;
    (0..written).for_each(|c| write(&env, &v, c * CHUNK, &stamp(c)).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 100);
    let fast: Vec<u64> = (0..written).filter(|c| is_fast(&v, *c)).collect();
    let (bad, good) = fast.split_at(500);
    for _ in 0..6 {
        for i in 0..good.len() {
            read(&env, &v, good[i * 61 % good.len()] * CHUNK, 4096).expect("read");
            millis(&env, 1);
        }
        millis(&env, 300);
    }
    lose(&devices[0], bad);
    // New data take the reserve.
    (0..600).for_each(|c| write(&env, &v, (written + 10 + c) * CHUNK, &[9; 4096]).expect("write"));
    pass(&env, 60);
    let s = g.status();
    assert!(s.fast_free >= s.keep_free, "{} of {}: {:?}", s.fast_free / CHUNK, s.keep_free / CHUNK, s.mover);
    let words = format!("{} chunks of 128 KiB on the fast tier cannot be read and stay there", s.mover.failed);
    assert!((400..=500).contains(&s.mover.failed) && s.mover.why.ends_with(&words), "{:?}", s.mover);
    // They are left alone, and forgotten when they have no home any more.
    let reads = devices[0].failed_reads.get();
    pass(&env, 24 * 3600);
    assert!(devices[0].failed_reads.get() < reads + 50, "{} more", devices[0].failed_reads.get() - reads);
    for c in bad {
        let v = v.clone();
        let trimmed = *c * CHUNK;
        env.block_on(async move { v.trim(trimmed, CHUNK, WriteFlags::default()).await }).expect("trim");
    }
    flush(&env, &v).expect("flush");
    pass(&env, 120);
    assert!(!g.status().mover.why.contains("cannot be read"), "{:?}", g.status().mover);
}

#[test]
fn what_is_used_comes_up_though_other_chunks_of_the_disk_cannot_be_read() {
    let env = MemoryEnv::new();
    let devices = create(&env, [64, 256], vec![volume("main", 130, Placement::Auto)]);
    let (g, v) = open_main(&env, &devices);
    for c in 0..800 {
        // Each has a block of its own behind one that is asked for.
        write(&env, &v, c * CHUNK + 2 * BLOCK, &[1; 4096]).expect("write");
        write(&env, &v, c * CHUNK + 9 * BLOCK, &stamp(c)).expect("write");
    }
    flush(&env, &v).expect("flush");
    pass(&env, 200);
    let used: Vec<u64> = (0..800).filter(|c| !is_fast(&v, *c)).take(80).collect();
    let (bad, good): (Vec<u64>, Vec<u64>) = used.iter().partition(|c| **c / 8 % 2 == 0);
    lose(&devices[1], &bad);
    for _ in 0..20 {
        use_much(&env, &v, &used);
        pass(&env, 10);
    }
    let came = good.iter().filter(|c| is_fast(&v, **c)).count();
    assert!(came * 10 >= good.len() * 9, "{came} of {}: {:?}", good.len(), g.status().mover);
    // For some minutes; each was tried at most three times.
    let failed = g.status().mover.failed;
    assert!(failed <= 3 * bad.len() as u64, "{failed} for {}", bad.len());
    let words = format!("{} chunks of 128 KiB on the slow tier cannot be read and stay there", bad.len());
    assert!(g.status().mover.why.ends_with(&words), "{:?}", g.status().mover);
}

#[test]
fn the_reserve_comes_back_soon_beside_a_volume_that_has_not_used_what_it_was_promised() {
    let env = MemoryEnv::new();
    let volumes = vec![volume("main", 130, Placement::Auto), volume("bound", 20, Placement::FastOnly)];
    let devices = create(&env, [64, 256], volumes);
    let (g, v) = open_main(&env, &devices);
    (0..500).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    pass(&env, 200);
    let before = g.status();
    assert_eq!(before.mover.doing, "resting");
    // Small writes take all that is not promised.
    for i in 0..before.reserve / CHUNK {
        write(&env, &v, (600 + i * 61 % 300) * CHUNK, &[5; 4096]).expect("write");
        millis(&env, 2);
    }
    pass(&env, 5);
    let s = g.status();
    let free = s.fast_free - (20 << 20);
    assert!(free >= s.keep_free, "{} of {}: {:?}", free / CHUNK, s.keep_free / CHUNK, s.mover);
}

#[test]
fn nothing_is_moved_while_the_connection_to_a_member_is_lost_and_no_chunk_is_blamed_for_it() {
    let env = MemoryEnv::new();
    let devices = create(&env, [64, 256], vec![volume("main", 130, Placement::Auto)]);
    let (g, v) = open_main(&env, &devices);
    (0..800).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    pass(&env, 200);
    let used: Vec<u64> = (0..800).filter(|c| !is_fast(&v, *c)).take(40).collect();
    // It is lost while moves are under way.
    devices[1].read_takes.set(Duration::from_millis(400));
    for i in 0.. {
        let _read = read(&env, &v, used[i * 7 % used.len()] * CHUNK + 2 * BLOCK, 4096);
        if g.status().mover.in_flight > 0 {
            break;
        }
        assert!(i < 5000, "{:?}", g.status().mover);
    }
    devices[1].lost.set(true);
    pass(&env, 20);
    let s = g.status();
    assert!(s.mover.failed > 0 && s.mover.doing == "nothing is moved", "{:?}", s.mover);
    assert_eq!(s.mover.why, "the connection to the slow member 1 is lost");
    use_much(&env, &v, &used);
    let failed = s.mover.failed;
    let s = g.status();
    assert_eq!((s.mover.failed, s.mover.in_flight, s.latched), (failed, 0, None));
    // What needs only the other goes on.
    let fast = (0..800).find(|c| is_fast(&v, *c)).expect("the fast tier is in use");
    write(&env, &v, fast * CHUNK, &[4; CHUNK as usize]).expect("write");
    flush(&env, &v).expect("flush");
    devices[1].lost.set(false);
    devices[1].read_takes.set(Duration::ZERO);
    pass(&env, 20);
    assert!(!g.status().mover.why.contains("cannot be read"), "{:?}", g.status().mover);
}

/// A group of two fast members and a slow one, repaired without one of the fast ones: what is left of the tier is full of what need
/// not be there, while a fast-only volume has not used what it was promised.
fn without_a_fast_member(env: &MemoryEnv) -> Vec<MemoryDevice> {
    let mut devices: Vec<MemoryDevice> = [16, 16, 64].map(|mib| MemoryDevice::new(mib << 20)).into();
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Fast, Tier::Slow]).collect();
    let volumes = vec![volume("main", 40, Placement::Auto), volume("bound", 10, Placement::FastOnly)];
    let options = small(volumes);
    make(env, members, options);
    let (g, v) = open_main(env, &devices);
    let chunks = v.size() / CHUNK;
    (0..chunks).for_each(|i| write(env, &v, i * 37 % chunks * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(env, &v).expect("flush");
    let emptier = (0..2).min_by_key(|m| used(&g, *m)).expect("two");
    stop(env, g).expect("stops");
    devices.remove(emptier);
    repair(env, &devices).expect("repaired");
    devices
}

/// Writes all of "bound" after a start, without the slow member if that is `lost` then, and stops the group after `stop` seconds or
/// when the write has ended. What came of it, and how long it took.
fn fill_bound(env: &MemoryEnv, devices: Vec<MemoryDevice>, lost: bool, stop: u64) -> (Result<(), Error>, Duration) {
    let (e, is_lost) = (env.clone(), devices[1].lost.clone());
    env.block_on(async move {
        let g = Group::open(e.clone(), devices, OpenOptions::default()).await.expect("opens");
        let bound = g.volume("bound").expect("its volume");
        assert!(g.status().fast_free < bound.size(), "there is room: this is no test");
        is_lost.set(lost);
        let (began, done) = (e.now(), Rc::new(Cell::new(None)));
        let (is_done, clock) = (done.clone(), e.clone());
        e.spawn(async move {
            let mut data = BufMut::new(bound.size() as usize);
            data.fill(4);
            let ended = bound.write(0, data.freeze(), WriteFlags::default()).await;
            is_done.set(Some((ended, clock.now().since(began))));
        });
        for _ in 0..stop * 10 {
            e.sleep(Duration::from_millis(100)).await;
            if let Some(ended) = done.take() {
                assert!(g.stop().await.is_ok() || lost, "it does not stop");
                return ended;
            }
        }
        g.stop().await.expect("stops");
        done.take().expect("a write waits for a group that has stopped")
    })
}

#[test]
fn a_fast_only_volume_has_its_room_at_once_after_a_repair_without_a_member() {
    let env = MemoryEnv::new();
    let devices = without_a_fast_member(&env);
    let (ended, took) = fill_bound(&env, devices, false, 100);
    ended.expect("it was promised this");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn nobody_waits_for_a_mover_that_can_do_nothing() {
    let env = MemoryEnv::new();
    let devices = without_a_fast_member(&env);
    let (ended, took) = fill_bound(&env, devices, true, 100);
    assert!(matches!(ended, Err(Error::NoSpace)), "{ended:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn who_waits_for_what_the_mover_owes_does_not_keep_a_group_from_stopping() {
    let env = MemoryEnv::new();
    let devices = without_a_fast_member(&env);
    devices[1].sync_takes.set(Duration::from_secs(5));
    let (ended, _) = fill_bound(&env, devices, false, 2);
    assert!(matches!(ended, Err(Error::Stopping)), "{ended:?}");
}

#[test]
fn what_cannot_be_read_does_not_come_up_for_what_is_promised_below_and_is_asked_for_once() {
    let env = MemoryEnv::new();
    let devices = create(&env, [64, 64], vec![volume("main", 76, Placement::Auto)]);
    let (g, v) = open_main(&env, &devices);
    (0..608).for_each(|i| write(&env, &v, i * 37 % 608 * CHUNK, &stamp(i * 37 % 608)).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 200);
    let slow: Vec<u64> = (0..608).filter(|c| !is_fast(&v, *c)).collect();
    let (good, bad) = slow.split_at(20);
    lose(&devices[1], bad);
    // All that is free there, and some sixty more.
    let new = volume("cold", (g.status().members[1].free + 60).div_ceil(8), Placement::SlowOnly);
    let asked = g.clone();
    let made = env.block_on(async move { asked.create_volume(&new).await });
    assert!(matches!(made, Err(StructureError::TierFull { .. })), "{made:?}");
    assert!(good.iter().all(|c| is_fast(&v, *c)), "{:?}", g.status().mover);
    let failed = devices[1].failed_reads.get();
    assert!((50..=bad.len() as u64).contains(&failed), "{failed} for {}", bad.len());
    // Nothing is owed any more.
    pass(&env, 600);
    assert!(devices[1].failed_reads.get() <= failed, "{} more", devices[1].failed_reads.get() - failed);
}
