//! `bimetal dissolve`: a volume becomes a plain device again.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, Locator, Reactor};
use bimetal_volume::env::Device;
use serde_json::json;

use super::create::{is_empty_file, refuse_member, refuse_used};
use super::served::{choose, served, stopped_again, Served};
use crate::api::{self, DissolveRequest, Dissolving, Status};
use crate::cli::Dissolve;
use crate::output::{confirm, Output};
use crate::progress::Progress;
use crate::size::{approx, Size};
use crate::{members, runstate};

const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// A daemon that answers none of so many questions is not asked again.
const SILENT: u32 = 10;

pub(crate) fn run(args: &Dissolve, output: Output) -> Result<()> {
    let group = args.target.group.as_str();
    let Served { status, started } = served(group, args.cancel)?;
    let result = at_the_daemon(args, &status, output);
    match result {
        Err(why) if started => Err(stopped_again(group, why)),
        Ok(()) if started && !args.cancel => stop(group),
        result => result,
    }
}

fn at_the_daemon(args: &Dissolve, status: &Status, output: Output) -> Result<()> {
    let (group, volume) = (&status.group, choose(status, args.target.volume.as_deref())?);
    let request = |onto: String| DissolveRequest {
        volume: volume.name.clone(),
        onto,
        force: args.force,
        delete: args.delete,
        cancel: args.cancel,
    };
    if args.cancel {
        let row = ask(group, &request(String::new()))?;
        return output.show(&answer(group, "cancelled", &row), || {
            format!("Copying {group}/{} onto {} ends; what was copied stays there.", row.volume, row.onto)
        });
    }
    let Some(onto) = &args.onto else { bail!("{}", advice(status, volume)) };
    let locator = members::parse(onto)?;
    // What is under way is only watched.
    let under_way = status.dissolving.as_ref().is_some_and(|d| is_under_way(d) && d.onto == locator.to_string());
    if !under_way {
        prepare(&locator, volume.size_bytes)?;
        look_at(&locator, volume, args)?;
    }
    ask(group, &request(locator.to_string()))?;
    let row = watch(group, volume, output)?;
    output.show(&answer(group, "dissolved", &row), || words(group, volume, &row, args.delete))
}

fn answer(group: &str, change: &str, row: &Dissolving) -> serde_json::Value {
    json!({ "schema": api::SCHEMA, "group": group, "change": change, "dissolving": row })
}

fn ask(group: &str, request: &DissolveRequest) -> Result<Dissolving> {
    let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile")?;
    daemon.post("/v1/dissolve", request)
}

fn is_under_way(d: &Dissolving) -> bool {
    !matches!(d.phase.as_str(), "done" | "failed" | "cancelled")
}

/// Makes the file, or makes it long enough. A device has the size that it has.
fn prepare(locator: &Locator, size: u64) -> Result<()> {
    let Some(path) = locator.path() else { return Ok(()) };
    let meta = std::fs::metadata(path);
    let is_file = meta.as_ref().is_ok_and(std::fs::Metadata::is_file);
    let made = matches!(&meta, Err(e) if e.kind() == std::io::ErrorKind::NotFound) && !path.starts_with("/dev");
    let short = is_file && meta.is_ok_and(|m| m.len() < size);
    if made || short {
        let file = OpenOptions::new().write(true).create(made).truncate(false).open(path);
        let file = file.with_context(|| format!("{} cannot be made", path.display()))?;
        file.set_len(size).with_context(|| too_large_for_its_file_system(path, size))?;
    }
    Ok(())
}

fn too_large_for_its_file_system(path: &Path, size: u64) -> String {
    format!("{} cannot get {} ({})", path.display(), approx(size), Size(size))
}

/// Refuses a device that is in use, too small or carries something, and asks.
fn look_at(locator: &Locator, volume: &api::Volume, args: &Dissolve) -> Result<()> {
    let (at, force, need) = (locator.clone(), args.force, volume.size_bytes);
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let size = reactor.block_on(async move {
        let device = HostDevice::open(&env, &at, Access::PEEK).await?;
        let has = device.size();
        if has < need {
            bail!(
                "{at} has {} and the volume {}: it is too small by {}",
                approx(has),
                approx(need),
                approx(need - has)
            );
        }
        refuse_used(&env, &at, force).await?;
        refuse_member(&at, &device, force).await?;
        Ok(has)
    })?;
    if is_empty_file(locator) {
        return Ok(());
    }
    confirm(&format!("What is on this device is overwritten:\n  {locator} ({})", approx(size)), args.yes)
}

