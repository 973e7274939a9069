//! Changes of the members beside clients that flush all the time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::{create_sized, evacuate, open, pass, writable, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A client that writes a block and flushes, again and again, as a database does.
fn begin_to_flush(env: &MemoryEnv, v: &Volume<MemoryEnv>, chunk: u64, ends: &Rc<Cell<bool>>) -> Rc<Cell<u64>> {
    let flushes = Rc::new(Cell::new(0));
    let (v, ends, count, e) = (v.clone(), ends.clone(), flushes.clone(), env.clone());
    env.spawn(async move {
        // They are not in step.
        e.sleep(Duration::from_micros(700 * chunk)).await;
        while !ends.get() {
            let mut b = BufMut::new(4096);
            b.fill(chunk as u8);
            v.write(chunk * CHUNK, b.freeze(), WriteFlags::default()).await.expect("written");
            v.flush().await.expect("flushed");
            count.set(count.get() + 1);
        }
    });
    flushes
}

/// A group on devices whose syncs take a moment.
pub(crate) fn timed(env: &MemoryEnv, fast: &[u64], slow: &[u64]) -> (Members, Group<MemoryEnv>) {
    let mut m = create_sized(env, "tank", fast, slow, Some(4 * MIB));
    for d in &mut m.0 {
        d.env = Some(env.clone());
        d.sync_takes.set(Duration::from_millis(2));
    }
    let g = open(env, &m.0, writable()).expect("opens");
    (m, g)
}

/// Runs `clients` clients that flush beside a change; whether the change had ended after two minutes, and another change of the
/// table a minute later; and whether they end once the clients pause.
fn beside_flushes<T: 'static>(
    env: &MemoryEnv,
    g: &Group<MemoryEnv>,
    clients: u64,
    change: impl std::future::Future<Output = T> + 'static,
) -> (bool, bool, bool) {
    let v = g.volume("main").expect("there");
    let ends = Rc::new(Cell::new(false));
    let flushes: Vec<_> = (0..clients).map(|c| begin_to_flush(env, &v, c, &ends)).collect();
    pass(env, 1);
    let done: Rc<RefCell<Option<T>>> = Rc::default();
    let out = done.clone();
    env.spawn(async move {
        let value = change.await;
        *out.borrow_mut() = Some(value);
    });
    pass(env, 120);
    let ended = done.borrow().is_some();
    let (g2, made) = (g.clone(), Rc::new(Cell::new(false)));
    let note = made.clone();
    env.spawn(async move {
        let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
        g2.create_volume(&new).await.expect("made");
        note.set(true);
    });
    pass(env, 60);
    let made_beside = made.get();
    assert!(flushes.iter().all(|f| f.get() > 1000), "the clients were served");
    ends.set(true);
    pass(env, 5);
    let in_the_end = done.borrow().is_some() && made.get();
    (ended, made_beside, in_the_end)
}

/// Commits follow one another without a pause.
#[test]
fn a_member_is_added_beside_clients_that_flush_all_the_time() {
    for clients in [1, 2, 3] {
        for tier in [Tier::Fast, Tier::Slow] {
            let env = MemoryEnv::new();
            let (_m, g) = timed(&env, &[16], &[32]);
            let disk = MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(24 * MIB) };
            let (g2, new) = (g.clone(), NewMember { tier, force: false, journal_blocks: Some(16) });
            let change = async move { g2.add_member(disk, &new).await.expect("added") };
            let (ended, made, in_the_end) = beside_flushes(&env, &g, clients, change);
            assert!(in_the_end, "it ends when they pause");
            assert!(ended && made, "{clients} clients, {tier}: added {ended}, another volume made {made}");
        }
    }
}

#[test]
fn a_member_leaves_beside_clients_that_flush_all_the_time() {
    for clients in [1, 2, 3] {
        let env = MemoryEnv::new();
        let (_m, g) = timed(&env, &[16, 16], &[32]);
        evacuate(&env, &g, 1);
        pass(&env, 30);
        let g2 = g.clone();
        let change = async move { g2.remove_member(1).await.expect("removed").index };
        let (ended, made, in_the_end) = beside_flushes(&env, &g, clients, change);
        assert!(in_the_end, "it ends when they pause");
        assert!(ended && made, "{clients} clients: left {ended}, another volume made {made}");
    }
}
