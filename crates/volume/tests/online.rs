//! A group is verified while it is in use: whatever is damaged under it is found, and mended from memory.

mod image;
mod memory;

use bimetal_volume::error::Error;
use bimetal_volume::inspect::Report;
use bimetal_volume::units::CHUNK;
use bimetal_volume::Group;
use image::places::{expected_words, places, Place};
use image::sample::{sample, Sample};
use image::{open, read, read_only, stop, writable, Members};
use memory::MemoryEnv;

fn check(env: &MemoryEnv, group: &Group<MemoryEnv>, mend: bool) -> Result<Report, Error> {
    let group = group.clone();
    env.block_on(async move { group.check(mend, &|over, of| assert!(over <= of)).await })
}

/// All that the volume must hold is there.
fn holds(env: &MemoryEnv, group: &Group<MemoryEnv>, s: &Sample, case: &dyn std::fmt::Debug) {
    let volume = group.volume("main").expect("made at creation");
    for at in (0..s.now.len() as u64).step_by(CHUNK as usize) {
        let got = read(env, &volume, at, CHUNK).unwrap_or_else(|e| panic!("{case:?}: {e}"));
        assert!(got == s.now[at as usize..][..CHUNK as usize], "{case:?}: wrong data at {at}");
    }
}

/// Damages one place under an open group, and has it found and mended; `end` ends the group.
fn damaged_in_use(s: &Sample, which: usize, end: impl Fn(&MemoryEnv, Group<MemoryEnv>)) -> Option<Place> {
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, writable()).expect("opens");
    let place = places(&members).get(which).cloned()?;
    let whole = check(&env, &group, false).expect("verified");
    assert!(whole.is_sound() && whole.in_use && whole.chunks > 0 && whole.pages > 0, "{whole:?}");
    members.0[place.member].flip(place.bytes.start + 70, 2);
    let found = check(&env, &group, false).expect("verified");
    // Of the away bitmap one side counts; the other is the next to be written.
    if found.is_sound() && place.what == "away" {
        return Some(place);
    }
    let problem = found.problems.first().unwrap_or_else(|| panic!("{place:?} is not found"));
    assert!(problem.what.contains(expected_words(place.what)), "{place:?}: {problem:?}");
    assert_eq!((problem.member, problem.serious, problem.mended), (Some(place.member as u8), false, false));
    assert_eq!(found.problems.len(), 1, "{place:?}: {found:?}");
    if place.what != "away" {
        let mended = check(&env, &group, true).expect("verified");
        assert!(mended.is_sound() && mended.problems.len() == 1, "{place:?}: {mended:?}");
        let again = check(&env, &group, false).expect("verified");
        assert!(again.problems.is_empty(), "{place:?}: {again:?}");
    }
    holds(&env, &group, s, &place);
    end(&env, group);
    let report = image::check(&MemoryEnv::new(), &members.0).expect("verified");
    assert!(report.is_sound() || place.what == "away", "{place:?}: {report:?}");
    let env = MemoryEnv::new();
    let group = open(&env, &members.0, writable()).unwrap_or_else(|e| panic!("{place:?}: {e}"));
    assert!(group.status().recovery.is_empty() || place.what == "away", "{place:?}: {:?}", group.status().recovery);
    holds(&env, &group, s, &place);
    Some(place)
}

fn all_places(s: &Sample, end: impl Fn(&MemoryEnv, Group<MemoryEnv>)) {
    let mut kinds = std::collections::BTreeSet::new();
    let mut which = 0;
    while let Some(place) = damaged_in_use(s, which, &end) {
        kinds.insert(place.what);
        which += 1;
    }
    let expected = ["away", "directory", "journal", "label", "last commit", "page", "root"];
    assert!(expected.iter().filter(|k| kinds.contains(*k)).count() >= expected.len() - 1, "only {kinds:?}");
}

#[test]
fn what_is_damaged_in_use_is_found_mended_and_survives_a_crash() {
    // The only fast member: nobody else has what it has.
    let s = sample(&MemoryEnv::new(), &[6], &[10, 6], false);
    all_places(&s, |env, _| env.kill());
}

#[test]
fn what_is_damaged_in_use_is_found_mended_and_survives_a_stop() {
    let s = sample(&MemoryEnv::new(), &[6, 6], &[12], false);
    all_places(&s, |env, group| stop(env, group).expect("an orderly stop"));
}

#[test]
fn all_of_a_map_can_be_damaged_at_once() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], false);
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, writable()).expect("opens");
    for place in places(&members).into_iter().filter(|p| p.what != "away") {
        members.0[place.member].flip(place.bytes.start + 70, 2);
    }
    let mended = check(&env, &group, true).expect("verified");
    assert!(mended.is_sound() && mended.problems.len() > 4, "{mended:?}");
    env.kill();
    let env = MemoryEnv::new();
    let group = open(&env, &members.0, writable()).expect("opens");
    holds(&env, &group, &s, &"all of it");
}

#[test]
fn a_group_that_is_not_written_is_verified_too_but_not_mended() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    let (env, members): (_, Members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, read_only()).expect("opens");
    assert!(check(&env, &group, false).expect("verified").is_sound());
    assert!(matches!(check(&env, &group, true), Err(Error::ReadOnly)));
    let page = places(&members).into_iter().find(|p| p.what == "page").expect("it has pages");
    members.0[page.member].flip(page.bytes.start + 70, 2);
    assert!(!check(&env, &group, false).expect("verified").is_sound());
}
