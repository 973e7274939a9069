//! Slots on their way from *left* to *free*: who has to wait for whom, and who gives his back.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::{NewFamily, StructureError};
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::Volume;

use crate::image::{create, flush, make, open, pass, read, small, stop, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, first: u64, chunks: u64) {
    let trimmed = v.clone();
    env.block_on(
        async move { trimmed.trim(first * CHUNK, chunks * CHUNK, WriteFlags::default()).await.expect("trim") },
    );
    flush(env, v).expect("flush");
}

#[test]
fn a_slot_whose_discard_has_failed_is_free_after_a_sync() {
    for fails in [false, true] {
        let env = MemoryEnv::new();
        let members = create(&env, "tank", &[16], &[64]);
        let options =
            OpenOptions { migrate: false, commit_interval: Duration::from_secs(3600), ..OpenOptions::default() };
        let g = open(&env, &members.0, options).expect("opens");
        let v = g.volume("main").expect("made at creation");
        (0..8).for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
        flush(&env, &v).expect("flush");
        pass(&env, 10);
        let ssd = &members.0[0];
        ssd.discard_fails.set(if fails { 5 } else { 0 });
        let (free, syncs) = (g.status().fast_free, ssd.syncs.get());
        trim(&env, &v, 0, 8);
        pass(&env, 10);
        assert_eq!(g.status().fast_free, free + 8 * CHUNK);
        assert_eq!(ssd.failed_discards.get() > 0, fails);
        // One is that of the commit.
        assert_eq!(ssd.syncs.get() - syncs > 1, fails);
        stop(&env, g).expect("stops");
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_up_no_slot_of_the_ssd() {
    let env = MemoryEnv::new();
    let mut members = create(&env, "tank", &[16], &[64]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &members.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (0..200).for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 10);
    let tier = |c: u64| v.extents(c * CHUNK, CHUNK, 1).expect("inside")[0].tier;
    assert!((0..16).all(|c| tier(c) == 1) && (180..200).all(|c| tier(c) == 2));
    // The disk's journal is about to be told of the chunks that left it, and its sync does not come back for an hour.
    let (hour, disk) = (Duration::from_secs(3600), members.0.last().expect("a slow member"));
    trim(&env, &v, 180, 10);
    disk.sync_takes.set(hour);
    pass(&env, 30);
    let (fast, slow) = (g.status().fast_free, g.status().members[1].free);
    trim(&env, &v, 0, 16);
    pass(&env, 30);
    assert_eq!(g.status().members[1].free, slow, "the disk has answered: this is no test");
    assert_eq!(g.status().fast_free, fast + 16 * CHUNK);
    disk.sync_takes.set(Duration::ZERO);
    pass(&env, 3700);
    assert_eq!(g.status().members[1].free, slow + 10, "what waited for the disk is free as well");
    stop(&env, g).expect("stops");
}

#[test]
fn a_discard_that_is_never_answered_holds_up_nobody() {
    let env = MemoryEnv::new();
    let members = create(&env, "tank", &[16], &[64, 64]);
    let g = open(&env, &members.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let chunks = v.size() / CHUNK;
    let fill = |first: u64| (first..chunks).try_for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]));
    fill(0).expect("it fits");
    flush(&env, &v).expect("flush");
    members.0[1].discard_hangs.set(true);
    trim(&env, &v, 0, chunks);
    pass(&env, 60);
    // Of one disk some slots are kept back: what was in the one discard. All others are free, of the other disk all.
    let of = |i: usize| g.status().members[i].clone();
    let kept_back = of(1).quarantined;
    assert!(
        kept_back > 0 && of(1).free + kept_back == of(1).slots && of(2).free == of(2).slots,
        "{:?}",
        g.status().members
    );
    // What the volume was promised is there all the same.
    fill(0).expect("it fits");
    let stopping = g.clone();
    env.block_on(async move { stopping.stop().await }).expect("it does not wait for the answer for ever");
    members.0[1].discard_hangs.set(false);
    let g = open(&env, &members.0, OpenOptions::default()).expect("opens");
    assert_eq!(g.status().members[1].quarantined, 0);
    stop(&env, g).expect("stops");
}

