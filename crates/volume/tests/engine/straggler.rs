//! Requests that were let in and still wait for others, while their volume or the group goes.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags, TO_ITS_END};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{check, make, open, pass, small, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv, HELD};

const PLAIN: WriteFlags = WriteFlags { fua: false, no_hole: false, outlives: false };
const BLOCK: u64 = 4096;
/// How long a device holds a write, in seconds.
const HOLDS: u64 = 50;
/// Chunks of each of the two small volumes.
const SMALL: u64 = 8;

type Outcome<T> = Rc<RefCell<Option<T>>>;

/// A group with two small volumes bound to the fast tier, and one that takes the rest.
struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
    group: Group<MemoryEnv>,
}

impl Rig {
    fn new(max_inflight_bytes: u64) -> Rig {
        let env = MemoryEnv::new();
        let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let devices = vec![device(16), device(32)];
        let volume = |name: &str, size, placement| NewVolume { name: name.into(), size, placement };
        let options = CreateOptions {
            reserve: Some(CHUNK),
            ..small(vec![
                volume("gone", Some(SMALL * CHUNK), Placement::FastOnly),
                volume("stays", Some(SMALL * CHUNK), Placement::FastOnly),
                volume("main", None, Placement::Auto),
            ])
        };
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        make(&env, members, options);
        let few = OpenOptions { migrate: false, max_inflight_bytes, ..OpenOptions::default() };
        let group = open(&env, &devices, few).expect("opens");
        devices.iter().for_each(|d| d.hold_for.set(Duration::from_secs(HOLDS)));
        Rig { env, devices, group }
    }

    fn volume(&self, name: &str) -> Volume<MemoryEnv> {
        self.group.volume(name).expect("made at creation")
    }

    /// Begins something, and lets it come as far as it can.
    fn begin<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> Outcome<T> {
        let outcome = Outcome::default();
        let told = outcome.clone();
        self.env.spawn(async move {
            let value = task.await;
            *told.borrow_mut() = Some(value);
        });
        self.env.block_on(self.env.sleep(Duration::from_millis(1)));
        outcome
    }

    fn begin_write(&self, volume: &str, offset: u64, data: Vec<u8>) -> Outcome<Result<(), Error>> {
        let v = self.volume(volume);
        let mut b = BufMut::with_phase(data.len(), offset);
        b.copy_from_slice(&data);
        self.begin(async move { v.write(offset, b.freeze(), PLAIN).await })
    }
}

/// A block that the device holds is in flight; a write that waits for its claim is let in, and their volume is deleted. What
/// that volume was promised goes to others then. What the write would take now is what a third volume was promised (I5).
#[test]
fn a_write_to_a_deleted_volume_takes_nothing_that_another_was_promised() {
    let r = Rig::new(4 * CHUNK);
    let (stays, main) = (r.volume("stays"), r.volume("main"));
    let held = r.begin_write("gone", 0, vec![HELD; BLOCK as usize]);
    let long = [vec![1; CHUNK as usize], vec![HELD; BLOCK as usize]].concat();
    let straggler = r.begin_write("gone", 0, long);
    let g = r.group.clone();
    let deleted = r.begin(async move { g.delete_volume("gone").await });
    pass(&r.env, 1);
    let chunks = main.size() / CHUNK;
    for n in 0..chunks {
        write(&r.env, &main, n * 37 % chunks * CHUNK + 2 * BLOCK, &[7; BLOCK as usize])
            .expect("there is room for all of it");
    }
    assert!(straggler.borrow().is_none() && deleted.borrow().is_none(), "they wait");
    pass(&r.env, HOLDS + 5);
    assert_eq!(*held.borrow(), Some(Ok(())));
    for n in 0..SMALL {
        let written = write(&r.env, &stays, n * CHUNK, &[9; BLOCK as usize]);
        assert_eq!(written, Ok(()), "chunk {n} of a volume that was promised room for it");
    }
    pass(&r.env, HOLDS + 5);
    assert_eq!(*straggler.borrow(), Some(Err(Error::Deleted)));
    assert!(matches!(*deleted.borrow(), Some(Ok(()))));
}

/// A group that is stopped counts what is in flight, and then writes its maps: nothing may change beside that.
#[test]
fn what_waits_for_room_when_the_group_stops_is_refused() {
    // Two have the room that all volumes share, and the third one that of this volume.
    let r = Rig::new(2 * BLOCK);
    let held = [0, CHUNK, 2 * CHUNK].map(|at| r.begin_write("main", at, vec![HELD; BLOCK as usize]));
    let writes = r.begin_write("main", 4 * CHUNK, vec![1; CHUNK as usize]);
    let v = r.volume("main");
    let flags = WriteFlags { no_hole: true, ..PLAIN };
    let zeroes = r.begin(async move { v.write_zeroes(BLOCK / 2, CHUNK, flags, TO_ITS_END).await });
    let g = r.group.clone();
    let stopped = r.begin(async move { g.stop().await });
    assert!(writes.borrow().is_none() && zeroes.borrow().is_none() && stopped.borrow().is_none(), "they wait");
    pass(&r.env, 3 * HOLDS);
    assert!(held.iter().all(|h| *h.borrow() == Some(Ok(()))));
    assert_eq!(*writes.borrow(), Some(Err(Error::Stopping)));
    assert_eq!(*zeroes.borrow(), Some(Err(Error::Stopping)));
    assert_eq!(*stopped.borrow(), Some(Ok(())));
    let report = check(&r.env, &r.devices).expect("a report");
    assert!(report.is_sound() && report.clean, "{report:?}");
}
