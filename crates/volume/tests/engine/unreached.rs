//! Changes of the tables while a disk cannot be reached that the group does without.

use std::time::Duration;

use bimetal_crypt::FamilyKey;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::{NewFamily, StructureError};
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{evacuate, flush, make, open, pass, small, used, writable, write, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::reserve::{is_fast, millis};

/// Two SSDs, a disk, and two volumes that live on the SSDs.
fn group(env: &MemoryEnv) -> (Vec<MemoryDevice>, Group<MemoryEnv>, Volume<MemoryEnv>) {
    let volume = |name: &str| NewVolume { name: name.into(), size: Some(10 * MIB), placement: Placement::Auto };
    let tiers = [(32, Tier::Fast), (32, Tier::Fast), (128, Tier::Slow)];
    let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
    let members: Vec<_> = tiers.into_iter().map(|(mib, tier)| (device(mib), tier)).collect();
    let devices = members.iter().map(|m| m.0.clone()).collect::<Vec<_>>();
    let options = CreateOptions { journal_blocks: Some(64), ..small(vec![volume("main"), volume("other")]) };
    make(env, members, options);
    let g = open(env, &devices, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..40).for_each(|c| write(env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
    flush(env, &v).expect("flush");
    pass(env, 60);
    (devices, g, v)
}

fn goes_on(env: &MemoryEnv, g: &Group<MemoryEnv>, v: &Volume<MemoryEnv>) {
    assert_eq!(g.status().latched, None);
    write(env, v, 0, &[5; 4096]).expect("it lies on an SSD");
    flush(env, v).expect("it lies on an SSD");
}

#[test]
fn a_change_is_refused_and_takes_writes_from_nobody() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    d[2].lost.set(true);
    pass(&env, 60);
    goes_on(&env, &g, &v);
    let changes = {
        let g = g.clone();
        async move {
            let new = NewVolume { name: "new".into(), size: Some(MIB), placement: Placement::Auto };
            [
                g.rename_volume("other", "another").await.map(drop),
                g.create_volume(&new).await.map(drop),
                g.resize_volume("other", 5 * MIB).await.map(drop),
                g.delete_volume("other").await.map(drop),
                g.evacuate_member(0).await.map(drop),
            ]
        }
    };
    for (n, refused) in env.block_on(changes).into_iter().enumerate() {
        assert!(matches!(refused, Err(StructureError::NotReached(2))), "{n}: {refused:?}");
    }
    goes_on(&env, &g, &v);
}

#[test]
fn a_volume_that_is_encrypted_meanwhile_waits_with_saying_so() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    d[2].write_takes.set(Duration::from_millis(20));
    let new =
        NewFamily { name: "home".into(), uuid: [7; 16], key: FamilyKey::from_bytes(&[7; 32]), header: vec![7; 4096] };
    let (g2, e) = (g.clone(), env.clone());
    env.block_on(async move {
        g2.create_family(new).await.expect("made");
        g2.encrypt_volume("other", "home").await.expect("begun");
        e.sleep(Duration::from_millis(100)).await;
    });
    assert!(g.status().volumes.iter().any(|v| v.encrypting.is_some_and(|e| e.slots_to_wipe > 0)));
    d[2].lost.set(true);
    pass(&env, 120);
    assert!(g.status().volumes.iter().any(|v| v.encrypting.is_some()));
    goes_on(&env, &g, &v);
}

/// It leaves because it dies, and dies when nothing is left on it.
#[test]
fn an_empty_ssd_that_is_lost_can_be_taken_out() {
    let env = MemoryEnv::new();
    let (d, g, v) = group(&env);
    evacuate(&env, &g, 1);
    pass(&env, 120);
    assert_eq!(used(&g, 1), 0);
    d[1].lost.set(true);
    let g2 = g.clone();
    env.block_on(async move { g2.remove_member(1).await }).expect("the others are there");
    pass(&env, 60);
    goes_on(&env, &g, &v);
}

/// A disk is being emptied when the connection to another one is lost, to which its chunks would go. They wait, as all moves do; what
/// was just being read, or being written there, is no reason to refuse writes that do not need it.
#[test]
fn an_evacuation_waits_and_takes_writes_from_nobody() {
    for while_written in [false, true] {
        let env = MemoryEnv::new();
        let device = |mib| MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) };
        let d = [64, 256, 256].map(device);
        let members = d.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
        let main = NewVolume { name: "main".into(), size: Some(180 * MIB), placement: Placement::Auto };
        make(&env, members, CreateOptions { journal_blocks: Some(64), ..small(vec![main]) });
        let g = open(&env, &d, OpenOptions::default()).expect("opens");
        let v = g.volume("main").expect("there");
        (0..900).for_each(|c| write(&env, &v, c * CHUNK, &[3; CHUNK as usize]).expect("write"));
        flush(&env, &v).expect("flush");
        pass(&env, 120);
        d[1].read_takes.set(Duration::from_secs(1));
        d[2].write_takes.set(Duration::from_millis(50));
        evacuate(&env, &g, 1);
        while while_written && d[2].being_written.get().0 < CHUNK as usize {
            millis(&env, 1);
        }
        d[2].lost.set(true);
        pass(&env, 600);
        let fast = (0..900).find(|c| is_fast(&v, *c)).expect("the SSD is in use");
        write(&env, &v, fast * CHUNK, &[5; CHUNK as usize]).expect("it lies on the SSD");
        flush(&env, &v).expect("it lies on the SSD");
        assert_eq!(g.status().latched, None);
        assert!(used(&g, 1) > 0);
        d[2].lost.set(false);
        pass(&env, 3600);
        assert_eq!((used(&g, 1), g.status().latched), (0, None));
    }
}
