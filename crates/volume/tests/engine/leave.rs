//! Members that leave, and what may keep them from it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::{LeaveReport, NewFamily, StructureError};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::sample::stamp;
use crate::image::{
    add, check, check_in_use, create, create_sized, evacuate, flush, make, open, pass, read, small, stop, used,
};
use crate::image::{writable, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv, HELD};

fn remove(env: &MemoryEnv, g: &Group<MemoryEnv>, index: usize) -> Result<LeaveReport, StructureError> {
    let g = g.clone();
    env.block_on(async move { g.remove_member(index as u8).await })
}

/// A group with room for a slow member to leave.
fn one_fast_two_slow(env: &MemoryEnv) -> (Members, Group<MemoryEnv>) {
    let m = create_sized(env, "tank", &[16], &[32, 32], Some(20 * MIB));
    let g = open(env, &m.0, writable()).expect("opens");
    (m, g)
}

/// Where a device has a block of this byte.
fn block_of(d: &MemoryDevice, byte: u8) -> Option<u64> {
    d.blocks.borrow().iter().find(|(_, b)| b.iter().all(|x| *x == byte)).map(|(at, _)| *at)
}

/// The disk that dies, and is replaced for that: what it cannot read stays, everything else goes, and it is left in peace.
#[test]
fn what_a_leaving_member_cannot_read_keeps_nothing_else_from_going() {
    let env = MemoryEnv::new();
    let mut m = create(&env, "tank", &[16, 16], &[32]);
    let g = open(&env, &m.0, writable()).expect("opens");
    m.0.push(MemoryDevice::new(32 * MIB));
    add(&env, &g, &m.0[3], Tier::Slow);
    let v = g.volume("main").expect("made at creation");
    for chunk in 0..8 {
        write(&env, &v, chunk * CHUNK, &[chunk as u8 + 1; CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    let of_chunk =
        |d: &MemoryDevice| d.blocks.borrow().iter().find(|(_, b)| b.iter().all(|x| *x == 4)).map(|(at, _)| *at);
    let (index, at) = (0..2).find_map(|i| Some((i, of_chunk(&m.0[i])?))).expect("the fourth chunk is on a fast member");
    m.0[index].blocks.borrow_mut().remove(&at);
    m.0[index].holes_fail.set(true);
    evacuate(&env, &g, index);
    pass(&env, 120);
    assert_eq!(used(&g, index), 1, "only the chunk that cannot be read is there");
    let failed = m.0[index].failed_reads.get();
    assert!((1..60).contains(&failed), "{failed} reads failed in two minutes");
    assert_eq!(
        remove(&env, &g, index).expect_err("not empty"),
        StructureError::NotEmpty { index: index as u8, used: CHUNK }
    );
    // Its owner gives it up.
    let trimmed = v.clone();
    env.block_on(async move { trimmed.trim(3 * CHUNK, CHUNK, Default::default()).await }).expect("trim");
    flush(&env, &v).expect("flush");
    pass(&env, 40);
    assert_eq!(remove(&env, &g, index).expect("it is empty").not_erased, None);
    for chunk in (0..8).filter(|c| *c != 3) {
        assert!(read(&env, &v, chunk * CHUNK, CHUNK).expect("read") == [chunk as u8 + 1; CHUNK as usize]);
    }
    stop(&env, g).expect("orderly stop");
    let mut rest = m.0.clone();
    rest.remove(index);
    assert!(check(&env, &rest).expect("checked").is_sound());
}

/// The mirror image: a place of the member that takes its chunks cannot be written. They find others.
#[test]
fn a_place_that_cannot_be_written_keeps_nothing_from_going() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[16], &[48, 64], Some(40 * MIB));
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    for chunk in 0..300u64 {
        write(&env, &v, chunk * CHUNK, &[chunk as u8 % 200 + 1; CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    let leaving = (1..3).max_by_key(|i| used(&g, *i)).expect("two");
    let other = 3 - leaving;
    assert!(used(&g, leaving) > 16, "something is on it");
    // Some of the slots that are still free over there.
    let free = {
        let taken = m.0[other].blocks.borrow();
        let (first, end) = (m.0[other].layout().slot(0) / 4096, m.0[other].layout().slot(300) / 4096);
        (first..end).step_by(2048).map(|b| b + 5).filter(|b| !taken.contains_key(b)).collect::<Vec<_>>()
    };
    assert!(free.len() > 2);
    m.0[other].bad.borrow_mut().extend(free);
    evacuate(&env, &g, leaving);
    pass(&env, 120);
    assert_eq!(used(&g, leaving), 0);
    assert!(g.status().members[other].quarantined > 0, "what cannot be written is not tried again and again");
    assert_eq!(remove(&env, &g, leaving).expect("it is empty").not_erased, None);
    for chunk in 0..300u64 {
        assert!(read(&env, &v, chunk * CHUNK, CHUNK).expect("read") == [chunk as u8 % 200 + 1; CHUNK as usize]);
    }
}

/// A journal of a file system, say: there is a write on the chunk at any moment.
#[test]
fn what_is_written_all_the_time_goes_too() {
    let env = MemoryEnv::new();
    let mut m = create_sized(&env, "tank", &[16], &[48, 48], Some(30 * MIB));
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &m.0, OpenOptions { migrate: false, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("made at creation");
    for chunk in 0..200 {
        write(&env, &v, chunk * CHUNK, &[7; CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    let (index, chunk) = (1..3)
        .find_map(|i| {
            let slow = (150..200).find(|c| {
                write(&env, &v, c * CHUNK, &[HELD; 4096]).expect("write");
                let there = block_of(&m.0[i], HELD).is_some();
                write(&env, &v, c * CHUNK, &[7; 4096]).expect("write");
                there
            });
            Some((i, slow?))
        })
        .expect("some chunk is on a slow member");
    m.0.iter().for_each(|d| d.hold_for.set(Duration::from_millis(5)));
    let ended = Rc::new(Cell::new(false));
    let written = Rc::new(Cell::new(0u64));
    for lane in 0..3u64 {
        let (v, e, ended, written) = (v.clone(), env.clone(), ended.clone(), written.clone());
        env.spawn(async move {
            e.sleep(Duration::from_millis(lane * 2)).await;
            while !ended.get() {
                let mut data = BufMut::zeroed(4096);
                data.fill(HELD);
                v.write(chunk * CHUNK + lane * 8192, data.freeze(), WriteFlags::default()).await.expect("write");
                written.set(written.get() + 1);
            }
        });
    }
    evacuate(&env, &g, index);
    pass(&env, 60);
    assert_eq!(used(&g, index), 0, "it went although somebody writes all the time");
    let before = written.get();
    pass(&env, 10);
    assert!(written.get() - before > 3000, "nobody waits any more");
    ended.set(true);
    pass(&env, 1);
    assert_eq!(remove(&env, &g, index).expect("it is empty").not_erased, None);
    stop(&env, g).expect("orderly stop");
}

/// A device that left, whose label could not be erased, and which still lies in a drawer or in a configuration.
#[test]
fn what_left_long_ago_is_left_out_and_in_nobodys_way() {
    let env = MemoryEnv::new();
    let (m, g) = one_fast_two_slow(&env);
    evacuate(&env, &g, 1);
    pass(&env, 5);
    let drawer = m.0[1].copy();
    remove(&env, &g, 1).expect("it is empty");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 0, &[3; 4096]).expect("write");
    stop(&env, g).expect("orderly stop");
    let rest = [m.0[0].clone(), m.0[2].clone()];
    for _ in 0..70 {
        stop(&env, open(&env, &rest, writable()).expect("opens")).expect("orderly stop");
    }
    let all = [drawer, rest[0].clone(), rest[1].clone()];
    let g = open(&env, &all, writable()).expect("opens with what left long ago beside it");
    assert!(g.status().recovery.iter().any(|f| f.contains("has left the group")), "{:?}", g.status().recovery);
    assert_eq!(read(&env, &g.volume("main").expect("there"), 0, 4096).expect("read"), [3; 4096]);
    stop(&env, g).expect("orderly stop");
}

/// A dying disk that has been emptied takes no writes any more.
#[test]
fn what_is_empty_leaves_although_nothing_can_be_written_to_it() {
    let env = MemoryEnv::new();
    let (m, g) = one_fast_two_slow(&env);
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 0, &[3; 4096]).expect("write");
    evacuate(&env, &g, 2);
    flush(&env, &v).expect("flush");
    pass(&env, 5);
    m.0[2].writes_left.set(0);
    let report = remove(&env, &g, 2).expect("it is empty");
    assert!(report.not_erased.is_some());
    write(&env, &v, 0, &[4; 4096]).expect("the group is not latched");
    stop(&env, g).expect("orderly stop");
    assert!(check(&env, &[m.0[0].clone(), m.0[1].clone()]).expect("checked").is_sound());
}

/// Copies that promoted chunks keep below are room for what leaves, also when the mover is switched off.
#[test]
fn kept_copies_make_room_for_what_leaves_without_the_mover() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[64], &[64, 64], Some(110 * MIB));
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let chunks = v.size() / CHUNK;
    for chunk in 0..chunks {
        write(&env, &v, chunk * CHUNK, &[chunk as u8; CHUNK as usize]).expect("write");
    }
    pass(&env, 60);
    let kept = |g: &Group<MemoryEnv>| g.status().mover.kept;
    for _ in 0..20 {
        for chunk in chunks / 2..chunks {
            read(&env, &v, chunk * CHUNK, 4096).expect("read");
        }
        pass(&env, 30);
    }
    assert!(kept(&g) > 100, "{} copies are kept", kept(&g));
    stop(&env, g).expect("orderly stop");
    let g = open(&env, &m.0, writable()).expect("opens");
    let before = kept(&g);
    evacuate(&env, &g, 1);
    pass(&env, 300);
    assert_eq!(used(&g, 1), 0, "of {before} copies {} are left", kept(&g));
    remove(&env, &g, 1).expect("it is empty");
    stop(&env, g).expect("orderly stop");
}

/// Fills a group until a member has many chunks, and has those take their time when they are copied.
fn fill_with_held(env: &MemoryEnv, m: &Members, index: usize) -> u64 {
    let g = open(env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let mut filled = 0;
    while used(&g, index) < 96 {
        // The last of each MiB first, which follows nobody: so all members of a tier get some.
        for chunk in (filled..filled + 8).rev() {
            write(env, &v, chunk * CHUNK, &stamp(chunk, 1)).expect("write");
        }
        filled += 8;
    }
    let there = |chunk: u64| {
        let content = stamp(chunk, 1);
        m.0[index].blocks.borrow().values().any(|b| b[..] == content[..])
    };
    for chunk in (0..filled).filter(|c| there(*c)) {
        write(env, &v, chunk * CHUNK, &[HELD; 4096]).expect("write");
    }
    stop(env, g).expect("orderly stop");
    filled
}

/// The reserve is for new writes also while a member is emptied, which may take days: what is on its way from it is none of
/// what the mover may have on its way, and frees no slot of the reserve.
fn the_reserve_is_restored_beside(index: usize, fast: &[u64], slow: &[u64]) {
    let env = MemoryEnv::new();
    let mut m = create_sized(&env, "tank", fast, slow, Some(fast.iter().sum::<u64>() * MIB + 30 * MIB));
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let mut next = fill_with_held(&env, &m, index);
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    pass(&env, 60);
    let short = |g: &Group<MemoryEnv>| g.status().fast_free < g.status().keep_free;
    assert!(!short(&g));
    m.0.iter().for_each(|d| d.hold_for.set(Duration::from_secs(60)));
    evacuate(&env, &g, index);
    pass(&env, 1);
    // More than the mover would ever send off at once.
    let on_their_way = g.status().mover.in_flight;
    assert!(on_their_way > 64, "only {on_their_way} are on their way");
    while !short(&g) {
        write(&env, &v, next * CHUNK, &stamp(next, 1)).expect("write");
        next += 1;
    }
    let before = g.status().mover.demoted;
    pass(&env, 5);
    let after = g.status();
    assert_eq!(after.mover.evacuated, 0, "they are still on their way");
    assert!(!short(&g) && after.mover.demoted > before, "{} of {} are free", after.fast_free, after.keep_free);
    pass(&env, 300);
    assert_eq!(used(&g, index), 0);
    stop(&env, g).expect("orderly stop");
}

/// The same of what has been copied and waits for a disk whose sync takes long.
#[test]
fn what_a_member_that_leaves_is_about_to_free_is_no_part_of_the_reserve() {
    let env = MemoryEnv::new();
    let mut m = create_sized(&env, "tank", &[16], &[64, 64], Some(46 * MIB));
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let mut next = fill_with_held(&env, &m, 1);
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    pass(&env, 60);
    m.0[2].sync_takes.set(Duration::from_secs(60));
    evacuate(&env, &g, 1);
    pass(&env, 1);
    let on_their_way = g.status().mover.in_flight;
    let short = |g: &Group<MemoryEnv>| g.status().fast_free < g.status().keep_free;
    while !short(&g) {
        write(&env, &v, next * CHUNK, &stamp(next, 1)).expect("write");
        next += 1;
    }
    pass(&env, 5);
    let after = g.status().mover;
    assert_eq!(after.evacuated, 0, "they have not switched yet");
    assert!(after.in_flight > on_their_way, "no more than {on_their_way} are on their way: {}", after.doing);
    m.0[2].sync_takes.set(Duration::ZERO);
    pass(&env, 300);
    assert!(!short(&g) && used(&g, 1) == 0);
    stop(&env, g).expect("orderly stop");
}

#[test]
fn the_reserve_is_restored_while_a_slow_member_is_emptied() {
    the_reserve_is_restored_beside(1, &[16], &[64, 64]);
}

#[test]
fn the_reserve_is_restored_while_a_fast_member_is_emptied() {
    the_reserve_is_restored_beside(0, &[32, 96], &[128]);
}

/// The free slots of the fast tier are all on the member that leaves. Nobody writes, so nobody else wakes the mover.
#[test]
fn the_reserve_is_restored_when_what_leaves_takes_it_along() {
    let env = MemoryEnv::new();
    let mut m = create_sized(&env, "tank", &[16], &[64], Some(30 * MIB));
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    for chunk in 0..v.size() / CHUNK {
        write(&env, &v, chunk * CHUNK, &[7; 4096]).expect("write");
    }
    m.0.push(MemoryDevice::new(32 * MIB));
    add(&env, &g, &m.0[2], Tier::Fast);
    stop(&env, g).expect("orderly stop");
    let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
    pass(&env, 60);
    let free: Vec<u64> = g.status().members.iter().map(|m| m.free).collect();
    assert!(free[0] < 8 && free[2] > 100, "{free:?}");
    evacuate(&env, &g, 2);
    pass(&env, 5);
    let after = g.status();
    assert!(after.fast_free >= after.keep_free, "{} of {} are free", after.fast_free, after.keep_free);
}

/// What a bound volume has on a disk that leaves needs its room on the others once: nothing makes way for it twice.
#[test]
fn chunks_of_a_bound_volume_that_leave_a_disk_owe_nobody_anything() {
    let env = MemoryEnv::new();
    let devices: Vec<MemoryDevice> = [100, 60, 60].map(|mib| MemoryDevice::new(mib * MIB)).into();
    devices.iter().for_each(|d| d.read_takes.set(Duration::from_millis(5)));
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    let new = |name: &str, mib, placement| NewVolume { name: name.into(), size: Some(mib * MIB), placement };
    let volumes = vec![new("a", 100, Placement::Auto), new("b", 30, Placement::SlowOnly)];
    let options = CreateOptions { reserve: Some(24 * MIB), ..small(volumes) };
    make(&env, members, options);
    let g = open(&env, &devices, OpenOptions::default()).expect("opens");
    let (a, b) = (g.volume("a").expect("a"), g.volume("b").expect("b"));
    // One after the other: they lie together.
    (0..240).for_each(|i| write(&env, &b, i * CHUNK, &[6; CHUNK as usize]).expect("write"));
    let leaving = b.members_of(0).next().expect("it lives somewhere");
    assert!((0..240).all(|c| b.members_of(c * CHUNK).eq([leaving])));
    (0..800).for_each(|i| write(&env, &a, i * 37 % 800 * CHUNK, &[5; CHUNK as usize]).expect("write"));
    pass(&env, 70);
    let before = g.status().mover;
    evacuate(&env, &g, leaving.into());
    pass(&env, 120);
    let after = g.status().mover;
    assert_eq!((used(&g, leaving.into()), after.demoted), (0, before.demoted), "{before:?} {after:?}");
}

/// While the labels are written that say so it belongs to the group as any other does, and so do chunks that leave it.
#[test]
fn a_volume_bound_to_a_disk_that_stays_after_all_may_be_trimmed_meanwhile() {
    let env = MemoryEnv::new();
    let mut d: Vec<MemoryDevice> = [24, 48, 48].iter().map(|m| MemoryDevice::new(m * MIB)).collect();
    d.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let new = |name: &str, mib, placement| NewVolume { name: name.into(), size: Some(mib * MIB), placement };
    let volumes = vec![new("bound", 4, Placement::SlowOnly), new("main", 40, Placement::Auto)];
    make(&env, vec![(d[0].clone(), Tier::Fast), (d[1].clone(), Tier::Slow)], small(volumes));
    let g = open(&env, &d[..2], writable()).expect("opens");
    let (bound, main) = (g.volume("bound").expect("made"), g.volume("main").expect("made"));
    (0..32).for_each(|chunk| write(&env, &bound, chunk * CHUNK, &[7; CHUNK as usize]).expect("write"));
    // The SSD is full: new data go to the disks, and have to leave room for what the volume was promised.
    (0..200).for_each(|chunk| write(&env, &main, chunk * CHUNK, &[9; CHUNK as usize]).expect("write"));
    flush(&env, &bound).expect("flush");
    add(&env, &g, &d[2], Tier::Slow);
    d[1].read_takes.set(Duration::from_secs(20));
    evacuate(&env, &g, 1);
    pass(&env, 1);
    d.iter().for_each(|d| d.sync_takes.set(Duration::from_millis(300)));
    let g2 = g.clone();
    env.spawn(async move { g2.keep_member(1).await.map(drop).expect("it stays") });
    let (e, data) = (env.clone(), || BufMut::copy_of(&[9; CHUNK as usize]).freeze());
    env.block_on(async move {
        for chunk in 0..32 {
            e.sleep(Duration::from_millis(50)).await;
            bound.trim(chunk * CHUNK, CHUNK, WriteFlags::default()).await.expect("trim");
            main.write((200 + chunk) * CHUNK, data(), WriteFlags::default()).await.expect("write");
        }
    });
}

/// Handles of the first device that are left some time after a stop, where the third member has left before it or not.
fn left_open(removes: bool) -> usize {
    let env = MemoryEnv::new();
    let (m, g) = one_fast_two_slow(&env);
    let v = g.volume("main").expect("made");
    for chunk in 0..20 {
        write(&env, &v, chunk * CHUNK, &[7; CHUNK as usize]).expect("write");
    }
    flush(&env, &v).expect("flush");
    evacuate(&env, &g, 2);
    pass(&env, 60);
    if removes {
        remove(&env, &g, 2).expect("empty");
    }
    drop(v);
    stop(&env, g).expect("orderly stop");
    pass(&env, 600);
    Rc::strong_count(&m.0[0].blocks)
}

#[test]
fn a_member_that_has_left_keeps_nothing_open_after_a_stop() {
    assert_eq!(left_open(true), left_open(false));
}

/// It could not be taken out: a volume that it has held is being encrypted. Who unplugs it hears what it may hold.
#[test]
fn a_start_without_a_disk_that_may_hold_plaintext_says_so() {
    let env = MemoryEnv::new();
    let (m, g) = one_fast_two_slow(&env);
    let v = g.volume("main").expect("made at creation");
    (0..100).for_each(|c| write(&env, &v, c * CHUNK, &[5; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    evacuate(&env, &g, 2);
    pass(&env, 120);
    assert_eq!(used(&g, 2), 0);
    let (g2, key) = (g.clone(), || FamilyKey::from_bytes(&[7; 32]));
    let new = NewFamily { name: "home".into(), uuid: [7; 16], key: key(), header: vec![7; 4096] };
    env.block_on(async move {
        g2.create_family(new).await.expect("made");
        g2.encrypt_volume("main", "home").await.expect("begun");
    });
    assert!(matches!(remove(&env, &g, 2), Err(StructureError::MayHoldPlaintext { index: 2, .. })));
    stop(&env, g).expect("an orderly stop");
    let g = open(&env, &m.0[..2], writable()).expect("nothing is missing but what may be plain");
    let told = g.status().recovery;
    assert!(told.iter().any(|t| t.contains("member 2") && t.contains("plaintext of volume 'main'")), "{told:?}");
    let found = check_in_use(&env, &g, false).expect("verified").problems;
    assert!(found.iter().any(|p| p.serious && p.what.contains("plaintext of volume 'main'")), "{found:?}");
    g.unlock_family("home", key()).expect("its key");
    pass(&env, 600);
    assert!(g.status().volumes.iter().all(|v| v.encrypting.is_none()));
    stop(&env, g).expect("an orderly stop");
}

/// A disk with chunks of a volume bound to the slow tier, and with others, goes to another disk that has room for just these: nothing
/// comes up to the SSD meanwhile.
#[test]
fn what_is_on_its_way_within_the_slow_tier_is_not_owed_twice() {
    let env = MemoryEnv::new();
    let d = [20, 200, 60, 200].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let volume = |name: &str, mib, placement| NewVolume { name: name.into(), size: Some(mib * MIB), placement };
    let volumes = vec![volume("auto", 50, Placement::Auto), volume("bound", 25, Placement::SlowOnly)];
    let members = d[..3].iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    let g = open(&env, &d[..3], writable()).expect("opens");
    let (auto, bound) = (g.volume("auto").expect("there"), g.volume("bound").expect("there"));
    let home = |v: &Volume<MemoryEnv>, c: u64| v.members_of(c * CHUNK).next();
    // The first SSD is full: from then on all goes to the larger disk, of both volumes in turns, and fits the smaller one with no more than
    // some slots to spare.
    let (mut there, mut chunk) = (0, 0);
    let room = g.status().members[2].free - 200 - 6;
    while there < room {
        write(&env, &auto, chunk * CHUNK, &[1; 4096]).expect("write");
        if home(&auto, chunk) == Some(1) {
            if there < 200 {
                write(&env, &bound, there * CHUNK, &[2; 4096]).expect("write");
            }
            there += 1;
        }
        chunk += 1;
    }
    flush(&env, &auto).expect("flush");
    add(&env, &g, &d[3], Tier::Fast);
    pass(&env, 5);
    d[1].read_takes.set(Duration::from_millis(5));
    evacuate(&env, &g, 1);
    pass(&env, 120);
    let s = g.status();
    assert_eq!(used(&g, 1), 0, "all of it has gone: {:?}", s.mover);
    assert_eq!((s.mover.promoted, used(&g, 3)), (0, 0), "{:?}", s.mover);
}

/// A disk stays after all while chunks of a bound volume are on their way from it: what that volume was promised besides is still kept for
/// it, also while they hang.
#[test]
fn what_is_on_its_way_from_a_disk_that_stays_after_all_is_nobody_elses_room() {
    let env = MemoryEnv::new();
    let d = [20, 60, 60].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let new = |name: &str, size, placement| NewVolume { name: name.into(), size, placement };
    let volumes = vec![new("bound", Some(30 * MIB), Placement::SlowOnly)];
    let members = d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    let g = open(&env, &d, writable()).expect("opens");
    let bound = g.volume("bound").expect("there");
    (0..120).for_each(|c| write(&env, &bound, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    flush(&env, &bound).expect("flush");
    let home = bound.members_of(0).next().expect("it lives somewhere");
    assert!((0..120).all(|c| bound.members_of(c * CHUNK).eq([home])), "they lie together");
    // What is read from there now takes an hour.
    d[home as usize].read_takes.set(Duration::from_secs(3600));
    evacuate(&env, &g, home.into());
    pass(&env, 2);
    d[home as usize].read_takes.set(Duration::ZERO);
    assert!(g.status().mover.in_flight > 100, "{:?}", g.status().mover);
    let (e, g2, all) = (env.clone(), g.clone(), new("auto", None, Placement::Auto));
    env.block_on(async move {
        g2.keep_member(home).await.expect("it stays");
        g2.create_volume(&all).await.expect("it takes all that is left");
    });
    let auto = g.volume("auto").expect("there");
    let (all, over) = (auto.size() / CHUNK, Rc::new(Cell::new(0)));
    let written = over.clone();
    env.spawn(async move {
        for c in 0..all {
            let data = BufMut::copy_of(&[2; CHUNK as usize]).freeze();
            auto.write(c * CHUNK, data, WriteFlags::default()).await.expect("it is promised, too");
            written.set(c + 1);
            e.sleep(Duration::from_millis(1)).await;
        }
    });
    pass(&env, 20);
    assert!((all - 150..all).contains(&over.get()), "{} of {all}: the last ones wait", over.get());
    let begun = env.now();
    (120..240).for_each(|c| write(&env, &bound, c * CHUNK, &[3; 4096]).expect("it is promised"));
    assert!(env.now().since(begun) < Duration::from_secs(5), "{:?}", env.now().since(begun));
    assert!(g.status().mover.in_flight > 100, "{:?}", g.status().mover);
}
