//! A repair with a new device is cut off when only that one is done, and then done without it. Then it comes back.

use bimetal_format::label::{Label, Repair, LABEL_SIZE};
use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::Tier;

use crate::image::{create_sized, flush, open, read, read_only, repair, stop, writable, write, Members, MIB};
use crate::memory::{MemoryDevice, MemoryEnv};

/// Writes `value` to all of the volume.
fn session(env: &MemoryEnv, members: &[MemoryDevice], value: u8) {
    let g = open(env, members, writable()).map_err(|e| e.to_string()).expect("opens");
    let v = g.volume("main").expect("there");
    (0..8).for_each(|n| write(env, &v, n * MIB, &[value; MIB as usize]).expect("written"));
    flush(env, &v).expect("flushed");
    stop(env, g).expect("orderly stop");
}

/// A start does without whatever has come back, and all of the volume is what was written last.
fn is_left_alone(env: &MemoryEnv, members: &[MemoryDevice], back: &[MemoryDevice], value: u8) {
    let all: Vec<MemoryDevice> = members.iter().chain(back).cloned().collect();
    let g = open(env, &all, writable()).map_err(|e| e.to_string()).expect("it is none of them");
    let v = g.volume("main").expect("there");
    let lost = (0..64).filter(|n| !read(env, &v, n * MIB / 8, 4096).is_ok_and(|b| b[0] == value)).count();
    assert_eq!(lost, 0, "of 64 chunks");
}

fn has_labels(d: &MemoryDevice) -> bool {
    [LABEL_A, label_b(d.size)].iter().all(|place| Label::decode(&d.peek(*place, LABEL_SIZE), *place).is_ok())
}

/// What is left of a group is repaired with a new device in place of one that is gone, until that one is done and nothing else.
fn done_on_a_new_one(env: &MemoryEnv, rest: &[MemoryDevice], tier: Tier, size: u64) -> MemoryDevice {
    let done = |d: &MemoryDevice| d.label().repair == Repair::Done;
    for writes in 0..100 {
        let (copy, new) = (rest.iter().map(MemoryDevice::copy).collect::<Vec<_>>(), MemoryDevice::new(size));
        copy[0].writes_left.set(writes);
        let (e, disks, disk) = (env.clone(), copy.clone(), new.clone());
        let cut_off = env.block_on(async move {
            let mut plan = Plan::new(e, disks, false).await?;
            plan.add(disk, &NewMember { tier, force: false, journal_blocks: Some(16) }).await?;
            plan.carry_out().await
        });
        assert!(cut_off.is_err(), "cut off by then");
        if has_labels(&new) && done(&new) && !copy.iter().any(|d| d.label().epoch.id == new.label().epoch.id) {
            rest.iter().zip(&copy).for_each(|(d, c)| drop(d.blocks.replace(c.blocks.borrow().clone())));
            return new;
        }
    }
    panic!("never done on the new one alone");
}

/// Two SSDs and a disk; the second SSD is gone, and a repair with a new one is done on that one only.
fn with_a_leftover(env: &MemoryEnv) -> (Members, Vec<MemoryDevice>, MemoryDevice) {
    let m = create_sized(env, "tank", &[16, 16], &[32], Some(8 * MIB));
    session(env, &m.0, 7);
    let rest = vec![m.0[0].clone(), m.0[2].clone()];
    let new = done_on_a_new_one(env, &rest, Tier::Fast, 16 * MIB);
    (m, rest, new)
}

#[test]
fn a_new_device_of_a_repair_that_was_done_without_it_is_left_alone() {
    let env = MemoryEnv::new();
    let (_, rest, new) = with_a_leftover(&env);
    repair(&env, &rest).expect("an SSD and a disk are left");
    session(&env, &rest, 8);
    is_left_alone(&env, &rest, &[new], 8);
}

/// The SSD in whose place it came works again.
#[test]
fn a_new_device_of_a_repair_that_was_done_with_the_old_one_strikes_off_nobody() {
    let env = MemoryEnv::new();
    let (m, _, new) = with_a_leftover(&env);
    let report = repair(&env, &m.0).expect("all are there");
    assert_eq!((report.given_up, report.struck_off), (0, vec![]));
    session(&env, &m.0, 8);
    is_left_alone(&env, &m.0, &[new], 8);
}

/// So does the last member, which knows nothing of the repair and is otherwise as new as the others.
#[test]
fn a_new_device_of_a_repair_that_was_done_with_the_last_member_is_left_alone() {
    let env = MemoryEnv::new();
    let m = create_sized(&env, "tank", &[16], &[32, 32], Some(8 * MIB));
    session(&env, &m.0, 7);
    let new = done_on_a_new_one(&env, &m.0[..2], Tier::Slow, 32 * MIB);
    repair(&env, &m.0).expect("all are there");
    session(&env, &m.0, 8);
    is_left_alone(&env, &m.0, &[new], 8);
}

/// Years later another member is gone, and that repair has another number.
#[test]
fn a_new_device_of_a_repair_that_was_done_without_it_is_left_alone_after_another_repair() {
    let env = MemoryEnv::new();
    let (_, rest, new) = with_a_leftover(&env);
    repair(&env, &rest).expect("an SSD and a disk are left");
    session(&env, &rest, 8);
    repair(&env, &rest).expect("whole");
    is_left_alone(&env, &rest.iter().map(MemoryDevice::copy).collect::<Vec<_>>(), &[new.copy()], 8);
    session(&env, &rest, 9);
    is_left_alone(&env, &rest, &[new], 9);
}

