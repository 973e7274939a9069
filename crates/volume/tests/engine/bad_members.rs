//! Wrong members: each gets its own refusal in words, and nothing is written to any of them.

use bimetal_format::label::{Label, LabelError, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::group::OpenError;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::repair::{Plan, RepairError};
use bimetal_volume::units::{Placement, Tier};

use crate::image::{
    check, create, create_sized, flush, make, open, read, read_only, repair, small, stop, writable, write, Members, MIB,
};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A group of two fast members and a slow one, used and stopped; its first 64 KiB hold sevens.
fn group(env: &MemoryEnv, name: &str) -> Members {
    let members = create(env, name, &[16, 16], &[32]);
    session(env, &members, 7);
    members
}

/// Opens, writes `value` to the first 64 KiB, stops.
fn session(env: &MemoryEnv, members: &Members, value: u8) {
    let g = open(env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(env, &v, 0, &[value; 65536]).expect("write");
    flush(env, &v).expect("flush");
    stop(env, g).expect("orderly stop");
}

/// Opens both ways and gives the error of the writable one; nothing may have been written.
fn refused(env: &MemoryEnv, devices: &[MemoryDevice]) -> OpenError {
    let before: Vec<u64> = devices.iter().map(|d| d.writes.get()).collect();
    let error = open(env, devices, OpenOptions::default()).err().expect("refused");
    let after: Vec<u64> = devices.iter().map(|d| d.writes.get()).collect();
    assert_eq!(before, after, "a refused member was written to: {error}");
    let words = error.to_string();
    assert!(words.len() > 15 && words.contains(' '), "words for people: {words}");
    error
}

fn refused_in_both_ways(env: &MemoryEnv, devices: &[MemoryDevice]) -> OpenError {
    assert!(open(env, devices, read_only()).is_err(), "also read-only");
    refused(env, devices)
}

#[test]
fn no_member_at_all() {
    assert!(matches!(refused_in_both_ways(&MemoryEnv::new(), &[]), OpenError::NoDevices));
}

#[test]
fn the_order_of_members_does_not_matter() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    for (n, order) in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]].into_iter().enumerate() {
        let devices = order.map(|i: usize| m.0[i].clone());
        let g = open(&env, &devices, writable()).expect("opens");
        assert_eq!(g.status().recovery, Vec::<String>::new());
        let v = g.volume("main").unwrap();
        assert!(read(&env, &v, 0, 65536).unwrap() == [7 + n as u8; 65536]);
        write(&env, &v, 0, &[8 + n as u8; 65536]).unwrap();
        stop(&env, g).unwrap();
    }
}

#[test]
fn a_member_of_another_group() {
    let env = MemoryEnv::new();
    let (a, b) = (group(&env, "tank"), group(&env, "vault"));
    let devices = [a.0[0].clone(), a.0[1].clone(), b.0[2].clone()];
    match refused_in_both_ways(&env, &devices) {
        OpenError::OtherGroup { device: 2, other, name } => assert_eq!((&*other, &*name), ("vault", "tank")),
        e => panic!("{e}"),
    }
    // Also a group of the same name: names are not identity.
    let c = group(&env, "tank");
    let devices = [a.0[0].clone(), c.0[1].clone(), a.0[2].clone()];
    assert!(matches!(refused_in_both_ways(&env, &devices), OpenError::OtherGroup { device: 1, .. }));
}

#[test]
fn a_member_twice() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    for devices in [
        vec![m.0[0].clone(), m.0[1].clone(), m.0[2].clone(), m.0[1].copy()],
        vec![m.0[0].clone(), m.0[1].clone(), m.0[1].copy()],
    ] {
        match refused_in_both_ways(&env, &devices) {
            OpenError::Doubled { first: 1, second, member: 1, name } => {
                assert_eq!((second, &*name), (devices.len() - 1, "tank"));
            }
            e => panic!("{e}"),
        }
    }
}

