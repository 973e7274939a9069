//! Which device is which saved member, and whether what was saved may be written back. Metadata that is older than what is in the
//! slots gives wrong data without a word, so everything that is not known to be right is refused.

use std::collections::HashSet;

use anyhow::{bail, Result};
use bimetal_format::label::{Label, MemberCode, Repair};
use bimetal_host::Locator;
use bimetal_volume::probe::{voices, Voice};

use crate::members::{own_uuid, way_to_size};
use crate::saved::{Mark, SavedMember, Sign};
use crate::size::approx;
use crate::standing::newest;

/// A device that may be a member.
pub(super) struct Candidate {
    pub(super) locator: String,
    /// Bytes of the device.
    pub(super) size: u64,
    pub(super) label: Option<Label>,
    /// What an earlier `restore` has left in the place of the label.
    pub(super) mark: Option<Mark>,
    /// Members in the file whose metadata lies on it though it says nothing of who it is.
    pub(super) traces: Vec<usize>,
    /// It was named by whoever gave the command.
    pub(super) given: bool,
}

/// What the file says of the group.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) uuid: [u8; 16],
    /// Name of the file for ever.
    pub(super) file: [u8; 16],
    pub(super) members: &'a [SavedMember],
}

/// Why a device may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Its label is the one that was saved.
    Unchanged,
    /// Its label says that a repair was begun since, and nothing else.
    RepairBegun,
    /// Its label says that a repair was done since, and that the group was not started after that.
    RepairDone,
    /// The same file was being written back to it.
    RestoreBegun,
    /// There is none: another file was being written back to it.
    OtherRestoreBegun,
    /// There is none: it carries no label, and what else is on it is the member's, of whatever time.
    Traces,
    /// There is none: it carries no label, and is taken for the only member that it can be.
    None,
}

impl Proof {
    /// In words, after the name of a device.
    pub(super) fn words(self) -> &'static str {
        match self {
            Proof::Unchanged => "its label is the one that was saved",
            Proof::RepairBegun => "a repair was begun on it since",
            Proof::RepairDone => "it was repaired since, and not started after that",
            Proof::RestoreBegun => "writing this file back to it was cut off",
            Proof::OtherRestoreBegun => "writing another file back to it was cut off",
            Proof::Traces => "it carries no label, and is taken for this member because of what else is on it",
            Proof::None => "it carries no label, and is taken for this member because of its size",
        }
    }

    /// What of a journal proves the contrary.
    pub(super) fn sign(self) -> Sign {
        match self {
            Proof::Unchanged => Sign::SoundBlock,
            Proof::RepairBegun | Proof::RepairDone => Sign::AnyChange,
            // The journals may be written back already.
            Proof::RestoreBegun => Sign::None,
            Proof::OtherRestoreBegun | Proof::Traces | Proof::None => Sign::LaterBlock,
        }
    }

    /// The same for programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Proof::Unchanged => "unchanged",
            Proof::RepairBegun => "repair begun",
            Proof::RepairDone => "repair done",
            Proof::RestoreBegun => "restore begun",
            Proof::OtherRestoreBegun => "other restore begun",
            Proof::Traces => "traces",
            Proof::None => "none",
        }
    }
}

/// What goes where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// For each saved member its candidate, and why it may be written to.
    pub(super) targets: Vec<(usize, Proof)>,
    /// Candidates that the repair has added to the group: they lose their labels.
    pub(super) added: Vec<usize>,
}

impl Plan {
    /// Whether anything proves that the group was not used since it was saved.
    pub(super) fn is_proven(&self) -> bool {
        self.targets.iter().any(|(_, proof)| !matches!(proof, Proof::OtherRestoreBegun | Proof::Traces | Proof::None))
    }

    /// Whether a repair was begun or done since.
    pub(super) fn undoes_a_repair(&self) -> bool {
        self.targets.iter().any(|(_, proof)| matches!(proof, Proof::RepairBegun | Proof::RepairDone))
    }

    /// Saved members whose device says nothing of who it is, and the candidates that are taken for them.
    pub(super) fn guessed(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let all = self.targets.iter().enumerate();
        all.filter(|(_, (_, proof))| matches!(proof, Proof::Traces | Proof::None)).map(|(m, (i, _))| (m, *i))
    }
}

