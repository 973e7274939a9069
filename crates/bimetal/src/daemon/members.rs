//! Changes of the members of a group: the engine's, and what follows for the configuration.
//!
//! Whatever asks a file system happens beside the group's thread: it may hang, and if it is on a volume of the group it waits
//! for that thread.

use anyhow::{bail, Context};
use bimetal_export::ublk::device;
use bimetal_format::label::Label;
use bimetal_host::device::Access;
use bimetal_host::locator::NbdServer;
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::env::Device;
use bimetal_volume::group::structure::{NewMember, NotAMember, StructureError};
use bimetal_volume::group::Group;
use bimetal_volume::options::MemberStatus;
use bimetal_volume::units::{MemberIndex, Tier};

use super::jobs::{Done, Outcome};
use super::nameless::MemberFile;
use super::places::{why_not_free, Places};
use super::{Shared, Ways};
use crate::api::{ChangedMember, MemberChange};
use crate::commands::create::refuse_used;
use crate::config::{self, uuid_text, GroupConfig, MemberConfig, Noted};
use crate::erase::{erase, Erased};
use crate::former::{self, Standing};
use crate::members::Stranger;
use crate::own::Own;
use crate::{log, members, metadata_room, runstate, waiting};

/// Carries a change out for the daemon of a group.
pub(super) async fn change(group: &Group<HostEnv>, ways: &Ways, shared: &Shared, change: MemberChange) -> Outcome {
    let name = &shared.facts.group;
    let own = own(group, name, ways.nbd.servers());
    let mut done = carry_out(&ways.env, group, own, &shared.facts.places, &change).await?;
    match (&change, done.member.clone()) {
        (MemberChange::Add { locator, .. }, Some(added)) => {
            let (index, uuid, place) = (added.index, added.uuid.clone(), added.locator.clone());
            let file = ways.env.blocking(move || MemberFile::at(index, &uuid, &place)).await;
            file.ok().flatten().into_iter().for_each(|file| shared.facts.note_file(file));
            log::info(&format!("{locator} is member {} of group '{name}' now", added.index));
        }
        (MemberChange::Evacuate { member, dry_run: false }, _) => {
            log::info(&format!("member {member} of group '{name}' is leaving"));
        }
        (MemberChange::Keep { member }, _) => log::info(&format!("member {member} of group '{name}' stays")),
        (MemberChange::Remove { .. }, Some(gone)) => {
            log::info(&format!("{} was member {} of group '{name}' and has left it", gone.locator, gone.index));
            done.not_free = not_free(&ways.env, group, shared, &gone).await;
        }
        _ => {}
    }
    Ok(done)
}

/// A change of a group that no daemon serves; `places` says where members were found, by UUID.
pub(crate) async fn engine(
    env: &HostEnv,
    group: &Group<HostEnv>,
    name: &str,
    places: &[(String, String)],
    change: &MemberChange,
) -> Outcome {
    let usual = NbdServer::Unix(runstate::nbd_socket(name));
    carry_out(env, group, own(group, name, vec![usual]), &Places::new(places.to_vec()), change).await
}

/// Why the place of a member that has left is not free, if it is not.
async fn not_free(env: &HostEnv, group: &Group<HostEnv>, shared: &Shared, gone: &ChangedMember) -> Option<String> {
    let (was, places, place) = (shared.facts.forget_file(&gone.uuid), shared.facts.locators(), gone.locator.clone());
    let named = |m: &MemberStatus| {
        let (_, at) = places.iter().find(|(of, _)| *of == uuid_text(&m.uuid))?;
        Some((format!("{} member {}", m.tier, m.index), at.clone()))
    };
    let others: Vec<_> = group.status().members.iter().filter_map(named).collect();
    env.blocking(move || why_not_free(&place, was.as_ref(), &others)).await.ok().flatten()
}

/// What shows the volumes of this group.
pub(super) fn own(group: &Group<HostEnv>, name: &str, servers: Vec<NbdServer>) -> Own {
    let tags = group.status().volumes.iter().map(|v| device::tag_of(&v.uuid)).collect();
    Own { group: name.to_owned(), tags, servers }
}

