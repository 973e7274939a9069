//! What a daemon that died has left of its ublk devices: those that wait are taken over, those that were half made or
//! half removed go. All of it happens in tasks of its own: a start waits for no device.

use std::path::Path;

use bimetal_export::ublk::device::{self, Device, NotTaken};
use bimetal_host::ublk::{Control, Found, State, UblkError};
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::group::Volume;
use bimetal_volume::options::{Uuid, VolumeStatus};

use super::losses;
use super::ublk::Devices;
use crate::{log, runstate};

impl Devices {
    /// Begins to take over, and to remove, what is there.
    pub(crate) async fn take_over_all(&self) {
        self.take_over_which(false).await;
    }

    /// Begins to take over what waited for a family that is unlocked now. What is made or removed at this moment, or served,
    /// is left alone.
    pub(crate) async fn take_over_unlocked(&self) {
        self.take_over_which(true).await;
    }

    async fn take_over_which(&self, only_waiting: bool) {
        let found = self.env.blocking(|| Control::open()?.devices()).await;
        let found = match found.map_err(UblkError::Control).flatten() {
            Ok(found) => found,
            // Without the driver there is nothing to take over.
            Err(UblkError::Missing) => Vec::new(),
            Err(error) => return tell_that_unseen(&error),
        };
        let volumes = self.group.status().volumes;
        if !only_waiting {
            self.tell_who_is_there(&found, &volumes).await;
        }
        for found in found {
            let Some(volume) = volumes.iter().find(|v| device::tag_of(&v.uuid) == found.tag) else { continue };
            let (this, uuid, name) = (self.clone(), volume.uuid, volume.name.clone());
            if only_waiting && (volume.family.is_none() || found.state == State::Dead || self.has_place(&uuid)) {
                continue;
            }
            if found.state == State::Dead {
                self.env.spawn(async move { this.remove_half_made(&found, &uuid, &name).await });
            } else if self.has_place(&uuid) {
                let path = found.id.path();
                log::warn(&format!("'{name}' has another device; `bimetal detach --all` removes {}", path.display()));
            } else {
                self.begin(uuid, &name, "being taken over from a daemon that died");
                self.env.spawn(async move { this.take_over(&found, &uuid, &name).await });
            }
        }
    }

    /// Those that are to tell their clients of a loss are among the devices that were left alive.
    async fn tell_who_is_there(&self, found: &[Found], volumes: &[VolumeStatus]) {
        let alive: Vec<_> = found.iter().filter(|f| f.state != State::Dead).map(|f| (f.tag, f.id.path())).collect();
        let of = |tag: u64| volumes.iter().find(|v| device::tag_of(&v.uuid) == tag).map(|v| v.uuid);
        let ours: Vec<_> = alive.iter().filter_map(|(tag, path)| Some((of(*tag)?, path.as_path()))).collect();
        self.losses.are_there(&ours).await;
    }

    async fn take_over(&self, found: &Found, uuid: &Uuid, name: &str) {
        let path = found.id.path();
        let Some(backend) = self.volume_of(uuid) else { return self.forget(uuid) };
        let why_not = || match self.volume_of(uuid) {
            Some(now) => refusal(found, &now, &self.name),
            None => Some(
                "is left as it is, because the volume was deleted meanwhile; `bimetal detach --all`, when this \
                          daemon has ended, removes it"
                    .into(),
            ),
        };
        let lost = self.losses.owed_by(uuid, &path);
        match Device::take_over(&self.env, found, &backend, lost.is_some(), why_not).await {
            Ok(device) => {
                self.is_here(uuid, device);
                if let Some(why) = lost {
                    log::warn(&losses::words(&path.display().to_string(), &why));
                }
                self.record(uuid, name, &path).await;
                log::info(&format!("{} of '{name}' is served again", path.display()));
            }
            Err(NotTaken::Refused(words)) => {
                self.forget(uuid);
                log::warn(&format!("{} of '{name}' {words}", path.display()));
            }
            Err(NotTaken::Failed(error)) => {
                self.forget(uuid);
                log::warn(&format!(
                    "{} of '{name}' cannot be taken over: {error}. What is on its way to it waits; stop this daemon \
                     and start it again to try once more. `bimetal detach --all --force` would remove the device, and \
                     what waits would be lost",
                    path.display()
                ));
            }
        }
    }

