//! A disk is emptied and taken out because it is ill.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_format::label::MemberCode;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::{MemberState, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::beside_flushes::timed;
use crate::family::family;
use crate::image::{self, create_sized, evacuate, open, pass, writable, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};
use crate::regions;

/// A group whose member 2, a disk, was emptied; with a block of its volume on others.
pub(crate) fn emptied(env: &MemoryEnv, m: &Members, g: &Group<MemoryEnv>) -> Volume<MemoryEnv> {
    emptied_one(env, m, g, 2)
}

/// The same of another of the two.
pub(crate) fn emptied_one(env: &MemoryEnv, m: &Members, g: &Group<MemoryEnv>, disk: usize) -> Volume<MemoryEnv> {
    let v = g.volume("main").expect("there");
    image::write(env, &v, 0, &[1; CHUNK as usize]).expect("written");
    image::flush(env, &v).expect("flushed");
    evacuate(env, g, disk);
    pass(env, 30);
    assert_eq!((image::used(g, disk), m.0.len()), (0, 3), "it is empty");
    v
}

/// Whether this has ended after so many seconds, and what it gave.
pub(crate) fn within<T: 'static>(env: &MemoryEnv, seconds: u64, work: impl Future<Output = T> + 'static) -> Option<T> {
    let done: Rc<RefCell<Option<T>>> = Rc::default();
    let note = done.clone();
    env.spawn(async move {
        let value = work.await;
        *note.borrow_mut() = Some(value);
    });
    pass(env, seconds);
    done.take()
}

pub(crate) fn new_device(env: &MemoryEnv, mib: u64) -> MemoryDevice {
    MemoryDevice { env: Some(env.clone()), ..MemoryDevice::new(mib * MIB) }
}

pub(crate) fn is_member(g: &Group<MemoryEnv>, index: u8) -> bool {
    g.status().members.iter().any(|m| m.index == index)
}

/// It fails as a volume is deleted, which takes two changes of the tables, and is back after a power cut at any moment of that.
#[test]
fn an_empty_disk_that_failed_and_is_back_bars_no_reading() {
    let env = MemoryEnv::new();
    let (m, g) = timed(&env, &[16], &[32, 32]);
    let _used = emptied(&env, &m, &g);
    let other = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
    let g2 = g.clone();
    env.block_on(async move { g2.create_volume(&other).await }).expect("made");
    m.0[2].writes_left.set(0);
    env.spawn(async move { drop(g.delete_volume("other").await) });
    let (copies, elsewhere) = (|| m.copy().0, MemoryEnv::new());
    let mut behind = 0;
    for _ in 0..400 {
        let e = env.clone();
        env.block_on(async move { e.sleep(Duration::from_micros(500)).await });
        if open(&elsewhere, &copies(), writable()).is_ok() {
            let read = open(&elsewhere, &copies(), image::read_only()).map_err(|e| e.to_string()).expect("can be read");
            behind += u32::from(read.status().recovery.iter().any(|f| f.contains("changed without it")));
            image::check(&elsewhere, &copies()).map_err(|e| e.to_string()).expect("can be checked");
        }
    }
    assert!(behind > 0, "it is more than a change behind");
}

/// Also of families: each member holds their headers.
#[test]
fn an_empty_disk_that_stands_still_holds_up_no_change_of_families() {
    for answers in 0..24 {
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32]);
        let v = emptied(&env, &m, &g);
        m.0[2].answers_left.set(answers);
        let g2 = g.clone();
        let changed = within(&env, 900, async move {
            g2.create_family(family("home", 7, 1)).await.expect("made");
            g2.create_family(family("work", 8, 1)).await.expect("made");
            g2.stop().await
        });
        changed.unwrap_or_else(|| panic!("after {answers} answers: somebody waits for the disk")).expect("in order");
        drop((g, v));
    }
}

/// Nobody waits for it but who removes it: not clients, and no other change of the group.
#[test]
fn an_empty_disk_that_stands_still_can_be_removed() {
    let env = MemoryEnv::new();
    let (m, g) = timed(&env, &[16], &[32, 32]);
    let v = emptied(&env, &m, &g);
    m.0[2].answers_left.set(0);
    let g2 = g.clone();
    env.spawn(async move { drop(g2.remove_member(2).await) });
    let g2 = g.clone();
    let made = within(&env, 600, async move {
        let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
        g2.create_volume(&new).await
    });
    made.expect("it does not wait for the disk").expect("made");
    assert_eq!(g.status().members.len(), 2);
    goes_on(&env, &v);
}

