//! Groups in memory whose members are looked at and damaged behind the engine's back.

pub(crate) mod places;
pub(crate) mod sample;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::{label_b, Layout, LABEL_A};
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::group::OpenError;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::repair::{Plan, RepairError, Report};
use bimetal_volume::units::{Placement, Tier};
use bimetal_volume::{gather, inspect, Group, Volume};

use crate::memory::{MemoryDevice, MemoryEnv};

pub(crate) const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Members of a group, by index.
#[derive(Clone)]
pub(crate) struct Members(pub(crate) Vec<MemoryDevice>);

pub(crate) type Open = Result<Group<MemoryEnv>, OpenError>;

/// A group `tank` with a reserve of 1 MiB and a journal that is soon full.
pub(crate) fn small(volumes: Vec<NewVolume>) -> CreateOptions {
    CreateOptions { name: "tank".into(), volumes, sector_size: 4096, reserve: Some(MIB), journal_blocks: Some(16) }
}

/// Makes a group of these members.
pub(crate) fn make(env: &MemoryEnv, members: Vec<(MemoryDevice, Tier)>, options: CreateOptions) {
    let e = env.clone();
    env.block_on(async move { Group::create(&e, members, &options).await }).expect("creation");
}

/// Makes a group `name` of so many MiB per member, with a volume `main`.
pub(crate) fn create(env: &MemoryEnv, name: &str, fast: &[u64], slow: &[u64]) -> Members {
    create_sized(env, name, fast, slow, None)
}

/// The same with a volume of so many bytes.
pub(crate) fn create_sized(env: &MemoryEnv, name: &str, fast: &[u64], slow: &[u64], size: Option<u64>) -> Members {
    let devices: Vec<MemoryDevice> = fast.iter().chain(slow).map(|m| MemoryDevice::new(m * MIB)).collect();
    let tier = |i| if i < fast.len() { Tier::Fast } else { Tier::Slow };
    let members = devices.iter().enumerate().map(|(i, d)| (d.clone(), tier(i))).collect();
    let volumes = vec![NewVolume { name: "main".into(), size, placement: Placement::Auto }];
    make(env, members, CreateOptions { name: name.into(), ..small(volumes) });
    Members(devices)
}

pub(crate) fn read_only() -> OpenOptions {
    OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() }
}

/// Writable, with nothing that moves by itself, so that a test knows what lies where.
pub(crate) fn writable() -> OpenOptions {
    OpenOptions { migrate: false, commit_interval: Duration::from_secs(3600), ..OpenOptions::default() }
}

pub(crate) fn open(env: &MemoryEnv, devices: &[MemoryDevice], options: OpenOptions) -> Open {
    let (e, devices) = (env.clone(), devices.to_vec());
    env.block_on(async move { Group::open(e, devices, options).await })
}

pub(crate) fn check(env: &MemoryEnv, devices: &[MemoryDevice]) -> Result<inspect::Report, OpenError> {
    let (e, devices) = (env.clone(), devices.to_vec());
    env.block_on(async move { inspect::check(e, devices, &|_, _| {}).await })
}

/// Verifies a group that is open, and mends it if asked to.
pub(crate) fn check_in_use(env: &MemoryEnv, g: &Group<MemoryEnv>, mend: bool) -> Result<inspect::Report, Error> {
    let g = g.clone();
    env.block_on(async move { g.check(mend, &|over, of| assert!(over <= of)).await })
}

pub(crate) fn write(env: &MemoryEnv, v: &Volume<MemoryEnv>, offset: u64, data: &[u8]) -> Result<(), Error> {
    let mut b = BufMut::with_phase(data.len(), offset);
    b.copy_from_slice(data);
    let v = v.clone();
    env.block_on(async move { v.write(offset, b.freeze(), WriteFlags::default()).await })
}

pub(crate) fn read(env: &MemoryEnv, v: &Volume<MemoryEnv>, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
    let v = v.clone();
    env.block_on(async move { v.read(offset, len).await.map(|p| gather(&p)) })
}

pub(crate) fn flush(env: &MemoryEnv, v: &Volume<MemoryEnv>) -> Result<(), Error> {
    let v = v.clone();
    env.block_on(async move { v.flush().await })
}

pub(crate) fn stop(env: &MemoryEnv, g: Group<MemoryEnv>) -> Result<(), Error> {
    env.block_on(async move { g.stop().await })
}

/// Adds a member to an open group.
pub(crate) fn add(env: &MemoryEnv, g: &Group<MemoryEnv>, device: &MemoryDevice, tier: Tier) {
    let (g, device) = (g.clone(), device.clone());
    let new = NewMember { tier, force: false, journal_blocks: Some(16) };
    env.block_on(async move { g.add_member(device, &new).await }).expect("added");
}

