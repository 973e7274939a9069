//! All ways in which the volumes of a group are served, and what becomes of them when the volumes change.

use bimetal_host::HostEnv;
use bimetal_volume::group::Group;

use super::exports::{self, Exports};
use super::files::Files;
use super::ublk::Devices;
use crate::api;

/// The NBD exports, files and block devices of a group.
pub(crate) struct Ways {
    pub(crate) nbd: Exports,
    pub(crate) files: Files,
    pub(crate) devices: Devices,
}

impl Ways {
    /// Whoever uses a volume, as the status tells it.
    pub(crate) fn clients(&self) -> Vec<api::Client> {
        [self.devices.clients(), self.nbd.clients()].concat()
    }

    /// Who uses a volume, in words.
    pub(crate) fn users_of(&self, name: &str) -> Option<String> {
        let device = self.devices.path_of(name).map(|path| format!("it is attached as {}", path.display()));
        device.or_else(|| self.nbd.users_of(name))
    }

    /// Serves a volume that was just made.
    pub(crate) fn add(&self, group: &Group<HostEnv>, name: &str) {
        if let Some(export) = exports::export(group, name.to_string()) {
            self.files.add(export.clone());
            self.nbd.add(export);
        }
    }

    /// Serves a volume under another name.
    pub(crate) fn rename(&self, name: &str, new: &str) {
        self.nbd.rename(name, new);
        self.files.rename(name, new);
        self.devices.rename(name, new);
    }

    /// Serves a volume no longer, and ends what was using it.
    pub(crate) async fn remove(&self, name: &str) {
        self.files.remove(name);
        self.nbd.remove(name).await;
        if let Err(why) = self.devices.detach(name).await {
            crate::log::warn(&format!("the block device of '{name}' cannot be removed: {why}"));
        }
    }

    /// Leaves block devices to the next daemon, unmounts the files, answers what was taken, and ends all connections.
    pub(crate) async fn stop(&self) {
        self.devices.leave().await;
        self.files.hide().await;
        self.nbd.stop().await;
    }
}
