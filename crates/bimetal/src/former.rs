//! What a label makes of its device. A device may carry the label of a group that goes on without it: it was struck off by a
//! repair, or its label could not be erased when it left. It may still hold data that nothing else holds, so it is not taken
//! without a word; and it does not belong to that group any more, so nobody is told to destroy the group for its sake.

use anyhow::{anyhow, bail, Context, Result};
use bimetal_format::label::{Label, LabelError, MemberCode};
use bimetal_host::{HostDevice, HostEnv, Locator};

use crate::config::{uuid_text, GroupConfig};
use crate::standing::own_uuid;
pub(crate) use crate::standing::{by_list, is_of_a_side, newest, standing, was, Standing};
use crate::{api, config, members, paths, restoring, runstate, sharing};

/// Labels of the group that a label names, of all devices at hand: where the configuration has members, and block devices. That
/// one is among them, wherever it is.
pub(crate) async fn labels_of_group(env: &HostEnv, label: &Label) -> Vec<Label> {
    let group = label.group;
    let mut all = vec![label.clone()];
    all.extend(labels_at_hand(env, &label.group_name, &|l: &Label| l.group == group).await);
    all
}

/// Labels that are `wanted`, where the configuration of the group with this name has members, and on block devices.
async fn labels_at_hand(env: &HostEnv, name: &str, wanted: &dyn Fn(&Label) -> bool) -> Vec<Label> {
    members::carriers(env, name, Vec::new(), wanted).await.into_iter().map(|(_, label)| label).collect()
}

/// What a device is to the group that its label names, as far as the devices at hand tell.
pub(crate) async fn look_up(env: &HostEnv, label: &Label) -> Standing {
    let all = labels_of_group(env, label).await;
    newest(&all).map_or(Standing::Member, |newest| standing(label, newest))
}

/// The group that wants a device, and what is known of its members without opening them: whoever has them open may have the only
/// connection that their servers take.
pub(crate) struct Wanting {
    /// Its name.
    pub(crate) name: String,
    known: Known,
}

enum Known {
    /// Its devices are looked at.
    Nothing,
    /// All its members, by the word of its daemon.
    Members(Vec<String>),
    /// The labels of its members that are open here.
    Labels(Vec<Label>),
}

impl Wanting {
    /// A group that is served, or that nobody has open. Blocks.
    pub(crate) fn of(name: &str) -> Result<Wanting> {
        let known = match runstate::daemon(name)? {
            Some(daemon) => {
                let status: api::Status = daemon.get("/v1/status")?;
                Known::Members(status.members.into_iter().map(|m| m.uuid).collect())
            }
            None => Known::Nothing,
        };
        Ok(Wanting { name: name.into(), known })
    }

    /// One whose members are open here.
    pub(crate) fn open<'a>(name: &str, labels: impl Iterator<Item = &'a Label>) -> Wanting {
        Wanting { name: name.into(), known: Known::Labels(labels.cloned().collect()) }
    }

    /// What the device of a label is to it, if the label is of this group.
    pub(crate) async fn standing(&self, env: &HostEnv, label: &Label) -> Result<Option<Standing>> {
        if !is_of_group(label, &self.name)? {
            return Ok(None);
        }
        Ok(Some(match &self.known {
            Known::Nothing => look_up(env, label).await,
            Known::Members(all) => by_list(label, all.contains(&uuid_text(&own_uuid(label)))),
            Known::Labels(all) => newest(all.iter().chain([label])).map_or(Standing::Member, |l| standing(label, l)),
        }))
    }
}

/// Refuses a device with a label, unless forced: what is on it is somebody's data. `group` is the one that wants it, if that is
/// there already. What was being added to that one may be taken again.
pub(crate) async fn refuse(
    env: &HostEnv,
    locator: &Locator,
    device: &HostDevice,
    group: Option<&Wanting>,
    force: bool,
) -> Result<()> {
    let label = members::read_label(device).await.with_context(|| format!("{locator} cannot be read"))?;
    match label {
        _ if force => Ok(()),
        Ok(label) => {
            refuse_labelled(env, locator, &label, group).await?;
            refuse_sharing(env, locator).await
        }
        Err(why) => {
            refuse_unlabelled(env, locator, device, &why).await?;
            refuse_named(env, locator, group.map(|group| group.name.as_str())).await
        }
    }
}

/// The same for a device onto which a volume of `group` is to be copied: it may not be a member of that group either that has lost its
/// labels, for a repair takes it for what it is.
pub(crate) async fn refuse_as_target(
    env: &HostEnv,
    locator: &Locator,
    device: &HostDevice,
    group: &Wanting,
    force: bool,
) -> Result<()> {
    refuse(env, locator, device, Some(group), force).await?;
    match members::read_label(device).await? {
        Err(_) if !force => refuse_named(env, locator, None).await,
        _ => Ok(()),
    }
}

