//! New devices in place of members that are gone.

use anyhow::{bail, Context, Result};
use bimetal_format::label::{Label, LabelError, Repair as Repaired};
use bimetal_host::device::{Access, OpenError};
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::env::Device;
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::repair::Plan;
use bimetal_volume::units::Tier;
use futures_util::future::join_all;

use super::{copies, words};
use crate::cli::Repair;
use crate::commands::create::{refuse_tiny, refuse_used};
use crate::config::{self, MemberConfig};
use crate::erase::erase;
use crate::former::{self, Standing};
use crate::members::{self, own_uuid, Members, Opened};
use crate::{legs, metadata_room, restoring, twins, waiting};

/// A device as it was named.
#[derive(Clone)]
pub(super) struct NewDevice {
    pub(super) locator: Locator,
    pub(super) tier: Tier,
    /// Whose data on it would be lost, once it was looked at.
    pub(super) lost_with: String,
}

/// One of them without a label.
pub(super) struct Bare {
    pub(super) locator: Locator,
    pub(super) tier: Tier,
    /// The configuration has a member there.
    pub(super) configured: bool,
    device: HostDevice,
}

/// Those of the command line.
pub(super) fn parse(args: &Repair) -> Result<Vec<NewDevice>> {
    let of_tier = |texts: &[String], tier| -> Result<Vec<NewDevice>> {
        Ok(members::parse_all(texts)?
            .into_iter()
            .map(|locator| NewDevice { locator, tier, lost_with: String::new() })
            .collect())
    };
    let mut all = of_tier(&args.fast, Tier::Fast)?;
    all.extend(of_tier(&args.slow, Tier::Slow)?);
    Ok(all)
}

/// Leaves out those that a repair which was cut off has made members already; no other member is taken for a new device.
pub(super) fn without_members(new: Vec<NewDevice>, found: &Members) -> Result<Vec<NewDevice>> {
    let mut rest = Vec::new();
    for n in new {
        let label = found.opened.iter().filter(|m| m.locator == n.locator).find_map(|m| m.label.as_ref());
        match label.map(|l| (l.member, l.repair)) {
            None => rest.push(n),
            Some((_, Repaired::Done)) => {}
            Some((index, _)) => bail!("{} is member {index} of this group already, and no new device", n.locator),
        }
    }
    Ok(rest)
}

/// A new device may stand where the configuration has the one that is gone: then it is open already, and no member
/// (any more). Gives those, which must be closed before they are opened as new ones.
pub(super) fn let_go(found: &mut Members, new: &[NewDevice]) -> Vec<Opened> {
    let newest = former::newest(found.opened.iter().filter_map(|m| m.label.as_ref())).cloned();
    let is_member = |m: &Opened| {
        let labels = m.label.as_ref().zip(newest.as_ref());
        labels.is_some_and(|(own, newest)| former::standing(own, newest) == Standing::Member)
    };
    let is_new = |m: &Opened| new.iter().any(|n| members::identity(&n.locator) == members::identity(&m.locator));
    let all = std::mem::take(&mut found.opened).into_iter();
    let (rest, aside) = all.partition(|m: &Opened| is_member(m) || !is_new(m));
    found.opened = rest;
    aside
}

/// A member whose labels are gone looks like a new device to whoever looks for a label. It holds what it held, and a repair
/// without new devices knows it by what else is on it: to take it for new would throw that away.
pub(super) async fn refuse_unlabelled_members(
    env: &HostEnv,
    plan: &Plan<HostEnv>,
    found: &Members,
    aside: Vec<Opened>,
    new: &[NewDevice],
) -> Result<()> {
    let bare = if plan.missing().is_empty() { Vec::new() } else { without_labels(env, aside, new).await };
    let devices: Vec<(&Locator, &HostDevice)> = bare.iter().map(|b| (&b.locator, &b.device)).collect();
    let (known, back) = recognised(env, plan, found, &devices).await?;
    let known: Vec<&Bare> = known.into_iter().filter_map(|i| bare.get(i)).collect();
    match known.is_empty() {
        true => Ok(()),
        false => bail!("{}", words::unlabelled(plan.group(), &known, &back, found)),
    }
}

