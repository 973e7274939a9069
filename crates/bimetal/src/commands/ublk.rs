//! ublk devices as commands see them: the daemon makes and removes them; what no daemon serves is removed here.

use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use bimetal_export::ublk::device;
use bimetal_host::ublk::{Control, DeviceId, Found, State};

use crate::api::{AttachAnswer, Attachment, VolumeRequest};
use crate::{holders, runstate};

/// Asks the daemon of `group` for the device of a volume: its path, or why it cannot be had on this machine.
pub(crate) fn attach(group: &str, volume: &str) -> Result<Result<PathBuf, String>> {
    // The module is loaded here: a daemon does not run other programs.
    if let Err(error) = bimetal_host::ublk::available() {
        return Ok(Err(error.to_string()));
    }
    let daemon = runstate::daemon(group)?.context("the daemon is gone")?;
    let answer: AttachAnswer = daemon.post("/v1/attach", &VolumeRequest { volume: volume.into() })?;
    let device = answer.device.map(PathBuf::from).ok_or(answer.why);
    if let Some(id) = device.as_ref().ok().and_then(|d| DeviceId::of(d)) {
        bimetal_host::ublk::tune(id, device::DEPTH);
    }
    Ok(device)
}

/// Takes an attached device away, by its daemon or, if that is gone, without.
pub(crate) fn detach(group: &str, attachment: &Attachment) -> Result<()> {
    if let Some(daemon) = runstate::daemon(group)? {
        if let Some(id) = DeviceId::of(attachment.device.as_ref()) {
            // An error here was told to whoever wrote.
            let _ = bimetal_host::ublk::flush_cache(id);
        }
        let _done: AttachAnswer = daemon.post("/v1/detach", &VolumeRequest { volume: attachment.volume.clone() })?;
        return Ok(());
    }
    if let Some(pid) = runstate::locked_by(group) {
        bail!("the daemon of group '{group}' (process {pid}) is starting or ending; try again in a moment");
    }
    let Some(id) = DeviceId::of(attachment.device.as_ref()) else {
        bail!("the record of {} is damaged", attachment.device);
    };
    match Control::open()?.info(id)? {
        Some(found) if device::is_ours(&found) => Ok(device::remove_orphan_now(&found)?),
        // It went with its daemon, and its number may be somebody else's now.
        _ => Ok(()),
    }
}

/// What became of a device that no daemon serves.
pub(crate) enum Orphan {
    Removed(String),
    /// Why it stays.
    Kept(String),
}

/// Removes all devices that were made by daemons of any group and are served by none now; with `force` also such as are
/// in use, which then see errors.
pub(crate) fn remove_orphans(force: bool) -> Result<Vec<Orphan>> {
    // Without the driver there are none.
    let Ok(mut control) = Control::open() else { return Ok(Vec::new()) };
    let ours = control.devices()?.into_iter().filter(|f| device::is_ours(f) && !is_served(f));
    ours.map(|found| remove_orphan(&found, force)).collect()
}

fn remove_orphan(found: &Found, force: bool) -> Result<Orphan> {
    let path = found.id.path().display().to_string();
    let held = holders::of(&path);
    if !held.is_empty() && !force {
        return Ok(Orphan::Kept(format!(
            "{}, and its daemon is gone: start the daemon of its group again (`bimetal serve`), which takes it over \
             without loss; or add --force to remove it, and lose what was not yet written",
            held.join(", ")
        )));
    }
    if held.is_empty() {
        device::remove_orphan_now(found)?;
    } else {
        let mut control = Control::open()?;
        control.stop(found.id)?;
        control.delete_later(found.id)?;
    }
    Ok(Orphan::Removed(path))
}

/// Whether a living process has the device. One that is dying has it still.
fn is_served(found: &Found) -> bool {
    found.state != State::Quiesced && found.pid.is_some_and(bimetal_host::attach::is_alive)
}
