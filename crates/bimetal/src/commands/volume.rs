//! `bimetal volume`: volumes are made, listed, resized, renamed, encrypted and deleted, through the daemon where one serves the
//! group, else on the members themselves.

mod encrypt;

use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::group::structure::Proviso;
use bimetal_volume::group::Group;
use bimetal_volume::options::OpenOptions;
use serde_json::json;

use super::attached::{self, Follower};
use crate::api::{self, Job, Placement, VolumeChange};
use crate::cli::{self, Target, VolumeCommand};
use crate::daemon::{self, change_volumes, meant};
use crate::output::{confirm, table, Output};
use crate::size::approx;
use crate::{loss, members, metadata_room, runstate};

/// Between two questions whether a long change has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(crate) fn run(command: VolumeCommand, output: Output) -> Result<()> {
    match command {
        VolumeCommand::Create(args) => {
            let name = named(&args.target)?;
            let placement = match args.placement {
                cli::Placement::Auto => Placement::Auto,
                cli::Placement::FastOnly => Placement::FastOnly,
                cli::Placement::SlowOnly => Placement::SlowOnly,
            };
            let change =
                VolumeChange::Create { name, size_bytes: args.size.map(|s| s.0), placement, family: args.family };
            make(&args.target.group, change, output)
        }
        VolumeCommand::Resize(args) => {
            let name = named(&args.target)?;
            make(&args.target.group, VolumeChange::Resize { name, size_bytes: args.size.0, force: args.force }, output)
        }
        VolumeCommand::Rename(args) => {
            let name = named(&args.target)?;
            make(&args.target.group, VolumeChange::Rename { name, new_name: args.new_name, force: args.force }, output)
        }
        VolumeCommand::Delete(args) => delete(args, output),
        VolumeCommand::Encrypt(args) => encrypt::run(args, output),
        VolumeCommand::List(args) => list(&args.group, output),
    }
}

fn named(target: &Target) -> Result<String> {
    let group = &target.group;
    target.volume.clone().with_context(|| format!("name the volume: {group}/NAME"))
}

fn delete(args: cli::VolumeDelete, output: Output) -> Result<()> {
    let (name, group) = (named(&args.target)?, &args.target.group);
    let found = volumes(group)?.into_iter().find(|v| v.name == name);
    let v = found.with_context(|| format!("group '{group}' has no volume '{name}'"))?;
    let question = format!(
        "This deletes volume '{name}' of group '{group}' ({}, {} of data) for good.",
        approx(v.size_bytes),
        approx(v.fast_bytes + v.slow_bytes)
    );
    confirm(&question, args.yes)?;
    make(group, VolumeChange::Delete { name, uuid: Some(v.uuid), force: args.force }, output)
}

/// Makes a change, and says what it has come to.
fn make(group: &str, change: VolumeChange, output: Output) -> Result<()> {
    encrypt::refuse_locked(group, &change)?;
    let deletes = matches!(change, VolumeChange::Delete { .. });
    let before = if deletes { attached::to_volume(group, change.name(), change.uuid())? } else { Vec::new() };
    let size = match runstate::daemon(group)? {
        Some(daemon) => by_daemon(group, daemon, &change)?,
        None => offline(group, change.clone())?,
    };
    if deletes {
        attached::take_down(group, &before)?;
    }
    let (what, name) = match &change {
        VolumeChange::Create { name, .. } => ("created", name),
        VolumeChange::Encrypt { name, .. } => ("encrypting", name),
        VolumeChange::Resize { name, .. } => ("resized", name),
        VolumeChange::Rename { new_name, .. } => ("renamed", new_name),
        VolumeChange::Delete { name, .. } => ("deleted", name),
    };
    let mut answer = json!({
        "schema": api::SCHEMA, "group": group, "volume": name, "change": what, "size_bytes": size,
    });
    let followers = match (&change, size) {
        (VolumeChange::Resize { name, .. }, Some(size)) => attached::follow_size(group, name, size)?,
        _ => Vec::new(),
    };
    if matches!(change, VolumeChange::Resize { .. }) {
        answer["attached"] = followers.iter().map(Follower::json).collect();
    }
    output.show(&answer, || words(group, &change, size, &followers))
}

