//! ublk devices as commands see them: the daemon makes and removes them; what no daemon serves is removed here.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_export::ublk::device;
use bimetal_host::ublk::{Control, DeviceId, Found, State, UblkError};

use crate::api::{self, AttachAnswer, Attachment, VolumeRequest};
use crate::beside::{self, Outcome, Work};
use crate::{config, holders, runstate};

/// How long a device that is to go may take to write out its page cache.
const FLUSHING: Duration = Duration::from_secs(60);

/// What it means that devices cannot be asked for.
const UNSEEN: &str = "it cannot be seen whether a ublk device of the volume waits for a daemon";

/// Asks the daemon of `group` for the device of a volume: its path, or why it cannot be had on this machine.
pub(crate) fn attach(group: &str, volume: &api::Volume) -> Result<Result<PathBuf, String>> {
    // The module is loaded here: the daemon may not have the right to.
    if let Err(error) = bimetal_host::ublk::available() {
        return Ok(Err(error.to_string()));
    }
    let daemon = runstate::daemon(group)?.context("the daemon is gone")?;
    let (name, volume_uuid) = (volume.name.clone(), volume.uuid.clone());
    let answer: AttachAnswer =
        daemon.post("/v1/attach", &VolumeRequest { volume: name, volume_uuid, ..VolumeRequest::default() })?;
    let device = answer.device.map(PathBuf::from).ok_or(answer.why);
    if let Some(id) = device.as_ref().ok().and_then(|d| DeviceId::of(d)) {
        bimetal_host::ublk::tune(id, device::DEPTH);
    }
    Ok(device)
}

/// Devices of a volume that are live, or wait for a daemon. An error where there may be some that cannot be seen.
pub(crate) fn alive(volume: &[u8; 16]) -> Result<Vec<Found>> {
    let mut control = match Control::open() {
        Ok(control) => control,
        // Without the driver there are none, and whoever has no right to them has made none.
        Err(UblkError::Missing | UblkError::Denied) => return Ok(Vec::new()),
        Err(error) => return Err(error).context(UNSEEN),
    };
    let all = control.devices().context(UNSEEN)?;
    Ok(all.into_iter().filter(|f| f.tag == device::tag_of(volume) && f.state != State::Dead).collect())
}

/// Takes an attached device away, by its daemon or, if that is gone, without. Refused while somebody uses it, but by
/// `force`.
pub(crate) fn detach(group: &str, attachment: &Attachment, force: bool) -> Result<()> {
    if runstate::daemon(group)?.is_none() {
        return detach_orphan(group, attachment, force);
    }
    write_out(&attachment.device, force)?;
    // Asked anew: a daemon does not listen for long to somebody who says nothing.
    let daemon = runstate::daemon(group)?.context("the daemon has ended meanwhile; try again")?;
    let Attachment { volume, volume_uuid, .. } = attachment.clone();
    let _done: AttachAnswer = daemon.post("/v1/detach", &VolumeRequest { volume, volume_uuid, force })?;
    Ok(())
}

/// Writes out what the page cache holds for a device that is to go. Refused while somebody holds it.
fn write_out(device: &str, force: bool) -> Result<()> {
    match beside::ask(device, Work::Flush, FLUSHING) {
        Ok(Outcome::Done) => Ok(()),
        Ok(Outcome::Held) if force => {
            // What there is, as far as it gets.
            let _ = beside::ask(device, Work::FlushShared, FLUSHING);
            Ok(())
        }
        Ok(Outcome::Held) => match holders::users(device).all {
            // It was held for a moment.
            nobody if nobody.is_empty() => beside::ask(device, Work::FlushShared, FLUSHING).map(drop),
            users => bail!("{}; release it first (umount, swapoff, or end the program)", users.join(", ")),
        },
        Err(_) if force => Ok(()),
        Err(error) => Err(error.context("what the page cache holds for it cannot be written out; --force loses that")),
    }
}

/// The same for a device whose daemon is gone.
fn detach_orphan(group: &str, attachment: &Attachment, force: bool) -> Result<()> {
    let used = if force { Vec::new() } else { holders::users(&attachment.device).all };
    if !used.is_empty() {
        bail!(
            "{}, and its daemon is gone: end the program, or start the daemon again (`bimetal serve {group}`), which \
             takes the device over without loss; or add --force, and lose what was not yet written",
            used.join(", ")
        );
    }
    match runstate::holder(group) {
        Some(daemon) if daemon.is_daemon() => {
            let pid = daemon.process;
            bail!("the daemon of group ‘{group}’ (process {pid}) is starting or ending; try again in a moment")
        }
        Some(command) => bail!("{}", command.words(group)),
        None => {}
    }
    let Some(id) = DeviceId::of(attachment.device.as_ref()) else {
        bail!("the record of {} is damaged", attachment.device);
    };
    match Control::open()?.info(id)? {
        Some(found) if !is_of(&found, attachment) => Ok(()),
        Some(found) if is_served(&found) => {
            bail!("{} is still served by process {}; try again when that has ended", attachment.device, process(&found))
        }
        Some(found) => Ok(device::remove_orphan_now(&found)?),
        // It went with its daemon.
        None => Ok(()),
    }
}

/// Whether a device is the one that was attached: numbers are given away again, to devices of other groups too. Records of
/// earlier versions do not say of which volume it was.
fn is_of(found: &Found, attachment: &Attachment) -> bool {
    match config::uuid_bytes(&attachment.volume_uuid) {
        Some(uuid) => found.tag == device::tag_of(&uuid),
        None => device::is_ours(found),
    }
}

/// Whether the number of the device that was attached was surely given to another volume's meanwhile.
pub(crate) fn is_anothers(attachment: &Attachment) -> bool {
    let Some(id) = DeviceId::of(attachment.device.as_ref()) else { return false };
    let found = Control::open().and_then(|mut control| control.info(id));
    found.is_ok_and(|found| found.is_some_and(|found| !is_of(&found, attachment)))
}

fn process(found: &Found) -> u32 {
    found.pid.unwrap_or_default()
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
    let used = if force { Vec::new() } else { holders::users(&path).all };
    if !used.is_empty() {
        return Ok(Orphan::Kept(format!(
            "{}, and its daemon is gone: start the daemon of its group again (`bimetal serve`), which takes it over \
             without loss; or add --force to remove it, and lose what was not yet written",
            used.join(", ")
        )));
    }
    device::remove_orphan_now(found)?;
    Ok(Orphan::Removed(path))
}

/// Whether a living process has the device. One that is dying has it still.
fn is_served(found: &Found) -> bool {
    found.state != State::Quiesced && found.pid.is_some_and(bimetal_host::attach::is_alive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::uuid_text;

    #[test]
    fn a_device_with_the_number_of_the_attached_one_is_not_taken_for_it() {
        let id = DeviceId::of("/dev/ublkb3".as_ref()).expect("a device");
        let of = |volume: u8| Found {
            id,
            state: State::Quiesced,
            pid: None,
            tag: device::tag_of(&[volume; 16]),
            depth: device::DEPTH,
            max_bytes: device::MAX_BYTES,
        };
        let mut record = crate::commands::detach::record_of("main", &[1; 16], "/dev/ublkb3".as_ref());
        assert!(is_of(&of(1), &record) && !is_of(&of(2), &record), "another group's volume, also named ‘main’");
        assert_eq!(record.volume_uuid, uuid_text(&[1; 16]));
        record.volume_uuid.clear();
        assert!(is_of(&of(2), &record) && !is_of(&Found { tag: 7, ..of(2) }, &record));
    }
}
