//! Volumes made, resized, renamed and deleted while the group is open.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::{Objection, Proviso, StructureError};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{gather, inspect, Group, Volume};

use crate::image;
use crate::image::{make, small};
use crate::memory::{MemoryDevice, MemoryEnv, HELD};

const MIB: u64 = 1 << 20;
/// Chunks of a map page.
const PAGE: u64 = 252;

struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
}

fn new(name: &str, size: u64, placement: Placement) -> NewVolume {
    NewVolume { name: name.into(), size: Some(size), placement }
}

impl Rig {
    fn new(volumes: Vec<NewVolume>) -> Rig {
        Rig::of([20 * MIB, 110 * MIB], MIB, volumes)
    }

    /// A fast and a slow member of these sizes.
    fn of(sizes: [u64; 2], reserve: u64, volumes: Vec<NewVolume>) -> Rig {
        let env = MemoryEnv::new();
        let device = |size| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(size) };
        let devices: Vec<_> = sizes.into_iter().map(device).collect();
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        let options = CreateOptions { reserve: Some(reserve), ..small(volumes) };
        make(&env, members, options);
        Rig { env, devices }
    }

    fn open(&self) -> Group<MemoryEnv> {
        image::open(&self.env, &self.devices, OpenOptions::default()).expect("the group opens")
    }

    fn create(&self, g: &Group<MemoryEnv>, v: NewVolume) -> Result<u64, StructureError> {
        let g = g.clone();
        self.env.block_on(async move { g.create_volume(&v).await })
    }

    fn resize(&self, g: &Group<MemoryEnv>, name: &'static str, size: u64) -> Result<u64, StructureError> {
        let g = g.clone();
        self.env.block_on(async move { g.resize_volume(name, size).await })
    }

    fn rename(&self, g: &Group<MemoryEnv>, name: &'static str, new: &'static str) -> Result<(), StructureError> {
        let g = g.clone();
        self.env.block_on(async move { g.rename_volume(name, new).await })
    }

    fn delete(&self, g: &Group<MemoryEnv>, name: &'static str) -> Result<(), StructureError> {
        let g = g.clone();
        self.env.block_on(async move { g.delete_volume(name).await })
    }

    /// It is under way; what comes of it.
    fn begin<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
        let outcome = Rc::new(RefCell::new(None));
        let told = outcome.clone();
        self.env.spawn(async move {
            let done = work.await;
            *told.borrow_mut() = Some(done);
        });
        self.env.block_on(self.env.sleep(Duration::from_millis(1)));
        outcome
    }

    /// A write that the device holds back for 100 ms is under way.
    fn begin_held_write(&self, v: &Volume<MemoryEnv>, offset: u64) {
        let (v, until) = (v.clone(), self.env.now().plus(Duration::from_millis(100)));
        self.devices.iter().for_each(|d| d.hold_until.set(until));
        self.env.spawn(async move {
            let mut b = BufMut::with_phase(4096, 0);
            b.fill(HELD);
            v.write(offset, b.freeze(), WriteFlags::default()).await.expect("a write inside the volume");
        });
        self.env.block_on(self.env.sleep(Duration::from_millis(1)));
    }

    fn seconds(&self, n: u64) {
        self.env.block_on(self.env.sleep(Duration::from_secs(n)));
    }

    fn write(&self, v: &Volume<MemoryEnv>, offset: u64, len: u64, byte: u8) -> Result<(), Error> {
        let v = v.clone();
        self.env.block_on(async move {
            let mut b = BufMut::with_phase(len as usize, offset);
            b.fill(byte);
            v.write(offset, b.freeze(), WriteFlags { fua: true, ..WriteFlags::default() }).await
        })
    }

    fn trim(&self, v: &Volume<MemoryEnv>, offset: u64, len: u64) {
        let v = v.clone();
        self.env.block_on(async move { v.trim(offset, len, WriteFlags::default()).await }).expect("trim");
    }

    fn read(&self, v: &Volume<MemoryEnv>, offset: u64, len: u64) -> Vec<u8> {
        let v = v.clone();
        self.env.block_on(async move { gather(&v.read(offset, len).await.expect("read")) })
    }

    /// An orderly stop, a check, and the next start.
    fn again(&self, g: Group<MemoryEnv>) -> Group<MemoryEnv> {
        self.env.block_on(async move { g.stop().await }).expect("an orderly stop");
        let (env, devices) = (self.env.clone(), self.devices.clone());
        let report =
            self.env.block_on(async move { inspect::check(env, devices, &|_, _| {}).await }).expect("a report");
        assert!(report.is_sound() && report.clean && report.deleting.is_empty(), "{report:?}");
        self.open()
    }
}

