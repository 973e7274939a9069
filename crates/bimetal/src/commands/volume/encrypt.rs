//! `bimetal volume encrypt`: a plain volume joins a family, and how far that is.

use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde_json::json;

use super::{by_daemon, make, named, volumes};
use crate::api::{self, Encrypting, Status, Volume, VolumeChange};
use crate::cli::VolumeEncrypt;
use crate::output::{confirm, Output};
use crate::progress::Progress;
use crate::runstate;
use crate::size::approx;

const LOOK_AGAIN: Duration = Duration::from_millis(300);

pub(super) fn run(args: VolumeEncrypt, output: Output) -> Result<()> {
    let (name, group, family) = (named(&args.target)?, &args.target.group, &args.family);
    let found = volumes(group)?.into_iter().find(|v| v.name == name);
    let v = found.with_context(|| format!("group '{group}' has no volume '{name}'"))?;
    let change = VolumeChange::Encrypt { name: name.clone(), uuid: Some(v.uuid.clone()), family: family.clone() };
    refuse_locked(group, &change)?;
    // Asked again for what is under way, it waits for that.
    let goes_on = v.encrypting.is_some() && v.family.as_ref() == Some(family);
    if !goes_on {
        let question = format!(
            "This encrypts volume '{name}' of group '{group}' ({} of data) under the key of family '{family}', in the \
             background and while it is in use. At the end all free space of all members is overwritten: it takes about \
             as long as writing every member once. There is no way back but to copy the data.",
            approx(v.fast_bytes + v.slow_bytes)
        );
        confirm(&question, args.yes)?;
    }
    if !args.wait {
        return if goes_on {
            output.show(&answer(group, &name, "none"), || begun(group, &name))
        } else {
            make(group, change, output)
        };
    }
    if !goes_on {
        let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile")?;
        by_daemon(group, daemon, &change)?;
    }
    watch(group, &v.uuid, output)?;
    output.show(&answer(group, &name, "encrypted"), || {
        // A member that was unplugged meanwhile has taken along what it held: `status` tells of it, at the start without it.
        format!("Volume {group}/{name} is encrypted, and what the members that the group has now held of it in plain is overwritten.")
    })
}

fn answer(group: &str, volume: &str, change: &str) -> serde_json::Value {
    json!({ "schema": api::SCHEMA, "group": group, "volume": volume, "change": change })
}

/// What is said when it goes on by itself.
pub(super) fn begun(group: &str, name: &str) -> String {
    format!(
        "Volume {group}/{name} is being encrypted; `bimetal status {group}` shows how far it is. Until it is done, its \
         members may hold plaintext of it."
    )
}

/// Refuses, with the command that helps, what needs a family that is locked.
pub(super) fn refuse_locked(group: &str, change: &VolumeChange) -> Result<()> {
    let family = match change {
        VolumeChange::Encrypt { family, .. } | VolumeChange::Create { family: Some(family), .. } => family,
        _ => return Ok(()),
    };
    if let Some(daemon) = runstate::daemon(group)? {
        let status: Status = daemon.get("/v1/status")?;
        if status.families.iter().any(|f| f.name == *family && !f.unlocked) {
            bail!("family '{family}' is locked; unlock it first: bimetal family unlock {group}/{family}");
        }
        return Ok(());
    }
    bail!(
        "group '{group}' is not served, so its families are locked; this starts its daemon and unlocks the family: bimetal \
         family unlock {group}/{family}"
    )
}

/// Returns when it is done.
fn watch(group: &str, uuid: &str, output: Output) -> Result<()> {
    let mut progress = (!output.json).then(Progress::new);
    let mut told = None;
    loop {
        let daemon = runstate::daemon(group)?;
        let daemon = daemon.context("the daemon has ended meanwhile; encryption goes on when it serves again")?;
        let status: Status = daemon.get("/v1/status")?;
        let v = status.volumes.iter().find(|v| v.uuid == uuid).context("the volume was deleted meanwhile")?;
        let Some(e) = &v.encrypting else { return Ok(()) };
        if e.waits_for != told {
            told.clone_from(&e.waits_for);
            progress.take();
            if let Some(why) = waits(group, v, e) {
                crate::output::tell(&why);
            }
            progress = (!output.json).then(Progress::new);
        }
        if let Some(progress) = &mut progress {
            progress.show(|| live(e));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn waits(group: &str, v: &Volume, e: &Encrypting) -> Option<String> {
    match (e.waits_for.as_deref()?, &v.family) {
        ("locked", Some(family)) => {
            Some(format!("It waits until its family is unlocked: bimetal family unlock {group}/{family}"))
        }
        _ => Some(format!("Something could not be read or written, and is tried again; see bimetal status {group}.")),
    }
}

fn live(e: &Encrypting) -> String {
    match (e.plain_bytes, e.to_overwrite_bytes) {
        (0, 0) => format!("{} %", e.done_percent),
        (0, rest) => format!("{} %: overwriting what was plain, {} to go through", e.done_percent, approx(rest)),
        (plain, _) => format!("{} %: encrypting, {} to go", e.done_percent, approx(plain)),
    }
}

/// What a table says of the family of a volume.
pub(super) fn cell(v: &Volume) -> String {
    let Some(family) = &v.family else { return "-".into() };
    match (&v.encrypting, v.locked) {
        (Some(e), false) => format!("{family}, encrypting: {} %", e.done_percent),
        (Some(_), true) => format!("{family} (locked), half encrypted"),
        (None, true) => format!("{family} (locked)"),
        (None, false) => family.clone(),
    }
}
