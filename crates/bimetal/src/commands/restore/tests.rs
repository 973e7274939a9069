//! What may be written back, and to what.

use bimetal_format::label::{Label, Repair};

use super::plan::{added_and_away, is_of_repair_since, plan, Candidate, Group, Plan, Proof};
use crate::members::own_uuid;
use crate::saved::testing::{images, labels, now, put_label, Memory, Power, EPOCH, GROUP};
use crate::saved::{Mark, SavedFile};

const FILE: [u8; 16] = [0x1d; 16];

/// A saved file of so many members.
fn file(members: u8) -> (tempfile::TempDir, SavedFile) {
    file_of(&labels(members))
}

/// The same with these labels.
fn file_of(labels: &[Label]) -> (tempfile::TempDir, SavedFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let device = |((i, mut image), label): ((usize, Vec<u8>), &Label)| {
        put_label(&mut image, label);
        (format!("dev{i}"), Memory::new(image, &Power::default()))
    };
    let images = images(labels.len() as u8).into_iter().enumerate();
    let devices: Vec<(String, Memory)> = images.zip(labels).map(device).collect();
    now(crate::saved::testing::save(FILE, &devices, &path));
    let file = SavedFile::open(&path).expect("sound");
    (folder, file)
}

/// The same of members that all have this size.
fn file_of_size(labels: &[Label], size: u64) -> (tempfile::TempDir, SavedFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let device = |label: &Label| {
        let mut image = vec![0; size as usize];
        put_label(&mut image, label);
        (format!("dev{}", label.member), Memory::new(image, &Power::default()))
    };
    let devices: Vec<(String, Memory)> = labels.iter().map(device).collect();
    now(crate::saved::testing::save(FILE, &devices, &path));
    let file = SavedFile::open(&path).expect("sound");
    (folder, file)
}

fn planned(saved: &SavedFile, candidates: &[Candidate]) -> anyhow::Result<Plan> {
    plan(&Group { name: "tank", uuid: GROUP, file: FILE, members: &saved.members }, candidates)
}

fn refused(saved: &SavedFile, candidates: &[Candidate], words: &[&str]) {
    let said = planned(saved, candidates).expect_err("refused").to_string();
    assert!(words.iter().all(|w| said.contains(w)), "{said}");
}

/// The members as they were saved.
fn candidates(members: u8) -> Vec<Candidate> {
    labels(members).into_iter().map(candidate).collect()
}

fn candidate(label: Label) -> Candidate {
    let (locator, size) = (format!("/dev/{}", label.member), label.device_size);
    Candidate { locator, size, label: Some(label), mark: None, traces: Vec::new(), given: true }
}

fn bare(size: u64) -> Candidate {
    Candidate { locator: format!("/dev/bare{size}"), size, label: None, mark: None, traces: Vec::new(), given: true }
}

fn change(candidate: &mut Candidate, how: impl FnOnce(&mut Label)) {
    how(candidate.label.as_mut().expect("it has one"));
}

fn proofs(plan: &Plan) -> Vec<Proof> {
    plan.targets.iter().map(|t| t.1).collect()
}

#[test]
fn labels_that_did_not_change_prove_it_in_any_order() {
    let (_folder, saved) = file(3);
    let mut found = candidates(3);
    found.reverse();
    let plan = planned(&saved, &found).expect("permitted");
    assert_eq!(plan.targets, [2, 1, 0].map(|i| (i, Proof::Unchanged)));
    assert!(plan.is_proven() && plan.added.is_empty());
}

#[test]
fn any_other_label_refuses() {
    let (_folder, saved) = file(2);
    let used: [(&str, Change); 7] = [
        ("flipped", |l| l.sequence += 1),
        ("an older label", |l| l.sequence -= 1),
        ("started", |l| start(l, 78)),
        ("another history", |l| l.epoch.id = 78),
        ("repaired, and started", |l| {
            start(l, 78);
            l.repair = Repair::Done;
            start(l, 79);
            l.repair = Repair::None;
        }),
        ("repaired after a start", |l| {
            start(l, 78);
            start(l, 79);
            l.repair = Repair::Done;
        }),
        ("a repair begun after a start", |l| {
            start(l, 78);
            l.repair = Repair::Begun;
        }),
    ];
    for (what, how) in used {
        for changed in [0, 1] {
            let mut found = candidates(2);
            change(&mut found[changed], how);
            let said = planned(&saved, &found).expect_err(what).to_string();
            assert!(said.contains("was used since it was saved"), "{what}: {said}");
        }
    }
}

