//! Whole chunks of the slow tier that are written anew: whom they must not keep waiting, what is not tried again, and where
//! they come to lie.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use crate::image::{create, flush, open, pass, read, stop, write, Members};
use crate::memory::{MemoryEnv, HELD};

/// A group on devices of so many MiB, of whose volume up to `most` chunks were written in order, and those of them that are on the
/// slow tier.
fn filled(
    env: &MemoryEnv,
    fast: u64,
    slow: u64,
    most: u64,
) -> (Members, Group<MemoryEnv>, Volume<MemoryEnv>, Vec<u64>) {
    let mut members = create(env, "tank", &[fast], &[slow]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(env, &members.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    let chunks = most.min(v.size() / CHUNK);
    (0..chunks).for_each(|c| write(env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    pass(env, 60);
    let cold = (0..chunks).filter(|c| is_slow(&v, *c)).collect();
    (members, g, v, cold)
}

fn is_slow(v: &Volume<MemoryEnv>, chunk: u64) -> bool {
    v.extents(chunk * CHUNK, CHUNK, 1).expect("inside")[0].tier == 2
}

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunks: impl IntoIterator<Item = u64>) {
    for c in chunks {
        let v = v.clone();
        env.block_on(async move { v.trim(c * CHUNK, CHUNK, WriteFlags::default()).await.expect("trim") });
    }
    flush(env, v).expect("flush");
    pass(env, 10);
}

/// The first of a row of chunks on the slow tier.
fn row(cold: &[u64], len: usize) -> u64 {
    let whole = |w: &&[u64]| w[0] % 8 == 0 && w[len - 1] - w[0] == len as u64 - 1;
    cold.windows(len).find(whole).expect("a row of cold chunks")[0]
}

/// Begins a write; the cell says when it has ended.
fn begin(env: &MemoryEnv, v: &Volume<MemoryEnv>, offset: u64, byte: u8, len: u64) -> Rc<Cell<bool>> {
    let (v, ended) = (v.clone(), Rc::new(Cell::new(false)));
    let done = ended.clone();
    env.spawn(async move {
        let mut b = BufMut::with_phase(len as usize, offset);
        b.fill(byte);
        v.write(offset, b.freeze(), WriteFlags::default()).await.expect("write");
        done.set(true);
    });
    ended
}

#[test]
fn a_write_of_old_and_new_chunks_ends_where_all_room_is_promised() {
    let env = MemoryEnv::new();
    let (members, g, v, cold) = filled(&env, 10, 16, u64::MAX);
    let (len, first) = (24, row(&cold, 24));
    let last = first + len - 1;
    let new: Vec<u64> = (0..v.size() / CHUNK).filter(|c| !is_slow(&v, *c)).collect();
    trim(&env, &v, new.iter().copied().chain([last]));
    // A small write in the last but one takes its time; the long one waits for it.
    let slow = members.0.last().expect("a slow member");
    slow.hold_for.set(Duration::from_secs(2));
    let mut writes = vec![begin(&env, &v, (last - 1) * CHUNK, HELD, 4096)];
    env.block_on(env.sleep(Duration::from_millis(1)));
    writes.push(begin(&env, &v, first * CHUNK, 3, len * CHUNK));
    env.block_on(env.sleep(Duration::from_millis(1)));
    // Meanwhile what was trimmed is written again.
    writes.extend(new.iter().map(|c| begin(&env, &v, c * CHUNK, 2, CHUNK)));
    pass(&env, 600);
    let left = writes.iter().filter(|ended| !ended.get()).count();
    assert_eq!(left, 0, "writes that wait for each other, ten minutes later");
    assert!(g.status().mover.written_anew > 0);
    assert_eq!(read(&env, &v, first * CHUNK, 4096).expect("read"), [3; 4096]);
    stop(&env, g).expect("stops");
}

#[test]
fn a_place_that_takes_no_write_is_tried_once() {
    let env = MemoryEnv::new();
    let (members, g, v, cold) = filled(&env, 24, 64, 200);
    trim(&env, &v, (0..200).filter(|c| !is_slow(&v, *c)).take(8));
    // None of the slots that are free now takes a write.
    let fast = &members.0[0];
    let slots = g.status().members[0].slots as u32;
    let free = |block: &u64| !fast.blocks.borrow().contains_key(block);
    let bad: Vec<u64> = (0..slots).map(|s| fast.layout().slot(s) / 4096).filter(free).collect();
    assert!(bad.len() >= 4, "{} free", bad.len());
    fast.bad.borrow_mut().extend(bad.iter().flat_map(|b| *b..b + 32));
    let mut errors = Vec::new();
    for (n, c) in cold.iter().take(40).enumerate() {
        write(&env, &v, c * CHUNK, &[n as u8; CHUNK as usize]).expect("the old place takes it");
        assert_eq!(read(&env, &v, c * CHUNK, 4096).expect("read"), [n as u8; 4096]);
        pass(&env, 5);
        errors.push(g.status().members[0].errors);
    }
    assert!(errors[0] > 0, "nothing went to a bad place");
    assert_eq!(errors[19], errors[39], "bad places are tried again and again: {errors:?}");
}

#[test]
fn what_is_written_anew_together_lies_together() {
    let env = MemoryEnv::new();
    let (members, g, v, cold) = filled(&env, 48, 96, u64::MAX);
    let first = row(&cold, 8);
    trim(&env, &v, (0..v.size() / CHUNK).filter(|c| !is_slow(&v, *c)));
    let (fast, before) = (&members.0[0], members.0[0].writes.get());
    write(&env, &v, first * CHUNK, &vec![2; 8 * CHUNK as usize]).expect("write");
    assert_eq!(g.status().mover.written_anew, 8);
    assert_eq!(fast.writes.get() - before, 1, "writes to the device");
}
