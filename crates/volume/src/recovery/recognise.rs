//! For a repair: members whose labels are both damaged, by what else lies on them.
//!
//! The checksum of a block of metadata says of which member of which group it is, and where it lies; journal blocks and map
//! pages say in which epoch they were written. Every start that counts leaves such a block of its epoch on every member that
//! takes part: the end that it puts behind the journal, or the pages if the member was written anew. So a device is taken for a
//! member if, laid out as the tables of the others say, it holds a sound block of the newest epoch; an older copy of the member
//! holds none, nor does a device that was to become one and did not. With two such devices nobody knows which it is, and
//! neither is taken; that, and what cannot be read of one that proves nothing, is told, so that no member is struck off for it unasked.
//!
//! Pages that nothing has changed are of that epoch for ever: a member that was used long after it has some, too. If those that have labels
//! are copies from before, its slots hold other chunks by now than their maps say. Its journal tells: a block of a commit or start that
//! came after a commit of their epoch, in an epoch of which they know nothing. (A start puts its epoch into all labels before it writes
//! the first block in it.) Such a device is not taken, and that is told.
//!
//! Of such a member nothing is believed but the data in its slots: which map and journal were current its labels knew alone. Its
//! map is written anew.

use std::collections::BTreeSet;

use bimetal_format::label::{Label, LabelError, MemberCode, MemberRow, Repair, LABEL_SIZE};
use bimetal_format::layout::{default_journal_blocks, label_b, Layout};
use bimetal_format::{journal, page, Salt, BLOCK};

use super::departed::{voices, Voice};
use super::identify::Unusable;
use super::{Found, Identified};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::member::journal::Position;
use crate::mutant::{self, Mutant};
use crate::units::MemberIndex;

/// Blocks read at once.
const READ: u64 = 256;

/// What a device without a label in its places turned out to be.
struct Recognised {
    label: Label,
    /// It has a label all the same: the second one, where that was before the device grew.
    own: bool,
}

/// What else than labels says of a device as a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Nothing,
    /// It was there in the newest epoch.
    Current,
    /// It was in use after all that those know which have labels.
    Later,
}

/// Takes devices without a sound label for members of the group that the others belong to, where they prove to be. Gives those that have
/// a label elsewhere.
pub(super) async fn recognise<E: Env>(env: &E, identified: &mut Identified<E::Device>) -> Vec<MemberIndex> {
    let known = counting(&identified.found);
    let Some(base) = known.iter().max_by_key(|l| (l.tables, l.epoch.first_generation)).cloned() else {
        return Vec::new();
    };
    let at_hand = at_hand(&identified.found, &base, &known);
    let mut seen: Vec<Option<Recognised>> = Vec::new();
    for (_, why, device) in &mut identified.unusable {
        let damaged = matches!(why, Unusable::Label(LabelError::NotALabel | LabelError::Checksum));
        // A device that fails is not read from end to end.
        let fails = matches!(why, Unusable::Device(_));
        let mut failed = None;
        let who = match device.as_ref().filter(|_| damaged || fails) {
            Some(device) => who_is(env, device, (&base, &known), &at_hand, !fails, &mut failed).await,
            None => None,
        };
        // What it could be known by may be read another time.
        if let (None, Some(error)) = (&who, failed) {
            *why = Unusable::Device(error);
        }
        if let Some(Err(member)) = who {
            *why = Unusable::Later { member };
        }
        seen.push(who.and_then(Result::ok));
    }
    let members: Vec<u8> = seen.iter().flatten().map(|r| r.label.member).collect();
    let twins = |label: &Label| members.iter().filter(|m| **m == label.member).count() > 1;
    let (mut rest, mut misplaced) = (Vec::new(), Vec::new());
    for ((position, why, device), seen) in std::mem::take(&mut identified.unusable).into_iter().zip(seen) {
        match (seen, device) {
            (Some(r), device) if twins(&r.label) => {
                rest.push((position, Unusable::Doubled { member: r.label.member }, device));
            }
            (Some(r), Some(device)) => {
                misplaced.extend(r.own.then_some(r.label.member));
                identified.found.push(found(r, device, position));
            }
            (_, device) => rest.push((position, why, device)),
        }
    }
    identified.unusable = rest;
    misplaced
}