/// What happens to a label.
type Change = fn(&mut Label);

/// The label of the next epoch.
fn start(label: &mut Label, epoch: u64) {
    label.epoch.history.insert(0, label.epoch.id);
    label.epoch.id = epoch;
    label.sequence += 2;
}

#[test]
fn repairs_after_which_nothing_was_served_can_be_undone() {
    let (_folder, saved) = file(2);
    let repaired = |unserved: u8| {
        let mut found = candidates(2);
        for c in &mut found {
            change(c, |l| {
                start(l, 78);
                start(l, 79);
                (l.repair, l.epoch.cut_off) = (Repair::Done, unserved + 1);
            });
        }
        planned(&saved, &found).map(|plan| proofs(&plan))
    };
    assert_eq!(repaired(1).expect("permitted"), [Proof::RepairDone; 2]);
    assert!(repaired(0).expect_err("78 was served").to_string().contains("was used since it was saved"));
}

#[test]
fn a_repair_can_be_undone_and_one_cut_off_too() {
    let (_folder, saved) = file(3);
    let mut found = candidates(3);
    change(&mut found[0], |l| {
        start(l, 78);
        l.repair = Repair::Done;
    });
    change(&mut found[1], |l| {
        l.sequence += 1;
        l.repair = Repair::Begun;
    });
    let plan = planned(&saved, &found).expect("permitted");
    assert_eq!(proofs(&plan), [Proof::RepairDone, Proof::RepairBegun, Proof::Unchanged]);
}

#[test]
fn a_device_that_the_repair_added_is_known_and_a_member_that_was_missing_too() {
    let (_folder, saved) = file(2);
    let mut new = candidates(3).remove(2);
    change(&mut new, |l| {
        start(l, 78);
        l.repair = Repair::Done;
    });
    let mut found = candidates(2);
    found.push(new);
    assert_eq!(planned(&saved, &found).expect("permitted").added, [2]);
    // Without the mark of a repair nobody knows what it holds.
    change(&mut found[2], |l| l.repair = Repair::None);
    refused(&saved, &found, &["was used since"]);
    // One that was left behind long ago is not touched.
    change(&mut found[2], |l| l.epoch.id = 60);
    let plan = planned(&saved, &found).expect("permitted");
    assert!(plan.added.is_empty() && plan.targets.len() == 2);
}

#[test]
fn what_a_repair_since_has_added_is_known_by_its_own_label_and_by_those_of_others() {
    let (_folder, saved) = file(2);
    let group = Group { name: "tank", uuid: GROUP, file: FILE, members: &saved.members };
    let mut found = candidates(3);
    for c in &mut found {
        change(c, |l| {
            start(l, 78);
            l.repair = Repair::Done;
        });
    }
    let is_of_repair = |c: &Candidate| is_of_repair_since(&group, c.label.as_ref().expect("it has one"));
    assert_eq!(found.iter().map(is_of_repair).collect::<Vec<_>>(), [false, false, true]);
    assert!(added_and_away(&group, &found).is_empty(), "all are there");
    let mut new = found.pop().expect("three");
    assert_eq!(added_and_away(&group, &found), ["member 2 (8 MiB)"]);
    // A repair of long ago is nothing to be undone.
    change(&mut new, |l| l.epoch.history = vec![60]);
    assert!(!is_of_repair(&new));
    assert!(added_and_away(&group, &candidates(2)).is_empty(), "there was no repair");
}

