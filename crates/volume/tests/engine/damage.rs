//! Damaged members: whatever is damaged, the engine says so in words, or mends it; it never panics and never gives
//! wrong data. Each kind of structure has its own expected words.

use bimetal_format::layout::{label_b, LABEL_A};
use bimetal_volume::backend::Backend;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::repair::RepairError;
use bimetal_volume::units::CHUNK;
use bimetal_volume::Group;

use crate::image::places::{expected_words, places, Place};
use crate::image::sample::{sample, Sample};
use crate::image::{check, open, read, read_only, repair, stop, writable, Members};
use crate::memory::{MemoryDevice, MemoryEnv};

const BLOCK: usize = 4096;

/// What came of opening a damaged group.
#[derive(Debug)]
struct Outcome {
    /// The refusal, or what recovery found.
    words: Vec<String>,
    opened: bool,
    unreadable: usize,
    /// Chunks that hold what they held before the last commit.
    old: usize,
}

/// Opens `members` and reads everything. Fails the test on any wrong byte.
fn look(members: &Members, s: &Sample, options: OpenOptions, case: &dyn std::fmt::Debug) -> Outcome {
    let env = MemoryEnv::new();
    let group = match open(&env, &members.0, options) {
        Ok(g) => g,
        Err(e) => return Outcome { words: vec![e.to_string()], opened: false, unreadable: 0, old: 0 },
    };
    let mut out = Outcome { words: group.status().recovery, opened: true, unreadable: 0, old: 0 };
    let volume = group.volume("main").expect("a label that counts lists it");
    for c in 0..s.now.len() as u64 / CHUNK {
        let range = (c * CHUNK) as usize..((c + 1) * CHUNK) as usize;
        match read(&env, &volume, c * CHUNK, CHUNK) {
            Err(_) => out.unreadable += 1,
            Ok(got) if got == s.now[range.clone()] => {}
            Ok(got) if got == s.before[range.clone()] => out.old += 1,
            // A journal that is damaged in the middle and that nobody else has: what it knew is lost, and said to be.
            Ok(got) if lost_journal(&out.words) && s.past.iter().any(|p| got == p[range.clone()]) => out.old += 1,
            Ok(_) => panic!("{case:?}: wrong data in chunk {c}; {:?}", out.words),
        }
    }
    out
}

fn lost_journal(words: &[String]) -> bool {
    words.iter().any(|w| w.contains("damaged in the middle, and no other member has the same records"))
}

/// Looks at damaged members in all ways; gives the outcomes of a read-only and a writable start, and what a check says.
fn examine(members: &Members, s: &Sample, case: &dyn std::fmt::Debug) -> (Outcome, Outcome, Vec<String>) {
    let reading = look(&members.copy(), s, read_only(), case);
    let checked = match check(&MemoryEnv::new(), &members.copy().0) {
        Ok(report) => report.problems.into_iter().map(|p| p.what).collect(),
        Err(e) => vec![e.to_string()],
    };
    let used = members.copy();
    let writing = look(&used, s, writable(), case);
    if writing.opened {
        assert_eq!(writing.unreadable, 0, "{case:?}: a writable start can read everything");
        let again = look(&used, s, writable(), case);
        assert!(again.opened && again.unreadable == 0, "{case:?}: and so can the next: {again:?}");
        assert_eq!(again.old, writing.old);
    } else if reading.opened {
        repairs(members, case);
    }
    (reading, writing, checked)
}

/// A repair keeps what a read-only start serves, and all else is zeros; then the group starts again.
fn repairs(members: &Members, case: &dyn std::fmt::Debug) {
    let (env, used) = (MemoryEnv::new(), members.copy());
    let before = content(&open(&env, &used.0, read_only()).expect("it was readable"));
    match repair(&env, &used.0) {
        Ok(report) => assert!(report.new.is_empty(), "{case:?}"),
        // The damage has left no label on a member that the volume does not fit without.
        Err(RepairError::NoRoom { .. } | RepairError::NoMember(_)) => return,
        Err(e) => panic!("{case:?}: {e}"),
    }
    let report = check(&env, &used.0).expect("checked");
    assert!(report.clean && report.problems.iter().all(|p| !p.serious), "{case:?}: {:?}", report.problems);
    let group = open(&env, &used.0, writable()).unwrap_or_else(|e| panic!("{case:?}: after a repair: {e}"));
    for (chunk, (was, is)) in before.into_iter().zip(content(&group)).enumerate() {
        let is = is.unwrap_or_else(|| panic!("{case:?}: chunk {chunk} cannot be read after a repair"));
        // What could not be read may have been so in parts, or its member had no label and was recognised.
        assert!(was.is_none_or(|was| was == is), "{case:?}: chunk {chunk} is another one after a repair");
    }
    stop(&env, group).expect("an orderly stop");
}

