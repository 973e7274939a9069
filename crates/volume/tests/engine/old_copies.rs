//! Members that somebody copied while the group was in use and put back later, and starts that are cut off again and again: what the
//! labels tell of old copies, and what only looks like one.

use bimetal_format::label::LABEL_SIZE;
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::env::Env;
use bimetal_volume::group::OpenError;
use bimetal_volume::options::NewVolume;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::{Placement, Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image;
use crate::image::{
    create_sized, flush, make, open, pass, read, read_only, small, stop, writable, write, Members, MIB,
};
use crate::memory::{MemoryDevice, MemoryEnv};

fn volume(name: &str, mib: u64, placement: Placement) -> NewVolume {
    NewVolume { name: name.into(), size: Some(mib << 20), placement }
}

/// One SSD, one disk; and a volume that lives on the disk only, so that slots of the disk are given anew.
fn pair(env: &MemoryEnv) -> Members {
    let devices = vec![MemoryDevice::new(16 * MIB), MemoryDevice::new(32 * MIB)];
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow]).collect();
    let volumes = vec![volume("main", 4, Placement::Auto), volume("cold", 16, Placement::SlowOnly)];
    let options = small(volumes);
    make(env, members, options);
    Members(devices)
}

fn trim(env: &MemoryEnv, v: &Volume<MemoryEnv>, offset: u64, len: u64) {
    let v = v.clone();
    env.block_on(async move { v.trim(offset, len, WriteFlags::default()).await }).expect("trim");
}

/// A session in the midst of which both members are copied; what is written after that is in place, or takes slots of others too.
fn session(env: &MemoryEnv, m: &Members, in_place: bool) -> (Group<MemoryEnv>, Members) {
    let g = open(env, &m.0, writable()).expect("opens");
    let (v, c) = (g.volume("main").unwrap(), g.volume("cold").unwrap());
    write(env, &v, 0, &[1; CHUNK as usize]).unwrap();
    write(env, &c, 0, &[0xaa; CHUNK as usize]).unwrap();
    flush(env, &c).unwrap();
    pass(env, 60);
    let copies = m.copy();
    write(env, &v, 0, &[2; CHUNK as usize]).unwrap();
    write(env, &c, 4096, &[0xab; 4096]).unwrap();
    flush(env, &c).unwrap();
    if !in_place {
        write(env, &v, CHUNK, &[3; CHUNK as usize]).unwrap();
        trim(env, &c, 0, CHUNK);
        flush(env, &c).unwrap();
        pass(env, 60);
        write(env, &c, 8 * CHUNK, &[0xbb; CHUNK as usize]).unwrap();
        flush(env, &c).unwrap();
        pass(env, 60);
    }
    (g, copies)
}

/// These devices are refused because of `member`, also to be read.
fn refused_as_old(env: &MemoryEnv, devices: &[MemoryDevice], old: u8, why: &dyn std::fmt::Debug) {
    for options in [writable(), read_only()] {
        match open(env, devices, options).map(|g| g.status().recovery) {
            Err(OpenError::Stale { member, .. }) => assert_eq!(member, old, "{why:?}"),
            other => panic!("{why:?}: {other:?}"),
        }
    }
}

/// The group with the copy of one member in its place.
fn with(m: &Members, copies: &Members, which: usize) -> Members {
    let mut mixed = m.copy();
    mixed.0[which] = copies.copy().0.swap_remove(which);
    mixed
}

