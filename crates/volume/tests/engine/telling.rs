//! What was flushed to a slow member is known to it soon, whatever else goes on: the SSD may die.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{flush, make, open, pass, read, read_only, small, stop, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: usize = 4096;
/// So far apart chunks are no neighbours.
const APART: u64 = 16;

/// An SSD and disks, with a volume that is bound to the disks: a block is written in chunks all over it.
struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
    group: Group<MemoryEnv>,
    v: Volume<MemoryEnv>,
}

impl Rig {
    fn new(slow: &[u64]) -> Rig {
        let env = MemoryEnv::new();
        let device = |mib: &u64| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let devices: Vec<MemoryDevice> = [16].iter().chain(slow).map(device).collect();
        let members =
            devices.iter().enumerate().map(|(i, d)| (d.clone(), if i == 0 { Tier::Fast } else { Tier::Slow }));
        let cold = NewVolume { name: "cold".into(), size: Some(24 * MIB), placement: Placement::SlowOnly };
        make(&env, members.collect(), small(vec![cold]));
        let group = open(&env, &devices, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
        let v = group.volume("cold").expect("made at creation");
        let r = Rig { env, devices, group, v };
        (0..r.chunks()).for_each(|n| r.write(n, 0));
        flush(&r.env, &r.v).expect("flush");
        pass(&r.env, 20);
        r
    }

    fn chunks(&self) -> u64 {
        self.v.size() / CHUNK / APART
    }

    fn write(&self, n: u64, block: u64) {
        write(&self.env, &self.v, n * APART * CHUNK + block * BLOCK as u64, &[n as u8 + 1; BLOCK]).expect("write");
    }

    fn trim(&self, n: u64) {
        let v = self.v.clone();
        self.env.block_on(async move { v.trim(n * APART * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
        flush(&self.env, &self.v).expect("flush");
    }

    /// The SSD is lost, and all else but this disk: it has what was written there.
    fn alone_knows(&self, disk: usize, n: u64, block: u64) {
        let env = MemoryEnv::new();
        let g = open(&env, &[self.devices[disk].copy()], read_only()).expect("readable");
        let v = g.volume("cold").expect("made at creation");
        let got = read(&env, &v, n * APART * CHUNK + block * BLOCK as u64, BLOCK as u64);
        assert_eq!(got, Ok(vec![n as u8 + 1; BLOCK]), "flushed data that the disk has");
    }
}

#[test]
fn what_was_flushed_is_told_beside_discards_that_take_long() {
    let r = Rig::new(&[64]);
    let disk = &r.devices[1];
    disk.discard_takes.set(Duration::from_secs(20));
    let discarded = disk.discarded.get();
    (4..r.chunks()).for_each(|n| r.trim(n));
    pass(&r.env, 15);
    r.write(0, 1);
    flush(&r.env, &r.v).expect("flush");
    pass(&r.env, 5);
    r.alone_knows(1, 0, 1);
    assert!(disk.discarded.get() < discarded + CHUNK, "the discards have ended: this is no test");
    disk.discard_takes.set(Duration::ZERO);
    stop(&r.env, r.group).expect("stops");
}

#[test]
fn what_was_flushed_to_one_disk_is_told_while_another_stands_still() {
    let r = Rig::new(&[64, 64]);
    let home = |n: u64| r.v.members_of(n * APART * CHUNK).next().map(|m| m as usize);
    let on = |disk| (0..r.chunks()).find(|n| home(*n) == Some(disk)).expect("something is on each");
    let (hung, other) = (on(1), on(2));
    // The first disk is about to be told, and does not come back for an hour.
    r.devices[1].sync_takes.set(Duration::from_secs(3600));
    r.trim(hung);
    pass(&r.env, 12);
    r.write(other, 1);
    flush(&r.env, &r.v).expect("flush");
    pass(&r.env, 5);
    r.alone_knows(2, other, 1);
    r.devices[1].sync_takes.set(Duration::ZERO);
    pass(&r.env, 3700);
    stop(&r.env, r.group).expect("stops");
}