/// Finds the device of each saved member. Anything that is not sure is refused, in words that begin with what is wrong.
pub(super) fn plan(group: &Group<'_>, candidates: &[Candidate]) -> Result<Plan> {
    let mut targets: Vec<Option<(usize, Proof)>> = vec![None; group.members.len()];
    let mut plan = Plan { targets: Vec::new(), added: Vec::new() };
    let mut unknown = Vec::new();
    for (i, c) in candidates.iter().enumerate() {
        let known = match (&c.label, c.mark) {
            (Some(label), _) => by_label(group, c, label)?,
            (None, Some(mark)) => by_mark(group, c, mark)?,
            (None, None) => Identity::Unknown,
        };
        match known {
            Identity::Member(m, proof) => match targets[m].replace((i, proof)) {
                None => fits(&group.members[m], c)?,
                Some((twin, _)) => bail!(
                    "{} and {} are both {}; name only the right one with --member",
                    candidates[twin].locator,
                    c.locator,
                    group.members[m].named()
                ),
            },
            Identity::Added => plan.added.push(i),
            Identity::Beside => {}
            Identity::Unknown => unknown.push(i),
        }
    }
    by_content_or_size(group, candidates, &unknown, &mut targets)?;
    plan.targets = all_found(group, &targets)?;
    Ok(plan)
}

/// Who a candidate is.
enum Identity {
    Member(usize, Proof),
    /// A device that became a member by a repair after the group was saved.
    Added,
    /// A member that was not saved. It is left alone.
    Beside,
    Unknown,
}

fn by_label(group: &Group<'_>, c: &Candidate, label: &Label) -> Result<Identity> {
    if label.group != group.uuid {
        bail!("{} is a member of another group, named '{}'", c.locator, label.group_name);
    }
    match group.members.iter().position(|m| m.uuid() == own_uuid(label)) {
        Some(m) => match proof(group, &group.members[m].label, label) {
            Some(proof) => Ok(Identity::Member(m, proof)),
            None => Err(used_since(group.name, "label", &c.locator)),
        },
        None => not_saved(group, c, label),
    }
}

/// What a member's label proves: nothing has changed in slots since `saved` was its label.
fn proof(group: &Group<'_>, saved: &Label, now: &Label) -> Option<Proof> {
    let same_epoch = now.epoch.id == saved.epoch.id;
    match now.repair {
        _ if same_epoch && now.sequence == saved.sequence => Some(Proof::Unchanged),
        Repair::Begun if same_epoch => Some(Proof::RepairBegun),
        Repair::Done if follows(group, now) => Some(Proof::RepairDone),
        _ => None,
    }
}

/// Whether an epoch before that of the label is one that was saved, and nothing was served since: repairs that were cut off or done
/// again leave others between. It need not be the member's own: one that had been left behind gets the history of the others.
fn follows(group: &Group<'_>, label: &Label) -> bool {
    // One more than those that were not served.
    let last_served = usize::from(label.epoch.cut_off).max(1);
    let mut before = label.epoch.history.iter().take(last_served);
    before.any(|before| group.members.iter().any(|m| m.label.epoch.id == *before))
}

/// Why nothing is written back to a group that was used: `what` on the device says so.
pub(super) fn used_since(group: &str, what: &str, device: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "group '{group}' was used since it was saved, as the {what} of {device} says. What was saved does not describe any more what is \
         in the slots, and would give wrong data"
    )
}

/// The same of a device without a label. Force does not help: it is for what nobody knows, and this is known.
pub(super) fn used_since_without_label(group: &str, device: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{}. Whatever seems to prove that it fits is an older image. Bring the other members as they were when the group was last used: with \
         the label of one of these `bimetal repair {group} --member ...` knows {device} by what is on it, and keeps that",
        used_since(group, "journal", device)
    )
}