#[test]
fn after_a_stop_a_copy_from_before_it_is_refused() {
    for in_place in [false, true] {
        for which in 0..2 {
            let env = MemoryEnv::new();
            let m = pair(&env);
            let (g, copies) = session(&env, &m, in_place);
            stop(&env, g).expect("an orderly stop");
            refused_as_old(&env, &with(&m, &copies, which).0, which as u8, &(in_place, which));
            // Both together are the group as it was.
            let then = open(&env, &copies.copy().0, writable()).expect("as after a power cut");
            assert_eq!(read(&env, &then.volume("main").unwrap(), 0, 4096).unwrap()[0], 1);
            // A start that is cut off after its first label takes nothing of that away.
            let mut started = m.copy();
            started.0[1].writes_left.set(0);
            assert!(open(&env, &started.0, writable()).is_err(), "the second member takes no writes");
            started.0[1] = started.0[1].copy();
            started.0[1].writes_left.set(u64::MAX);
            if which == 1 {
                refused_as_old(&env, &with(&started, &copies, 1).0, 1, &"after a start that was cut off");
            }
            assert!(open(&env, &started.0, writable()).is_ok());
        }
    }
}

#[test]
fn after_a_crash_a_copy_that_lacks_what_the_disk_has_heard_of_is_refused() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let (g, copies) = session(&env, &m, false);
    env.kill();
    drop(g);
    let env = MemoryEnv::new();
    let mixed = with(&m, &copies, 0);
    let refusal = open(&env, &mixed.0, writable()).map(|_| ()).expect_err("the disk has heard of more");
    assert!(matches!(refusal, OpenError::Stale { member: 0, .. }), "{refusal}");
    // It may be that the SSD lost what it had confirmed: nothing that it has since given to another chunk is shown.
    let g = open(&env, &mixed.0, read_only()).expect("what the disk confirms can be read");
    assert!(g.status().recovery.iter().any(|f| f.contains("member 0 lacks commits")), "{:?}", g.status().recovery);
    for (volume, chunk) in [("main", 0), ("main", 1), ("cold", 0), ("cold", 8)] {
        let seen = read(&env, &g.volume(volume).unwrap(), chunk * CHUNK, 4096);
        assert!(seen.is_err(), "{volume} {chunk}: {:x?}", seen.map(|b| b[0]));
    }
    let healthy = open(&env, &m.copy().0, writable()).expect("a crash is no reason to refuse");
    assert_eq!(read(&env, &healthy.volume("main").unwrap(), 0, 4096).unwrap()[0], 2);
}

/// A start of the group that is cut off just before this member says that it has confirmed the epoch.
fn cut_off_before_confirmation(m: &Members, member: usize) -> MemoryDevice {
    let at_start = (0..60).rev().find_map(|writes| {
        let (env, devices) = (MemoryEnv::new(), m.copy());
        devices.0[member].writes_left.set(writes);
        let refused = open(&env, &devices.0, writable()).is_err();
        let label = devices.0[member].label();
        (refused && !label.epoch.confirmed && !label.clean).then(|| devices.0[member].copy())
    });
    at_start.expect("a start confirms last of all")
}

#[test]
fn after_a_crash_a_copy_from_the_start_of_the_session_is_refused() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let (g, _) = session(&env, &m, true);
    stop(&env, g).expect("an orderly stop");
    let copy = cut_off_before_confirmation(&m, 1);
    let env = MemoryEnv::new();
    let g = open(&env, &m.0, writable()).expect("opens");
    assert_eq!(m.0[1].label().epoch.id, copy.label().epoch.id, "the same start");
    write(&env, &g.volume("cold").unwrap(), 4096, &[0xbb; 4096]).unwrap();
    write(&env, &g.volume("main").unwrap(), 2 * CHUNK, &[3; 4096]).unwrap();
    flush(&env, &g.volume("main").unwrap()).unwrap();
    env.kill();
    drop(g);
    let env = MemoryEnv::new();
    copy.writes_left.set(u64::MAX);
    refused_as_old(&env, &[m.0[0].copy(), copy], 1, &"of the start");
    assert!(open(&env, &m.0, writable()).is_ok());
}

