//! Families: what reaches members is what dm-crypt would write, headers are kept, locked means locked, and plaintext goes.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_format::label::Repair;
use bimetal_volume::backend::{Backend, WriteFlags, TO_ITS_END};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::fate::{Fate, FateRun};
use bimetal_volume::group::structure::{NewFamily, NewMember, Proviso, StructureError};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier};
use bimetal_volume::{gather, inspect, Group, Volume};

use crate::image;
use crate::image::{make, small};
use crate::memory::{MemoryDevice, MemoryEnv};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Where a member has side 0 of its keys.
const KEYS: u64 = 128 << 10;

/// What a request has come to, if it has.
type Told = Rc<RefCell<Option<Result<(), Error>>>>;

pub(crate) struct Rig {
    pub(crate) env: MemoryEnv,
    pub(crate) devices: Vec<MemoryDevice>,
}

fn key(byte: u8) -> FamilyKey {
    FamilyKey::from_bytes(&[byte; 32])
}

/// A header of so many blocks.
pub(crate) fn header(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK]
}

pub(crate) fn family(name: &str, byte: u8, blocks: usize) -> NewFamily {
    NewFamily { name: name.into(), uuid: [byte; 16], key: key(byte), header: header(byte, blocks) }
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let env = MemoryEnv::new();
        let devices = vec![MemoryDevice::new(20 * MIB), MemoryDevice::new(80 * MIB)];
        let members = vec![(devices[0].clone(), Tier::Fast), (devices[1].clone(), Tier::Slow)];
        let volume = NewVolume { name: "plain".into(), size: Some(20 * MIB), placement: Placement::Auto };
        let options = CreateOptions { sector_size: 512, ..small(vec![volume]) };
        make(&env, members, options);
        Rig { env, devices }
    }

    pub(crate) fn open(&self) -> Group<MemoryEnv> {
        image::open(&self.env, &self.devices, OpenOptions::default()).expect("the group opens")
    }

    pub(crate) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        g: &Group<MemoryEnv>,
        what: impl FnOnce(Group<MemoryEnv>) -> F,
    ) -> T {
        self.env.block_on(what(g.clone()))
    }

    /// A family, and a volume `v` of 10 MiB in it.
    pub(crate) fn with_family(&self) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
        let g = self.open();
        self.run(&g, |g| async move { g.create_family(family("home", 7, 3)).await }).expect("a family");
        let new = NewVolume { name: "v".into(), size: Some(10 * MIB), placement: Placement::Auto };
        self.run(&g, |g| async move { g.create_volume_in(&new, Some("home")).await }).expect("a volume");
        let v = g.volume("v").expect("there");
        (g, v)
    }

    fn write(&self, v: &Volume<MemoryEnv>, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut b = BufMut::with_phase(data.len(), offset);
        b.copy_from_slice(data);
        let v = v.clone();
        self.env.block_on(async move {
            v.write(offset, b.freeze(), WriteFlags { fua: true, ..WriteFlags::default() }).await
        })
    }

    fn read(&self, v: &Volume<MemoryEnv>, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        let v = v.clone();
        self.env.block_on(async move { v.read(offset, len).await.map(|p| gather(&p)) })
    }

    pub(crate) fn stop(&self, g: Group<MemoryEnv>) {
        self.env.block_on(async move { g.stop().await }).expect("an orderly stop");
    }

    pub(crate) fn seconds(&self, n: u64) {
        self.env.block_on(bimetal_volume::env::Env::sleep(&self.env, std::time::Duration::from_secs(n)));
    }

    /// Members whose content has a block that is equal to this one.
    fn holding(&self, block: &[u8]) -> Vec<usize> {
        let holds = |d: &MemoryDevice| d.blocks.borrow().values().any(|b| b.chunks_exact(BLOCK).any(|b| b == block));
        (0..self.devices.len()).filter(|i| holds(&self.devices[*i])).collect()
    }
}

