//! Checkpoints beside clients: commits do not wait for one, and one that nobody waits for gives way.

use std::time::Duration;

use bimetal_format::directory::{decode_root, encode_directory, Expected};
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, BLOCK, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::places::{directory, places, salt};
use crate::image::*;
use crate::memory::{MemoryDevice, MemoryEnv};

/// What a map page covers.
const PAGE: u64 = 252 * CHUNK;
/// In MiB.
const TIB: u64 = 1 << 20;

struct Rig {
    env: MemoryEnv,
    m: Members,
    group: Group<MemoryEnv>,
    v: Volume<MemoryEnv>,
}

impl Rig {
    /// Members of so many MiB, and blocks of their journals.
    fn new(fast: u64, slow: u64, journal: u32) -> Rig {
        Rig::with(fast, &[slow], journal, None)
    }

    /// The same with more disks, and a volume of so many MiB.
    fn with(fast: u64, slow: &[u64], journal: u32, volume: Option<u64>) -> Rig {
        let env = MemoryEnv::new();
        let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let m = Members([fast].iter().chain(slow).map(|mib| device(*mib)).collect());
        let size = volume.map(|mib| mib * MIB);
        let volumes = vec![NewVolume { name: "main".into(), size, placement: Placement::Auto }];
        let tiers = [Tier::Fast].into_iter().chain(slow.iter().map(|_| Tier::Slow));
        let members = m.0.iter().cloned().zip(tiers).collect();
        make(&env, members, CreateOptions { journal_blocks: Some(journal), ..small(volumes) });
        let group = open(&env, &m.0, writable()).expect("opens");
        let v = group.volume("main").expect("made at creation");
        Rig { env, m, group, v }
    }

    fn fast(&self) -> &MemoryDevice {
        &self.m.0[0]
    }

    /// Writes a block in chunk number `n` of those that lie `apart`, makes it durable, and says how long that took.
    fn commit(&self, n: u64, apart: u64) -> Duration {
        let begun = self.env.now();
        write(&self.env, &self.v, n * apart, &block(n)).expect("write");
        flush(&self.env, &self.v).expect("flush");
        self.env.now().since(begun)
    }

    fn rest(&self, d: Duration) {
        let e = self.env.clone();
        self.env.block_on(async move { e.sleep(d).await });
    }

    /// Where the journal begins.
    fn tail(&self) -> u64 {
        self.fast().label().journal_tail
    }

    fn journal_blocks(&self) -> u64 {
        self.fast().layout().journal_blocks
    }
}

fn block(n: u64) -> Vec<u8> {
    let number = (n + 1).to_le_bytes();
    number.repeat(BLOCK as usize / number.len())
}