/// Has a member begin to leave.
pub(crate) fn evacuate(env: &MemoryEnv, g: &Group<MemoryEnv>, index: usize) {
    let g = g.clone();
    env.block_on(async move { g.evacuate_member(index as u8).await }).expect("there is room");
}

/// Slots in use on a member.
pub(crate) fn used(g: &Group<MemoryEnv>, index: usize) -> u64 {
    let m = &g.status().members[index];
    m.slots - m.free - m.quarantined
}

/// Lets time pass.
pub(crate) fn pass(env: &MemoryEnv, seconds: u64) {
    let e = env.clone();
    env.block_on(async move { e.sleep(Duration::from_secs(seconds)).await });
}

/// Repairs a group.
pub(crate) fn repair(env: &MemoryEnv, devices: &[MemoryDevice]) -> Result<Report, RepairError> {
    let (e, devices) = (env.clone(), devices.to_vec());
    env.block_on(async move { Plan::new(e, devices, false).await?.carry_out().await })
}

/// CRC-32C of all that the volume of a repaired group holds.
pub(crate) fn repaired_content(members: &Members) -> u32 {
    let env = MemoryEnv::new();
    let group = open(&env, &members.copy().0, read_only()).expect("it opens");
    let volume = group.volume("main").expect("its volume");
    let all = read(&env, &volume, 0, volume.size()).expect("all of it can be read");
    bimetal_format::block::crc32c(&all)
}

impl MemoryDevice {
    /// A device of its own with the same content, of `size` bytes.
    pub(crate) fn resized(&self, size: u64) -> MemoryDevice {
        let blocks = self.blocks.borrow().range(..size / BLOCK as u64).map(|(k, v)| (*k, v.clone())).collect();
        MemoryDevice { blocks: Rc::new(RefCell::new(blocks)), ..MemoryDevice::new(size) }
    }

    /// A device of its own with the same content.
    pub(crate) fn copy(&self) -> MemoryDevice {
        self.resized(self.size)
    }

    /// Bytes at `offset`, which is a multiple of 4096.
    pub(crate) fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let blocks = self.blocks.borrow();
        let first = offset / BLOCK as u64;
        let block = |n| blocks.get(&n).map_or(vec![0xa5; BLOCK], |b| b.to_vec());
        (first..first + (len / BLOCK) as u64).flat_map(block).collect()
    }

    /// Changes the bytes at `offset`, a multiple of 4096.
    pub(crate) fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut blocks = self.blocks.borrow_mut();
        for (i, b) in bytes.chunks_exact(BLOCK).enumerate() {
            blocks.insert(offset / BLOCK as u64 + i as u64, b.into());
        }
    }

    /// Flips bits of one byte.
    pub(crate) fn flip(&self, offset: u64, bits: u8) {
        let place = offset / BLOCK as u64 * BLOCK as u64;
        let mut block = self.peek(place, BLOCK);
        block[(offset - place) as usize] ^= bits;
        self.poke(place, &block);
    }

    /// The newest label.
    pub(crate) fn label(&self) -> Label {
        let at = |place| Label::decode(&self.peek(place, LABEL_SIZE), place).ok();
        let both = [at(LABEL_A), at(label_b(self.size))];
        both.into_iter().flatten().max_by_key(|l| l.sequence).expect("a member")
    }

    /// Replaces both labels.
    pub(crate) fn set_label(&self, label: &Label) {
        for place in [LABEL_A, label_b(self.size)] {
            self.poke(place, &label.encode(place));
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.label().layout()
    }
}

impl Members {
    pub(crate) fn copy(&self) -> Members {
        Members(self.0.iter().map(MemoryDevice::copy).collect())
    }

    /// All members as one file: per member its size and its blocks with content, deflated together.
    pub(crate) fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for d in &self.0 {
            let blocks = d.blocks.borrow();
            out.extend(d.size.to_le_bytes());
            out.extend((blocks.len() as u64).to_le_bytes());
            for (n, b) in blocks.iter() {
                out.extend(n.to_le_bytes());
                out.extend_from_slice(b);
            }
        }
        miniz_oxide::deflate::compress_to_vec(&out, 9)
    }

    /// Reads what [`Members::save`] wrote.
    pub(crate) fn load(file: &[u8]) -> Members {
        let all = miniz_oxide::inflate::decompress_to_vec(file).expect("a whole file");
        let mut rest = &all[..];
        let mut devices = Vec::new();
        while !rest.is_empty() {
            let d = MemoryDevice::new(number(&mut rest));
            for _ in 0..number(&mut rest) {
                let place = number(&mut rest) * BLOCK as u64;
                let (block, after) = rest.split_at(BLOCK);
                d.poke(place, block);
                rest = after;
            }
            devices.push(d);
        }
        Members(devices)
    }
}

fn number(rest: &mut &[u8]) -> u64 {
    let (head, after) = rest.split_at(8);
    *rest = after;
    u64::from_le_bytes(head.try_into().expect("8 bytes"))
}
