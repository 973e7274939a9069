//! A group is verified while it is in use: whatever is damaged under it is found, and mended from memory.

use bimetal_format::entry::{ENCRYPTED, MAPPED};
use bimetal_format::{away, Entry};
use bimetal_volume::error::Error;
use bimetal_volume::units::CHUNK;
use bimetal_volume::Group;

use crate::image;
use crate::image::places::{entries, expected_words, forge, places, Place};
use crate::image::sample::{sample, stamp, Sample};
use crate::image::{check_in_use as check, flush, open, read, read_only, stop, writable, write, Members};
use crate::memory::MemoryEnv;

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
    let problem = found.problems.first().unwrap_or_else(|| panic!("{place:?} is not found"));
    assert!(problem.what.contains(expected_words(place.what)), "{place:?}: {problem:?}");
    assert_eq!((problem.member, problem.serious, problem.mended), (Some(place.member as u8), false, false));
    assert_eq!(found.problems.len(), 1, "{place:?}: {found:?}");
    let mended = check(&env, &group, true).expect("verified");
    assert!(mended.is_sound() && mended.problems.len() == 1, "{place:?}: {mended:?}");
    let again = check(&env, &group, false).expect("verified");
    assert!(again.problems.is_empty(), "{place:?}: {again:?}");
    holds(&env, &group, s, &place);
    end(&env, group);
    let report = image::check(&MemoryEnv::new(), &members.0).expect("verified");
    assert!(report.is_sound(), "{place:?}: {report:?}");
    let env = MemoryEnv::new();
    let group = open(&env, &members.0, writable()).unwrap_or_else(|e| panic!("{place:?}: {e}"));
    assert!(group.status().recovery.is_empty(), "{place:?}: {:?}", group.status().recovery);
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
    for place in places(&members) {
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

/// A change of an entry, in words.
type Lie = (&'static str, fn(&mut Entry));

/// Changes after which it is still one that could be.
const LIES: [Lie; 5] = [
    ("other valid blocks", |e| e.mask ^= 1 << 31),
    ("another slot", |e| e.slot ^= 1),
    ("another member", |e| e.member ^= 1),
    ("no home", |e| *e = Entry::default()),
    ("ciphertext", |e| e.flags ^= ENCRYPTED),
];

/// A sound copy with another content: no checksum tells, only what the group knows. A start would believe it.
#[test]
fn a_page_copy_that_is_sound_but_says_something_else_is_found_and_mended() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    let pages: Vec<Place> = places(&s.members).into_iter().filter(|p| p.what == "page").collect();
    assert_eq!(pages.iter().map(|p| p.member).collect::<Vec<_>>(), [0, 1], "each member has a copy");
    for page in &pages {
        let known = entries(&s.members.0[page.member], page.bytes.start);
        let (first, last) = (known.iter().position(Entry::is_mapped), known.iter().rposition(Entry::is_mapped));
        let (first, last) = (first.expect("it holds some"), last.expect("it holds some"));
        let unused = known.iter().rposition(|e| !e.is_mapped()).expect("it is not full");
        let invented: fn(&mut Entry) = |e| *e = Entry { flags: MAPPED, mask: 1, ..Entry::default() };
        let all = [first, last].into_iter().flat_map(|i| LIES.map(|(what, lie)| (i, what, lie)));
        for (i, what, lie) in all.chain([(unused, "a home", invented)]) {
            let case = (page.member, i, what);
            let (env, members) = (MemoryEnv::new(), s.members.copy());
            let group = open(&env, &members.0, writable()).expect("opens");
            forge(&members.0[page.member], page.bytes.start, |entries| lie(&mut entries[i]));
            let found = check(&env, &group, false).expect("verified");
            let problem = found.problems.first().unwrap_or_else(|| panic!("{case:?} is not found"));
            let words = format!("is not what the group knows: entry {i}");
            assert!(problem.what.ends_with(&words) && problem.in_memory, "{case:?}: {problem:?}");
            assert_eq!((problem.member, problem.serious), (Some(page.member as u8), false));
            assert!(!found.is_sound() && found.problems.len() == 1, "{case:?}: {found:?}");
            let mended = check(&env, &group, true).expect("verified");
            assert!(mended.is_sound() && mended.problems.len() == 1, "{case:?}: {mended:?}");
            assert!(check(&env, &group, false).expect("verified").problems.is_empty(), "{case:?}");
            // After this the copies are all there is.
            env.kill();
            let env = MemoryEnv::new();
            let group = open(&env, &members.0, writable()).unwrap_or_else(|e| panic!("{case:?}: {e}"));
            holds(&env, &group, &s, &case);
        }
    }
}

/// A write of away bits that was lost, though the disk confirmed it, on both sides: each block is sound, and says less than is known.
#[test]
fn away_bits_that_are_sound_but_say_something_else_are_found_and_mended() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, writable()).expect("opens");
    let disk = &members.0[1];
    for place in places(&members).into_iter().filter(|p| p.what == "away") {
        let salt = image::places::salt(disk, place.bytes.start);
        let mut block = disk.peek(place.bytes.start, 4096);
        let (sequence, mut bits) = away::decode(&block, 0, &salt).expect("sound");
        bits.fill(0);
        away::encode(&mut block, 0, sequence, &bits, &salt);
        disk.poke(place.bytes.start, &block);
    }
    let found = check(&env, &group, false).expect("verified");
    let [problem] = &found.problems[..] else { panic!("{found:?}") };
    assert!(problem.what.contains("the newest copy of block 0 of the away bitmap") && problem.in_memory, "{problem:?}");
    let mended = check(&env, &group, true).expect("verified");
    assert!(mended.is_sound() && mended.problems.len() == 1, "{mended:?}");
    assert!(check(&env, &group, false).expect("verified").problems.is_empty());
}

/// The coarse heat of a page is as old as the page; what is not committed yet is on no page.
#[test]
fn what_differs_for_a_good_reason_is_no_damage() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, writable()).expect("opens");
    for page in places(&members).into_iter().filter(|p| p.what == "page") {
        forge(&members.0[page.member], page.bytes.start, |entries| entries.iter_mut().for_each(|e| e.heat ^= 3));
    }
    assert!(check(&env, &group, false).expect("verified").problems.is_empty());
    let volume = group.volume("main").expect("made at creation");
    let unused = (0..s.now.len() as u64 / 4096).find(|b| s.now[(b * 4096) as usize] == 0).expect("not full");
    write(&env, &volume, unused * 4096, &stamp(unused, 99)).expect("write");
    assert_eq!(group.status().pending, 1);
    let report = check(&env, &group, false).expect("verified");
    assert!(report.problems.is_empty(), "pending: {report:?}");
    flush(&env, &volume).expect("flush");
    assert_eq!(group.status().pending, 0);
    let report = check(&env, &group, false).expect("verified");
    assert!(report.problems.is_empty(), "in the journal only: {report:?}");
}