/// The same of a device where the configuration has a member, and that was not named at all.
pub(super) async fn refuse_unnamed_without_labels(
    env: &HostEnv,
    plan: &Plan<HostEnv>,
    found: &Members,
    explicit: &[Locator],
    new: &[NewDevice],
) -> Result<()> {
    if explicit.is_empty() || plan.missing().is_empty() {
        return Ok(());
    }
    let (_, places) = not_named(plan.group(), found, explicit, new)?;
    let look = async |place: Locator| {
        let device = HostDevice::open(env, &place, Access::PEEK).await.ok()?;
        let label = members::read_label(&device).await.ok()?;
        matches!(label, Err(LabelError::NotALabel | LabelError::Checksum)).then_some((place, device))
    };
    let bare: Vec<(Locator, HostDevice)> = join_all(places.into_iter().map(look)).await.into_iter().flatten().collect();
    let devices: Vec<(&Locator, &HostDevice)> = bare.iter().map(|(at, device)| (at, device)).collect();
    let (known, back) = recognised(env, plan, found, &devices).await?;
    let known: Vec<String> = known.into_iter().filter_map(|i| Some(bare.get(i)?.0.to_string())).collect();
    match known.is_empty() {
        true => Ok(()),
        false => bail!("{}", words::unnamed_without_labels(plan.group(), &known, &back)),
    }
}

/// Which of these devices without labels are members that are missing, by what else is on them, and which members these are, in words.
async fn recognised(
    env: &HostEnv,
    plan: &Plan<HostEnv>,
    found: &Members,
    bare: &[(&Locator, &HostDevice)],
) -> Result<(Vec<usize>, String)> {
    if bare.is_empty() {
        return Ok((Vec::new(), String::new()));
    }
    let devices = found.devices().into_iter().chain(bare.iter().map(|(_, device)| (*device).clone())).collect();
    let named = bare.iter().map(|(at, _)| at.to_string()).collect::<Vec<_>>().join(", ");
    let with = Plan::new(env.clone(), devices, false).await;
    let with = with.with_context(|| format!("whether {named} is a missing member cannot be found out"))?;
    let first = found.opened.len();
    if let Some((at, why)) = with.failed().iter().find(|(at, _)| *at >= first && with.held_back().contains(at)) {
        let place = bare.get(at - first).map(|(at, _)| at.to_string()).unwrap_or_default();
        bail!("{place}: {why}. It would be given up. Nothing was changed");
    }
    let known = with.members().iter().filter_map(|at| at.checked_sub(first)).collect();
    let still = with.missing();
    let back: Vec<String> = plan.missing().into_iter().filter(|m| !still.contains(m)).collect();
    Ok((known, back.join(", ")))
}

/// Those of the new devices that have no label, or a damaged one: the ones that were set aside, and others, which are only read.
async fn without_labels(env: &HostEnv, aside: Vec<Opened>, new: &[NewDevice]) -> Vec<Bare> {
    let mut bare: Vec<Bare> = Vec::new();
    for n in new {
        let is_it = |o: &&Opened| members::identity(&o.locator) == members::identity(&n.locator);
        let (device, configured) = match aside.iter().find(is_it) {
            Some(opened) => (opened.device.clone(), true),
            None => match HostDevice::open(env, &n.locator, Access::PEEK).await {
                Ok(device) => (device, false),
                // Why it is not to be had says who takes it.
                Err(_) => continue,
            },
        };
        if let Ok(Err(LabelError::NotALabel | LabelError::Checksum)) = members::read_label(&device).await {
            bare.push(Bare { locator: n.locator.clone(), tier: n.tier, configured, device });
        }
    }
    bare
}

/// Devices that may be members that are missing: they are there, or may be, and cannot be used at this moment. `before` were not even
/// opened as members.
pub(super) fn unread_members(plan: &Plan<HostEnv>, found: &Members, before: Vec<String>) -> Vec<String> {
    if plan.missing().is_empty() {
        return Vec::new();
    }
    let named = |(at, why): &(usize, String)| {
        let m = found.opened.get(*at)?;
        Some(format!("{}: {}", m.locator, m.lacks_of_its_size().unwrap_or_else(|| why.clone())))
    };
    before.into_iter().chain(plan.failed().iter().filter_map(named)).collect()
}

