//! A disk that was leaving and not there any more when its group went on, alone: it may be all that is left by then, but vouches for nothing.

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::fate::Fate;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{evacuate, flush, make, open, pass, read, read_only, small, stop, used, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::reserve::{come_up_with, has_copy, is_fast};

fn devices(env: &MemoryEnv, sizes: [u64; 3]) -> [MemoryDevice; 3] {
    sizes.map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) })
}

fn group(env: &MemoryEnv, d: &[MemoryDevice; 3], size: u64) {
    let main = NewVolume { name: "main".into(), size: Some(size), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![main]) };
    make(env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect(), options);
}

/// The same devices in another run.
fn again(env: &MemoryEnv, d: &[MemoryDevice]) -> Vec<MemoryDevice> {
    d.iter().map(|d| MemoryDevice { env: Some(env.clone()), ..d.clone() }).collect()
}

#[test]
fn it_calls_nothing_never_written() {
    let env = MemoryEnv::new();
    let d = devices(&env, [32, 64, 64]);
    group(&env, &d, 40 * MIB);
    let g = open(&env, &d, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    write(&env, &v, 0, &[1; CHUNK as usize]).expect("write");
    flush(&env, &v).expect("flush");
    evacuate(&env, &g, 2);
    pass(&env, 60);
    assert_eq!(used(&g, 2), 0);
    drop(v);
    stop(&env, g).expect("stop");
    env.kill();
    let env = MemoryEnv::new();
    let g = open(&env, &again(&env, &d[..2]), writable()).expect("opens without the empty one");
    let v = g.volume("main").expect("there");
    (0..100).for_each(|c| write(&env, &v, c * CHUNK, &[7; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    drop(v);
    stop(&env, g).expect("stop");
    env.kill();
    let env = MemoryEnv::new();
    let g = open(&env, &again(&env, &d[2..]), read_only()).expect("alone");
    let v = g.volume("main").expect("there");
    let fates = v.fates(0, 40 * MIB, 100).expect("inside");
    assert!(fates.iter().all(|f| f.fate != Fate::NeverWritten), "{fates:?}");
    assert!(read(&env, &v, 50 * CHUNK, 4096).is_err(), "flushed since");
}

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunk: u64, chunks: u64) {
    let v = v.clone();
    env.block_on(async move { v.trim(chunk * CHUNK, chunks * CHUNK, WriteFlags::default()).await.expect("trim") });
}

/// A group of which the disks have nothing but copies of what the SSD has, and the chunks that have one. Its commits are small.
fn with_copies(env: &MemoryEnv, d: &[MemoryDevice; 3]) -> (Group<MemoryEnv>, Vec<u64>) {
    group(env, d, 180 * MIB);
    let g = open(env, d, OpenOptions { journal_records: 4, ..OpenOptions::default() }).expect("opens");
    let v = g.volume("main").expect("there");
    come_up_with(env, &v, |_| vec![3; CHUNK as usize]);
    flush(env, &v).expect("flush");
    (200..900).filter(|c| !is_fast(&v, *c)).for_each(|c| trim(env, &v, c, 1));
    flush(env, &v).expect("flush");
    pass(env, 60);
    let copied = (200..900).filter(|c| has_copy(&v, *c)).collect();
    (g, copied)
}

/// A stop comes while the copies on a disk that is to leave are being dropped: more of them than one commit takes.
#[test]
fn copies_that_were_still_on_it_are_not_called_whole() {
    let env = MemoryEnv::new();
    let d = devices(&env, [64, 256, 256]);
    let (g, copied) = with_copies(&env, &d);
    assert!(copied.len() > 50, "{}", copied.len());
    let which = if used(&g, 1) > used(&g, 2) { 1 } else { 2 };
    env.block_on(async move {
        g.evacuate_member(which as u8).await.expect("there is room");
        g.stop().await.expect("stop");
    });
    env.kill();
    let env = MemoryEnv::new();
    let rest: Vec<_> = (0..3).filter(|i| *i != which).map(|i| d[i].clone()).collect();
    let g = open(&env, &again(&env, &rest), writable()).expect("the disk has nothing that counts");
    let v = g.volume("main").expect("there");
    copied.iter().for_each(|c| write(&env, &v, c * CHUNK, &[9; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    drop(v);
    stop(&env, g).expect("stop");
    env.kill();
    let env = MemoryEnv::new();
    let g = open(&env, &again(&env, &d[which..=which]), read_only()).expect("alone");
    let v = g.volume("main").expect("there");
    let old = |c: &&u64| read(&env, &v, **c * CHUNK, 4096).is_ok_and(|b| b == [3; 4096]);
    assert_eq!(copied.iter().filter(old).count(), 0, "of {} chunks, overwritten since", copied.len());
}

/// A group moves to new devices: the old ones are to leave, and have all that it holds still when the new ones die.
#[test]
fn what_is_on_an_ssd_that_was_to_leave_can_be_had_when_all_others_die() {
    let env = MemoryEnv::new();
    let d = [64, 256, 64, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let main = NewVolume { name: "main".into(), size: Some(40 * MIB), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![main]) };
    make(&env, d[..2].iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let g = open(&env, &d[..2], OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..200).for_each(|c| write(&env, &v, c * CHUNK, &[c as u8 + 1; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    drop(v);
    let new = [(d[2].clone(), Tier::Fast), (d[3].clone(), Tier::Slow)];
    env.block_on(async move {
        for (new, tier) in new {
            let wanted = NewMember { tier, force: false, journal_blocks: Some(64) };
            g.add_member(new, &wanted).await.map(drop).expect("added");
        }
        g.evacuate_member(0).await.expect("there is room");
        g.evacuate_member(1).await.expect("there is room");
        g.stop().await.expect("stop");
    });
    env.kill();
    let env = MemoryEnv::new();
    let g = open(&env, &again(&env, &d), read_only()).expect("all");
    let v = g.volume("main").expect("there");
    let on: Vec<u64> = (0..200).filter(|c| v.members_of(c * CHUNK).next() == Some(0)).collect();
    drop((g, v));
    env.kill();
    assert!(on.len() > 100, "{} chunks on the SSD that leaves", on.len());
    for there in [0..1, 0..2] {
        let env = MemoryEnv::new();
        let g = open(&env, &again(&env, &d[there.clone()]), read_only()).expect("the old ones");
        let v = g.volume("main").expect("there");
        let is_there = |c: &&u64| read(&env, &v, **c * CHUNK, 4096).is_ok_and(|b| b[0] == **c as u8 + 1);
        assert_eq!(on.iter().filter(is_there).count(), on.len(), "with {there:?}");
    }
}