#[test]
fn a_missing_member() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    for gone in 0..3 {
        let devices: Vec<_> = (0..3).filter(|i| *i != gone).map(|i| m.0[i].clone()).collect();
        match refused(&env, &devices) {
            OpenError::Incomplete { name, missing } => {
                assert_eq!(name, "tank");
                assert!(missing.starts_with(&gone.to_string()), "{missing}");
            }
            e => panic!("{e}"),
        }
        let strict = OpenOptions { allow_missing: false, ..read_only() };
        assert!(matches!(open(&env, &devices, strict), Err(OpenError::Incomplete { .. })));
        let g = open(&env, &devices, read_only()).expect("read-only without it");
        assert!(g.status().recovery.iter().any(|f| f.contains("missing")), "{:?}", g.status().recovery);
        let got = read(&env, &g.volume("main").unwrap(), 0, 65536);
        assert!(got.is_err() || got.unwrap() == [7; 65536]);
    }
}

#[test]
fn an_old_copy_put_back() {
    let env = MemoryEnv::new();
    for old in 0..3 {
        let m = group(&env, "tank");
        let copy = m.0[old].copy();
        session(&env, &m, 9);
        let mut devices = m.0.clone();
        devices[old] = copy;
        match refused_in_both_ways(&env, &devices) {
            OpenError::Stale { name, member } => assert_eq!((&*name, member), ("tank", old as u8)),
            e => panic!("{e}"),
        }
        // Without it, read-only, the others are as good as ever.
        devices.remove(old);
        let g = open(&env, &devices, read_only()).expect("opens");
        let got = read(&env, &g.volume("main").unwrap(), 0, 65536);
        assert!(got.is_err() || got.unwrap() == [9; 65536]);
    }
}

#[test]
fn members_used_apart_from_each_other() {
    let env = MemoryEnv::new();
    let left = group(&env, "tank");
    let right = left.copy();
    session(&env, &left, 8);
    session(&env, &right, 9);
    for devices in [
        [left.0[0].clone(), left.0[1].clone(), right.0[2].clone()],
        [right.0[0].clone(), left.0[1].clone(), left.0[2].clone()],
    ] {
        match refused_in_both_ways(&env, &devices) {
            OpenError::Fork { name, members } => {
                assert_eq!(name, "tank");
                assert!(!members.is_empty());
            }
            e => panic!("{e}"),
        }
    }
}

#[test]
fn a_device_that_is_no_member_or_has_shrunk() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let with = |d: MemoryDevice| [m.0[0].clone(), m.0[1].clone(), d];
    for size in [0, 4096, 65536, 128 << 10, 3 * MIB, 32 * MIB] {
        let devices = with(MemoryDevice::new(size));
        let error = refused(&env, &devices);
        assert!(matches!(error, OpenError::Label { device: 2, source: LabelError::NotALabel }), "{size}: {error}");
        // Read-only it counts as missing.
        let found = open(&env, &devices, read_only()).expect("opens without it").status().recovery;
        assert!(found.iter().any(|f| f.contains("device 2 is not used")), "{size}: {found:?}");
    }
    for size in [32 * MIB - 4096, 20 * MIB, 4 * MIB] {
        let devices = with(m.0[2].resized(size));
        let error = refused(&env, &devices);
        assert!(
            matches!(error, OpenError::Shrunk { device: 2, size: s, expected } if (s, expected) == (size, 32 * MIB)),
            "{size}: {error}"
        );
        assert!(error.to_string().contains(&format!("has {size} bytes, but had {} bytes", 32 * MIB)), "{error}");
        let found = open(&env, &devices, read_only()).expect("opens without it").status().recovery;
        assert!(found.iter().any(|f| f.contains("device 2 is not used: it has")), "{size}: {found:?}");
    }
    // A repair is told of what may be the member, and all of it.
    let failed = |d| {
        let plan = env.block_on(Plan::new(env.clone(), with(d).to_vec(), false));
        plan.expect("a plan").failed().to_vec()
    };
    for size in [32 * MIB - 4096, 4 * MIB, 0] {
        assert!(matches!(&failed(m.0[2].resized(size))[..], [(2, _)]), "{size}");
    }
    assert_eq!(failed(MemoryDevice::new(32 * MIB)), []);
    let grown = open(&env, &with(m.0[2].resized(40 * MIB)), writable()).expect("a larger device is no harm");
    assert!(read(&env, &grown.volume("main").unwrap(), 0, 65536).unwrap() == [7; 65536]);
}

