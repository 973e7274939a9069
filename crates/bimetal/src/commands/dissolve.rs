//! `bimetal dissolve`: a volume becomes a plain device again.

use std::fs::OpenOptions;
use std::io::ErrorKind::NotFound;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, Locator, Reactor};
use bimetal_volume::env::Device;
use serde_json::json;

use super::create::{is_empty_file, refuse_used};
use super::served::{choose, refuse_locked, served, stop_if, Served};
use crate::api::{self, DissolveRequest, Dissolving, Job, MemberChange, Status};
use crate::cli::Dissolve;
use crate::client::{Refused, TooOld};
use crate::durable::sync_new;
use crate::output::{confirm, Output};
use crate::own::IN_FILES;
use crate::progress::Progress;
use crate::size::{approx, Size};
use crate::{former, members, runstate, shown};

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// After so many looks it is said what a cancelled copy waits for.
const LONG: u32 = 25;
/// A daemon that answers none of so many questions is not asked again.
const SILENT: u32 = 10;

pub(crate) fn run(args: &Dissolve, output: Output) -> Result<()> {
    let group = args.target.group.as_str();
    if args.cancel {
        return cancel(args, output);
    }
    let Served { status, started } = served(group, false)?;
    let volume = choose(&status, args.target.volume.as_deref())?;
    match copied(args, &status, volume, output) {
        Err(why) => {
            stop_if(started, group);
            Err(why)
        }
        Ok(row) => {
            let only = is_only_one(group);
            stop_if(started, group);
            output.show(&answer(group, "dissolved", &row), || words(group, &row, only))
        }
    }
}

fn cancel(args: &Dissolve, output: Output) -> Result<()> {
    let group = &args.target.group;
    let daemon =
        runstate::daemon(group)?.with_context(|| format!("group '{group}' is not served: nothing is copied"))?;
    let status: Status = daemon.get("/v1/status")?;
    let volume = choose(&status, args.target.volume.as_deref())?;
    let row = until_ended(group, ask(group, &request(volume, String::new(), args))?)?;
    let change = if row.phase == "done" { "dissolved" } else { "cancelled" };
    output.show(&answer(group, change, &row), || match row.phase.as_str() {
        "done" => words(group, &row, is_only_one(group)),
        _ => format!("Copying {group}/{} onto {} has ended; what was copied stays there.", row.volume, row.onto),
    })
}