    async fn remove_half_made(&self, found: &Found, uuid: &Uuid, name: &str) {
        let path = found.id.path();
        // First the record: when the device is gone its number may be another's.
        self.strike(uuid, name, &path).await;
        match device::remove_orphan(&self.env, found).await {
            Ok(()) => log::info(&format!("{} of '{name}' was half made or half removed, and is gone", path.display())),
            Err(error) => log::warn(&format!("{} of '{name}' cannot be removed: {error}", path.display())),
        }
    }

    /// Writes down a device that was just made: whoever wished for it does so, too, but may have been killed, and then a
    /// stop would not know of it. Waits for that one.
    pub(crate) async fn record_new(&self, uuid: &Uuid) {
        // Its name does not change while it has a device.
        let Some(name) = self.volume_of(uuid).map(|v| v.name()) else { return };
        let Some(path) = self.path_of(uuid) else { return };
        self.record(uuid, &name, &path).await;
        if self.path_of(uuid).as_ref() != Some(&path) {
            // Taken away meanwhile.
            self.strike(uuid, &name, &path).await;
        }
    }

    /// Writes down that a volume is attached here.
    async fn record(&self, uuid: &Uuid, name: &str, path: &Path) {
        let attachment = crate::commands::detach::record_of(name, uuid, path);
        let (group, device) = (self.name.to_string(), attachment.device.clone());
        let write = move || {
            runstate::update_attachments(&group, |list| {
                list.retain(|a| a.device != device && !(a.via == "ublk" && a.is_of(&attachment)));
                list.push(attachment);
            })
        };
        self.write_list(write).await;
    }

    /// Strikes a device off the list, if it is there as one of this volume.
    async fn strike(&self, uuid: &Uuid, name: &str, path: &Path) {
        let attachment = crate::commands::detach::record_of(name, uuid, path);
        let group = self.name.to_string();
        let write = move || {
            runstate::update_attachments(&group, |list| {
                list.retain(|a| a.device != attachment.device || !a.is_of(&attachment));
            })
        };
        self.write_list(write).await;
    }

    async fn write_list(&self, write: impl FnOnce() -> anyhow::Result<()> + Send + 'static) {
        if let Ok(Err(error)) = self.env.blocking(write).await {
            log::warn(&format!("the list of attached devices cannot be written: {error:#}"));
        }
    }
}

/// Who has devices of this group mounted hangs, and looks here for the reason.
fn tell_that_unseen(error: &UblkError) {
    if Control::are_there_devices() {
        log::warn(&format!(
            "this machine has ublk devices, and it cannot be seen whose: {error}. Those of this group that a daemon before \
             this one has left wait; stop this daemon and start it again, as root, to have them served"
        ));
    }
}

/// Why a device is left as it is, in words.
fn refusal(found: &Found, backend: &Volume<bimetal_host::HostEnv>, group: &str) -> Option<String> {
    if backend.is_locked() {
        // To serve it would be to give errors to whoever has it mounted.
        return Some(format!("waits until its family is unlocked (`bimetal family list {group}`)"));
    }
    if backend.read_only() && !found.id.is_read_only() {
        return Some("waits for a daemon that may write: this one serves the group read-only".into());
    }
    let (device, volume) = (found.id.size(), backend.size());
    (device > volume).then(|| {
        format!(
            "has {device} bytes, but the volume has {volume} now: what lies beyond would be lost. It waits; give the \
             volume its size back (`bimetal volume resize {group}/{} {device}`), stop this daemon and start it again",
            backend.name()
        )
    })
}
