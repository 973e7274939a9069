//! What a volume is attached as when its group changes without a daemon, or when it is deleted.

use anyhow::{bail, Result};
use bimetal_export::ublk::device;
use bimetal_host::attach;
use bimetal_volume::options::Uuid;
use serde_json::json;

use super::detach::{held, is_anothers, Handle};
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

/// What a volume is attached as now.
pub(super) fn to_volume(group: &str, name: &str) -> Result<Vec<Attachment>> {
    let mut all = runstate::all_attachments(group)?;
    all.retain(|a| a.volume == name);
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
    Ok(to_volume(group, name)?.into_iter().map(follow).collect())
}

/// The volume is deleted: takes down what it was attached as, and forgets what is gone. What somebody holds can only be told,
/// and stays written down, so that it can be detached when it is released.
pub(super) fn take_down(group: &str, attached: &[Attachment]) -> Result<()> {
    if attached.is_empty() {
        return Ok(());
    }
    let gone: Vec<&Attachment> = attached.iter().filter(|a| a.via == "ublk" || is_taken_down(a)).collect();
    let is_gone = |a: &Attachment| gone.iter().any(|gone| gone.device == a.device && gone.is_of(a));
    runstate::update_attachments(group, |list| list.retain(|a| !is_gone(a)))
}

fn is_taken_down(a: &Attachment) -> bool {
    let held = if is_anothers(a) { Vec::new() } else { held(a) };
    let down = match held.is_empty() {
        true => Handle::of(a).and_then(|handle| Ok(attach::detach(&handle.attached(a))?)),
        false => Err(anyhow::anyhow!("{}", held.join(", "))),
    };
    if let Err(error) = &down {
        let device = &a.device;
        crate::output::tell(&format!(
            "{device} is dead, but cannot be taken away: {error:#}. When it is released: bimetal detach {device}"
        ));
    }
    down.is_ok()
}