#[test]
fn a_member_that_was_not_saved_is_not_taken_for_one_that_the_repair_added() {
    let (_folder, whole) = file(3);
    let mut found = candidates(3);
    change(&mut found[2], |l| {
        start(l, 78);
        l.repair = Repair::Done;
    });
    let group = Group { name: "tank", uuid: GROUP, file: FILE, members: &whole.members[..2] };
    let said = plan(&group, &found).expect_err("its slots hold data").to_string();
    assert!(said.contains("was missing when the group was saved"), "{said}");
    change(&mut found[2], |l| l.repair = Repair::None);
    assert!(plan(&group, &found).is_err(), "it was used");
    assert_eq!(super::not_in_file(&group), ["member 2 (8 MiB)"]);
}

#[test]
fn what_was_no_member_when_the_group_was_saved_keeps_nothing_from_being_written_back() {
    let mut members = labels(2);
    members.iter_mut().for_each(|l| (l.generation, l.tables, l.repair_id) = (20, 5, 3));
    let (_folder, saved) = file_of(&members);
    let is_left_alone = |how: Change| {
        let mut found: Vec<Candidate> = members.iter().cloned().map(candidate).collect();
        let mut beside = candidates(3).remove(2);
        change(&mut beside, how);
        found.push(beside);
        planned(&saved, &found).is_ok_and(|plan| plan.added.is_empty() && plan.targets.len() == 2)
    };
    let forgotten: Change = |l| (l.epoch.id, l.generation, l.joining) = (4711, 19, true);
    assert!(is_left_alone(forgotten), "its adding was cut off so long ago that nobody knows the epoch");
    assert!(!is_left_alone(|l| (l.epoch.id, l.generation) = (4711, 20)), "it may be of a start since");
    let leftover: Change = |l| {
        (l.epoch.id, l.epoch.history, l.generation) = (4711, vec![4710], 21);
        (l.repair, l.repair_id, l.tables, l.joining) = (Repair::Done, 3, 6, true);
    };
    assert!(is_left_alone(leftover), "that repair was done without it");
    let other: Change = |l| {
        (l.epoch.id, l.epoch.history, l.generation) = (4711, vec![4710], 21);
        (l.repair, l.repair_id, l.tables, l.joining) = (Repair::Done, 4, 6, true);
    };
    assert!(!is_left_alone(other), "that repair may have been done since");
}

#[test]
fn a_device_without_label_is_matched_by_its_size_if_it_was_named() {
    let (_folder, saved) = file(3);
    let sizes: Vec<u64> = saved.members.iter().map(|m| m.size).collect();
    let all: Vec<Candidate> = sizes.iter().rev().map(|s| bare(*s)).collect();
    let plan = planned(&saved, &all).expect("each fits one");
    assert_eq!(plan.targets, [2, 1, 0].map(|i| (i, Proof::None)));
    assert!(!plan.is_proven());
    let mut found = candidates(3);
    found[1] = bare(sizes[1]);
    let plan = planned(&saved, &found).expect("permitted");
    assert_eq!(proofs(&plan), [Proof::Unchanged, Proof::None, Proof::Unchanged]);
    // That the metadata fits is proven, but not that this is the device that they describe.
    assert!(plan.is_proven());
    assert_eq!(plan.guessed().collect::<Vec<_>>(), [(1, 1)]);
    found[1].given = false;
    refused(&saved, &found, &["carries no sound label", "--member"]);
    found[1] = bare(sizes[1] + 4096);
    refused(&saved, &found, &["no member that is still to be found has its size"]);
    found[1] = bare(sizes[0]);
    refused(&saved, &found, &["no member that is still to be found has its size"]);
    // Two that could be the same member.
    found[1] = bare(sizes[1]);
    found.push(bare(sizes[1]));
    refused(&saved, &found, &["which one cannot be told"]);
}