/// Whether the start was refused because a device is not whole, by what is at this place.
fn is_apart(error: &OpenError, member: usize, at: u64) -> bool {
    matches!(error, OpenError::NotWhole { device, apart } if (*device, apart.place) == (member, at))
}

/// A part of the member `of` is what was there before, or another device's.
fn with_a_part_of(env: &MemoryEnv, m: &Members, member: usize, part: std::ops::Range<u64>, of: &MemoryDevice) {
    let devices = m.copy().0;
    let len = (part.end - part.start) as usize;
    devices[member].poke(part.start, &of.peek(part.start, len));
    let place = if part.start == 0 { LABEL_A } else { label_b(devices[member].size) };
    let error = refused(env, &devices);
    assert!(is_apart(&error, member, place), "{error}");
    let found = open(env, &devices, read_only()).expect("opens").status().recovery;
    assert!(found.iter().any(|f| f.contains("bring all of it") || f.contains("Bring all of it")), "{found:?}");
    let plan = env.block_on(Plan::new(env.clone(), devices.clone(), false)).expect("a plan");
    assert!(plan.is_not_whole() && !plan.reasons().is_empty());
    repair(env, &devices).expect("repaired");
    drop(open(env, &devices, writable()).expect("it is a member again, as it is"));
}

/// A copy is made over one that was made before, from the start or from the end, and ends early.
#[test]
fn a_copy_over_an_older_one_that_ended_early_is_not_taken_for_whole() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let before = m.copy();
    stop(&env, open(&env, &m.0, writable()).expect("opens")).expect("an orderly stop");
    for member in 0..3 {
        let (size, old) = (m.0[member].size, &before.0[member]);
        with_a_part_of(&env, &m, member, size / 2..size, old);
    }
    with_a_part_of(&env, &m, 2, 0..1 << 20, &before.0[2]);
}

/// The same over what was a member of another group, which has seen more.
#[test]
fn a_copy_over_a_former_member_that_ended_early_is_not_taken_for_whole() {
    let env = MemoryEnv::new();
    let (m, other) = (group(&env, "tank"), group(&env, "other"));
    for _ in 0..3 {
        stop(&env, open(&env, &other.0, writable()).expect("opens")).expect("an orderly stop");
    }
    let size = m.0[2].size;
    with_a_part_of(&env, &m, 2, size / 2..size, &other.0[2]);
    // A repair that takes it as it is writes over its own label last: a write that was cut off would leave only the other's.
    let own = m.0[2].label();
    for writes in 0..8 {
        let devices = m.copy().0;
        devices[2].poke(size / 2, &other.0[2].peek(size / 2, (size / 2) as usize));
        devices[2].writes_left.set(writes);
        repair(&env, &devices).expect_err("cut off");
        let label = |place| Label::decode(&devices[2].peek(place, LABEL_SIZE), place).expect("sound");
        let (first, second) = (label(LABEL_A), label(label_b(size)));
        assert!(first.sequence == own.sequence || second.group == own.group, "after {writes} writes");
    }
}

#[test]
fn a_member_that_was_cut_off_and_grew_again_is_taken_as_it_is_by_a_repair_only() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    for (member, clean) in [(0, true), (2, true), (2, false)] {
        let devices = m.copy().0;
        if !clean {
            drop(open(&env, &devices, writable()).expect("opens"));
        }
        let (place, zeros) = (label_b(devices[member].size), vec![0; 4 * MIB as usize]);
        devices[member].poke(devices[member].size - 4 * MIB, &zeros);
        let error = refused(&env, &devices);
        assert!(is_apart(&error, member, place), "{error}");
        let found = open(&env, &devices, read_only()).expect("opens").status().recovery;
        assert!(found.iter().any(|f| f.contains("only zeros")), "{found:?}");
        let report = check(&env, &devices).expect("checked");
        assert!(report.problems.iter().any(|p| p.serious && p.what.contains("only zeros")), "{:?}", report.problems);
        let plan = env.block_on(Plan::new(env.clone(), devices.clone(), false)).expect("a plan");
        assert!(plan.is_not_whole() && !plan.reasons().is_empty());
        repair(&env, &devices).expect("repaired");
        drop(open(&env, &devices, writable()).expect("it is a member again, as it is"));
    }
}

