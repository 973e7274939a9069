//! Members that are added while the group is open, and devices that cannot be.

mod image;
mod memory;

use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::group::structure::{NewMember, NewMemberReport, StructureError};
use bimetal_volume::group::OpenError;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Group;
use image::{check, create, flush, open, read, read_only, stop, writable, write, MIB};
use memory::{MemoryDevice, MemoryEnv};

fn add(
    env: &MemoryEnv,
    g: &Group<MemoryEnv>,
    device: &MemoryDevice,
    tier: Tier,
) -> Result<NewMemberReport, StructureError> {
    let (g, device) = (g.clone(), device.clone());
    let new = NewMember { tier, force: false, journal_blocks: Some(16) };
    env.block_on(async move { g.add_member(device, &new).await })
}

#[test]
fn a_new_member_takes_chunks_at_once_and_is_there_at_every_start_from_then_on() {
    let env = MemoryEnv::new();
    let mut m = create(&env, "tank", &[16], &[32]);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 0, &[7; CHUNK as usize]).expect("write");
    let before = g.status();
    let disk = MemoryDevice::new(24 * MIB);
    let report = add(&env, &g, &disk, Tier::Fast).expect("added");
    assert_eq!((report.index, report.capacity / MIB), (2, 20));
    assert_eq!(g.status().fast_free, before.fast_free + report.capacity, "its slots are free");
    for chunk in 1..8 {
        write(&env, &v, chunk * CHUNK, &[chunk as u8; CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    stop(&env, g).expect("orderly stop");
    match open(&env, &m.0, writable()).err().expect("refused without it") {
        OpenError::Incomplete { missing, .. } => assert!(missing.starts_with("2 (fast"), "{missing}"),
        e => panic!("{e}"),
    }
    m.0.push(disk);
    assert!(check(&env, &m.0).expect("checked").is_sound());
    let g = open(&env, &m.0, writable()).expect("opens");
    assert_eq!(g.status().recovery, Vec::<String>::new());
    let v = g.volume("main").expect("there");
    assert!(read(&env, &v, 5 * CHUNK, CHUNK).expect("read") == [5; CHUNK as usize]);
    stop(&env, g).expect("orderly stop");
    // The new one knows everything.
    let g = open(&env, &m.0[1..], read_only()).expect("without the first fast member");
    let got = read(&env, &g.volume("main").expect("there"), 0, CHUNK);
    assert!(got.is_err() || got.is_ok_and(|d| d == [7; CHUNK as usize]));
}

#[test]
fn what_cannot_be_added_is_refused_in_words_and_changes_nothing() {
    let env = MemoryEnv::new();
    let (m, other) = (create(&env, "tank", &[16], &[32]), create(&env, "vault", &[16], &[32]));
    let g = open(&env, &m.0, writable()).expect("opens");
    let tables = |g: &Group<MemoryEnv>| g.status().members.len();
    for (device, words) in [
        (m.0[1].clone(), "member 1 of this group already"),
        (other.0[0].clone(), "group 'vault'"),
        (MemoryDevice::new(MIB), "too small"),
        (MemoryDevice::new(0), "too small"),
    ] {
        let e = add(&env, &g, &device, Tier::Slow).expect_err("refused").to_string();
        assert!(e.contains(words), "{e}");
        assert_eq!(tables(&g), 2);
    }
    // A label that cannot be read is somebody's all the same.
    let damaged = other.copy().0.swap_remove(1);
    damaged.flip(LABEL_A + 100, 1);
    damaged.flip(label_b(damaged.size) + 100, 1);
    let e = add(&env, &g, &damaged, Tier::Slow).expect_err("refused").to_string();
    assert!(e.contains("carries a Bimetal label") && e.contains("--force"), "{e}");
    let v = g.volume("main").expect("there");
    write(&env, &v, 0, &[1; 4096]).expect("the group goes on");
    stop(&env, g).expect("orderly stop");
    assert!(check(&env, &m.0).expect("checked").is_sound());
    assert!(check(&env, &other.0).expect("checked").is_sound());
    let g = open(&env, &m.0, read_only()).expect("opens");
    assert!(add(&env, &g, &MemoryDevice::new(24 * MIB), Tier::Slow).is_err_and(|e| e.to_string().contains("read-only")));
}

#[test]
fn a_device_that_is_no_member_does_not_stop_a_whole_group() {
    let env = MemoryEnv::new();
    let mut m = create(&env, "tank", &[16], &[32]);
    m.0.push(MemoryDevice::new(24 * MIB));
    let g = open(&env, &m.0, writable()).expect("opens");
    let found = g.status().recovery;
    assert!(found.len() == 1 && found[0].contains("device 2 is not used"), "{found:?}");
    stop(&env, g).expect("orderly stop");
    // Only where one is missing it may be the one.
    let options = OpenOptions::default();
    assert!(matches!(open(&env, &m.0[1..], options), Err(OpenError::Label { device: 1, .. })));
    // A member whose labels are gone is as good as missing to who wants to read what is left.
    let g = open(&env, &m.0[1..], read_only()).expect("opens");
    let found = g.status().recovery;
    assert!(found.iter().any(|f| f.contains("device 1 is not used")), "{found:?}");
}

/// Both tiers are laid out in runs however many members they have: a stream is read with few requests.
#[test]
fn several_members_of_a_tier_are_filled_in_runs() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[40, 40], &[64]);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    // Two streams side by side, one of which comes in another order than that of its addresses.
    let order = [3u64, 1, 0, 2, 7, 5, 4, 6];
    for i in 0..64u64 {
        write(&env, &v, i * CHUNK, &[1; CHUNK as usize]).expect("write");
        let other = i / 8 * 8 + order[i as usize % 8];
        write(&env, &v, (128 + other) * CHUNK, &[2; CHUNK as usize]).expect("write");
    }
    let requests = |first: u64, chunks: u64| {
        let count = |g: &Group<MemoryEnv>| g.status().members.iter().map(|m| m.reads).sum::<u64>();
        let before = count(&g);
        for mib in 0..chunks / 8 {
            read(&env, &v, (first + mib * 8) * CHUNK, 8 * CHUNK).expect("read");
        }
        count(&g) - before
    };
    assert_eq!(requests(0, 64), 8, "a MiB is one request");
    assert_eq!(requests(128, 64), 8, "also where it was written in another order");
}
