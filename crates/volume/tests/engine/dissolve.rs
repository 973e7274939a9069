//! A volume that is copied onto a plain device: in what order that gets it, and whom it hinders.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::dissolve::{Dissolve, DissolveError, PIECE};
use bimetal_volume::env::{Device, DeviceError, DeviceTraits, Env};
use bimetal_volume::error::Error;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{create_sized, evacuate, flush, make, open, pass, small, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::reserve::{is_fast, millis};

/// A plain device that remembers of which pieces writes began; `None` is a sync.
#[derive(Clone)]
struct Plain {
    env: MemoryEnv,
    inner: MemoryDevice,
    done: Rc<RefCell<Vec<Option<u64>>>>,
    /// It answers no request from this byte on.
    still: Rc<Cell<u64>>,
}

impl Plain {
    fn new(env: &MemoryEnv, size: u64) -> Plain {
        let (inner, still) = (MemoryDevice::new(size), Rc::new(Cell::new(u64::MAX)));
        Plain { env: env.clone(), inner, done: Rc::default(), still }
    }

    async fn answers(&self, offset: u64) {
        while offset >= self.still.get() {
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Device for Plain {
    fn size(&self) -> u64 {
        self.inner.size
    }

    fn traits(&self) -> DeviceTraits {
        self.inner.traits()
    }

    async fn read(&self, offset: u64, mut buf: BufMut) -> (BufMut, Result<(), DeviceError>) {
        self.answers(offset).await;
        let there = self.inner.peek(offset, buf.len());
        buf.copy_from_slice(&there);
        (buf, Ok(()))
    }

    async fn write(&self, offset: u64, buf: Buf) -> Result<(), DeviceError> {
        self.answers(offset).await;
        self.done.borrow_mut().push(Some(offset / PIECE));
        self.inner.poke(offset, &buf);
        Ok(())
    }

    async fn sync(&self) -> Result<(), DeviceError> {
        self.answers(0).await;
        self.done.borrow_mut().push(None);
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A group whose volume of 8 MiB holds something else in each MiB.
fn filled(env: &MemoryEnv) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let members = create_sized(env, "tank", &[8], &[24], Some(8 * MIB));
    let g = open(env, &members.0, writable()).expect("opens");
    let v = g.volume("main").expect("made at creation");
    (0..8).for_each(|n| write(env, &v, n * MIB, &vec![1 + n as u8; MIB as usize]).expect("write"));
    (g, v)
}

#[test]
fn what_a_copy_is_recognised_by_is_written_when_all_else_is_durable() {
    let env = MemoryEnv::new();
    let (_g, v) = filled(&env);
    let onto = Plain::new(&env, 16 * MIB);
    let run = Dissolve::begin(v, onto.clone(), PIECE).expect("begun");
    env.block_on(async move {
        run.copy().await.expect("copied");
        drop(run.finish().await.expect("finished"));
    });
    let done = onto.done.borrow();
    let head = done.iter().rposition(|piece| *piece == Some(0)).expect("it is written at last");
    let last_sync = done[..head].iter().rposition(Option::is_none).expect("there is one");
    assert!(done[last_sync..head].iter().all(Option::is_none), "not durable before the head: {done:?}");
    assert!(done[head..].iter().all(|piece| piece.is_none() || *piece == Some(0)), "after the head: {done:?}");
    assert_eq!(done.last(), Some(&None));
    assert!((0..8).all(|n| onto.inner.peek(n * MIB, MIB as usize).iter().all(|b| *b == 1 + n as u8)));
}

/// An SSD and two disks, with a volume that lives on the SSD alone, and a larger one.
fn beside(
    env: &MemoryEnv,
    migrate: bool,
) -> ([MemoryDevice; 3], Group<MemoryEnv>, Volume<MemoryEnv>, Volume<MemoryEnv>) {
    let d = [64, 256, 256].map(|mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) });
    let hot = NewVolume { name: "hot".into(), size: Some(8 * MIB), placement: Placement::FastOnly };
    let main = NewVolume { name: "main".into(), size: Some(180 * MIB), placement: Placement::Auto };
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![hot, main]) };
    make(env, d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect(), options);
    let g = open(env, &d, OpenOptions { migrate, ..OpenOptions::default() }).expect("opens");
    let (hot, main) = (g.volume("hot").expect("there"), g.volume("main").expect("there"));
    (0..64).for_each(|c| write(env, &hot, c * CHUNK, &[9; CHUNK as usize]).expect("write"));
    (0..900).for_each(|c| write(env, &main, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(env, &main).expect("flush");
    pass(env, 120);
    (d, g, hot, main)
}

/// Copies a volume.
fn copied(env: &MemoryEnv, volume: &Volume<MemoryEnv>) -> Result<MemoryDevice, DissolveError> {
    let onto = Plain::new(env, 200 * MIB);
    let run = Dissolve::begin(volume.clone(), onto.clone(), PIECE)?;
    env.block_on(async move {
        run.copy().await?;
        run.finish().await.map(drop)
    })?;
    Ok(onto.inner)
}

/// The same in a group that has latched: the disks are lost with something that was not flushed, and a chunk of the larger volume was to
/// be written there. These disks, the volumes, and that chunk.
fn latched(env: &MemoryEnv) -> (Vec<MemoryDevice>, Volume<MemoryEnv>, Volume<MemoryEnv>, u64) {
    let (d, g, hot, main) = beside(env, false);
    let below = (0..900).find(|c| !is_fast(&main, *c)).expect("the disks are in use");
    write(env, &main, below * CHUNK, &[4; 4096]).expect("write");
    d[1..].iter().for_each(|disk| disk.lost.set(true));
    write(env, &main, below * CHUNK, &[4; 4096]).expect_err("it lies on a disk");
    pass(env, 60);
    assert!(g.status().latched.is_some());
    (d[1..].to_vec(), hot, main, below)
}

#[test]
fn a_volume_on_the_ssd_is_copied_out_of_a_group_that_takes_no_writes() {
    let env = MemoryEnv::new();
    let (_disks, hot, ..) = latched(&env);
    let copy = copied(&env, &hot).expect("all of it is on the SSD, and can be read");
    assert!(copy.peek(0, 8 * MIB as usize).iter().all(|b| *b == 9));
}

/// It does not say that it is lost: a write to it has failed, and a sync.
#[test]
fn a_disk_that_keeps_nothing_is_not_asked_for_a_volume_on_the_ssd() {
    let env = MemoryEnv::new();
    let (disks, hot, main, below) = latched(&env);
    disks.iter().for_each(|disk| disk.lost.set(false));
    let copy = copied(&env, &hot).expect("all of it is on the SSD, and can be read");
    assert!(copy.peek(0, 8 * MIB as usize).iter().all(|b| *b == 9));
    let failed = copied(&env, &main).map(drop).expect_err("a failed write may still land in it");
    assert!(matches!(failed, DissolveError::Source { offset, .. } if offset == below * CHUNK), "{failed:?}");
}

/// A disk is being emptied when the connection to another one is lost, to which a chunk is just being copied.
#[test]
fn a_copy_of_a_volume_takes_writes_from_nobody_though_a_disk_is_lost() {
    let env = MemoryEnv::new();
    let (d, g, hot, main) = beside(&env, true);
    d[1].read_takes.set(std::time::Duration::from_secs(1));
    d[2].write_takes.set(std::time::Duration::from_millis(50));
    evacuate(&env, &g, 1);
    while d[2].being_written.get().0 < CHUNK as usize {
        millis(&env, 1);
    }
    d[2].lost.set(true);
    pass(&env, 600);
    copied(&env, &hot).expect("all of it is on the SSD");
    copied(&env, &main).map(drop).expect_err("some of it is on the disk");
    assert_eq!(g.status().latched, None);
    write(&env, &hot, 0, &[5; 4096]).and_then(|()| flush(&env, &hot)).expect("it lies on the SSD");
}

type Run = Rc<Dissolve<MemoryEnv, Plain>>;

/// The end of a run, beside which other things are done; what it has come to, once it has.
fn finishing(env: &MemoryEnv, run: &Run) -> Rc<RefCell<Option<Result<(), DissolveError>>>> {
    let (run, ended) = (run.clone(), Rc::new(RefCell::new(None)));
    let result = ended.clone();
    env.spawn(async move {
        let finished = run.finish().await.map(drop);
        *result.borrow_mut() = Some(finished);
    });
    millis(env, 10);
    ended
}

/// A run that has only its end before it.
fn begun(env: &MemoryEnv, volume: &Volume<MemoryEnv>, onto: &Plain) -> Run {
    let run = Rc::new(Dissolve::begin(volume.clone(), onto.clone(), PIECE).expect("begun"));
    let copy = run.clone();
    env.block_on(async move { copy.copy().await }).expect("copied");
    run
}

/// The device answers nothing from this byte on in the last moment of a copy of 8 MiB, and somebody comes and writes.
fn given_up_beside_what_stands_still(from: u64) {
    let env = MemoryEnv::new();
    let (_g, v) = filled(&env);
    let onto = Plain::new(&env, 16 * MIB);
    let run = begun(&env, &v, &onto);
    onto.still.set(from);
    let ended = finishing(&env, &run);
    assert_eq!(write(&env, &v, 5 * MIB, &[7; 4096]), Err(Error::Frozen));
    run.give_up(true);
    write(&env, &v, 5 * MIB, &[7; 4096]).expect("nobody waits for a device that is none of the group");
    assert_eq!(*ended.borrow(), None, "what is on its way to the device is waited for");
    onto.still.set(u64::MAX);
    millis(&env, 10);
    assert_eq!(*ended.borrow(), Some(Err(DissolveError::GivenUp)));
    // It can be gone on with.
    run.give_up(false);
    env.block_on(async move {
        run.catch_up().await.expect("the device answers");
        assert!(run.finish().await.expect("finished").stands());
    });
    assert!(onto.inner.peek(5 * MIB, 4096).iter().all(|b| *b == 7));
}

#[test]
fn a_device_that_stands_still_in_the_last_moment_keeps_nobody_from_writing() {
    given_up_beside_what_stands_still(0);
}

/// All is on the device, and only what lies behind it is looked at: what is written then is not.
#[test]
fn a_copy_that_was_given_up_in_its_very_last_step_is_none() {
    given_up_beside_what_stands_still(12 * MIB);
}

#[test]
fn a_write_that_hangs_on_a_member_keeps_nobody_else_from_writing_nor_the_group_from_changes() {
    let env = MemoryEnv::new();
    let (d, g, _, main) = beside(&env, false);
    let below = (0..900).find(|c| !is_fast(&main, *c)).expect("the disks are in use");
    let above = (0..900).find(|c| is_fast(&main, *c)).expect("the SSD is in use");
    let run = begun(&env, &main, &Plain::new(&env, 200 * MIB));
    d[1..].iter().for_each(|disk| disk.write_takes.set(Duration::from_secs(100_000)));
    let (v, hung) = (main.clone(), Rc::new(Cell::new(true)));
    let hangs = hung.clone();
    env.spawn(async move {
        v.write(below * CHUNK, BufMut::zeroed(4096).freeze(), WriteFlags::default()).await.expect("answered at last");
        hangs.set(false);
    });
    millis(&env, 10);
    d[1..].iter().for_each(|disk| disk.write_takes.set(Duration::ZERO));
    let ended = finishing(&env, &run);
    assert_eq!(write(&env, &main, above * CHUNK, &[7; 4096]), Err(Error::Frozen));
    run.give_up(true);
    write(&env, &main, above * CHUNK, &[7; 4096]).expect("it lies on the SSD");
    millis(&env, 1);
    assert_eq!(*ended.borrow(), Some(Err(DissolveError::GivenUp)), "nothing is on its way to the device");
    let more = NewVolume { name: "more".into(), size: Some(MIB), placement: Placement::Auto };
    env.block_on(async move { g.create_volume(&more).await.map(drop) }).expect("made");
    assert!(hung.get());
}