#[test]
fn a_member_on_a_larger_device_is_the_member() {
    let (_folder, saved) = file(2);
    let mut found = candidates(2);
    found[1].size += 1 << 20;
    assert_eq!(proofs(&planned(&saved, &found).expect("permitted")), [Proof::Unchanged; 2]);
    let grown = |traces| Candidate { traces, ..bare(saved.members[1].size + (1 << 20)) };
    found[1] = grown(vec![1]);
    let plan = planned(&saved, &found).expect("what is on it tells who it is");
    assert_eq!((proofs(&plan), plan.guessed().count()), (vec![Proof::Unchanged, Proof::Traces], 1));
    found[1] = grown(Vec::new());
    refused(&saved, &found, &["no member that is still to be found has its size"]);
}

#[test]
fn devices_of_one_size_without_labels_are_told_apart_by_what_is_on_them() {
    let mut members = labels(3);
    let size = members[2].device_size;
    members.iter_mut().for_each(|l| l.device_size = size);
    let (_folder, saved) = file_of_size(&members, size);
    let with = |traces: [&[usize]; 3]| traces.map(|t| Candidate { traces: t.to_vec(), ..bare(size) });
    let plan = planned(&saved, &with([&[1], &[2], &[0]])).expect("each says who it is");
    assert_eq!(plan.targets, [2, 0, 1].map(|i| (i, Proof::Traces)));
    assert!(!plan.is_proven(), "it may be an older copy");
    // One is left.
    let plan = planned(&saved, &with([&[], &[2], &[0]])).expect("it can be but one");
    assert_eq!(plan.targets, [(2, Proof::Traces), (0, Proof::None), (1, Proof::Traces)]);
    refused(&saved, &with([&[], &[], &[0]]), &["which one cannot be told"]);
    refused(&saved, &with([&[1], &[1], &[0]]), &["metadata of member 1", "name only the right one"]);
    // What was one after the other says nothing.
    refused(&saved, &with([&[1, 2], &[1, 2], &[0]]), &["which one cannot be told"]);
}

#[test]
fn what_an_earlier_restore_left_tells_which_member_it_is() {
    let (_folder, saved) = file(2);
    let marked = |m: usize, file| {
        let mark = Some(Mark { group: GROUP, member: saved.members[m].uuid(), file });
        Candidate { mark, given: false, ..bare(saved.members[m].size) }
    };
    let plan = planned(&saved, &[marked(1, FILE), marked(0, FILE)]).expect("permitted");
    assert_eq!(plan.targets, [1, 0].map(|i| (i, Proof::RestoreBegun)));
    assert!(plan.is_proven());
    let plan = planned(&saved, &[marked(0, [9; 16]), marked(1, [9; 16])]).expect("known");
    assert!(!plan.is_proven(), "another file proves nothing");
    let mut other = marked(0, FILE);
    other.mark = Some(Mark { group: [9; 16], member: saved.members[0].uuid(), file: FILE });
    refused(&saved, &[other, marked(1, FILE)], &["another group"]);
}

#[test]
fn what_does_not_belong_there_is_refused() {
    let (_folder, saved) = file(2);
    let mut found = candidates(2);
    found.pop();
    refused(&saved, &found, &["member 1 (slow, 7 MiB), which was dev1", "--member"]);
    found.push(candidates(2).remove(0));
    refused(&saved, &found, &["are both member 0"]);
    let mut found = candidates(2);
    change(&mut found[1], |l| l.group = [9; 16]);
    refused(&saved, &found, &["/dev/1 is a member of another group"]);
    let mut found = candidates(2);
    found[0].size -= 4096;
    refused(&saved, &found, &["were in use when it was saved"]);
    assert_eq!(saved.members[0].label.epoch.id, EPOCH);
}

#[test]
fn a_device_that_the_repair_added_is_known_by_its_mark_when_that_was_cut_off() {
    let (_folder, saved) = file(2);
    let mut found = candidates(3);
    let uuid = own_uuid(found[2].label.as_ref().expect("it has one"));
    (found[2].label, found[2].mark) = (None, Some(Mark { group: GROUP, member: uuid, file: FILE }));
    assert_eq!(planned(&saved, &found).expect("permitted").added, [2]);
    found[2].mark = Some(Mark { group: GROUP, member: uuid, file: [9; 16] });
    refused(&saved, &found, &["is a member that is not in this file"]);
}
