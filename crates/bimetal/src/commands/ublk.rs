//! ublk devices as commands see them: the daemon makes and removes them; what no daemon serves is removed here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_export::ublk::device;
use bimetal_host::ublk::{Control, DeviceId, Found, State};

use crate::api::{AttachAnswer, Attachment, VolumeRequest};
use crate::{holders, runstate};

/// How long a device that is to go may take to write out its page cache.
const FLUSHING: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Asks the daemon of `group` for the device of a volume: its path, or why it cannot be had on this machine.
pub(crate) fn attach(group: &str, volume: &str) -> Result<Result<PathBuf, String>> {
    // The module is loaded here: the daemon may not have the right to.
    if let Err(error) = bimetal_host::ublk::available() {
        return Ok(Err(error.to_string()));
    }
    let daemon = runstate::daemon(group)?.context("the daemon is gone")?;
    let answer: AttachAnswer = daemon.post("/v1/attach", &VolumeRequest { volume: volume.into(), force: false })?;
    let device = answer.device.map(PathBuf::from).ok_or(answer.why);
    if let Some(id) = device.as_ref().ok().and_then(|d| DeviceId::of(d)) {
        bimetal_host::ublk::tune(id, device::DEPTH);
    }
    Ok(device)
}

/// Writes out what the page cache holds for a device.
pub(crate) fn flush(device: &Path) -> Result<()> {
    let id = DeviceId::of(device).with_context(|| format!("{} is no ublk device", device.display()))?;
    bimetal_host::ublk::flush_cache(id).with_context(|| format!("{} cannot be written out", device.display()))
}

/// The same in a process of its own, which is waited for so long: for the daemon, which must not wait for its own device,
/// and for commands that are to end.
pub(crate) fn flush_beside(device: &str, limit: Duration) -> Result<()> {
    // The program that runs, also when its file was replaced by a newer one.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["flush", device])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_remove("NOTIFY_SOCKET");
    let mut child = command.spawn().context("no process can be started that writes out its page cache")?;
    let end = Instant::now() + limit;
    loop {
        match child.try_wait()? {
            // An error was told to whoever wrote.
            Some(_) => return Ok(()),
            None if Instant::now() < end => std::thread::sleep(LOOK_AGAIN),
            None => bail!("what the page cache holds for it is not written after {} s", limit.as_secs()),
        }
    }
}

/// Devices of a volume that are live, or wait for a daemon.
pub(crate) fn alive(volume: &[u8; 16]) -> Vec<Found> {
    // Without the driver there are none.
    let Ok(all) = Control::open().and_then(|mut control| control.devices()) else { return Vec::new() };
    all.into_iter().filter(|f| f.tag == device::tag_of(volume) && f.state != State::Dead).collect()
}

/// Takes an attached device away, by its daemon or, if that is gone, without. Refused while somebody uses it, but by
/// `force`.
pub(crate) fn detach(group: &str, attachment: &Attachment, force: bool) -> Result<()> {
    if runstate::daemon(group)?.is_some() {
        match flush_beside(&attachment.device, FLUSHING) {
            Err(error) if !force => return Err(error.context(attachment.device.clone())),
            _ => {}
        }
        // Asked anew: a daemon does not listen for long to somebody who says nothing.
        let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile; try again")?;
        let request = VolumeRequest { volume: attachment.volume.clone(), force };
        let _done: AttachAnswer = daemon.post("/v1/detach", &request)?;
        return Ok(());
    }
    let used = holders::users(&attachment.device);
    if !used.is_empty() && !force {
        bail!(
            "{}, and its daemon is gone: end the program, or start the daemon again (`bimetal serve {group}`), which \
             takes the device over without loss; or add --force, and lose what was not yet written",
            used.all.join(", ")
        );
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
    let used = holders::users(&path);
    if !used.is_empty() && !force {
        return Ok(Orphan::Kept(format!(
            "{}, and its daemon is gone: start the daemon of its group again (`bimetal serve`), which takes it over \
             without loss; or add --force to remove it, and lose what was not yet written",
            used.all.join(", ")
        )));
    }
    device::remove_orphan_now(found)?;
    Ok(Orphan::Removed(path))
}

/// Whether a living process has the device. One that is dying has it still.
fn is_served(found: &Found) -> bool {
    found.state != State::Quiesced && found.pid.is_some_and(bimetal_host::attach::is_alive)
}
