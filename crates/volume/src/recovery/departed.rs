//! Devices that bear the group's labels and are none of its members any more.
//!
//! 1. What such a one says of the group is as old as its leaving, and may be so old that no epoch of today knows it. So they are set aside
//!    before anything else is concluded from labels.
//! 2. A member has *left* if tables that are not older than its own say so.
//! 3. The new devices of a repair say that they are *joining* until the group is started: nothing was ever served with them. One on which it
//!    is done counts all the same as long as the repair is done on no member and a member says that it was begun, or none is there: then its
//!    map is that of the group. Otherwise such a device is a member if others list it, and else a *leftover*, whatever became of the
//!    repair, and however often the group was repaired since: its tables say nothing.
//! 4. Of attempts of a repair that did not know of each other none counts: it is begun again from what the members have. Those that knew
//!    of each other go on from each other.

use bimetal_format::label::{Label, MemberCode, Repair};

use super::{Finding, Found};
use crate::mutant::{self, Mutant};

/// What a label is to the others of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voice {
    /// It counts for nothing: its device is a member only if others say so.
    Joining,
    /// Its device has left the group: who else is a member must not be asked of it.
    Departed,
    /// It counts.
    Counts,
}

/// The labels of those that count, and of those that are joining; leaves out devices that have left the group.
pub(super) fn without_departed<D>(found: Vec<Found<D>>, findings: &mut Vec<Finding>) -> (Vec<Found<D>>, Vec<Found<D>>) {
    let voices = voices(&found.iter().map(|f| &f.label).collect::<Vec<_>>());
    let (mut counting, mut joining) = (Vec::new(), Vec::new());
    for (f, voice) in found.into_iter().zip(voices) {
        match voice {
            Voice::Counts => counting.push(f),
            Voice::Joining => joining.push(f),
            Voice::Departed => findings.push(Finding::mended(left_behind(&f))),
        }
    }
    (counting, joining)
}

/// What each of these labels of one group is to the others.
pub fn voices(labels: &[&Label]) -> Vec<Voice> {
    let mut speaks: Vec<bool> = labels.iter().map(|l| !l.joining || mutant::on(Mutant::JoiningCounts)).collect();
    let struck = struck_off_by(labels, &speaks);
    let members = labels.iter().zip(&speaks).zip(struck).filter(|((_, speaks), struck)| **speaks && !struck);
    for i in sources(labels, &members.map(|((l, _), _)| *l).collect::<Vec<_>>()) {
        speaks[i] = true;
    }
    let voice = |(departed, speaks)| match (departed, speaks) {
        (true, _) => Voice::Departed,
        (false, false) => Voice::Joining,
        (false, true) => Voice::Counts,
    };
    struck_off_by(labels, &speaks).into_iter().zip(speaks).map(voice).collect()
}

/// Which of these labels are of new devices that count, because on them alone a repair of the `members` is done.
fn sources(labels: &[&Label], members: &[&Label]) -> Vec<usize> {
    let of_repair = |l: &Label| {
        let says = |mark| members.iter().any(|o| o.repair == mark && o.repair_id == l.repair_id);
        (says(Repair::Begun) && !says(Repair::Done)) || members.is_empty()
    };
    let is_done = |l: &Label| l.joining && l.repair == Repair::Done && of_repair(l);
    let done: Vec<usize> = (0..labels.len()).filter(|i| is_done(labels[*i])).collect();
    let related = |a: &Label, b: &Label| descends(a, b) || descends(b, a);
    let apart = done.iter().any(|a| done.iter().any(|b| !related(labels[*a], labels[*b])));
    match apart && !mutant::on(Mutant::LeftoversDecide) || mutant::on(Mutant::LeftoverIsNoSource) {
        true => Vec::new(),
        false => done,
    }
}

/// Which of these labels are of devices that have left the group, by what those say that speak.
fn struck_off_by(labels: &[&Label], speaks: &[bool]) -> Vec<bool> {
    let said = || labels.iter().zip(speaks).filter(|(_, speaks)| **speaks).map(|(l, _)| *l);
    labels.iter().map(|l| said().any(|o| strikes(o, l))).collect()
}

fn left_behind<D>(f: &Found<D>) -> String {
    format!("device {} is not used: it was member {} and has left the group", f.position, f.label.member)
}

/// Whether one label strikes off the member of another. Where two repairs that did not know of each other have each struck the other's
/// member off, descent decides.
fn strikes(o: &Label, l: &Label) -> bool {
    let comes_after = match mutant::on(Mutant::C4NumbersDecide) {
        true => !struck_off(o, l),
        // Each side goes on counting, and may have members that the other never knew.
        false => !l.has_struck_off_one_of(o),
    };
    struck_off(l, o) && (comes_after || descends(o, l))
}

/// Whether tables that are not older than its own, on a member by its own word, say that the member of this label has left.
fn struck_off(label: &Label, other: &Label) -> bool {
    let row = |l: &'_ Label| l.members.get(label.member as usize).map(|m| (m.uuid, m.state));
    let left = row(label).zip(row(other)).is_some_and(|(own, row)| own.0 == row.0 && row.1 == MemberCode::Left);
    // Of two changes that did not know of each other one may have been cut off: their numbers are equal then. Who has
    // left never comes back under its index.
    left && other.tables >= label.tables
}

/// Whether the epoch of a label is that of another, or comes after it.
fn descends(l: &Label, from: &Label) -> bool {
    l.epoch.id == from.epoch.id || l.epoch.history.contains(&from.epoch.id)
}
