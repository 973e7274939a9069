//! `bimetal scan`: which groups there are, and what they wait for.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;

use anyhow::Result;
use bimetal_format::label::{Label, LabelError, MemberCode, MemberRow};
use bimetal_host::device::{Access, OpenError};
use bimetal_host::{HostDevice, HostEnv, Locator, Reactor};
use futures_util::future::join_all;
use serde_json::json;

use crate::cli::Scan;
use crate::config::uuid_text;
use crate::former::{self, Standing};
use crate::members::tier_name;
use crate::output::{table, Output};
use crate::runstate::Holder;
use crate::saved::Mark;
use crate::size::approx;
use crate::{api, config, elsewhere, members, paths, restoring, runstate};

/// A member that was found.
struct Seen {
    locator: Locator,
    label: Label,
}

/// A group, put together from labels.
struct Found {
    name: String,
    uuid: String,
    /// The newest label: it lists all members.
    newest: Label,
    members: BTreeMap<u8, Vec<Locator>>,
    /// Devices with a label of it that are no members (any more).
    apart: Vec<(Seen, Standing)>,
}

pub(crate) fn run(args: Scan, output: Output) -> Result<ExitCode> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    if let Some(device) = args.udev {
        return reactor.block_on(async move { udev(&env, &device).await });
    }
    let named = members::parse_all(&args.devices)?;
    let Looked { seen, remarks, read, unreadable } = reactor.block_on(async move { look(&env, named).await });
    let groups = put_together(seen);
    let document = json!({
        "schema": api::SCHEMA,
        "groups": groups.iter().map(Found::json).collect::<Vec<_>>(),
        "remarks": remarks,
    });
    output.show(&document, || {
        let mut text: String = groups.iter().map(Found::words).collect();
        if groups.is_empty() {
            text += "No group was found. Members that are files or remote are found by their configuration, or when named here.\n";
        }
        remarks.iter().for_each(|r| text += &format!("{r}\n"));
        text
    })?;
    let in_vain = unreadable > 0 && read == 0;
    Ok(if in_vain { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a look has found.
#[derive(Default)]
struct Looked {
    seen: Vec<Seen>,
    remarks: Vec<String>,
    /// How many of those named could be read, and how many not.
    read: usize,
    unreadable: usize,
}

/// Where a look goes, and who wants it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Named,
    Configured,
    Nobody,
}

/// Looks at block devices, configured members, and those named. Only of the last two is it worth a remark when they
/// are no members.
async fn look(env: &HostEnv, named: Vec<Locator>) -> Looked {
    let mut looked = Looked::default();
    let mut places: Vec<(Locator, Wish)> = named.into_iter().map(|l| (l, Wish::Named)).collect();
    for name in paths::configured_groups().unwrap_or_default() {
        match config::load(&name) {
            Ok(Some(c)) => places
                .extend(c.members.iter().filter_map(|m| Some((Locator::parse(&m.locator).ok()?, Wish::Configured)))),
            Ok(None) => {}
            Err(e) => looked.remarks.push(format!("{e:#}")),
        }
    }
    places.extend(members::block_devices().into_iter().map(|p| (Locator::Path(p), Wish::Nobody)));
    // Each device once; side by side, so that disks which sleep do not wake up in turn.
    let mut known: HashSet<String> = HashSet::new();
    places.retain(|(locator, _)| known.insert(members::identity(locator)));
    let labels = join_all(places.iter().map(|(locator, _)| label_of(env, locator))).await;
    for ((locator, wish), label) in places.into_iter().zip(labels) {
        if wish == Wish::Named {
            looked.read += usize::from(label.is_ok());
            looked.unreadable += usize::from(label.is_err());
        }
        match label {
            Ok(Ok(label)) => looked.seen.push(Seen { locator, label }),
            Ok(Err(NoMember::Restoring(told))) => looked.remarks.push(format!("{locator} is {told}")),
            _ if wish == Wish::Nobody => {}
            Ok(Err(NoMember::Label(why))) => looked.remarks.push(format!("{locator}: {why}")),
            Err(why) => looked.remarks.push(why),
        }
    }
    looked
}

/// Why a device is no member.
enum NoMember {
    Label(LabelError),
    /// A restore has taken its label away, in words.
    Restoring(String),
}

/// The label of a device, or why it is no member; or why the device cannot be read, which names it.
async fn label_of(env: &HostEnv, locator: &Locator) -> Result<Result<Label, NoMember>, String> {
    let device = HostDevice::open(env, locator, Access::PEEK).await.map_err(|e| match e {
        // Nobody who looks for something wants it made.
        OpenError::Missing { path } => format!("{} does not exist", path.display()),
        other => other.to_string(),
    })?;
    let label = members::read_label(&device).await.map_err(|e| format!("{locator} cannot be read: {e:#}"))?;
    match label {
        Ok(label) => Ok(Ok(label)),
        Err(why) => Ok(Err(match restoring::told(env, &device).await {
            Some(told) => NoMember::Restoring(told),
            None => NoMember::Label(why),
        })),
    }
}

fn put_together(seen: Vec<Seen>) -> Vec<Found> {
    let mut groups: BTreeMap<[u8; 16], Vec<Seen>> = BTreeMap::new();
    for s in seen {
        groups.entry(s.label.group).or_default().push(s);
    }
    groups.into_values().filter_map(Found::of).collect()
}

impl Found {
    /// What was seen of one group.
    fn of(seen: Vec<Seen>) -> Option<Found> {
        let newest = former::newest(seen.iter().map(|s| &s.label))?.clone();
        let (name, uuid) = (newest.group_name.clone(), uuid_text(&newest.group));
        let mut found = Found { name, uuid, newest, members: BTreeMap::new(), apart: Vec::new() };
        for s in seen {
            match former::standing(&s.label, &found.newest) {
                Standing::Member => found.members.entry(s.label.member).or_default().push(s.locator),
                standing => found.apart.push((s, standing)),
            }
        }
        Some(found)
    }

    fn rows(&self) -> impl Iterator<Item = (u8, &MemberRow, &[Locator])> {
        let all = self.newest.members.iter().enumerate();
        all.filter(|(_, row)| row.state != MemberCode::Left).map(|(i, row)| {
            let at = self.members.get(&(i as u8)).map_or(&[][..], Vec::as_slice);
            (i as u8, row, at)
        })
    }

    fn state(&self) -> String {
        let missing: Vec<String> = self
            .rows()
            .filter(|(.., at)| at.is_empty())
            .map(|(i, row, _)| format!("{} member {i} ({})", tier_name(row.tier), approx(row.size)))
            .collect();
        let doubled = self.rows().find(|(.., at)| at.len() > 1);
        if let Some((i, _, at)) = doubled {
            let at: Vec<String> = at.iter().map(Locator::to_string).collect();
            return format!(
                "member {i} was found twice ({}): a copy? Disconnect the one that is not current",
                at.join(", ")
            );
        }
        if !missing.is_empty() {
            return format!("incomplete, waiting for {}", missing.join(", "));
        }
        if self.apart.iter().any(|(_, standing)| *standing == Standing::Apart) {
            return "two sides of it were used apart, and no start takes both: name the members of one (--member)"
                .into();
        }
        match runstate::holder(&self.name) {
            Some(Holder { process, command: None }) => format!("complete, served by process {process}"),
            Some(Holder { process, command: Some(line) }) => {
                format!("complete, not running, in use by `bimetal {line}` (process {process})")
            }
            None => match elsewhere::server_of(&self.name) {
                Some(server) => format!("complete, served by process {} with another run directory", server.process),
                None => "complete, not running".into(),
            },
        }
    }

    fn json(&self) -> serde_json::Value {
        let member = |(i, row, at): (u8, &MemberRow, &[Locator])| {
            json!({
                "index": i, "uuid": uuid_text(&row.uuid), "tier": tier_name(row.tier), "size_bytes": row.size,
                "found_at": at.iter().map(Locator::to_string).collect::<Vec<_>>(),
            })
        };
        let apart = |(s, standing): &(Seen, Standing)| {
            let state = match standing {
                Standing::Apart => "apart",
                Standing::Joining => "joining",
                Standing::Former | Standing::Member => "former",
            };
            json!({
                "index": s.label.member, "uuid": uuid_text(&members::own_uuid(&s.label)), "state": state,
                "found_at": s.locator.to_string(),
            })
        };
        let volumes = self.newest.living_volumes().map(|v| json!({"name": v.name, "size_bytes": v.size}));
        json!({
            "group": self.name, "uuid": self.uuid, "state": self.state(),
            "complete": self.rows().all(|(.., at)| at.len() == 1),
            "members": self.rows().map(member).collect::<Vec<_>>(), "volumes": volumes.collect::<Vec<_>>(),
            "no_members": self.apart.iter().map(apart).collect::<Vec<_>>(),
        })
    }

    fn words(&self) -> String {
        let mut text = format!("{}  {}\n", self.name, self.state());
        let volumes: Vec<String> =
            self.newest.living_volumes().map(|v| format!("{} ({})", v.name, approx(v.size))).collect();
        text += &format!("  UUID {}, volumes: {}\n", self.uuid, volumes.join(", "));
        let rows: Vec<Vec<String>> = self
            .rows()
            .map(|(i, row, at)| {
                let at: Vec<String> = at.iter().map(Locator::to_string).collect();
                let place = if at.is_empty() { "not found".to_string() } else { at.join(", ") };
                vec![i.to_string(), tier_name(row.tier).into(), approx(row.size), place]
            })
            .collect();
        let members = table(&["MEMBER", "TIER", "SIZE", "WHERE"], &rows, &[2]);
        text += &members.lines().map(|l| format!("  {l}\n")).collect::<String>();
        for (s, standing) in &self.apart {
            text += &format!("  {} {}\n", s.locator, former::told(&s.label, *standing, &s.locator));
        }
        text
    }
}

/// Properties for udev. A device that is no member gives none, and is no failure; one with a damaged label, or in the
/// midst of a restore, is still kept from others.
async fn udev(env: &HostEnv, device: &str) -> Result<ExitCode> {
    let locator = members::parse(device)?;
    let device = HostDevice::open(env, &locator, Access::PEEK).await?;
    let text = match members::read_label(&device).await? {
        Ok(label) => format!(
            "ID_FS_TYPE=bimetal_member\nID_FS_USAGE=raid\nID_FS_VERSION={}\nID_FS_UUID={}\nID_FS_LABEL={}\n\
             ID_FS_UUID_SUB={}\nBIMETAL_GROUP={}\nBIMETAL_TIER={}\n",
            bimetal_format::VERSION,
            uuid_text(&label.group),
            label.group_name,
            uuid_text(&members::own_uuid(&label)),
            label.group_name,
            label.members.get(label.member as usize).map_or("", |m| tier_name(m.tier)),
        ),
        Err(LabelError::NotALabel) if Mark::of(&device).await.is_none() => return Ok(ExitCode::SUCCESS),
        Err(_) => "ID_FS_TYPE=bimetal_member\nID_FS_USAGE=raid\n".into(),
    };
    crate::output::emit(&text)?;
    Ok(ExitCode::SUCCESS)
}