#[test]
fn a_group_whose_making_was_cut_off_before_the_last_second_label_starts() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16, 16], &[32]);
    m.0[2].poke(label_b(m.0[2].size), &[0; LABEL_SIZE]);
    stop(&env, open(&env, &m.0, writable()).expect("opens")).expect("an orderly stop");
    assert!(m.0[2].peek(label_b(m.0[2].size), LABEL_SIZE).iter().any(|b| *b != 0), "it has both now");
}

/// It is known by what else is on it, unless that cannot be read, or another device has it too: neither says that it is gone.
#[test]
fn a_repair_is_told_of_a_device_without_labels_that_may_be_the_member_which_is_missing() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let bare = || {
        let d = m.0[2].resized(m.0[2].size);
        [LABEL_A, label_b(d.size)].into_iter().for_each(|place| d.poke(place, &[0; LABEL_SIZE]));
        d
    };
    let told = |slow: &[MemoryDevice]| {
        let devices = [&m.0[..2], slow].concat();
        let plan = env.block_on(Plan::new(env.clone(), devices, false)).expect("a plan");
        let failed: Vec<usize> = plan.failed().iter().map(|(at, _)| *at).collect();
        (plan.missing().len(), failed)
    };
    assert_eq!(told(&[bare()]), (0, vec![]));
    assert_eq!(told(&[MemoryDevice::new(32 * MIB)]), (1, vec![]), "another device says nothing of it");
    assert_eq!(told(&[bare(), bare()]), (1, vec![2, 3]));
    let silent = bare();
    let of_label =
        |block: &u64| [LABEL_A, label_b(silent.size)].iter().any(|at| (at / 4096..at / 4096 + 16).contains(block));
    let rest = (0..silent.size / 4096).filter(|block| !of_label(block));
    silent.unread.borrow_mut().extend(rest.map(|block| (block, u32::MAX)));
    assert_eq!(told(&[silent]), (1, vec![2]));
}

/// How long its journal is its own labels say alone. One that was added got one as short as the shortest of the others has.
#[test]
fn a_repair_recognises_a_small_disk_that_was_added_and_has_no_labels_left() {
    let env = MemoryEnv::new();
    let mut m = Members([512, 1024].map(|mib| MemoryDevice::new(mib * MIB)).to_vec());
    let members = m.0.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
    let volumes = vec![NewVolume { name: "main".into(), size: Some(64 * MIB), placement: Placement::Auto }];
    make(&env, members, CreateOptions { journal_blocks: None, ..small(volumes) });
    let g = open(&env, &m.0, writable()).expect("opens");
    let (group, new) = (g.clone(), MemoryDevice::new(256 * MIB));
    let wish = NewMember { tier: Tier::Slow, force: false, journal_blocks: None };
    m.0.push(new.clone());
    env.block_on(async move { group.add_member(new, &wish).await }).expect("added");
    stop(&env, g).expect("stops");
    let g = open(&env, &m.0, writable()).expect("opens");
    stop(&env, g).expect("stops");
    assert_eq!(m.0[2].layout().journal_blocks, m.0[0].layout().journal_blocks);
    [LABEL_A, label_b(m.0[2].size)].into_iter().for_each(|place| m.0[2].poke(place, &[0; LABEL_SIZE]));
    for order in [[0, 1, 2], [1, 0, 2]] {
        let (e, devices) = (env.clone(), order.map(|i| m.0[i].clone()).to_vec());
        let plan = env.block_on(async move { Plan::new(e, devices, false).await }).expect("a plan");
        assert!(plan.missing().is_empty(), "in the order {order:?} {:?} is struck off", plan.missing());
    }
}

/// Overwrites `bytes` of both labels at `offset`, under a checksum that is right.
fn forge(d: &MemoryDevice, offset: usize, bytes: &[u8]) {
    [LABEL_A, label_b(d.size)].into_iter().for_each(|place| forge_at(d, place, offset, bytes));
}

/// The same of the label at `place`.
fn forge_at(d: &MemoryDevice, place: u64, offset: usize, bytes: &[u8]) {
    let mut label = d.peek(place, LABEL_SIZE);
    label[offset..offset + bytes.len()].copy_from_slice(bytes);
    label[8..12].fill(0);
    let crc = bimetal_format::block::crc32c(&[&label[..], &place.to_le_bytes()].concat());
    label[8..12].copy_from_slice(&crc.to_le_bytes());
    d.poke(place, &label);
}