/// It stays only if it works; where it does not, the group can be started all the same, with it and without.
#[test]
fn an_empty_disk_that_fails_as_it_is_told_to_stay_bars_no_start() {
    for lost in [false, true] {
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32]);
        let v = emptied(&env, &m, &g);
        match lost {
            true => m.0[2].lost.set(true),
            false => m.0[2].writes_left.set(0),
        }
        let g2 = g.clone();
        let said = env.block_on(async move { g2.keep_member(2).await }).expect_err("it does not work");
        assert!(said.to_string().starts_with("member 2 "), "{said}");
        goes_on(&env, &v);
        image::stop(&env, g).expect("in order");
        drop(v);
        env.kill();
        m.0[2].lost.set(false);
        m.0[2].writes_left.set(u64::MAX);
        for members in [&m.0[..2], &m.0[..]] {
            let (env, copies) = (MemoryEnv::new(), members.iter().map(|d| d.copy()).collect::<Vec<_>>());
            let g = open(&env, &copies, writable())
                .unwrap_or_else(|e| panic!("{} members, lost {lost}: {e}", members.len()));
            assert_eq!(image::read(&env, &g.volume("main").expect("there"), CHUNK, 4096).expect("read")[0], 2);
        }
    }
}

/// Changes that are asked for before somebody removes it end, and what waits behind them, a stop too, wherever it falls silent.
#[test]
fn an_empty_disk_that_stands_still_holds_up_no_change_and_no_stop() {
    for (stops_only, answers) in [false, true].into_iter().flat_map(|only| (0..24).map(move |n| (only, n))) {
        let at = format!("after {answers} answers, stops only: {stops_only}");
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32]);
        let v = emptied(&env, &m, &g);
        m.0[2].answers_left.set(answers);
        if !stops_only {
            let g2 = g.clone();
            let changed = within(&env, 900, async move {
                let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
                g2.create_volume(&new).await?;
                g2.rename_volume("other", "another").await?;
                g2.delete_volume("another").await
            });
            changed.unwrap_or_else(|| panic!("{at}: the changes wait for the disk")).expect("changed");
            goes_on(&env, &v);
        }
        let g2 = g.clone();
        let stopped = within(&env, 900, async move { g2.stop().await });
        stopped.unwrap_or_else(|| panic!("{at}: the stop waits for the disk")).expect("in order");
        drop((g, v));
        env.kill();
        let (env, rest) = (MemoryEnv::new(), [m.0[0].copy(), m.0[1].copy()]);
        let g = open(&env, &rest, writable()).unwrap_or_else(|e| panic!("{at}: without it: {e}"));
        assert_eq!(image::read(&env, &g.volume("main").expect("there"), 0, 4096).expect("read")[0], 1);
    }
}

/// It is told to leave, and lets itself be told, or not: that ends, and what is asked for behind it.
fn leaves(env: &MemoryEnv, g: &Group<MemoryEnv>, at: &str) {
    let g = g.clone();
    let done = within(env, 1800, async move {
        g.evacuate_member(2).await.expect("it can leave");
        g.rename_volume("other", "another").await.expect("renamed");
        g.stop().await
    });
    done.unwrap_or_else(|| panic!("{at}: somebody waits for the disk")).expect("in order");
}

#[test]
fn an_empty_disk_that_falls_silent_as_it_is_told_to_leave_has_left() {
    for answers in 0..16 {
        let made = regions::group(1);
        made.d[2].answers_left.set(answers);
        leaves(&made.env, &made.g, &format!("after {answers} answers"));
    }
}

/// It hears of regions that are next: nobody waits for that, and yet it is at work.
#[test]
fn an_empty_disk_that_stands_still_as_it_hears_of_regions_has_left() {
    let made = regions::group(OpenOptions::default().away_ahead);
    made.d[2].answers_left.set(0);
    made.write_in(20).expect("no write waits");
    pass(&made.env, 20);
    leaves(&made.env, &made.g, "regions that are next");
}

#[test]
fn a_write_that_waits_for_an_empty_disk_ends_when_that_has_left() {
    let made = regions::group(1);
    made.d[2].answers_left.set(0);
    let waits = [made.begin_in(50), made.begin_in(50)];
    pass(&made.env, 20);
    assert!(waits.iter().all(|w| w.borrow().is_none()), "{waits:?}");
    let g = made.g.clone();
    let left = within(&made.env, 600, async move { g.evacuate_member(2).await.map(drop) });
    assert!(matches!(left, Some(Ok(()))), "{left:?}");
    assert!(waits.iter().all(|w| matches!(*w.borrow(), Some(Ok(())))), "{waits:?}");
    image::stop(&made.env, made.g).expect("in order");
}

