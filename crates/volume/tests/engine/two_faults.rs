//! A gap in the journal of an SSD, and something rotten on another member: nothing was put back, so nobody is called old. What can be
//! read is, and a repair has a plan.

use bimetal_format::label::LABEL_SIZE;
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::options::{CreateOptions, NewVolume};
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::image::places::journal_blocks;
use crate::image::{flush, make, open, pass, read_only, small, stop, writable, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A crash after a session of commits of which the disk hears too.
fn crashed(fast: usize) -> Members {
    let env = MemoryEnv::new();
    let tiers = (0..fast).map(|_| (16, Tier::Fast)).chain([(64, Tier::Slow)]);
    let members: Vec<_> = tiers.map(|(mib, tier)| (MemoryDevice::new(mib * MIB), tier)).collect();
    let devices: Vec<_> = members.iter().map(|m| m.0.clone()).collect();
    let volume = |name: &str, mib: u64, placement| NewVolume { name: name.into(), size: Some(mib * MIB), placement };
    let volumes = vec![volume("main", 8, Placement::Auto), volume("cold", 16, Placement::SlowOnly)];
    make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    let g = open(&env, &devices, writable()).expect("opens");
    for (name, at) in [("main", 0), ("cold", 100)] {
        let v = g.volume(name).expect("there");
        (at..at + 4).for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    }
    stop(&env, g).expect("an orderly stop");
    let g = open(&env, &devices, writable()).expect("opens");
    let (v, c) = (g.volume("main").expect("there"), g.volume("cold").expect("there"));
    for n in 1..9 {
        write(&env, &v, n * CHUNK, &[2; CHUNK as usize]).expect("write");
        write(&env, &c, n * CHUNK, &[3; CHUNK as usize]).expect("write");
        flush(&env, &v).expect("flush");
        let trimmed = c.clone();
        env.block_on(async move { trimmed.trim(n / 2 * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
        flush(&env, &v).expect("flush");
        pass(&env, 4);
    }
    env.kill();
    drop((g, v, c));
    Members(devices.iter().map(MemoryDevice::copy).collect())
}

/// A block of the journal rots.
fn gap(d: &MemoryDevice, n: usize) {
    let blocks = journal_blocks(d);
    assert!(n + 2 < blocks.len());
    d.flip(blocks[n], 1);
}

fn can_be_repaired(m: &Members) {
    let (env, devices) = (MemoryEnv::new(), m.copy().0);
    let e = env.clone();
    let plan = env.block_on(async move { Plan::new(e, devices, false).await });
    assert!(plan.is_ok(), "{}", plan.err().expect("refused"));
}

fn can_be_read(m: &Members) {
    let opened = open(&MemoryEnv::new(), &m.copy().0, read_only());
    assert!(opened.is_ok(), "{}", opened.err().expect("refused"));
}

#[test]
fn an_ssd_with_a_gap_is_not_old_beside_a_disk_that_is_not_whole() {
    let journal = |d: &MemoryDevice| gap(d, 2);
    let directory = |d: &MemoryDevice| d.flip(d.layout().root_block(0, d.label().root_side) + 100, 1);
    for rot in [&journal as &dyn Fn(&MemoryDevice), &directory] {
        let m = crashed(1);
        gap(&m.0[0], 2);
        rot(&m.0[1]);
        can_be_read(&m);
        can_be_repaired(&m);
    }
}

#[test]
fn an_ssd_with_a_gap_is_not_old_beside_a_disk_without_labels() {
    let m = crashed(1);
    gap(&m.0[0], 2);
    [LABEL_A, label_b(m.0[1].size)].iter().for_each(|at| m.0[1].poke(*at, &[0; LABEL_SIZE]));
    can_be_repaired(&m);
}

#[test]
fn of_two_ssds_with_a_gap_each_none_is_old() {
    let m = crashed(2);
    gap(&m.0[0], 2);
    gap(&m.0[1], 4);
    can_be_read(&m);
    can_be_repaired(&m);
}
