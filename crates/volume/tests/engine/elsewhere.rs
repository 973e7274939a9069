//! New data whose place takes no write: they go to another one, once and nothing else with them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{DeviceError, Env};
use bimetal_volume::error::Error;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use crate::image::{create, flush, open, pass, read, stop, write, Members};
use crate::memory::{MemoryEnv, HELD};

const BLOCK: u64 = 4096;
/// The chunk that comes anew.
const NEW: u64 = 50;

/// A group with a hundred chunks, all on its SSD but `NEW`: the SSD is much larger.
fn filled(env: &MemoryEnv) -> (Members, Group<MemoryEnv>, Volume<MemoryEnv>) {
    let mut members = create(env, "tank", &[48], &[96]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(env, &members.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (0..100).for_each(|c| write(env, &v, c * CHUNK, &[c as u8 + 1; CHUNK as usize]).expect("write"));
    flush(env, &v).expect("flush");
    (members, g, v)
}

/// The place of a chunk on the SSD, in blocks.
fn place(members: &Members, chunk: u64) -> u64 {
    let blocks = members.0[0].blocks.borrow();
    let mut found = blocks.iter().filter(|(_, b)| b[..] == [chunk as u8 + 1; BLOCK as usize]);
    *found.next().expect("it is there").0
}

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunk: u64) {
    let w = v.clone();
    env.block_on(async move { w.trim(chunk * CHUNK, CHUNK, WriteFlags::default()).await.expect("trim") });
    flush(env, v).expect("flush");
    pass(env, 20);
}

/// The chunk is gone, and its place takes no write any more.
fn spoil(env: &MemoryEnv, members: &Members, v: &Volume<MemoryEnv>) {
    let place = place(members, NEW);
    trim(env, v, NEW);
    members.0[0].bad.borrow_mut().extend(place..place + 32);
}

/// No free place of the SSD takes a write.
fn spoil_all_free(members: &Members, g: &Group<MemoryEnv>) {
    let d = &members.0[0];
    let slots = (0..g.status().members[0].slots as u32).map(|s| d.layout().slot(s) / BLOCK);
    let free = slots.filter(|b| !d.blocks.borrow().contains_key(b));
    d.bad.borrow_mut().extend(free.flat_map(|b| b..b + 32));
}

/// Begins a write; the cell gets its answer.
fn begin(
    env: &MemoryEnv,
    v: &Volume<MemoryEnv>,
    offset: u64,
    len: u64,
    byte: u8,
) -> Rc<RefCell<Option<Result<(), Error>>>> {
    let (v, answer) = (v.clone(), Rc::new(RefCell::new(None)));
    let told = answer.clone();
    env.spawn(async move {
        let mut b = BufMut::with_phase(len as usize, offset);
        b.fill(byte);
        let result = v.write(offset, b.freeze(), WriteFlags::default()).await;
        *told.borrow_mut() = Some(result);
    });
    answer
}

fn millis(env: &MemoryEnv, n: u64) {
    env.block_on(env.sleep(Duration::from_millis(n)));
}

#[test]
fn a_place_that_takes_no_write_is_not_given_to_new_data_again_and_again() {
    let env = MemoryEnv::new();
    let (members, g, v) = filled(&env);
    spoil(&env, &members, &v);
    for n in 0..20 {
        write(&env, &v, NEW * CHUNK, &[n; CHUNK as usize]).expect("another place takes it");
        assert_eq!(read(&env, &v, NEW * CHUNK, CHUNK).expect("read"), [n; CHUNK as usize]);
        trim(&env, &v, NEW);
    }
    let s = &g.status().members[0];
    assert_eq!((s.errors, s.quarantined), (1, 1), "{s:?}");
    stop(&env, g).expect("stops");
}

#[test]
fn new_data_that_are_sent_together_with_others_go_elsewhere_too() {
    let env = MemoryEnv::new();
    let (members, g, v) = filled(&env);
    spoil(&env, &members, &v);
    for n in 0..20 {
        // The chunk before has a home, and the bad place lies right behind that.
        write(&env, &v, (NEW - 1) * CHUNK, &[n; 2 * CHUNK as usize]).expect("another place takes it");
        let got = read(&env, &v, (NEW - 1) * CHUNK, 2 * CHUNK).expect("read");
        assert_eq!(got, [n; 2 * CHUNK as usize]);
        trim(&env, &v, NEW);
    }
    let s = &g.status().members[0];
    assert!((1..=20).contains(&s.errors), "{s:?}");
    stop(&env, g).expect("stops");
}

#[test]
fn a_write_is_tried_twice_at_most() {
    let env = MemoryEnv::new();
    let (members, g, v) = filled(&env);
    trim(&env, &v, NEW);
    spoil_all_free(&members, &g);
    let failed = write(&env, &v, NEW * CHUNK, &[3; CHUNK as usize]);
    assert_eq!(failed, Err(Error::Device { member: 0, source: DeviceError::Io(5) }));
    assert_eq!(g.status().members[0].errors, 2);
    pass(&env, 20);
    // Of what had no home nothing is there, and nothing is lost.
    assert_eq!(read(&env, &v, NEW * CHUNK, BLOCK).expect("read"), [0; BLOCK as usize]);
    members.0[0].bad.borrow_mut().clear();
    write(&env, &v, NEW * CHUNK, &[4; CHUNK as usize]).expect("write");
    assert_eq!(g.status().latched, None);
    stop(&env, g).expect("stops");
}

#[test]
fn what_is_done_of_a_write_is_not_done_again_over_what_came_since() {
    let env = MemoryEnv::new();
    let (members, g, v) = filled(&env);
    // The place behind the chunk before is kept back now: a write of both is two requests to the device.
    spoil(&env, &members, &v);
    write(&env, &v, NEW * CHUNK, &[1; CHUNK as usize]).expect("another place takes it");
    trim(&env, &v, NEW);
    spoil_all_free(&members, &g);
    members.0[0].hold_for.set(Duration::from_secs(2));
    let end = NEW * CHUNK - BLOCK;
    let both = begin(&env, &v, end, 2 * BLOCK, HELD);
    millis(&env, 1000);
    let newer = begin(&env, &v, end, BLOCK, 7);
    millis(&env, 2000);
    assert_eq!((both.take(), newer.take()), (None, Some(Ok(()))));
    members.0[0].bad.borrow_mut().clear();
    millis(&env, 2000);
    assert_eq!(both.take(), Some(Ok(())));
    assert_eq!(read(&env, &v, end, 2 * BLOCK).expect("read"), [[7; BLOCK as usize], [HELD; BLOCK as usize]].concat());
    stop(&env, g).expect("stops");
}

#[test]
fn new_data_that_went_to_a_member_that_is_lost_are_not_tried_elsewhere() {
    let env = MemoryEnv::new();
    let mut members = create(&env, "tank", &[24, 24], &[96]);
    members.0.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let g = open(&env, &members.0, OpenOptions::default()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    members.0.iter().for_each(|d| d.hold_for.set(Duration::from_secs(1)));
    let answer = begin(&env, &v, 0, BLOCK, HELD);
    millis(&env, 1);
    let home = v.members_of(0).next().expect("it has a home");
    members.0[usize::from(home)].lost.set(true);
    pass(&env, 5);
    let lost = Err(Error::Device { member: home, source: DeviceError::Disconnected });
    assert_eq!(answer.take(), Some(lost));
}