/// Returns when it is done.
fn watch(group: &str, volume: &api::Volume, output: Output) -> Result<Dissolving> {
    let mut progress = (!output.json).then(Progress::new);
    let (mut silent, mut told) = (0, false);
    loop {
        let gone = "the daemon has ended meanwhile; the same command goes on with it";
        let daemon = runstate::daemon(group)?.context(gone)?;
        match daemon.get::<Status>("/v1/status").map(|s| s.dissolving) {
            Ok(Some(d)) if d.volume_uuid == volume.uuid => {
                silent = 0;
                match d.phase.as_str() {
                    "done" => return Ok(d),
                    "failed" => bail!("{}", d.error.as_deref().unwrap_or("it failed")),
                    "cancelled" => bail!("somebody has cancelled it; what was copied stays on {}", d.onto),
                    _ => {}
                }
                if let (Some(users), false) = (&d.waits_for, told) {
                    told = true;
                    // The line of progress is not to stand in it.
                    progress.take();
                    eprintln!("{}", waiting(group, &d, users));
                    progress = (!output.json).then(Progress::new);
                }
                if let Some(progress) = &mut progress {
                    progress.show(|| live(&d));
                }
            }
            Ok(_) => bail!("the daemon was started anew meanwhile; the same command goes on with it"),
            Err(why) if silent == SILENT => return Err(why),
            Err(_) => silent += 1,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn waiting(group: &str, d: &Dissolving, users: &str) -> String {
    format!(
        "Everything is on {} but what still changes. The last of it is copied when nobody uses the volume any more ({users}):\n\
         unmount it, and: bimetal detach {group}/{}",
        d.onto, d.volume
    )
}

fn live(d: &Dissolving) -> String {
    let part = d.done_bytes * 100 / d.total_bytes.max(1);
    match d.phase.as_str() {
        "waiting" => format!("waiting until nobody uses the volume; {} were written", approx(d.written_bytes)),
        phase => format!("{phase}: {part} % of {}, {} written", approx(d.total_bytes), approx(d.written_bytes)),
    }
}

fn words(group: &str, volume: &api::Volume, d: &Dissolving, deleted: bool) -> String {
    let name = &volume.name;
    let rest = match deleted {
        true => format!("Volume {group}/{name} is deleted."),
        false => format!("Volume {group}/{name} is still there, too: bimetal volume delete {group}/{name}, or bimetal destroy {group}."),
    };
    format!(
        "{} holds what volume {group}/{name} held, {} compared with it; it needs no Bimetal.\n{rest}",
        d.onto,
        approx(volume.size_bytes)
    )
}

/// The daemon that was started for this.
fn stop(group: &str) -> Result<()> {
    let Some(daemon) = runstate::daemon(group)? else { return Ok(()) };
    let _accepted: api::StopAccepted = daemon.post("/v1/stop", &api::StopRequest::default())?;
    Ok(())
}

/// Where a volume could go, if nobody said where.
fn advice(status: &Status, volume: &api::Volume) -> String {
    let (group, name) = (&status.group, &volume.name);
    let mut text = format!(
        "name a device or file for it: bimetal dissolve {group}/{name} --onto DEV; it needs {} ({} bytes)",
        approx(volume.size_bytes),
        volume.size_bytes
    );
    if let Some(m) = status.members.iter().find(|m| can_be_freed(status, m, volume.size_bytes)) {
        let place = m.locator.clone().unwrap_or_else(|| format!("member {}", m.index));
        text += &format!(
            ". {place} is large enough and what is on it fits the other members. To use it, empty it first: bimetal member evacuate {group} {0} && bimetal member remove {group} {0}",
            m.index
        );
    }
    text
}

/// Whether a member could leave the group and take a volume of this size.
fn can_be_freed(status: &Status, m: &api::Member, size: u64) -> bool {
    let others = status.members.iter().filter(|o| o.index != m.index && o.present && !o.is_leaving());
    let same_tier = others.clone().any(|o| o.tier == m.tier);
    let room: u64 = others.map(|o| o.free_slots * bimetal_volume::units::CHUNK).sum();
    m.present && m.size_bytes >= size && same_tier && room > m.used_bytes()
}
