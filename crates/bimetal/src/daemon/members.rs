//! Changes of the members of a group: the engine's, and what follows for the configuration.

use anyhow::Context;
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv};
use bimetal_volume::group::structure::{NewMember, StructureError};
use bimetal_volume::group::Group;
use bimetal_volume::units::Tier;

use super::jobs::{Done, Outcome};
use super::Shared;
use crate::api::MemberChange;
use crate::config::{self, uuid_text, MemberConfig};
use crate::{log, members};

/// Carries a change out for the daemon of a group.
pub(super) async fn change(env: &HostEnv, group: &Group<HostEnv>, shared: &Shared, change: MemberChange) -> Outcome {
    let name = &shared.facts.group;
    let done = engine(env, group, name, &change).await?;
    match &change {
        MemberChange::Add { locator, .. } => {
            if let Some(added) = &done.member {
                shared.facts.note_locator(added.uuid.clone(), locator.clone());
                log::info(&format!("{locator} is member {} of group '{name}' now", added.index));
            }
        }
    }
    Ok(done)
}

/// A change, and the configuration with it.
pub(crate) async fn engine(env: &HostEnv, group: &Group<HostEnv>, name: &str, change: &MemberChange) -> Outcome {
    match change {
        MemberChange::Add { locator, tier, force } => {
            let result = add(env, group, name, locator, (*tier).into(), *force).await;
            result.map_err(|e| format!("{e:#}"))
        }
    }
}

async fn add(
    env: &HostEnv,
    group: &Group<HostEnv>,
    name: &str,
    locator: &str,
    tier: Tier,
    force: bool,
) -> anyhow::Result<Done> {
    let parsed = members::parse(locator)?;
    let text = parsed.to_string();
    let device = HostDevice::open(env, &parsed, Access::SERVE).await?;
    // Before it is a member: the next start must find it, whatever happens meanwhile.
    let member = MemberConfig { locator: text.clone(), tier: tier.to_string() };
    let noted = config::note_member(name, &member)?;
    let new = NewMember { tier, force, journal_blocks: None };
    let result = group.add_member(device, &new).await;
    if noted && result.as_ref().is_err_and(|e| !matches!(e, StructureError::Engine(_))) {
        config::forget_member(name, &text)?;
    }
    let made = result.with_context(|| text.clone())?;
    let member = crate::api::AddedMember { index: made.index, uuid: uuid_text(&made.uuid), locator: text };
    Ok(Done { size: Some(made.capacity), room: Some(made.room), member: Some(member) })
}
