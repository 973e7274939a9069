//! What one member knows of the last commit, or of copies, and another does not.

use std::time::Duration;

use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, BLOCK, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::places::{journal_blocks, places};
use crate::image::*;
use crate::memory::{MemoryDevice, MemoryEnv};

/// More often than anybody asks.
const ALWAYS: u32 = 1_000_000;

fn volume(g: &Group<MemoryEnv>) -> Volume<MemoryEnv> {
    g.volume("main").expect("made at creation")
}

/// An environment whose random numbers are not those of `times` before it.
fn later(times: u32) -> MemoryEnv {
    let env = MemoryEnv::new();
    for _ in 0..times * 1000 {
        let _of_before = env.random();
    }
    env
}

/// All structures of this kind of the first member rot. (Others may have no map yet.)
fn rot(m: &Members, what: &str) {
    let places = places(&Members(vec![m.0[0].clone()])).into_iter().filter(|p| p.what == what);
    places.for_each(|p| m.0[0].flip(p.bytes.start + 100, 1));
}

/// Two SSDs, of which the first has made its checkpoint just now, with commits of so many chunks, each in several blocks of a
/// journal, or in one. Also the number of chunks, all of which were flushed.
fn one_checkpoint(chunks: u64) -> (Members, u64) {
    let env = MemoryEnv::new();
    let mut m = Members([16, 16, 32].map(|mib| MemoryDevice::new(mib * MIB)).to_vec());
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = m.0.iter().cloned().zip([Tier::Fast, Tier::Fast, Tier::Slow]).collect();
    let volumes = vec![NewVolume { name: "main".into(), size: None, placement: Placement::Auto }];
    make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    let v = volume(&open(&env, &m.0, few_records()).expect("opens"));
    m.0[1].write_takes.set(Duration::from_millis(50));
    let mut n = 0;
    while m.0[0].label().checkpoint_generation == 0 {
        write(&env, &v, n * CHUNK, &vec![1 + n as u8; (chunks * CHUNK) as usize]).expect("write");
        flush(&env, &v).expect("flush");
        n += chunks;
        let rest = env.sleep(Duration::from_millis(1));
        env.block_on(rest);
    }
    env.kill();
    m.0.iter_mut().for_each(|d| d.env = None);
    m.0[1].write_takes.set(Duration::ZERO);
    assert_eq!(m.0[1].label().checkpoint_generation, 0, "the second has made none");
    (m, n)
}

fn few_records() -> OpenOptions {
    OpenOptions { journal_records: 2, ..writable() }
}

#[test]
fn a_commit_of_which_a_journal_has_a_part_is_taken_from_pages_that_have_it_whole() {
    let (m, chunks) = one_checkpoint(6);
    let last = *journal_blocks(&m.0[1]).last().expect("some");
    m.0[1].flip(last + 100, 1);
    let holds_all = |env: &MemoryEnv, m: &Members| {
        let group = open(env, &m.0, few_records()).expect("nothing is lost");
        let v = volume(&group);
        for c in 0..chunks {
            assert_eq!(read(env, &v, c * CHUNK, 1).expect("read"), [1 + (c / 6 * 6) as u8], "{c}");
        }
        drop((group, v));
        env.kill();
    };
    holds_all(&later(1), &m);
    // The second one has it all now, too.
    rot(&m, "root");
    holds_all(&later(2), &m);
}

#[test]
fn a_member_whose_journal_has_as_much_of_the_last_commit_as_the_ring_of_the_other_lends_its_pages() {
    for in_a_commit in [1, 6] {
        let (m, chunks) = one_checkpoint(in_a_commit);
        rot(&m, "page");
        let env = later(1);
        let group = open(&env, &m.0, few_records()).expect("nothing is lost");
        let v = volume(&group);
        for c in 0..chunks {
            let byte = 1 + (c / in_a_commit * in_a_commit) as u8;
            assert_eq!(read(&env, &v, c * CHUNK, 1).expect("read"), [byte], "{c}");
        }
        stop(&env, group).expect("orderly stop");
        assert_eq!(check(&env, &m.0).expect("checked").problems, []);
    }
}

#[test]
fn a_page_is_not_lent_by_a_member_that_may_have_a_part_of_the_last_commit_only() {
    let (m, chunks) = one_checkpoint(6);
    let last = *journal_blocks(&m.0[1]).last().expect("some");
    m.0[1].flip(last + 100, 1);
    rot(&m, "page");
    assert!(open(&later(1), &m.0, few_records()).is_err(), "something is lost");
    let env = later(1);
    let v = volume(&open(&env, &m.0, read_only()).expect("readable"));
    for c in 0..chunks {
        let got = read(&env, &v, c * CHUNK, 1);
        assert!(got.is_err() || got == Ok(vec![1 + (c / 6 * 6) as u8]), "{c}: {got:?}");
    }
}

/// A group with chunks on the SSD of which a disk has copies; and which these are.
fn with_kept_copies() -> (Members, Vec<u64>) {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[24], &[64, 16]);
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    let v = volume(&g);
    (0..200).for_each(|i| write(&env, &v, i * CHUNK, &[i as u8; CHUNK as usize]).expect("write"));
    pass(&env, 60);
    let tier = |at: u64| v.extents(at * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    let cold: Vec<u64> = (0..200).filter(|i| tier(*i) == 2).take(4).collect();
    for _ in 0..4 {
        cold.iter().for_each(|c| drop(read(&env, &v, c * CHUNK + 8192, 4096)));
        pass(&env, 20);
    }
    assert!(cold.iter().all(|c| tier(*c) == 3), "{:?}", g.status().mover);
    stop(&env, g).expect("orderly stop");
    (m, cold)
}

/// A disk lends pages to a start that cannot read the other one's map, so that copies do not count in it; it is cut off.
#[test]
fn copies_that_do_not_count_in_a_start_that_mends_pages_do_not_in_the_next_one() {
    let (m, chunks) = with_kept_copies();
    rot(&m, "page");
    let root = places(&m).into_iter().find(|p| p.member == 2 && p.what == "root").expect("it has one");
    let (before, mut mended) = (m.0[0].label(), 0);
    for writes in 0.. {
        let m = m.copy();
        m.0[2].unread.borrow_mut().insert(root.bytes.start / BLOCK, ALWAYS);
        m.0[0].writes_left.set(writes);
        if open(&later(1), &m.0, writable()).is_ok() {
            break;
        }
        let label = m.0[0].label();
        if label.epoch.id != before.epoch.id || label.root_side == before.root_side {
            continue;
        }
        mended += 1;
        // The other disk is read again, and chunks are written in place; then the SSD is lost.
        let (env, m) = (later(2), m.copy());
        m.0[2].unread.borrow_mut().clear();
        let group = open(&env, &m.0, writable()).expect("opens");
        let v = volume(&group);
        chunks.iter().for_each(|c| write(&env, &v, c * CHUNK, &[0xee; CHUNK as usize]).expect("in place"));
        stop(&env, group).expect("orderly stop");
        let env = later(3);
        let v = volume(&open(&env, &m.0[1..], OpenOptions { allow_missing: true, ..read_only() }).expect("readable"));
        for c in &chunks {
            let got = read(&env, &v, c * CHUNK, 1);
            assert!(got.is_err() || got == Ok(vec![0xee]), "{writes} writes, chunk {c}: {got:?}");
        }
    }
    assert!(mended > 0, "some start was cut off behind the mending");
}