#[test]
fn a_write_that_holds_all_room_for_changes_gets_the_slots_of_kept_copies() {
    let env = MemoryEnv::new();
    let mut members = create(&env, "tank", &[16], &[64]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &members.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let (chunks, filled) = (v.size() / CHUNK, 380);
    (0..filled).for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    pass(&env, 60);
    // What is read again and again comes up, and keeps its place below.
    for round in 0..8 {
        (0..110).for_each(|i| drop(read(&env, &v, (200 + i * 7 % 110) * CHUNK + round * 8192, 4096)));
        pass(&env, 20);
    }
    stop(&env, g).expect("stops");
    // Eight changes are all that may be pending: as many as a request here has.
    let g = open(&env, &members.0, OpenOptions { journal_records: 2, ..writable() }).expect("opens");
    let v = g.volume("main").expect("its volume");
    let (s, rest) = (g.status(), chunks - filled);
    let free = (s.members[0].free + s.members[1].free) / CHUNK;
    assert!(s.mover.kept > 64 && free < rest, "{} {free} {rest}", s.mover.kept);
    let ended = Rc::new(Cell::new(0));
    for first in (filled..chunks).step_by(8) {
        let (v, ended, len) = (v.clone(), ended.clone(), 8.min(chunks - first) * CHUNK);
        let mut data = BufMut::new(len as usize);
        data.fill(2);
        env.spawn(async move {
            v.write(first * CHUNK, data.freeze(), WriteFlags::default()).await.expect("it was promised this");
            ended.set(ended.get() + len / CHUNK);
        });
    }
    pass(&env, 60);
    assert_eq!(ended.get(), rest);
    stop(&env, g).expect("stops");
}

#[test]
fn a_write_that_fails_before_anything_is_sent_keeps_no_slot() {
    let env = MemoryEnv::new();
    let members = create(&env, "tank", &[16], &[64]);
    let g = open(&env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, CHUNK, &[1; CHUNK as usize]).expect("write");
    flush(&env, &v).expect("flush");
    let free = g.status().fast_free;
    // The last block of the write has to be merged with what cannot be read.
    let ssd = &members.0[0];
    let blocks: Vec<u64> = ssd.blocks.borrow().keys().copied().collect();
    ssd.unread.borrow_mut().extend(blocks.iter().map(|b| (*b, 1)));
    write(&env, &v, 0, &[2; CHUNK as usize + 100]).expect_err("a block cannot be read");
    assert_eq!(v.members_of(0).next(), None);
    ssd.unread.borrow_mut().clear();
    flush(&env, &v).expect("flush");
    pass(&env, 10);
    assert_eq!(g.status().fast_free, free);
    write(&env, &v, 0, &[3; CHUNK as usize + 100]).expect("write");
    assert_eq!(read(&env, &v, CHUNK + 99, 2).expect("read"), [3, 1]);
    stop(&env, g).expect("stops");
}

#[test]
fn a_discard_that_is_never_answered_while_a_volume_is_encrypted_takes_nothing_that_was_promised() {
    for (fast, slow) in [(8, &[40][..]), (16, &[200, 200])] {
        let env = MemoryEnv::new();
        let mut members = create(&env, "tank", &[fast], slow);
        members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
        let g = open(&env, &members.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
        let key = FamilyKey::from_bytes(&[7; 32]);
        let family = NewFamily { name: "home".into(), uuid: [7; 16], key, header: vec![7; 4096] };
        members.0[1..].iter().for_each(|d| d.discard_hangs.set(true));
        let encrypted = g.clone();
        let both = async move {
            encrypted.create_family(family).await.expect("made");
            encrypted.encrypt_volume("main", "home").await.expect("begun");
        };
        env.block_on(both);
        pass(&env, 200);
        assert!(g.status().members[1].quarantined > 0, "{:?}", g.status().members);
        let v = g.volume("main").expect("made at creation");
        for c in 0..v.size() / CHUNK {
            write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("it was promised this");
        }
    }
}

/// Two members of a tier, of which one takes long for each discard.
#[test]
fn a_member_that_stands_still_holds_up_no_slot_of_another() {
    for (fast, slow, placement) in
        [(&[16, 16][..], &[64][..], Placement::FastOnly), (&[16], &[64, 64], Placement::SlowOnly)]
    {
        let env = MemoryEnv::new();
        let device = |mib: &u64| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let devices: Vec<MemoryDevice> = fast.iter().chain(slow).map(device).collect();
        let tier = |i| if i < fast.len() { Tier::Fast } else { Tier::Slow };
        let members = devices.iter().enumerate().map(|(i, d)| (d.clone(), tier(i))).collect();
        make(&env, members, small(vec![NewVolume { name: "main".into(), size: Some(20 * MIB), placement }]));
        let g = open(&env, &devices, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
        let v = g.volume("main").expect("made at creation");
        // No neighbours: they go to both in turns.
        let chunks = || (0..v.size() / CHUNK).step_by(10);
        chunks().for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
        flush(&env, &v).expect("flush");
        pass(&env, 20);
        let both = if placement == Placement::FastOnly { [0, 1] } else { [1, 2] };
        let used = |m: usize| g.status().members[m].slots - g.status().members[m].free;
        let before = both.map(used);
        assert!(before.iter().all(|used| *used > 4), "{before:?}");
        devices[both[0]].discard_takes.set(Duration::from_secs(25));
        chunks().for_each(|c| trim(&env, &v, c, 1));
        pass(&env, 20);
        assert_eq!(both.map(used), [before[0], 0]);
        pass(&env, 25 * before[0]);
        assert_eq!(both.map(used), [0, 0]);
        stop(&env, g).expect("stops");
    }
}

/// What a volume bound to a tier was promised is there whatever is kept back, and whatever room the other tier has.
#[test]
fn a_discard_that_is_not_answered_keeps_back_nothing_that_was_promised_to_a_bound_volume() {
    for (fast, slow, placement, hung) in [(64, 1024, Placement::FastOnly, 0), (1024, 64, Placement::SlowOnly, 1)] {
        let env = MemoryEnv::new();
        let device = |mib: u64| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let devices = vec![device(fast), device(slow)];
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        let small_one = NewVolume { name: "main".into(), size: Some(8 * MIB), placement: Placement::Auto };
        make(&env, members, small(vec![small_one]));
        let g = open(&env, &devices, writable()).expect("opens");
        let (g2, new) = (g.clone(), NewVolume { name: "bound".into(), size: None, placement });
        let size = env.block_on(async move { g2.create_volume(&new).await.expect("made") });
        let (v, chunks) = (g.volume("bound").expect("there"), size / CHUNK);
        (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[1; 4096]).expect("promised"));
        flush(&env, &v).expect("flush");
        devices[hung].discard_hangs.set(true);
        trim(&env, &v, 0, chunks);
        pass(&env, 120);
        assert!(g.status().members[hung].quarantined > 0, "something is kept back");
        (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[2; 4096]).expect("promised still"));
    }
}

/// Many disks behind one server that answers no discard: each keeps some back.
#[test]
fn many_disks_that_answer_no_discard_keep_back_nothing_that_was_promised() {
    let env = MemoryEnv::new();
    let mut members = create(&env, "tank", &[16], &[16; 12]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &members.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("there");
    let chunks = v.size() / CHUNK;
    (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[1; 4096]).expect("promised"));
    flush(&env, &v).expect("flush");
    members.0[1..].iter().for_each(|d| d.discard_hangs.set(true));
    trim(&env, &v, 0, chunks);
    pass(&env, 120);
    assert!(g.status().members.iter().map(|m| m.quarantined).sum::<u64>() > 0, "some are kept back");
    (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[2; 4096]).expect("promised still"));
}