fn free_slots(g: &Group<MemoryEnv>) -> u64 {
    g.status().members.iter().map(|m| m.free).sum()
}

#[test]
fn a_deleted_volume_leaves_all_its_slots_and_a_new_one_is_zeros() {
    let rig = Rig::new(vec![new("a", 30 * MIB, Placement::Auto), new("b", 10 * MIB, Placement::Auto)]);
    let g = rig.open();
    let (a, b) = (g.volume("a").expect("a"), g.volume("b").expect("b"));
    let before = free_slots(&g);
    rig.write(&b, 0, MIB, 9).expect("write");
    for i in 0..20 {
        rig.write(&a, i * MIB, MIB, 7).expect("write");
    }
    let uuid = g.status().volumes[0].uuid;
    rig.delete(&g, "a").expect("deleted");
    rig.env.block_on(rig.env.sleep(std::time::Duration::from_secs(5)));
    assert_eq!(free_slots(&g), before - 8, "only b's are in use");
    assert_eq!(rig.write(&a, 0, 4096, 1), Err(Error::Deleted));
    let old = a.clone();
    assert_eq!(rig.env.block_on(async move { old.flush().await }), Err(Error::Deleted));
    assert!(g.volume("a").is_none());
    rig.create(&g, new("a", 40 * MIB, Placement::Auto)).expect("made again");
    let a = g.volume("a").expect("a");
    assert!(rig.read(&a, 0, 40 * MIB).iter().all(|x| *x == 0));
    assert!(g.status().volumes.iter().all(|v| v.uuid != uuid), "another UUID");
    let g = rig.again(g);
    assert!(rig.read(&g.volume("a").expect("a"), 0, 40 * MIB).iter().all(|x| *x == 0));
    assert!(rig.read(&g.volume("b").expect("b"), 0, MIB).iter().all(|x| *x == 9));
}

#[test]
fn a_volume_grows_over_others_and_shrinks_again_without_losing_a_block() {
    let rig = Rig::new(vec![new("a", PAGE * CHUNK, Placement::Auto), new("b", MIB, Placement::Auto)]);
    let g = rig.open();
    let a = g.volume("a").expect("a");
    rig.write(&a, PAGE * CHUNK - 8192, 8192, 1).expect("write");
    // b has the next page: the new ones lie behind it.
    assert_eq!(rig.resize(&g, "a", (PAGE + 100) * CHUNK + 1), Ok((PAGE + 100) * CHUNK));
    assert_eq!(a.size(), (PAGE + 100) * CHUNK, "handles see it");
    rig.write(&a, PAGE * CHUNK - 4096, 12_288, 2).expect("write over the border of the runs");
    let g = rig.again(g);
    let a = g.volume("a").expect("a");
    let seen = rig.read(&a, PAGE * CHUNK - 8192, 20_480);
    let want = [vec![1; 4096], vec![2; 12_288], vec![0; 4096]].concat();
    assert!(seen == want, "both sides of the border");
    let refused = rig.resize(&g, "a", PAGE * CHUNK);
    assert_eq!(refused, Err(StructureError::DataBeyond { name: "a".into(), end: (PAGE + 1) * CHUNK }));
    assert_eq!(a.size(), (PAGE + 100) * CHUNK, "nothing changed");
    rig.trim(&a, PAGE * CHUNK, 100 * CHUNK);
    assert_eq!(rig.resize(&g, "a", PAGE * CHUNK), Ok(PAGE * CHUNK));
    assert!(matches!(rig.write(&a, PAGE * CHUNK, 4096, 3), Err(Error::OutOfRange { .. })));
    let g = rig.again(g);
    assert_eq!(rig.resize(&g, "a", (PAGE + 50) * CHUNK), Ok((PAGE + 50) * CHUNK));
    let a = g.volume("a").expect("a");
    assert!(rig.read(&a, PAGE * CHUNK, 50 * CHUNK).iter().all(|x| *x == 0));
    assert_eq!(rig.read(&a, PAGE * CHUNK - 4096, 4096), [2; 4096]);
}