/// A block that no other is like.
fn marker(n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < BLOCK {
        out.extend_from_slice(&(0x006d_6172_6b65_7200 ^ (n << 56) ^ out.len() as u64).to_le_bytes());
    }
    out
}

#[test]
fn members_hold_what_dm_crypt_would_write() {
    let rig = Rig::new();
    let (g, v) = rig.with_family();
    // Two blocks beyond the first chunk, the second of them the 65th of the volume.
    let at = 64 * BLOCK as u64;
    rig.write(&v, at, &[marker(1), marker(2)].concat()).expect("write");
    assert_eq!(rig.read(&v, at, 2 * BLOCK as u64).expect("read"), [marker(1), marker(2)].concat());
    let mut expected = marker(2);
    key(7).volume_key(&v.uuid()).encrypt(65, &mut expected);
    assert_eq!(rig.holding(&expected), [0]);
    assert!(rig.holding(&marker(1)).is_empty() && rig.holding(&marker(2)).is_empty());
    // The check can fail: plaintext is found where it is.
    let plain = g.volume("plain").expect("there");
    rig.write(&plain, at, &marker(1)).expect("write");
    assert_eq!(rig.holding(&marker(1)), [0]);
    rig.stop(g);
}

/// Requests of any alignment against a model in memory.
#[test]
fn requests_of_any_alignment_read_what_was_written() {
    let rig = Rig::new();
    let (g, v) = rig.with_family();
    let mut model = vec![0u8; 2 * MIB as usize];
    let mut x = 12_345u64;
    let mut next = move |n: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % n
    };
    for round in 0..400u64 {
        let offset = next(2 * MIB - 1);
        let len = 1 + next((2 * MIB - offset).min(if round % 10 == 0 { 600_000 } else { 9000 }));
        let here = offset as usize..(offset + len) as usize;
        match next(6) {
            0 => {
                let v = v.clone();
                let zeroed = async move { v.write_zeroes(offset, len, WriteFlags::default(), TO_ITS_END).await };
                rig.env.block_on(zeroed).expect("zeroes");
                model[here].fill(0);
            }
            1 | 2 => assert_eq!(rig.read(&v, offset, len).expect("read"), model[here], "round {round}: {offset}+{len}"),
            _ => {
                let data: Vec<u8> = (0..len).map(|i| (i ^ (round * 37) ^ (i >> 8)) as u8).collect();
                rig.write(&v, offset, &data).expect("write");
                model[here].copy_from_slice(&data);
            }
        }
    }
    assert_eq!(rig.read(&v, 0, 2 * MIB).expect("read"), model);
    rig.stop(g);
    let g = rig.open();
    g.unlock_family("home", key(7)).expect("unlocked");
    assert_eq!(rig.read(&g.volume("v").expect("there"), 0, 2 * MIB).expect("read"), model);
}

#[test]
fn a_locked_family_gives_and_takes_nothing() {
    let rig = Rig::new();
    let (g, v) = rig.with_family();
    rig.write(&v, 0, &marker(3)).expect("write");
    rig.run(&g, |g| async move { g.lock_family("home").await }).expect("locked");
    assert_eq!(rig.read(&v, 0, 512), Err(Error::Locked));
    assert_eq!(rig.write(&v, 0, &marker(4)), Err(Error::Locked));
    assert!(v.extents(0, 4096, 9).is_err() && g.status().volumes[1].locked && !g.status().families[0].unlocked);
    let new = NewVolume { name: "w".into(), size: Some(MIB), placement: Placement::Auto };
    let made = rig.run(&g, |g| async move { g.create_volume_in(&new, Some("home")).await });
    assert_eq!(made, Err(StructureError::FamilyLocked("home".into())));
    assert_eq!(g.unlock_family("home", key(8)), Err(StructureError::WrongKey("home".into())));
    assert_eq!(rig.read(&v, 0, 512), Err(Error::Locked), "a wrong key opens nothing");
    g.unlock_family("home", key(7)).expect("unlocked");
    assert_eq!(rig.read(&v, 0, BLOCK as u64).expect("read"), marker(3));
    // A volume without a family does not care.
    assert!(rig.read(&g.volume("plain").expect("there"), 0, 512).is_ok());
    rig.stop(g);
    let g = rig.open();
    let v = g.volume("v").expect("there");
    assert_eq!(rig.read(&v, 0, 512), Err(Error::Locked), "a start has no keys");
    let run = |offset, len, fate| FateRun { offset, len, fate };
    let (block, rest) = (BLOCK as u64, 10 * MIB - BLOCK as u64);
    let expected = vec![run(0, block, Fate::Whole), run(block, rest, Fate::NeverWritten)];
    assert_eq!(v.fates(0, 10 * MIB, 9), Ok(expected), "what has become of it is told without a key");
}

