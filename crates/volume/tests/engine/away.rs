//! Away blocks: such that cannot be read at one start and can at another, and what they cost.

use std::time::Duration;

use bimetal_volume::env::Env;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use crate::image::{
    check_in_use, create, flush, make, open, read, read_only, small, stop, used, writable, write, Members, MIB,
};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A group that was opened often, with the two blocks of 4 KiB that are the away block of its slow member: the newer one first.
fn group() -> (Members, [u64; 2]) {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16], &[32]);
    for n in 0..6u64 {
        let g = open(&env, &m.0, writable()).expect("opens");
        let v = g.volume("main").expect("made at creation");
        write(&env, &v, n * CHUNK, &[n as u8 + 1; 4096]).expect("write");
        flush(&env, &v).expect("flush");
        stop(&env, g).expect("orderly stop");
    }
    let slow = &m.0[1];
    // Every block can be read, but those that are taken away.
    for b in 0..slow.size / 4096 {
        slow.blocks.borrow_mut().entry(b).or_insert_with(|| vec![0xa5; 4096].into());
    }
    slow.holes_fail.set(true);
    let at = [0, 1].map(|side| slow.layout().away_block(0, side) / 4096);
    let newer = at.into_iter().max_by_key(|b| sequence(&m, *b)).expect("two");
    (m, [newer, at[0] + at[1] - newer])
}

/// Sequence of a copy of the away block; 0 if there is none.
fn sequence(m: &Members, block: u64) -> u64 {
    let slow = &m.0[1];
    if !slow.blocks.borrow().contains_key(&block) {
        return 0;
    }
    let l = slow.label();
    let place = block * 4096;
    let salt = bimetal_format::Salt { group: l.group, member: l.member, place };
    bimetal_format::away::decode(&slow.peek(place, 4096), 0, &salt).map_or(0, |(n, _)| n)
}

#[test]
fn what_nobody_could_read_is_not_newer_than_what_was_written_since() {
    let (m, [newer, older]) = group();
    let slow = &m.0[1];
    let was = slow.blocks.borrow()[&newer].clone();
    // Neither can be read, and the newer one takes no write.
    slow.blocks.borrow_mut().retain(|b, _| *b != newer && *b != older);
    slow.bad.borrow_mut().insert(newer);
    let env = MemoryEnv::new();
    assert!(open(&env, &m.0, writable()).is_err(), "nothing may rely on bits that are not written");
    assert!(sequence(&m, older) > 0, "one side could be");
    // At the next start that one can be read; it says that all is away.
    let g = open(&env, &m.0, writable()).expect("one side that is newer than the other will do");
    let v = g.volume("main").expect("made at creation");
    write(&env, &v, 20 * CHUNK, &[77; 4096]).expect("write");
    flush(&env, &v).expect("durable");
    assert_eq!(used(&g, 0), 7, "on the fast member");
    env.kill();
    drop((g, v));
    // The fast member dies, and the block can be read again.
    slow.blocks.borrow_mut().insert(newer, was);
    slow.bad.borrow_mut().clear();
    let env = MemoryEnv::new();
    let g = open(&env, &m.0[1..], read_only()).expect("degraded");
    let v = g.volume("main").expect("made at creation");
    let read = read(&env, &v, 20 * CHUNK, 4096);
    assert!(read.is_err(), "lost data are called never written: {:?}", read.map(|b| b[0]));
}

/// A sector that takes what is written and cannot be read: a check says so, and tries again to write it anew, as often as it is asked to. By
/// the next start it takes no writes either.
#[test]
fn what_checks_wrote_and_nobody_could_read_is_not_newer_than_what_a_start_wrote_since() {
    for checks in 0..5 {
        let env = MemoryEnv::new();
        let d = [64, 5000].map(|mib| MemoryDevice::new(mib * MIB));
        // Bits are set a GiB at a time.
        let far = 3000 * MIB;
        let main = NewVolume { name: "main".into(), size: Some(4000 * MIB), placement: Placement::Auto };
        make(&env, d.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), small(vec![main]));
        let m = Members(d.to_vec());
        let g = open(&env, &m.0, writable()).expect("opens");
        let v = g.volume("main").expect("made at creation");
        write(&env, &v, 0, &[1; 4096]).expect("write");
        flush(&env, &v).expect("flush");
        let slow = &m.0[1];
        let at = [0, 1].map(|side| slow.layout().away_block(0, side) / 4096);
        let weak = at.into_iter().max_by_key(|b| sequence(&m, *b)).expect("two");
        slow.unread.borrow_mut().insert(weak, u32::MAX);
        for _ in 0..checks {
            let report = check_in_use(&env, &g, true).expect("verified");
            assert!(!report.is_sound(), "{report:?}");
        }
        env.kill();
        drop((g, v));
        slow.bad.borrow_mut().insert(weak);
        let env = MemoryEnv::new();
        let g = open(&env, &m.0, writable()).expect("one side that is newer than the other will do");
        let v = g.volume("main").expect("made at creation");
        write(&env, &v, far, &[77; 4096]).expect("write");
        flush(&env, &v).expect("durable");
        env.kill();
        drop((g, v));
        // The fast member dies, and the sector can be read again.
        slow.unread.borrow_mut().clear();
        slow.bad.borrow_mut().clear();
        let env = MemoryEnv::new();
        let g = open(&env, &m.0[1..], read_only()).expect("degraded");
        let v = g.volume("main").expect("made at creation");
        let read = read(&env, &v, far, 4096);
        assert!(read.is_err(), "{checks} checks: lost data are called never written: {:?}", read.map(|b| b[0]));
    }
}

#[test]
fn disks_that_sleep_wake_up_side_by_side() {
    let env = MemoryEnv::new();
    let mut m = create(&env, "tank", &[16], &[16; 8]);
    for d in &mut m.0 {
        d.env = Some(env.clone());
        d.wakes_up_in.set(Duration::from_secs(10));
    }
    let begun = env.now();
    let g = open(&env, &m.0, writable()).expect("opens");
    let took = env.now().since(begun);
    assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(11), "{took:?}");
    stop(&env, g).expect("orderly stop");
}

#[test]
fn the_disks_of_a_group_write_their_away_bits_side_by_side() {
    let env = MemoryEnv::new();
    let mut m = create(&env, "tank", &[16], &[16; 8]);
    m.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let takes = Duration::from_millis(100);
    m.0[1..].iter().for_each(|disk| disk.write_takes.set(takes));
    let begun = env.now();
    write(&env, &v, 0, &[1; 4096]).and_then(|()| flush(&env, &v)).expect("written");
    let took = env.now().since(begun);
    assert!(took >= takes, "no bit was written: this is no test");
    assert!(took < takes * 2, "{took:?}");
}
