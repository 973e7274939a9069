//! Zeros that are really written (NBD `NO_HOLE`): what they occupy, whom they keep waiting, and when they end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, Wanted, WriteFlags, TO_ITS_END, ZERO_RUN};
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::NewFamily;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{check, make, open, pass, read, small, stop, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;
/// Bytes of requests that may be in flight.
const LIMIT: u64 = 16 * MIB;
const WRITE_TAKES: Duration = Duration::from_millis(10);
const KEEP: WriteFlags = WriteFlags { fua: false, no_hole: true, outlives: false };

/// How zeroings ended.
type Ends = Rc<RefCell<Vec<Result<(), Error>>>>;

/// A group on devices whose writes take their time.
struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
    group: Group<MemoryEnv>,
    v: Volume<MemoryEnv>,
}

impl Rig {
    fn new() -> Rig {
        let env = MemoryEnv::new();
        let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let devices = vec![device(32), device(128)];
        let options = CreateOptions {
            sector_size: 512,
            ..small(vec![NewVolume { name: "main".into(), size: None, placement: Placement::Auto }])
        };
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        make(&env, members, options);
        let options = OpenOptions { migrate: false, max_inflight_bytes: LIMIT, ..OpenOptions::default() };
        let group = open(&env, &devices, options).expect("opens");
        devices.iter().for_each(|d| d.write_takes.set(WRITE_TAKES));
        let v = group.volume("main").expect("made at creation");
        Rig { env, devices, group, v }
    }

    /// Begins to zero, as long as `wanted` says so.
    fn zero(&self, ends: &Ends, offset: u64, len: u64, flags: WriteFlags, wanted: &Rc<Cell<bool>>) {
        let (v, ends, wanted) = (self.v.clone(), ends.clone(), wanted.clone());
        self.env.spawn(async move {
            let end = v.write_zeroes(offset, len, flags, &|| wanted.get()).await;
            ends.borrow_mut().push(end);
        });
    }

    /// Many that are longer than the room for requests, all at once.
    fn zero_all(&self, wanted: &Rc<Cell<bool>>) -> (Ends, usize) {
        let (ends, each) = (Ends::default(), 3 * MIB);
        let many = self.v.size() / each;
        (0..many).for_each(|n| self.zero(&ends, n * each, each, KEEP, wanted));
        (ends, many as usize)
    }

    fn zero_to(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'static>) -> Result<(), Error> {
        let v = self.v.clone();
        self.env.block_on(async move { v.write_zeroes(offset, len, flags, wanted).await })
    }
}

fn wanted() -> Rc<Cell<bool>> {
    Rc::new(Cell::new(true))
}

#[test]
fn however_many_zeroings_leave_room_for_others() {
    let r = Rig::new();
    // The disk has heard that there will be something.
    write(&r.env, &r.v, 0, &[7; BLOCK as usize]).expect("written");
    let (ends, many) = r.zero_all(&wanted());
    r.env.block_on(r.env.sleep(WRITE_TAKES / 2));
    let began = r.env.now();
    write(&r.env, &r.v, r.v.size() - BLOCK, &[7; BLOCK as usize]).expect("written");
    assert!(r.env.now().since(began) <= WRITE_TAKES, "{:?}", r.env.now().since(began));
    assert!(ends.borrow().is_empty(), "they are still under way");
    pass(&r.env, 60);
    assert_eq!(*ends.borrow(), vec![Ok(()); many]);
    let most = r.devices.iter().map(|d| d.being_written.get().1 as u64).max();
    let all = LIMIT / 8 + ZERO_RUN + BLOCK;
    assert!(most.is_some_and(|most| most <= all), "{most:?} bytes, the volume's own run and the write's among them");
    stop(&r.env, r.group.clone()).expect("stopped");
}

#[test]
fn zeroings_that_are_not_wanted_any_more_end_at_once() {
    let r = Rig::new();
    let last = r.v.size() / (3 * MIB) * 3 * MIB - BLOCK;
    write(&r.env, &r.v, last, &[7; BLOCK as usize]).expect("written");
    let wanted = wanted();
    let (ends, many) = r.zero_all(&wanted);
    r.env.block_on(r.env.sleep(WRITE_TAKES / 2));
    wanted.set(false);
    r.env.block_on(r.env.sleep(3 * WRITE_TAKES));
    assert_eq!(*ends.borrow(), vec![Err(Error::Stopping); many]);
    assert_eq!(read(&r.env, &r.v, 0, ZERO_RUN), Ok(vec![0; ZERO_RUN as usize]), "it had its turn");
    assert_eq!(read(&r.env, &r.v, last, BLOCK), Ok(vec![7; BLOCK as usize]), "its turn never came");
    // Nothing is left of them: all can be written, and the group be stopped.
    assert_eq!(r.zero_to(0, 9 * MIB, KEEP, TO_ITS_END), Ok(()));
    assert_eq!(r.zero_to(last, BLOCK, WriteFlags::default(), TO_ITS_END), Ok(()));
    assert_eq!(read(&r.env, &r.v, last, BLOCK), Ok(vec![0; BLOCK as usize]));
    stop(&r.env, r.group.clone()).expect("stopped");
    let report = check(&r.env, &r.devices).expect("a report");
    assert!(report.is_sound() && report.clean, "{report:?}");
}