#[test]
fn headers_are_kept_replaced_and_refused() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    let read = |g: &Group<MemoryEnv>, name: &'static str| rig.run(g, |g| async move { g.family_header(name).await });
    let replace = |g: &Group<MemoryEnv>, before: Option<Vec<u8>>, new: Vec<u8>| {
        rig.run(g, |g| async move { g.replace_header("home", before.as_deref(), new).await })
    };
    assert_eq!(read(&g, "home").expect("read"), header(7, 3));
    // The end of a header is often empty, and not stored.
    let mut long = header(9, 5);
    long[2 * BLOCK..].fill(0);
    replace(&g, Some(header(7, 3)), long.clone()).expect("replaced");
    assert_eq!((read(&g, "home"), g.status().families[0].header), (Ok(long.clone()), 2 * BLOCK as u64));
    assert!(rig.holding(&header(7, 1)).is_empty(), "what was replaced is overwritten");
    assert_eq!(rig.holding(&header(9, 1)), [0, 1]);
    let changed = replace(&g, Some(header(7, 3)), header(1, 1));
    assert_eq!(changed, Err(StructureError::HeaderChanged("home".into())));
    for bad in [Vec::new(), vec![0; BLOCK], vec![1; BLOCK + 1]] {
        assert_eq!(replace(&g, Some(long.clone()), bad), Err(StructureError::BadHeader));
    }
    let full = rig.run(&g, |g| async move { g.create_family(family("large", 2, 223)).await });
    assert_eq!(full, Err(StructureError::KeysFull { need: 225 * BLOCK as u64, have: 224 * BLOCK as u64 }));
    rig.run(&g, |g| async move { g.create_family(family("large", 2, 222)).await }).expect("just fits");
    assert_eq!(read(&g, "home").expect("read"), long);
    let names = ["", "../x", "A", "large"].map(|name| {
        let made = rig.run(&g, move |g| async move { g.create_family(family(name, 3, 1)).await });
        made.expect_err("no such name").to_string()
    });
    assert!(names[..3].iter().all(|e| e.contains("use 1 to 63 of")) && names[3].contains("already"), "{names:?}");
    let in_use = rig.run(&g, |g| async move { g.delete_family("home").await });
    let why = StructureError::FamilyInUse { family: "home".into(), volumes: "v".into() };
    assert_eq!(in_use, Err(why));
    rig.run(&g, |g| async move { g.delete_family("large").await }).expect("deleted");
    assert!(rig.holding(&header(2, 1)).is_empty());
    rig.run(&g, |g| async move { g.rename_family("home", "work").await }).expect("renamed");
    rig.stop(g);
    let g = rig.open();
    assert_eq!(read(&g, "work").expect("read"), long);
    assert_eq!(read(&g, "home"), Err(StructureError::NoFamily("home".into())));
}

