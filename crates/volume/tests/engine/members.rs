//! Members that are added while the group is open, and devices that cannot be.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::{NewFamily, NewMember, NewMemberReport, NotAMember, StructureError};
use bimetal_volume::group::OpenError;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Group;

use crate::image;
use crate::image::{check, create, flush, open, read, read_only, stop, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

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
    let refused = add(&env, &g, &MemoryDevice::new(24 * MIB), Tier::Slow).expect_err("refused");
    assert_eq!(refused, StructureError::NotAdded(Error::ReadOnly), "it is no member, and that is said");
}

/// An addition that runs beside the test; what came of it.
type Adding = Rc<RefCell<Option<Result<NewMemberReport, StructureError>>>>;

fn begin_to_add(env: &MemoryEnv, g: &Group<MemoryEnv>, device: &MemoryDevice, tier: Tier) -> Adding {
    let (g, device, adding) = (g.clone(), device.clone(), Adding::default());
    let new = NewMember { tier, force: false, journal_blocks: Some(16) };
    let outcome = adding.clone();
    env.spawn(async move {
        let result = g.add_member(device, &new).await;
        *outcome.borrow_mut() = Some(result);
    });
    adding
}

fn seconds(env: &MemoryEnv, n: u64) {
    env.block_on(env.sleep(Duration::from_secs(n)));
}

/// A device that answers so many requests and then none, at every point at which that can be.
#[test]
fn a_new_device_that_stands_still_is_given_up_and_keeps_no_flush_and_no_stop_waiting() {
    for tier in [Tier::Fast, Tier::Slow] {
        let mut given_up = 0;
        for answers in 0.. {
            let env = MemoryEnv::new();
            let m = create(&env, "tank", &[16], &[32]);
            let g = open(&env, &m.0, writable()).expect("opens");
            let v = g.volume("main").expect("there");
            write(&env, &v, 0, &[1; CHUNK as usize]).expect("write");
            flush(&env, &v).expect("flush");
            let disk = MemoryDevice::new(24 * MIB);
            disk.answers_left.set(answers);
            let adding = begin_to_add(&env, &g, &disk, tier);
            seconds(&env, 1);
            write(&env, &v, CHUNK, &[2; CHUNK as usize]).expect("the group goes on");
            let flushed = Rc::new(RefCell::new(false));
            let (v2, done) = (v.clone(), flushed.clone());
            env.spawn(async move { *done.borrow_mut() = v2.flush().await.is_ok() });
            seconds(&env, 31);
            let is_member = g.status().members.len() == 3;
            assert!(*flushed.borrow() || is_member, "{answers}: a flush waits for a device that is no member");
            seconds(&env, 120);
            match adding.take() {
                Some(Err(StructureError::Silent(_))) if !is_member => given_up += 1,
                // From the moment at which it is a member it is one like the others.
                None if is_member => break,
                Some(Ok(_)) => break,
                other => panic!("{answers}: {other:?}"),
            }
            stop(&env, g).expect("orderly stop");
            assert!(check(&env, &m.0).expect("checked").is_sound(), "{answers}");
        }
        assert!(given_up > 8, "{tier}: only {given_up} steps before it is a member");
    }
}

