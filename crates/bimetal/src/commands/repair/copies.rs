//! New devices that carry the label of a member. One that the group can go on with is no new device: what is on it would be given up for
//! nothing. One that is only an old copy can never be the member again; it is empty to the group, and by force it is taken so.

use anyhow::{bail, Context, Result};
use bimetal_host::{HostDevice, HostEnv};
use bimetal_volume::group::OpenError;
use bimetal_volume::repair::{Plan, RepairError};

use super::new::NewDevice;
use crate::former::{self, Standing};
use crate::members::{self, Members, Opened};

/// What a device with a member's label is to the group.
enum Copy {
    /// The member, as far as the others know.
    Current,
    /// A state of it that is older than theirs.
    Old,
    /// It was used apart from the others.
    Apart,
}

/// Refuses a device that the group can go on with as the member that it is, and by force only takes a copy that it cannot. Says what is lost
/// with such a one.
pub(super) async fn refuse_members(
    env: &HostEnv,
    group: &former::Wanting,
    found: &Members,
    new: &NewDevice,
    device: &HostDevice,
    force: bool,
) -> Result<Option<String>> {
    let (at, name) = (&new.locator, &group.name);
    let label = match members::read_label(device).await? {
        Ok(label) => label,
        // Also by force: it may be a member of this very group.
        Err(why) if why.is_newer() => {
            bail!("nothing was repaired: {}. Give another device", members::newer_words(&at.to_string(), &why))
        }
        Err(_) => return Ok(None),
    };
    if group.standing(env, &label).await? != Some(Standing::Member) {
        return Ok(None);
    }
    let own = members::own_uuid(&label);
    if found.labelled().any(|(_, other)| members::own_uuid(other) == own) {
        bail!("{}", former::own_member_or_copy(env, &label, at).await);
    }
    let what = match what_it_is(env, found, device, label.member).await.with_context(|| at.to_string())? {
        Copy::Current => bail!(
            "{at} is no new device: it is member {} of this very group. Name it with the other members, and what is on it is \
             not given up: bimetal repair {name} --member {at} ...",
            label.member
        ),
        Copy::Old => old(label.member),
        // Both may have what the other has not; nobody gives the larger part up by a word that is meant for another thing.
        Copy::Apart if found.labelled().all(|(_, other)| other.generation < label.generation) => bail!(
            "{at} is member {} of this very group, used apart from the others, and longer than these: it is not taken for a new device. What \
             each side holds: `bimetal rescue {name} --member ...`, with its members. Give another device",
            label.member
        ),
        Copy::Apart => {
            format!("member {} of this very group, used apart from the others: it may hold what they have not", label.member)
        }
    };
    if !force {
        bail!(
            "{at} is {what}. What it holds: `bimetal rescue {name} --member {at}`; add --force to take it as a new device all the same (what \
             it holds is lost then)"
        );
    }
    Ok(Some(what))
}

fn old(member: u8) -> String {
    format!(
        "member {member} of this very group in an older state (an old copy, or it lost what it had confirmed), with which that cannot go on"
    )
}

/// By what a repair says that has it among the members: nothing is changed by asking.
async fn what_it_is(env: &HostEnv, found: &Members, device: &HostDevice, member: u8) -> Result<Copy> {
    let devices = found.devices().into_iter().chain([device.clone()]).collect();
    match Plan::new(env.clone(), devices, false).await {
        Ok(with) => match with.members().contains(&found.opened.len()) {
            true => Ok(Copy::Current),
            false => bail!("whether it is a member that is missing cannot be found out; give another device"),
        },
        Err(RepairError::Open(OpenError::Stale { member: old, .. })) if old == member => Ok(Copy::Old),
        Err(RepairError::Open(OpenError::Fork { .. })) => Ok(Copy::Apart),
        Err(why) => Err(why).context("it is a member of this very group, and not taken for a new device"),
    }
}

/// A new device may stand where the configuration has the member of which it is an old copy. By force it is set aside; the plan is made
/// without it then.
pub(super) fn let_go_old(
    found: &mut Members,
    new: &[NewDevice],
    error: &RepairError,
    force: bool,
) -> Result<Option<Opened>> {
    let RepairError::Open(OpenError::Stale { member, .. }) = error else { return Ok(None) };
    let is_new = |m: &Opened| new.iter().any(|n| members::identity(&n.locator) == members::identity(&m.locator));
    let is_it = |m: &Opened| m.label.as_ref().is_some_and(|label| label.member == *member) && is_new(m);
    let Some(at) = found.opened.iter().position(is_it) else { return Ok(None) };
    if !force {
        bail!(
            "{} is {}. Add --force to take it as a new device all the same (what it holds is lost then)",
            found.opened[at].locator,
            old(*member)
        );
    }
    Ok(Some(found.opened.remove(at)))
}
