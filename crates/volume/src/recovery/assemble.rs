//! Step 2: do these members make one group, and are they all current? (C4)

use std::cell::{Cell, RefCell};

use bimetal_format::block::GROWING_LIMIT;
use bimetal_format::label::{Label, MemberCode, MemberRow, Repair, READ_ONLY_COMPATIBLE};

use super::departed::without_departed;
use super::identify::Unusable;
use super::{Finding, Found, Identified, OpenError};
use crate::env::{Device, DeviceError, Env};
use crate::family::Families;
use crate::group::core::Core;
use crate::group::gate::RequestGate;
use crate::group::structure::adopt;
use crate::group::volumes::Volumes;
use crate::io::real_zeros::RealZeros;
use crate::map::Map;
use crate::member::label::Apart;
use crate::member::set::Members;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::options::OpenOptions;
use crate::tier::mover::MoverState;
use crate::tier::{HeadTime, Policy};
use crate::units::{MemberIndex, Tier, CHUNK};

/// Members that belong together.
pub(super) struct Assembled<D> {
    /// By member index; `None` is missing.
    devices: Vec<Place<D>>,
    /// Members whose labels are damaged, which were recognised all the same.
    recognised: Vec<MemberIndex>,
    /// A member whose FLUSH fails, and what it said.
    unflushed: Option<(MemberIndex, DeviceError)>,
    /// Where the members are in the caller's list.
    positions: Vec<usize>,
    /// The label that describes the group best.
    newest: Label,
    /// Members that are leaving and not there. The group can do without if nothing is left on them.
    dead: Vec<MemberIndex>,
    /// Why a device cannot be used that may be one of them.
    unusable: Option<OpenError>,
    findings: Vec<Finding>,
}

pub(super) fn assemble<D: Device>(found: Identified<D>, options: &OpenOptions) -> Result<Assembled<D>, OpenError> {
    let Identified { found, mut unusable } = found;
    if found.is_empty() && !unusable.is_empty() {
        let (device, why, _) = unusable.remove(0);
        return Err(why.refusal(device));
    }
    check_one_group(&found)?;
    let mut findings: Vec<Finding> = Vec::new();
    let (counting, joining) = without_departed(found, &mut findings);
    let (counting, newest) = without_cut_off_leavers(counting, &mut findings)?;
    let name = newest.group_name.clone();
    if options.writable && newest.read_only_compatible & !READ_ONLY_COMPATIBLE != 0 {
        return Err(OpenError::ReadOnlyFeatures { name });
    }
    if let Some(f) = counting.iter().find(|f| options.writable && f.label.is_exhausted()) {
        let what = format!(
            "member {} has a sequence, generation or journal position that no group can have come to",
            f.label.member
        );
        return Err(OpenError::Damaged { name, what });
    }
    if options.writable && counting.iter().any(|f| is_unfinished(&f.label, &newest)) {
        return Err(OpenError::RepairCutOff { name });
    }
    let table = newest_table(&counting, &newest).clone();
    let mut members = counting;
    let in_tables = |l: &Label| (l.tables, l.epoch.first_generation);
    let joined: Vec<_> = joining.iter().map(|f| (f.label.member, in_tables(&f.label))).collect();
    for f in joining {
        // Nothing was served with it if another device has become the member since: a repair that was cut off and done without it has taken
        // that one, which was being added in its place before.
        let is_member = |m: &Found<D>| m.label.member == f.label.member && !(m.label.joining || m.recognised);
        let is_later = |(member, when): &(MemberIndex, _)| *member == f.label.member && *when > in_tables(&f.label);
        let is_another = members.iter().any(is_member) || joined.iter().any(is_later);
        match is_listed(&f.label, &table) && (!is_another || mutant::on(Mutant::JoiningTwinCounts)) {
            true => members.push(f),
            false => findings.push(Finding::mended(half_added(&f))),
        }
    }
    check_doubled(&members)?;
    check_whole(&members, options)?;
    let positions = members.iter().map(|f| f.position).collect();
    let recognised: Vec<MemberIndex> = members.iter().filter(|f| f.recognised).map(|f| f.label.member).collect();
    let unflushed = members.iter().find_map(|f| Some((f.label.member, f.unflushed?)));
    let mut devices = in_places(members, &newest, &table, &mut findings)?;
    let old_copy = set_aside_leavers(&mut devices, &newest, &table, options.writable, &mut findings);
    let newest = take_table(&mut devices, newest, &table, &mut findings)?;
    check_stopped(&devices, &newest, &recognised)?;
    let there: Vec<bool> = devices.iter().map(Option::is_some).collect();
    let (dead, unusable) = weigh_absent(&there, &newest, unusable, options, &mut findings)?;
    Ok(Assembled { devices, recognised, unflushed, positions, newest, dead, unusable: unusable.or(old_copy), findings })
}