/// Every chunk that can be read.
fn content(group: &Group<MemoryEnv>) -> Vec<Option<Vec<u8>>> {
    let (env, volume) = (MemoryEnv::new(), group.volume("main").expect("a label that counts lists it"));
    (0..volume.size() / CHUNK).map(|c| read(&env, &volume, c * CHUNK, CHUNK).ok()).collect()
}

fn flip_in_every_structure(s: &Sample, fast_members: usize) {
    let clean = s.members.0[0].label().clean;
    for place in places(&s.members) {
        let len = place.bytes.end - place.bytes.start;
        for (byte, bits) in [(5, 1), (0, 0x80), (20, 4), (64, 2), (len / 2, 0x10), (len - 1, 1)] {
            let members = s.members.copy();
            members.0[place.member].flip(place.bytes.start + byte, bits);
            let case = (&place, byte, bits);
            let (reading, writing, checked) = examine(&members, s, &case);
            let told = |words: &[String]| words.iter().any(|w| w.contains(expected_words(place.what)));
            assert!(reading.opened, "{case:?}: one flipped bit leaves the group readable: {reading:?}");
            let fast = place.member < fast_members;
            if place.what == "last commit" {
                // It looks like a commit that was cut off; another fast member has it whole, a slow one does not
                // matter.
                assert!(reading.old == 0 || (fast && fast_members == 1), "{case:?}");
                assert!(writing.opened || told(&writing.words), "{case:?}: {writing:?}");
                continue;
            }
            assert!(reading.old == 0 || lost_journal(&reading.words), "{case:?}: {reading:?}");
            assert_eq!(writing.old, 0, "{case:?}");
            // After a crash a torn away block is nothing unusual; all its bits count as set.
            assert!(told(&checked) || (place.what == "away" && !clean), "{case:?}: check says {checked:?}");
            if reading.unreadable > 0 {
                assert!(told(&reading.words), "{case:?}: {reading:?}");
            }
            let mended_by_others = fast_members > 1 || clean || !fast || matches!(place.what, "label" | "away");
            // A page may be mended by the slow member, if that has been written since; it must not be if it is older.
            if place.what != "page" || mended_by_others {
                assert_eq!(writing.opened, mended_by_others, "{case:?}: {writing:?}");
            }
            assert!(writing.opened || told(&writing.words), "{case:?}: {writing:?}");
        }
    }
}

#[test]
fn a_flipped_bit_after_a_kill_with_one_fast_member() {
    flip_in_every_structure(&sample(&MemoryEnv::new(), &[8], &[16], false), 1);
}

#[test]
fn a_flipped_bit_after_a_kill_with_two_fast_members() {
    flip_in_every_structure(&sample(&MemoryEnv::new(), &[8, 8], &[16], false), 2);
}

#[test]
fn a_flipped_bit_after_an_orderly_stop() {
    flip_in_every_structure(&sample(&MemoryEnv::new(), &[8], &[16], true), 1);
}

/// A sector that cannot be read costs what it holds, and no more than if it were rotten.
#[test]
fn an_unreadable_block_is_as_good_as_a_rotten_one() {
    for clean in [false, true] {
        let s = sample(&MemoryEnv::new(), &[8], &[16], clean);
        for place in places(&s.members).into_iter().filter(|p| p.what != "label") {
            let (rotten, unreadable) = (s.members.copy(), s.members.copy());
            rotten.0[place.member].flip(place.bytes.start + 64, 1);
            let d = &unreadable.0[place.member];
            for block in 0..d.size / BLOCK as u64 {
                let content = d.peek(block * BLOCK as u64, BLOCK);
                d.poke(block * BLOCK as u64, &content);
            }
            d.holes_fail.set(true);
            d.blocks.borrow_mut().remove(&(place.bytes.start / BLOCK as u64));
            let (rotten, unreadable) =
                (look(&rotten, &s, read_only(), &place), look(&unreadable, &s, read_only(), &place));
            assert!(unreadable.opened, "{clean} {place:?}: {unreadable:?}");
            // What was the end of the journal may be told from a commit that was cut off, if it cannot be read.
            if place.what != "last commit" {
                assert_eq!(unreadable.unreadable, rotten.unreadable, "{clean} {place:?}: {unreadable:?} {rotten:?}");
            }
        }
    }
}