/// Refuses a device without a label where the configuration of another group than `group` names it, and that group lacks a member: it
/// may be the one, with its labels damaged, and a repair takes it for that.
async fn refuse_named(env: &HostEnv, locator: &Locator, group: Option<&str>) -> Result<()> {
    let own = members::identity(locator);
    for name in paths::configured_groups()?.into_iter().filter(|name| Some(name.as_str()) != group) {
        // One that cannot be read names nothing.
        let Ok(Some(config)) = config::load(&name) else { continue };
        let mut places = config.members.iter().filter_map(|m| Locator::parse(&m.locator).ok());
        if places.any(|place| members::identity(&place) == own) && lacks_a_member(env, &config).await {
            bail!(
                "{locator} is where the configuration of group '{name}' has a member, and carries no label. If its labels are damaged, \
                 `bimetal repair {name}` takes it for the member that it is; add --force if it is another device now"
            );
        }
    }
    Ok(())
}

/// Whether a group has a member whose label no device at hand carries.
async fn lacks_a_member(env: &HostEnv, config: &GroupConfig) -> bool {
    let labels = labels_at_hand(env, &config.name, &|l: &Label| uuid_text(&l.group) == config.uuid).await;
    let is_there = |uuid: [u8; 16]| labels.iter().any(|l| own_uuid(l) == uuid);
    let all_there = |l: &Label| l.members.iter().all(|row| row.state == MemberCode::Left || is_there(row.uuid));
    !newest(&labels).is_some_and(all_there)
}

async fn refuse_labelled(env: &HostEnv, locator: &Locator, label: &Label, group: Option<&Wanting>) -> Result<()> {
    let own = match group {
        Some(group) => group.standing(env, label).await?,
        None => None,
    };
    let standing = match own {
        Some(standing) => standing,
        None => look_up(env, label).await,
    };
    match (standing, own.is_some()) {
        (Standing::Joining, true) => Ok(()),
        (Standing::Member, true) => bail!("{}", own_member(label, locator)),
        (Standing::Member, false) => return Err(others_member(env, locator, label).await),
        (Standing::Joining, false) => bail!(
            "{locator} was being added to the Bimetal group '{}', and has not become a member of it; add --force to take it",
            label.group_name
        ),
        (Standing::Former, _) => bail!("{}", refusal(label, locator)),
        (Standing::Apart, _) => bail!(
            "{locator} {}. {}; add --force to take the device all the same (what it holds is lost then)",
            is_of_a_side(label),
            way_to_its_data(label, locator)
        ),
    }
}

/// Why a member of a group that does not want it is not taken. Nobody is told to destroy a group for the sake of a copy: that wipes the
/// members themselves.
async fn others_member(env: &HostEnv, locator: &Locator, label: &Label) -> anyhow::Error {
    let group = &label.group_name;
    match copy_elsewhere(env, locator, label).await {
        Some(other) => anyhow!(
            "{locator} carries the label of member {} of the Bimetal group '{group}', and so does {other}: one of them is a copy, or they \
             are one device. Only if {locator} is a copy on a device of its own, and not needed: --force takes it (what is on it is lost)",
            label.member
        ),
        None => anyhow!(
            "{locator} is a member of the Bimetal group '{group}'; destroy that group first, or add --force to take the device from it (its \
             data is lost)"
        ),
    }
}

/// Another device that carries the label of the same member.
async fn copy_elsewhere(env: &HostEnv, locator: &Locator, label: &Label) -> Option<Locator> {
    let own = members::identity(locator);
    let same = |l: &Label| l.group == label.group && own_uuid(l) == own_uuid(label);
    let places = members::carriers(env, &label.group_name, Vec::new(), &same).await;
    places.into_iter().map(|(place, _)| place).find(|place| members::identity(place) != own)
}

/// Refuses a device that shares bytes with somebody's.
async fn refuse_sharing(env: &HostEnv, locator: &Locator) -> Result<()> {
    refuse_told(locator, joined(sharing::told(env, locator).await))
}

fn refuse_told(locator: &Locator, told: Option<String>) -> Result<()> {
    match told {
        Some(told) => bail!("{locator} {told}; add --force to take the device all the same (that data is lost then)"),
        None => Ok(()),
    }
}

fn joined(told: Vec<String>) -> Option<String> {
    (!told.is_empty()).then(|| told.join(", and "))
}

/// Refuses a device without a label that says something (`why`), unless it is nobody's.
async fn refuse_unlabelled(env: &HostEnv, locator: &Locator, device: &HostDevice, why: &LabelError) -> Result<()> {
    refuse_told(locator, told_unlabelled(env, locator, device, why).await)
}

/// Refuses what is somebody's though its own label does not say so. Who has looked at that asks this of the open device.
pub(crate) async fn refuse_others(env: &HostEnv, locator: &Locator, device: &HostDevice) -> Result<()> {
    match members::read_label(device).await? {
        Ok(_) => refuse_sharing(env, locator).await,
        Err(why) => refuse_unlabelled(env, locator, device, &why).await,
    }
}

