//! The repair of each member, and what its label says afterwards.

use bimetal_format::label::{Label, MemberCode, Repair as Mark};

use super::keep::reduce;
use super::{RepairError, Report};
use crate::env::{Device, DeviceError, Env};
use crate::group::core::Core;
use crate::group::create::lay_out;
use crate::member::checkpoint::How;
use crate::member::journal::Position;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::recovery::{next_epoch, ForRepair};
use crate::units::{MemberIndex, Tier};

fn failed(member: MemberIndex) -> impl Fn(DeviceError) -> RepairError {
    move |source| RepairError::Failed { member, source }
}

pub(super) async fn carry_out<E: Env>(
    core: &Core<E>,
    known: &ForRepair,
    new: Vec<(Member<E::Device>, Label)>,
) -> Result<Report, RepairError> {
    let generation = core.commit.generation.get() + 1;
    let given_up = reduce(core, generation).await;
    core.commit.generation.set(generation);
    core.commit.durable_generation.set(generation);
    let mut members: Vec<&Member<E::Device>> = core.members.iter().filter(|m| m.is_present()).collect();
    for (m, _) in &new {
        lay_out(m).await.map_err(failed(m.index))?;
    }
    let labelled: Vec<&Member<E::Device>> =
        members.iter().filter(|m| !known.unlabelled.contains(&m.index)).copied().collect();
    let id = mark(core, &labelled).await?;
    let agreed = agreed(core, &members, &new, id);
    let lost = |m: &Member<E::Device>| !m.directory.borrow().root.is_some() && m.label.borrow().root_generation > 0;
    // Their maps are written last: until another one is there, theirs may be read the next time (3).
    members.sort_by_key(|m| lost(m) && !mutant::on(Mutant::RepairOverUnread));
    let fresh = || new.iter().map(|(m, _)| (m, true));
    let all: Vec<(&Member<E::Device>, bool)> = fresh().chain(members.iter().map(|m| (*m, false))).collect();
    for (m, new) in &all {
        begin_anew(core, m, known.journal_ends.get(m.index as usize).copied().flatten());
        let joining = *new && !mutant::on(Mutant::LeftoversStay);
        let label = Label { joining, ..label_of(m, &agreed) };
        *m.label.borrow_mut() = label;
    }
    for (m, new) in &all {
        write_headers(core, m, *new).await?;
        core.checkpoint_steps(m, How::ALONE).await.map_err(failed(m.index))?;
    }
    for (m, _) in all.iter().filter(|(m, _)| m.tier == Tier::Slow) {
        // Only now: until the member was done they told what it may not know.
        m.format_away().await.map_err(failed(m.index))?;
        m.sync_all().await.map_err(failed(m.index))?;
    }
    let struck_off = core.members.iter().filter(|m| !m.is_present()).map(|m| m.index).collect();
    Ok(Report { struck_off, new: fresh().map(|(m, _)| m.index).collect(), given_up })
}

/// Has the labels say that a repair was begun, and gives its number. One that was cut off keeps its number: where it is done on
/// a member, that one goes on to be the source, and those which are not done say so already.
async fn mark<E: Env>(core: &Core<E>, members: &[&Member<E::Device>]) -> Result<u32, RepairError> {
    let newest = newest_of(members);
    let known = (newest.repair != Mark::None).then_some(newest.repair_id);
    let id = known.unwrap_or_else(|| (core.env.random() as u32).max(1));
    let says_so = |l: &Label| l.repair != Mark::None && l.repair_id == id;
    for m in members.iter().filter(|m| !says_so(&m.label.borrow()) && !mutant::on(Mutant::RepairUnmarked)) {
        let mut label = m.label.borrow().clone();
        (label.repair, label.repair_id) = (Mark::Begun, id);
        m.flip(label).await.map_err(failed(m.index))?;
    }
    Ok(id)
}

/// The label of the newest epoch.
pub(super) fn newest_of<D: Device>(members: &[&Member<D>]) -> Label {
    let labels = members.iter().map(|m| m.label.borrow().clone());
    labels
        .max_by_key(|l| (l.epoch.first_generation, l.epoch.confirmed))
        .expect("a group is opened with a member at least")
}

/// What all labels say when the repair is done.
fn agreed<E: Env>(
    core: &Core<E>,
    members: &[&Member<E::Device>],
    new: &[(Member<E::Device>, Label)],
    id: u32,
) -> Label {
    let mut label = newest_of(members);
    let before_it = label.epoch.clone();
    // Nothing was served in the epoch of a repair that was cut off, or is repaired again.
    let served = before_it.confirmed && label.repair != Mark::Done;
    label.epoch = next_epoch(core, &before_it, served, members.iter().copied().chain(new.iter().map(|(m, _)| m)));
    label.epoch.confirmed = true;
    let before = label.members.clone();
    if let Some((_, last)) = new.last() {
        label.members.clone_from(&last.members);
    }
    for m in core.members.iter().filter(|m| !m.is_present()) {
        label.members[m.index as usize].state = MemberCode::Left;
    }
    label.members_changed |= label.members != before;
    label.tables += 1;
    label.mirrors_from = label.epoch.first_generation;
    (label.clean, label.stopped) = (true, false);
    (label.repair, label.repair_id) = (Mark::Done, id);
    label
}

/// The journal of a member is empty from here on. The first flip that says so is the one that names the new map.
fn begin_anew<E: Env>(core: &Core<E>, m: &Member<E::Device>, journal_end: Option<u64>) {
    let mut j = m.journal.borrow_mut();
    if let Some(end) = journal_end.filter(|_| !mutant::on(Mutant::RepairKeepsJournal)) {
        // Beyond the numbers of all blocks that lie on the ring: none of them can look like a later one.
        j.head = Position { sequence: end + m.layout.journal_blocks, hash: core.env.random() };
    }
    (j.durable, j.tail) = (j.head, j.head.sequence);
}

/// The label of a member when the repair is done, but for what its map says.
fn label_of<D: Device>(m: &Member<D>, agreed: &Label) -> Label {
    let own = m.label.borrow();
    let end = m.journal.borrow().head.sequence;
    let mut label = Label {
        member: m.index,
        sequence: own.sequence,
        device_size: own.device_size,
        zones: own.zones.clone(),
        journal_end: end,
        ..agreed.clone()
    };
    label.add_keys_zone();
    label
}

/// A new member gets the headers of families, and one of which the headers are damaged; durably, before its label names them.
async fn write_headers<E: Env>(core: &Core<E>, m: &Member<E::Device>, new: bool) -> Result<(), RepairError> {
    match new {
        true => core.copy_headers_to(m).await.map_err(RepairError::NewDevice)?,
        false => core.mend_headers_of(m).await.map(drop).map_err(failed(m.index))?,
    }
    m.sync_all().await.map_err(failed(m.index))
}