/// Of several attempts, too, one of which went on from another and was cut off where that was.
#[test]
fn new_devices_of_several_attempts_are_left_alone_after_another_repair() {
    let env = MemoryEnv::new();
    let (_, rest, first) = with_a_leftover(&env);
    let with_first: Vec<MemoryDevice> = rest.iter().chain([&first]).cloned().collect();
    let second = done_on_a_new_one(&env, &with_first, Tier::Fast, 16 * MIB);
    assert!(second.label().epoch.history.contains(&first.label().epoch.id), "it goes on from the first");
    repair(&env, &rest).expect("an SSD and a disk are left");
    session(&env, &rest, 8);
    repair(&env, &rest).expect("whole");
    session(&env, &rest, 9);
    is_left_alone(&env, &rest, &[first, second], 9);
}

/// Its map is the only one that is whole, and is so after another attempt that was cut off.
#[test]
fn a_repair_goes_on_from_a_new_device_and_ends_with_it() {
    let env = MemoryEnv::new();
    let (_, rest, new) = with_a_leftover(&env);
    assert!(new.label().joining);
    let all: Vec<MemoryDevice> = rest.into_iter().chain([new]).collect();
    let refused = open(&env, &all, writable()).map(drop).map_err(|e| e.to_string());
    assert!(refused.as_ref().is_err_and(|e| e.contains("repair")), "it is not done yet: {refused:?}");
    let report = repair(&env, &all).expect("done");
    assert_eq!(report.struck_off, vec![], "the new one is a member");
    assert!(all.iter().all(|d| d.label().repair == Repair::Done));
    session(&env, &all, 8);
    assert!(all.iter().all(|d| !d.label().joining), "it is one like any other from the first start on");
    is_left_alone(&env, &all, &[], 8);
}

/// The next attempt is made without it, and cut off when one member is done: that says what the group is.
#[test]
fn a_new_device_does_not_count_any_more_when_the_repair_is_done_on_a_member_without_it() {
    let env = MemoryEnv::new();
    let (_, rest, new) = with_a_leftover(&env);
    cut_off_half_way(&env, &rest);
    let all: Vec<MemoryDevice> = rest.iter().chain([&new]).cloned().collect();
    drop(open(&env, &all, read_only()).map_err(|e| e.to_string()).expect("one member has the map"));
    let report = repair(&env, &all).expect("goes on");
    assert_eq!((report.struck_off, report.given_up), (vec![], 0));
    session(&env, &rest, 8);
    is_left_alone(&env, &rest, &[new], 8);
}

/// What is left of a group is repaired until one member is done and another is not.
fn cut_off_half_way(env: &MemoryEnv, rest: &[MemoryDevice]) {
    for writes in 0..100 {
        let copy: Vec<MemoryDevice> = rest.iter().map(MemoryDevice::copy).collect();
        copy[1].writes_left.set(writes);
        let cut_off = repair(env, &copy).is_err();
        if cut_off && copy.iter().filter(|d| d.label().repair == Repair::Done).count() == 1 {
            rest.iter().zip(&copy).for_each(|(d, c)| drop(d.blocks.replace(c.blocks.borrow().clone())));
            return;
        }
    }
    panic!("never done on one alone");
}

/// The SSD that was left dies then, and the labels of the disk are damaged: the new one alone says who that is.
#[test]
fn a_new_device_on_which_alone_a_repair_is_done_tells_who_the_others_are() {
    let env = MemoryEnv::new();
    let (_, rest, new) = with_a_leftover(&env);
    let disk = &rest[1];
    [LABEL_A, label_b(disk.size)].into_iter().for_each(|place| disk.poke(place, &[0; LABEL_SIZE]));
    let report = repair(&env, &[disk.clone(), new.clone()]).expect("a disk and an SSD are left");
    assert_eq!(report.struck_off, vec![0], "the SSD that has died, and not the disk");
    session(&env, &[disk.clone(), new], 8);
}

/// The repair goes on with another new device, which has the same place in the group: its members, and the first one.
fn with_another_new_one(env: &MemoryEnv) -> (Vec<MemoryDevice>, MemoryDevice) {
    let (_, rest, first) = with_a_leftover(env);
    let second = MemoryDevice::new(16 * MIB);
    let (e, disks, disk) = (env.clone(), rest.clone(), second.clone());
    let repaired = env.block_on(async move {
        let mut plan = Plan::new(e, disks, false).await?;
        plan.add(disk, &NewMember { tier: Tier::Fast, force: false, journal_blocks: Some(16) }).await?;
        plan.carry_out().await
    });
    repaired.expect("done");
    (rest.into_iter().chain([second]).collect(), first)
}

#[test]
fn a_new_device_of_a_repair_that_was_done_with_another_new_one_is_left_alone() {
    let env = MemoryEnv::new();
    let (members, first) = with_another_new_one(&env);
    // What was on the SSD that is gone reads as zeros.
    let copies: Vec<MemoryDevice> = members.iter().map(MemoryDevice::copy).collect();
    is_left_alone(&env, &copies, &[first.copy()], 0);
    session(&env, &members, 8);
    is_left_alone(&env, &members, &[first], 8);
}

/// Both labels of the other new device, which has the same place in the group, are damaged.
#[test]
fn a_new_device_of_a_repair_that_was_done_without_it_keeps_no_member_from_being_recognised() {
    let env = MemoryEnv::new();
    let (members, first) = with_another_new_one(&env);
    session(&env, &members, 8);
    let labels = [LABEL_A, label_b(members[2].size)];
    labels.into_iter().for_each(|place| members[2].poke(place, &[0; LABEL_SIZE]));
    let all: Vec<MemoryDevice> = members.iter().chain([&first]).cloned().collect();
    let report = repair(&env, &all).expect("all members are there");
    assert_eq!((report.given_up, report.struck_off), (0, vec![]));
    is_left_alone(&env, &members, &[], 8);
}
