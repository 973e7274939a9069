//! Block devices that this daemon serves by ublk: made and removed when asked, taken over from a daemon that died.
//!
//! Terms: a device is *ours* if its tag names a volume of the group. Since one daemon of a group lives at a time, every
//! device of ours that is there at the start was left by one that died.
//!
//! Invariants:
//! 1. A volume has one device at most. What is being made, removed or taken over has its place in `places` meanwhile.
//! 2. The list of attachments is written by commands and, for what is taken over or was half made, at the start here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use bimetal_export::ublk::device::{self, Device};
use bimetal_host::ublk::{Control, Found, State};
use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;

use super::shared::Made;
use crate::{api, log, runstate};

enum Place {
    /// Something is under way; a person is told what.
    Busy(&'static str),
    Here(Rc<Device>),
}

/// The devices of a group. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Devices {
    env: HostEnv,
    group: Group<HostEnv>,
    name: Rc<str>,
    places: Rc<RefCell<BTreeMap<String, Place>>>,
}

impl Devices {
    pub(crate) fn new(env: &HostEnv, group: &Group<HostEnv>, name: &str) -> Devices {
        Devices { env: env.clone(), group: group.clone(), name: name.into(), places: Rc::default() }
    }

    /// The block device of `volume`, made now if it is not there.
    pub(crate) async fn attach(&self, volume: &str) -> Result<Made, String> {
        if let Some(device) = self.at(volume)? {
            return Ok(Made::Device(device.id().path()));
        }
        let Some(backend) = self.group.volume(volume) else {
            return Err(format!("group '{}' has no volume '{volume}'", self.name));
        };
        self.put(volume, Place::Busy("being made"));
        match Device::create(&self.env, &backend, self.tag(volume)).await {
            Ok(device) => {
                let path = device.id().path();
                log::info(&format!("'{volume}' is {}", path.display()));
                self.put(volume, Place::Here(Rc::new(device)));
                Ok(Made::Device(path))
            }
            Err(error) => {
                self.places.borrow_mut().remove(volume);
                if error.means_absent() {
                    return Ok(Made::Impossible(error.to_string()));
                }
                Err(error.to_string())
            }
        }
    }

    /// Takes the device of `volume` away; what is not there is no error.
    pub(crate) async fn detach(&self, volume: &str) -> Result<(), String> {
        let Some(device) = self.at(volume)? else { return Ok(()) };
        self.put(volume, Place::Busy("being removed"));
        let removed = device.remove().await;
        self.places.borrow_mut().remove(volume);
        removed.map_err(|e| e.to_string())
    }

    /// The device of `volume`, if there is one.
    pub(crate) fn path_of(&self, volume: &str) -> Option<PathBuf> {
        match self.places.borrow().get(volume) {
            Some(Place::Here(device)) if !device.is_gone() => Some(device.id().path()),
            _ => None,
        }
    }

    /// A volume has another name.
    pub(crate) fn rename(&self, volume: &str, new: &str) {
        let mut places = self.places.borrow_mut();
        if let Some(place) = places.remove(volume) {
            places.insert(new.to_string(), place);
        }
    }

    /// Leaves all devices to the next daemon.
    pub(crate) async fn leave(&self) {
        let places = std::mem::take(&mut *self.places.borrow_mut());
        for (volume, place) in places {
            let Place::Here(device) = place else { continue };
            device.leave().await;
            let path = device.id().path();
            log::warn(&format!("{} of '{volume}' waits for the next daemon of the group", path.display()));
        }
    }

    /// The devices as clients of their volumes.
    pub(crate) fn clients(&self) -> Vec<api::Client> {
        let places = self.places.borrow();
        let here = places.iter().filter_map(|(volume, place)| match place {
            Place::Here(device) => Some((volume, device)),
            Place::Busy(_) => None,
        });
        let client = |(volume, device): (&String, &Rc<Device>)| {
            let status = device.status();
            api::Client {
                peer: device.id().path().display().to_string(),
                export: volume.clone(),
                connected_seconds: self.env.now().since(status.since).as_secs(),
                requests: status.requests,
                bytes_in_flight: status.bytes_in_flight,
            }
        };
        here.map(client).collect()
    }

