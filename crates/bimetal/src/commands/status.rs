//! `bimetal status`: of running groups by their daemon, of the others by what is known of them.

use std::process::ExitCode;

use anyhow::{bail, Result};
use bimetal_host::Locator;
use serde_json::json;

use super::detach::{DaemonProcess, Handle};
use crate::api::{self, Status};
use crate::cli::StatusArgs;
use crate::elsewhere::{self, Server};
use crate::output::{self, indent, table, Output};
use crate::runstate::Holder;
use crate::size::approx;
use crate::words::duration;
use crate::{config, paths, runstate};

pub(crate) fn run(args: StatusArgs, output: Output) -> Result<ExitCode> {
    let (names, one) = match args.group {
        Some(name) => (vec![name], true),
        None => (known_groups()?, false),
    };
    // One group that cannot be told of does not hide the others.
    let (mut states, mut failed) = (Vec::new(), Vec::new());
    for name in &names {
        match state_of(name) {
            Ok(state) => states.push(state),
            Err(why) if one => return Err(why),
            Err(why) => failed.push((name.clone(), output::chain(&why))),
        }
    }
    if let (true, [State::Unknown(name)]) = (one, states.as_slice()) {
        bail!("no group named '{name}' is known here; `bimetal scan` looks for groups on devices");
    }
    states.retain(|s| !matches!(s, State::Unknown(_)));
    if output.json {
        let mut documents = states.iter().map(State::json).collect::<Result<Vec<_>>>()?;
        documents.extend(
            failed
                .iter()
                .map(|(name, why)| json!({ "schema": api::SCHEMA, "group": name, "state": "unknown", "error": why })),
        );
        let document = match (one, documents.len()) {
            (true, 1) => documents.remove(0),
            _ => json!({ "schema": api::SCHEMA, "groups": documents }),
        };
        output.show(&document, String::new)?;
        return Ok(ended(&failed));
    }
    if states.is_empty() && failed.is_empty() {
        output::emit("No group is known here. Make one with `bimetal create`, or look with `bimetal scan`.\n")?;
    }
    let words: Vec<String> = states.iter().map(State::words).collect();
    output::emit(&words.join("\n"))?;
    Ok(ended(&failed))
}

