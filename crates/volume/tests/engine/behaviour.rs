//! Plain behaviour of a group, without faults.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags, TO_ITS_END};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{gather, inspect, Group, Volume};

use crate::image::{make, small};
use crate::memory::{MemoryDevice, MemoryEnv};

const MIB: u64 = 1 << 20;
const PLAIN: WriteFlags = WriteFlags { fua: false, no_hole: false, outlives: false };

struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
}

impl Rig {
    /// A group of one fast and one slow member with so many MiB each.
    fn new(fast: u64, slow: u64) -> Rig {
        let env = MemoryEnv::new();
        let devices = vec![MemoryDevice::new(fast * MIB), MemoryDevice::new(slow * MIB)];
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        let options = small(vec![NewVolume { name: "main".into(), size: None, placement: Placement::Auto }]);
        make(&env, members, options);
        Rig { env, devices }
    }

    fn open(&self) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
        let (env, devices) = (self.env.clone(), self.devices.clone());
        let group = self.env.block_on(async move { Group::open(env, devices, OpenOptions::default()).await });
        let group = group.expect("the group opens");
        let volume = group.volume("main").expect("made at creation");
        (group, volume)
    }

    fn write(&self, v: &Volume<MemoryEnv>, offset: u64, data: Vec<u8>) {
        let v = v.clone();
        self.env.block_on(async move {
            let mut b = BufMut::with_phase(data.len(), offset);
            b.copy_from_slice(&data);
            v.write(offset, b.freeze(), PLAIN).await.expect("write");
        });
    }

    fn read(&self, v: &Volume<MemoryEnv>, offset: u64, len: u64) -> Vec<u8> {
        let v = v.clone();
        self.env.block_on(async move { gather(&v.read(offset, len).await.expect("read")) })
    }

    fn flush(&self, v: &Volume<MemoryEnv>) {
        let v = v.clone();
        self.env.block_on(async move { v.flush().await.expect("flush") });
    }

    fn rest(&self, d: Duration) {
        let sleep = self.env.sleep(d);
        self.env.block_on(sleep);
    }

    fn stop(&self, g: &Group<MemoryEnv>) {
        let g = g.clone();
        self.env.block_on(async move { g.stop().await.expect("orderly stop") });
    }

    fn check(&self) -> inspect::Report {
        let (env, devices) = (self.env.clone(), self.devices.clone());
        self.env.block_on(async move { inspect::check(env, devices, &|_, _| {}).await }).expect("check runs")
    }
}

fn pattern(seed: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| (seed.wrapping_mul(31).wrapping_add(i * 7 + i / 4096) % 251) as u8).collect()
}

#[test]
fn unaligned_writes_across_chunk_borders_read_back() {
    let rig = Rig::new(16, 32);
    let (group, v) = rig.open();
    let mut model = vec![0u8; (4 * CHUNK) as usize];
    for (i, (offset, len)) in
        [(0, 10), (511, 513), (CHUNK - 700, 1400), (3, 3 * CHUNK), (2 * CHUNK, CHUNK), (100, 1)].into_iter().enumerate()
    {
        let data = pattern(i as u64 + 1, len);
        model[offset as usize..(offset + len) as usize].copy_from_slice(&data);
        rig.write(&v, offset, data);
        assert!(rig.read(&v, 0, 4 * CHUNK) == model, "after write {i}");
    }
    assert!(rig.read(&v, 77, 100_000) == model[77..100_077]);
    rig.stop(&group);
    let (_group, v) = rig.open();
    assert!(rig.read(&v, 0, 4 * CHUNK) == model, "after a stop and a start");
}

