//! Kept copies on a disk where an SSD is gone, after a crash (C9.2) and after an orderly stop, with a second fault beside it.

use bimetal_format::label::LABEL_SIZE;
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::backend::Backend;
use bimetal_volume::fate::Fate;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Volume;

use crate::image::places::places;
use crate::image::{create_sized, flush, open, pass, read, read_only, stop, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

fn stamp(chunk: u64) -> u8 {
    1 + (chunk % 251) as u8
}

/// Chunks that were promoted and have a kept copy, when the power goes; by the fast member that they are on.
fn with_copies(fast: &[u64]) -> (Members, Vec<(usize, u64)>) {
    copies_on(fast, &[96], false)
}

fn copies_on(fast: &[u64], slow: &[u64], orderly: bool) -> (Members, Vec<(usize, u64)>) {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", fast, slow, Some(60 * MIB));
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    let v: Volume<MemoryEnv> = g.volume("main").expect("made");
    let chunks = v.size() / CHUNK;
    for c in 0..chunks {
        write(&env, &v, c * CHUNK, &vec![stamp(c); CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    pass(&env, 120);
    let on_slow = |c: &u64| v.members_of(c * CHUNK).next().is_some_and(|m| usize::from(m) >= fast.len());
    let cold: Vec<u64> = (0..chunks).filter(on_slow).step_by(3).take(40).collect();
    for _ in 0..6 {
        cold.iter().for_each(|c| drop(read(&env, &v, c * CHUNK + 8192, 4096)));
        pass(&env, 20);
    }
    let kept = cold
        .into_iter()
        .filter(|c| v.members_of(c * CHUNK).count() > 1)
        .map(|c| (usize::from(v.members_of(c * CHUNK).next().expect("mapped")), c))
        .collect();
    flush(&env, &v).expect("flush");
    pass(&env, 60);
    match orderly {
        true => stop(&env, g).expect("an orderly stop"),
        false => env.kill(),
    }
    (m, kept)
}

/// Without this member, all of these chunks are served from the disk if that is asked for.
fn are_offered(m: &Members, without: usize, chunks: &[u64]) {
    let env = MemoryEnv::new();
    let mut devices: Vec<MemoryDevice> = m.copy().0;
    devices.remove(without);
    let g = open(&env, &devices, OpenOptions { kept_copies: true, ..read_only() }).expect("opens");
    let v = g.volume("main").expect("made");
    for c in chunks {
        let fate = v.fates(c * CHUNK, CHUNK, 9).expect("inside")[0].fate;
        let got = read(&env, &v, c * CHUNK, CHUNK).map(|got| got[0]);
        assert_eq!((fate, got), (Fate::KeptCopy, Ok(stamp(*c))), "chunk {c} without member {without}");
    }
}

#[test]
fn where_the_only_ssd_is_dead_the_copy_on_the_disk_is_offered() {
    let (m, kept) = with_copies(&[24]);
    let chunks: Vec<u64> = kept.iter().map(|k| k.1).collect();
    assert!(chunks.len() > 10, "{kept:?}");
    are_offered(&m, 0, &chunks);
}

/// The other one even knows the whole map.
#[test]
fn where_one_of_two_ssds_is_dead_the_copy_on_the_disk_is_offered() {
    let (m, kept) = with_copies(&[16, 16]);
    let of = |dead: usize| -> Vec<u64> { kept.iter().filter(|k| k.0 == dead).map(|k| k.1).collect() };
    assert!(of(0).len() + of(1).len() > 10 && of(0).len() > 2, "{kept:?}");
    (0..2).for_each(|dead| are_offered(&m, dead, &of(dead)));
}

/// After an orderly stop copies are no older than what they are copies of. What `damage` does to another member says nothing against that.
fn are_kept_by_a_repair(fast: &[u64], slow: &[u64], damage: impl Fn(&mut Members)) {
    let (mut m, kept) = copies_on(fast, slow, true);
    let chunks: Vec<u64> = kept.iter().filter(|k| k.0 == 0).map(|k| k.1).collect();
    assert!(chunks.len() > 2, "{kept:?}");
    damage(&mut m);
    let env = MemoryEnv::new();
    let new = MemoryDevice::new(24 * MIB);
    let (e, left, d) = (env.clone(), m.0[1..].to_vec(), new.clone());
    env.block_on(async move {
        let mut plan = Plan::new(e, left, false).await.expect("a plan");
        let as_new = NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) };
        plan.add(d, &as_new).await.expect("new");
        plan.carry_out().await.expect("repaired")
    });
    m.0[0] = new;
    let g = open(&env, &m.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("made");
    for c in chunks {
        assert_eq!(read(&env, &v, c * CHUNK, CHUNK).expect("read")[0], stamp(c), "chunk {c}");
    }
}

fn overwrite_labels(d: &MemoryDevice) {
    for place in [LABEL_A, label_b(d.size)] {
        d.poke(place, &[0; LABEL_SIZE]);
    }
}

#[test]
fn a_repair_keeps_copies_where_another_member_has_lost_its_labels() {
    are_kept_by_a_repair(&[24], &[48, 64], |m| overwrite_labels(&m.0[1]));
    are_kept_by_a_repair(&[16, 16], &[96], |m| overwrite_labels(&m.0[1]));
}

#[test]
fn a_repair_keeps_copies_where_the_directory_of_a_disk_is_damaged() {
    are_kept_by_a_repair(&[24], &[48, 64], |m| {
        let root = places(m).into_iter().find(|p| p.member == 1 && p.what == "root").expect("has one");
        m.0[1].flip(root.bytes.start + 70, 2);
    });
}

#[test]
fn a_repair_keeps_older_copies_where_another_ssd_is_left() {
    let (m, kept) = with_copies(&[16, 16]);
    let chunks: Vec<u64> = kept.iter().filter(|k| k.0 == 0).map(|k| k.1).collect();
    let env = MemoryEnv::new();
    let mut devices: Vec<MemoryDevice> = m.copy().0;
    devices[0] = MemoryDevice::new(16 * MIB);
    let (e, d) = (env.clone(), devices.clone());
    env.block_on(async move {
        let mut plan = Plan::new(e, vec![d[1].clone(), d[2].clone()], true).await.expect("a plan");
        let new = NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) };
        plan.add(d[0].clone(), &new).await.expect("new");
        plan.carry_out().await.expect("repaired")
    });
    let g = open(&env, &devices, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("made");
    for c in chunks {
        assert_eq!(read(&env, &v, c * CHUNK, CHUNK).expect("read")[0], stamp(c), "chunk {c}");
    }
}
