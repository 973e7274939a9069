//! Who waits gets his turn, whoever goes on and on beside it; and nobody looks in vain meanwhile.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags, TO_ITS_END};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Env, Instant};
use bimetal_volume::error::Error;
use bimetal_volume::options::{NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{create, flush, make, open, pass, small, stop, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;
/// A write takes so long.
const TAKES: Duration = Duration::from_millis(10);

struct Rig {
    env: MemoryEnv,
    devices: Vec<MemoryDevice>,
    group: Group<MemoryEnv>,
    /// Clients go on.
    go_on: Rc<Cell<bool>>,
}

impl Rig {
    /// A group whose first chunks are written, on devices whose writes take their time.
    fn new(options: OpenOptions) -> Rig {
        let env = MemoryEnv::new();
        let mut devices = create(&env, "tank", &[16], &[64]).0;
        devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
        let group = open(&env, &devices, OpenOptions { migrate: false, ..options }).expect("opens");
        let r = Rig { env, devices, group, go_on: Rc::new(Cell::new(true)) };
        (0..8).for_each(|c| write(&r.env, &r.volume(), c * CHUNK, &[1; CHUNK as usize]).expect("write"));
        flush(&r.env, &r.volume()).expect("flush");
        pass(&r.env, 20);
        r.devices.iter().for_each(|d| d.write_takes.set(TAKES));
        r
    }

    fn volume(&self) -> Volume<MemoryEnv> {
        self.group.volume("main").expect("made at creation")
    }

    /// A client that writes so many bytes in one place again and again, from a time on. How often it has.
    fn client(&self, begins: Duration, offset: u64, len: u64) -> Rc<Cell<u64>> {
        let (env, v, go_on, count) = (self.env.clone(), self.volume(), self.go_on.clone(), Rc::new(Cell::new(0)));
        let counted = count.clone();
        self.env.spawn(async move {
            env.sleep(begins).await;
            while go_on.get() {
                write_all(&v, offset, len).await.expect("write");
                counted.set(counted.get() + 1);
            }
        });
        count
    }

    /// How long this takes, beside the clients; `None` if it has not ended after a minute.
    fn takes(&self, task: impl std::future::Future<Output = Result<(), Error>> + 'static) -> Option<Duration> {
        let (env, ended) = (self.env.clone(), Rc::new(Cell::new(None)));
        let told = ended.clone();
        let began = self.now();
        self.env.spawn(async move {
            task.await.expect("it is done");
            told.set(Some(env.now().since(began)));
        });
        for _ in 0..600 {
            self.env.block_on(self.env.sleep(Duration::from_millis(100)));
            if ended.get().is_some() {
                break;
            }
        }
        ended.get()
    }

    fn now(&self) -> Instant {
        self.env.now()
    }

    fn end(self) {
        self.go_on.set(false);
        pass(&self.env, 1);
        stop(&self.env, self.group).expect("stops");
    }
}

async fn write_all(v: &Volume<MemoryEnv>, offset: u64, len: u64) -> Result<(), Error> {
    let mut data = BufMut::with_phase(len as usize, offset);
    data.fill(2);
    v.write(offset, data.freeze(), WriteFlags::default()).await
}

/// Two clients rewrite a block each, so that one of them always has one.
#[test]
fn who_wants_a_whole_chunk_gets_it_beside_clients_that_never_pause() {
    for trims in [false, true] {
        let r = Rig::new(OpenOptions::default());
        let clients = [r.client(Duration::ZERO, 0, BLOCK), r.client(TAKES / 2, BLOCK, BLOCK)];
        pass(&r.env, 1);
        let (v, flags) = (r.volume(), WriteFlags::default());
        let polls = r.env.polls();
        let took = match trims {
            true => r.takes(async move { v.write_zeroes(0, CHUNK, flags, TO_ITS_END).await }),
            false => r.takes(async move { write_all(&v, 0, CHUNK).await }),
        };
        assert!(took.is_some_and(|took| took <= 3 * TAKES), "{took:?}");
        // Nobody looks again and again meanwhile.
        assert!(r.env.polls() - polls < 200, "{}", r.env.polls() - polls);
        let before = clients.iter().map(|c| c.get()).sum::<u64>();
        pass(&r.env, 1);
        assert!(clients.iter().map(|c| c.get()).sum::<u64>() > before + 150, "they go on");
        r.end();
    }
}

/// Many wait for one block: who has written wakes one of them.
#[test]
fn who_waits_for_a_block_is_not_woken_in_vain() {
    let r = Rig::new(OpenOptions::default());
    let clients: Vec<_> = (0..200).map(|_| r.client(Duration::ZERO, 0, BLOCK)).collect();
    pass(&r.env, 1);
    let (polls, writes) = (r.env.polls(), r.devices[0].writes.get());
    pass(&r.env, 10);
    let (polls, writes) = (r.env.polls() - polls, r.devices[0].writes.get() - writes);
    assert!(writes >= 900 && polls < 20 * writes, "{polls} polls for {writes} writes");
    let counts = clients.iter().map(|c| c.get());
    assert!(counts.clone().max() <= counts.min().map(|least| least + 1), "each has its turn");
    r.end();
}

/// There is room for 33 blocks, which 40 clients always take; when one leaves, another comes at once.
#[test]
fn a_long_request_is_let_in_beside_short_ones_that_never_pause() {
    let r = Rig::new(OpenOptions { max_inflight_bytes: CHUNK + BLOCK, ..OpenOptions::default() });
    let clients: Vec<_> = (0..40).map(|n| r.client(TAKES * n / 40, u64::from(n % 32) * BLOCK, BLOCK)).collect();
    pass(&r.env, 1);
    let (v, w, polls) = (r.volume(), r.volume(), r.env.polls());
    let took = r.takes(async move { write_all(&v, 4 * CHUNK, CHUNK).await });
    assert!(took.is_some_and(|took| took <= 4 * TAKES), "{took:?}");
    let took = r.takes(async move { w.read(4 * CHUNK, CHUNK).await.map(drop) });
    assert!(took.is_some_and(|took| took <= 4 * TAKES), "{took:?}");
    assert!(r.env.polls() - polls < 5000, "{}", r.env.polls() - polls);
    let before: u64 = clients.iter().map(|c| c.get()).sum();
    pass(&r.env, 1);
    assert!(clients.iter().map(|c| c.get()).sum::<u64>() > before + 1000, "they go on");
    r.end();
}

/// A volume on a disk whose writes hang takes all the room that is shared, and more wait: a write of so many bytes to a volume on the SSD
/// goes on, and a read behind it.
fn goes_on_beside_what_hangs(len: u64) {
    let env = MemoryEnv::new();
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let devices = vec![device(16), device(64)];
    let volume = |name: &str, placement| NewVolume { name: name.into(), size: Some(8 * MIB), placement };
    let volumes = vec![volume("hot", Placement::FastOnly), volume("cold", Placement::SlowOnly)];
    make(&env, vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)], small(volumes));
    let options = OpenOptions { migrate: false, max_inflight_bytes: 4 * MIB, ..OpenOptions::default() };
    let r = Rig { group: open(&env, &devices, options).expect("opens"), env, devices, go_on: Rc::default() };
    let [hot, cold] = ["hot", "cold"].map(|name| r.group.volume(name).expect("made at creation"));
    write(&r.env, &hot, 0, &vec![1; len as usize]).expect("write");
    r.devices[1].write_takes.set(Duration::from_secs(100));
    let written = Rc::new(Cell::new(0));
    for n in 0..5 {
        let (cold, written) = (cold.clone(), written.clone());
        r.env.spawn(async move {
            write_all(&cold, n * MIB, MIB).await.expect("write");
            written.set(written.get() + 1);
        });
    }
    let (v, w) = (hot.clone(), hot.clone());
    let took = r.takes(async move { write_all(&v, 0, len).await });
    assert!(took.is_some_and(|took| took < Duration::from_secs(1)), "{took:?}");
    let took = r.takes(async move { w.read(0, BLOCK).await.map(drop) });
    assert!(took.is_some_and(|took| took < Duration::from_secs(1)), "{took:?}");
    assert_eq!(written.get(), 0, "they hang");
    r.devices[1].write_takes.set(Duration::ZERO);
    pass(&r.env, 300);
    assert_eq!(written.get(), 5);
    r.end();
}

#[test]
fn what_hangs_on_a_disk_keeps_no_volume_of_the_ssd_waiting() {
    goes_on_beside_what_hangs(BLOCK);
}

/// The kernel's block layer sends 1280 KiB at once, which no volume has room of its own for.
#[test]
fn what_hangs_on_a_disk_keeps_no_long_request_of_the_ssd_waiting() {
    goes_on_beside_what_hangs(5 * MIB / 4);
}