/// A change, and the configuration with it.
async fn carry_out(env: &HostEnv, group: &Group<HostEnv>, own: Own, places: &Places, change: &MemberChange) -> Outcome {
    let result = match change {
        MemberChange::Add { locator, tier, force } => {
            add(env, group, own, places, locator, (*tier).into(), *force).await
        }
        MemberChange::Evacuate { member, dry_run } => evacuate(group, *member, *dry_run).await,
        MemberChange::Keep { member } => group.keep_member(*member).await.map(|()| Done::default()).map_err(Into::into),
        MemberChange::Remove { member } => remove(env, group, &own.group, places, *member).await,
    };
    result.map_err(|e| format!("{e:#}"))
}

async fn evacuate(group: &Group<HostEnv>, member: MemberIndex, dry_run: bool) -> anyhow::Result<Done> {
    let plan = match dry_run {
        true => group.plan_evacuation(member)?,
        false => group.evacuate_member(member).await?,
    };
    Ok(Done { used: Some(plan.used), room: Some(plan.room), ..Done::default() })
}

async fn remove(
    env: &HostEnv,
    group: &Group<HostEnv>,
    name: &str,
    places: &Places,
    member: MemberIndex,
) -> anyhow::Result<Done> {
    let left = group.remove_member(member).await?;
    let uuid = uuid_text(&left.uuid);
    let place = places.forget(&uuid);
    if let Some(locator) = &place {
        forget(env, &known(group, name, places), places, locator).await;
    }
    let gone = ChangedMember { index: left.index, uuid, locator: place.unwrap_or_default() };
    Ok(Done { member: Some(gone), not_erased: left.not_erased.map(|e| e.to_string()), ..Done::default() })
}

/// What the configuration would say of the group, if there is none. Whoever has no place is found by a scan.
fn known(group: &Group<HostEnv>, name: &str, places: &Places) -> GroupConfig {
    let (status, places) = (group.status(), places.all());
    let members = status.members.iter().filter_map(|m| {
        let (_, locator) = places.iter().find(|(of, _)| *of == uuid_text(&m.uuid))?;
        Some(MemberConfig { locator: locator.clone(), tier: m.tier.to_string() })
    });
    GroupConfig { members: members.collect(), ..GroupConfig::of(name, &status.uuid) }
}

async fn add(
    env: &HostEnv,
    group: &Group<HostEnv>,
    own: Own,
    places: &Places,
    locator: &str,
    tier: Tier,
    force: bool,
) -> anyhow::Result<Done> {
    let known = known(group, &own.group, places);
    let parsed = members::parse(locator)?;
    let text = parsed.to_string();
    refuse_own(env, own, parsed.clone()).await?;
    // Who asked has looked, and then asked back: meanwhile the name may have become another device's.
    refuse_used(env, &parsed, force).await?;
    let device = waiting::open(env, &parsed, Access::SERVE).await?;
    former::refuse_carrier(&parsed, &device, force).await?;
    let carried = carried(&device, group).await?;
    if let Some((label, Standing::Former)) = carried.as_ref().filter(|_| !force) {
        bail!("{}", former::refusal(label, &parsed));
    }
    if !force {
        former::refuse_others(env, &parsed, &device).await?;
    }
    // It may be a member under another name, and nothing is erased on such a one.
    let is_member = matches!(&carried, Some((_, Standing::Member)));
    let new = NewMember { tier, force, journal_blocks: None };
    if !is_member {
        take_room(group, &device, &text, &new).await?;
    }
    // Before it is a member: the next start must find it, whatever happens meanwhile.
    let noted = note(env, &known, &text, tier).await?;
    let erased = match force && !is_member {
        true => Some(erase(&device).await.with_context(|| format!("what {text} carries cannot be erased"))?),
        false => None,
    };
    let result = group.try_member(device.clone(), &new).await;
    match &result {
        // Somebody else may have struck it out meanwhile: who added it, too, and was refused, or who took out what had this name before.
        Ok(made) => {
            places.note(&uuid_text(&made.uuid), &text);
            if let Err(e) = note(env, &known, &text, tier).await {
                log::warn(&format!("{text} is a member now, but may be missing in the configuration: {e:#}"));
            }
        }
        // It may be a member.
        Err(NotAMember { why: StructureError::Engine(_), .. }) => {}
        Err(_) => {
            if noted == Noted::Now {
                forget(env, &known, places, &text).await;
            }
            if let Some(erased) = erased {
                put_back(erased, &device, &text).await;
            }
        }
    }
    let made = result.with_context(|| text.clone())?;
    let not_noted = noted.not_at_all(&known.name, &text);
    let member = ChangedMember { index: made.index, uuid: uuid_text(&made.uuid), locator: text };
    Ok(Done { size: Some(made.capacity), room: Some(made.room), member: Some(member), not_noted, ..Done::default() })
}