#[test]
fn a_stop_does_not_wait_for_a_new_device_that_stands_still() {
    for answers in [0, 3, 9] {
        let env = MemoryEnv::new();
        let m = create(&env, "tank", &[16], &[32]);
        let g = open(&env, &m.0, writable()).expect("opens");
        let disk = MemoryDevice::new(24 * MIB);
        disk.answers_left.set(answers);
        let adding = begin_to_add(&env, &g, &disk, Tier::Fast);
        seconds(&env, 1);
        let before = env.now();
        stop(&env, g).expect("orderly stop");
        assert!(env.now().since(before) < Duration::from_secs(5), "{answers}");
        assert_eq!(adding.take().expect("ended").expect_err("given up"), StructureError::NotAdded(Error::Stopping));
        assert!(check(&env, &m.0).expect("checked").is_sound());
    }
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

/// What a header of a family consists of.
const HEADER: u8 = 0x77;

/// A group with a family.
fn with_family(env: &MemoryEnv) -> (image::Members, Group<MemoryEnv>) {
    let m = create(env, "tank", &[16], &[32]);
    let g = open(env, &m.0, writable()).expect("opens");
    let (name, key) = ("home".to_string(), FamilyKey::from_bytes(&[3; 32]));
    let new = NewFamily { name, uuid: [9; 16], key, header: vec![HEADER; 8192] };
    let made = g.clone();
    env.block_on(async move { made.create_family(new).await }).expect("a family");
    (m, g)
}

fn holds_header(device: &MemoryDevice) -> bool {
    device.blocks.borrow().values().any(|block| block.chunks(4096).any(|b| b.iter().all(|byte| *byte == HEADER)))
}

/// Why a device became no member, when that is known.
type Outcome = Rc<RefCell<Option<NotAMember>>>;

/// A device that is being added, and has the headers by now.
fn half_added(env: &MemoryEnv, g: &Group<MemoryEnv>) -> (MemoryDevice, Outcome) {
    let disk = MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(24 * MIB) };
    disk.sync_takes.set(Duration::from_secs(1));
    let adding = try_to_add(env, g, &disk);
    seconds(env, 2);
    assert!(holds_header(&disk) && adding.borrow().is_none(), "under way");
    (disk, adding)
}

fn try_to_add(env: &MemoryEnv, g: &Group<MemoryEnv>, device: &MemoryDevice) -> Outcome {
    let (g, device, outcome) = (g.clone(), device.clone(), Rc::new(RefCell::new(None)));
    let told = outcome.clone();
    env.spawn(async move {
        let new = NewMember { tier: Tier::Slow, force: false, journal_blocks: Some(16) };
        *told.borrow_mut() = g.try_member(device, &new).await.err();
    });
    outcome
}

#[test]
fn a_device_that_was_to_be_a_member_when_the_group_stopped_has_no_header() {
    let env = MemoryEnv::new();
    let (_m, g) = with_family(&env);
    let (disk, adding) = half_added(&env, &g);
    stop(&env, g).expect("orderly stop");
    let failed = adding.take().expect("ended");
    assert_eq!((failed.why, failed.not_wiped), (StructureError::NotAdded(Error::Stopping), None));
    assert!(!holds_header(&disk));
}

/// Its zones take no writes any more once the headers are there.
#[test]
fn a_device_that_failed_to_become_a_member_has_no_header() {
    let env = MemoryEnv::new();
    let (_m, g) = with_family(&env);
    let (disk, adding) = half_added(&env, &g);
    disk.bad.borrow_mut().extend(MIB / 4096..label_b(disk.size) / 4096);
    disk.bad.borrow_mut().insert(LABEL_A / 4096 + 15);
    seconds(&env, 20);
    let failed = adding.take().expect("ended");
    assert!(matches!(failed.why, StructureError::NewDevice(_)), "{failed}");
    assert!(!holds_header(&disk));
    stop(&env, g).expect("orderly stop");
}

#[test]
fn where_a_header_is_left_on_a_device_that_is_said() {
    let mut said = 0;
    for answers in 0.. {
        let env = MemoryEnv::new();
        let (_m, g) = with_family(&env);
        let disk = MemoryDevice::new(24 * MIB);
        disk.answers_left.set(answers);
        let adding = try_to_add(&env, &g, &disk);
        seconds(&env, 150);
        let Some(failed) = adding.take() else { break };
        let words = failed.to_string();
        assert!(words.contains("has not answered"), "{answers}: {words}");
        if holds_header(&disk) {
            assert!(words.contains("could not be wiped (it does not answer)"), "{answers}: {words}");
            said += 1;
        }
        stop(&env, g).expect("orderly stop");
    }
    assert!(said > 3, "{said}");
}