#[test]
fn both_labels_of_a_member_damaged() {
    let s = sample(&MemoryEnv::new(), &[8], &[16], false);
    for member in 0..2 {
        let members = s.members.copy();
        let d = &members.0[member];
        d.flip(LABEL_A + 100, 1);
        d.flip(label_b(d.size) + 9000, 1);
        let (reading, writing, _) = examine(&members, &s, &member);
        assert!(!writing.opened && writing.words[0].contains("label is damaged"), "{writing:?}");
        // To who reads what is left, it is as good as missing.
        let unused = |w: &String| w.contains("is not used") && w.contains("label is damaged");
        assert!(reading.opened && reading.words.iter().any(unused), "{reading:?}");
        assert!(reading.words.iter().any(|w| w.contains("missing: member")), "{reading:?}");
    }
}

/// Garbage of several kinds over one to three structures at once.
#[test]
fn random_damage_never_gives_wrong_data() {
    let mut random = 1u64;
    let mut below = |n: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % n
    };
    for (fast, clean) in [(&[8][..], false), (&[8, 8], false), (&[8], true)] {
        let s = sample(&MemoryEnv::new(), fast, &[16], clean);
        let all = places(&s.members);
        for case in 0..60 {
            let members = s.members.copy();
            let mut done = Vec::new();
            for _ in 0..1 + below(3) {
                let (to, from) = (all[below(all.len())].clone(), &all[below(all.len())]);
                let len = (to.bytes.end - to.bytes.start) as usize;
                let mut bytes = members.0[to.member].peek(to.bytes.start, len);
                let how = below(4);
                match how {
                    0 => bytes.fill(0),
                    1 => (0..len).for_each(|i| bytes[i] = below(256) as u8),
                    // A misdirected write: another structure's content.
                    2 => {
                        let other = s.members.0[from.member].peek(from.bytes.start, BLOCK);
                        bytes[..BLOCK].copy_from_slice(&other);
                    }
                    _ => bytes[512..1024].fill(0xa5),
                }
                members.0[to.member].poke(to.bytes.start, &bytes);
                done.push((to, how));
            }
            let (reading, writing, checked) = examine(&members, &s, &(case, &done));
            let changed = |p: &Place| {
                let len = (p.bytes.end - p.bytes.start) as usize;
                members.0[p.member].peek(p.bytes.start, len) != s.members.0[p.member].peek(p.bytes.start, len)
            };
            let silent = done.iter().all(|(p, _)| matches!(p.what, "last commit" | "away") || !changed(p));
            let any_words = !(reading.words.is_empty() && writing.words.is_empty() && checked.is_empty());
            assert!(any_words || silent, "{done:?}: nobody says a word");
        }
    }
}

