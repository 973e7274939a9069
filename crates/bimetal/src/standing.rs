//! What labels say of each other: who is a member of a group, and who is none any more.

use bimetal_format::label::{Label, MemberCode, Repair, TierCode};
use bimetal_volume::probe::{voices, Voice};

/// What a device is to the group that its label names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// One of its members, as far as is known here.
    Member,
    /// It was being added, and did not become one: nothing is on it.
    Joining,
    /// It was one, and the group goes on without it.
    Former,
    /// It is one of a side that struck off members of the other, as that did with it: each may hold data that the other has not.
    Apart,
}

/// By the newest label of the group.
pub(crate) fn standing(label: &Label, newest: &Label) -> Standing {
    let own = own_uuid(label);
    let listed = newest.members.iter().any(|m| m.uuid == own && m.state != MemberCode::Left);
    match by_list(label, listed) {
        Standing::Former if label.has_struck_off_one_of(newest) => Standing::Apart,
        standing => standing,
    }
}

/// The same where it is known whether the group lists it.
pub(crate) fn by_list(label: &Label, listed: bool) -> Standing {
    match (listed, label.joining) {
        (true, _) => Standing::Member,
        (false, true) => Standing::Joining,
        (false, false) => Standing::Former,
    }
}

/// The newest of labels of one group. What a device says that is being added, or is none of its members any more, counts only if no other
/// says anything: a leftover of a repair that was done without it may have a table as new as theirs, or newer.
pub(crate) fn newest<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Option<&'a Label> {
    let all = with_voices(labels).into_iter();
    let rank = |l: &Label, voice: Voice| (voice == Voice::Counts, !l.joining, l.tables, l.generation);
    all.max_by_key(|(l, voice)| rank(l, *voice)).map(|(l, _)| l)
}

/// The label with the newest table of members, among those that the engine asks who is a member.
pub(crate) fn newest_table<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Option<&'a Label> {
    asked(labels).into_iter().max_by_key(|l| l.tables)
}

/// Those of the labels of one group that count: of none who has left it, of no leftover, and of nobody who is being added.
pub(crate) fn asked<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Vec<&'a Label> {
    with_voices(labels).into_iter().filter(|(_, voice)| *voice == Voice::Counts).map(|(l, _)| l).collect()
}

fn with_voices<'a>(labels: impl IntoIterator<Item = &'a Label>) -> Vec<(&'a Label, Voice)> {
    let all: Vec<&Label> = labels.into_iter().collect();
    let voices = voices(&all);
    all.into_iter().zip(voices).collect()
}

/// What it was, for words: "was fast member 0 of group 'tank'".
pub(crate) fn was(label: &Label) -> String {
    let tier = label.members.get(label.member as usize).map_or("a", |m| tier_name(m.tier));
    format!("was {tier} member {} of the Bimetal group '{}', which goes on without it", label.member, label.group_name)
}

/// What it is of, for words, where the newest labels at hand are another side's.
pub(crate) fn is_of_a_side(label: &Label) -> String {
    let tier = label.members.get(label.member as usize).map_or("a", |m| tier_name(m.tier));
    format!(
        "is {tier} member {} of a side of the Bimetal group '{}' that was used apart from the other, and may hold data that the other has not",
        label.member, label.group_name
    )
}

/// Why the device with this label is no member, as the newest one knows.
pub(crate) fn why_none(label: &Label, newest: &Label) -> Option<String> {
    let strikes =
        |by: &Label, off: [u8; 16]| by.members.iter().any(|row| row.uuid == off && row.state == MemberCode::Left);
    let has_left = strikes(newest, own_uuid(label));
    match standing(label, newest) {
        Standing::Joining => Some("was being added when that was cut off, and has not become one: add it again".into()),
        Standing::Former if has_left => Some(was(label)),
        // Descent decides, and that is the engine's to know.
        Standing::Former | Standing::Apart | Standing::Member => None,
    }
}

/// Whether a repair that was cut off has given up the member of this label: of the `members` some are done, and list it no more; others have
/// only begun, and list it.
pub(crate) fn is_given_up(label: &Label, members: &[&Label]) -> bool {
    let own = own_uuid(label);
    let lists = |l: &Label| l.members.iter().find(|row| row.uuid == own).map(|row| row.state != MemberCode::Left);
    let done: Vec<&&Label> = members.iter().filter(|l| l.repair == Repair::Done && lists(l) == Some(false)).collect();
    let begun = |l: &&&Label| l.repair == Repair::Begun && lists(l) == Some(true);
    members.iter().filter(begun).any(|begun| done.iter().any(|done| done.repair_id == begun.repair_id))
}

/// A tier, as labels have it.
pub(crate) fn tier_name(code: TierCode) -> &'static str {
    match code {
        TierCode::Fast => "fast",
        TierCode::Slow => "slow",
    }
}

/// The UUID of the member that carries the label.
pub(crate) fn own_uuid(label: &Label) -> [u8; 16] {
    // A decoded label lists its own member.
    label.members.get(label.member as usize).map_or([0; 16], |m| m.uuid)
}

#[cfg(test)]
mod tests {
    use bimetal_format::label::MemberRow;

    use super::*;
    use crate::saved::testing::labels;

    #[test]
    fn who_is_none_any_more_is_told_why() {
        let all = labels(3);
        let mut newest = all[0].clone();
        assert_eq!(why_none(&all[2], &newest), None, "it is listed");
        newest.members[2].state = MemberCode::Left;
        assert!(why_none(&all[2], &newest).is_some_and(|why| why.contains("goes on without it")));
        let mut adding = all[2].clone();
        adding.joining = true;
        assert!(why_none(&adding, &newest).is_some_and(|why| why.contains("add it again")));
        assert_eq!(why_none(&adding, &all[0]), None, "only its own label lacks that it is one");
        let mut unknown = all[2].clone();
        unknown.members[2].uuid = [9; 16];
        assert_eq!(why_none(&unknown, &newest), None, "the members were used apart");
        let mut apart = all[2].clone();
        apart.members[0].state = MemberCode::Left;
        assert_eq!(why_none(&apart, &newest), None, "which side is the group is not decided here");
        assert_eq!(standing(&apart, &newest), Standing::Apart);
        // The other side has a member that this one never knew, and its label is the newest.
        let mut with_new = newest.clone();
        with_new.members.push(MemberRow { uuid: [7; 16], ..newest.members[1].clone() });
        with_new.member = with_new.members.len() as u8 - 1;
        assert_eq!(why_none(&apart, &with_new), None, "it cannot be struck off by whoever never knew it");
    }
}
