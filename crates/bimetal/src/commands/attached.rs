//! What a volume is attached as when its group changes without a daemon, or when it is deleted.

use anyhow::{bail, Result};
use bimetal_export::ublk::device;
use bimetal_host::attach;
use bimetal_volume::options::Uuid;
use serde_json::json;

use super::detach::{held, is_anothers, is_anothers_by_now, shows_another, Handle};
use crate::api::{Attachment, VolumeChange};
use crate::config::uuid_text;
use crate::{holders, runstate};

/// Refuses what would hurt an attached device, as a daemon would. A ublk device outlives its daemon: what waits in it is
/// as good as written, and the next daemon goes on with it.
pub(super) fn may_change(group: &str, uuid: &Uuid, change: &VolumeChange) -> Result<()> {
    let name = change.name();
    let what = match change {
        VolumeChange::Create { .. }
        | VolumeChange::Encrypt { .. }
        | VolumeChange::Resize { force: true, .. }
        | VolumeChange::Delete { force: true, .. } => return Ok(()),
        VolumeChange::Resize { .. } => "resized",
        VolumeChange::Delete { .. } => "deleted",
        VolumeChange::Rename { .. } => "renamed",
    };
    if let Some(found) = super::ublk::alive(uuid)?.first() {
        let device = found.id.path().display().to_string();
        let held = holders::users(&device).all.join(", ");
        let held = if held.is_empty() { String::new() } else { format!(" ({held})") };
        bail!(
            "volume '{name}' is attached as {device}{held}, which waits for the next daemon of the group: not {what}. \
             Start the daemon (`bimetal serve {group}`), and detach it then: bimetal detach {group}/{name}"
        );
    }
    // Other devices died with their daemon. They must not come to mean another volume.
    let mut records = runstate::attachments(group)?;
    records.retain(|a| a.via != "ublk" && a.is_of_volume(name, &uuid_text(uuid)));
    match records.first() {
        Some(a) if !matches!(change, VolumeChange::Resize { .. }) => bail!(
            "volume '{name}' is attached as {}, which is left over from a daemon that ended; detach it first: bimetal \
             detach {group}/{name}",
            a.device
        ),
        _ => Ok(()),
    }
}

/// Removes ublk devices of a volume that is deleted: nobody will ever serve them.
pub(super) fn remove_orphans(uuid: &Uuid) -> Result<()> {
    for found in super::ublk::alive(uuid)? {
        device::remove_orphan_now(&found)?;
    }
    Ok(())
}

/// What a volume is attached as now: the one with this UUID, if it is said, else the one that has this name.
pub(super) fn to_volume(group: &str, name: &str, uuid: Option<&str>) -> Result<Vec<Attachment>> {
    let uuid = uuid.unwrap_or_default();
    let mut all = runstate::all_attachments(group)?;
    all.retain(|a| a.is_of_volume(name, uuid));
    for a in all.iter_mut().filter(|a| a.volume_uuid.is_empty()) {
        // Nobody has written it down. By that it is told later what the device shows.
        a.volume_uuid = uuid.to_string();
    }
    Ok(all)
}

/// A device of a volume that has been resized.
pub(super) struct Follower {
    device: String,
    /// Why it has not the new size; may be empty.
    why_not: Option<String>,
}

impl Follower {
    pub(super) fn json(&self) -> serde_json::Value {
        json!({ "device": self.device, "has_new_size": self.why_not.is_none() })
    }

    /// What a person is told.
    pub(super) fn words(&self) -> String {
        let device = &self.device;
        match &self.why_not {
            None => format!("\n{device} has it, too."),
            Some(why) => {
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                format!(
                    "\n{device} keeps the size that it had{why}. Detach and attach the volume again to see the new one."
                )
            }
        }
    }
}

/// Has the devices of a volume take its new size, where that can be done while they are in use.
pub(super) fn follow_size(group: &str, name: &str, size: u64) -> Result<Vec<Follower>> {
    let follow = |a: Attachment| {
        let done = Handle::of(&a).and_then(|handle| Ok(attach::follow_size(&handle.attached(&a), size)?));
        let why_not = match done {
            Ok(followed) => (!followed).then(String::new),
            Err(error) => Some(format!("{error:#}")),
        };
        Follower { device: a.device, why_not }
    };
    Ok(to_volume(group, name, None)?.into_iter().map(follow).collect())
}

/// The volume is deleted: takes down what it was attached as, and forgets what is gone. What somebody holds can only be told,
/// and stays written down, so that it can be detached when it is released.
pub(super) fn take_down(group: &str, attached: &[Attachment]) -> Result<()> {
    attached.iter().try_for_each(|a| take_one_down(group, a))
}

fn take_one_down(group: &str, a: &Attachment) -> Result<()> {
    // That takes a while, for which nobody else is to wait.
    let held = if a.via == "ublk" || is_anothers(a) { Vec::new() } else { held(a) };
    // The deletion may have taken long, and whoever detached it meanwhile has let its number go to the next who attaches. Nobody does now.
    let down = runstate::update_attachments(group, |list| {
        let down =
            match a.via == "ublk" || has_a_record_of_another(a, list) || is_anothers_by_now(a) || shows_another(a) {
                true => Ok(()),
                false => released(a, &held),
            };
        if down.is_ok() {
            list.retain(|b| b.device != a.device || !b.is_of(a));
        }
        down
    })?;
    if let Err(error) = down {
        let device = &a.device;
        crate::output::tell(&format!(
            "{device} is dead, but cannot be taken away: {error:#}. When it is released: bimetal detach {device}"
        ));
    }
    Ok(())
}

/// Whether only others than this one are written down for its device.
fn has_a_record_of_another(a: &Attachment, list: &[Attachment]) -> bool {
    let mut here = list.iter().filter(|b| b.device == a.device).peekable();
    here.peek().is_some() && !here.any(|b| b.is_same(a))
}

fn released(a: &Attachment, held: &[String]) -> Result<()> {
    if !held.is_empty() {
        bail!("{}", held.join(", "));
    }
    Ok(attach::detach(&Handle::of(a)?.attached(a))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::detach::{record, DaemonProcess};
    use bimetal_host::attach::{Attached, Via};

    #[test]
    fn a_device_is_anothers_if_that_alone_is_written_down_for_it() {
        let record_of = |volume: &str, uuid: &str, device: &str| {
            let mount_dir = Some("/run/bimetal/tank/fuse".into());
            let attached =
                Attached { via: Via::Fuse, device: device.into(), mount_dir, helper_pid: None, why: String::new() };
            record(volume, uuid, &attached, DaemonProcess { pid: 7, began: Some(1) })
        };
        let deleted = record_of("a", "u-a", "/dev/loop7");
        let (next, beside) = (record_of("b", "u-b", "/dev/loop7"), record_of("b", "u-b", "/dev/loop8"));
        assert!(!has_a_record_of_another(&deleted, &[]));
        assert!(!has_a_record_of_another(&deleted, std::slice::from_ref(&beside)));
        assert!(!has_a_record_of_another(&deleted, &[beside.clone(), deleted.clone()]));
        assert!(
            !has_a_record_of_another(&deleted, &[next.clone(), deleted.clone()]),
            "what the other shows is looked at"
        );
        assert!(has_a_record_of_another(&deleted, &[beside, next]));
        // A later volume of the same name is another.
        assert!(has_a_record_of_another(&deleted, &[record_of("a", "u-c", "/dev/loop7")]));
    }
}
