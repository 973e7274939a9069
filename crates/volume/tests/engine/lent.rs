//! A page of the map that is damaged on the member whose map counts is lent by one that knows as much, however old its copy is.

use bimetal_volume::units::{BLOCK, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::places::{places, Place};
use crate::image::*;
use crate::memory::MemoryEnv;

/// Chunks of which a page of the map tells.
const PAGE: u64 = 252 * CHUNK;

fn start(env: &MemoryEnv, m: &Members) -> (Group<MemoryEnv>, Volume<MemoryEnv>) {
    let group = open(env, &m.0, writable()).expect("opens");
    let v = group.volume("main").expect("made at creation");
    (group, v)
}

fn first_page(m: &Members, member: usize) -> Place {
    places(m).into_iter().find(|p| p.member == member && p.what == "page").expect("it has one")
}

fn generation(m: &Members, member: usize) -> u64 {
    let at = first_page(m, member).bytes.start;
    bimetal_format::page::decode(&m.0[member].peek(at, BLOCK as usize), &places::salt(&m.0[member], at))
        .expect("sound")
        .0
        .generation
}

/// A stop saves heat to the SSD only, so that its copy of a page is newer than the disk's, which says the same.
#[test]
fn a_disk_that_is_not_told_of_heat_lends_its_page() {
    let env = MemoryEnv::new();
    let m = create(&env, "tank", &[16], &[64]);
    let (group, v) = start(&env, &m);
    write(&env, &v, 0, &[1; 4096]).expect("write");
    write(&env, &v, PAGE, &[2; 4096]).expect("write");
    stop(&env, group).expect("orderly stop");
    let (group, v) = start(&env, &m);
    for _ in 0..12 {
        read(&env, &v, 0, 4096).expect("read");
        pass(&env, 3);
    }
    write(&env, &v, PAGE + CHUNK, &[3; 4096]).expect("write");
    stop(&env, group).expect("orderly stop");
    assert!(generation(&m, 1) < generation(&m, 0), "the SSD's is newer");

    m.0[0].flip(first_page(&m, 0).bytes.start + 100, 1);
    let report = check(&env, &m.0).expect("checked");
    assert!(!report.problems.is_empty() && report.problems.iter().all(|p| !p.serious), "{:?}", report.problems);
    let (group, v) = start(&env, &m);
    let found = group.status().recovery;
    assert!(found.iter().any(|f| f.contains("map page 0: damaged on member 0, taken from another")), "{found:?}");
    drop((group, v));
    env.kill();

    // The disk's word counts no more, and is not needed: the page was written before anything was served.
    let (group, v) = start(&env, &m);
    assert_eq!(group.status().recovery, Vec::<String>::new());
    for (at, byte) in [(0, 1), (PAGE, 2), (PAGE + CHUNK, 3)] {
        assert_eq!(read(&env, &v, at, BLOCK).expect("read"), [byte; 4096], "{at}");
    }
    stop(&env, group).expect("orderly stop");
    assert_eq!(check(&env, &m.0).expect("checked").problems, []);
}
