//! A member whose FLUSH fails, and which can be read: a dying SSD, a bridge, or one that has gone read-only. What a start builds upon must be
//! durable (C7.1), so none that writes uses it. Whoever only reads builds upon nothing.

use bimetal_volume::fate::Fate;
use bimetal_volume::group::OpenError;
use bimetal_volume::repair::{Plan, RepairError};

use crate::image::sample::{sample, Sample};
use crate::image::{check, open, read, read_only, repair, writable};
use crate::memory::{MemoryDevice, MemoryEnv};

/// A group with an SSD and a disk that has crashed, and one of them whose syncs fail from then on.
fn unflushed(member: usize) -> Sample {
    let s = sample(&MemoryEnv::new(), &[8], &[16], false);
    s.members.0[member].syncs_fail.set(true);
    s
}

fn writes(devices: &[MemoryDevice]) -> u64 {
    devices.iter().map(|d| d.writes.get()).sum()
}

#[test]
fn no_start_writes_with_a_member_whose_flush_fails() {
    for member in 0..2 {
        let s = unflushed(member);
        let why = open(&MemoryEnv::new(), &s.members.0, writable()).map(|_| ()).expect_err("refused");
        assert!(matches!(why, OpenError::Unflushed { device, .. } if device == member), "{why}");
        assert!(why.to_string().contains("FLUSH fails") && why.to_string().contains("can be read"), "{why}");
        assert_eq!(writes(&s.members.0), 0);
    }
}

#[test]
fn a_member_whose_flush_fails_is_read() {
    for member in 0..2 {
        let s = unflushed(member);
        let env = MemoryEnv::new();
        let g = open(&env, &s.members.0, read_only()).expect("opens");
        let v = g.volume("main").expect("there");
        assert_eq!(read(&env, &v, 0, s.now.len() as u64).expect("all of it"), s.now);
        let said = g.status().recovery;
        assert!(said.iter().any(|f| f.contains(&format!("member {member}: its FLUSH fails"))), "{said:?}");
        let report = check(&env, &s.members.0).expect("goes through it");
        let serious: Vec<&str> = report.problems.iter().filter(|p| p.serious).map(|p| p.what.as_str()).collect();
        assert!(serious.len() == 1 && serious[0].contains("FLUSH"), "{serious:?}");
        assert_eq!(writes(&s.members.0), 0);
    }
}

/// All of it can be had, and the labels of such a member could not be made to say what is done.
#[test]
fn a_repair_says_what_is_on_a_member_whose_flush_fails_and_writes_nothing() {
    for member in 0..2 {
        let s = unflushed(member);
        let (env, devices) = (MemoryEnv::new(), s.members.0.clone());
        let e = env.clone();
        let plan = env.block_on(async move { Plan::new(e, devices, false).await }).expect("a plan");
        assert!(plan.reasons().iter().any(|r| r.contains("FLUSH")), "{:?}", plan.reasons());
        assert!(plan.missing().is_empty() && plan.failed().is_empty());
        let of = |fate: Fate| plan.volumes().iter().map(|v| v.bytes[fate as usize]).sum::<u64>();
        assert_eq!(of(Fate::Whole) + of(Fate::NeverWritten), s.now.len() as u64);
        let why = repair(&MemoryEnv::new(), &s.members.0).expect_err("refused");
        assert!(matches!(why, RepairError::Unflushed { member: m, .. } if usize::from(m) == member), "{why}");
        assert_eq!(writes(&s.members.0), 0);
    }
}

/// Nothing shows that such a device is a member.
#[test]
fn a_device_that_is_neither_flushed_nor_read_has_failed() {
    let s = unflushed(0);
    let d = &s.members.0[0];
    d.unread.borrow_mut().extend((0..d.size / 4096).map(|block| (block, u32::MAX)));
    let why = open(&MemoryEnv::new(), &s.members.0, writable()).map(|_| ()).expect_err("refused");
    assert!(matches!(why, OpenError::Device { device: 0, .. }), "{why}");
    let env = MemoryEnv::new();
    let g = open(&env, &s.members.0, read_only()).expect("opens without it");
    assert!(g.status().recovery.iter().any(|f| f.starts_with("missing: member 0")), "{:?}", g.status().recovery);
}