/// Takes room for the metadata of a new member that is a file with holes, before anything is written: once it is a member, a flush that finds
/// none takes all writes from the group. A layout that is refused is so by the engine, in words of its own.
async fn take_room(group: &Group<HostEnv>, device: &HostDevice, name: &str, new: &NewMember) -> anyhow::Result<()> {
    let Ok(layout) = group.layout_of_new(device.size(), new) else { return Ok(()) };
    match metadata_room::of_layout(device, &layout, device.size()).await {
        Ok(()) => Ok(()),
        Err(no_room) => {
            bail!("nothing was added: {name}: {no_room}; free some of that file system, or give a file elsewhere")
        }
    }
}

/// The label of this group that a device carries, and what the group, which is open, makes of it.
pub(super) async fn carried(device: &HostDevice, group: &Group<HostEnv>) -> anyhow::Result<Option<(Label, Standing)>> {
    let status = group.status();
    let label = members::read_label(device).await?.ok().filter(|l| l.group == status.uuid);
    Ok(label.map(|label| {
        let own = members::own_uuid(&label);
        let standing = former::by_list(&label, status.members.iter().any(|m| m.uuid == own));
        (label, standing)
    }))
}

/// The device is no member, and is as it was.
async fn put_back(erased: Erased, device: &HostDevice, name: &str) {
    if let Err(e) = erased.undo(device).await {
        log::warn(&format!("{name} did not become a member, and what it carried cannot be put back: {e}"));
    }
}

async fn refuse_own(env: &HostEnv, own: Own, locator: Locator) -> anyhow::Result<()> {
    env.blocking(move || own.refuse(&locator)).await?
}

/// Writes down where a member is.
async fn note(env: &HostEnv, known: &GroupConfig, locator: &str, tier: Tier) -> anyhow::Result<Noted> {
    let member = MemberConfig { locator: locator.to_owned(), tier: tier.to_string() };
    let known = known.clone();
    env.blocking(move || config::note_member(&known, &member)).await?
}

/// Takes out of the configuration what is no member: it names all of them without.
pub(super) async fn strike_out(env: &HostEnv, group: &Group<HostEnv>, places: &Places, strangers: &[Stranger]) {
    let status = group.status();
    for s in strangers {
        let name = &status.name;
        log::info(&format!("{}: it is taken out of the configuration of group '{name}'", s.needless()));
        forget(env, &GroupConfig::of(name, &status.uuid), places, &s.locator).await;
    }
}

/// Strikes out the place of what did not become a member, or is none any more, unless another member has it: a new file may have the name
/// of one that was removed. If that fails, the next start finds no member there and says so.
async fn forget(env: &HostEnv, group: &GroupConfig, places: &Places, locator: &str) {
    let (group, places, locator, text) = (group.clone(), places.clone(), locator.to_owned(), locator.to_owned());
    let struck = env.blocking(move || config::forget_member(&group, &locator, || places.has(&locator))).await;
    if let Err(e) = struck.map_err(anyhow::Error::from).and_then(|struck| struck) {
        log::warn(&format!("{text} is no member, but still in the configuration: {e:#}"));
    }
}