/// How a copy has ended that was told to: until then no other can begin, and its device is in use.
fn until_ended(group: &str, begun: Dissolving) -> Result<Dissolving> {
    let (mut silent, mut looks) = (0, 0);
    loop {
        looks += 1;
        if looks == LONG {
            crate::output::tell(&format!(
                "The copy ends when {}, or a member, has answered what is on its way to it. The volume can be written to meanwhile. This \
                 goes on if you interrupt this command; `bimetal status {group}` shows it.",
                begun.onto
            ));
        }
        let gone = "the daemon has ended meanwhile, and the copy with it";
        let daemon = runstate::daemon(group)?.context(gone)?;
        match daemon.get::<Status>("/v1/status").map(|s| s.dissolving) {
            Ok(Some(row)) if row.run == begun.run && row.is_under_way() => silent = 0,
            Ok(Some(row)) if row.run == begun.run => return Ok(row),
            // Another has begun already.
            Ok(_) => return Ok(Dissolving { phase: "cancelled".into(), ..begun }),
            Err(why) if silent == SILENT => return Err(why),
            Err(_) => silent += 1,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn request(volume: &api::Volume, onto: String, args: &Dissolve) -> DissolveRequest {
    DissolveRequest {
        volume: volume.name.clone(),
        volume_uuid: Some(volume.uuid.clone()),
        onto,
        force: args.force,
        cancel: args.cancel,
    }
}

/// Returns when the volume is copied.
fn copied(args: &Dissolve, status: &Status, volume: &api::Volume, output: Output) -> Result<Dissolving> {
    let group = &status.group;
    let Some(onto) = &args.onto else { bail!("{}", advice(status, volume)?) };
    refuse_locked(group, volume)?;
    if volume.family.is_some() {
        crate::output::tell("The volume is encrypted; the copy will not be: it is what the volume shows.");
    }
    let locator = members::parse(onto)?;
    let wish = request(volume, locator.to_string(), args);
    // What is under way is only watched.
    let is_this = |d: &Dissolving| d.volume_uuid == volume.uuid && d.onto == wish.onto && d.is_under_way();
    let begun = match status.dissolving.as_ref().is_some_and(is_this) {
        true => ask(group, &wish)?,
        false => {
            let made = look_at(&locator, volume, args)?;
            ask(group, &wish).inspect_err(|why| made.undo_after(why))?
        }
    };
    if begun.volume_uuid != volume.uuid {
        bail!(
            "the daemon copies another volume than the one that was meant, '{}'; end that: bimetal dissolve {group}/{} --cancel",
            volume.name,
            begun.volume
        );
    }
    watch(group, &begun, output)
}

fn answer(group: &str, change: &str, row: &Dissolving) -> serde_json::Value {
    json!({ "schema": api::SCHEMA, "group": group, "change": change, "dissolving": row })
}

fn ask(group: &str, request: &DissolveRequest) -> Result<Dissolving> {
    let daemon = runstate::daemon(group).and_then(|daemon| daemon.context("the daemon has ended meanwhile"));
    daemon.context(NotAsked)?.post("/v1/dissolve", request)
}

/// The request did not get to the daemon.
#[derive(Debug, thiserror::Error)]
#[error("nothing was begun")]
struct NotAsked;

/// A file that was made for this.
struct Made<'a>(Option<&'a Path>);

impl Made<'_> {
    /// The same after the request failed. Where no answer has come the daemon may be copying into it, for hours perhaps: that would be
    /// lost with the file's last name.
    fn undo_after(&self, why: &anyhow::Error) {
        let not_begun = why.is::<Refused>() || why.is::<TooOld>() || why.is::<NotAsked>();
        match (not_begun, self.0) {
            (true, _) => self.undo(),
            (false, Some(path)) => crate::output::tell(&format!(
                "bimetal: {} stays, since the daemon may have begun to copy into it; `bimetal status` says so",
                path.display()
            )),
            (false, None) => {}
        }
    }

    /// Takes it away again, if nothing was written to it.
    fn undo(&self) {
        let made = self.0.filter(|path| std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.blocks() == 0));
        if let Some(Err(e)) = made.map(std::fs::remove_file) {
            crate::output::tell(&format!("bimetal: the file that was made for this is there still: {e}"));
        }
    }
}

/// Refuses a device that is in use, too small or carries something, and asks; a file that is not there is made.
fn look_at<'a>(locator: &'a Locator, volume: &api::Volume, args: &Dissolve) -> Result<Made<'a>> {
    let (need, path) = (volume.size_bytes, locator.path());
    let found = path.map(std::fs::metadata);
    let is_new = matches!(&found, Some(Err(e)) if e.kind() == NotFound);
    if path.is_some_and(shown::is_where_volumes_are_shown) {
        bail!("nothing can be copied onto {locator}: {IN_FILES}");
    }
    if let Some(path) = path.filter(|p| is_new && !p.starts_with("/dev")) {
        return make(path, need);
    }
    let (size, with) = look_at_what_is_there(&args.target.group, locator, args.force)?;
    if size < need {
        let short = approx(need - size);
        bail!("{locator} has {} and the volume {}: it is too small by {short}", approx(size), approx(need));
    }
    if !is_empty_file(locator) {
        confirm(&format!("What is on this device is overwritten:\n  {locator} ({}{with})", approx(size)), args.yes)?;
    }
    Ok(Made(None))
}

/// A file for a volume, which is nobody else's to read.
fn make(path: &Path, size: u64) -> Result<Made<'_>> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("{} cannot be made", path.display()))?;
    let made = Made(Some(path));
    let sized = file.set_len(size).and_then(|()| sync_new(&file, path));
    let fail = || format!("{} cannot get {} ({})", path.display(), approx(size), Size(size));
    sized.inspect_err(|_| made.undo()).with_context(fail)?;
    Ok(made)
}

/// Its size, and whose data on it would be lost.
fn look_at_what_is_there(group: &str, locator: &Locator, force: bool) -> Result<(u64, String)> {
    let (at, group) = (locator.clone(), former::Wanting::of(group)?);
    let reactor = Reactor::new()?;
    let env = reactor.env();
    reactor.block_on(async move {
        refuse_used(&env, &at, force).await?;
        let device = HostDevice::open(&env, &at, Access::PEEK).await?;
        former::refuse_as_target(&env, &at, &device, &group, force).await?;
        Ok((device.size(), former::lost_with(&env, &at, &device).await))
    })
}