#[test]
fn trim_and_zeroing_free_slots_and_reach_the_member() {
    let rig = Rig::new(16, 32);
    let (group, v) = rig.open();
    let free = group.status().fast_free;
    rig.write(&v, 0, pattern(1, 8 * CHUNK));
    let (v1, v2) = (v.clone(), v.clone());
    rig.env.block_on(async move { v1.trim(0, 4 * CHUNK, PLAIN).await.expect("trim") });
    rig.env
        .block_on(async move { v2.write_zeroes(4 * CHUNK + 5, 3 * CHUNK, PLAIN, TO_ITS_END).await.expect("zeroing") });
    let got = rig.read(&v, 0, 8 * CHUNK);
    let mut model = pattern(1, 8 * CHUNK);
    model[..(4 * CHUNK) as usize].fill(0);
    model[(4 * CHUNK + 5) as usize..(7 * CHUNK + 5) as usize].fill(0);
    assert!(got == model);
    rig.flush(&v);
    rig.rest(Duration::from_secs(10));
    assert_eq!(free - group.status().fast_free, 2 * CHUNK, "two chunks still hold data");
    assert_eq!(rig.devices[0].discarded.get(), 6 * CHUNK);
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn flushed_data_survives_the_death_of_the_daemon() {
    let rig = Rig::new(16, 32);
    for round in 1..20u64 {
        let (group, v) = rig.open();
        if round > 1 {
            let old = rig.read(&v, (round - 1) * 100_000, 90_000);
            assert!(old == pattern(round - 1, 90_000), "round {round}: {:?}", group.status().recovery);
        }
        rig.write(&v, round * 100_000, pattern(round, 90_000));
        rig.flush(&v);
        drop((group, v));
        rig.env.kill();
    }
    let report = rig.check();
    assert_eq!(report.problems, []);
    assert!(!report.clean && report.records > 0);
}

#[test]
fn what_cannot_be_read_between_two_map_pages_does_not_fail_their_checkpoint() {
    let rig = Rig::new(64, 256);
    let (group, v) = rig.open();
    rig.devices.iter().for_each(|d| d.holes_fail.set(true));
    // Two pages that are written together, and nothing ever was between them.
    let places = [0, 200 * MIB];
    for (i, at) in (0u64..).zip(places) {
        rig.write(&v, at, pattern(i, 90_000));
    }
    rig.stop(&group);
    assert!(rig.devices[0].failed_reads.get() > 0, "the pages were read back together");
    drop((group, v));
    rig.env.kill();
    let (_group, v) = rig.open();
    for (i, at) in (0u64..).zip(places) {
        assert!(rig.read(&v, at, 90_000) == pattern(i, 90_000));
    }
}

#[test]
fn new_data_goes_to_the_fast_tier_then_spills_and_the_reserve_comes_back() {
    let rig = Rig::new(24, 64);
    let (group, v) = rig.open();
    for i in 0..160 {
        rig.write(&v, i * CHUNK * 2, pattern(i, CHUNK));
    }
    let full = group.status();
    assert!(full.volumes[0].slow_chunks > 0, "spilled: {full:?}");
    rig.flush(&v);
    rig.rest(Duration::from_secs(60));
    let rested = group.status();
    assert!(rested.fast_free >= rested.keep_free, "the reserve is back: {:?}", rested.mover);
    assert!(rested.mover.demoted > 0);
    for i in 0..160 {
        assert!(rig.read(&v, i * CHUNK * 2, CHUNK) == pattern(i, CHUNK), "chunk {i}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn a_chunk_used_again_on_the_slow_tier_is_promoted() {
    let rig = Rig::new(24, 64);
    let (group, v) = rig.open();
    for i in 0..200 {
        rig.write(&v, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let slow = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier == 2;
    let cold: Vec<u64> = (0..200).filter(|i| slow(*i)).take(4).collect();
    assert_eq!(cold.len(), 4);
    for _ in 0..4 {
        for c in &cold {
            rig.read(&v, c * CHUNK + 8192, 4096);
        }
        rig.rest(Duration::from_secs(20));
    }
    assert!(cold.iter().all(|c| !slow(*c)), "all on the fast tier: {:?}", group.status().mover);
    for i in 0..200 {
        assert!(rig.read(&v, i * CHUNK, CHUNK) == pattern(i, CHUNK), "chunk {i}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn a_chunk_that_a_client_reads_whole_is_not_read_again_to_be_promoted() {
    let rig = Rig::new(24, 64);
    let (group, v) = rig.open();
    for i in 0..200 {
        rig.write(&v, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let tier = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    let (cold, warm): (Vec<u64>, Vec<u64>) = (0..200).partition(|i| tier(*i) == 2);
    for c in &warm[..warm.len() / 2] {
        let (v, at) = (v.clone(), c * CHUNK);
        rig.env.block_on(async move { v.trim(at, CHUNK, PLAIN).await.expect("trim") });
    }
    rig.flush(&v);
    rig.rest(Duration::from_secs(10));
    let slow_reads = || group.status().members[1].read_bytes;
    let before = slow_reads();
    for _ in 0..2 {
        // Out of order, so that it is no stream.
        for c in [cold[9], cold[2], cold[30], cold[17]] {
            assert!(rig.read(&v, c * CHUNK, CHUNK) == pattern(c, CHUNK));
        }
        rig.rest(Duration::from_secs(1));
    }
    rig.rest(Duration::from_secs(20));
    let read = (slow_reads() - before) / CHUNK;
    let status = group.status();
    assert!(status.mover.lifted >= 4, "{:?}", status.mover);
    // Neighbours that come along have to be read.
    let along = status.mover.promoted - status.mover.lifted;
    assert!(read <= 8 + along, "{read} chunks read from the slow member for 8 of the client and {along} neighbours");
    for c in [cold[9], cold[2], cold[30], cold[17]] {
        assert!(tier(c) == 3 && rig.read(&v, c * CHUNK, CHUNK) == pattern(c, CHUNK), "chunk {c}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn a_chunk_that_a_client_writes_whole_goes_where_a_new_one_would() {
    let rig = Rig::new(24, 64);
    let (group, v) = rig.open();
    for i in 0..200 {
        rig.write(&v, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let tier = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    let cold: Vec<u64> = (0..200).filter(|i| tier(*i) == 2).collect();
    let free = |group: &Group<_>| group.status().members.iter().map(|m| m.free).sum::<u64>();
    // What nobody asks for again does not take what is kept for new chunks.
    rig.write(&v, cold[5] * CHUNK, pattern(cold[5], CHUNK));
    assert_eq!((tier(cold[5]), group.status().mover.written_anew), (2, 0));
    for c in (0..200).filter(|c| tier(*c) == 1).take(16) {
        let v = v.clone();
        rig.env.block_on(async move { v.trim(c * CHUNK, CHUNK, PLAIN).await.expect("trim") });
    }
    rig.flush(&v);
    rig.rest(Duration::from_secs(10));
    let (free_before, moved) = (free(&group), group.status().mover.promoted);
    // All of it, and a part: of that the rest is needed.
    rig.write(&v, cold[7] * CHUNK, pattern(1007, CHUNK));
    rig.write(&v, cold[9] * CHUNK, pattern(1009, CHUNK - 4096));
    assert_eq!((tier(cold[7]), tier(cold[9])), (1, 2));
    assert_eq!((group.status().mover.written_anew, group.status().mover.promoted), (1, moved));
    let as_written = |rig: &Rig, v: &Volume<_>| {
        assert!(rig.read(v, cold[7] * CHUNK, CHUNK) == pattern(1007, CHUNK));
        assert!(rig.read(v, cold[9] * CHUNK, CHUNK - 4096) == pattern(1009, CHUNK - 4096));
        assert!(rig.read(v, (cold[9] + 1) * CHUNK - 4096, 4096) == pattern(cold[9], CHUNK)[CHUNK as usize - 4096..]);
    };
    as_written(&rig, &v);
    rig.flush(&v);
    rig.rest(Duration::from_secs(10));
    // Others may have come up meanwhile, and kept their places.
    let kept = group.status().mover.kept;
    assert_eq!(free(&group) + kept, free_before, "the place that it had is free again");
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
    let (group, v) = rig.open();
    as_written(&rig, &v);
    rig.stop(&group);
}

/// A group with 200 chunks of `pattern(i)` of which these four were promoted and keep their places.
fn with_kept_copies(rig: &Rig) -> Vec<u64> {
    let (group, v) = rig.open();
    for i in 0..200 {
        rig.write(&v, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let tier = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    let cold: Vec<u64> = (0..200).filter(|i| tier(*i) == 2).take(4).collect();
    for _ in 0..4 {
        cold.iter().for_each(|c| drop(rig.read(&v, c * CHUNK + 8192, 4096)));
        rig.rest(Duration::from_secs(20));
    }
    assert!(cold.iter().all(|c| tier(*c) == 3), "fast, and the place is kept: {:?}", group.status().mover);
    assert!(group.status().mover.kept >= 4);
    rig.stop(&group);
    cold
}

#[test]
fn after_an_orderly_stop_the_slow_member_alone_serves_kept_copies() {
    let rig = Rig::new(24, 64);
    let cold = with_kept_copies(&rig);
    let report = rig.check();
    assert_eq!(report.problems, []);
    assert!(report.kept >= 4);
    let (env, slow) = (rig.env.clone(), vec![rig.devices[1].clone()]);
    let options = OpenOptions { writable: false, allow_missing: true, ..OpenOptions::default() };
    let group = rig.env.block_on(async move { Group::open(env, slow, options).await }).expect("opens read-only");
    let v = group.volume("main").expect("made at creation");
    for c in cold {
        assert!(rig.read(&v, c * CHUNK, CHUNK) == pattern(c, CHUNK), "chunk {c}");
    }
}

#[test]
fn a_write_ends_a_kept_copy_and_a_crash_all_of_them() {
    let rig = Rig::new(24, 64);
    let cold = with_kept_copies(&rig);
    let (group, v) = rig.open();
    let kept = group.status().mover.kept;
    rig.write(&v, cold[0] * CHUNK + 5, pattern(7, 100));
    assert_eq!(group.status().mover.kept, kept - 1);
    rig.flush(&v);
    drop((group, v));
    rig.env.kill();
    let (group, v) = rig.open();
    assert_eq!(group.status().mover.kept, 0, "nobody knows what was overwritten in place");
    assert!(rig.read(&v, cold[0] * CHUNK + 5, 100) == pattern(7, 100));
    for c in &cold[1..] {
        assert!(rig.read(&v, c * CHUNK, CHUNK) == pattern(*c, CHUNK), "chunk {c}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn an_idle_group_writes_nothing() {
    let rig = Rig::new(16, 32);
    let (_group, v) = rig.open();
    rig.write(&v, 0, pattern(1, 5 * CHUNK));
    rig.rest(Duration::from_secs(30));
    let writes = || -> Vec<u64> { rig.devices.iter().map(|d| d.writes.get()).collect() };
    let disk = writes()[1];
    // What the group has learned is saved on the SSD, once.
    rig.rest(Duration::from_secs(3600));
    let before = writes();
    rig.rest(Duration::from_secs(3600 * 5));
    assert_eq!(before, writes());
    assert_eq!(before[1], disk, "a disk that sleeps is not woken");
}

#[test]
fn a_full_volume_takes_every_chunk() {
    let rig = Rig::new(16, 32);
    let (group, v) = rig.open();
    let chunks = v.size() / CHUNK;
    for round in 0..3 {
        for i in 0..chunks {
            rig.write(&v, i * CHUNK + 4096 * round, pattern(i, 4096));
        }
        let trimmed = v.clone();
        rig.env.block_on(async move { trimmed.trim(0, 20 * CHUNK, PLAIN).await.expect("trim") });
    }
    for i in 20..chunks {
        assert!(rig.read(&v, i * CHUNK, 4096) == pattern(i, 4096), "chunk {i}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

/// PITFALLS 15, F9: after a sequential write of more than twice the fast tier, migration goes on in the same process.
#[test]
fn migration_resumes_after_a_write_of_twice_the_fast_tier() {
    let rig = Rig::new(40, 160);
    let (group, v) = rig.open();
    let fast = group.status().members[0].slots;
    for i in 0..fast * 2 + 20 {
        rig.write(&v, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let status = group.status();
    assert!(status.fast_free >= status.keep_free, "{:?}", status.mover);
    let slow = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier == 2;
    let range: Vec<u64> = (0..fast * 2).filter(|i| slow(*i)).take(16).collect();
    for _ in 0..3 {
        for c in &range {
            assert!(rig.read(&v, c * CHUNK, CHUNK) == pattern(*c, CHUNK));
        }
        rig.rest(Duration::from_secs(20));
    }
    let left = range.iter().filter(|c| slow(**c)).count();
    assert_eq!(left, 0, "{:?}", group.status().mover);
}

/// A flush that finds nothing costs nothing, one after an overwrite in place costs the sync of that member alone, and
/// none touches a slow member that holds no unsynced data (C1.6).
#[test]
fn flushes_cost_what_they_must() {
    let rig = Rig::new(16, 32);
    let (group, v) = rig.open();
    let counts = || -> Vec<(u64, u64)> { rig.devices.iter().map(|d| (d.writes.get(), d.syncs.get())).collect() };
    rig.write(&v, 0, pattern(1, CHUNK));
    rig.flush(&v);
    let rest = counts();
    rig.flush(&v);
    assert_eq!(counts(), rest, "nothing to flush");
    rig.write(&v, 8192, pattern(2, 4096));
    rig.flush(&v);
    let overwrite = counts();
    assert_eq!(overwrite[0], (rest[0].0 + 1, rest[0].1 + 1), "one data write, one sync, no metadata");
    assert_eq!(overwrite[1], rest[1]);
    rig.write(&v, CHUNK, pattern(3, 4096));
    rig.flush(&v);
    let fresh = counts();
    assert_eq!(fresh[0], (overwrite[0].0 + 2, overwrite[0].1 + 2), "data, sync, journal block, sync");
    assert_eq!(fresh[1], overwrite[1], "the slow member was not touched");
    assert!(group.status().latched.is_none());
}

#[test]
fn placement_bound_to_a_tier_is_kept() {
    let env = MemoryEnv::new();
    let devices = vec![MemoryDevice::new(32 * MIB), MemoryDevice::new(64 * MIB)];
    let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
    let volume = |name: &str, size, placement| NewVolume { name: name.into(), size, placement };
    let options = CreateOptions {
        sector_size: 512,
        journal_blocks: None,
        ..small(vec![
            volume("hot", Some(8 * MIB), Placement::FastOnly),
            volume("cold", Some(8 * MIB), Placement::SlowOnly),
            volume("main", None, Placement::Auto),
        ])
    };
    make(&env, members, options);
    let rig = Rig { env, devices };
    let (group, main) = rig.open();
    for i in 0..main.size() / CHUNK {
        rig.write(&main, i * CHUNK, pattern(i, 4096));
    }
    for (name, tier) in [("hot", 1), ("cold", 2)] {
        let v = group.volume(name).expect("made at creation");
        for i in 0..64 {
            rig.write(&v, i * CHUNK, pattern(i, CHUNK));
            rig.read(&v, i * CHUNK, CHUNK);
        }
        rig.rest(Duration::from_secs(30));
        let tiers: Vec<u8> = v.extents(0, 8 * MIB, 1000).expect("inside").iter().map(|e| e.tier).collect();
        assert!(tiers.iter().all(|t| *t == tier), "{name}: {tiers:?}");
    }
    rig.stop(&group);
    assert_eq!(rig.check().problems, []);
}

#[test]
fn what_was_never_used_is_cold() {
    let rig = Rig::new(64, 64);
    let (group, v) = rig.open();
    let heat = |chunk: u64| v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].heat;
    assert_eq!(heat(0), 0);
    for round in 0..8 {
        rig.write(&v, 0, pattern(round, 4096));
        rig.rest(Duration::from_secs(30));
    }
    rig.write(&v, CHUNK, pattern(1, 4096));
    assert!(heat(0) > heat(1) && heat(1) > 0, "{} {}", heat(0), heat(1));
    assert_eq!(heat(2), 0);
    let before = heat(0);
    rig.stop(&group);
    let (group, v) = rig.open();
    let heat = |chunk: u64| v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].heat;
    assert_eq!((heat(0), heat(2)), (before, 0), "also after a restart");
    rig.stop(&group);
}

/// Bound volumes leave others fewer fast slots than the reserve was to have: it gives way, and what is used moves up still.
#[test]
fn bound_volumes_leave_the_others_room_to_be_promoted() {
    let env = MemoryEnv::new();
    let devices = vec![MemoryDevice::new(64 * MIB), MemoryDevice::new(128 * MIB)];
    let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
    let volume = |name: &str, mib, placement| NewVolume { name: name.into(), size: Some(mib * MIB), placement };
    let volumes = vec![volume("bound", 52, Placement::FastOnly), volume("main", 40, Placement::Auto)];
    let options = CreateOptions { reserve: Some(16 * MIB), ..small(volumes) };
    make(&env, members, options);
    let rig = Rig { env, devices };
    let (group, main) = rig.open();
    for i in 0..main.size() / CHUNK {
        rig.write(&main, i * CHUNK, pattern(i, CHUNK));
    }
    rig.rest(Duration::from_secs(60));
    let tier = |chunk: u64| main.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    let slow = (0..main.size() / CHUNK).find(|c| tier(*c) == 2).expect("most are on the disk");
    for _ in 0..120 {
        rig.read(&main, slow * CHUNK, 4096);
        rig.rest(Duration::from_millis(500));
    }
    assert_ne!(tier(slow), 2, "{:?}", group.status().mover);
    rig.stop(&group);
}