#[test]
fn a_damaged_header_is_read_from_another_member_and_can_be_given_back() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    rig.stop(g);
    let side = |d: &MemoryDevice| {
        let places = [KEYS, d.size - 2 * MIB + (64 << 10)];
        let blocks = d.blocks.borrow();
        places
            .into_iter()
            .find(|p| blocks.get(&(p / BLOCK as u64)).is_some_and(|b| b[0] == 7))
            .expect("a side is in use")
    };
    let spoil = |d: &MemoryDevice| {
        let place = side(d) / BLOCK as u64;
        d.blocks.borrow_mut().get_mut(&(place + 1)).expect("written")[100] ^= 1;
    };
    spoil(&rig.devices[0]);
    let g = rig.open();
    let read = |g: &Group<MemoryEnv>| rig.run(g, |g| async move { g.family_header("home").await });
    assert_eq!(read(&g).expect("the other member has it"), header(7, 3));
    // The start has mended it.
    rig.seconds(1);
    rig.devices.iter().for_each(spoil);
    assert_eq!(read(&g).expect_err("nobody has it"), StructureError::HeaderLost("home".into()));
    // The key still opens it; a copy of the header can be given back.
    g.unlock_family("home", key(7)).expect("unlocked");
    assert_eq!((g.is_key_of("home", &key(7)), g.is_key_of("home", &key(1))), (Ok(true), Ok(false)));
    let back = rig.run(&g, |g| async move { g.replace_header("home", None, header(7, 3)).await });
    back.expect("given back");
    assert_eq!(read(&g).expect("read"), header(7, 3));
}

#[test]
fn what_cannot_be_read_of_a_header_is_not_replaced_by_a_damaged_copy() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    let long = header(9, 5);
    let (put, other) = (long.clone(), header(8, 1));
    rig.run(&g, |g| async move { g.replace_header("home", None, put).await }).expect("replaced");
    let new = NewFamily { name: "other".into(), uuid: [8; 16], key: key(8), header: other };
    rig.run(&g, |g| async move { g.create_family(new).await }).expect("made");
    rig.devices[0].flip((header_block(&rig.devices[0], "home") + 1) * BLOCK as u64, 1);
    // Each read fails at the first of them: two while a whole copy is looked for, two while it is seen what is left.
    let first = header_block(&rig.devices[1], "home");
    rig.devices[1].misread.borrow_mut().extend(first..first + 5);
    let rename = |g: &Group<MemoryEnv>| rig.run(g, |g| async move { g.rename_family("other", "another").await });
    let refusal = rename(&g).expect_err("the last good copy would be overwritten");
    assert!(matches!(&refusal, StructureError::HeaderUnread { name, member: 1, .. } if name == "home"), "{refusal}");
    rename(&g).expect("it can be read now");
    let read = rig.run(&g, |g| async move { g.family_header("home").await });
    assert_eq!(read.expect("it is whole"), long);
}

/// The block in which the header of a family begins on a member.
pub(crate) fn header_block(d: &MemoryDevice, name: &str) -> u64 {
    let (label, layout) = (d.label(), d.layout());
    let row = label.families.iter().find(|f| f.name == name).expect("a row").clone();
    layout.keys.expect("keys").sides[label.keys_side as usize] / BLOCK as u64 + u64::from(row.at)
}

#[test]
fn headers_that_nobody_can_read_can_be_given_back_and_hinder_no_new_member() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    let new = NewFamily { name: "other".into(), uuid: [8; 16], key: key(8), header: header(8, 1) };
    rig.run(&g, |g| async move { g.create_family(new).await }).expect("made");
    for name in ["home", "other"] {
        rig.devices[0].flip(header_block(&rig.devices[0], name) * BLOCK as u64, 1);
        let unreadable = header_block(&rig.devices[1], name);
        rig.devices[1].blocks.borrow_mut().remove(&unreadable);
    }
    rig.devices[1].holes_fail.set(true);
    let replace = |name: &'static str, before: Option<Vec<u8>>, header: Vec<u8>| {
        rig.run(&g, |g| async move { g.replace_header(name, before.as_deref(), header).await })
    };
    let refusal = replace("home", Some(header(7, 3)), header(9, 3)).expect_err("another one may be whole there");
    assert!(matches!(refusal, StructureError::HeaderUnread { member: 1, .. }), "{refusal}");
    let new = MemoryDevice::new(64 * MIB);
    image::add(&rig.env, &g, &new, Tier::Slow);
    replace("home", None, header(7, 3)).expect("given back");
    replace("other", None, header(8, 1)).expect("given back");
    for (name, whole) in [("home", header(7, 3)), ("other", header(8, 1))] {
        let read = rig.run(&g, |g| async move { g.family_header(name).await });
        assert_eq!(read.expect("whole"), whole);
    }
}