/// A device of the group whose metadata is not in the file.
fn not_saved(group: &Group<'_>, c: &Candidate, label: &Label) -> Result<Identity> {
    let uuid = own_uuid(label);
    let was_member = group.members.iter().flat_map(|m| &m.label.members).any(|row| row.uuid == uuid);
    if !was_member && label.repair == Repair::Done && follows(group, label) {
        return Ok(Identity::Added);
    }
    match label.repair {
        _ if is_of_before(group, label) => Ok(Identity::Beside),
        Repair::None => Err(used_since(group.name, "label", &c.locator)),
        Repair::Begun | Repair::Done => bail!(
            "{} was changed by a repair, and what it held before is not in this file: it was missing when the group was saved",
            c.locator
        ),
    }
}

/// Whether the label of a device that is not in the file was written before the group was saved.
fn is_of_before(group: &Group<'_>, label: &Label) -> bool {
    match label.repair {
        Repair::None => is_of_known_epoch(group, label) || is_older(group, label),
        Repair::Done => has_departed(group, label) || is_older(group, label),
        // Whoever begins a repair of a member changes no more than that in its label.
        Repair::Begun => has_departed(group, label),
    }
}

/// Whether the saved labels say that it has left, or that the repair which made it a new device was done without it.
fn has_departed(group: &Group<'_>, label: &Label) -> bool {
    let saved = || group.members.iter().map(|m| &m.label);
    let all: Vec<&Label> = saved().chain([label]).collect();
    let done_without = label.joining && saved().any(|l| l.repair_id == label.repair_id && l.repair != Repair::Begun);
    done_without || voices(&all).pop() == Some(Voice::Departed)
}

fn is_of_known_epoch(group: &Group<'_>, label: &Label) -> bool {
    group.members.iter().any(|m| epochs(&m.label).any(|id| id == label.epoch.id))
}

/// Whether it is older than all that was saved, however long ago its epoch was. Generations only grow: a start or repair since, with any
/// member that was saved, has given it none of these.
fn is_older(group: &Group<'_>, label: &Label) -> bool {
    group.members.iter().all(|m| label.generation < m.label.generation)
}

/// Whether a label that is of no member in the file is of a repair that was done since. It is newer than all that is written back: a
/// start that finds both takes the members for old copies.
pub(super) fn is_of_repair_since(group: &Group<'_>, label: &Label) -> bool {
    let saved = group.members.iter().any(|m| m.uuid() == own_uuid(label));
    label.group == group.uuid && !saved && label.repair == Repair::Done && follows(group, label)
}

/// The epoch of a label, and those before.
fn epochs(label: &Label) -> impl Iterator<Item = u64> + '_ {
    std::iter::once(label.epoch.id).chain(label.epoch.history.iter().copied())
}

fn by_mark(group: &Group<'_>, c: &Candidate, mark: Mark) -> Result<Identity> {
    if mark.group != group.uuid {
        bail!("{} is a member of another group, to which `bimetal restore` was writing", c.locator);
    }
    match group.members.iter().position(|m| m.uuid() == mark.member) {
        Some(m) if mark.file == group.file => Ok(Identity::Member(m, Proof::RestoreBegun)),
        Some(m) => Ok(Identity::Member(m, Proof::OtherRestoreBegun)),
        None if mark.file == group.file => Ok(Identity::Added),
        None => bail!("{} is a member that is not in this file; another file was being written back to it", c.locator),
    }
}

/// Devices that do not say who they are: each only if it was named, and can be but one.
fn by_content_or_size(
    group: &Group<'_>,
    candidates: &[Candidate],
    unknown: &[usize],
    targets: &mut [Option<(usize, Proof)>],
) -> Result<()> {
    let given = || unknown.iter().copied().filter(|i| candidates[*i].given);
    for i in given() {
        let c = &candidates[i];
        // One that holds metadata of several was several, one after the other.
        let [m] = c.traces[..] else { continue };
        if let Some((twin, _)) = targets[m].replace((i, Proof::Traces)) {
            bail!(
                "{} carries no sound label, but metadata of {}, which {} is, too; name only the right one with --member",
                c.locator,
                group.members[m].named(),
                candidates[twin].locator
            );
        }
        fits(&group.members[m], c)?;
    }
    let rest: Vec<usize> = given().filter(|i| candidates[*i].traces.len() != 1).collect();
    by_size(group, candidates, &rest, targets)?;
    if let Some(i) = unknown.iter().find(|i| !candidates[**i].given).filter(|_| targets.contains(&None)) {
        bail!(
            "{} carries no sound label. If it is a member of group '{}', name it and all others with --member",
            candidates[*i].locator,
            group.name
        );
    }
    Ok(())
}

