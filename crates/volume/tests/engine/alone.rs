//! The only SSD is lost while the group is in use, and several disks are left: what is on any of them is there.

use bimetal_volume::fate::{Fate, FateRun};
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::image::{flush, make, open, pass, read, read_only, small, stop, writable, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const CHUNKS: u64 = 24 * MIB / CHUNK;

/// Two disks of which each has chunks of a volume, some in its pages and some in its journal, whose SSD is lost.
fn disks() -> Members {
    filled(16, &[20, 20], CHUNKS, &Vec::from_iter(0..CHUNKS))
}

/// Disks of so many MiB each, without their SSD (of `fast` MiB), on which chunks of a volume of so many were written.
fn filled(fast: u64, mib: &[u64], volume_chunks: u64, chunks: &[u64]) -> Members {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let mut devices: Vec<MemoryDevice> = [&[fast], mib].concat().into_iter().map(device).collect();
    let tiers = std::iter::once(Tier::Fast).chain(mib.iter().map(|_| Tier::Slow));
    let members = devices.iter().cloned().zip(tiers).collect();
    let cold = NewVolume { name: "cold".into(), size: Some(volume_chunks * CHUNK), placement: Placement::SlowOnly };
    make(&env, members, small(vec![cold]));
    let step = |chunks: &[u64]| {
        let group = open(&env, &devices, OpenOptions { migrate: false, ..writable() }).expect("opens");
        let v = group.volume("cold").expect("made at creation");
        chunks.iter().for_each(|c| write(&env, &v, c * CHUNK, &stamp(*c)).expect("write"));
        flush(&env, &v).expect("flush");
        group
    };
    let (in_pages, in_journals) = chunks.split_at(chunks.len() * 3 / 4);
    stop(&env, step(in_pages)).expect("stops");
    let _in_use = step(in_journals);
    pass(&env, 20);
    env.kill();
    devices.iter_mut().for_each(|d| d.env = None);
    Members(devices.split_off(1))
}

fn stamp(chunk: u64) -> Vec<u8> {
    vec![1 + (chunk % 251) as u8; CHUNK as usize]
}

/// Whether each chunk can be read; if so, it must be right.
fn served(m: &Members, options: OpenOptions) -> Vec<bool> {
    let env = MemoryEnv::new();
    let group = open(&env, &m.0, options).expect("opens");
    let v = group.volume("cold").expect("made at creation");
    let right = |c| match read(&env, &v, c * CHUNK, CHUNK) {
        Ok(got) => {
            assert_eq!(got, stamp(c), "chunk {c}");
            true
        }
        Err(_) => false,
    };
    (0..CHUNKS).map(right).collect()
}

/// The SSD is struck off, and a new one takes its place.
fn repaired(m: &Members) -> Members {
    let (env, mut devices) = (MemoryEnv::new(), m.copy().0);
    let new = MemoryDevice::new(16 * MIB);
    let (e, left, fast) = (env.clone(), devices.clone(), new.clone());
    let repaired = env.block_on(async move {
        let mut plan = Plan::new(e, left, false).await?;
        plan.add(fast, &NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) }).await?;
        plan.carry_out().await
    });
    devices.push(new);
    repaired.expect("a new SSD is all that it takes");
    Members(devices)
}

#[test]
fn what_is_on_any_of_the_disks_is_served_and_outlives_a_repair() {
    let m = disks();
    let each: Vec<Vec<bool>> = m.0.iter().map(|d| served(&Members(vec![d.copy()]), read_only())).collect();
    assert!(each.iter().all(|own| own.contains(&true)), "each has some: else this is no test");
    assert!(each[0].iter().zip(&each[1]).all(|(a, b)| a != b), "each chunk is on one of them");
    assert_eq!(served(&m, read_only()), [true; CHUNKS as usize]);
    assert_eq!(served(&repaired(&m), writable()), [true; CHUNKS as usize]);
}

/// So many pages are not merged all at once.
#[test]
fn what_is_on_any_of_three_large_disks_is_served() {
    let (gib, pages) = (1024, 3 << 15);
    let volume_chunks = pages * bimetal_format::ENTRIES_PER_PAGE as u64;
    // At both ends of the parts that are merged, and within; the last ones are in journals only.
    let at = |page: u64| [page * 252, page * 252 + 251];
    let chunks: Vec<u64> = [0, 1, (1 << 15) - 1, 1 << 15, 70_000, pages - 1].into_iter().flat_map(at).collect();
    let again = chunks.iter().map(|c| c + 100 - (c % 252) / 2);
    let chunks: Vec<u64> = chunks.iter().copied().chain(again).collect();
    let m = filled(2048, &[1200 * gib, 1200 * gib, 1200 * gib], volume_chunks, &chunks);
    let env = MemoryEnv::new();
    let right = |m: &Members| {
        let group = open(&env, &m.0, read_only()).expect("opens");
        let v = group.volume("cold").expect("made at creation");
        let is_right = |c: &&u64| read(&env, &v, **c * CHUNK, CHUNK).is_ok_and(|got| got == stamp(**c));
        chunks.iter().filter(is_right).count()
    };
    let each: Vec<usize> = m.0.iter().map(|d| right(&Members(vec![d.copy()]))).collect();
    assert!(each.iter().all(|n| *n > 0) && each.iter().sum::<usize>() == chunks.len(), "{each:?}");
    assert_eq!(right(&m), chunks.len());
}

#[test]
fn a_disk_whose_map_is_damaged_takes_only_its_own_along() {
    for damaged in 0..2 {
        let m = disks();
        let other = served(&Members(vec![m.0[1 - damaged].copy()]), read_only());
        let (layout, label) = (m.0[damaged].layout(), m.0[damaged].label());
        m.0[damaged].flip(layout.root_block(0, label.root_side) + 100, 1);
        assert_eq!(served(&m, read_only()), other);
        let env = MemoryEnv::new();
        let group = open(&env, &m.0, read_only()).expect("opens");
        let said = format!("the map of member {} is damaged or old", damaged + 1);
        assert!(group.status().recovery.iter().any(|what| what.contains(&said)), "{:?}", group.status().recovery);
        let lost = |r: &FateRun| matches!(r.fate, Fate::Lost | Fate::PerhapsLost);
        let v = group.volume("cold").expect("made at creation");
        let fates = v.fates(0, CHUNKS * CHUNK, usize::MAX).expect("inside");
        assert!(fates.iter().filter(|r| lost(r)).map(|r| r.len).sum::<u64>() > 0);
    }
}
