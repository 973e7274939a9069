//! A page of the map that is damaged on the member whose map counts is lent by one that knows as much, however old its copy is.

use bimetal_volume::error::Error;
use bimetal_volume::fate::Fate;
use bimetal_volume::options::{CreateOptions, NewVolume, OpenOptions};
use bimetal_volume::units::{Placement, Tier, BLOCK, CHUNK};
use bimetal_volume::{Group, Volume};

use crate::image::places::{places, Place};
use crate::image::*;
use crate::memory::{MemoryDevice, MemoryEnv};

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

/// A group that was in use, with a volume on the disk of which the SSD has a page that is newer than the disk's.
fn crashed(env: &MemoryEnv) -> Members {
    let m = Members(vec![MemoryDevice::new(16 * MIB), MemoryDevice::new(64 * MIB)]);
    let volume = |name: &str, placement| NewVolume { name: name.into(), size: Some(8 * MIB), placement };
    let volumes = vec![volume("main", Placement::Auto), volume("cold", Placement::SlowOnly)];
    let members = vec![(m.0[0].clone(), Tier::Fast), (m.0[1].clone(), Tier::Slow)];
    make(env, members, CreateOptions { journal_blocks: Some(64), ..small(volumes) });
    let options = || OpenOptions { migrate: false, ..writable() };
    let group = open(env, &m.0, options()).expect("opens");
    let cold = group.volume("cold").expect("made at creation");
    write(env, &cold, 0, &[1; 4096]).expect("write");
    stop(env, group).expect("orderly stop");
    let group = open(env, &m.0, options()).expect("opens");
    let (main, cold) = (group.volume("main").expect("its volume"), group.volume("cold").expect("its volume"));
    write(env, &cold, CHUNK, &[2; 4096]).expect("write");
    let begun = m.0[0].label().journal_tail;
    for n in 0..64 {
        write(env, &main, n % 40 * CHUNK + n / 40 * BLOCK, &[3; 4096]).expect("write");
        flush(env, &main).expect("flush");
    }
    assert!(m.0[0].label().journal_tail > begun, "the SSD has made a checkpoint");
    drop((group, main, cold));
    env.kill();
    m
}

/// The pages of both volumes rot on the SSD.
#[test]
fn of_a_page_that_nobody_has_a_disk_knows_what_it_holds_itself() {
    let env = MemoryEnv::new();
    let m = crashed(&env);
    for p in places(&m).into_iter().filter(|p| p.member == 0 && p.what == "page") {
        m.0[0].flip(p.bytes.start + 100, 1);
    }
    assert!(open(&env, &m.0, writable()).is_err(), "something would be lost in silence");
    let group = open(&env, &m.0, read_only()).expect("readable");
    let (main, cold) = (group.volume("main").expect("its volume"), group.volume("cold").expect("its volume"));
    assert_eq!(read(&env, &cold, 0, BLOCK).expect("the disk has it"), [1; 4096]);
    let fates: Vec<Fate> = cold.fates(0, 2 * BLOCK, 9).expect("in range").iter().map(|run| run.fate).collect();
    assert_eq!(fates, [Fate::PossiblyStale, Fate::PerhapsLost]);
    assert_eq!(read(&env, &cold, 9 * CHUNK, BLOCK), Err(Error::Lost), "who knows");
    // Of what is on the SSD the journal knows what has changed since the last checkpoint.
    let known: Vec<bool> = (0..40).map(|n| read(&env, &main, n * CHUNK, BLOCK) == Ok(vec![3; 4096])).collect();
    assert!(known.contains(&true) && known.contains(&false), "{known:?}");
    drop((group, main, cold));

    repair(&env, &m.0).expect("a repair keeps what is served");
    let group = open(&env, &m.0, writable()).expect("opens");
    let cold = group.volume("cold").expect("its volume");
    assert_eq!(read(&env, &cold, 0, BLOCK).expect("read"), [1; 4096]);
    assert_eq!(read(&env, &cold, 9 * CHUNK, BLOCK).expect("read"), [0; 4096]);
    let main = group.volume("main").expect("its volume");
    let kept: Vec<bool> = (0..40).map(|n| read(&env, &main, n * CHUNK, BLOCK) == Ok(vec![3; 4096])).collect();
    assert_eq!(kept, known);
    stop(&env, group).expect("orderly stop");
    assert_eq!(check(&env, &m.0).expect("checked").problems, []);
}
