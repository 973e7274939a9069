//! A chunk of which no block is valid any more, on a volume that is encrypted: its TRIM is not durable, or a read of before is
//! still under way. So it must not become one of ciphertext where it is.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::NewFamily;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{gather, Group, Volume};

use crate::image::{make, small};
use crate::memory::{MemoryDevice, MemoryEnv};

const MIB: u64 = 1 << 20;
const OLD: u8 = 0x11;
const NEW: u8 = 0x44;
const OTHER: u8 = 0x22;

type Shared<T> = Rc<RefCell<Option<T>>>;

fn key() -> FamilyKey {
    FamilyKey::from_bytes(&[7; 32])
}

/// No commit comes by itself.
fn open(env: &MemoryEnv, devices: &[MemoryDevice]) -> Group<MemoryEnv> {
    let (e, devices) = (env.clone(), devices.to_vec());
    let options = OpenOptions { migrate: false, commit_interval: Duration::from_secs(3600), ..OpenOptions::default() };
    env.block_on(async move { Group::open(e, devices, options).await }).expect("opens")
}

async fn put(v: Volume<MemoryEnv>, at: u64, data: Vec<u8>, fua: bool) -> bool {
    let mut b = BufMut::with_phase(data.len(), at);
    b.copy_from_slice(&data);
    v.write(at, b.freeze(), WriteFlags { fua, ..WriteFlags::default() }).await.is_ok()
}

fn made(env: &MemoryEnv) -> (Vec<MemoryDevice>, Group<MemoryEnv>, Volume<MemoryEnv>) {
    let mut devices = vec![MemoryDevice::new(20 * MIB), MemoryDevice::new(80 * MIB)];
    devices.iter_mut().for_each(|d| d.env = Some(env.clone()));
    let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
    let options = CreateOptions {
        sector_size: 512,
        ..small(vec![NewVolume { name: "plain".into(), size: Some(20 * MIB), placement: Placement::Auto }])
    };
    make(env, members, options);
    let g = open(env, &devices);
    let (g2, family) = (g.clone(), NewFamily { name: "home".into(), uuid: [7; 16], key: key(), header: vec![7; 4096] });
    env.block_on(async move { g2.create_family(family).await }).expect("family");
    let v = g.volume("plain").expect("made at creation");
    (devices, g, v)
}

/// The first block of the second chunk cannot be read from now on.
fn lose_other(devices: &[MemoryDevice]) {
    let is_other = |b: &[u8]| b.iter().all(|x| *x == OTHER);
    let found = devices.iter().any(|d| {
        let at = d.blocks.borrow().iter().find(|(_, b)| is_other(b)).map(|(n, _)| *n);
        d.holes_fail.set(at.is_some());
        at.is_some_and(|at| d.blocks.borrow_mut().remove(&at).is_some())
    });
    assert!(found, "it was flushed");
}

/// Begins to read the first block, which takes long.
async fn read_slowly(e: &MemoryEnv, v: &Volume<MemoryEnv>, devices: &[MemoryDevice], out: Shared<Vec<u8>>) {
    devices.iter().for_each(|d| d.read_takes.set(Duration::from_secs(20)));
    let v = v.clone();
    e.spawn(async move { *out.borrow_mut() = Some(v.read(0, 4096).await.map(|p| gather(&p)).expect("read")) });
    e.sleep(Duration::from_millis(1)).await;
}

/// The only valid block of the first chunk is trimmed while a write to it and to the second is under way, which fails; then the
/// volume is encrypted, and the block is written again. Gives what is read of it: after a crash, or by a read that began before.
fn what_is_read(crash: bool) -> Vec<u8> {
    let env = MemoryEnv::new();
    let (devices, g, v) = made(&env);
    assert!(env.block_on(put(v.clone(), 0, vec![OLD; 4096], true)));
    assert!(env.block_on(put(v.clone(), CHUNK, vec![OTHER; 4096], true)));
    lose_other(&devices);
    devices.iter().for_each(|d| d.read_takes.set(Duration::from_millis(200)));
    let (failed, read): (Shared<bool>, Shared<Vec<u8>>) = Default::default();
    let (out, across) = (failed.clone(), put(v.clone(), CHUNK - 4096, vec![0x33; 4096 + 512], false));
    env.spawn(async move { *out.borrow_mut() = Some(!across.await) });
    let (e, v2, d, out) = (env.clone(), v.clone(), devices.clone(), read.clone());
    env.block_on(async move {
        e.sleep(Duration::from_millis(1)).await;
        if !crash {
            read_slowly(&e, &v2, &d, out).await;
        }
        v2.trim(0, 4096, WriteFlags::default()).await.expect("trim");
        e.sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(*failed.borrow(), Some(true), "its other block cannot be read");
    let g2 = g.clone();
    env.block_on(async move { g2.encrypt_volume("plain", "home").await }).expect("begun");
    assert!(env.block_on(put(v.clone(), 0, vec![NEW; 4096], false)));
    if !crash {
        assert!(read.borrow().is_none(), "the read is still under way");
        let e = env.clone();
        env.block_on(async move { e.sleep(Duration::from_secs(60)).await });
        return read.take().expect("it has ended");
    }
    env.kill();
    drop((g, v));
    devices.iter().for_each(|d| {
        d.holes_fail.set(false);
        d.read_takes.set(Duration::ZERO);
    });
    let g = open(&env, &devices);
    g.unlock_family("home", key()).expect("unlocked");
    let v = g.volume("plain").expect("made at creation");
    env.block_on(async move { v.read(0, 4096).await.map(|p| gather(&p)) }).expect("read")
}

/// Old, nothing, or new.
fn is_of_it(read: &[u8]) -> bool {
    [OLD, 0, NEW].iter().any(|content| read.iter().all(|b| b == content))
}

#[test]
fn what_is_encrypted_is_not_plaintext_after_a_crash() {
    let read = what_is_read(true);
    assert!(is_of_it(&read), "noise: {:02x?}", &read[..16]);
}

#[test]
fn what_is_encrypted_is_not_plaintext_for_a_read_under_way() {
    let read = what_is_read(false);
    assert!(is_of_it(&read), "noise: {:02x?}", &read[..16]);
}