/// Says what could not be told; that is a failure.
fn ended(failed: &[(String, String)]) -> ExitCode {
    failed.iter().for_each(|(name, why)| crate::output::tell(&format!("bimetal: {name}: {why}")));
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

enum State {
    Running(Box<Status>),
    /// Has a configuration; a process may hold its lock without answering.
    Down {
        name: String,
        uuid: String,
        members: Vec<String>,
        holder: Option<Holder>,
        /// It is served all the same.
        elsewhere: Option<Server>,
        /// Members that are not where they were, and why, by what can be told without waking a disk.
        absent: Vec<String>,
        attachments: Vec<api::Attachment>,
    },
    Unknown(String),
}

fn known_groups() -> Result<Vec<String>> {
    let mut names = paths::configured_groups()?;
    names.extend(paths::groups_with_run_state());
    names.sort();
    names.dedup();
    Ok(names)
}

fn state_of(name: &str) -> Result<State> {
    if let Some(status) = runstate::ask(name, |daemon| daemon.get("/v1/status"))? {
        return Ok(State::Running(status));
    }
    let holder = runstate::holder(name);
    let Some(config) = config::load(name)? else {
        return Ok(match holder {
            None => State::Unknown(name.to_string()),
            Some(_) => State::Down {
                name: name.into(),
                uuid: String::new(),
                members: vec![],
                holder,
                elsewhere: None,
                absent: vec![],
                attachments: vec![],
            },
        });
    };
    let absent = config.members.iter().filter_map(|m| why_absent(name, &m.locator)).collect();
    Ok(State::Down {
        name: name.to_string(),
        absent,
        uuid: config.uuid,
        members: config.members.into_iter().map(|m| format!("{} ({})", m.locator, m.tier)).collect(),
        elsewhere: holder.is_none().then(|| elsewhere::server_of(name)).flatten(),
        holder,
        attachments: runstate::attachments(name).unwrap_or_else(|error| {
            crate::output::tell(&format!("bimetal: {error:#}"));
            Vec::new()
        }),
    })
}

/// Why there may be no member of a group at a place.
fn why_absent(group: &str, locator: &str) -> Option<String> {
    let parsed = Locator::parse(locator).ok()?;
    if parsed.path().is_some_and(|path| !path.exists()) {
        return Some(format!("{locator} does not exist"));
    }
    let others = paths::configured_groups().ok()?.into_iter().filter(|other| other != group);
    let has = |other: &String| {
        let config = config::load(other).ok().flatten();
        config.is_some_and(|c| c.members.iter().any(|m| m.locator == locator))
    };
    let other = others.into_iter().find(has)?;
    Some(format!("{locator} is described as a member of group '{other}', too: the label decides"))
}

impl State {
    fn json(&self) -> Result<serde_json::Value> {
        Ok(match self {
            State::Running(s) => serde_json::to_value(s)?,
            State::Down { name, uuid, members, holder, elsewhere, absent, attachments } => json!({
                "schema": api::SCHEMA, "group": name, "uuid": uuid,
                "state": if elsewhere.is_some() { "served elsewhere" } else { "not running" },
                "configured_members": members, "absent": absent, "attachments": attachments,
                "pid": holder.as_ref().map(|h| h.process.clone()).or_else(|| elsewhere.as_ref().map(|s| s.process.to_string())),
            }),
            State::Unknown(name) => json!({ "schema": api::SCHEMA, "group": name, "state": "unknown" }),
        })
    }

    fn words(&self) -> String {
        match self {
            State::Running(s) => running(s),
            State::Down { name, elsewhere: Some(server), .. } => format!("{name}: {}\n", server.words(name)),
            State::Down { name, members, holder: None, absent, attachments, .. } => {
                let mut text = match absent.len() {
                    0 => format!("{name}: not running. Start it with `bimetal attach {name}` or `bimetal serve {name}`.\n"),
                    n if n < members.len() => format!(
                        "{name}: not running, and not all of its members are where they were. If they have moved, `bimetal serve \
                         {name}` finds block devices by their labels; `bimetal rescue {name}` says what is lost without them.\n"
                    ),
                    _ => format!(
                        "{name}: not running, and none of its members is where it was. If they have moved, `bimetal serve {name}` \
                         finds block devices by their labels; if they are gone for good, `bimetal destroy {name} --forget`.\n"
                    ),
                };
                for m in members {
                    text += &format!("  member {m}\n");
                }
                for why in absent {
                    text += &format!("  {why}\n");
                }
                for a in attachments.iter().filter(|a| a.via == "ublk") {
                    text += &format!("  {} waits for the daemon, which takes it over when it starts\n", a.device);
                }
                for a in attachments.iter().filter(|a| a.via != "ublk") {
                    text += &format!(
                        "  {} is left over from a daemon that died: `bimetal detach {}`\n",
                        a.device, a.device
                    );
                }
                text
            }
            State::Down { name, holder: Some(Holder { process, command: Some(line) }), .. } => {
                format!(
                    "{name}: not running; `bimetal {line}` (process {process}) has it for itself until that ends.\n"
                )
            }
            State::Down { name, holder: Some(Holder { process, .. }), .. } => {
                format!("{name}: process {process} holds it but does not answer: it is starting, recovering, or was started with --control elsewhere.\n")
            }
            State::Unknown(_) => String::new(),
        }
    }
}

fn running(s: &Status) -> String {
    let mut text = format!("{}: {} for {}, process {}\n", s.group, s.state, duration(s.uptime_seconds), s.pid);
    for line in &s.summary {
        text += &format!("  {line}\n");
    }
    for line in &s.recovery {
        text += &format!("  At the start: {line}\n");
    }
    text.push('\n');
    text += &indent(&super::volume::volume_table(&s.volumes, "ATTACHED AS", |v| attached_as(s, v)));
    let living = |a: &api::Attachment| s.volumes.iter().any(|v| a.is_of_volume(&v.name, &v.uuid));
    for a in s.attachments.iter().filter(|a| !living(a)) {
        text += &format!(
            "  {0} is left over from volume '{1}', which is deleted: `bimetal detach {0}`\n",
            a.device, a.volume
        );
    }
    for v in &s.deleting {
        let left = approx(v.fast_bytes + v.slow_bytes);
        text += &format!("  {} is deleted; {left} of it are still to be freed\n", v.name);
    }
    text.push('\n');
    let members: Vec<_> = s.members.iter().map(member_row).collect();
    text += &indent(&table(&["MEMBER", "TIER", "SIZE", "FREE", "READ", "WRITTEN", "WHERE"], &members, &[2, 3, 4, 5]));
    text.push('\n');
    for e in &s.exports {
        text += &format!("  NBD: {e}\n");
    }
    if let Some(f) = &s.files {
        text += &format!("  files: {} ({} requests)\n", f.folder, f.requests);
    }
    for c in &s.clients {
        let since = duration(c.connected_seconds);
        text += &format!("  client {} on '{}' for {since}, {} requests\n", c.peer, c.export, c.requests);
    }
    text
}

fn attached_as(s: &Status, v: &api::Volume) -> String {
    let attached = s.attachments.iter().filter(|a| a.is_of_volume(&v.name, &v.uuid)).map(|a| {
        // Only a ublk device outlives the daemon that it was made for.
        let dead = Handle::of(a).is_ok_and(|h| !h.is_served_by(DaemonProcess::of(s))) && a.via != "ublk";
        let state = if dead { ", dead since an earlier daemon ended" } else { "" };
        match a.held_by.as_slice() {
            [] if dead => format!("{} ({}){state}", a.device, a.via),
            [] => format!("{} ({}), idle", a.device, a.via),
            held => format!("{} ({}){state}: {}", a.device, a.via, held.join(", ")),
        }
    });
    let attached: Vec<String> = attached.collect();
    if attached.is_empty() {
        return "-".into();
    }
    attached.join("; ")
}

fn member_row(m: &api::Member) -> Vec<String> {
    const SLOT: u64 = bimetal_volume::units::CHUNK;
    let place = m.locator.clone().unwrap_or_default();
    vec![
        m.index.to_string(),
        m.tier.clone(),
        approx(m.size_bytes),
        approx(m.free_slots * SLOT),
        approx(m.read_bytes),
        approx(m.written_bytes),
        match (m.present, m.is_leaving()) {
            (false, _) => format!("MISSING {place}"),
            (true, true) => format!("{place} ({})", super::member::state(m)),
            (true, false) => place,
        },
    ]
}
