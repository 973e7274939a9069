//! What an open group must not be called sound with: what a start has found and not mended, what is missing, and more damage
//! than is told one by one.

use bimetal_volume::error::Error;
use bimetal_volume::inspect::{Problem, Report};
use bimetal_volume::units::{BLOCK, CHUNK};
use bimetal_volume::Group;

use crate::image;
use crate::image::places::{entries, expected_words, forge, places, Place};
use crate::image::sample::sample;
use crate::image::{check_in_use as check, create_sized, flush, open, read, read_only, stop, writable, write, Members};
use crate::memory::{MemoryDevice, MemoryEnv};

fn pages(members: &Members) -> Vec<Place> {
    places(members).into_iter().filter(|p| p.what == "page").collect()
}

fn serious(report: &Report) -> Vec<&Problem> {
    report.problems.iter().filter(|p| p.serious).collect()
}

/// Two chunks whose homes are on the same member, and its page copies say that it is the same slot.
fn forge_double_home(members: &Members, member: u8) -> [usize; 2] {
    let all = pages(members);
    let known = entries(&members.0[all[0].member], all[0].bytes.start);
    let there: Vec<usize> = (0..known.len()).filter(|i| known[*i].is_mapped() && known[*i].member == member).collect();
    let [owner, other] = there[..2] else { panic!("only {there:?}") };
    // The first page on every member; none says anything else.
    let copy_of_first = |p: &&Place| entries(&members.0[p.member], p.bytes.start)[owner] == known[owner];
    for page in all.iter().filter(copy_of_first) {
        forge(&members.0[page.member], page.bytes.start, |entries| entries[other].slot = known[owner].slot);
    }
    [owner, other]
}

#[test]
fn two_chunks_on_one_slot_are_serious() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    for member in [0, 1] {
        let (env, members) = (MemoryEnv::new(), s.members.copy());
        let chunks = forge_double_home(&members, member);
        let named = format!("chunks {}, {}", chunks[0], chunks[1]);
        assert!(open(&env, &members.0, writable()).is_err(), "nobody writes to such a group");
        let group = open(&env, &members.0, read_only()).expect("opens");
        let report = check(&env, &group, false).expect("verified");
        assert!(!report.is_sound());
        // What the start has noticed, and what the map in memory says by itself.
        for (words, of) in [("claim the same slot", None), ("have the same slot", Some(member))] {
            let told = |p: &&Problem| p.what.starts_with(&named) && p.what.contains(words) && p.member == of;
            assert!(serious(&report).iter().any(told), "member {member}: {report:?}");
        }
        let volume = group.volume("main").expect("made at creation");
        for chunk in chunks {
            assert!(read(&env, &volume, chunk as u64 * CHUNK, CHUNK).is_err(), "nobody knows whose the data are");
        }
    }
}

#[test]
fn a_group_with_a_member_missing_is_not_sound() {
    let s = sample(&MemoryEnv::new(), &[6, 6], &[12], true);
    for missing in 0..3 {
        let (env, mut members) = (MemoryEnv::new(), s.members.copy());
        members.0.remove(missing);
        let group = open(&env, &members.0, read_only()).expect("opens");
        let report = check(&env, &group, false).expect("verified");
        let told = |p: &&Problem| p.member == Some(missing as u8) && p.what == "it is missing";
        assert!(!report.is_sound() && serious(&report).iter().any(told), "{missing}: {report:?}");
        assert!(report.pages > 0, "what is there is verified all the same: {report:?}");
    }
}

/// A start that only reads uses another copy and leaves the damage; also where there is nothing left to verify, as of a
/// directory that was thrown away.
#[test]
fn what_a_start_found_and_did_not_mend_is_told() {
    let s = sample(&MemoryEnv::new(), &[6, 6], &[12], false);
    for place in places(&s.members).into_iter().filter(|p| p.what != "away" && p.what != "last commit") {
        let (env, members) = (MemoryEnv::new(), s.members.copy());
        members.0[place.member].flip(place.bytes.start + 70, 2);
        let group = open(&env, &members.0, read_only()).expect("another member has it");
        let report = check(&env, &group, false).expect("verified");
        let told = |p: &Problem| p.what.contains(expected_words(place.what)) && !p.serious && !p.mended && !p.in_memory;
        assert!(!report.is_sound() && report.problems.iter().any(told), "{place:?}: {report:?}");
        stop(&env, group).expect("an orderly stop");
        // A start that writes mends it: at the latest, a page, with the next checkpoint.
        let group = open(&env, &members.0, writable()).expect("it is mended");
        let report = check(&env, &group, true).expect("verified");
        assert!(report.is_sound() && report.problems.iter().all(|p| p.in_memory), "{place:?}: {report:?}");
        assert!(check(&env, &group, false).expect("verified").problems.is_empty(), "{place:?}");
    }
}