#[test]
fn truncated_and_random_members_are_refused_in_words() {
    let s = sample(&MemoryEnv::new(), &[8], &[16], false);
    for member in 0..2 {
        let whole = &s.members.0[member];
        for size in (0..whole.size).step_by(1 << 19).chain([whole.size - 4096]) {
            let mut members = s.members.copy();
            members.0[member] = whole.resized(size);
            let (reading, writing, _) = examine(&members, &s, &(member, size));
            assert!(!writing.opened && writing.words[0].contains("device"), "{writing:?}");
            let unused = reading.words.iter().any(|w| w.contains(&format!("device {member} is not used")));
            assert!(!reading.opened && reading.words[0].contains("device") || unused, "{reading:?}");
        }
        // All metadata but the labels is noise.
        let members = s.members.copy();
        let d = &members.0[member];
        let zones = (1 << 20)..d.layout().slots;
        let noise: Vec<u8> = (zones.clone()).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        d.poke(zones.start, &noise);
        let (reading, writing, _) = examine(&members, &s, &member);
        assert!(reading.words.iter().any(|w| w.contains("page directory")), "{reading:?}");
        assert_eq!(writing.opened, member == 1, "the map of a slow member is written anew: {writing:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_read_once_is_read_again() {
    let s = sample(&MemoryEnv::new(), &[8], &[16], false);
    for p in places(&s.members).into_iter().filter(|p| ["root", "directory"].contains(&p.what)) {
        let members = s.members.copy();
        members.0[p.member].misread.borrow_mut().insert(p.bytes.start / BLOCK as u64);
        let seen = look(&members, &s, writable(), &p);
        assert!(seen.opened && seen.words.is_empty() && seen.unreadable == 0, "{seen:?}");
        assert_eq!(members.0[p.member].failed_reads.get(), 1, "{p:?}");
    }
}

/// Members of a group with two fast ones, the journal of one of them damaged before its last commit; one for each
/// block.
fn damaged_journals(s: &Sample) -> Vec<Members> {
    let blocks = places(&s.members).into_iter().filter(|p| p.what == "journal" && p.member == 1);
    let damaged = blocks.map(|p| {
        let members = s.members.copy();
        members.0[1].flip(p.bytes.start + 64, 1);
        members
    });
    damaged.collect()
}

#[test]
fn a_journal_that_was_written_anew_is_sound() {
    let s = sample(&MemoryEnv::new(), &[8, 8], &[16], false);
    for (case, members) in damaged_journals(&s).into_iter().enumerate() {
        let first = look(&members, &s, writable(), &case);
        assert!(first.opened && first.words.iter().any(|w| w.contains("damaged in the middle")), "{first:?}");
        // What it holds now is enough, also when the other one's journal is damaged, or the other one is gone.
        let again = look(&members, &s, writable(), &case);
        assert!(again.opened && again.words.is_empty(), "block {case}: {again:?}");
        let alone = Members(vec![members.0[1].clone(), members.0[2].clone()]);
        let without = look(&alone, &s, OpenOptions { allow_missing: true, ..read_only() }, &case);
        assert!(without.opened && without.words.iter().all(|w| w.starts_with("missing")), "{without:?}");
    }
}

/// What a check says of a damage: mended by the next start, or not.
#[test]
fn a_check_tells_lost_data_from_what_the_next_start_mends() {
    for (fast, serious) in [(&[8, 8][..], false), (&[8][..], true)] {
        for (what, said) in [("journal", "damaged in the middle"), ("root", "page directory")] {
            let env = MemoryEnv::new();
            let s = sample(&env, fast, &[16], false);
            let place = places(&s.members).into_iter().find(|p| p.what == what && p.member == 0).expect("has one");
            s.members.0[0].flip(place.bytes.start + 64, 1);
            let report = check(&env, &s.members.0).expect("checked");
            assert_eq!(report.problems.iter().any(|p| p.serious), serious, "{what}: {:?}", report.problems);
            let told = report.problems.iter().filter(|p| p.what.contains(said)).count();
            assert_eq!(told, 1, "{what}: {:?}", report.problems);
            // What is served read-only is said to be what it is, too.
            let group = open(&env, &s.members.0, read_only()).expect("readable");
            let g = group.clone();
            let online = env.block_on(async move { g.check(false, &|_, _| {}).await }).expect("checked");
            assert_eq!(online.problems.iter().any(|p| p.serious), serious, "{what}: {:?}", online.problems);
            assert_eq!(open(&env, &s.members.0, writable()).is_err(), serious);
        }
    }
}

#[test]
fn writing_a_journal_anew_may_be_cut_off_anywhere() {
    let s = sample(&MemoryEnv::new(), &[8, 8], &[16], false);
    for (case, damaged) in damaged_journals(&s).into_iter().enumerate() {
        for writes in 0u64.. {
            let members = damaged.copy();
            let left = std::rc::Rc::new(std::cell::Cell::new(writes));
            let cut: Vec<_> =
                members.0.iter().map(|d| MemoryDevice { writes_left: left.clone(), ..d.clone() }).collect();
            let done = open(&MemoryEnv::new(), &cut, writable()).is_ok();
            let after = look(&members, &s, writable(), &(case, writes));
            assert!(after.opened && after.unreadable + after.old == 0, "block {case}, {writes} writes: {after:?}");
            if done {
                assert!(writes > 10, "a start writes labels and the map");
                break;
            }
        }
    }
}
