//! Changes of the tables, checks and new chunks while a disk cannot be reached that the group does without.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_format::layout::LABEL_A;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::{NewFamily, NewMember, StructureError};
use bimetal_volume::inspect::Report;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{check_in_use, evacuate, flush, make, open, pass, read, small, used, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::reserve::{come_up_with, has_copy, is_fast, millis};

/// Two SSDs, a disk, and two volumes that live on the SSDs.
fn group(env: &MemoryEnv) -> (Vec<MemoryDevice>, Group<MemoryEnv>, Volume<MemoryEnv>) {
    let volume = |name: &str| NewVolume { name: name.into(), size: Some(10 * MIB), placement: Placement::Auto };
    let tiers = [(32, Tier::Fast), (32, Tier::Fast), (128, Tier::Slow)];
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let members: Vec<_> = tiers.into_iter().map(|(mib, tier)| (device(mib), tier)).collect();
    let devices = members.iter().map(|m| m.0.clone()).collect::<Vec<_>>();
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![volume("main"), volume("other")]) };
    make(env, members, options);
    let g = open(env, &devices, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..40).for_each(|c| write(env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(env, &v).expect("flush");
    pass(env, 60);
    (devices, g, v)
}

fn goes_on(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) {
    assert_eq!(g.status().latched, None);
    write(env, v, 0, &[5; 4096]).expect("it lies on an SSD");
    flush(env, v).expect("it lies on an SSD");
}

#[test]
fn a_change_is_refused_and_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    d[2].lost.set(true);
    pass(&env, 60);
    goes_on(&env, &g, &v);
    let changes = {
        let g = g.clone();
        async move {
            let new = NewVolume { name: "new".into(), size: Some(MIB), placement: Placement::Auto };
            [
                g.rename_volume("other", "another").await.map(drop),
                g.create_volume(&new).await.map(drop),
                g.resize_volume("other", 5 * MIB).await.map(drop),
                g.delete_volume("other").await.map(drop),
                g.evacuate_member(0).await.map(drop),
            ]
        }
    };
    for (n, refused) in env.block_on(changes).into_iter().enumerate() {
        assert!(matches!(refused, Err(StructureError::NotReached(2))), "{n}: {refused:?}");
    }
    goes_on(&env, &g, &v);
}

#[test]
fn a_volume_that_is_encrypted_meanwhile_waits_with_saying_so() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    d[2].write_takes.set(Duration::from_millis(20));
    let new =
        NewFamily { name: "home".into(), uuid: [7; 16], key: FamilyKey::from_bytes(&[7; 32]), header: vec![7; 4096] };
    let (g2, e) = (g.clone(), env.clone());
    env.block_on(async move {
        g2.create_family(new).await.expect("made");
        g2.encrypt_volume("other", "home").await.expect("begun");
        e.sleep(Duration::from_millis(100)).await;
    });
    assert!(g.status().volumes.iter().any(|v| v.encrypting.is_some_and(|e| e.slots_to_wipe > 0)));
    d[2].lost.set(true);
    pass(&env, 120);
    assert!(g.status().volumes.iter().any(|v| v.encrypting.is_some()));
    goes_on(&env, &g, &v);
}

/// Begins a change, and gives what it comes to.
fn begin<T: 'static>(env: &MemoryEnv, change: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
    let ended = Rc::new(RefCell::new(None));
    let told = ended.clone();
    env.spawn(async move {
        let result = change.await;
        *told.borrow_mut() = Some(result);
    });
    ended
}

#[test]
fn a_disk_is_not_added_when_another_is_lost_meanwhile() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    let new = MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(64 * MIB) };
    new.write_takes.set(Duration::from_secs(2));
    let (g2, wanted) = (g.clone(), NewMember { tier: Tier::Slow, force: false, journal_blocks: Some(64) });
    let added = begin(&env, async move { g2.add_member(new, &wanted).await.map(drop) });
    pass(&env, 3);
    assert!(added.borrow().is_none(), "under way");
    d[2].lost.set(true);
    pass(&env, 300);
    assert!(matches!(*added.borrow(), Some(Err(StructureError::NotReached(2)))), "{:?}", added.borrow());
    assert_eq!(g.status().members.len(), 3);
    goes_on(&env, &g, &v);
}

