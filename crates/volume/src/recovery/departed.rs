//! Devices that bear the group's labels and are none of its members any more.
//!
//! 1. What such a one says of the group is as old as its leaving, and may be so old that no epoch of today knows it. So they are set aside
//!    before anything else is concluded from labels.
//! 2. A member has *left* if tables that are not older than its own say so.
//! 3. A *leftover* is a new device on which a repair was done, when that was cut off, and done without it: nothing was ever served with
//!    it, so its tables say nothing of who has left. The member in whose place it came may be the one that the repair was then done with.

use bimetal_format::label::{Label, MemberCode, Repair};

use super::{Finding, Found};
use crate::mutant::{self, Mutant};

/// Leaves out devices that have left the group.
pub(super) fn without_departed<D>(found: Vec<Found<D>>, findings: &mut Vec<Finding>) -> Vec<Found<D>> {
    let departed = departed(&found.iter().map(|f| &f.label).collect::<Vec<_>>());
    let (left, rest): (Vec<_>, Vec<_>) = found.into_iter().zip(departed).partition(|(_, departed)| *departed);
    findings.extend(left.iter().map(|(f, _)| Finding::mended(left_behind(f))));
    rest.into_iter().map(|(f, _)| f).collect()
}

/// Which of these labels of one group are of devices that have left it, or of leftovers: who else is a member must not be asked of them.
pub fn departed(labels: &[&Label]) -> Vec<bool> {
    let leftovers = leftovers(labels);
    let counts = |leftover: &bool| !leftover || mutant::on(Mutant::LeftoverStrikesOff);
    let said: Vec<&Label> = labels.iter().zip(&leftovers).filter(|(_, l)| counts(l)).map(|(l, _)| *l).collect();
    let gone = |l: &Label| said.iter().any(|o| strikes(o, l));
    labels.iter().zip(leftovers).map(|(l, leftover)| leftover || gone(l)).collect()
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
    left && !other.joining && other.tables >= label.tables
}

/// Whether the epoch of a label is that of another, or comes after it.
fn descends(l: &Label, from: &Label) -> bool {
    l.epoch.id == from.epoch.id || l.epoch.history.contains(&from.epoch.id)
}

/// Which of these labels are of leftovers. Two of those, of attempts that did not know of each other, each say so of the other, and so
/// does one of the true new member: what a label of which nobody says so tells of others counts first. Where only they contradict each
/// other the repair is done on none of the rest, and all are.
fn leftovers(labels: &[&Label]) -> Vec<bool> {
    let mut leftover = vec![false; labels.len()];
    loop {
        let rest = |i: &usize| !leftover[*i];
        let doubted = |l: &Label| (0..labels.len()).filter(rest).any(|i| done_without(l, labels[i]));
        let sure: Vec<usize> = (0..labels.len()).filter(rest).filter(|i| !doubted(labels[*i])).collect();
        let by_sure = |l: &Label| sure.iter().any(|i| done_without(l, labels[*i]));
        let more: Vec<usize> = (0..labels.len()).filter(rest).filter(|i| by_sure(labels[*i])).collect();
        if more.is_empty() || mutant::on(Mutant::LeftoversDecide) {
            return (0..labels.len()).map(|i| leftover[i] || doubted(labels[i])).collect();
        }
        more.into_iter().for_each(|i| leftover[i] = true);
    }
}

/// Whether a repair was done on the device of this label, and then, as the other says on which it is done, without it: there is another one
/// in its place, or none. Attempts that knew of each other go on from each other.
fn done_without(label: &Label, other: &Label) -> bool {
    let uuid = |l: &Label| l.members.get(label.member as usize).map(|m| m.uuid);
    let same = label.repair != Repair::None && label.repair_id == other.repair_id && !other.joining;
    let done = match mutant::on(Mutant::LeftoversCount) {
        true => other.tables >= label.tables,
        false => other.repair != Repair::Begun && !descends(label, other),
    };
    let counts = uuid(other).is_some() || !mutant::on(Mutant::RepairDoneWithForks);
    same && done && counts && uuid(other) != uuid(label)
}