/// Returns when it is done.
fn watch(group: &str, begun: &Dissolving, output: Output) -> Result<Dissolving> {
    let mut progress = (!output.json).then(Progress::new);
    let (mut silent, mut told) = (0, false);
    loop {
        let gone = "the daemon has ended meanwhile; the same command goes on with it";
        let daemon = runstate::daemon(group)?.context(gone)?;
        match daemon.get::<Status>("/v1/status").map(|s| s.dissolving) {
            Ok(Some(d)) if (d.run, &d.volume_uuid, &d.onto) == (begun.run, &begun.volume_uuid, &begun.onto) => {
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
                    crate::output::tell(&waiting(group, &d, users));
                    progress = (!output.json).then(Progress::new);
                }
                if let Some(progress) = &mut progress {
                    progress.show(|| live(&d));
                }
            }
            Ok(_) => bail!("the daemon does not know of it any more; the same command goes on with it"),
            Err(why) if silent == SILENT => return Err(why),
            Err(_) => silent += 1,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn waiting(group: &str, d: &Dissolving, users: &str) -> String {
    format!(
        "All of it is on {} but the first and last two MiB and what still changes. These are copied when nobody uses the volume \
         any more ({users}):\n\
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

/// Whether the group has no volume but the one that was copied, as far as the daemon still says.
fn is_only_one(group: &str) -> bool {
    let status = || runstate::daemon(group).ok().flatten()?.get::<Status>("/v1/status").ok();
    status().is_some_and(|status| status.volumes.len() == 1)
}

/// By the name that the volume has now: its former one may be another's, which was copied nowhere. As are the other volumes of the group.
fn words(group: &str, d: &Dissolving, only: bool) -> String {
    let name = &d.volume;
    let whole = if only { format!(", or bimetal destroy {group}") } else { String::new() };
    format!(
        "{} holds what volume {group}/{name} holds; it needs no Bimetal.\n\
         Both carry the same file system now, with the same UUID: do not mount both at once. When you have seen that all is \
         there: bimetal volume delete {group}/{name}{whole}.",
        d.onto
    )
}

/// Where a volume could go, if nobody said where.
fn advice(status: &Status, volume: &api::Volume) -> Result<String> {
    let (group, name) = (&status.group, &volume.name);
    let mut text = format!(
        "name a device or file for it: bimetal dissolve {group}/{name} --onto DEV; it needs {} ({} bytes)",
        approx(volume.size_bytes),
        volume.size_bytes
    );
    for m in status.members.iter().filter(|m| m.present && m.size_bytes >= volume.size_bytes) {
        let change = MemberChange::Evacuate { member: m.index, dry_run: true };
        let Some(daemon) = runstate::daemon(group)? else { break };
        let planned: Result<Job> = daemon.post("/v1/members", &change);
        if planned.is_ok_and(|job| job.done && job.error.is_none()) {
            let place = m.locator.clone().unwrap_or_else(|| format!("member {}", m.index));
            text += &format!(
                ". {place} is large enough, and all data fits the other members. To use it, empty it first: bimetal member evacuate {group} {0} && bimetal member remove {group} {0}",
                m.index
            );
            break;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Ended;

    #[test]
    fn a_file_that_was_made_for_this_goes_only_if_nothing_was_begun() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("out.img");
        let goes = |why: anyhow::Error| {
            make(&path, 1 << 20).expect("made").undo_after(&why);
            let is_gone = !path.exists();
            let _ = std::fs::remove_file(&path);
            is_gone
        };
        assert!(goes(Refused("one at a time".into()).into()));
        assert!(goes(
            ask(
                "no such group",
                &DissolveRequest {
                    volume: "main".into(),
                    volume_uuid: None,
                    onto: String::new(),
                    force: false,
                    cancel: false,
                }
            )
            .expect_err("nobody is there")
        ));
        assert!(!goes(Ended.into()), "it may be copied into");
        assert!(!goes(anyhow::anyhow!("the group does not answer")));
    }

    #[test]
    fn what_may_be_deleted_is_named_as_it_is_called_at_the_end() {
        let row = Dissolving {
            run: 1,
            volume: "old".into(),
            volume_uuid: "u".into(),
            onto: "out.img".into(),
            phase: "done".into(),
            done_bytes: 1,
            total_bytes: 1,
            written_bytes: 1,
            unsure_bytes: 0,
            waits_for: None,
            error: None,
        };
        assert!(words("tank", &row, true).ends_with("bimetal volume delete tank/old, or bimetal destroy tank."));
        // The others were copied nowhere.
        assert!(words("tank", &row, false).ends_with("bimetal volume delete tank/old."));
    }
}