    fn at(&self, volume: &str) -> Result<Option<Rc<Device>>, String> {
        match self.places.borrow().get(volume) {
            Some(Place::Busy(doing)) => Err(format!("the ublk device of '{volume}' is {doing}; try again in a moment")),
            Some(Place::Here(device)) if !device.is_gone() => Ok(Some(device.clone())),
            _ => Ok(None),
        }
    }

    fn put(&self, volume: &str, place: Place) {
        self.places.borrow_mut().insert(volume.to_string(), place);
    }

    fn tag(&self, volume: &str) -> u64 {
        let volumes = self.group.status().volumes;
        volumes.iter().find(|v| v.name == volume).map_or(0, |v| device::tag_of(&v.uuid))
    }

    /// Removes what a daemon that died had half made, and takes over what it has left, in tasks of their own.
    pub(crate) async fn take_over_all(&self) {
        let found = self.env.blocking(|| Control::open()?.devices()).await;
        // Without the driver there is nothing to take over.
        let Ok(Ok(found)) = found else { return };
        let volumes = self.group.status().volumes;
        let ours = found.into_iter().filter_map(|found| {
            let volume = volumes.iter().find(|v| device::tag_of(&v.uuid) == found.tag)?;
            Some((found, volume.name.clone()))
        });
        let (dead, alive): (Vec<_>, Vec<_>) = ours.partition(|(found, _)| found.state == State::Dead);
        for (found, volume) in dead {
            self.remove_half_made(&found, &volume).await;
        }
        for (found, volume) in alive {
            if self.places.borrow().contains_key(&volume) {
                let path = found.id.path();
                log::warn(&format!("'{volume}' has another device; `bimetal detach --all` removes {}", path.display()));
                continue;
            }
            self.put(&volume, Place::Busy("being taken over from a daemon that died"));
            let this = self.clone();
            self.env.spawn(async move { this.take_over(found, &volume).await });
        }
    }

    async fn take_over(&self, found: Found, volume: &str) {
        let path = found.id.path();
        let Some(backend) = self.group.volume(volume) else { return };
        if backend.read_only() && !found.id.is_read_only() {
            self.places.borrow_mut().remove(volume);
            let words = "waits for a daemon that may write: this one serves the group read-only";
            return log::warn(&format!("{} of '{volume}' {words}", path.display()));
        }
        match Device::take_over(&self.env, &found, &backend).await {
            Ok(device) => {
                self.put(volume, Place::Here(Rc::new(device)));
                self.record(volume, Some(&path)).await;
                log::info(&format!("{} of '{volume}' is served again", path.display()));
            }
            Err(error) => {
                self.places.borrow_mut().remove(volume);
                log::warn(&format!(
                    "{} of '{volume}' cannot be taken over: {error}; `bimetal detach --all --force` removes it",
                    path.display()
                ));
            }
        }
    }

    async fn remove_half_made(&self, found: &Found, volume: &str) {
        let path = found.id.path();
        match device::remove_orphan(&self.env, found).await {
            Ok(()) => {
                self.record(volume, None).await;
                log::info(&format!("{} of '{volume}' was half made or half removed, and is gone", path.display()));
            }
            Err(error) => log::warn(&format!("{} of '{volume}' cannot be removed: {error}", path.display())),
        }
    }

    /// Writes down that `volume` is attached here, or no more.
    async fn record(&self, volume: &str, path: Option<&PathBuf>) {
        let attachment = path.map(|p| crate::commands::detach::record_of(volume, p));
        let (group, volume) = (self.name.to_string(), volume.to_string());
        let write = move || {
            runstate::update_attachments(&group, |list| {
                list.retain(|a| a.volume != volume || a.via != "ublk");
                list.extend(attachment);
            })
        };
        if let Ok(Err(error)) = self.env.blocking(write).await {
            log::warn(&format!("the list of attached devices cannot be written: {error:#}"));
        }
    }
}