#[test]
fn what_cannot_be_promised_is_refused_in_words() {
    let rig = Rig::new(vec![new("a", 20 * MIB, Placement::Auto)]);
    let g = rig.open();
    assert_eq!(rig.create(&g, new("a", MIB, Placement::Auto)), Err(StructureError::Taken("a".into())));
    assert_eq!(rig.create(&g, new("A", MIB, Placement::Auto)), Err(StructureError::Name("A".into())));
    assert_eq!(rig.create(&g, new("b", 100, Placement::Auto)), Err(StructureError::TooSmall));
    assert_eq!(rig.resize(&g, "a", 0), Err(StructureError::TooSmall));
    assert_eq!(rig.resize(&g, "b", MIB), Err(StructureError::Unknown("b".into())));
    assert_eq!(rig.rename(&g, "b", "c"), Err(StructureError::Unknown("b".into())));
    assert_eq!(rig.delete(&g, "b"), Err(StructureError::Unknown("b".into())));
    for size in [200 * MIB, u64::MAX] {
        assert!(matches!(rig.create(&g, new("b", size, Placement::Auto)), Err(StructureError::NoRoom { .. })));
        assert!(matches!(rig.resize(&g, "a", size), Err(StructureError::NoRoom { .. })));
    }
    let fast = rig.create(&g, new("b", 30 * MIB, Placement::FastOnly));
    assert!(matches!(fast, Err(StructureError::TierSmall { tier: Tier::Fast, .. })), "{fast:?}");
    let rest = rig.create(&g, NewVolume { name: "rest".into(), size: None, placement: Placement::Auto }).expect("made");
    assert!(rest > 70 * MIB);
    assert!(matches!(rig.create(&g, new("b", MIB, Placement::Auto)), Err(StructureError::NoRoom { have: 0, .. })));
    // Pages: volumes of one chunk each take one.
    rig.resize(&g, "rest", MIB).expect("shrunk");
    let names: Vec<String> = (0..300).map(|i| format!("v{i}")).collect();
    let full = names.iter().find_map(|n| rig.create(&g, new(n, CHUNK, Placement::Auto)).err());
    assert!(matches!(full, Some(StructureError::NoPages(0))), "{full:?}");
    let g = rig.again(g);
    assert!(g.volume_names().len() > 8);
    rig.rename(&g, "rest", "first").expect("renamed");
    assert!(rig.again(g).volume("first").is_some());
}

#[test]
fn a_volume_bound_to_the_fast_tier_gets_its_room_from_the_mover() {
    let rig = Rig::new(vec![new("a", 60 * MIB, Placement::Auto)]);
    let g = rig.open();
    let a = g.volume("a").expect("a");
    for i in 0..40 {
        rig.write(&a, i * MIB, MIB, 5).expect("write");
    }
    rig.create(&g, new("fast", 10 * MIB, Placement::FastOnly)).expect("made");
    let fast = g.volume("fast").expect("fast");
    for i in 0..10 {
        rig.write(&fast, i * MIB, MIB, 6).expect("there is room");
    }
    let status = g.status();
    assert_eq!((status.volumes[1].fast_chunks, status.volumes[1].slow_chunks), (80, 0));
    let g = rig.again(g);
    assert!(rig.read(&g.volume("a").expect("a"), 0, 40 * MIB).iter().all(|x| *x == 5));
}