/// The labels that say who is a member. A leftover may have the very place that the member without labels has.
fn counting<D>(found: &[Found<D>]) -> Vec<Label> {
    let all: Vec<&Label> = found.iter().map(|f| &f.label).collect();
    let voices = voices(&all);
    let counts = |(_, voice): &(&Label, Voice)| *voice == Voice::Counts;
    all.into_iter().zip(voices).filter(counts).map(|(l, _)| l.clone()).collect()
}

/// The members that are there with a label. A new device of a repair that is done elsewhere is one as soon as the others list it: what was
/// being added in its place before has its number, too.
fn at_hand<D>(found: &[Found<D>], base: &Label, known: &[Label]) -> BTreeSet<MemberIndex> {
    let own = |l: &Label| l.members.get(l.member as usize).map(|m| m.uuid);
    let listed = |l: &Label| base.members.get(l.member as usize).map(|m| m.uuid) == own(l);
    let joining = found.iter().map(|f| &f.label).filter(|l| listed(l) && !mutant::on(Mutant::ListedIsNotAtHand));
    known.iter().chain(joining).map(|l| l.member).collect()
}

fn found<D>(r: Recognised, device: D, position: usize) -> Found<D> {
    let index = r.label.member;
    let what = match r.own {
        true => "its first label is damaged, and the second is where it was before the device grew",
        false => "both of its labels are damaged; it was recognised by what else is on it",
    };
    let problems = vec![format!("member {index}: {what}")];
    Found {
        device,
        label: r.label,
        position,
        // The second one first where both are gone: cut off behind the first, it would look like a device that lost its last part.
        weaker: usize::from(!r.own),
        problems,
        recognised: !r.own,
        apart: None,
        unflushed: None,
    }
}

/// Which member a device is that is none of those `at_hand`: by its second label, or by what else is on it if all of that may be read.
/// `failed` tells if some of it could not. An error is a member that was used later than the others know.
async fn who_is<E: Env>(
    env: &E,
    device: &E::Device,
    (base, known): (&Label, &[Label]),
    at_hand: &BTreeSet<MemberIndex>,
    by_content: bool,
    failed: &mut Option<DeviceError>,
) -> Option<Result<Recognised, MemberIndex>> {
    let rows = base.members.iter().enumerate().map(|(i, row)| (i as u8, row));
    for (index, row) in rows.filter(|(i, row)| row.state != MemberCode::Left && !at_hand.contains(i)) {
        if device.size() < row.size {
            continue;
        }
        if let Some(label) = label_of_smaller(device, base, index, row, failed).await {
            return Some(Ok(Recognised { label, own: true }));
        }
        for layout in layouts(base, known, row).into_iter().filter(|_| by_content) {
            match said_of(device, base, index, &layout, failed).await {
                Said::Nothing => {}
                Said::Current => {
                    return Some(Ok(Recognised { label: label_of(env, base, index, &layout), own: false }))
                }
                Said::Later => return Some(Err(index)),
            }
        }
    }
    None
}

/// The second label of a device that has grown since it was laid out.
async fn label_of_smaller<D: Device>(
    device: &D,
    base: &Label,
    index: u8,
    row: &MemberRow,
    failed: &mut Option<DeviceError>,
) -> Option<Label> {
    let place = label_b(row.size);
    let (buf, read) = device.read(place, BufMut::new(LABEL_SIZE)).await;
    *failed = failed.or(read.err());
    let label = read.ok().and_then(|()| Label::decode(&buf, place).ok())?;
    let own = label.members.get(index as usize).map(|m| m.uuid) == Some(row.uuid);
    (label.group == base.group && label.member == index && own && !label.joining).then_some(label)
}