#[test]
fn a_header_that_cannot_be_read_keeps_no_group_from_its_repair() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    rig.stop(g);
    let disk = rig.devices[1].copy();
    let unreadable = header_block(&disk, "home");
    disk.blocks.borrow_mut().remove(&unreadable);
    disk.holes_fail.set(true);
    let (e, left) = (rig.env.clone(), disk.clone());
    let new = NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) };
    let repaired = rig.env.block_on(async move {
        let mut plan = Plan::new(e, vec![left], false).await?;
        plan.add(MemoryDevice::new(16 * MIB), &new).await?;
        plan.carry_out().await
    });
    repaired.expect("the header is one of those that are lost");
    assert_eq!(disk.label().repair, Repair::Done);
}

#[test]
fn a_filled_plain_volume_becomes_ciphertext_and_its_plaintext_goes() {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    let plain = g.volume("plain").expect("there");
    // More than the fast tier holds, written again and trimmed in part, so that it lies in many slots, and in some that are
    // not its own any more.
    for n in 0..100u64 {
        rig.write(&plain, n * 200_704, &marker(n)).expect("write");
    }
    rig.seconds(20);
    for n in (0..100u64).step_by(3) {
        let v = plain.clone();
        let at = n * 200_704 / 131_072 * 131_072;
        rig.env.block_on(async move { v.trim(at, 131_072, WriteFlags::default()).await }).expect("trim");
    }
    let kept: Vec<u64> =
        (0..100).filter(|n| rig.read(&plain, n * 200_704, BLOCK as u64).expect("read") == marker(*n)).collect();
    assert!(kept.len() > 20 && kept.iter().all(|n| !rig.holding(&marker(*n)).is_empty()));
    let another = Proviso { volume: Some([9; 16]), objection: None };
    let refused = rig.run(&g, |g| async move { g.encrypt_volume_if("plain", "home", another).await });
    assert_eq!(refused, Err(StructureError::AnotherVolume("plain".into())));
    let this = Proviso { volume: Some(plain.uuid()), objection: None };
    rig.run(&g, |g| async move { g.encrypt_volume_if("plain", "home", this).await }).expect("begun");
    let again = rig.run(&g, |g| async move { g.encrypt_volume("plain", "home").await });
    assert_eq!(again, Err(StructureError::HasFamily("plain".into())));
    assert!(g.status().volumes[0].encrypting.is_some());
    // It goes on after a restart, once unlocked.
    rig.stop(g);
    let g = rig.open();
    rig.seconds(5);
    assert!(g.status().volumes[0].encrypting.is_some_and(|e| e.waits_for.is_some()));
    g.unlock_family("home", key(7)).expect("unlocked");
    rig.seconds(60);
    assert_eq!(g.status().volumes[0].encrypting, None);
    for n in 0..100 {
        assert!(rig.holding(&marker(n)).is_empty(), "marker {n}");
    }
    let plain = g.volume("plain").expect("there");
    for n in kept {
        assert_eq!(rig.read(&plain, n * 200_704, BLOCK as u64).expect("read"), marker(n));
    }
    rig.stop(g);
    let (env, devices) = (rig.env.clone(), rig.devices.clone());
    let report = rig.env.block_on(async move { inspect::check(env, devices, &|_, _| {}).await }).expect("a report");
    assert!(report.is_sound() && report.clean, "{report:?}");
}

