//! Step 2: do these members make one group, and are they all current? (C4)

use std::cell::{Cell, RefCell};

use bimetal_format::label::{Label, READ_ONLY_COMPATIBLE};

use super::{Found, OpenError};
use crate::env::{Device, Env};
use crate::group::core::Core;
use crate::group::structure::adopt;
use crate::group::volumes::Volumes;
use crate::map::Map;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::options::OpenOptions;
use crate::tier::mover::MoverState;
use crate::tier::{HeadTime, Policy};
use crate::units::{Tier, CHUNK};

/// Members that belong together.
pub(super) struct Assembled<D> {
    /// By member index; `None` is missing.
    devices: Vec<Option<(D, Label, usize)>>,
    /// The label that describes the group best.
    newest: Label,
    findings: Vec<String>,
}

pub(super) fn assemble<D: Device>(found: Vec<Found<D>>, options: &OpenOptions) -> Result<Assembled<D>, OpenError> {
    check_one_group(&found)?;
    let newest = newest_label(&found)?;
    let name = newest.group_name.clone();
    if options.writable && newest.read_only_compatible & !READ_ONLY_COMPATIBLE != 0 {
        return Err(OpenError::ReadOnlyFeatures { name });
    }
    let mut devices: Vec<Option<(D, Label, usize)>> = (0..newest.members.len()).map(|_| None).collect();
    let mut findings = Vec::new();
    for f in found {
        findings.extend(f.problems);
        if let Some(why) = check_epoch(&f.label, &newest)? {
            findings.push(why);
        }
        let index = f.label.member as usize;
        devices[index] = Some((f.device, f.label, f.weaker));
    }
    let newest = take_table(&mut devices, newest, &mut findings)?;
    let missing: Vec<String> =
        newest.members.iter().enumerate().filter(|(i, _)| devices[*i].is_none()).map(describe).collect();
    if !missing.is_empty() && (options.writable || !options.allow_missing) {
        return Err(OpenError::Incomplete { name, missing: missing.join(", ") });
    }
    findings.extend(missing.into_iter().map(|m| format!("missing: member {m}")));
    Ok(Assembled { devices, newest, findings })
}

fn describe((index, row): (usize, &bimetal_format::label::MemberRow)) -> String {
    let tier = match row.tier {
        bimetal_format::label::TierCode::Fast => Tier::Fast,
        bimetal_format::label::TierCode::Slow => Tier::Slow,
    };
    let uuid: String = row.uuid.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{index} ({tier}, {}, uuid {uuid}...)", bimetal_format::size::approx(row.size))
}

fn check_one_group<D>(found: &[Found<D>]) -> Result<(), OpenError> {
    let first = &found[0].label;
    for (i, f) in found.iter().enumerate() {
        if f.label.group != first.group {
            let (other, name) = (f.label.group_name.clone(), first.group_name.clone());
            return Err(OpenError::OtherGroup { device: f.position, other, name });
        }
        if let Some(twin) = found[..i].iter().find(|t| t.label.member == f.label.member) {
            let name = first.group_name.clone();
            let (first, second) = (twin.position, f.position);
            return Err(OpenError::Doubled { first, second, member: f.label.member, name });
        }
    }
    Ok(())
}

/// Gives all labels the volume table that counts: of those that belong to the newest epoch, or to a start of it that
/// was cut off, the one with the highest number. A change is durable on all members before the next begins, so that
/// none is further behind than one change. Members and pages never change.
fn take_table<D>(
    devices: &mut [Option<(D, Label, usize)>],
    mut newest: Label,
    findings: &mut Vec<String>,
) -> Result<Label, OpenError> {
    let is_current = |l: &Label| l.epoch.id == newest.epoch.id || newest.epoch.has_member(l.member);
    let current = || devices.iter().flatten().map(|(_, l, _)| l).filter(|l| is_current(l));
    let table = current().max_by_key(|l| l.tables).unwrap_or(&newest).clone();
    let name = || newest.group_name.clone();
    for (_, l, _) in devices.iter().flatten() {
        let same = l.members == table.members
            && l.layout().pages == table.layout().pages
            && (l.tables != table.tables || l.volumes == table.volumes);
        if !same {
            let what = format!("the labels of members {} and {} contradict each other", table.member, l.member);
            return Err(OpenError::Damaged { name: name(), what });
        }
        if is_current(l) && l.tables + 1 < table.tables {
            return Err(OpenError::Stale { name: name(), member: l.member });
        }
    }
    if current().any(|l| l.tables < table.tables) {
        findings.push("a change of the volumes was cut off; it counts as made".into());
    }
    for (_, l, _) in devices.iter_mut().flatten() {
        adopt(l, &table);
    }
    adopt(&mut newest, &table);
    Ok(newest)
}

