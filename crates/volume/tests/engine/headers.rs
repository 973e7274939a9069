//! Headers of families that are damaged on some members: others give them back, and nobody takes the last one along.

use bimetal_volume::error::Error;
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::units::Tier;
use bimetal_volume::Group;

use crate::family::{family, header, header_block, Rig};
use crate::image;
use crate::image::check_in_use;
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: u64 = 4096;

fn spoil(d: &MemoryDevice, name: &str) {
    d.flip(header_block(d, name) * BLOCK + 100, 1);
}

fn is_whole(rig: &Rig, d: &MemoryDevice, name: &str, content: &[u8]) -> bool {
    rig.seconds(1);
    d.peek(header_block(d, name) * BLOCK, content.len()) == content
}

/// Two families, whose headers are on both members.
fn two_families() -> (Rig, Group<MemoryEnv>) {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    rig.run(&g, |g| async move { g.create_family(family("other", 8, 2)).await }).expect("made");
    (rig, g)
}

#[test]
fn a_start_mends_headers_that_another_member_has_whole() {
    let (rig, g) = two_families();
    rig.stop(g);
    let [fast, slow] = &rig.devices[..] else { unreachable!() };
    // Each has what the other lacks.
    spoil(fast, "home");
    spoil(slow, "other");
    let told = image::check(&rig.env, &rig.devices).expect("verified");
    assert!(told.problems.len() == 2 && told.problems.iter().all(|p| !p.serious && !p.in_memory), "{told:?}");
    let g = rig.open();
    assert!(is_whole(&rig, fast, "home", &header(7, 3)) && is_whole(&rig, slow, "other", &header(8, 2)));
    let after = check_in_use(&rig.env, &g, false).expect("verified");
    assert!(after.problems.is_empty(), "{after:?}");
    rig.stop(g);
}

#[test]
fn one_that_is_lost_keeps_no_other_from_being_mended_and_stays_as_it_is() {
    let (rig, g) = two_families();
    rig.stop(g);
    let [fast, slow] = &rig.devices[..] else { unreachable!() };
    for d in [fast, slow] {
        spoil(d, "home");
    }
    spoil(fast, "other");
    let left = fast.peek(header_block(fast, "home") * BLOCK, 3 * BLOCK as usize);
    let g = rig.open();
    assert!(is_whole(&rig, fast, "other", &header(8, 2)));
    let told = check_in_use(&rig.env, &g, true).expect("verified");
    assert!(told.problems.len() == 2 && told.problems.iter().all(|p| p.serious && !p.mended), "{told:?}");
    assert!(told.problems[0].what.contains("no member has it whole"), "{told:?}");
    assert!(is_whole(&rig, fast, "home", &left), "what is left of it may be of use to somebody");
    rig.stop(g);
}

#[test]
fn a_check_mends_headers_in_use() {
    let (rig, g) = two_families();
    rig.seconds(1);
    let [fast, slow] = &rig.devices[..] else { unreachable!() };
    spoil(fast, "home");
    spoil(slow, "other");
    let told = check_in_use(&rig.env, &g, false).expect("verified");
    assert!(told.problems.len() == 2 && told.problems.iter().all(|p| p.in_memory && !p.mended), "{told:?}");
    let mended = check_in_use(&rig.env, &g, true).expect("verified");
    assert!(mended.is_sound() && mended.problems.iter().all(|p| p.mended), "{mended:?}");
    assert!(is_whole(&rig, fast, "home", &header(7, 3)) && is_whole(&rig, slow, "other", &header(8, 2)));
    // Where it cannot be written the group goes on.
    spoil(fast, "home");
    fast.bad.borrow_mut().insert(header_block(fast, "home"));
    let failed = check_in_use(&rig.env, &g, true).expect("verified");
    assert!(failed.problems.iter().any(|p| p.what.contains("could not be written anew")), "{failed:?}");
    assert_eq!(g.status().latched, None);
    rig.stop(g);
}

/// A third member comes, and the slow one is about to leave, empty, as the only one that has a header whole.
fn last_whole_one() -> (Rig, Group<MemoryEnv>, [MemoryDevice; 2]) {
    let (rig, g) = two_families();
    rig.seconds(1);
    let third = MemoryDevice::new(80 << 20);
    image::add(&rig.env, &g, &third, Tier::Slow);
    image::evacuate(&rig.env, &g, 1);
    let others = [rig.devices[0].clone(), third];
    others.iter().for_each(|d| spoil(d, "home"));
    (rig, g, others)
}

