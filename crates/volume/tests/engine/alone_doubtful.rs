//! Several disks are left alone, and what one of them has heard is not how things are: a page rotted, a copy does not count, a move was
//! prepared and cancelled. What is in a slot now is not what was there once, and what one disk alone would serve is served.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::places::{journal_blocks, places};
use crate::image::{evacuate, flush, make, open, pass, read, read_only, small, stop, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// An SSD and two disks, all of these sizes in MiB, with volumes. What is discarded stays where it was.
fn group(sizes: [u64; 3], journal_blocks: u32, volumes: Vec<NewVolume>) -> (MemoryEnv, Members) {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let m = Members(sizes.map(device).to_vec());
    m.0.iter().for_each(|d| d.discard_fails.set(95));
    let members = m.0.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    make(&env, members, CreateOptions { journal_blocks: Some(journal_blocks), ..small(volumes) });
    (env, m)
}

fn cold(chunks: u64) -> NewVolume {
    NewVolume { name: "cold".into(), size: Some(chunks * CHUNK), placement: Placement::SlowOnly }
}

fn start(env: &MemoryEnv, m: &Members, name: &str, migrate: bool) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let g = open(env, &m.0, OpenOptions { migrate, ..OpenOptions::default() }).expect("opens");
    let v = g.volume(name).expect("made at creation");
    (g, v)
}

/// The power goes.
fn cut_off(env: &MemoryEnv, used: (Group<MemoryEnv>, Volume<MemoryEnv>)) {
    drop(used);
    env.kill();
}