/// The reserve gives way to what bound volumes leave, to nothing in the end; what they are owed is made room for.
#[test]
fn a_bound_volume_gets_its_room_where_bound_volumes_leave_no_reserve() {
    let rig = Rig::of([5 * MIB, 110 * MIB], MIB, vec![new("a", 60 * MIB, Placement::Auto)]);
    let g = rig.open();
    let most = match rig.create(&g, new("all", 30 * MIB, Placement::FastOnly)) {
        Err(StructureError::TierSmall { have, .. }) => have,
        other => panic!("more than the tier has: {other:?}"),
    };
    rig.create(&g, new("most", most - 2 * CHUNK, Placement::FastOnly)).expect("made");
    let a = g.volume("a").expect("made at creation");
    (0..8).for_each(|i| rig.write(&a, i * MIB, MIB, 5).expect("write"));
    assert!(g.status().volumes[0].fast_chunks > 0, "new data goes to the fast tier");
    assert_eq!(rig.create(&g, new("last", 2 * CHUNK, Placement::FastOnly)), Ok(2 * CHUNK), "{:?}", g.status().mover);
}

/// Chunks of other volumes are demoted for a bound volume, also where they must fill the slow tier for it.
#[test]
fn a_bound_volume_gets_its_room_from_a_full_group() {
    let rig = Rig::of([60 * MIB; 2], MIB, vec![new("a", 75 * MIB, Placement::Auto)]);
    let g = rig.open();
    let a = g.volume("a").expect("made at creation");
    (0..75).for_each(|i| rig.write(&a, i * MIB, MIB, 5).expect("write"));
    rig.seconds(60);
    assert_eq!(rig.create(&g, new("fast", 25 * MIB, Placement::FastOnly)), Ok(25 * MIB), "{:?}", g.status().mover);
}

/// The same of the slow tier, whose chunks come up into the reserve for it.
#[test]
fn a_volume_bound_to_the_slow_tier_gets_its_room_from_a_full_one() {
    let rig = Rig::of([60 * MIB; 2], 25 * MIB, vec![new("a", 73 * MIB, Placement::Auto)]);
    let g = rig.open();
    let a = g.volume("a").expect("made at creation");
    (0..73).for_each(|i| rig.write(&a, i * MIB, MIB, 5).expect("write"));
    rig.seconds(60);
    assert!(g.status().members[1].free * CHUNK < 30 * MIB, "there is room: this is no test");
    assert_eq!(rig.create(&g, new("cold", 30 * MIB, Placement::SlowOnly)), Ok(30 * MIB), "{:?}", g.status().mover);
    let cold = g.volume("cold").expect("just made");
    (0..30).for_each(|i| rig.write(&cold, i * MIB, MIB, 6).expect("it was promised this"));
    (0..73).for_each(|i| assert!(rig.read(&a, i * MIB, 4096).iter().all(|x| *x == 5), "MiB {i}"));
}