#[test]
fn newer_formats_and_unknown_features() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let changed = |offset: usize, bytes: &[u8]| {
        let c = m.copy();
        c.0.iter().for_each(|d| forge(d, offset, bytes));
        c.0
    };
    let error = refused_in_both_ways(&env, &changed(12, &[2, 0]));
    assert!(matches!(error, OpenError::Label { source: LabelError::Version(2), .. }), "{error}");
    let error = refused_in_both_ways(&env, &changed(40, &[64]));
    assert!(matches!(error, OpenError::Label { source: LabelError::Features(64), .. }), "{error}");
    let read_only_features = changed(32, &[1]);
    assert!(matches!(refused(&env, &read_only_features), OpenError::ReadOnlyFeatures { .. }));
    let g = open(&env, &read_only_features, read_only()).expect("reading is allowed");
    assert!(read(&env, &g.volume("main").unwrap(), 0, 65536).unwrap() == [7; 65536]);
    let g = open(&env, &changed(24, &[1]), writable()).expect("a compatible feature is ignored");
    assert!(read(&env, &g.volume("main").unwrap(), 0, 65536).unwrap() == [7; 65536]);
}

/// Read-only, members may be missing; but one that a newer version could use is not: nothing is done without it.
#[test]
fn a_member_of_a_newer_format_is_not_called_missing() {
    let env = MemoryEnv::new();
    let mut m = group(&env, "tank");
    forge(&m.0[2], 12, &[2, 0]);
    let error = refused_in_both_ways(&env, &m.0);
    assert!(matches!(error, OpenError::Label { device: 2, source: LabelError::Version(2) }), "{error}");
    m.0.remove(2);
    open(&env, &m.0, read_only()).expect("who leaves it out means it");
}

/// A newer version was cut off in a flip: one label of two is its own.
#[test]
fn one_label_of_a_newer_format_is_not_written_over_by_way_of_the_other() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    for place in [LABEL_A, label_b(32 * MIB)] {
        let sequence = u64::from_le_bytes(m.0[2].peek(place, 4096)[16..24].try_into().expect("8 bytes"));
        let changed = |offset, bytes: &[u8], by: u64| {
            let c = m.copy();
            forge_at(&c.0[2], place, offset, bytes);
            forge_at(&c.0[2], place, 16, &sequence.wrapping_add(by).to_le_bytes());
            c
        };
        for by in [0, 1, 9] {
            let error = refused_in_both_ways(&env, &changed(40, &[64 | 3], by).0);
            assert!(matches!(error, OpenError::Label { device: 2, source: LabelError::Features(_) }), "{error}");
        }
        // Where it has its sequence nobody knows.
        for by in [1, 1_u64.wrapping_neg()] {
            let error = refused_in_both_ways(&env, &changed(12, &[2, 0], by).0);
            assert!(matches!(error, OpenError::Label { device: 2, source: LabelError::Version(2) }), "{error}");
        }
        open(&env, &changed(40, &[64 | 3], 1_u64.wrapping_neg()).0, writable()).expect("it is older than the other");
    }
}

/// Beside a label that is damaged, or cannot be read, one of a newer version is no damaged one: a repair would write over it.
#[test]
fn a_label_of_a_newer_format_counts_beside_a_damaged_one() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let [a, b] = [LABEL_A, label_b(32 * MIB)];
    for (rotten, newer) in [(a, b), (b, a)] {
        for unread in [false, true] {
            let c = m.copy();
            forge_at(&c.0[2], newer, 40, &[64 | 3]);
            match unread {
                true => drop(c.0[2].unread.borrow_mut().insert(rotten / 4096, u32::MAX)),
                false => c.0[2].poke(rotten + 5000, &[0xff; 8]),
            }
            let error = refused_in_both_ways(&env, &c.0);
            assert!(matches!(error, OpenError::Label { device: 2, source: LabelError::Features(_) }), "{error}");
            assert!(matches!(repair(&env, &c.0), Err(RepairError::Open(OpenError::Label { device: 2, .. }))));
        }
    }
    // Rot alone does not look like a newer version.
    m.0[2].poke(a + 12, &[2, 0]);
    open(&env, &m.0, writable()).expect("the other copy is sound");
}