fn store(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: impl Iterator<Item = u64>, content: impl Fn(u64) -> u8) {
    chunks.for_each(|c| write(env, v, c * CHUNK, &vec![content(c); CHUNK as usize]).expect("write"));
    flush(env, v).expect("flush");
}

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: impl Iterator<Item = u64>) {
    for c in chunks {
        let v = v.clone();
        env.block_on(async move { v.trim(c * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
    }
    flush(env, v).expect("flush");
}

fn stamp(chunk: u64) -> u8 {
    1 + chunk as u8
}

fn rot_pages(m: &Members, member: usize) {
    let pages = places(m).into_iter().filter(|p| p.member == member && p.what == "page");
    pages.for_each(|p| m.0[member].flip(p.bytes.start + 100, 1));
}

/// What the first byte of each of these chunks reads as with these members alone; `None` is an error.
fn served(disks: &[MemoryDevice], name: &str, chunks: &[u64]) -> Vec<Option<u8>> {
    let (env, disks): (_, Vec<MemoryDevice>) = (MemoryEnv::new(), disks.iter().map(MemoryDevice::copy).collect());
    let g = open(&env, &disks, OpenOptions { kept_copies: true, ..read_only() }).expect("opens");
    let v = g.volume(name).expect("made at creation");
    chunks.iter().map(|c| read(&env, &v, c * CHUNK, CHUNK).ok().map(|got| got[0])).collect()
}

/// Nothing is read of these chunks that was never theirs.
fn none_is_anothers(disks: &[MemoryDevice], name: &str, chunks: &[u64]) {
    for (c, got) in chunks.iter().zip(served(disks, name, chunks)) {
        assert!(got.is_none_or(|got| got == stamp(*c) || got == 0), "chunk {c} reads as {got:?}");
    }
}

#[test]
fn a_page_that_another_disk_has_from_before_brings_back_nothing_that_left_a_slot() {
    const CHUNKS: u64 = 194;
    let (env, m) = group([16, 16, 20], 64, vec![cold(CHUNKS)]);
    let (g, v) = start(&env, &m, "cold", false);
    store(&env, &v, 0..60, stamp);
    let on_last: Vec<u64> = (0..60).filter(|c| v.members_of(c * CHUNK).next() == Some(2)).take(32).collect();
    drop(v);
    stop(&env, g).expect("stops");
    // They leave it, and the power goes before it hears of that; then its page rots.
    let used = start(&env, &m, "cold", false);
    trim(&env, &used.1, on_last.iter().copied());
    cut_off(&env, used);
    rot_pages(&m, 2);
    // Others come into all slots, and leave.
    let used = start(&env, &m, "cold", false);
    for _ in 0..3 {
        // Not in order: each takes room of its own at first.
        store(&env, &used.1, (0..CHUNKS - 60).map(|i| 60 + i * 9 % (CHUNKS - 60)), stamp);
        pass(&env, 20);
        trim(&env, &used.1, 60..CHUNKS);
        pass(&env, 20);
    }
    cut_off(&env, used);
    none_is_anothers(&m.0[1..], "cold", &on_last);
}

#[test]
fn a_copy_that_does_not_count_does_not_come_back_on_a_damaged_page() {
    let main = NewVolume { name: "main".into(), size: Some(30 * MIB), placement: Placement::Auto };
    let (env, m) = group([24, 48, 16], 128, vec![main, cold(200)]);
    let (g, v) = start(&env, &m, "main", true);
    store(&env, &v, 0..200, stamp);
    pass(&env, 60);
    drop(v);
    stop(&env, g).expect("stops");
    let (g, v) = start(&env, &m, "main", true);
    let on_ssd = |c: &u64| v.members_of(c * CHUNK).next() == Some(0);
    let used: Vec<u64> = (0..200).filter(|c| !on_ssd(c)).take(24).collect();
    for _ in 0..4 {
        used.iter().for_each(|c| drop(read(&env, &v, c * CHUNK + 8192, 4096)));
        pass(&env, 20);
    }
    let kept: Vec<u64> = used.into_iter().filter(|c| on_ssd(c) && v.members_of(c * CHUNK).count() > 1).collect();
    assert!(kept.len() > 10, "hardly a copy was kept: this is no test");
    pass(&env, 20);
    cut_off(&env, (g, v));
    (1..3).for_each(|disk| rot_pages(&m, disk));
    // After the crash the copies do not count: their slots go to others, which leave again.
    let used = start(&env, &m, "cold", false);
    for _ in 0..4 {
        store(&env, &used.1, 0..200, |_| 250);
        pass(&env, 20);
        trim(&env, &used.1, 0..200);
        pass(&env, 20);
    }
    cut_off(&env, used);
    none_is_anothers(&m.0[1..2], "main", &kept);
    none_is_anothers(&m.0[1..], "main", &kept);
}

/// Chunks are written, with so much patience, while they are about to go from the first disk to the second: their move is prepared there.
/// What is served of them without the SSD by the first disk alone, and by both.
fn written_while_prepared(target_hangs: bool) -> [Vec<Option<u8>>; 2] {
    const CHUNKS: u64 = 40;
    let (env, m) = group([16, 40, 20], 64, vec![cold(CHUNKS)]);
    let (g, v) = start(&env, &m, "cold", false);
    store(&env, &v, 0..CHUNKS, stamp);
    drop(v);
    stop(&env, g).expect("stops");
    let (g, v) = start(&env, &m, "cold", true);
    pass(&env, 20);
    let on_first = || (0..CHUNKS).filter(|c| v.members_of(c * CHUNK).next() == Some(1)).collect::<Vec<_>>();
    // Time for a write between the prepared record and the end of its sync.
    m.0[2].sync_takes.set(Duration::from_millis(200));
    let before = (journal_blocks(&m.0[2]).len(), on_first());
    evacuate(&env, &g, 1);
    while journal_blocks(&m.0[2]).len() == before.0 {
        let step = env.sleep(Duration::from_millis(1));
        env.block_on(step);
    }
    assert_eq!(on_first(), before.1, "something has moved already: this is no test");
    store(&env, &v, before.1.into_iter(), |_| 200);
    match target_hangs {
        true => {
            m.0[2].answers_left.set(0);
            for minute in 1..=10 {
                store(&env, &v, on_first().into_iter(), |_| 200 + minute);
                pass(&env, 60);
            }
        }
        false => {
            let soon = env.sleep(Duration::from_millis(100));
            env.block_on(soon);
        }
    }
    let stayed = on_first();
    assert!(!stayed.is_empty(), "all have gone: this is no test");
    cut_off(&env, (g, v));
    m.0[2].answers_left.set(u64::MAX);
    m.0.iter().for_each(|d| d.sync_takes.set(Duration::ZERO));
    [served(&m.0[1..2], "cold", &stayed), served(&m.0[1..], "cold", &stayed)]
}

#[test]
fn a_move_that_was_prepared_and_cancelled_hides_nothing_that_was_written_since() {
    for target_hangs in [false, true] {
        let [alone, both] = written_while_prepared(target_hangs);
        let newest = if target_hangs { 210 } else { 200 };
        assert!(alone.iter().all(|got| *got == Some(newest)), "{alone:?}");
        assert_eq!(both, alone, "the target hangs: {target_hangs}");
    }
}