/// Devices of which nothing tells who they are but their size.
fn by_size(
    group: &Group<'_>,
    candidates: &[Candidate],
    given: &[usize],
    targets: &mut [Option<(usize, Proof)>],
) -> Result<()> {
    let before: Vec<bool> = targets.iter().map(Option::is_some).collect();
    for &i in given {
        let c = &candidates[i];
        let fitting: Vec<usize> =
            (0..group.members.len()).filter(|m| !before[*m] && group.members[*m].size == c.size).collect();
        let rivals = given.iter().filter(|r| candidates[**r].size == c.size).count();
        match (fitting[..].first(), fitting.len(), rivals) {
            (Some(m), 1, 1) => targets[*m] = Some((i, Proof::None)),
            (None, ..) => bail!(
                "{} carries no sound label, and no member that is still to be found has its size of {} ({} bytes)",
                c.locator,
                approx(c.size),
                c.size
            ),
            _ => bail!(
                "{} carries no sound label, and by its size of {} it can be each of several members; which one cannot be told",
                c.locator,
                approx(c.size)
            ),
        }
    }
    Ok(())
}

/// A member must have all that was laid out on it. What has grown since is the same: its second label is where it was.
fn fits(member: &SavedMember, c: &Candidate) -> Result<()> {
    let laid_out = member.label.device_size;
    if c.size < laid_out {
        let way = Locator::parse(&c.locator).map_or("give it its size back".into(), |at| way_to_size(&at, c.size));
        bail!("{} has {} bytes, and {laid_out} of it were in use when it was saved; {way}", c.locator, c.size);
    }
    Ok(())
}

fn all_found(group: &Group<'_>, targets: &[Option<(usize, Proof)>]) -> Result<Vec<(usize, Proof)>> {
    let missing: Vec<String> = group
        .members
        .iter()
        .zip(targets)
        .filter(|(_, target)| target.is_none())
        .map(|(m, _)| format!("{}, which was {} when it was saved", m.named(), m.locator))
        .collect();
    if !missing.is_empty() {
        bail!(
            "not all members were found that are in the file: {}. All of them are needed; name them with --member",
            missing.join("; ")
        );
    }
    Ok(targets.iter().copied().flatten().collect())
}

/// Members that were added by a repair since, as the labels of others say, and were not found: they keep their own.
pub(super) fn added_and_away(group: &Group<'_>, candidates: &[Candidate]) -> Vec<String> {
    let labels = || candidates.iter().filter_map(|c| c.label.as_ref());
    let repaired = labels().filter(|l| l.repair == Repair::Done && follows(group, l));
    let rows = newest(repaired).into_iter().flat_map(|l| l.members.iter().enumerate());
    let before = group.members.iter().flat_map(|m| &m.label.members).map(|row| row.uuid);
    // One that has no label any more says by a mark who it was.
    let marked = candidates.iter().filter_map(|c| Some(c.mark?.member));
    let known: HashSet<[u8; 16]> = before.chain(labels().map(own_uuid)).chain(marked).collect();
    let away = rows.filter(|(_, row)| row.state != MemberCode::Left && !known.contains(&row.uuid));
    away.map(|(i, row)| format!("member {i} ({})", approx(row.size))).collect()
}

/// Members that the saved labels name and the file does not have.
pub(super) fn not_in_file(group: &Group<'_>) -> Vec<String> {
    let newest = newest(group.members.iter().map(|m| &m.label));
    let rows = newest.into_iter().flat_map(|l| l.members.iter().enumerate());
    let saved: HashSet<[u8; 16]> = group.members.iter().map(SavedMember::uuid).collect();
    let absent = rows.filter(|(_, row)| row.state != MemberCode::Left && !saved.contains(&row.uuid));
    absent.map(|(i, row)| format!("member {i} ({})", approx(row.size))).collect()
}
