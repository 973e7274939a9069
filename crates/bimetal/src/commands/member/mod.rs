//! `bimetal member`: members are listed, added, emptied, taken out and replaced, through the daemon where one serves the
//! group, else on the members themselves.

mod add;
mod before;
mod leave;
mod pace;
mod replace;
mod room;
mod watch;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{BLOCK, CHUNK};
use serde_json::json;

use super::volume::{wait_for, with_group};
use crate::api::{self, Job, MemberChange};
use crate::cli::MemberCommand;
use crate::daemon::{self, change_members, Done};
use crate::output::{table, Output};
use crate::size::approx;
use crate::{members, runstate};

pub(crate) fn run(command: MemberCommand, output: Output) -> Result<()> {
    match command {
        MemberCommand::List(args) => list(&args.group, output),
        MemberCommand::Add(args) => add::run(&args, output),
        MemberCommand::Evacuate(args) => leave::evacuate(&args, output),
        MemberCommand::Remove(args) => leave::remove(&args, output),
        MemberCommand::Replace(args) => replace::run(&args, output),
    }
}

/// Lets the daemon make a change, or opens the group, makes it, and stops the group again. `places` is where members
/// concerned are, by UUID.
fn change(group: &str, places: Vec<(String, String)>, change: MemberChange) -> Result<Done> {
    if let Some(daemon) = runstate::daemon(group)? {
        let job: Job = wait_for(group, daemon.post("/v1/members", &change)?)?;
        return Ok(Done {
            size: job.size_bytes,
            room: job.room_bytes,
            member: job.member,
            used: job.used_bytes,
            not_erased: job.not_erased,
            not_free: job.not_free,
            not_noted: job.not_noted,
            checked: None,
        });
    }
    let looks = matches!(change, MemberChange::Evacuate { dry_run: true, .. });
    let access = if looks { Access::INSPECT } else { Access::SERVE };
    // A volume that is bound to the tier of a member that leaves may need room that only the mover makes.
    let leaves = matches!(change, MemberChange::Evacuate { .. }) && !looks;
    let options = OpenOptions { writable: !looks, migrate: leaves, ..OpenOptions::default() };
    let name = group.to_string();
    with_group(group, access, options, |env, open, _| async move {
        let changed = change_members(&env, &open, &name, &places, &change).await;
        let stopped = open.stop().await;
        let done = changed.map_err(anyhow::Error::msg)?;
        let what = match change {
            MemberChange::Add { .. } => "the member is added",
            _ => "the change is made",
        };
        stopped.with_context(|| {
            format!("{what}, but the group could not be stopped in order; its next start recovers it")
        })?;
        Ok(done)
    })
}

/// What a group has, served or not.
struct Rows {
    members: Vec<api::Member>,
    volumes: Vec<api::Volume>,
    /// Volumes that are deleted, and still hold space.
    deleting: Vec<api::Volume>,
    /// Whether it has families.
    families: bool,
}

fn rows_of(group: &str) -> Result<Rows> {
    if let Some(daemon) = runstate::daemon(group)? {
        let api::Status { members, volumes, deleting, families, .. } = daemon.get("/v1/status")?;
        return Ok(Rows { members, volumes, deleting, families: !families.is_empty() });
    }
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    with_group(group, Access::INSPECT, options, |_, open, locators| async move {
        let status = open.status();
        let volume = |v| daemon::volume_row(BLOCK as u32, &status, v);
        Ok(Rows {
            members: status.members.iter().map(|m| daemon::member_row(&locators, m)).collect(),
            volumes: status.volumes.iter().map(volume).collect(),
            deleting: status.deleting.iter().map(volume).collect(),
            families: !status.families.is_empty(),
        })
    })
}

/// The members of a group, served or not.
fn members_of(group: &str) -> Result<Vec<api::Member>> {
    Ok(rows_of(group)?.members)
}

/// The member that is meant: by its index, or by where it is.
fn find(all: &[api::Member], group: &str, text: &str) -> Result<api::Member> {
    match lookup(all, text).as_slice() {
        [m] => Ok((*m).clone()),
        [] => bail!("group '{group}' has no member {text}; see `bimetal member list {group}`"),
        several => {
            let several: Vec<String> = several.iter().map(|m| format!("{} member {}", m.tier, m.index)).collect();
            bail!(
                "{text} is {}: one of them has lost that name. Name the one that is meant by its number; `bimetal status {group}` says \
                 whose file is gone",
                several.join(" and ")
            )
        }
    }
}

/// Those that may be meant by an index, or by a place. A new file may have the name of one that was removed, and is served still.
fn lookup<'a>(all: &'a [api::Member], text: &str) -> Vec<&'a api::Member> {
    if let Ok(index) = text.parse::<u8>() {
        return all.iter().filter(|m| m.index == index).collect();
    }
    let Ok(locator) = members::parse(text) else { return Vec::new() };
    let wanted = locator.to_string();
    // A device has several names.
    let real = |l: &bimetal_host::Locator| l.path().and_then(|p| std::fs::canonicalize(p).ok());
    let meant = real(&locator);
    let is_meant = |place: &str| {
        let same = || bimetal_host::Locator::parse(place).ok().and_then(|l| real(&l)) == meant;
        place == wanted || (meant.is_some() && same())
    };
    all.iter().filter(|m| m.locator.as_deref().is_some_and(is_meant)).collect()
}

/// What people know a member by.
fn named(m: &api::Member) -> String {
    match &m.locator {
        Some(locator) => format!("{locator} ({} member {})", m.tier, m.index),
        None => format!("{} member {}", m.tier, m.index),
    }
}

/// Where it is, by its UUID.
fn places(m: &api::Member) -> Vec<(String, String)> {
    m.locator.iter().map(|locator| (m.uuid.clone(), locator.clone())).collect()
}

/// What a member is in its group; of one that leaves, how far it is.
pub(super) fn state(m: &api::Member) -> String {
    match (m.is_leaving(), m.used_bytes()) {
        (false, _) => m.state.clone(),
        (true, 0) => format!("{}, empty", m.state),
        (true, used) => format!("{}, {} left", m.state, approx(used)),
    }
}

fn list(group: &str, output: Output) -> Result<()> {
    let all = members_of(group)?;
    output.show(&json!({ "schema": api::SCHEMA, "group": group, "members": all }), || {
        let row = |m: &api::Member| {
            let sizes = [m.size_bytes, m.slots * CHUNK, m.free_slots * CHUNK].map(approx);
            let mut row = vec![m.index.to_string(), m.tier.clone()];
            row.extend(sizes);
            row.extend([state(m), m.locator.clone().unwrap_or_default()]);
            row
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        table(&["MEMBER", "TIER", "SIZE", "FOR DATA", "FREE", "STATE", "WHERE"], &rows, &[2, 3, 4])
    })
}
