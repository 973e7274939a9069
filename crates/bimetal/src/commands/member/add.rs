//! `bimetal member add`.

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::locator::NbdServer;
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use bimetal_volume::env::Device;
use bimetal_volume::units::Tier;
use serde_json::json;

use super::before::{self, Before};
use crate::api::{self, MemberChange};
use crate::cli::MemberAdd;
use crate::commands::create::{is_empty_file, refuse_tiny, refuse_used};
use crate::daemon::Done;
use crate::former::{self, Standing};
use crate::output::{confirm, Output};
use crate::own::Own;
use crate::size::approx;
use crate::{config, members, runstate};

pub(super) fn run(args: &MemberAdd, output: Output) -> Result<()> {
    let group = args.group.as_str();
    let (text, tier) = match (&args.fast, &args.slow) {
        (Some(device), _) => (device, Tier::Fast),
        (None, slow) => (slow.as_ref().context("name a device: --fast DEV or --slow DEV")?, Tier::Slow),
    };
    let locator = members::parse(text)?;
    let looked = look_at(group, &locator, args.force)?;
    let before = before::held(group, &locator)?;
    if let Some(question) = question(&locator, tier, &looked, before.as_ref()) {
        confirm(&question, args.yes)?;
    }
    let done = add(group, &locator, tier, args.force)?;
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "added", "member": done.member.as_ref().map(|m| m.index),
        "locator": locator.to_string(), "tier": tier.to_string(), "capacity_bytes": done.size, "room_bytes": done.room,
        "not_noted": done.not_noted,
    });
    output.show(&answer, || {
        let before = before.map_or(String::new(), |before| format!("\n{}", before.answer(&locator)));
        let not_noted = done.not_noted.as_ref().map_or(String::new(), |why| format!("\n{why}"));
        words(group, &locator, tier, &done) + &before + &not_noted
    })
}

/// What a device is that was looked at.
pub(super) struct Looked {
    /// Bytes.
    pub(super) size: u64,
    /// Whose data on it would be lost.
    lost_with: String,
}

/// What is asked before the device is taken, if there is anything to lose.
pub(super) fn question(locator: &Locator, tier: Tier, looked: &Looked, before: Option<&Before>) -> Option<String> {
    let asks = !is_empty_file(locator);
    let before = before.map_or(String::new(), |before| format!("\n{}", before.question(locator)));
    let (size, with) = (approx(looked.size), &looked.lost_with);
    asks.then(|| format!("Everything on this device will be lost:\n  {locator} ({tier}, {size}{with}){before}"))
}

/// Adds a device that was looked at.
pub(super) fn add(group: &str, locator: &Locator, tier: Tier, force: bool) -> Result<Done> {
    // Where no configuration names the others, one is made.
    let others = if config::load(group)?.is_none() { super::members_of(group)? } else { Vec::new() };
    let places = others.iter().flat_map(super::places).collect();
    super::change(group, places, MemberChange::Add { locator: locator.to_string(), tier: tier.into(), force })
}

fn words(group: &str, locator: &Locator, tier: Tier, done: &Done) -> String {
    let room = approx(done.room.unwrap_or(0));
    format!("{}. Volumes of the group can grow by {room}: bimetal volume resize", came(group, locator, tier, done))
}

/// That it is a member. While it takes another's place, nothing is said of room: who used it would keep that one from leaving.
pub(super) fn came(group: &str, locator: &Locator, tier: Tier, done: &Done) -> String {
    let index = done.member.as_ref().map_or(String::new(), |m| m.index.to_string());
    let capacity = approx(done.size.unwrap_or(0));
    format!("{locator} is {tier} member {index} of group '{group}' now, with {capacity} for data")
}

/// Refuses a device that is in use, carries something or shows a volume of the group, in this process: a look at it may
/// hang. (The daemon knows more of its own volumes, and looks again.)
pub(super) fn look_at(group: &str, locator: &Locator, force: bool) -> Result<Looked> {
    let servers = vec![NbdServer::Unix(runstate::nbd_socket(group))];
    Own { group: group.to_string(), tags: Vec::new(), servers }.refuse(locator)?;
    let (at, group) = (locator.clone(), former::Wanting::of(group)?);
    with_env(|env| async move {
        refuse_member(&env, &at, &group).await?;
        refuse_used(&env, &at, force).await?;
        let device = HostDevice::open(&env, &at, Access::PEEK).await?;
        refuse_tiny(&at, &device)?;
        former::refuse(&env, &at, &device, Some(&group), force).await?;
        Ok(Looked { size: device.size(), lost_with: former::lost_with(&env, &at, &device).await })
    })
}

/// Refuses a member of the group itself, also with --force: what would be overwritten is in use. Nothing is open afterwards: a server may
/// take one connection at a time, and whoever looks next needs it.
async fn refuse_member(env: &HostEnv, at: &Locator, group: &former::Wanting) -> Result<()> {
    let label = {
        let device = HostDevice::open(env, at, Access::PEEK).await?;
        members::read_label(&device).await?
    };
    match label {
        Ok(label) if group.standing(env, &label).await? == Some(Standing::Member) => {
            bail!("{}", former::own_member_or_copy(env, &label, at).await)
        }
        _ => Ok(()),
    }
}

/// Does something with devices.
pub(super) fn with_env<T: 'static, F: std::future::Future<Output = Result<T>> + 'static>(
    work: impl FnOnce(HostEnv) -> F,
) -> Result<T> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    reactor.block_on(work(env))
}