/// Wherever it fails in the stop: when that has ended, the devices belong to whoever comes next.
#[test]
fn a_stop_in_which_an_empty_disk_fails_leaves_nothing_to_be_written() {
    for writes in 0..16 {
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32]);
        // Labels are marked one after another: there is one more behind it.
        let v = emptied_one(&env, &m, &g, 1);
        m.0.iter().for_each(|d| d.write_takes.set(Duration::from_millis(10)));
        m.0[1].writes_left.set(writes);
        let g2 = g.clone();
        env.block_on(async move { g2.stop().await }).expect("in order");
        let written = || m.0.iter().map(|d| d.writes.get()).collect::<Vec<_>>();
        let before = written();
        pass(&env, 60);
        assert_eq!(written(), before, "when it fails after {writes} writes");
        drop((g, v));
    }
}

/// Clients write and flush.
fn goes_on(env: &MemoryEnv, v: &Volume<MemoryEnv>) {
    image::write(env, v, CHUNK, &[2; CHUNK as usize]).expect("clients go on");
    image::flush(env, v).expect("clients go on");
}

/// Nothing is asked of it: neither to note that it does not know a region, nor to take the map.
#[test]
fn an_empty_disk_is_not_asked_by_commits() {
    for (silent, restarted) in [(false, false), (true, false), (true, true)] {
        for new_region in [false, true] {
            let env = MemoryEnv::new();
            let m = create_sized(&env, "tank", &[64], &[2048, 2048], Some(1500 * MIB));
            let g = open(&env, &m.0, writable()).expect("opens");
            emptied(&env, &m, &g);
            let g = match restarted {
                false => g,
                true => {
                    image::stop(&env, g).expect("stops");
                    open(&env, &m.0, writable()).expect("opens")
                }
            };
            let v = g.volume("main").expect("there");
            let left = if silent { &m.0[2].answers_left } else { &m.0[2].writes_left };
            left.set(0);
            // Either a part of the volume that was never written, or commits until the SSD's journal is half full.
            for n in 0..40u64 {
                let at = if new_region { (1200 + n) * MIB } else { n % 200 * CHUNK };
                let v = v.clone();
                let flushed = within(&env, 10, async move {
                    let mut b = BufMut::new(CHUNK as usize);
                    b.fill(2);
                    v.write(at, b.freeze(), WriteFlags::default()).await?;
                    v.flush().await
                });
                assert_eq!(
                    flushed,
                    Some(Ok(())),
                    "silent {silent}, restarted {restarted}, new region {new_region}, after {n} flushes"
                );
            }
            assert_eq!(g.status().members.len(), 3, "nobody has seen that it fails");
        }
    }
}

/// Where it has to be asked, its failure makes it leave at once.
#[test]
fn an_empty_disk_that_fails_has_left() {
    let env = MemoryEnv::new();
    let (m, g) = timed(&env, &[16], &[32, 32]);
    let v = g.volume("main").expect("there");
    let block = |n: u64| vec![n as u8 + 1; 4096];
    (0..20).for_each(|n| image::write(&env, &v, n * CHUNK, &block(n)).expect("written"));
    image::flush(&env, &v).expect("flushed");
    evacuate(&env, &g, 2);
    pass(&env, 30);
    assert_eq!(image::used(&g, 2), 0, "it is empty");
    m.0[2].writes_left.set(0);
    let (g2, e) = (g.clone(), env.clone());
    let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
    e.block_on(async move { g2.create_volume(&new).await }).expect("made without it");
    pass(&env, 30);
    let told = g.status().recovery.join("; ");
    assert!(told.contains("member 2 was to leave, held no data any more, and has failed (the label"), "{told}");
    image::write(&env, &v, 20 * CHUNK, &block(20)).expect("written");
    image::flush(&env, &v).expect("flushed");
    let in_use = |n: usize| m.0[..n].iter().map(|d| d.copy()).collect::<Vec<_>>();
    let crashed = [in_use(2), in_use(3)];
    image::stop(&env, g).expect("stops");
    let stopped = [in_use(2), in_use(3)];
    // Whether it comes back or not.
    for copies in crashed.into_iter().chain(stopped) {
        drop(open(&MemoryEnv::new(), &copies, image::read_only()).expect("opens read-only"));
        let e = MemoryEnv::new();
        let g = open(&e, &copies, writable()).expect("opens after a crash");
        assert_eq!(g.status().members.len(), 2, "the labels say that it has left");
        let v = g.volume("main").expect("there");
        assert!(g.volume("other").is_some());
        for n in 0..21 {
            assert_eq!(image::read(&e, &v, n * CHUNK, 4096).expect("read"), block(n));
        }
    }
}

