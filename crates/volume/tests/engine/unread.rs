//! Metadata that a member cannot read now, and may read another time: it is asked for again, and given up by nobody unasked.

use bimetal_volume::repair::Plan;

use crate::image::places::{places, Place};
use crate::image::sample::sample;
use crate::image::{open, writable, Members};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;
/// More than anybody has patience for.
const ALWAYS: u32 = 1_000_000;

fn fails(members: &Members, p: &Place, times: u32) {
    members.0[p.member].unread.borrow_mut().insert(p.bytes.start / BLOCK, times);
}

/// Bytes that a repair with these would give up for want of reading.
fn unread(devices: &[MemoryDevice]) -> u64 {
    let (env, devices) = (MemoryEnv::new(), devices.to_vec());
    let e = env.clone();
    env.block_on(async move { Plan::new(e, devices, false).await.expect("the map can be read").unread() })
}

#[test]
fn what_fails_for_a_while_at_a_start_costs_nothing() {
    let s = sample(&MemoryEnv::new(), &[8], &[16], false);
    for p in places(&s.members).into_iter().filter(|p| ["root", "directory", "page"].contains(&p.what)) {
        let members = s.members.copy();
        fails(&members, &p, 4);
        let env = MemoryEnv::new();
        let group = open(&env, &members.0, writable()).expect("it is read at last");
        assert!(group.status().recovery.is_empty(), "{p:?}: {:?}", group.status().recovery);
    }
}

#[test]
fn a_repair_says_what_it_would_give_up_for_want_of_reading() {
    let s = sample(&MemoryEnv::new(), &[8], &[16], true);
    let pages = places(&s.members).into_iter().filter(|p| p.what == "page" && p.member == 1);
    for p in pages {
        // The fast member is gone for good, and the disk fails where its map is.
        let members = s.members.copy();
        fails(&members, &p, ALWAYS);
        assert_eq!(unread(&members.0[1..]), 252 * (128 << 10), "{p:?}");
        // The cable was loose.
        fails(&members, &p, 0);
        assert_eq!(unread(&members.0[1..]), 0);
        // What is damaged, and can be read, does not get better.
        members.0[1].flip(p.bytes.start + 100, 1);
        assert_eq!(unread(&members.0[1..]), 0);
    }
}