fn words(group: &str, change: &VolumeChange, size: Option<u64>, followers: &[Follower]) -> String {
    let size = size.map(|s| format!("{} ({s} bytes)", approx(s))).unwrap_or_default();
    match change {
        VolumeChange::Create { name, .. } => {
            format!("Created volume {group}/{name}, {size}.\nNext: bimetal attach {group}/{name}")
        }
        VolumeChange::Encrypt { name, .. } => encrypt::begun(group, name),
        VolumeChange::Resize { name, .. } => {
            let note: String = followers.iter().map(Follower::words).collect();
            let note = if note.is_empty() { "\nNBD clients see it when they connect anew.".into() } else { note };
            format!("Volume {group}/{name} has {size} now.{note}")
        }
        VolumeChange::Rename { name, new_name, .. } => format!("Volume {group}/{name} is {group}/{new_name} now."),
        VolumeChange::Delete { name, .. } => format!("Deleted volume {group}/{name}."),
    }
}

/// Lets the daemon make the change, and waits for its end.
fn by_daemon(group: &str, daemon: crate::client::Client, change: &VolumeChange) -> Result<Option<u64>> {
    let job = wait_for(group, daemon.post("/v1/volumes", change)?)?;
    Ok(job.size_bytes)
}

/// Waits for the end of a job of the daemon.
pub(super) fn wait_for(group: &str, job: Job) -> Result<Job> {
    wait_and_tell(group, job, || {
        format!("This takes a while; it goes on if you interrupt this command, and `bimetal status {group}` shows it.")
    })
}

/// The same, with what is told if that takes a while.
pub(super) fn wait_and_tell(group: &str, mut job: Job, words: impl Fn() -> String) -> Result<Job> {
    let mut told = false;
    while !job.done {
        if !told {
            told = true;
            crate::output::tell(&words());
        }
        std::thread::sleep(LOOK_AGAIN);
        let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile; see `bimetal status`")?;
        let asked = daemon.get(&format!("/v1/jobs/{}", job.job));
        job = asked.with_context(|| {
            format!("it is not known what has come of it; `bimetal status {group}` shows how things are")
        })?;
    }
    match &job.error {
        Some(why) => bail!("{why}"),
        None => Ok(job),
    }
}

/// Opens the group, makes the change, and stops it again.
fn offline(group: &str, change: VolumeChange) -> Result<Option<u64>> {
    let name = group.to_string();
    with_group(group, Access::SERVE, OpenOptions::default(), |_, open, _| async move {
        let uuid = open.volume(change.name()).map(|v| v.uuid());
        let proviso = Proviso { volume: meant(&change)?, objection: None };
        let changed = match uuid.map_or(Ok(()), |uuid| attached::may_change(&name, &uuid, &change)) {
            Ok(()) => change_volumes(&open, &change, proviso).await.map(|done| done.size).map_err(anyhow::Error::msg),
            refused => refused.map(|()| None),
        };
        let stopped = open.stop().await;
        let size = changed?;
        stopped
            .context("the change is made, but the group could not be stopped in order; its next start recovers it")?;
        if let (VolumeChange::Delete { .. }, Some(uuid)) = (&change, uuid) {
            attached::remove_orphans(&uuid)?;
        }
        Ok(size)
    })
}

/// Where members were found, by UUID.
pub(super) type Places = Vec<(String, String)>;