#[test]
fn a_copy_in_the_place_of_a_member_that_a_stop_has_marked_is_refused() {
    let env = MemoryEnv::new();
    let m = image::create_sized(&env, "tank", &[16], &[32, 32], Some(20 * MIB));
    let g = open(&env, &m.0, writable()).expect("opens");
    write(&env, &g.volume("main").unwrap(), 0, &[1; CHUNK as usize]).unwrap();
    flush(&env, &g.volume("main").unwrap()).unwrap();
    let copies = m.copy();
    write(&env, &g.volume("main").unwrap(), 0, &[2; 4096]).unwrap();
    env.kill();
    drop(g);
    let marked = (0..60).find_map(|writes| {
        let (env, devices) = (MemoryEnv::new(), m.copy());
        let g = open(&env, &devices.0, writable()).expect("after a crash");
        devices.0[2].writes_left.set(writes);
        let stopped = stop(&env, g).is_ok();
        let marks: Vec<bool> = devices.0.iter().map(|d| d.label().stopped).collect();
        (!stopped && marks == [true, true, false]).then(|| devices.copy())
    });
    let marked = marked.expect("a stop that is cut off before the last mark");
    marked.0[2].writes_left.set(u64::MAX);
    let env = MemoryEnv::new();
    assert!(open(&env, &marked.copy().0, writable()).is_ok(), "a stop that was cut off is a crash");
    // Its epoch is an older one; made to look like that of a copy of the very session.
    let old = copies.0[0].copy();
    old.set_label(&bimetal_format::label::Label { stopped: false, clean: false, ..marked.0[0].label() });
    refused_as_old(&env, &[old, marked.0[1].copy(), marked.0[2].copy()], 0, &"marks go by index");
}

/// The last block with records on a member's journal, in bytes from its beginning.
fn last_journal_block(d: &MemoryDevice) -> u64 {
    let (label, layout) = (d.label(), d.layout());
    let places = (0..layout.journal_blocks).map(|n| layout.journal + n * 4096);
    let numbered = places.filter_map(|place| {
        let salt = bimetal_format::Salt { group: label.group, member: label.member, place };
        let (head, records, _) = bimetal_format::journal::decode(&d.peek(place, 4096), &salt).ok()?;
        (!records.is_empty()).then_some((head.sequence, place))
    });
    numbered.max().expect("commits").1
}

#[test]
fn an_ssd_that_lost_its_last_commit_takes_no_writes_but_can_be_read_and_repaired() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let (g, _) = session(&env, &m, false);
    // The last commit is one that the disk hears of.
    let (v, c) = (g.volume("main").unwrap(), g.volume("cold").unwrap());
    trim(&env, &c, 8 * CHUNK, CHUNK);
    flush(&env, &c).unwrap();
    pass(&env, 10);
    env.kill();
    drop((g, v, c));
    let env = MemoryEnv::new();
    m.0[0].flip(last_journal_block(&m.0[0]) + 200, 1);
    let refusal = open(&env, &m.copy().0, writable()).map(|_| ()).expect_err("the disk has heard of more");
    assert!(matches!(refusal, OpenError::Stale { member: 0, .. }), "{refusal}");
    let g = open(&env, &m.copy().0, read_only()).expect("what the disk confirms can be read");
    assert!(g.status().recovery.iter().any(|f| f.contains("member 0 lacks commits")), "{:?}", g.status().recovery);
    let trimmed = read(&env, &g.volume("cold").unwrap(), 8 * CHUNK, 4096);
    assert!(trimmed.is_err(), "its slot may be another chunk's: {:?}", trimmed.map(|b| b[0]));
    let (e, devices) = (env.clone(), m.copy().0);
    let plan = env.block_on(async move { bimetal_volume::repair::Plan::new(e, devices, false).await }).expect("a plan");
    assert!(plan.reasons().iter().any(|r| r.contains("member 0 lacks commits")), "{:?}", plan.reasons());
}

