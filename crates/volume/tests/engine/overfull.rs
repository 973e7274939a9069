//! Writes that wait for their blocks change more than they took room for: a commit never outgrows the journals.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, BLOCK, CHUNK};

use crate::image::places::journal_blocks;
use crate::image::*;
use crate::memory::{MemoryDevice, MemoryEnv, HELD};

/// Writes that straddle two chunks wait for the block of the first, which is being written; meanwhile the second is trimmed, and that
/// is made durable. None of them has reserved room. Then all go on.
fn straddling(ring: u32, n: u64) {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let m = Members(vec![device(8192), device(8192)]);
    let volumes = vec![NewVolume { name: "main".into(), size: Some(2 * n * CHUNK), placement: Placement::Auto }];
    let members = vec![(m.0[0].clone(), Tier::Fast), (m.0[1].clone(), Tier::Slow)];
    make(&env, members, CreateOptions { journal_blocks: Some(ring), ..small(volumes) });
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    for c in 0..2 * n {
        let last = if c % 2 == 0 { CHUNK - BLOCK } else { 0 };
        write(&env, &v, c * CHUNK + last, &[1; 4096]).expect("written");
    }
    flush(&env, &v).expect("flushed");
    let spawn_write = |at: u64, len: u64, byte: u8| {
        let v = v.clone();
        let mut b = BufMut::with_phase(len as usize, at);
        b.fill(byte);
        env.spawn(async move { drop(v.write(at, b.freeze(), WriteFlags::default()).await) });
    };
    // The device is slow for two minutes.
    let now = env.now();
    m.0.iter().for_each(|d| d.hold_until.set(now.plus(Duration::from_secs(120))));
    (0..n).for_each(|i| spawn_write(2 * i * CHUNK + CHUNK - BLOCK, BLOCK, HELD));
    pass(&env, 1);
    (0..n).for_each(|i| spawn_write(2 * i * CHUNK + CHUNK - BLOCK, 2 * BLOCK, 2));
    pass(&env, 1);
    for i in 0..n {
        let v = v.clone();
        env.block_on(async move { v.trim((2 * i + 1) * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
    }
    flush(&env, &v).expect("flushed");
    assert_eq!(g.status().pending, 0);
    // A commit is under way when they go on: its sync takes a while.
    pass(&env, 120 - env.now().since(now).as_secs() - 2);
    m.0[0].sync_takes.set(Duration::from_secs(10));
    write(&env, &v, CHUNK - 2 * BLOCK, &[1; 4096]).expect("written");
    let v2 = v.clone();
    env.spawn(async move { drop(v2.flush().await) });
    pass(&env, 5);
    let most = g.status().pending;
    assert!(most > 0 && most < 168 * u64::from(ring), "pending: {most}");
    pass(&env, 100);
    m.0[0].sync_takes.set(Duration::ZERO);
    flush(&env, &v).expect("flushed");
}

#[test]
fn more_changes_than_a_small_ring_has_room_for() {
    straddling(8, 1600);
}

/// Three SSDs, of which the last has a small journal. The last commit is whole on one, and lacks its last block on the others. Starts are
/// cut off in the midst of telling the first one again, which has the same records many times then.
#[test]
fn a_commit_that_was_told_many_times_fits_the_smaller_journal_of_another() {
    let options = || OpenOptions { journal_records: 1, ..writable() };
    let env = MemoryEnv::new();
    let m = Members([256, 256, 64, 256].map(|mib| MemoryDevice::new(mib * MIB)).to_vec());
    let volumes = vec![NewVolume { name: "main".into(), size: Some(64 * MIB), placement: Placement::Auto }];
    let tiers = [Tier::Fast, Tier::Fast, Tier::Fast, Tier::Slow];
    make(&env, m.0.iter().cloned().zip(tiers).collect(), CreateOptions { journal_blocks: None, ..small(volumes) });
    stop(&env, open(&env, &m.0, options()).expect("opens")).expect("an orderly stop");
    let env = MemoryEnv::new();
    let group = open(&env, &m.0, options()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    (0..8).for_each(|c| write(&env, &v, c * CHUNK, &[7; 4096]).expect("written"));
    flush(&env, &v).expect("flushed");
    drop((group, v));
    env.kill();
    let tear = |d: &MemoryDevice| d.poke(*journal_blocks(d).last().expect("it has some"), &[0x5a; 4096]);
    tear(&m.0[0]);
    tear(&m.0[2]);
    let more_than_fit = m.0[2].layout().journal_blocks as usize + 2;
    let mut has = journal_blocks(&m.0[0]).len();
    while has < more_than_fit {
        // The power goes before the third one is told.
        m.0[2].writes_left.set(4);
        let env = MemoryEnv::new();
        assert!(open(&env, &m.0, options()).is_err(), "it is cut off");
        env.kill();
        m.0[2].writes_left.set(u64::MAX);
        let now = journal_blocks(&m.0[0]).len();
        assert!(now > has, "it was told again");
        if now < more_than_fit {
            tear(&m.0[0]);
        }
        has = now - usize::from(now < more_than_fit);
    }
    let env = MemoryEnv::new();
    let group = open(&env, &m.0, options()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    (0..8).for_each(|c| assert_eq!(read(&env, &v, c * CHUNK, 4096).expect("read")[0], 7));
}