/// Keys leave memory at once, by force, though a request on a volume of the family and a change of the group wait for a disk that stands
/// still: both are over when it answers again, and nothing is read or written meanwhile.
#[test]
fn keys_go_by_force_whatever_waits_for_a_disk_that_stands_still() {
    let mut rig = Rig::new();
    rig.devices.iter_mut().for_each(|d| d.env = Some(rig.env.clone()));
    let (g, v) = rig.with_family();
    rig.write(&v, 0, &marker(1)).expect("write");
    rig.devices.iter().for_each(|d| d.stands_until.set(rig.env.now().plus(Duration::from_secs(300))));
    // One has to read what it does not replace of its block; neither could be answered without the key.
    let told: Told = Rc::default();
    let read: Told = Rc::default();
    let (volume, out) = (v.clone(), told.clone());
    rig.env.spawn(async move {
        let data = BufMut::zeroed(512).freeze();
        *out.borrow_mut() = Some(volume.write(512, data, WriteFlags::default()).await);
    });
    let (volume, out) = (v.clone(), read.clone());
    rig.env.spawn(async move { *out.borrow_mut() = Some(volume.read(0, 4096).await.map(drop)) });
    let (group, changed) = (g.clone(), Rc::new(Cell::new(false)));
    let out = changed.clone();
    rig.env.spawn(async move {
        group.rename_volume("plain", "other").await.expect("renamed");
        out.set(true);
    });
    rig.seconds(5);
    let locked = |g: &Group<MemoryEnv>| !g.status().families[0].unlocked;
    assert!(told.borrow().is_none() && read.borrow().is_none() && !changed.get() && !locked(&g));
    let ended = g.lock_family_at_once("home").expect("there is one");
    assert!(locked(&g), "at once");
    let over = Rc::new(Cell::new(false));
    let out = over.clone();
    rig.env.spawn(async move {
        ended.await;
        out.set(true);
    });
    rig.seconds(100);
    assert_eq!(rig.write(&v, 0, &marker(2)), Err(Error::Locked));
    assert_eq!(rig.read(&v, 0, 4096), Err(Error::Locked));
    assert!(!over.get() && told.borrow().is_none() && !changed.get());
    rig.seconds(300);
    assert!(over.get() && changed.get());
    assert_eq!(*told.borrow(), Some(Err(Error::Locked)));
    assert_eq!(*read.borrow(), Some(Err(Error::Locked)));
    g.unlock_family("home", key(7)).expect("its key");
    assert_eq!(rig.read(&v, 0, 4096).expect("read"), marker(1));
    rig.write(&v, 512, &[9; 512]).expect("write");
    assert_eq!(rig.read(&v, 512, 512).expect("read"), [9; 512]);
    rig.stop(g);
}

/// A family is locked by force in the moment in which it comes to be there: it stays locked.
#[test]
fn a_family_that_is_locked_by_force_while_it_is_made_stays_locked() {
    let mut rig = Rig::new();
    rig.devices.iter_mut().for_each(|d| d.env = Some(rig.env.clone()));
    let g = rig.open();
    rig.devices.iter().for_each(|d| d.write_takes.set(Duration::from_millis(20)));
    let (group, made) = (g.clone(), Rc::new(Cell::new(false)));
    let out = made.clone();
    rig.env.spawn(async move {
        group.create_family(family("home", 7, 3)).await.expect("made");
        out.set(true);
    });
    let (e, group) = (rig.env.clone(), g.clone());
    rig.env.block_on(async move {
        while group.status().families.is_empty() {
            e.sleep(Duration::from_millis(1)).await;
        }
        group.lock_family_at_once("home").expect("it is there").await;
    });
    rig.seconds(10);
    assert!(made.get() && !g.status().families[0].unlocked);
    rig.stop(g);
}