#[test]
fn a_stop_that_is_cut_off_anywhere_is_a_crash() {
    let made = pair(&MemoryEnv::new());
    let cut_off = |member: usize, writes: u64| {
        let env = MemoryEnv::new();
        let m = made.copy();
        let g = open(&env, &m.0, writable()).expect("opens");
        let v = g.volume("main").unwrap();
        write(&env, &v, 0, &[9; 4096]).unwrap();
        flush(&env, &v).unwrap();
        m.0[member].writes_left.set(writes);
        let stopped = stop(&env, g).is_ok();
        let after = m.copy();
        after.0[member].writes_left.set(u64::MAX);
        let g = open(&env, &after.0, writable()).unwrap_or_else(|e| panic!("{member} after {writes}: {e}"));
        assert_eq!(read(&env, &g.volume("main").unwrap(), 0, 4096).unwrap(), [9; 4096]);
        stopped
    };
    for member in 0..2 {
        let writes = (0..200).find(|writes| cut_off(member, *writes)).expect("a stop has few writes");
        assert!(writes > 4, "two labels twice, and what comes before");
    }
}

/// A daemon is killed while in use; then one member takes no writes for a while, and the service is started again and again.
#[test]
fn many_starts_that_are_cut_off_do_not_look_like_a_fork() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let g = open(&env, &m.0, writable()).expect("opens");
    let v = g.volume("main").unwrap();
    write(&env, &v, 0, &[9; 4096]).unwrap();
    flush(&env, &v).unwrap();
    env.kill();
    drop((g, v));
    let env = MemoryEnv::new();
    // Else epochs of before come again.
    for _ in 0..100_000 {
        let _before = env.random();
    }
    for n in 0..150 {
        // Its journal, its away bits and one copy of its label are written anew, its label is not flipped.
        m.0[1].writes_left.set(3);
        assert!(open(&env, &m.0, writable()).is_err(), "start {n}");
    }
    assert_ne!(
        m.0[0].label().epoch.id,
        m.0[1].label().epoch.id,
        "each of them began an epoch on the first member alone"
    );
    m.0[1].writes_left.set(u64::MAX);
    let g = open(&env, &m.0, writable()).expect("as soon as the member is healthy");
    assert_eq!(read(&env, &g.volume("main").unwrap(), 0, 4096).unwrap(), [9; 4096]);
}

/// A logical volume was enlarged below a member; then its first label is damaged, torn or gone.
#[test]
fn the_second_label_of_a_member_that_has_grown_is_found() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let grown = Members(vec![m.0[0].clone(), m.0[1].resized(40 * MIB)]);
    let g = open(&env, &grown.0, writable()).expect("a larger device is no harm");
    write(&env, &g.volume("main").unwrap(), 0, &[9; 4096]).unwrap();
    stop(&env, g).unwrap();
    let place = bimetal_format::layout::LABEL_A;
    let torn = grown.copy();
    torn.0[1].flip(place + 16, 1);
    let g = open(&env, &torn.0, writable()).expect("the second label is where the device ended");
    assert_eq!(read(&env, &g.volume("main").unwrap(), 0, 4096).unwrap(), [9; 4096]);
    assert!(g.status().recovery.iter().any(|f| f.contains("label at byte")), "{:?}", g.status().recovery);
    // Even what it says of its size is wrong, but the device has not grown.
    let rotten = pair(&env);
    rotten.0[1].flip(place + 152 + 3, 1);
    assert!(open(&env, &rotten.0, writable()).is_ok(), "the second label is where the device ends");
    // Nothing is left of it: a repair finds the second by the size that the others tell, and says why there is something to repair.
    let gone = grown.copy();
    gone.0[1].poke(place, &vec![0; 65536]);
    assert!(open(&env, &gone.0, writable()).is_err());
    let (e, devices) = (env.clone(), gone.0.clone());
    let plan = env.block_on(async move { bimetal_volume::repair::Plan::new(e, devices, false).await }).expect("a plan");
    assert!(
        plan.reasons().iter().any(|r| r.contains("of member 1 the first label is damaged")),
        "{:?}",
        plan.reasons()
    );
    // The same where the first cannot even be read.
    let unread = gone.copy();
    unread.0[1].misread.borrow_mut().insert(place / 4096);
    let (e, devices) = (env.clone(), unread.0.clone());
    let seen = env.block_on(async move { bimetal_volume::repair::Plan::new(e, devices, false).await }).expect("a plan");
    assert!(seen.missing().is_empty() && !seen.reasons().is_empty(), "{:?}", seen.reasons());
    env.block_on(async move { plan.carry_out().await }).expect("repaired");
    let g = open(&env, &gone.0, writable()).expect("it has both labels again");
    assert_eq!(read(&env, &g.volume("main").unwrap(), 0, 4096).unwrap(), [9; 4096]);
}