#[test]
fn a_volume_is_deleted_later_when_a_disk_is_lost_meanwhile() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    let o = g.volume("other").expect("there");
    (0..40).for_each(|c| write(&env, &o, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(&env, &o).expect("flush");
    pass(&env, 60);
    d[0].sync_takes.set(Duration::from_secs(1));
    let g2 = g.clone();
    let deleted = begin(&env, async move { g2.delete_volume("other").await });
    millis(&env, 2500);
    assert!(deleted.borrow().is_none(), "under way");
    d[2].lost.set(true);
    d[0].sync_takes.set(Duration::ZERO);
    pass(&env, 300);
    assert!(matches!(*deleted.borrow(), Some(Err(_))), "{:?}", deleted.borrow());
    goes_on(&env, &g, &v);
    env.kill();
    d[2].lost.set(false);
    let g = open(&env, &d, writable()).expect("opens");
    pass(&env, 60);
    assert_eq!((g.volume("other").is_none(), g.status().volumes.len()), (true, 1));
}

/// It waits for slots of its tier, which the mover is to make free.
#[test]
fn a_volume_that_is_being_made_is_refused_when_a_disk_is_lost_meanwhile() {
    let env = MemoryEnv::new();
    let d = [64, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let main = NewVolume { name: "main".into(), size: Some(150 * MIB), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![main]) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let g = open(&env, &d, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..900).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 120);
    d[1].write_takes.set(Duration::from_secs(1));
    let (g2, new) = (g.clone(), NewVolume { name: "new".into(), size: Some(40 * MIB), placement: Placement::FastOnly });
    let made = begin(&env, async move { g2.create_volume(&new).await.map(drop) });
    millis(&env, 500);
    assert!(made.borrow().is_none(), "under way");
    d[1].lost.set(true);
    pass(&env, 5);
    assert!(matches!(*made.borrow(), Some(Err(StructureError::NotReached(1)))), "{:?}", made.borrow());
    let fast = (0..900).find(|c| is_fast(&v, *c)).expect("the SSD is in use");
    write(&env, &v, fast * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
    assert_eq!(g.status().latched, None);
}

/// Some of it is just being written to that disk.
#[test]
fn an_encryption_under_way_when_a_disk_is_lost_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let d = [64, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let hot = NewVolume { name: "hot".into(), size: Some(8 * MIB), placement: Placement::FastOnly };
    let main = NewVolume { name: "main".into(), size: Some(180 * MIB), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![hot, main]) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let g = open(&env, &d, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let (hot, v) = (g.volume("hot").expect("there"), g.volume("main").expect("there"));
    write(&env, &hot, 0, &[9; CHUNK as usize]).expect("write");
    (0..900).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 60);
    d[1].write_takes.set(Duration::from_millis(50));
    let new =
        NewFamily { name: "home".into(), uuid: [7; 16], key: FamilyKey::from_bytes(&[7; 32]), header: vec![7; 4096] };
    let g2 = g.clone();
    env.block_on(async move {
        g2.create_family(new).await.expect("made");
        g2.encrypt_volume("main", "home").await.expect("begun");
    });
    while d[1].being_written.get().0 < CHUNK as usize {
        millis(&env, 1);
    }
    d[1].lost.set(true);
    pass(&env, 60);
    assert!(g.status().volumes.iter().any(|v| v.encrypting.is_some()));
    goes_on(&env, &g, &hot);
}

/// It leaves because it dies, and dies when nothing is left on it.
#[test]
fn an_empty_ssd_that_is_lost_can_be_taken_out() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    evacuate(&env, &g, 1);
    pass(&env, 120);
    assert_eq!(used(&g, 1), 0);
    d[1].lost.set(true);
    let g2 = g.clone();
    env.block_on(async move { g2.remove_member(1).await }).expect("the others are there");
    pass(&env, 60);
    goes_on(&env, &g, &v);
}

/// A disk is being emptied when the connection to another one is lost, to which its chunks would go. They wait, as all moves do; what
/// was just being read, or being written there, is no reason to refuse writes that do not need it.
#[test]
fn an_evacuation_waits_and_takes_writes_from_nobody() {
    for while_written in [false, true] {
        let env = MemoryEnv::new();
        let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let d = [64, 256, 256].map(device);
        let members = d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
        let main = NewVolume { name: "main".into(), size: Some(180 * MIB), placement: Placement::Auto };
        make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(vec![main]) });
        let g = open(&env, &d, OpenOptions::default()).expect("opens");
        let v = g.volume("main").expect("there");
        (0..900).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
        flush(&env, &v).expect("flush");
        pass(&env, 120);
        d[1].read_takes.set(Duration::from_secs(1));
        d[2].write_takes.set(Duration::from_millis(50));
        evacuate(&env, &g, 1);
        while while_written && d[2].being_written.get().0 < CHUNK as usize {
            millis(&env, 1);
        }
        d[2].lost.set(true);
        pass(&env, 600);
        let fast = (0..900).find(|c| is_fast(&v, *c)).expect("the SSD is in use");
        write(&env, &v, fast * CHUNK, &[5; CHUNK as usize]).expect("it lies on the SSD");
        flush(&env, &v).expect("it lies on the SSD");
        assert_eq!(g.status().latched, None);
        assert!(used(&g, 1) > 0);
        d[2].lost.set(false);
        pass(&env, 3600);
        assert_eq!((used(&g, 1), g.status().latched), (0, None));
    }
}