/// A client without a pause on the slow tier keeps nobody from what he was promised there.
#[test]
fn a_volume_bound_to_the_slow_tier_gets_its_room_beside_a_load_there() {
    let volumes = vec![new("a", 68 * MIB, Placement::Auto), new("load", 4 * MIB, Placement::SlowOnly)];
    let rig = Rig::of([60 * MIB; 2], 25 * MIB, volumes);
    let g = rig.open();
    let (a, load) = (g.volume("a").expect("a"), g.volume("load").expect("load"));
    rig.write(&load, 0, 4 * MIB, 7).expect("write");
    (0..544).for_each(|i| rig.write(&a, i * 37 % 544 * CHUNK, CHUNK, 5).expect("write"));
    rig.seconds(60);
    rig.devices[1].read_takes.set(Duration::from_millis(8));
    let env = rig.env.clone();
    rig.env.spawn(async move {
        // After the first moves have begun.
        env.sleep(Duration::from_millis(3)).await;
        for i in 0..10_000 {
            load.read(i * 37 % 1024 * 4096, 4096).await.expect("read");
        }
    });
    let begun = rig.env.now();
    assert_eq!(rig.create(&g, new("cold", 31 * MIB, Placement::SlowOnly)), Ok(31 * MIB), "{:?}", g.status().mover);
    let took = rig.env.now().since(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// What a volume bound to a tier is promised stays its own while it shrinks, which may be refused in the end.
#[test]
fn a_shrink_that_is_refused_keeps_its_promise() {
    let volumes = vec![new("a", 63 * MIB, Placement::Auto), new("bound", 40 * MIB, Placement::SlowOnly)];
    let rig = Rig::of([60 * MIB; 2], 25 * MIB, volumes);
    let g = rig.open();
    let (a, bound) = (g.volume("a").expect("a"), g.volume("bound").expect("bound"));
    (0..63).for_each(|i| rig.write(&a, i * MIB, MIB, 5).expect("write"));
    rig.seconds(60);
    rig.begin_held_write(&bound, 39 * MIB);
    assert!(matches!(rig.resize(&g, "bound", MIB), Err(StructureError::DataBeyond { .. })));
    rig.seconds(60);
    for i in 0..40 {
        assert_eq!(rig.write(&bound, i * MIB, MIB, 6), Ok(()), "MiB {i} of the bound volume");
    }
}

/// Whoever asked for a change may go away: it is carried out to its end all the same.
#[test]
fn a_change_that_nobody_waits_for_ends() {
    let rig = Rig::new(vec![new("a", 30 * MIB, Placement::Auto)]);
    let g = rig.open();
    let a = g.volume("a").expect("a");
    rig.begin_held_write(&a, 20 * MIB);
    let asked = g.clone();
    rig.env.block_on(async move {
        let mut asked = std::pin::pin!(asked.resize_volume("a", 10 * MIB));
        std::future::poll_fn(|cx| {
            assert!(asked.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    });
    rig.seconds(1);
    assert_eq!((a.size(), g.status().volumes[0].size), (30 * MIB, 30 * MIB), "refused: there was a write on its way");
    assert!(rig.read(&a, 20 * MIB, 4096).iter().all(|x| *x == HELD));
    assert_eq!(rig.resize(&g, "a", 21 * MIB), Ok(21 * MIB));
}

/// A start goes on with a delete that was cut off, but not after the group was stopped.
#[test]
fn nothing_is_written_after_a_stop() {
    let rig = Rig::new(vec![new("a", MIB, Placement::Auto), new("b", MIB, Placement::Auto)]);
    let g = rig.open();
    // The label is flipped once, "deleted"; then the power goes.
    rig.devices.iter().for_each(|d| d.writes_left.set(2));
    rig.delete(&g, "a").expect("gone, if not cleared");
    rig.env.kill();
    drop(g);
    rig.devices.iter().for_each(|d| d.writes_left.set(u64::MAX));
    let (env, devices) = (rig.env.clone(), rig.devices.clone());
    let (g, at_stop) = rig.env.block_on(async move {
        let g = Group::open(env, devices.clone(), OpenOptions::default()).await.expect("the group opens");
        assert_eq!(g.status().deleting.len(), 1);
        g.stop().await.expect("an orderly stop");
        (g, devices.iter().map(|d| d.writes.get()).collect::<Vec<u64>>())
    });
    rig.seconds(5);
    assert_eq!(rig.devices.iter().map(|d| d.writes.get()).collect::<Vec<u64>>(), at_stop);
    drop(g);
}

/// Nobody objects as long as this says so.
fn unless_used(volume: Option<[u8; 16]>) -> (Rc<Cell<bool>>, Proviso) {
    let used = Rc::new(Cell::new(false));
    let seen = used.clone();
    let objection: Objection = Rc::new(move || seen.get().then(|| "in use".to_string()));
    (used, Proviso { volume, objection: Some(objection) })
}

/// Asked for while another change is under way, whose turn ends later than somebody begins to use the volume.
#[test]
fn a_change_that_had_to_wait_looks_who_uses_the_volume_by_then() {
    let rig = Rig::new(vec![new("a", 30 * MIB, Placement::Auto), new("b", 10 * MIB, Placement::Auto)]);
    let g = rig.open();
    let (a, b) = (g.volume("a").expect("a"), g.volume("b").expect("b"));
    for shrinks in [false, true] {
        rig.begin_held_write(&a, 0);
        let first = g.clone();
        rig.begin(async move { first.resize_volume("a", if shrinks { 10 * MIB } else { 20 * MIB }).await });
        let ((used, proviso), late) = (unless_used(Some(b.uuid())), g.clone());
        let ended = rig.begin(async move {
            match shrinks {
                true => late.resize_volume_if("b", MIB, proviso).await.map(|_| ()),
                false => late.delete_volume_if("b", proviso).await,
            }
        });
        used.set(true);
        assert_eq!(rig.write(&b, 0, 4096, 5), Ok(()), "it is there, and whole");
        rig.seconds(1);
        assert_eq!(ended.take(), Some(Err(StructureError::Objected("in use".into()))), "shrinks: {shrinks}");
        assert_eq!((rig.read(&b, 0, 4096), b.size()), (vec![5; 4096], 10 * MIB));
    }
    // Growing takes nothing away.
    let ((used, proviso), grown) = (unless_used(None), g.clone());
    used.set(true);
    let grown = rig.env.block_on(async move { grown.resize_volume_if("b", 11 * MIB, proviso).await });
    assert_eq!(grown, Ok(11 * MIB));
}

#[test]
fn a_change_spares_another_volume_that_has_the_name_by_then() {
    let rig = Rig::new(vec![new("a", 30 * MIB, Placement::Auto), new("b", 10 * MIB, Placement::Auto)]);
    let g = rig.open();
    let b = g.volume("b").expect("b");
    for (from, to) in [("b", "c"), ("a", "b")] {
        rig.rename(&g, from, to).expect("renamed");
    }
    let late = g.clone();
    let ended = rig
        .env
        .block_on(async move { late.delete_volume_if("b", Proviso { volume: Some(b.uuid()), objection: None }).await });
    assert_eq!(ended, Err(StructureError::AnotherVolume("b".into())));
    assert_eq!(g.volume_names(), ["b", "c"]);
}

/// The labels are being written that say that it is deleted: nothing is promised to whoever comes now.
#[test]
fn whoever_comes_while_a_volume_is_deleted_is_refused() {
    let rig = Rig::new(vec![new("a", 30 * MIB, Placement::Auto), new("b", 10 * MIB, Placement::Auto)]);
    let g = rig.open();
    let b = g.volume("b").expect("b");
    rig.devices.iter().for_each(|d| d.sync_takes.set(Duration::from_millis(50)));
    let ((_, proviso), gone) = (unless_used(Some(b.uuid())), g.clone());
    let ended = rig.begin(async move { gone.delete_volume_if("b", proviso).await });
    assert!(g.volume("b").is_some(), "the labels do not say it yet");
    assert_eq!(rig.write(&b, 0, 4096, 5), Err(Error::Deleted));
    rig.seconds(1);
    assert_eq!((ended.take(), g.volume_names()), (Some(Ok(())), vec!["a".to_string()]));
    rig.again(g);
}