/// After a crash all of them are there.
fn all_survive(rig: Rig, commits: u64, apart: u64) {
    let Rig { env, m, group, v } = rig;
    m.0.iter().for_each(|d| d.read_takes.set(Duration::ZERO));
    drop((group, v));
    env.kill();
    let group = open(&env, &m.0, writable()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    for n in 0..commits {
        assert!(read(&env, &v, n * apart, BLOCK).expect("read") == block(n), "{n}");
    }
    stop(&env, group).expect("orderly stop");
    assert_eq!(check(&env, &m.0).expect("checked").problems, []);
}

#[test]
fn a_flush_does_not_wait_for_a_checkpoint() {
    let rig = Rig::new(64, 256, 64);
    let (half, begun) = (rig.journal_blocks() / 2, rig.tail());
    // What was written is read back: that takes most of it.
    rig.fast().read_takes.set(Duration::from_secs(30));
    for n in 0..half + 8 {
        let took = rig.commit(n, CHUNK);
        assert!(took < Duration::from_secs(1), "commit {n}: {took:?}");
    }
    assert!(rig.group.counters().checkpoints > 0 && rig.tail() == begun, "one is under way");
    rig.rest(Duration::from_secs(200));
    assert!(rig.tail() > begun, "it came to an end");
    all_survive(rig, half + 8, CHUNK);
}

#[test]
fn a_journal_that_is_full_waits_for_the_checkpoint_under_way() {
    let rig = Rig::new(64, 256, 64);
    let blocks = rig.journal_blocks();
    rig.fast().read_takes.set(Duration::from_secs(30));
    let slowest = (0..2 * blocks).map(|n| rig.commit(n, CHUNK)).max().expect("some");
    assert!(slowest > Duration::from_secs(1), "{slowest:?}");
    assert!(rig.group.counters().journal_wraps > 0);
    all_survive(rig, 2 * blocks, CHUNK);
}

/// Commits in many pages of the map, a request every few milliseconds, until the journal is half full; then until the checkpoint
/// has ended. Its duration.
fn many_pages(rig: &Rig) -> (u64, Duration) {
    let (half, begun) = (rig.journal_blocks() / 2, rig.tail());
    let mut n = 0;
    let mut commit = || {
        rig.commit(n, PAGE);
        rig.rest(Duration::from_millis(5));
        n += 1;
        n
    };
    while commit() <= half {}
    let full = rig.env.now();
    while rig.tail() == begun {
        commit();
    }
    (n, rig.env.now().since(full))
}

#[test]
fn a_checkpoint_gives_way_to_clients() {
    let rig = Rig::new(1024, TIB, 640);
    let (commits, took) = many_pages(&rig);
    // Two batches of pages: a rest before the second is written, and one before it is read back.
    assert!((Duration::from_millis(190)..Duration::from_secs(1)).contains(&took), "{commits}: {took:?}");
    all_survive(rig, commits, PAGE);
}

#[test]
fn a_stop_does_not_wait_for_a_checkpoint_that_gives_way() {
    let rig = Rig::new(1024, TIB, 640);
    let half = rig.journal_blocks() / 2;
    for n in 0..half + 4 {
        rig.commit(n, PAGE);
        rig.rest(Duration::from_millis(5));
    }
    assert!(rig.group.counters().checkpoints > 0, "one is under way");
    let begun = rig.env.now();
    let Rig { env, m, group, .. } = rig;
    stop(&env, group).expect("orderly stop");
    assert!(env.now().since(begun) < Duration::from_millis(90), "{:?}", env.now().since(begun));
    assert!(check(&env, &m.0).expect("checked").clean);
}

#[test]
fn a_checkpoint_flips_no_label_of_a_group_that_has_latched_meanwhile() {
    let rig = Rig::new(64, 256, 64);
    let (half, begun) = (rig.journal_blocks() / 2, rig.tail());
    rig.fast().read_takes.set(Duration::from_secs(30));
    for n in 0..half + 4 {
        rig.commit(n, CHUNK);
    }
    assert!(rig.group.counters().checkpoints > 0 && rig.tail() == begun, "one is under way");
    // The next write to the member fails, a commit's. It may as well have been a label's; those after it would not fail.
    let v = rig.v.clone();
    rig.env.block_on(async move { v.trim(0, CHUNK, WriteFlags::default()).await }).expect("trim");
    rig.fast().writes_left.set(0);
    flush(&rig.env, &rig.v).expect_err("the commit fails");
    rig.fast().writes_left.set(u64::MAX);
    let label = rig.fast().label().sequence;
    rig.rest(Duration::from_secs(200));
    assert_eq!(rig.fast().label().sequence, label);
}

/// Has the directory of a member say that its first page is of some commits later, and damages that page.
fn lose_a_newer_page(members: &Members, member: usize) {
    let of_member =
        |what| places(members).into_iter().find(move |p| p.member == member && p.what == what).expect("one");
    let (d, at) = (&members.0[member], of_member("directory").bytes.start);
    let (root, label) = (of_member("root").bytes.start, members.0[member].label());
    let rows = decode_root(&d.peek(root, BLOCK as usize), 0, label.root_generation, &salt(d, root)).expect("sound");
    let mut pages: Vec<Expected> = directory(d, at, 0, rows[0]).into_iter().map(|(_, e)| e).collect();
    assert!(pages[0].is_some() && pages[0].generation() <= label.checkpoint_generation);
    pages[0] = Expected::new(label.checkpoint_generation + 2, pages[0].side());
    let mut block = vec![0; BLOCK as usize];
    encode_directory(&mut block, 0, rows[0].generation(), &pages, &salt(d, at));
    d.poke(at, &block);
    d.flip(of_member("page").bytes.start + 100, 1);
}

#[test]
fn a_damaged_page_that_knew_more_than_the_tail_is_mended_by_a_copy_that_knows_as_much() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16, 16], &[64]);
    let group = open(&env, &m.0, writable()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    write(&env, &v, 0, &block(0)).expect("write");
    stop(&env, group).expect("orderly stop");
    let group = open(&env, &m.0, writable()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    for n in 1..6 {
        write(&env, &v, n * CHUNK, &block(n)).expect("write");
        flush(&env, &v).expect("flush");
    }
    drop((group, v));
    env.kill();
    lose_a_newer_page(&m, 0);
    let group = open(&env, &m.0, writable()).expect("the other copy and the journal have it all");
    let found = group.status().recovery;
    assert!(found.iter().any(|f| f.contains("map page 0: damaged on member 0, taken from another")), "{found:?}");
    let v = group.volume("main").expect("made at creation");
    for n in 0..6 {
        assert!(read(&env, &v, n * CHUNK, BLOCK).expect("read") == block(n), "{n}");
    }
    stop(&env, group).expect("orderly stop");
    assert_eq!(check(&env, &m.0).expect("checked").problems, []);
}

/// Also when it has left by then.
#[test]
fn a_disk_that_stands_still_over_its_checkpoint_keeps_no_other_from_one() {
    for leaves in [false, true] {
        let rig = Rig::with(64, &[128, 128], 64, Some(32));
        let half = rig.journal_blocks() / 2;
        rig.commit(0, CHUNK);
        pass(&rig.env, 60);
        rig.m.0[2].answers_left.set(0);
        let known = || [0, 1].map(|m: usize| rig.m.0[m].label().checkpoint_generation);
        let mut before = known();
        for round in 0..3 {
            for n in 0..half + 8 {
                rig.commit(1 + round * (half + 8) + n, CHUNK);
            }
            // Longer than a disk takes at most until it follows.
            pass(&rig.env, 400);
            let after = known();
            assert!(before[0] < after[0] && before[1] < after[1], "leaves: {leaves}, {round}: {before:?}, {after:?}");
            before = after;
            if leaves && round == 0 {
                evacuate(&rig.env, &rig.group, 2);
                pass(&rig.env, 600);
                assert_eq!(rig.group.status().members.len(), 2, "it has left");
            }
        }
    }
}

/// While a commit is under way that takes most of the ring, a checkpoint brings no room: one is enough, however long that takes.
#[test]
fn nothing_is_checkpointed_again_and_again_while_a_long_commit_is_under_way() {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let d = [64, 64, 256].map(device).to_vec();
    let volumes = vec![NewVolume { name: "main".into(), size: Some(100 * MIB), placement: Placement::SlowOnly }];
    let members = [(d[0].clone(), Tier::Fast), (d[2].clone(), Tier::Slow)].to_vec();
    make(&env, members, CreateOptions { journal_blocks: Some(16), ..small(volumes) });
    let options = OpenOptions { journal_records: 1, ..writable() };
    let group = open(&env, &[d[0].clone(), d[2].clone()], options).expect("opens");
    let (g, other) = (group.clone(), d[1].clone());
    let new = NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(64) };
    env.block_on(async move { g.add_member(other, &new).await }).expect("added");
    let v = group.volume("main").expect("made at creation");
    // Its part of a commit takes long on the one with the longer ring; the other one has done its own soon.
    d[0].write_takes.set(Duration::from_millis(1));
    d[1].write_takes.set(Duration::from_secs(30));
    let (before, begun) = (group.counters().checkpoints, env.now());
    for round in 0..6 {
        let chunks = vec![round as u8; 9 * CHUNK as usize];
        write(&env, &v, round * 9 * CHUNK, &chunks).and_then(|()| flush(&env, &v)).expect("write");
    }
    assert!(env.now().since(begun) > Duration::from_secs(120), "each took long");
    let checkpoints = group.counters().checkpoints - before;
    assert!((2..60).contains(&checkpoints), "{checkpoints} checkpoints in {:?}", env.now().since(begun));
}