/// What is being emptied is no such disk.
#[test]
fn a_disk_that_fails_before_it_is_empty_ends_the_writes() {
    let env = MemoryEnv::new();
    let (m, g) = timed(&env, &[16], &[32, 32]);
    let v = g.volume("main").expect("there");
    let cold = NewVolume { name: "cold".into(), size: Some(8 * MIB), placement: Placement::SlowOnly };
    let (g2, e) = (g.clone(), env.clone());
    e.block_on(async move { g2.create_volume(&cold).await }).expect("made");
    let cold = g.volume("cold").expect("there");
    (0..64).for_each(|n| image::write(&env, &cold, n * CHUNK, &[1; CHUNK as usize]).expect("written"));
    image::flush(&env, &cold).expect("flushed");
    assert!(image::used(&g, 2) > 0, "something is on it");
    let g2 = g.clone();
    env.spawn(async move { drop(g2.evacuate_member(2).await) });
    while g.status().members[2].state != MemberState::Leaving {
        env.block_on({
            let env = env.clone();
            async move { env.sleep(Duration::from_micros(100)).await }
        });
    }
    m.0[2].writes_left.set(0);
    let (g2, e) = (g.clone(), env.clone());
    let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
    e.block_on(async move { g2.create_volume(&new).await }).expect_err("it holds data");
    assert!(image::write(&env, &v, 0, &[1; 4096]).and_then(|()| image::flush(&env, &v)).is_err());
    assert_eq!(g.status().members.len(), 3);
}

/// Nothing is sent to it any more, so nobody finds that.
#[test]
fn an_empty_disk_whose_connection_is_lost_keeps_nothing_from_being_moved() {
    for lost in [false, true] {
        let env = MemoryEnv::new();
        let m = create_sized(&env, "tank", &[24], &[40, 40], Some(40 * MIB));
        let g = open(&env, &m.0, OpenOptions::default()).expect("opens");
        let v = emptied(&env, &m, &g);
        m.0[2].lost.set(lost);
        (0..v.size() / CHUNK).for_each(|c| image::write(&env, &v, c * CHUNK, &[7; CHUNK as usize]).expect("written"));
        image::flush(&env, &v).expect("flushed");
        pass(&env, 3600);
        let s = g.status();
        assert!(s.fast_free >= s.keep_free, "lost {lost}: the reserve comes back: {} of {}", s.fast_free, s.keep_free);
    }
}

/// Who reads it when it falls silent waits until it has left, and no longer.
#[test]
fn a_check_ends_when_an_empty_disk_that_stands_still_has_left() {
    for answers in 0..24 {
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32]);
        let v = emptied(&env, &m, &g);
        m.0[2].answers_left.set(answers);
        let checked: Rc<RefCell<Option<bool>>> = Rc::default();
        let (g2, note) = (g.clone(), checked.clone());
        env.spawn(async move {
            let report = g2.check(false, &|_, _| {}).await;
            *note.borrow_mut() = Some(report.is_ok_and(|r| r.problems.is_empty()));
        });
        pass(&env, 60);
        let g2 = g.clone();
        let changed = within(&env, 900, async move {
            let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
            g2.create_volume(&new).await?;
            g2.delete_volume("other").await
        });
        changed.expect("the changes do not wait for it").expect("changed");
        assert!(!is_member(&g, 2), "after {answers} answers: it has left");
        assert_eq!(*checked.borrow(), Some(true), "after {answers} answers");
        drop(v);
    }
}

/// One fails, and another one while the labels are to say that it has left.
#[test]
fn of_two_empty_disks_that_fail_one_after_the_other_the_labels_say_that_both_have_left() {
    for writes in 0..16 {
        let env = MemoryEnv::new();
        let (m, g) = timed(&env, &[16], &[32, 32, 32]);
        let v = g.volume("main").expect("there");
        image::write(&env, &v, 0, &[1; CHUNK as usize]).expect("written");
        image::flush(&env, &v).expect("flushed");
        evacuate(&env, &g, 2);
        evacuate(&env, &g, 3);
        pass(&env, 60);
        m.0[2].writes_left.set(0);
        m.0[3].writes_left.set(writes);
        let g2 = g.clone();
        env.block_on(async move {
            let new = NewVolume { name: "other".into(), size: Some(MIB), placement: Placement::Auto };
            g2.create_volume(&new).await
        })
        .expect("made");
        pass(&env, 60);
        let label = m.0[0].label();
        for index in [2u8, 3] {
            let left = label.members[usize::from(index)].state == MemberCode::Left;
            assert_eq!(left, !is_member(&g, index), "member {index}, after {writes} writes");
        }
        drop(v);
    }
}