#[test]
fn new_blocks_on_an_ssd_are_taken_for_as_long_as_a_disk_is_lost() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    (40..80).for_each(|c| write(&env, &v, c * CHUNK, &[1; 4096]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 60);
    d[2].lost.set(true);
    // Many times what the journals have room for.
    for n in 0..600u64 {
        let at = (40 + n % 40) * CHUNK + (1 + n / 40) * 4096;
        let written = write(&env, &v, at, &[5; 4096]).and_then(|()| flush(&env, &v));
        written.unwrap_or_else(|e| panic!("write {n}: {e}"));
        pass(&env, 1);
    }
    goes_on(&env, &g, &v);
    d[2].lost.set(false);
    pass(&env, 600);
    goes_on(&env, &g, &v);
    env.block_on(async move { g.stop().await }).expect("it has caught up");
}

/// An SSD and a disk, which has copies of some of what the SSD has.
fn with_copies(env: &MemoryEnv) -> (Vec<MemoryDevice>, Group<MemoryEnv>, Volume<MemoryEnv>, Vec<u64>) {
    let d = [64, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) }).to_vec();
    let main = NewVolume { name: "main".into(), size: Some(180 * MIB), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![main]) };
    make(env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let g = open(env, &d, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    let cold = come_up_with(env, &v, |_| vec![3; CHUNK as usize]);
    flush(env, &v).expect("flush");
    pass(env, 60);
    let copied: Vec<u64> = cold.into_iter().filter(|c| has_copy(&v, *c)).collect();
    assert!(copied.len() > 50, "{}", copied.len());
    (d, g, v, copied)
}

#[test]
fn what_has_a_copy_on_a_lost_disk_is_written_and_the_copies_stay_held() {
    let env = MemoryEnv::new();
    let (d, g, v, copied) = with_copies(&env);
    d[1].lost.set(true);
    pass(&env, 60);
    for c in &copied[..40] {
        write(&env, &v, c * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
        pass(&env, 1);
    }
    pass(&env, 600);
    let leaving = g.status().members[1].leaving;
    assert_eq!((leaving, g.status().latched), (40, None), "the disk has not heard that they left");
    d[1].lost.set(false);
    pass(&env, 60);
    assert_eq!((g.status().members[1].leaving, g.status().latched), (0, None));
    env.block_on(async move { g.stop().await }).expect("it has caught up");
}

/// It is lost just while its journal is written.
#[test]
fn a_disk_that_is_lost_while_it_is_told_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v, copied) = with_copies(&env);
    d[1].write_takes.set(Duration::from_millis(500));
    write(&env, &v, copied[0] * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
    while d[1].being_written.get().0 == 0 {
        millis(&env, 1);
    }
    d[1].lost.set(true);
    pass(&env, 60);
    write(&env, &v, copied[1] * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
    assert_eq!((g.status().members[1].leaving, g.status().latched), (2, None));
}

#[test]
fn a_stop_says_that_a_disk_is_lost_which_has_not_heard_of_what_left() {
    let env = MemoryEnv::new();
    let (d, g, v, copied) = with_copies(&env);
    d[1].lost.set(true);
    write(&env, &v, copied[0] * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
    pass(&env, 60);
    let stopped = env.block_on(async move { g.stop().await });
    let said = stopped.expect_err("the disk is not told").to_string();
    assert!(said.contains("a journal write of member 1 failed"), "{said}");
    d[1].lost.set(false);
    env.kill();
    let g = open(&env, &d, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    assert_eq!(read(&env, &v, copied[0] * CHUNK, 4096).expect("read"), [5; 4096]);
}

/// No slot is free, and those that would be wait for the disk to be told.
#[test]
fn nobody_waits_for_slots_that_a_lost_disk_has_to_hear_of_first() {
    let env = MemoryEnv::new();
    let d = [16, 32].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let main = NewVolume { name: "main".into(), size: None, placement: Placement::Auto };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), small(vec![main]));
    let g = open(&env, &d, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("there");
    let all = 0..v.size() / CHUNK;
    all.clone().for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 60);
    let mut below = all.filter(|c| !is_fast(&v, *c)).collect::<Vec<u64>>().into_iter();
    let trim_next = |c: u64| {
        let trimmed = v.clone();
        env.block_on(async move { trimmed.trim(c * CHUNK, CHUNK, WriteFlags::default()).await }).expect("trim");
        flush(&env, &v).expect("flush");
    };
    while g.status().members.iter().any(|m| m.free > 0) {
        let c = below.next().expect("more than the headroom");
        trim_next(c);
        write(&env, &v, c * CHUNK, &[4; CHUNK as usize]).and_then(|()| flush(&env, &v)).expect("write");
    }
    d[1].lost.set(true);
    let (c, begun) = (below.next().expect("more than the headroom"), env.now());
    trim_next(c);
    let failed = write(&env, &v, c * CHUNK, &[6; CHUNK as usize]);
    assert!(matches!(failed, Err(Error::Device { member: 1, .. })), "{failed:?}");
    assert!(env.now().since(begun) < Duration::from_secs(60) && g.status().latched.is_none());
}

/// Most of the time of a demotion is the sync of its disk, and the record that tells that of it.
#[test]
fn a_disk_that_is_lost_while_demotions_are_made_durable_there_takes_writes_from_nobody() {
    let mut under_way = 0;
    for moment in (0..600).step_by(40) {
        let env = MemoryEnv::new();
        let d = [32, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
        let auto = NewVolume { name: "main".into(), size: Some(100 * MIB), placement: Placement::Auto };
        let fast = NewVolume { name: "hot".into(), size: Some(4 * MIB), placement: Placement::FastOnly };
        let options = CreateOptions { journal_blocks: Some(64), ..small(vec![auto, fast]) };
        make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
        let g = open(&env, &d, OpenOptions::default()).expect("opens");
        let (v, hot) = (g.volume("main").expect("there"), g.volume("hot").expect("there"));
        write(&env, &hot, 0, &[9; CHUNK as usize]).expect("write");
        // The reserve is used up: chunks go down.
        let mut written = 0;
        while g.status().mover.in_flight == 0 && written < 700 {
            write(&env, &v, written * CHUNK, &[3; CHUNK as usize]).expect("write");
            written += 1;
        }
        d[1].sync_takes.set(Duration::from_millis(200));
        flush(&env, &v).expect("flush");
        millis(&env, moment);
        under_way += u32::from(g.status().mover.in_flight > 0);
        d[1].lost.set(true);
        pass(&env, 60);
        goes_on(&env, &g, &hot);
    }
    assert!(under_way > 10, "{under_way} times of 15 chunks were on their way down");
}

/// All that is said of the lost disk is that nobody could look at it.
fn says_only_that_it_is_lost(report: &Report) {
    let said: Vec<_> = report.problems.iter().map(|p| (p.member, p.what.as_str(), p.in_memory, p.mended)).collect();
    assert_eq!(said, [(Some(2), "it cannot be reached, and was not verified", false, false)]);
}

/// As the daemon does of its own accord, an hour after its start and every week.
#[test]
fn a_check_says_that_a_disk_is_lost_and_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    d[2].lost.set(true);
    pass(&env, 600);
    for mend in [false, true] {
        says_only_that_it_is_lost(&check_in_use(&env, &g, mend).expect("verified"));
        goes_on(&env, &g, &v);
    }
    // What is damaged on another member is mended all the same.
    d[1].flip(LABEL_A + 70, 2);
    let report = check_in_use(&env, &g, true).expect("verified");
    assert!(report.problems.iter().any(|p| p.member == Some(1) && p.mended), "{report:?}");
    goes_on(&env, &g, &v);
}

/// At each moment of it: while its journal, its map, a label or its away bits are written anew.
#[test]
fn a_disk_that_is_lost_while_a_check_mends_it_takes_writes_from_nobody() {
    let mut lost_meanwhile = 0;
    for millis_on in (0..4000).step_by(150) {
        let env = MemoryEnv::new();
        let (d, g, v) = group(&env);
        let layout = d[2].layout();
        d[2].flip(LABEL_A + 70, 2);
        (0..2).for_each(|side| d[2].flip(layout.away_block(0, side) + 70, 2));
        d[2].write_takes.set(Duration::from_millis(200));
        d[2].sync_takes.set(Duration::from_millis(100));
        let checked: Rc<RefCell<Option<Report>>> = Rc::default();
        let (g2, out) = (g.clone(), checked.clone());
        env.spawn(async move {
            let report = g2.check(true, &|_, _| {}).await.expect("verified");
            *out.borrow_mut() = Some(report);
        });
        millis(&env, millis_on);
        d[2].lost.set(true);
        pass(&env, 60);
        let report = checked.borrow_mut().take().expect("it has ended");
        if report.problems.iter().any(|p| !p.mended) {
            says_only_that_it_is_lost(&report);
            lost_meanwhile += 1;
        }
        goes_on(&env, &g, &v);
    }
    assert!(lost_meanwhile > 5, "only {lost_meanwhile}");
}

/// An SSD and two disks, the larger of which is lost; every region of the volume is in use.
fn beside_room(env: &MemoryEnv, placement: Placement) -> ([MemoryDevice; 3], Group<MemoryEnv>, Volume<MemoryEnv>) {
    let d = [32, 128, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let members = d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    let main = NewVolume { name: "main".into(), size: Some(90 * MIB), placement };
    make(env, members, CreateOptions { journal_blocks: Some(64), ..small(vec![main]) });
    let g = open(env, &d, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..90 * MIB / CHUNK).step_by(16).for_each(|c| write(env, &v, c * CHUNK, &[3; 4096]).expect("write"));
    if placement == Placement::Auto {
        (0..240).for_each(|c| write(env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    }
    flush(env, &v).expect("flush");
    pass(env, 120);
    d[2].lost.set(true);
    pass(env, 60);
    (d, g, v)
}

fn is_on(v: &Volume<MemoryEnv>, chunk: u64, member: u8) -> bool {
    v.members_of(chunk * CHUNK).next() == Some(member)
}

#[test]
fn new_chunks_go_to_a_disk_that_can_be_reached_and_back_to_both_afterwards() {
    for placement in [Placement::SlowOnly, Placement::Auto] {
        let env = MemoryEnv::new();
        let (d, g, v) = beside_room(&env, placement);
        let new = |from: u64| (from..720).filter(|c| c % 16 != 0);
        for c in new(300).take(200) {
            write(&env, &v, c * CHUNK, &[5; CHUNK as usize]).unwrap_or_else(|e| panic!("{placement:?} {c}: {e}"));
            assert!(!is_on(&v, c, 2), "{placement:?} {c}");
        }
        flush(&env, &v).expect("nothing of it is on the disk that is lost");
        assert_eq!(g.status().latched, None);
        d[2].lost.set(false);
        pass(&env, 60);
        for c in new(560).take(100) {
            write(&env, &v, c * CHUNK, &[5; CHUNK as usize]).expect("write");
        }
        assert!(placement == Placement::Auto || new(560).take(100).any(|c| is_on(&v, c, 2)), "it has most room");
        env.block_on(async move { g.stop().await }).expect("stop");
    }
}

/// What is free is on the disk that is lost alone: the write fails, at once, and no kept copy is dropped for it.
#[test]
fn a_new_chunk_that_only_a_lost_disk_has_room_for_fails_at_once() {
    let env = MemoryEnv::new();
    let (d, g, v, copied) = with_copies(&env);
    d[1].lost.set(true);
    pass(&env, 60);
    let others: Vec<u64> = (0..900).filter(|c| !copied.contains(c)).collect();
    for c in others.iter().filter(|c| !is_fast(&v, **c)).copied() {
        let trimmed = v.clone();
        env.block_on(async move { trimmed.trim(c * CHUNK, CHUNK, WriteFlags::default()).await.expect("trim") });
    }
    let begun = env.now();
    let failed = others.iter().find_map(|c| write(&env, &v, c * CHUNK, &[5; CHUNK as usize]).err());
    assert!(matches!(failed, Some(Error::Device { member: 1, .. })), "{failed:?}");
    assert!(
        env.now().since(begun) < Duration::from_secs(60) && g.status().latched.is_none(),
        "{:?}",
        g.status().latched
    );
    assert!(copied.iter().all(|c| has_copy(&v, *c)), "no slot of an SSD is free by that");
    write(&env, &v, copied[0] * CHUNK, &[5; 4096]).and_then(|()| flush(&env, &v)).expect("it lies on the SSD");
}

fn three(env: &MemoryEnv, tiers: [(u64, Tier); 3]) -> (Vec<MemoryDevice>, Group<MemoryEnv>, Volume<MemoryEnv>) {
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let members: Vec<_> = tiers.into_iter().map(|(mib, tier)| (device(mib), tier)).collect();
    let d = members.iter().map(|m| m.0.clone()).collect::<Vec<_>>();
    let main = NewVolume { name: "main".into(), size: Some(10 * MIB), placement: Placement::Auto };
    make(env, members, CreateOptions { journal_blocks: Some(64), ..small(vec![main]) });
    let g = open(env, &d, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..40).for_each(|c| write(env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(env, &v).expect("flush");
    pass(env, 60);
    (d, g, v)
}

#[test]
fn a_family_that_is_made_while_a_disk_is_lost_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v) = three(&env, [(128, Tier::Slow), (32, Tier::Fast), (32, Tier::Fast)]);
    d[1].sync_takes.set(Duration::from_secs(2));
    let new =
        NewFamily { name: "home".into(), uuid: [7; 16], key: FamilyKey::from_bytes(&[7; 32]), header: vec![7; 4096] };
    let g2 = g.clone();
    let made = begin(&env, async move { g2.create_family(new).await.map(drop) });
    millis(&env, 1000);
    assert!(made.borrow().is_none(), "under way");
    d[0].lost.set(true);
    d[1].sync_takes.set(Duration::ZERO);
    pass(&env, 60);
    assert!(matches!(*made.borrow(), Some(Err(_))), "{:?}", made.borrow());
    goes_on(&env, &g, &v);
}

#[test]
fn a_member_that_is_kept_while_another_is_lost_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v) = three(&env, [(32, Tier::Fast), (128, Tier::Slow), (128, Tier::Slow)]);
    evacuate(&env, &g, 2);
    pass(&env, 60);
    d[2].sync_takes.set(Duration::from_secs(2));
    let g2 = g.clone();
    let kept = begin(&env, async move { g2.keep_member(2).await.map(drop) });
    millis(&env, 1000);
    assert!(kept.borrow().is_none(), "under way");
    d[1].lost.set(true);
    d[2].sync_takes.set(Duration::ZERO);
    pass(&env, 60);
    assert!(matches!(*kept.borrow(), Some(Err(_))), "{:?}", kept.borrow());
    goes_on(&env, &g, &v);
}

#[test]
fn a_write_that_fails_on_a_lost_disk_takes_writes_from_nobody_else() {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let d = [32, 128].map(device);
    let volume = |name: &str, placement| NewVolume { name: name.into(), size: Some(10 * MIB), placement };
    let volumes = vec![volume("main", Placement::Auto), volume("slow", Placement::SlowOnly)];
    let options = CreateOptions { journal_blocks: Some(64), ..small(volumes) };
    make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let g = open(&env, &d, writable()).expect("opens");
    let (v, slow) = (g.volume("main").expect("there"), g.volume("slow").expect("there"));
    for v in [&v, &slow] {
        (0..4).for_each(|c| write(&env, v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
        flush(&env, v).expect("flush");
    }
    pass(&env, 60);
    d[1].lost.set(true);
    for c in [0, 2, 20] {
        let failed = write(&env, &slow, c * CHUNK, &[4; 4096]);
        assert!(matches!(failed, Err(Error::Device { member: 1, .. })), "{failed:?}");
        pass(&env, 60);
        goes_on(&env, &g, &v);
    }
}