#[test]
fn numbers_that_no_group_comes_to_are_not_written_on_from() {
    for which in 0..3 {
        let env = MemoryEnv::new();
        let m = pair(&env);
        let (g, _) = session(&env, &m, false);
        stop(&env, g).unwrap();
        for d in &m.0 {
            let mut l = d.label();
            let most = (1 << 62) - 1;
            match which {
                0 => l.generation = most,
                1 => l.sequence = most,
                _ => l.tables = most,
            }
            d.set_label(&l);
        }
        let refusal =
            open(&env, &m.0, writable()).map(|_| ()).expect_err("what is written then could not be read again");
        assert!(refusal.to_string().contains("no group can have come to"), "{refusal}");
        assert!(open(&env, &m.0, read_only()).is_ok(), "{which}");
    }
}

#[test]
fn a_clock_that_no_policy_comes_to_is_borne() {
    let env = MemoryEnv::new();
    let m = pair(&env);
    let (g, _) = session(&env, &m, false);
    stop(&env, g).expect("an orderly stop");
    for clock in [u64::MAX, u64::MAX - (40 << 32), 1 << 63] {
        for d in &m.0 {
            let mut l = d.label();
            l.policy_clock = clock;
            d.set_label(&l);
        }
        let env = MemoryEnv::new();
        let g = open(&env, &m.0, writable()).expect("opens");
        let v = g.volume("cold").expect("there");
        (0..500u64).for_each(|n| drop(read(&env, &v, n % 100 * CHUNK, 4096).expect("read")));
        pass(&env, 100);
        stop(&env, g).expect("an orderly stop");
    }
}

/// Two SSDs and a disk. The second SSD is put back as it was before some flushed commits, and of the first something rots.
fn old_ssd_beside_rot(rot: impl FnOnce(&MemoryDevice)) -> Members {
    let env = MemoryEnv::new();
    let devices: Vec<MemoryDevice> = [16, 16, 64].map(|mib| MemoryDevice::new(mib * MIB)).into();
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Fast, Tier::Slow]).collect();
    make(&env, members, image::small(vec![volume("main", 20, Placement::Auto)]));
    let g = open(&env, &devices, writable()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..4).for_each(|c| write(&env, &v, c * CHUNK, &[1; CHUNK as usize]).expect("write"));
    flush(&env, &v).expect("flush");
    pass(&env, 60);
    let old = devices[1].copy();
    for c in 4..8 {
        write(&env, &v, c * CHUNK, &[c as u8 + 1; CHUNK as usize]).expect("write");
        flush(&env, &v).expect("flush");
    }
    pass(&env, 60);
    env.kill();
    drop((g, v));
    rot(&devices[0]);
    Members(vec![devices[0].copy(), old, devices[2].copy()])
}

#[test]
fn an_old_ssd_is_refused_also_if_the_other_one_is_not_whole() {
    refused_as_old(&MemoryEnv::new(), &old_ssd_beside_rot(|_| {}).0, 1, &"sound");
    let journal = |d: &MemoryDevice| {
        let blocks = image::places::journal_blocks(d);
        d.flip(blocks[blocks.len() - 3], 1);
    };
    refused_as_old(&MemoryEnv::new(), &old_ssd_beside_rot(journal).0, 1, &"a block of the journal rots");
    let directory = |d: &MemoryDevice| d.flip(d.layout().root_block(0, d.label().root_side) + 100, 1);
    refused_as_old(&MemoryEnv::new(), &old_ssd_beside_rot(directory).0, 1, &"the page directory rots");
}

