//! All ways in which the volumes of a group are served, and what becomes of them when the volumes change.
//!
//! A volume is known by its UUID here: while something is awaited its name may become another's.

use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use bimetal_volume::options::Uuid;

use super::exports::{self, Exports};
use super::files::Files;
use super::ublk::Devices;
use crate::config::uuid_text;
use crate::{api, log, runstate};

/// How long a client that has just ended may take until its connection is gone: at a stop nobody else is waited for.
const CLOSING: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The NBD exports, files and block devices of a group.
pub(crate) struct Ways {
    pub(crate) env: HostEnv,
    /// The group's name.
    pub(crate) group: String,
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
    pub(crate) fn users_of(&self, uuid: &Uuid) -> Option<String> {
        let words: Vec<String> = [self.devices.use_of(uuid), self.nbd.users_of(uuid), self.files.users_of(uuid)]
            .into_iter()
            .flatten()
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Serves a volume that was just made.
    pub(crate) fn add(&self, group: &Group<HostEnv>, name: &str) {
        if let Some(export) = exports::export(group, name.to_string()) {
            self.files.add(&export);
            self.nbd.add(export);
        }
    }

    /// Serves a volume under another name.
    pub(crate) fn rename(&self, uuid: &Uuid, new: &str) {
        self.nbd.rename(uuid, new);
        self.files.rename(uuid, new);
        self.devices.rename(uuid, new);
    }

    /// Serves a volume no longer, ends what was using it, and forgets the device that was made for it here.
    pub(crate) async fn remove(&self, uuid: &Uuid, name: &str) {
        self.files.remove(uuid);
        self.nbd.remove(uuid).await;
        if let Err(why) = self.devices.detach(uuid, true).await {
            log::warn(&format!("the block device of '{name}' cannot be removed: {why}"));
        }
        let (group, volume, uuid) = (self.group.clone(), name.to_string(), uuid_text(uuid));
        // What a command has attached is there until a command takes it away, and is to be found until then.
        let strike = move || {
            runstate::update_attachments(&group, |list| {
                list.retain(|a| a.via != "ublk" || !a.is_of_volume(&volume, &uuid))
            })
        };
        if let Ok(Err(error)) = self.env.blocking(strike).await {
            log::warn(&format!("the list of attached devices cannot be written: {error:#}"));
        }
    }

    /// Leaves block devices to the next daemon, unmounts the files, answers what was taken, and ends all connections. Who had
    /// files open all the same, or was connected, is told of in words.
    pub(crate) async fn stop(&self) -> Vec<String> {
        self.devices.leave().await;
        let mut cut_off = self.files.hide().await;
        let clients = self.clients_that_stay().await;
        clients.iter().for_each(|who| log::warn(&format!("{who}; it gets errors from now on")));
        cut_off.extend(clients);
        self.nbd.stop().await;
        cut_off
    }

    /// Who is connected still when those that have just ended have had time to be gone.
    async fn clients_that_stay(&self) -> Vec<String> {
        let end = self.env.now().plus(CLOSING);
        loop {
            let users = self.nbd.users();
            if users.is_empty() || self.env.now() >= end {
                return users;
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
    }
}