/// How a member of this row may be laid out: the number of its journal blocks is in its own label alone. One that was added has as many
/// as the shortest of the others had, if by its size it would have fewer.
fn layouts(base: &Label, known: &[Label], row: &MemberRow) -> Vec<Layout> {
    let pages = base.layout().pages;
    let others = known.iter().map(|l| l.layout().journal_blocks as u32);
    let journals: BTreeSet<u32> = others.chain([default_journal_blocks(row.size)]).collect();
    let planned = journals.into_iter().filter_map(|blocks| Layout::plan(row.size, pages, blocks).ok());
    planned.filter(|l| l.slot_count == u64::from(row.slots)).collect()
}

/// The newest epoch, and those before it down to the last in which anything was served.
fn newest_epochs(base: &Label) -> Vec<u64> {
    let epoch = &base.epoch;
    let unserved = match !epoch.confirmed || base.repair == Repair::Done {
        true => usize::from(epoch.cut_off),
        false => 0,
    };
    std::iter::once(epoch.id).chain(epoch.history.iter().take(unserved).copied()).collect()
}

/// What journal blocks and map pages say that are where this member would have them.
async fn said_of<D: Device>(
    device: &D,
    base: &Label,
    index: u8,
    layout: &Layout,
    failed: &mut Option<DeviceError>,
) -> Said {
    let epochs = newest_epochs(base);
    let newest = |epoch| epochs.contains(&epoch) || mutant::on(Mutant::RepairTrustsAny);
    let by_journal = |bytes: &[u8], salt: &Salt| match journal::decode(bytes, salt) {
        Ok((head, ..)) if is_later(base, head.epoch, head.generation) => Said::Later,
        Ok((head, ..)) if newest(head.epoch) => Said::Current,
        _ => Said::Nothing,
    };
    let by_page = |bytes: &[u8], salt: &Salt| match page::decode(bytes, salt) {
        Ok((head, _)) if newest(head.epoch) => Said::Current,
        _ => Said::Nothing,
    };
    let zone = (layout.journal, layout.journal_blocks);
    let journal = look_through(device, base, index, (zone, Said::Later), by_journal, failed).await;
    let zone = (layout.map, layout.pages * 2);
    match journal {
        Said::Nothing => look_through(device, base, index, (zone, Said::Current), by_page, failed).await,
        said => said,
    }
}

/// Whether a journal block is of an epoch that begins after a commit of the newest one that is known. Blocks of all epochs before it, also of
/// those that are forgotten, bear smaller numbers.
fn is_later(base: &Label, epoch: u64, generation: u64) -> bool {
    let known = epoch == base.epoch.id || base.epoch.history.contains(&epoch);
    !known && generation >= base.epoch.first_generation && !mutant::on(Mutant::RepairTrustsAny)
}

/// The most that a block of a zone says, which begins at the first of these numbers and has so many; nothing says more than `most`.
async fn look_through<D: Device>(
    device: &D,
    base: &Label,
    index: u8,
    ((first, blocks), most): ((u64, u64), Said),
    says: impl Fn(&[u8], &Salt) -> Said,
    failed: &mut Option<DeviceError>,
) -> Said {
    let (mut at, mut said) = (0, Said::Nothing);
    while at < blocks && said != most {
        let count = READ.min(blocks - at);
        let place = first + at * BLOCK as u64;
        let (buf, read) = device.read(place, BufMut::new(count as usize * BLOCK)).await;
        *failed = failed.or(read.err());
        if read.is_ok() {
            let salt = |i: usize| Salt { group: base.group, member: index, place: place + (i * BLOCK) as u64 };
            let each = buf.chunks_exact(BLOCK).enumerate().map(|(i, bytes)| says(bytes, &salt(i)));
            said = each.fold(said, Said::max);
        }
        at += count;
    }
    said
}

fn label_of<E: Env>(env: &E, base: &Label, index: u8, layout: &Layout) -> Label {
    let tail = Position::anew(env.random() >> 24, env.random());
    let mut label = Label {
        member: index,
        device_size: base.members[index as usize].size,
        zones: layout.zones(),
        clean: false,
        stopped: false,
        journal_tail: tail.sequence,
        journal_tail_hash: tail.hash,
        journal_end: tail.sequence,
        checkpoint_generation: 0,
        root_generation: 0,
        root_side: 0,
        ..base.clone()
    };
    label.add_keys_zone();
    label
}