#[test]
fn a_hole_that_is_not_wanted_any_more_ends_between_two_chunks() {
    let r = Rig::new();
    write(&r.env, &r.v, 0, &[7; 3 * CHUNK as usize]).expect("written");
    thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });
    // It is asked before each chunk, and when that is its own.
    let once = &|| ASKED.replace(ASKED.get() + 1) < 2;
    assert_eq!(r.zero_to(0, 3 * CHUNK, WriteFlags::default(), once), Err(Error::Stopping));
    let after = [vec![0; CHUNK as usize], vec![7; 2 * CHUNK as usize]].concat();
    assert!(read(&r.env, &r.v, 0, 3 * CHUNK).expect("read") == after);
    stop(&r.env, r.group.clone()).expect("stopped");
}

/// Runs begin and end in the midst of blocks, and the zeros lie as they do.
#[test]
fn exactly_the_range_is_zeroed() {
    let r = Rig::new();
    let (size, from, to) = (5 * MIB, 1000, 5 * MIB - 300);
    (0..5).for_each(|n| write(&r.env, &r.v, n * MIB, &[9; MIB as usize]).expect("written"));
    assert_eq!(r.zero_to(from, to - from, KEEP, TO_ITS_END), Ok(()));
    let content = read(&r.env, &r.v, 0, size).expect("read");
    let right = |(at, byte): (usize, &u8)| *byte == if (from..to).contains(&(at as u64)) { 0 } else { 9 };
    assert!(content.iter().enumerate().all(right));
    assert!(r.v.extents(0, size, 99).expect("extents").iter().all(|e| e.data), "its room is kept");
    stop(&r.env, r.group.clone()).expect("stopped");
}

/// How long a change of the volume takes beside a zeroing of all of it.
fn beside_a_zeroing<T: 'static>(
    rig: &Rig,
    change: impl AsyncFnOnce(Group<MemoryEnv>) -> T + 'static,
) -> (Duration, Ends) {
    let ends = Ends::default();
    rig.zero(&ends, 0, rig.v.size(), KEEP, &wanted());
    let (env, group) = (rig.env.clone(), rig.group.clone());
    let took = rig.env.block_on(async move {
        env.sleep(WRITE_TAKES * 3).await;
        let began = env.now();
        change(group).await;
        env.now().since(began)
    });
    (took, ends)
}

#[test]
fn a_volume_is_deleted_shrunk_or_locked_at_once_beside_a_zeroing_of_all_of_it() {
    let whole = Rig::new();
    let begun = whole.env.now();
    whole.zero_to(0, whole.v.size(), KEEP, TO_ITS_END).expect("zeroed");
    let whole = whole.env.now().since(begun);

    let rig = Rig::new();
    let (took, ends) = beside_a_zeroing(&rig, async |g| g.delete_volume("main").await.expect("deleted"));
    assert!(took < whole / 4, "{took:?} of {whole:?}");
    assert_eq!(*ends.borrow(), [Err(Error::Deleted)]);

    let rig = Rig::new();
    let smaller = rig.v.size() - MIB;
    let (took, ends) =
        beside_a_zeroing(&rig, async move |g| g.resize_volume("main", smaller).await.expect("nothing lies there"));
    assert!(took < whole / 4, "{took:?} of {whole:?}");
    assert!(matches!(ends.borrow()[..], [Err(Error::OutOfRange { .. })]), "{:?}", ends.borrow());

    let mut rig = Rig::new();
    let g = rig.group.clone();
    rig.env.block_on(async move {
        let key = bimetal_crypt::FamilyKey::from_bytes(&[7; 32]);
        let new = NewFamily { name: "home".into(), uuid: [7; 16], key, header: vec![7; 4096] };
        g.create_family(new).await.expect("made");
        g.delete_volume("main").await.expect("deleted");
        let new = NewVolume { name: "secret".into(), size: None, placement: Placement::Auto };
        g.create_volume_in(&new, Some("home")).await.expect("made");
    });
    rig.v = rig.group.volume("secret").expect("there");
    let (took, ends) = beside_a_zeroing(&rig, async |g| g.lock_family("home").await.expect("locked"));
    assert!(took < whole / 4, "{took:?} of {whole:?}");
    assert_eq!(*ends.borrow(), [Err(Error::Locked)]);
}

/// As many of one volume as have turns, and more, hang on the disk; another lies on the SSD alone.
#[test]
fn zeroings_that_hang_on_one_disk_keep_those_of_no_other_volume_waiting() {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let devices = [128, 256].map(device).to_vec();
    let volume = |name: &str, placement| NewVolume { name: name.into(), size: Some(50 * MIB), placement };
    let options = small(vec![volume("below", Placement::SlowOnly), volume("above", Placement::FastOnly)]);
    make(&env, devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect(), options);
    let group = open(&env, &devices, OpenOptions::default()).expect("opens");
    let [below, above] = ["below", "above"].map(|name| group.volume(name).expect("there"));
    for v in [&below, &above] {
        (0..40).for_each(|n| write(&env, v, n * MIB, &[1; MIB as usize]).expect("written"));
    }
    devices[1].answers_left.set(0);
    let of = |v| Rig { env: env.clone(), devices: devices.clone(), group: group.clone(), v };
    let (hung, done) = (Ends::default(), Ends::default());
    let (below, above) = (of(below), of(above));
    (0..40).for_each(|n| below.zero(&hung, n * MIB, MIB, KEEP, &wanted()));
    pass(&env, 10);
    (0..4).for_each(|n| above.zero(&done, n * 3 * MIB, 3 * MIB, KEEP, &wanted()));
    pass(&env, 10);
    assert_eq!((hung.borrow().len(), done.borrow().len()), (0, 4), "{:?}", done.borrow());
    assert!(done.borrow().iter().all(Result::is_ok));
}