/// One that holds nothing is left alone: changes went on without it. This one did not let them.
#[test]
fn an_old_copy_of_a_disk_that_leaves_and_still_holds_something_is_called_so() {
    let env = MemoryEnv::new();
    let devices = [16, 32, 32].map(|mib| MemoryDevice::new(mib * MIB)).to_vec();
    let members = devices.iter().cloned().zip([Tier::Fast, Tier::Slow, Tier::Slow]).collect();
    make(&env, members, small(vec![volume("cold", 16, Placement::SlowOnly)]));
    let m = Members(devices);
    let g = open(&env, &m.0, writable()).expect("opens");
    let c = g.volume("cold").expect("there");
    write(&env, &c, 0, &[7; 8 << 20]).expect("written");
    flush(&env, &c).expect("flushed");
    image::evacuate(&env, &g, 2);
    assert!(image::used(&g, 2) > 0, "nothing moves here");
    let copies = m.copy();
    for name in ["one", "two"] {
        let (g, new) = (g.clone(), volume(name, 1, Placement::Auto));
        env.block_on(async move { g.create_volume(&new).await }).expect("made");
    }
    drop((c, g));
    let before = with(&m, &copies, 2);
    let refused = open(&env, &before.0, writable()).err().expect("it is not the disk");
    assert!(matches!(refused, OpenError::Stale { member: 2, .. }), "{refused}");
    open(&env, &m.0, writable()).expect("the disk itself");
}

/// A member that has lost its labels, beside an old copy of the other one: its slots hold other chunks by now than the copy's map says, and
/// pages from the time of the copy are there yet.
#[test]
fn a_member_without_labels_that_was_used_long_after_an_old_copy_is_not_taken_with_it() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[32], &[64], Some(40 * MIB));
    let fill = |bytes: std::ops::Range<u8>| {
        let g = open(&env, &m.0, writable()).expect("opens");
        let v = g.volume("main").expect("there");
        for n in bytes {
            write(&env, &v, u64::from(n) * 4096, &[n; 4096]).and_then(|()| flush(&env, &v)).expect("write");
        }
        stop(&env, g).expect("an orderly stop");
    };
    let bare = |member: usize| {
        let d = m.0[member].copy();
        [LABEL_A, label_b(d.size)].into_iter().for_each(|place| d.poke(place, &[0; LABEL_SIZE]));
        d
    };
    let plan_of = |devices: Vec<MemoryDevice>| env.block_on(Plan::new(env.clone(), devices, false)).expect("a plan");
    fill(1..5);
    let old = m.copy();
    for member in 0..2 {
        let plan = plan_of(vec![old.0[1 - member].copy(), bare(member)]);
        assert!(plan.failed().is_empty() && plan.missing().is_empty(), "{member}: {:?}", plan.failed());
    }
    fill(5..9);
    fill(9..12);
    for member in 0..2 {
        let plan = plan_of(vec![old.0[1 - member].copy(), bare(member)]);
        assert_eq!(plan.failed().iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1], "{member}");
        assert_eq!(plan.held_back(), [1], "{member}");
        assert!(plan.failed()[0].1.contains("older copies"), "{}", plan.failed()[0].1);
        assert_eq!((plan.missing().len(), plan.members()), (1, &[0][..]), "{member}");
        // With what was used with it, it is known as ever.
        let plan = plan_of(vec![m.0[1 - member].copy(), bare(member)]);
        assert!(plan.failed().is_empty() && plan.missing().is_empty(), "{member}: {:?}", plan.failed());
    }
}
