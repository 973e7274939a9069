//! `bimetal member`: members are listed and added, through the daemon where one serves the group, else on the members
//! themselves.

use anyhow::{bail, Context, Result};
use bimetal_format::label::Label;
use bimetal_host::device::Access;
use bimetal_host::locator::NbdServer;
use bimetal_host::Reactor;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{Tier, CHUNK};
use serde_json::json;

use super::create::{is_empty_file, refuse_member, refuse_used};
use super::volume::{wait_for, with_group};
use crate::api::{self, Job, MemberChange};
use crate::cli::{MemberAdd, MemberCommand};
use crate::config::{self, uuid_text};
use crate::daemon::change_members;
use crate::output::{confirm, table, Output};
use crate::own::Own;
use crate::size::approx;
use crate::{members, runstate};

pub(crate) fn run(command: MemberCommand, output: Output) -> Result<()> {
    match command {
        MemberCommand::List(args) => list(&args.group, output),
        MemberCommand::Add(args) => add(args, output),
    }
}

fn add(args: MemberAdd, output: Output) -> Result<()> {
    let group = args.group.as_str();
    let (text, tier) = match (&args.fast, &args.slow) {
        (Some(device), _) => (device, Tier::Fast),
        (None, slow) => (slow.as_ref().context("name a device: --fast DEV or --slow DEV")?, Tier::Slow),
    };
    let locator = members::parse(text)?;
    let size = look_at(group, &locator, args.force)?;
    if !is_empty_file(&locator) {
        let question = format!("Everything on this device will be lost:\n  {locator} ({tier}, {})", approx(size));
        confirm(&question, args.yes)?;
    }
    let locator = locator.to_string();
    let change = MemberChange::Add { locator: locator.clone(), tier: tier.into(), force: args.force };
    let (index, capacity, room) = match runstate::daemon(group)? {
        Some(daemon) => {
            let job: Job = wait_for(group, daemon.post("/v1/members", &change)?)?;
            (job.member.map(|m| m.index), job.size_bytes, job.room_bytes)
        }
        None => {
            let name = args.group.clone();
            let options = OpenOptions { migrate: false, ..OpenOptions::default() };
            let done = with_group(group, Access::SERVE, options, |env, open| async move {
                let changed = change_members(&env, &open, &name, &change).await;
                let stopped = open.stop().await;
                let done = changed.map_err(anyhow::Error::msg)?;
                stopped.context(
                    "the member is added, but the group could not be stopped in order; its next start recovers it",
                )?;
                Ok(done)
            })?;
            (done.member.map(|m| m.index), done.size, done.room)
        }
    };
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "change": "added", "member": index, "locator": locator,
        "tier": tier.to_string(), "capacity_bytes": capacity, "room_bytes": room,
    });
    output.show(&answer, || {
        let index = index.map_or(String::new(), |i| i.to_string());
        let (capacity, room) = (approx(capacity.unwrap_or(0)), approx(room.unwrap_or(0)));
        format!("{locator} is {tier} member {index} of group '{group}' now, with {capacity} for data. Volumes of the group can grow by {room}: bimetal volume resize")
    })
}

/// Refuses a device that is in use, carries something or shows a volume of the group, in this process: a look at it may
/// hang. (The daemon knows more of its own volumes, and looks again.) Its size.
fn look_at(group: &str, locator: &bimetal_host::Locator, force: bool) -> Result<u64> {
    let config = config::load(group)?;
    let servers = vec![NbdServer::Unix(runstate::nbd_socket(group))];
    Own { group: group.to_string(), tags: Vec::new(), servers }.refuse(locator)?;
    let reactor = Reactor::new()?;
    let (env, locator, group) = (reactor.env(), locator.clone(), group.to_string());
    reactor.block_on(async move {
        use bimetal_volume::env::Device;
        let device = bimetal_host::HostDevice::open(&env, &locator, Access::PEEK).await?;
        let label = members::read_label(&device).await?;
        let own = |l: &Label| config.as_ref().is_some_and(|c| c.uuid == uuid_text(&l.group));
        match label.as_ref().ok().filter(|l| own(l)) {
            // What was being added once may be added again, unless it is used for something else now.
            Some(l) if l.joining => refuse_used(&env, &locator, force).await?,
            Some(l) => bail!("{locator} is member {} of group '{group}' already", l.member),
            None => {
                refuse_used(&env, &locator, force).await?;
                refuse_member(&locator, &device, force).await?;
            }
        }
        Ok(device.size())
    })
}

/// The members of a group, served or not.
fn members_of(group: &str) -> Result<Vec<api::Member>> {
    if let Some(daemon) = runstate::daemon(group)? {
        let status: api::Status = daemon.get("/v1/status")?;
        return Ok(status.members);
    }
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    let name = group.to_string();
    with_group(group, Access::INSPECT, options, |env, open| async move {
        // Whoever holds the group open may open its devices once more to look at their labels.
        let found = members::open(&env, Some(&name), &[], Access::PEEK).await?;
        let locators = crate::daemon::locators(&found);
        Ok(open.status().members.iter().map(|m| crate::daemon::member_row(&locators, m)).collect())
    })
}

fn list(group: &str, output: Output) -> Result<()> {
    let all = members_of(group)?;
    output.show(&json!({ "schema": api::SCHEMA, "group": group, "members": all }), || {
        let row = |m: &api::Member| {
            let sizes = [m.size_bytes, m.slots * CHUNK, m.free_slots * CHUNK].map(approx);
            let mut row = vec![m.index.to_string(), m.tier.clone()];
            row.extend(sizes);
            row.extend([m.state.clone(), m.locator.clone().unwrap_or_default()]);
            row
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        table(&["MEMBER", "TIER", "SIZE", "FOR DATA", "FREE", "STATE", "WHERE"], &rows, &[2, 3, 4])
    })
}