/// No start looks at the copies of a disk as long as the SSD has its own: only a check in use mends them.
fn page_of_a_disk_is_told_and_mended_in_use(words: &str, damage: impl Fn(&MemoryDevice, u64)) {
    let s = sample(&MemoryEnv::new(), &[6], &[12], true);
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let own = pages(&members).into_iter().find(|p| p.member == 1).expect("has one");
    damage(&members.0[1], own.bytes.start);
    let offline = || image::check(&MemoryEnv::new(), &members.0).expect("verified");
    let restart = |mend: bool| {
        let group = open(&env, &members.0, writable()).expect("opens");
        let report = check(&env, &group, mend).expect("verified");
        stop(&env, group).expect("an orderly stop");
        report
    };
    let told = |report: &Report| {
        let [problem] = &report.problems[..] else { panic!("{report:?}") };
        assert!(problem.what.contains(words) && problem.member == Some(1), "{problem:?}");
        assert!(problem.by_check && !problem.serious && report.pages > 0, "{report:?}");
    };
    told(&offline());
    restart(false);
    told(&offline());
    let mended = restart(true);
    assert!(mended.is_sound() && mended.problems.len() == 1, "{mended:?}");
    assert!(offline().problems.is_empty(), "{:?}", offline());
}

#[test]
fn a_page_of_a_disk_that_is_damaged_is_told_and_mended_in_use() {
    page_of_a_disk_is_told_and_mended_in_use("checksum", |d, at| d.flip(at + 70, 2));
}

#[test]
fn a_page_of_a_disk_that_cannot_be_read_is_told_and_mended_in_use() {
    page_of_a_disk_is_told_and_mended_in_use("cannot be read", |d, at| {
        d.unread.borrow_mut().insert(at / 4096, u32::MAX);
    });
}

#[test]
fn data_that_a_start_could_not_save_are_serious() {
    // The only member that has these commits.
    let s = sample(&MemoryEnv::new(), &[6], &[10], false);
    let journal = places(&s.members).into_iter().find(|p| p.what == "journal" && p.member == 0).expect("has one");
    s.members.0[0].flip(journal.bytes.start + 70, 2);
    let env = MemoryEnv::new();
    let group = open(&env, &s.members.0, read_only()).expect("opens");
    let report = check(&env, &group, false).expect("verified");
    assert!(serious(&report).iter().any(|p| p.what.contains("damaged in the middle")), "{report:?}");
}

/// What a group had to be stopped for, memory cannot vouch for.
#[test]
fn a_group_that_has_stopped_accepting_writes_is_not_sound() {
    let s = sample(&MemoryEnv::new(), &[6], &[10], true);
    let (env, members) = (MemoryEnv::new(), s.members.copy());
    let group = open(&env, &members.0, writable()).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    let unused = (0..s.now.len() as u64).step_by(4096).find(|b| s.now[*b as usize] == 0).expect("not full");
    write(&env, &volume, unused, &[5; 4096]).expect("write");
    members.0[0].writes_left.set(0);
    flush(&env, &volume).expect_err("the journal cannot be written");
    let report = check(&env, &group, false).expect("verified");
    let told = |p: &&Problem| p.what.contains("has stopped accepting writes");
    assert!(!report.is_sound() && serious(&report).iter().any(told), "{report:?}");
    let page = pages(&members).swap_remove(0);
    members.0[page.member].flip(page.bytes.start + 70, 2);
    let report = check(&env, &group, false).expect("verified");
    let found = report.problems.iter().find(|p| p.what.contains("map page")).expect("found");
    assert!(!found.in_memory, "nobody can write it anew: {found:?}");
    assert!(matches!(check(&env, &group, true), Err(Error::Latched(_))), "nor is it tried");
}