/// A volume that is made after slots were kept back is promised none of them; nor does a disk leave that is needed in their place.
#[test]
fn slots_that_are_kept_back_are_promised_to_nobody() {
    let env = MemoryEnv::new();
    let volume = |name: &str, size: Option<u64>| NewVolume { name: name.into(), size, placement: Placement::Auto };
    let devices = [256, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let volumes = vec![volume("main", Some(8 * MIB)), volume("gone", Some(100 * MIB))];
    make(&env, devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), small(volumes));
    let g = open(&env, &devices, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let gone = g.volume("gone").expect("made at creation");
    (0..gone.size() / CHUNK).for_each(|c| write(&env, &gone, c * CHUNK, &[7; 4096]).expect("write"));
    flush(&env, &gone).expect("flush");
    devices.iter().for_each(|d| d.discard_hangs.set(true));
    let (g2, e) = (g.clone(), env.clone());
    env.block_on(async move {
        g2.delete_volume("gone").await.expect("deleted");
        e.sleep(Duration::from_secs(120)).await;
        g2.create_volume(&volume("rest", None)).await.expect("there is room");
    });
    assert!(g.status().members.iter().map(|m| m.quarantined).sum::<u64>() > 100, "many are kept back");
    for v in ["main", "rest"].map(|name| g.volume(name).expect("there")) {
        (0..v.size() / CHUNK).for_each(|c| write(&env, &v, c * CHUNK, &[9; 4096]).expect("promised"));
    }
}

/// The same of a disk that is to leave: it stays if all else that there is has slots kept back.
#[test]
fn a_disk_leaves_only_if_the_others_have_room_beside_what_they_keep_back() {
    let env = MemoryEnv::new();
    let mut members = create(&env, "tank", &[64], &[64, 64]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    let all: u64 = g.status().members.iter().map(|m| m.slots).sum();
    let others = all - g.status().members[1].slots;
    // All that fits without the second one, but for a few chunks more than are never promised.
    let chunks = others - 80;
    let (g2, size) = (g.clone(), chunks * CHUNK);
    env.block_on(async move { g2.resize_volume("main", size).await }).expect("there is room");
    assert!(g.plan_evacuation(1).is_ok());
    (0..chunks).for_each(|c| write(&env, &v, c * CHUNK, &[1; 4096]).expect("promised"));
    flush(&env, &v).expect("flush");
    members.0[2].discard_hangs.set(true);
    trim(&env, &v, 0, chunks);
    pass(&env, 120);
    assert!(g.status().members[2].quarantined > 40, "{:?}", g.status().members[2]);
    assert!(matches!(g.plan_evacuation(1), Err(StructureError::NoRoomWithout { .. })));
}