/// The label whose epoch descends from all others; of equals one that says "confirmed", of those the newest write.
fn newest_label<D>(found: &[Found<D>]) -> Result<Label, OpenError> {
    let descends = |a: &Label, b: &Label| a.epoch.id == b.epoch.id || a.epoch.history.contains(&b.epoch.id);
    let heads = found.iter().filter(|f| found.iter().all(|o| descends(&f.label, &o.label)));
    let best = heads.max_by_key(|f| (f.label.epoch.confirmed, f.label.sequence));
    best.map(|f| f.label.clone()).ok_or_else(|| {
        let first = &found[0].label;
        let apart = found.iter().filter(|f| !descends(first, &f.label)).map(|f| f.label.member);
        OpenError::Fork { name: first.group_name.clone(), members: apart.collect() }
    })
}

/// Whether a member's epoch fits the group's. `Ok(Some(..))` is worth telling; an error refuses the member.
fn check_epoch(label: &Label, newest: &Label) -> Result<Option<String>, OpenError> {
    if label.epoch.id == newest.epoch.id || mutant::on(Mutant::C4StaleAccepted) {
        return Ok(None);
    }
    // The newest epoch was never served before all members that were present had it durably. So an older label on a
    // member that was present is either the trace of a start that was cut off, or of an old copy.
    let was_present = newest.epoch.has_member(label.member);
    if was_present && newest.epoch.confirmed {
        return Err(OpenError::Stale { name: newest.group_name.clone(), member: label.member });
    }
    let what = match was_present {
        true => "a start was interrupted before it was in use",
        false => "was absent when the group was last started; its map is brought up to date",
    };
    Ok(Some(format!("member {}: {what}", label.member)))
}

/// A core with nothing loaded yet.
/// Also says which members were absent when the newest epoch began.
pub(super) fn core_of<E: Env>(env: E, a: Assembled<E::Device>, options: OpenOptions) -> (Core<E>, Vec<bool>) {
    let newest = &a.newest;
    let volumes = Volumes::new(&newest.volumes);
    let pages = newest.layout().pages;
    let mut members = Vec::with_capacity(a.devices.len());
    let mut absent = Vec::with_capacity(a.devices.len());
    for (index, device) in a.devices.into_iter().enumerate() {
        let (device, label, weaker) = match device {
            Some((d, l, weaker)) => (Some(d), l, weaker),
            None => (None, newest.clone(), 0),
        };
        absent.push(label.epoch.id != newest.epoch.id && !newest.epoch.has_member(index as u8));
        let m = Member::new(device, label, index as u8, options.journal_records);
        m.weaker_label.set(weaker);
        members.push(m);
    }
    let fast = members.iter().filter(|m: &&Member<E::Device>| m.tier == Tier::Fast);
    let fast_slots: u64 = fast.map(|m| m.free.borrow().count()).sum();
    let mut policy = HeadTime::new(fast_slots as u32);
    policy.restore_clock(members.iter().map(|m| m.label.borrow().policy_clock).max().unwrap_or(0));
    let core = Core {
        name: newest.group_name.clone(),
        uuid: newest.group,
        sector_size: newest.sector_size,
        reserve_slots: newest.reserve / CHUNK,
        writable: options.writable,
        map_complete: false,
        journal_gap: Cell::new(false),
        authority: 0,
        mover: MoverState::new(options.promotion_burst, env.now()),
        policy: RefCell::new(policy),
        env,
        options,
        members,
        volumes,
        map: RefCell::new(Map::new(pages)),
        claims: Default::default(),
        kept: Default::default(),
        commit: Default::default(),
        reclaim: Default::default(),
        health: Default::default(),
        mover_wake: Default::default(),
        checkpoint_wake: Default::default(),
        quarantine: Default::default(),
        lag_notes: Cell::new(0),
        stopped: Cell::new(false),
        stopping: Cell::new(false),
        requests: Default::default(),
        findings: RefCell::new(a.findings),
        damaged_chunks: Default::default(),
        counters: Default::default(),
    };
    (core, absent)
}