/// What a repair wrote would be of neither time, and the file that the restore was cut off with would be refused from then on.
pub(super) async fn refuse_restoring(
    env: &HostEnv,
    group: &str,
    found: &Members,
    explicit: &[Locator],
    new: &[NewDevice],
) -> Result<()> {
    let mut way = found.way_to_restored();
    let ours = found.labelled().next().map(|(_, label)| config::uuid_text(&label.group));
    if let (None, false, Some(uuid)) = (&way, explicit.is_empty(), ours) {
        // One that was not named may be at hand all the same, and one that is named as a new one may be no such.
        let config = config::load(group)?.filter(|c| c.uuid == uuid);
        let places = config.iter().flat_map(|c| &c.members).filter_map(|m| members::parse(&m.locator).ok());
        let others = places.chain(new.iter().map(|n| n.locator.clone())).filter(|place| !explicit.contains(place));
        let marked = restoring::at_hand(env, others.collect(), &uuid, &restoring::laid_out(found)).await;
        let marked: Vec<String> = marked.iter().map(Locator::to_string).collect();
        let all: Vec<String> =
            found.opened.iter().map(|m| m.locator.to_string()).chain(marked.iter().cloned()).collect();
        way = (!marked.is_empty()).then(|| restoring::way_on(&marked, &all));
    }
    match way {
        Some(way) => bail!("{}", words::restoring(&way)),
        None => Ok(()),
    }
}

/// Where members are named, those that are at hand and were forgotten are not struck off without a word. Gives those that cannot
/// be opened or read now.
pub(super) async fn refuse_unnamed(
    env: &HostEnv,
    group: &str,
    found: &Members,
    explicit: &[Locator],
    new: &[NewDevice],
) -> Result<Vec<String>> {
    if explicit.is_empty() {
        return Ok(Vec::new());
    }
    let (uuid, places) = not_named(group, found, explicit, new)?;
    // Side by side: each that does not answer takes its time.
    let unread = join_all(places.iter().map(|place| refuse_forgotten(env, group, &uuid, place))).await;
    let unread = unread.into_iter().collect::<Result<Vec<Option<String>>>>()?;
    refuse_elsewhere(env, group, found, new).await?;
    Ok(unread.into_iter().flatten().collect())
}

/// Where the configuration of the group has members that were not named, and the UUID that it gives.
fn not_named(group: &str, found: &Members, explicit: &[Locator], new: &[NewDevice]) -> Result<(String, Vec<Locator>)> {
    let ours = found.labelled().next().map(|(_, label)| config::uuid_text(&label.group));
    // What it says of another group of that name is nothing to this one.
    let config = config::load(group)?.filter(|c| ours.as_ref().is_none_or(|uuid| *uuid == c.uuid));
    let places = config.iter().flat_map(|c| &c.members).map(|m| members::parse(&m.locator));
    let mut places = places.collect::<Result<Vec<Locator>>>()?;
    // A device has several names.
    let named: Vec<String> = explicit.iter().chain(new.iter().map(|n| &n.locator)).map(members::identity).collect();
    places.retain(|place| !named.contains(&members::identity(place)));
    Ok((config.map_or_else(String::new, |c| c.uuid), places))
}

/// The same of one place of the configuration. Gives why it cannot be opened or read now.
async fn refuse_forgotten(env: &HostEnv, group: &str, uuid: &str, locator: &Locator) -> Result<Option<String>> {
    let device = match HostDevice::open(env, locator, Access::PEEK).await {
        Ok(device) => device,
        Err(OpenError::Missing { .. } | OpenError::NoServer { .. } | OpenError::WrongKind { .. }) => return Ok(None),
        Err(why) => return Ok(Some(format!("{why}; {locator} was not named"))),
    };
    match members::read_label(&device).await {
        Err(e) => Ok(Some(format!("{locator}, which was not named: the label cannot be read: {e:#}"))),
        Ok(Ok(label)) if config::uuid_text(&label.group) == uuid => bail!("{}", words::unnamed(locator, group)),
        Ok(Err(why)) if why.is_newer() => bail!(
            "nothing was repaired: {}, and '{group}' has a member there. A repair would strike that off; if it is another device, disconnect it",
            members::newer_words(&locator.to_string(), &why)
        ),
        Ok(_) if device.size() == 0 => Ok(Some(format!("{locator}, which was not named, has no size at this moment"))),
        Ok(_) => Ok(None),
    }
}