#[test]
fn a_member_that_leaves_gives_the_others_the_header_that_it_alone_has_whole() {
    let (rig, g, others) = last_whole_one();
    rig.run(&g, |g| async move { g.remove_member(1).await }).expect("it leaves");
    let read = rig.run(&g, |g| async move { g.family_header("home").await });
    assert_eq!(read.expect("whole"), header(7, 3));
    assert!(others.iter().all(|d| is_whole(&rig, d, "home", &header(7, 3))));
}

#[test]
fn a_member_stays_if_no_other_takes_the_header_that_it_alone_has_whole() {
    let (rig, g, others) = last_whole_one();
    for d in &others {
        d.bad.borrow_mut().insert(header_block(d, "home"));
    }
    let refused = rig.run(&g, |g| async move { g.remove_member(1).await });
    let only_here = StructureError::HeaderOnlyHere { name: "home".into(), index: 1 };
    assert_eq!(refused.map(|_| ()), Err(only_here));
    let read = rig.run(&g, |g| async move { g.family_header("home").await });
    assert_eq!(read.expect("nothing was taken along"), header(7, 3));
    assert_eq!(g.status().latched, None);
    others[1].bad.borrow_mut().clear();
    rig.run(&g, |g| async move { g.remove_member(1).await }).expect("one of them is enough");
}

#[test]
fn a_member_that_leaves_is_not_asked_for_headers_that_others_have() {
    let (rig, g, others) = last_whole_one();
    let _mended = check_in_use(&rig.env, &g, true).expect("verified");
    spoil(&others[0], "home");
    let first = header_block(&rig.devices[1], "home");
    rig.devices[1].unread.borrow_mut().insert(first, 100);
    rig.run(&g, |g| async move { g.remove_member(1).await }).expect("it leaves");
    assert_eq!(rig.devices[1].failed_reads.get(), 0);
}

/// A family, and a disk with a block that takes no writes, in the side of its keys that is in use (0), or in the other.
fn bad_side(of: usize) -> (Rig, Group<MemoryEnv>, MemoryDevice) {
    let rig = Rig::new();
    let (g, _) = rig.with_family();
    rig.seconds(1);
    let d = rig.devices[1].clone();
    let keys = d.label().layout().keys.expect("a zone");
    let side = (usize::from(d.label().keys_side) + of) % 2;
    d.bad.borrow_mut().insert(keys.sides[side] / BLOCK + 1);
    (rig, g, d)
}

/// The blocks of a device that hold a part of a header of this byte.
fn left_of(d: &MemoryDevice, byte: u8) -> usize {
    d.blocks.borrow().values().filter(|b| b[..] == header(byte, 1)[..]).count()
}

fn replace(rig: &Rig, g: &Group<MemoryEnv>, byte: u8) -> Result<(), StructureError> {
    rig.run(g, move |g| async move { g.replace_header("home", None, header(byte, 3)).await })
}

fn takes_writes(rig: &Rig, g: &Group<MemoryEnv>) {
    let v = g.volume("plain").expect("there");
    image::write(&rig.env, &v, 0, &[1; BLOCK as usize]).expect("it takes writes");
    image::flush(&rig.env, &v).expect("it takes writes");
}

#[test]
fn an_old_header_that_cannot_be_overwritten_takes_writes_from_nobody() {
    let (rig, mut g, d) = bad_side(0);
    replace(&rig, &g, 9).expect("the new one is everywhere");
    for _ in 0..2 {
        let told = g.status().recovery;
        assert!(told.len() == 1 && told[0].contains("member 1: a header that was replaced could not be"), "{told:?}");
        assert_eq!(left_of(&d, 7), 1, "all of it goes that can");
        takes_writes(&rig, &g);
        let told = check_in_use(&rig.env, &g, false).expect("verified");
        assert!(told.problems.len() == 1 && told.problems[0].serious, "{told:?}");
        rig.stop(g);
        g = rig.open();
        rig.seconds(5);
    }
    rig.stop(g);
    d.bad.borrow_mut().clear();
    let g = rig.open();
    rig.seconds(5);
    assert_eq!((left_of(&d, 7), g.status().recovery), (0, Vec::new()));
}

#[test]
fn a_header_that_cannot_be_written_fails_alone() {
    let (rig, g, d) = bad_side(1);
    let failed = replace(&rig, &g, 9);
    assert!(matches!(failed, Err(StructureError::Engine(Error::Device { member: 1, .. }))), "{failed:?}");
    takes_writes(&rig, &g);
    // Its passphrases were never to count.
    assert!(rig.devices.iter().all(|d| left_of(d, 9) == 0));
    let read = rig.run(&g, |g| async move { g.family_header("home").await });
    assert_eq!((read.expect("whole"), g.status().recovery), (header(7, 3), Vec::new()));
    d.bad.borrow_mut().clear();
    replace(&rig, &g, 9).expect("it can be written again");
    rig.stop(g);
}