/// Opens a group that nobody serves. Who only reads keeps nobody from it for longer than its members are open.
pub(super) fn with_group<T: 'static, F: std::future::Future<Output = Result<T>> + 'static>(
    name: &str,
    access: Access,
    options: OpenOptions,
    work: impl FnOnce(HostEnv, Group<HostEnv>, Places) -> F + 'static,
) -> Result<T> {
    refuse_held(name)?;
    let _lock = access.write.then(|| runstate::lock_for_command(name)).transpose()?;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let group = name.to_string();
    let done = reactor.block_on(async move {
        let found = members::open(&env, Some(&group), &[], access).await?;
        if let Some(why) = found.connected_anew().filter(|_| options.writable) {
            loss::note(&group, why);
        }
        if options.writable {
            metadata_room::at_start(&found).await;
        }
        let syncs = loss::watch_syncs(&env, &group);
        let opened = Group::open(env.clone(), found.devices(), options).await;
        drop(syncs);
        // Without them it may be open all the same, and say less than there is.
        if !access.write {
            found.refuse_taken("looked at")?;
        }
        let open = opened.map_err(|error| found.refusal(&group, error))?;
        let places = daemon::locators(&found);
        drop(found);
        work(env, open, places).await
    });
    match runstate::holder(name).filter(|_| done.is_err() && !access.write) {
        // Then that is why nothing could be read.
        Some(daemon) if daemon.is_daemon() => bail!(
            "a daemon (process {}) has come to serve group '{name}' meanwhile, and nothing was looked at; give the command again",
            daemon.process
        ),
        Some(command) => bail!("{}", command.words(name)),
        None => done,
    }
}

/// Refuses a group that somebody has who cannot be asked.
fn refuse_held(name: &str) -> Result<()> {
    match runstate::holder_for_long(name) {
        None => Ok(()),
        Some(daemon) if daemon.is_daemon() => bail!(
            "group '{name}' is served by process {}, which does not answer; see `bimetal status {name}`",
            daemon.process
        ),
        Some(command) => bail!("{}", command.words(name)),
    }
}

/// The volumes of a group, served or not.
fn volumes(group: &str) -> Result<Vec<api::Volume>> {
    if let Some(daemon) = runstate::daemon(group)? {
        let status: api::Status = daemon.get("/v1/status")?;
        return Ok(status.volumes);
    }
    let options = OpenOptions { writable: false, allow_missing: true, migrate: false, ..OpenOptions::default() };
    with_group(group, Access::INSPECT, options, |_, open, _| async move {
        use bimetal_volume::backend::Backend;
        let sector = |name: &str| open.volume(name).map_or(4096, |v| v.sector_size());
        let status = open.status();
        Ok(status.volumes.iter().map(|v| daemon::volume_row(sector(&v.name), &status, v)).collect())
    })
}

fn list(group: &str, output: Output) -> Result<()> {
    let all = volumes(group)?;
    output.show(&json!({ "schema": api::SCHEMA, "group": group, "volumes": all }), || {
        if all.is_empty() {
            return format!("Group '{group}' has no volume; make one: bimetal volume create {group}/NAME");
        }
        volume_table(&all, "UUID", |v| v.uuid.clone())
    })
}

/// A table of volumes; `last` says what stands in the last column. That of families is there if any volume has one.
pub(super) fn volume_table(all: &[api::Volume], title: &str, last: impl Fn(&api::Volume) -> String) -> String {
    let families = all.iter().any(|v| v.family.is_some());
    let mut titles = vec!["VOLUME", "SIZE", "ON FAST", "ON SLOW", "PLACEMENT"];
    titles.extend(families.then_some("FAMILY"));
    titles.push(title);
    let row = |v: &api::Volume| {
        let mut row = vec![v.name.clone()];
        row.extend([v.size_bytes, v.fast_bytes, v.slow_bytes].map(approx));
        row.push(v.placement.clone());
        row.extend(families.then(|| encrypt::cell(v)));
        row.push(last(v));
        row
    };
    table(&titles, &all.iter().map(row).collect::<Vec<_>>(), &[1, 2, 3])
}