/// Pages of a large map with a chunk in each.
const MANY: u64 = 1_100;
/// Problems that are told one by one.
const TOLD: usize = 1_000;

/// A group whose map has many pages in use, a block in each, stopped in order.
fn large(env: &MemoryEnv) -> Members {
    let region = bimetal_format::ENTRIES_PER_PAGE as u64 * CHUNK;
    let members = create_sized(env, "tank", &[64], &[40 << 10], Some((MANY + 1) * region));
    let group = open(env, &members.0, writable()).expect("opens");
    let volume = group.volume("main").expect("made at creation");
    // Two chunks of the first page.
    for at in [CHUNK].into_iter().chain((0..MANY).map(|page| page * region)) {
        write(env, &volume, at, &[7; 4096]).expect("write");
    }
    flush(env, &volume).expect("flush");
    stop(env, group).expect("an orderly stop");
    members
}

fn damage(d: &MemoryDevice, places: &[Place]) {
    places.iter().for_each(|p| d.flip(p.bytes.start + 70, 2));
}

fn damaged(env: &MemoryEnv, group: &Group<MemoryEnv>) -> Report {
    check(env, group, false).expect("verified")
}

#[test]
fn more_damage_than_is_told_is_counted_and_what_is_serious_is_told_all_the_same() {
    let members = large(&MemoryEnv::new());
    let of_first: Vec<Place> = pages(&members).into_iter().filter(|p| p.member == 0).collect();
    assert_eq!(of_first.len() as u64, MANY);
    forge_double_home(&members, 0);
    let env = MemoryEnv::new();
    let group = open(&env, &members.0, read_only()).expect("opens");
    let before = damaged(&env, &group);
    assert_eq!((before.problems.len(), before.untold), (serious(&before).len(), 0), "{before:?}");
    // As many as are told, one more, and all.
    let told = TOLD - before.problems.iter().filter(|p| p.what.contains("claim")).count();
    for (from, to, untold) in [(0, told, 0), (told, told + 1, 1), (told + 1, of_first.len(), MANY - told as u64)] {
        damage(&members.0[0], &of_first[from..to]);
        let report = damaged(&env, &group);
        assert_eq!(report.untold, untold, "{to} are damaged");
        assert_eq!(report.problems.len() - before.problems.len(), to.min(told), "{to} are damaged");
        assert_eq!(serious(&report), serious(&before), "{to} are damaged");
        assert!(!report.is_sound());
    }
}

#[test]
fn more_damage_than_is_told_is_mended_too_and_what_cannot_be_still_counts() {
    let members = large(&MemoryEnv::new());
    let env = MemoryEnv::new();
    let group = open(&env, &members.0, writable()).expect("opens");
    for member in [0, 1] {
        let all: Vec<Place> = pages(&members).into_iter().filter(|p| p.member == member).collect();
        damage(&members.0[member], &all);
    }
    let report = damaged(&env, &group);
    assert_eq!((report.problems.len(), report.untold), (TOLD, 2 * MANY - TOLD as u64));
    // An away block of which no write comes to the disk.
    let away: Vec<Place> = places(&members).into_iter().filter(|p| p.what == "away").collect();
    damage(&members.0[1], &away);
    members.0[1].bad.borrow_mut().extend(away.iter().map(|p| p.bytes.start / BLOCK));
    let mended = check(&env, &group, true).expect("verified");
    let (failed, pages): (Vec<_>, Vec<_>) = mended.problems.iter().partition(|p| p.what.contains("written anew"));
    assert!(pages.iter().all(|p| p.mended), "the pages of both");
    assert!(matches!(failed[..], [p] if p.serious && p.member == Some(1)), "{failed:?}");
    assert_eq!((mended.untold, mended.is_sound()), (2, false), "there was no room to tell of the last two");
    let after = damaged(&env, &group);
    assert!(after.problems.len() == 2 && after.problems.iter().all(|p| p.what.contains("away")), "{after:?}");
    // It is no reason to take no more writes.
    write(&env, &group.volume("main").expect("made at creation"), 0, &[9; CHUNK as usize]).expect("written");
    members.0[1].bad.borrow_mut().clear();
    let mended = check(&env, &group, true).expect("verified");
    assert!(mended.is_sound() && mended.problems.len() == 2, "{mended:?}");
}