/// Whose a device without such a label is, in words that follow its name; `None`: nobody's.
pub(crate) async fn told_unlabelled(
    env: &HostEnv,
    locator: &Locator,
    device: &HostDevice,
    why: &LabelError,
) -> Option<String> {
    // First: what looks like a damaged label may be the sound one of a partition.
    if let Some(told) = joined(sharing::told(env, locator).await) {
        return Some(told);
    }
    match restoring::told(env, device).await {
        Some(restoring) => Some(format!("is {restoring}")),
        None if *why == LabelError::NotALabel => None,
        // Of a newer version, or damaged: somebody's data all the same.
        None => Some(format!("carries a Bimetal label, but {why}")),
    }
}

/// Whose data on a device would be lost, for questions: it follows what else is said of the device.
pub(crate) async fn lost_with(env: &HostEnv, locator: &Locator, device: &HostDevice) -> String {
    let told = match members::read_label(device).await {
        Ok(Ok(label)) => {
            let mut told = vec![format!("a member of the Bimetal group '{}'", label.group_name)];
            told.extend(sharing::told(env, locator).await);
            joined(told)
        }
        Ok(Err(why)) => told_unlabelled(env, locator, device, &why).await,
        Err(_) => None,
    };
    told.map_or(String::new(), |told| format!(", {told}"))
}

/// Refuses a device that is open and carries something known, unless forced: it was looked at by its name before, which may have
/// become another device's since.
pub(crate) async fn refuse_carrier(locator: &Locator, device: &HostDevice, force: bool) -> Result<()> {
    Ok(bimetal_host::probe::check_open(device, locator, force).await?)
}

/// Why a member of the very group is nothing to take.
pub(crate) fn own_member(label: &Label, locator: &Locator) -> String {
    format!("{locator} is member {} of group '{}' already", label.member, label.group_name)
}

/// The same of a device that may be a copy of it, with a way to have that as a new one. Force takes none: by another name it may be the
/// member that is in use.
pub(crate) async fn own_member_or_copy(env: &HostEnv, label: &Label, locator: &Locator) -> String {
    let (own, group) = (members::identity(locator), &label.group_name);
    let same = |l: &Label| l.group == label.group && own_uuid(l) == own_uuid(label);
    let places = members::carriers_here(env, group, &same).await;
    let other =
        places.into_iter().find(|place| members::identity(place) != own).map(|other| format!("so does {other}"));
    let Some(other) = other.or_else(|| behind_servers(label, &own)) else {
        return own_member(label, locator);
    };
    format!(
        "{locator} carries the label of member {} of group '{group}', and {other}: one of them is a copy, or they are one device. Only if \
         {locator} is a copy on a device of its own, and not needed, wipe it, with the group stopped, and it is like a new one: \
         bimetal destroy {group} --member {locator}",
        label.member
    )
}

/// Where else the member with this label may be, whose device is `own`: nobody asks a server that may take one connection only.
fn behind_servers(label: &Label, own: &str) -> Option<String> {
    let config = config::load(&label.group_name).ok().flatten().filter(|c| c.uuid == uuid_text(&label.group))?;
    let places: Vec<Locator> = config.members.iter().filter_map(|m| Locator::parse(&m.locator).ok()).collect();
    let is_configured = places.iter().any(|place| members::identity(place) == own);
    let far: Vec<String> = places.iter().filter(|place| place.path().is_none()).map(Locator::to_string).collect();
    (!is_configured && !far.is_empty()).then(|| format!("so may {}", far.join(", or ")))
}

/// Why a former member is not taken.
pub(crate) fn refusal(label: &Label, locator: &Locator) -> String {
    format!(
        "{locator} {}. {}; add --force to take the device all the same (what it holds is lost then)",
        was(label),
        way_to_its_data(label, locator)
    )
}

/// Whether a label is of the group with this name, as this machine knows it.
pub(crate) fn is_of_group(label: &Label, name: &str) -> Result<bool> {
    Ok(config::load(name)?.map_or(label.group_name == name, |c| c.uuid == uuid_text(&label.group)))
}

/// What a device is to its group, as lists of devices have it.
pub(crate) fn told(label: &Label, standing: Standing, locator: &Locator) -> String {
    match standing {
        Standing::Member => format!("member of the Bimetal group '{}'", label.group_name),
        Standing::Joining => {
            format!("was being added to the Bimetal group '{}', and has not become a member", label.group_name)
        }
        Standing::Former => format!("{}. {}", was(label), way_to_its_data(label, locator)),
        Standing::Apart => format!("{}. {}", is_of_a_side(label), way_to_its_data(label, locator)),
    }
}

/// How to see what is still on it.
pub(crate) fn way_to_its_data(label: &Label, locator: &Locator) -> String {
    format!("What it still holds of it: `bimetal rescue {} --member {locator}`", label.group_name)
}
