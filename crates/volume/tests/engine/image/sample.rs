//! A small group that has seen some use: several commits, checkpoints, moves both ways, trims, partly valid chunks.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use super::{create, flush, open, read, stop, writable, write, Members};
use crate::memory::MemoryEnv;

const BLOCK: u64 = 4096;

/// Members and what their volume must hold.
pub(crate) struct Sample {
    pub(crate) members: Members,
    /// What the volume holds.
    pub(crate) now: Vec<u8>,
    /// What it held before the last commit.
    pub(crate) before: Vec<u8>,
    /// What it held after each of the last commits, those of a whole journal at least.
    pub(crate) past: Vec<Vec<u8>>,
}

/// Content of a block: never zeros, easy to compress, different for each block and round.
pub(crate) fn stamp(block: u64, round: u64) -> Vec<u8> {
    let word = (block << 20 | round << 1 | 1).to_le_bytes();
    word.repeat(BLOCK as usize / word.len())
}

struct Use {
    env: MemoryEnv,
    volume: Volume<MemoryEnv>,
    model: Vec<u8>,
    random: u64,
}

impl Use {
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn write(&mut self, block: u64, round: u64) {
        let data = stamp(block, round);
        self.model[(block * BLOCK) as usize..][..data.len()].copy_from_slice(&data);
        write(&self.env, &self.volume, block * BLOCK, &data).expect("write");
    }

    fn trim(&mut self, chunk: u64) {
        self.model[(chunk * CHUNK) as usize..][..CHUNK as usize].fill(0);
        let v = self.volume.clone();
        self.env.block_on(async move { v.trim(chunk * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
    }

    fn flush(&self) {
        flush(&self.env, &self.volume).expect("flush");
    }

    fn rest(&self, seconds: u64) {
        let sleep = self.env.sleep(Duration::from_secs(seconds));
        self.env.block_on(sleep);
    }
}

fn start(env: &MemoryEnv, members: &Members, options: OpenOptions) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let group = open(env, &members.0, options).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    (group, volume)
}

/// Makes the group and uses it. `clean`: stopped in order; else killed after a flush, with some commits in the journal
/// that no page holds yet.
pub(crate) fn sample(env: &MemoryEnv, fast: &[u64], slow: &[u64], clean: bool) -> Sample {
    let members = create(env, "tank", fast, slow);
    let (group, volume) = start(env, &members, OpenOptions::default());
    let model = vec![0; volume.size() as usize];
    let mut u = Use { env: env.clone(), volume, model, random: 7 };
    let chunks = u.volume.size() / CHUNK;
    // More than the fast tier takes: it spills, and the reserve is restored afterwards by moves.
    for c in 0..chunks * 3 / 4 {
        u.write(c * 32, 1);
        u.write(c * 32 + 1 + c % 31, 2);
    }
    u.flush();
    u.rest(60);
    let on_slow = |c: &u64| u.volume.extents(c * CHUNK, CHUNK, 1).expect("inside")[0].tier == 2;
    let used_again: Vec<u64> = (0..chunks).filter(on_slow).take(4).collect();
    for round in 3..7 {
        for c in &used_again {
            read(env, &u.volume, c * CHUNK, BLOCK).expect("read");
            u.write(c * 32 + round, round);
        }
        u.rest(60);
    }
    let moved = group.status().mover;
    assert!(moved.demoted > 0 && moved.promoted > 0, "moves both ways: {moved:?}");
    stop(env, group).expect("orderly stop");
    let (group, volume) = start(env, &members, writable());
    u.volume = volume;
    for round in 7..40 {
        let block = u.below(chunks * 32);
        u.write(block, round);
        let chunk = u.below(chunks);
        u.trim(chunk);
        u.flush();
    }
    // Up to here a checkpoint may come at any time; then a few commits that stay in the journal.
    let mut past = Vec::new();
    for round in 40.. {
        let used = group.status().members[0].journal_used;
        if round > 47 && (3..7).contains(&used) {
            break;
        }
        past.push(u.model.clone());
        // A block that was never written, so that every commit has a record.
        let block = (0..chunks * 32).rev().find(|b| u.model[(b * BLOCK) as usize] == 0).expect("not full");
        u.write(block, round);
        u.flush();
        u.rest(1);
    }
    if clean {
        stop(env, group).expect("orderly stop");
    } else {
        env.kill();
    }
    let before = past.last().expect("several commits").clone();
    Sample { members: members.copy(), now: u.model, before, past }
}