/// No start writes with a member that lacks what lay in a part of it: what is there would be its data from then on, and the whole one an
/// old copy.
fn check_whole<D>(members: &[Found<D>], options: &OpenOptions) -> Result<(), OpenError> {
    let broken = members.iter().find_map(|f| Some((f.position, f.apart?)));
    match broken.filter(|_| options.writable) {
        Some((device, apart)) => Err(OpenError::NotWhole { device, apart }),
        None => Ok(()),
    }
}

/// A device with its label and the place of the label that is to be written first.
type Place<D> = Option<(D, Label, usize)>;

/// The members by their indexes.
fn in_places<D>(
    members: Vec<Found<D>>,
    newest: &Label,
    table: &Label,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Place<D>>, OpenError> {
    let mut devices: Vec<Place<D>> = (0..table.members.len()).map(|_| None).collect();
    for f in members {
        findings.extend(f.problems.into_iter().map(Finding::mended));
        findings.extend(f.apart.map(|apart| Finding::serious(is_not_whole(f.label.member, apart))));
        findings.extend(f.unflushed.map(|why| Finding::serious(does_not_flush(f.label.member, why))));
        if let Some(why) = check_epoch(&f.label, newest)? {
            findings.push(Finding::mended(why));
        }
        match devices.get_mut(f.label.member as usize) {
            Some(place) => *place = Some((f.device, f.label, f.weaker)),
            // Whoever has another table has another number, and then one member of these cannot be right.
            None => return Err(contradiction(&newest.group_name, table, &f.label)),
        }
    }
    Ok(devices)
}

/// What is said of a member of which a part is not there.
fn is_not_whole(member: MemberIndex, apart: Apart) -> String {
    format!(
        "member {member} has {apart}, from where on nobody can tell. Bring all of it; only if there is nothing else does a repair take it as it is"
    )
}

/// What is said of a member that is only read.
fn does_not_flush(member: MemberIndex, why: DeviceError) -> String {
    format!(
        "member {member}: its FLUSH fails ({why}): what is read from it may not be on its medium yet, and no start writes with it. Copy \
         what is needed, while it can be read"
    )
}

/// Whether the group can do without the members that are not there: those that may have left, and why a device cannot be used
/// that may be one of them.
fn weigh_absent<D>(
    there: &[bool],
    newest: &Label,
    mut unusable: Vec<(usize, Unusable, Option<D>)>,
    options: &OpenOptions,
    findings: &mut Vec<Finding>,
) -> Result<(Vec<MemberIndex>, Option<OpenError>), OpenError> {
    let absent = |(i, m): &(usize, &MemberRow)| !there[*i] && m.state != MemberCode::Left;
    let absent: Vec<_> = newest.members.iter().enumerate().filter(absent).collect();
    let newer = unusable.iter().position(|(_, why, _)| why.is_newer());
    let were_leaving = absent.iter().all(|(_, m)| m.state == MemberCode::Leaving);
    let (dead, missing) = match options.writable && were_leaving && newer.is_none() {
        true => (absent, Vec::new()),
        false => (Vec::new(), absent),
    };
    let missing: Vec<String> = missing.into_iter().map(describe).collect();
    let harmless = !options.writable || mutant::on(Mutant::C8WritableWithoutAll);
    let enough = missing.is_empty() || (options.allow_missing && harmless && newer.is_none());
    if !enough && !unusable.is_empty() {
        // It may be the one who is missing.
        let (device, why, _) = unusable.remove(newer.unwrap_or(0));
        return Err(why.refusal(device));
    }
    if !enough {
        return Err(OpenError::Incomplete { name: newest.group_name.clone(), missing: missing.join(", ") });
    }
    let weigh = if missing.is_empty() { Finding::mended } else { Finding::serious };
    findings.extend(missing.into_iter().map(|m| Finding::serious(format!("missing: member {m}"))));
    findings.extend(dead.iter().map(|row| Finding::mended(died_empty(*row))));
    let refused = unusable.iter().map(|(device, why, _)| format!("device {device} is not used: {why}"));
    // With every member there it is none of them.
    findings.extend(refused.map(weigh));
    let unusable = unusable.into_iter().next().map(|(device, why, _)| why.refusal(device));
    Ok((dead.into_iter().map(|(i, _)| i as MemberIndex).collect(), unusable))
}

fn half_added<D>(f: &Found<D>) -> String {
    format!("device {} is not used: it was being added to the group when that was cut off; add it again", f.position)
}

/// Whether the table has the member that carries this label, as it describes itself: tables may differ by a change, but
/// never in that.
fn is_listed(label: &Label, table: &Label) -> bool {
    let own = |l: &Label| l.members.get(label.member as usize).map(|m| (m.uuid, m.tier, m.size, m.slots));
    own(label) == own(table)
}

fn died_empty(row: (usize, &MemberRow)) -> String {
    format!("member {} is not there; it was leaving and nothing is on it any more, so that it has left", describe(row))
}

pub(crate) fn describe((index, row): (usize, &MemberRow)) -> String {
    let tier = match row.tier {
        bimetal_format::label::TierCode::Fast => Tier::Fast,
        bimetal_format::label::TierCode::Slow => Tier::Slow,
    };
    let uuid: String = row.uuid.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{index} ({tier}, {}, uuid {uuid}...)", bimetal_format::size::approx(row.size))
}

fn check_one_group<D>(found: &[Found<D>]) -> Result<(), OpenError> {
    let Some(first) = found.first().map(|f| &f.label) else { return Err(OpenError::NoDevices) };
    match found.iter().find(|f| f.label.group != first.group) {
        Some(f) => {
            let (other, name) = (f.label.group_name.clone(), first.group_name.clone());
            Err(OpenError::OtherGroup { device: f.position, other, name })
        }
        None => Ok(()),
    }
}

fn check_doubled<D>(members: &[Found<D>]) -> Result<(), OpenError> {
    for (i, f) in members.iter().enumerate() {
        if let Some(twin) = members[..i].iter().find(|t| t.label.member == f.label.member) {
            let (first, second) = (twin.position.min(f.position), twin.position.max(f.position));
            let name = f.label.group_name.clone();
            return Err(OpenError::Doubled { first, second, member: f.label.member, name });
        }
    }
    Ok(())
}

/// Whether a repair is done on another member, but not on this one, whose map says nothing any more. An old copy of a member
/// that was marked by another repair is an old copy.
fn is_unrepaired(l: &Label, newest: &Label) -> bool {
    let same = l.repair_id == newest.repair_id || mutant::on(Mutant::RepairTakesAnother);
    let behind = l.repair != Repair::None && newest.repair == Repair::Done && l.epoch.id != newest.epoch.id;
    same && behind && !mutant::on(Mutant::RepairGoesBack)
}

/// Whether a repair was begun, or is done on a part of the members.
pub(crate) fn is_unfinished(l: &Label, newest: &Label) -> bool {
    is_unrepaired(l, newest) || (l.repair == Repair::Begun && l.epoch.id == newest.epoch.id)
}

/// Whether a label belongs to the newest epoch, or to a start of it that was cut off.
fn is_current(l: &Label, newest: &Label) -> bool {
    l.epoch.id == newest.epoch.id || newest.epoch.has_member(l.member)
}

/// Whether the member of a label is leaving, as the newest one says.
fn is_leaving(l: &Label, newest: &Label) -> bool {
    newest.members.get(l.member as usize).is_some_and(|m| m.state == MemberCode::Leaving)
}

/// The tables that count: of the labels that are current those with the highest number.
fn newest_table<'a, D>(counting: &'a [Found<D>], newest: &'a Label) -> &'a Label {
    let current = counting.iter().map(|f| &f.label).filter(|l| is_current(l, newest));
    current.max_by_key(|l| l.tables).unwrap_or(newest)
}

fn contradiction(name: &str, a: &Label, b: &Label) -> OpenError {
    let what = format!("the labels of members {} and {} contradict each other", a.member, b.member);
    OpenError::Damaged { name: name.into(), what }
}

/// Gives all labels the tables that count. A change is durable on all members before the next begins, so that none is
/// further behind than one change. Who a member is, and the pages, never change.
fn take_table<D>(
    devices: &mut [Place<D>],
    mut newest: Label,
    table: &Label,
    findings: &mut Vec<Finding>,
) -> Result<Label, OpenError> {
    let mut cut_off = false;
    for (_, l, _) in devices.iter().flatten() {
        let keys = |l: &Label| (l.families.clone(), l.next_family, l.keys_side);
        let equal = l.members == table.members && l.volumes == table.volumes && keys(l) == keys(table);
        let same =
            is_listed(l, table) && l.layout().pages == table.layout().pages && (l.tables != table.tables || equal);
        if !same {
            return Err(contradiction(&newest.group_name, table, l));
        }
        let behind = table.tables.saturating_sub(l.tables);
        let repaired = is_unrepaired(l, &newest);
        if !repaired && (behind > 1 && is_current(l, &newest) || behind > 0 && l.joining) {
            return Err(OpenError::Stale { name: newest.group_name.clone(), member: l.member });
        }
        let joins = l.joining && l.repair == Repair::None;
        cut_off |= is_current(l, &newest) && !repaired && (behind > 0 || joins);
    }
    if cut_off {
        findings.push(Finding::mended("a change of the volumes or members was cut off; it counts as made"));
    }
    for (_, l, _) in devices.iter_mut().flatten() {
        adopt(l, table);
    }
    adopt(&mut newest, table);
    Ok(newest)
}

/// The label whose epoch descends from all others; of equals one that says "confirmed", of those the newest write.
fn newest_label<D>(found: &[Found<D>]) -> Result<Label, OpenError> {
    let descends = |a: &Label, b: &Label| {
        a.epoch.id == b.epoch.id || a.epoch.history.contains(&b.epoch.id) || mutant::on(Mutant::C4ForkAccepted)
    };
    let heads = found.iter().filter(|f| found.iter().all(|o| descends(&f.label, &o.label)));
    let best = heads.max_by_key(|f| (f.label.epoch.confirmed, f.label.sequence));
    let Some(first) = found.first().map(|f| &f.label) else { return Err(OpenError::OnlyJoining) };
    best.map(|f| f.label.clone()).ok_or_else(|| {
        let apart = found.iter().filter(|f| !descends(first, &f.label)).map(|f| f.label.member);
        OpenError::Fork { name: first.group_name.clone(), members: apart.collect() }
    })
}

/// The newest label. A start that is cut off may have begun its epoch on a member alone that is leaving, and the next one
/// may have found that dead and have gone on without it: then neither epoch descends from the other. The one that was
/// begun on the leaver alone was never served, because it was never confirmed; the leaver is left alone.
fn without_cut_off_leavers<D>(
    counting: Vec<Found<D>>,
    findings: &mut Vec<Finding>,
) -> Result<(Vec<Found<D>>, Label), OpenError> {
    let fork = match newest_label(&counting) {
        Ok(newest) => return Ok((counting, newest)),
        Err(e) => e,
    };
    let knows = |o: &Label, epoch: u64| o.epoch.id == epoch || o.epoch.history.contains(&epoch);
    let cut_off: Vec<bool> = counting
        .iter()
        .map(|f| {
            let l = &f.label;
            let leaving = l.members.get(l.member as usize).is_some_and(|m| m.state == MemberCode::Leaving);
            let alone = counting.iter().all(|o| o.label.member == l.member || !knows(&o.label, l.epoch.id));
            leaving && alone && !l.epoch.confirmed
        })
        .collect();
    let (aside, rest): (Vec<_>, Vec<_>) = counting.into_iter().zip(cut_off).partition(|(_, cut_off)| *cut_off);
    let rest: Vec<Found<D>> = rest.into_iter().map(|(f, _)| f).collect();
    let went_on = |newest: &Label| aside.iter().all(|(f, _)| !newest.epoch.has_member(f.label.member));
    match newest_label(&rest) {
        Ok(newest) if went_on(&newest) => {
            findings.extend(aside.iter().map(|(f, _)| Finding::mended(went_on_without(f.label.member))));
            Ok((rest, newest))
        }
        _ => Err(fork),
    }
}

/// Members that are leaving and are not taken back. One was not there when the newest epoch began: that began because it was empty, and
/// may have given away what its journal alone knows of. Another one is more than a change behind, though a change is durable on all
/// members before the next begins: it failed when it was empty, and changes went on without it. Should there be something on that one, it
/// is an old copy: then a start that writes is refused with what this returns. Who only reads takes of the first kind what it has.
fn set_aside_leavers<D>(
    devices: &mut [Place<D>],
    newest: &Label,
    table: &Label,
    writable: bool,
    findings: &mut Vec<Finding>,
) -> Option<OpenError> {
    let mut old_copy = None;
    for place in devices.iter_mut() {
        let Some((_, l, _)) = place.as_ref().filter(|(_, l, _)| is_leaving(l, table) && is_listed(l, table)) else {
            continue;
        };
        // Where a repair is not done yet, that is what changed the tables of others.
        let is_behind = table.tables.saturating_sub(l.tables) > 1 && !is_unrepaired(l, newest);
        let member = l.member;
        match is_current(l, newest) {
            false if writable && !mutant::on(Mutant::DeadLeaverTakenBack) => {
                findings.push(Finding::mended(went_on_without(member)));
            }
            true if is_behind && !mutant::on(Mutant::LetGoBarsStart) => {
                findings.push(Finding::mended(changed_without(member)));
                old_copy.get_or_insert(OpenError::Stale { name: newest.group_name.clone(), member });
            }
            _ => continue,
        }
        *place = None;
    }
    old_copy.filter(|_| writable)
}

fn changed_without(member: MemberIndex) -> String {
    format!("member {member} is not used: it was leaving, and the group has been changed without it since")
}

fn went_on_without(member: MemberIndex) -> String {
    format!("member {member} is not used: it was leaving and not there when the group was last started")
}

/// Whether a member's epoch fits the group's. `Ok(Some(..))` is worth telling; an error refuses the member.
fn check_epoch(label: &Label, newest: &Label) -> Result<Option<String>, OpenError> {
    if label.epoch.id == newest.epoch.id || mutant::on(Mutant::C4StaleAccepted) {
        return Ok(None);
    }
    if mutant::on(Mutant::C4ForkAccepted) && !newest.epoch.history.contains(&label.epoch.id) {
        return Ok(None);
    }
    if is_unrepaired(label, newest) {
        return Ok(Some(format!("member {}: a repair was cut off before it was done here", label.member)));
    }
    // No epoch was served before all members that were present had it durably. So an older label on a member that was
    // present is either the trace of starts that were cut off, or of an old copy.
    let was_present = newest.epoch.has_member(label.member);
    let hidden = mutant::on(Mutant::C4CutOffHidesStale) && !newest.epoch.confirmed;
    if was_present && newest.epoch.has_served_since(label.epoch.id) && !hidden {
        return Err(OpenError::Stale { name: newest.group_name.clone(), member: label.member });
    }
    let what = match was_present {
        true => "a start was interrupted before it was in use",
        false => "was absent when the group was last started; its map is brought up to date",
    };
    Ok(Some(format!("member {}: {what}", label.member)))
}

/// After an orderly stop all members of the epoch that was stopped say so. One that does not was copied while it was in use, and what
/// was written since is not on it.
///
/// Members are marked by their index, and those that are leaving and were not there any more when the newest epoch began do not count.
fn check_stopped<D>(devices: &[Place<D>], newest: &Label, recognised: &[MemberIndex]) -> Result<(), OpenError> {
    let counts = |l: &&Label| !recognised.contains(&l.member) && (is_current(l, newest) || !is_leaving(l, newest));
    let labels = || devices.iter().flatten().map(|(_, l, _)| l).filter(counts);
    let ended = |l: &Label| if l.stopped && (l.clean || !l.epoch.confirmed) { l.epoch.last_served() } else { None };
    let ended: Vec<u64> = labels().filter_map(ended).collect();
    let marked = |l: &Label| l.stopped && l.epoch.confirmed;
    let behind_marked = |l: &Label| labels().any(|o| o.epoch.id == l.epoch.id && o.member > l.member && marked(o));
    let in_use = |l: &&Label| !marked(l) && (ended.contains(&l.epoch.id) || behind_marked(l));
    match labels().find(in_use).filter(|_| !mutant::on(Mutant::C4CopyInUseAccepted)) {
        Some(l) => Err(OpenError::Stale { name: l.group_name.clone(), member: l.member }),
        None => Ok(()),
    }
}

/// What is known of members that are not as they should be.
pub(super) struct Absent {
    /// By member index: it was not there when the newest epoch began.
    pub(super) before: Vec<bool>,
    /// It is leaving, and not there now.
    pub(super) dead: Vec<MemberIndex>,
    /// A device that may be one of these, and why it cannot be used.
    pub(super) unusable: Option<OpenError>,
    /// Members whose labels are damaged.
    pub(super) recognised: Vec<MemberIndex>,
    /// A member whose FLUSH fails, and what it said.
    pub(super) unflushed: Option<(MemberIndex, DeviceError)>,
    /// Where the members are in the caller's list.
    pub(super) positions: Vec<usize>,
}

/// A core with nothing loaded yet.
pub(super) fn core_of<E: Env>(env: E, a: Assembled<E::Device>, options: OpenOptions) -> (Core<E>, Absent) {
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
        let behind = label.epoch.id != newest.epoch.id && !newest.epoch.has_member(index as u8);
        absent.push(behind || is_unrepaired(&label, newest) || a.recognised.contains(&(index as u8)));
        let m = Member::new(device, label, index as u8, options.journal_records);
        m.weaker_label.set(weaker);
        members.push(m);
    }
    let fast = members.iter().filter(|m: &&Member<E::Device>| m.tier == Tier::Fast && !m.is_gone());
    let fast_slots: u64 = fast.map(|m| m.free.borrow().count()).sum();
    let mut policy = HeadTime::new(fast_slots as u32);
    // One that no group comes to is no reason to refuse a start: only heat depends on it.
    let clock = members.iter().map(|m| m.label.borrow().policy_clock).max().unwrap_or(0);
    policy.restore_clock(clock.min(GROWING_LIMIT));
    let core = Core {
        name: newest.group_name.clone(),
        uuid: newest.group,
        sector_size: newest.sector_size,
        reserve: newest.reserve / CHUNK,
        writable: options.writable,
        map_complete: false,
        journal_gap: Cell::new(false),
        left_behind: Cell::new(false),
        authority: 0,
        vouching: Default::default(),
        mover: MoverState::new(options.promotion_burst, env.now()),
        policy: RefCell::new(policy),
        real_zeros: RealZeros::new(options.max_inflight_bytes),
        requests: RequestGate::new(options.max_inflight_bytes),
        env,
        options,
        members: Members::new(members),
        families: Families::new(newest),
        volumes,
        map: RefCell::new(Map::new(pages)),
        claims: Default::default(),
        kept: Default::default(),
        commit: Default::default(),
        reclaim: Default::default(),
        health: Default::default(),
        mover_wake: Default::default(),
        checkpoint_wake: Default::default(),
        saving_heat: Default::default(),
        dead: Default::default(),
        quarantine: Default::default(),
        lag_notes: Cell::new(0),
        stopped: Cell::new(false),
        stopping: Cell::new(false),
        findings: RefCell::new(a.findings),
        damaged_chunks: Default::default(),
        partly_known: Default::default(),
        counters: Default::default(),
    };
    (
        core,
        Absent {
            before: absent,
            dead: a.dead,
            unusable: a.unusable,
            recognised: a.recognised,
            unflushed: a.unflushed,
            positions: a.positions,
        },
    )
}