/// A member that is missing may be at hand on a block device that has another name now, or on a machine that knows nothing of the group.
async fn refuse_elsewhere(env: &HostEnv, group: &str, found: &Members, new: &[NewDevice]) -> Result<()> {
    let labels = || found.labelled().map(|(_, label)| label);
    let Some(newest) = former::newest(labels()) else { return Ok(()) };
    let known: Vec<[u8; 16]> = labels().map(own_uuid).collect();
    let is_forgotten = |l: &Label| {
        l.group == newest.group && !known.contains(&own_uuid(l)) && former::standing(l, newest) == Standing::Member
    };
    for (locator, _) in members::scan_block_devices(env, &is_forgotten).await {
        // Why that is no new device is said where it would be taken for one.
        if new.iter().any(|n| members::identity(&n.locator) == members::identity(&locator)) {
            continue;
        }
        bail!("{}", legs::why_not(env, &locator).await.unwrap_or_else(|| words::unnamed(&locator, group)));
    }
    Ok(())
}

/// Takes the devices into the plan. Nothing is written to them.
pub(super) async fn add_all(
    env: &HostEnv,
    group: &former::Wanting,
    found: &Members,
    plan: &mut Plan<HostEnv>,
    new: &mut [NewDevice],
    force: bool,
) -> Result<Vec<HostDevice>> {
    let mut opened = Vec::new();
    for n in new {
        refuse_used(env, &n.locator, force).await?;
        let device = waiting::open(env, &n.locator, Access::SERVE).await?;
        refuse_tiny(&n.locator, &device)?;
        let copy = copies::refuse_members(env, group, found, n, &device, force).await?;
        former::refuse_carrier(&n.locator, &device, force).await?;
        former::refuse(env, &n.locator, &device, Some(group), force).await?;
        n.lost_with = match copy {
            Some(copy) => format!(", {copy}"),
            None => former::lost_with(env, &n.locator, &device).await,
        };
        let member = NewMember { tier: n.tier, force, journal_blocks: None };
        plan.add(device.clone(), &member).await.with_context(|| n.locator.to_string())?;
        opened.push(device);
    }
    Ok(opened)
}

/// Takes room for the metadata of new members that are files with holes, before anything is written.
pub(super) async fn take_room(plan: &Plan<HostEnv>, new: &[NewDevice], opened: &[HostDevice]) -> Result<()> {
    for ((n, device), (layout, size)) in new.iter().zip(opened).zip(plan.new_layouts()) {
        if let Err(no_room) = metadata_room::of_layout(device, &layout, size).await {
            bail!(
                "nothing was repaired: {}: {no_room}; free some of that file system, or give a file elsewhere",
                n.locator
            );
        }
    }
    Ok(())
}

/// The owner has said yes: what the devices carried goes, and the configuration names them, so that whatever happens
/// the next start finds them. Gives what there is to say of those that it cannot name.
pub(super) async fn take(
    env: &HostEnv,
    group: &str,
    new: &[NewDevice],
    opened: &[HostDevice],
    found: &Members,
    force: bool,
) -> Result<Vec<String>> {
    let named: Vec<_> = new.iter().map(|n| &n.locator).zip(opened).collect();
    let members: Vec<_> = found.opened.iter().map(|m| (&m.locator, &m.device)).collect();
    twins::refuse(env, &named, &members).await?;
    let known = found.as_configuration(group);
    let mut not_noted = Vec::new();
    for (n, device) in new.iter().zip(opened) {
        if force {
            erase(device).await.with_context(|| format!("what {} carries cannot be erased", n.locator))?;
        }
        let member = MemberConfig { locator: n.locator.to_string(), tier: n.tier.to_string() };
        let known = known.clone();
        let noted = env.blocking(move || config::note_member(&known, &member)).await??;
        not_noted.extend(noted.not_at_all(group, &n.locator.to_string()));
    }
    Ok(not_noted)
}