/// The disk that dies: it cannot even say who it is.
#[test]
fn a_device_that_fails_at_its_label_is_as_good_as_missing() {
    let env = MemoryEnv::new();
    let mut m = group(&env, "tank");
    let dying = MemoryDevice::new(32 * MIB);
    dying.holes_fail.set(true);
    m.0.push(dying.clone());
    let g = open(&env, &m.0, writable()).expect("the group is whole without it");
    let found = g.status().recovery;
    assert!(found.iter().any(|f| f.contains("device 3 is not used: I/O error")), "{found:?}");
    stop(&env, g).expect("orderly stop");
    m.0[2] = m.0.pop().expect("the dying one");
    assert!(matches!(refused(&env, &m.0), OpenError::Device { device: 2, .. }));
    let g = open(&env, &m.0, read_only()).expect("what is left can be read");
    let found = g.status().recovery;
    assert!(found.iter().any(|f| f.contains("device 2 is not used: I/O error")), "{found:?}");
}

#[test]
fn labels_that_contradict_each_other() {
    let env = MemoryEnv::new();
    let m = group(&env, "tank");
    let two_members = m.copy();
    let mut label = two_members.0[0].label();
    label.members.truncate(2);
    two_members.0[0].set_label(&label);
    assert!(matches!(refused_in_both_ways(&env, &two_members.0), OpenError::Damaged { .. }));
    let other_volume = m.copy();
    let mut label = other_volume.0[2].label();
    label.volumes[0].size -= 128 << 10;
    other_volume.0[2].set_label(&label);
    let error = refused_in_both_ways(&env, &other_volume.0);
    assert!(matches!(&error, OpenError::Damaged { what, .. } if what.contains("contradict")), "{error}");
}

/// Both histories hold what was flushed in them: whose tables have the higher number, or a member that the other side never knew, says
/// nothing of which is wanted.
#[test]
fn halves_that_were_repaired_and_used_apart_are_refused() {
    for renamed in [false, true] {
        let env = MemoryEnv::new();
        let m = create_sized(&env, "tank", &[16, 16], &[32, 32], Some(8 * MIB));
        session(&env, &m, 7);
        let halves = [[0, 2], [1, 3]].map(|half| Members(half.map(|i: usize| m.0[i].clone()).to_vec()));
        for (half, value) in halves.iter().zip([8, 9]) {
            repair(&env, &half.0).expect("what the volume was promised fits a half");
            session(&env, half, value);
        }
        if renamed {
            let g = open(&env, &halves[1].0, writable()).expect("opens");
            let g = std::rc::Rc::new(g);
            let h = g.clone();
            env.block_on(async move { h.rename_volume("main", "other").await }).expect("renamed");
            stop(&env, std::rc::Rc::into_inner(g).expect("nobody else has it")).expect("stops");
        }
        let e = refused_in_both_ways(&env, &m.0);
        assert!(matches!(e, OpenError::Fork { .. }), "renamed {renamed}: {e}");
    }
}

#[test]
fn a_side_with_a_member_that_the_other_never_knew_is_no_later_one() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[16], &[32, 32], Some(8 * MIB));
    session(&env, &m, 7);
    // One of the disks goes on with a new SSD, and is hardly used.
    let new = MemoryDevice::new(16 * MIB);
    let (e, disk, fast) = (env.clone(), vec![m.0[2].clone()], new.clone());
    let repaired = env.block_on(async move {
        let mut plan = Plan::new(e, disk, false).await?;
        plan.add(fast, &NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) }).await?;
        plan.carry_out().await
    });
    repaired.expect("a new SSD is all that it takes");
    // The others go on without it, and are used.
    let rest = Members(m.0[..2].to_vec());
    repair(&env, &rest.0).expect("the volume fits");
    session(&env, &rest, 8);
    let all: Vec<MemoryDevice> = m.0.iter().cloned().chain([new]).collect();
    let e = refused_in_both_ways(&env, &all);
    assert!(matches!(e, OpenError::Fork { .. }), "{e}");
}
