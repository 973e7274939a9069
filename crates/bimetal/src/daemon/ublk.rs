//! Block devices that this daemon serves by ublk: made and removed when asked. Those of a daemon that died are taken over
//! (`takeover`).
//!
//! Terms: a device is *ours* if its tag names a volume of the group. Since one daemon of a group lives at a time, every
//! device of ours that is there at the start was left by one that died.
//!
//! Invariants:
//! 1. A volume has one device at most that is not dead. What is being made, removed or taken over has its place in
//!    `places` meanwhile, and none is made while the kernel knows one of the volume's.
//! 2. A volume is known by its UUID: its name may be another's after the next `await`.
//! 3. The list of attachments is written by commands and, for what was made, taken over or half made, here: after the
//!    answer, since a command holds the list's lock until it has it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bimetal_export::ublk::device::{self, Device};
use bimetal_host::HostEnv;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::{Group, Volume};
use bimetal_volume::options::Uuid;

use super::losses::Losses;
use super::shared::Made;
use crate::{api, holders, log};

/// How long somebody waits for what is under way with a device.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long programs that have a device open may take to close it: some look at every device that was written to.
const CLOSING: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

struct Place {
    /// The volume's name, for people.
    volume: String,
    state: State,
}

enum State {
    /// Something is under way; a person is told what.
    Busy(&'static str),
    Here(Rc<Device>),
}

/// The devices of a group. Cloning gives another handle.
#[derive(Clone)]
pub(crate) struct Devices {
    pub(super) env: HostEnv,
    pub(super) group: Group<HostEnv>,
    pub(super) name: Rc<str>,
    pub(super) losses: Losses,
    places: Rc<RefCell<BTreeMap<Uuid, Place>>>,
}

impl Devices {
    pub(crate) fn new(env: &HostEnv, group: &Group<HostEnv>, name: &str, losses: &Losses) -> Devices {
        let (env, group, losses) = (env.clone(), group.clone(), losses.clone());
        Devices { env, group, name: name.into(), losses, places: Rc::default() }
    }

    /// The block device of `volume`, made now if it is not there. Refused if the name is another's than that with the UUID `meant`.
    pub(crate) async fn attach(&self, volume: &str, meant: Option<Uuid>) -> Result<Made, String> {
        let missing = || format!("group '{}' has no volume '{volume}'", self.name);
        let backend = self.group.volume(volume).ok_or_else(missing)?;
        let uuid = backend.uuid();
        if meant.is_some_and(|meant| meant != uuid) {
            return Err(format!(
                "'{volume}' of group '{}' is another volume by now; try again if that is the one",
                self.name
            ));
        }
        if let Some(device) = self.settled(&uuid).await? {
            return Ok(Made::Device { path: device.id().path(), uuid, new: false });
        }
        if backend.is_locked() {
            return Err(format!("volume '{volume}': {}", Error::Locked));
        }
        self.begin(uuid, volume, "being made");
        match self.make(&backend).await {
            Ok(Ok(device)) => {
                let path = device.id().path();
                log::info(&format!("'{volume}' is {}", path.display()));
                self.set(&uuid, State::Here(Rc::new(device)));
                Ok(Made::Device { path, uuid, new: true })
            }
            Ok(Err(why)) => {
                self.forget(&uuid);
                Ok(Made::Impossible(why))
            }
            Err(why) => {
                self.forget(&uuid);
                Err(why)
            }
        }
    }

    /// Makes a device; the inner error says why this machine has none at all.
    async fn make(&self, backend: &Volume<HostEnv>) -> Result<Result<Device, String>, String> {
        if let Err(error) = device::available(&self.env).await {
            return Ok(Err(error.to_string()));
        }
        if let Some(path) = self.not_served(backend).await? {
            return Err(format!(
                "{} is a device of volume '{}' that this daemon does not serve, and a second one would destroy what is \
                 on it; the log says why it was not taken over. Stop the daemon and start it again to have it taken \
                 over (`bimetal stop {} --force`, `bimetal serve {}`)",
                path.display(),
                backend.name(),
                self.name,
                self.name
            ));
        }
        // Those of before are gone, and what their clients did not hear of with them.
        self.losses.settle_all_of(&backend.uuid()).await;
        let tag = device::tag_of(&backend.uuid());
        Device::create(&self.env, backend, tag).await.map(Ok).map_err(|e| e.to_string())
    }

    /// Takes the device of a volume away; what is not there is no error. Refused while somebody uses it, but by `force`.
    pub(crate) async fn detach(&self, uuid: &Uuid, force: bool) -> Result<(), String> {
        let Some(device) = self.settled(uuid).await? else { return Ok(()) };
        self.set(uuid, State::Busy("being removed"));
        let removed = self.remove(&device, force).await;
        if device.is_gone() {
            self.forget(uuid);
            self.losses.settle(uuid, &device.id().path()).await;
        } else {
            self.set(uuid, State::Here(device));
        }
        removed
    }

    /// The same for whoever asks from outside: of the volume with this UUID or, if that was not said, this name.
    pub(crate) async fn detach_asked(&self, volume: &str, uuid: Option<Uuid>, force: bool) -> Result<(), String> {
        let named = || self.places.borrow().iter().find(|(_, place)| place.volume == volume).map(|(uuid, _)| *uuid);
        let placed = match uuid {
            Some(uuid) => self.has_place(&uuid).then_some(uuid),
            None => named(),
        };
        if let Some(uuid) = placed {
            return self.detach(&uuid, force).await;
        }
        let backend = match uuid {
            Some(uuid) => self.volume_of(&uuid),
            None => self.group.volume(volume),
        };
        let Some(backend) = backend else { return Ok(()) };
        match self.not_served(&backend).await {
            Ok(Some(path)) => Err(format!(
                "{} is not served by this daemon; the log says why it was not taken over. `bimetal detach --all` removes \
                 it if nobody uses it, and with --force in any case; what waits in it is lost then",
                path.display()
            )),
            // Without the driver there is no device.
            _ => Ok(()),
        }
    }

    /// A device of a volume that has no place here, but is alive.
    async fn not_served(&self, backend: &Volume<HostEnv>) -> Result<Option<PathBuf>, String> {
        let tag = device::tag_of(&backend.uuid());
        let alive = device::all_alive(&self.env).await.map_err(|e| e.to_string())?;
        Ok(alive.iter().find(|found| found.tag == tag).map(|found| found.id.path()))
    }

    async fn remove(&self, device: &Device, force: bool) -> Result<(), String> {
        if !force {
            self.refuse_if_used(&device.id().path()).await?;
        }
        device.remove().await.map_err(|e| e.to_string())
    }

    /// What is in somebody's page cache would be lost, and what is mounted would be broken.
    async fn refuse_if_used(&self, path: &std::path::Path) -> Result<(), String> {
        let end = self.env.now().plus(CLOSING);
        loop {
            let device = path.display().to_string();
            let users = self.env.blocking(move || holders::users(&device)).await.map_err(|e| e.to_string())?;
            if users.is_empty() {
                return Ok(());
            }
            if users.held || self.env.now() >= end {
                return Err(format!(
                    "{}; release it first (umount, swapoff, or end the program)",
                    users.all.join(", ")
                ));
            }
            self.env.sleep(LOOK_AGAIN * 5).await;
        }
    }

    /// The volume with this UUID, whatever its name is now.
    pub(super) fn volume_of(&self, uuid: &Uuid) -> Option<Volume<HostEnv>> {
        let all = self.group.volume_names();
        all.iter().filter_map(|name| self.group.volume(name)).find(|volume| volume.uuid() == *uuid)
    }

    /// What a volume is used for here, in words. A device that is being made or taken over counts: its size and its name are
    /// settled already.
    pub(crate) fn use_of(&self, uuid: &Uuid) -> Option<String> {
        match &self.places.borrow().get(uuid)?.state {
            State::Busy(doing) => Some(format!("its ublk device is {doing}")),
            State::Here(device) if !device.is_gone() => {
                Some(format!("it is attached as {}", device.id().path().display()))
            }
            State::Here(_) => None,
        }
    }

    /// The device of a volume, if there is one.
    pub(crate) fn path_of(&self, uuid: &Uuid) -> Option<PathBuf> {
        match self.places.borrow().get(uuid).map(|place| &place.state) {
            Some(State::Here(device)) if !device.is_gone() => Some(device.id().path()),
            _ => None,
        }
    }

    /// A volume has another name.
    pub(crate) fn rename(&self, uuid: &Uuid, new: &str) {
        if let Some(place) = self.places.borrow_mut().get_mut(uuid) {
            place.volume = new.to_string();
        }
    }

    /// Leaves all devices to the next daemon.
    pub(crate) async fn leave(&self) {
        let places = std::mem::take(&mut *self.places.borrow_mut());
        for Place { volume, state } in places.into_values() {
            let State::Here(device) = state else { continue };
            device.leave().await;
            let path = device.id().path();
            log::warn(&format!("{} of '{volume}' waits for the next daemon of the group", path.display()));
        }
    }

    /// The devices as clients of their volumes.
    pub(crate) fn clients(&self) -> Vec<api::Client> {
        let places = self.places.borrow();
        let client = |place: &Place| {
            let State::Here(device) = &place.state else { return None };
            let status = device.status();
            Some(api::Client {
                peer: device.id().path().display().to_string(),
                export: place.volume.clone(),
                connected_seconds: self.env.now().since(status.since).as_secs(),
                requests: status.requests,
                bytes_in_flight: status.bytes_in_flight,
            })
        };
        places.values().filter_map(client).collect()
    }

    /// The device of a volume when nothing is under way with it any more. Whoever goes on without waiting may rely on it.
    async fn settled(&self, uuid: &Uuid) -> Result<Option<Rc<Device>>, String> {
        let end = self.env.now().plus(PATIENCE);
        loop {
            match self.places.borrow().get(uuid) {
                Some(Place { volume, state: State::Busy(doing) }) if self.env.now() >= end => {
                    return Err(format!("the ublk device of '{volume}' is {doing}; try again in a moment"));
                }
                Some(Place { state: State::Busy(_), .. }) => {}
                Some(Place { state: State::Here(device), .. }) if !device.is_gone() => return Ok(Some(device.clone())),
                _ => return Ok(None),
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether a volume has a place, and somebody sees to it.
    pub(super) fn has_place(&self, uuid: &Uuid) -> bool {
        self.places.borrow().contains_key(uuid)
    }

    /// Something begins with the device of a volume.
    pub(super) fn begin(&self, uuid: Uuid, volume: &str, doing: &'static str) {
        let place = Place { volume: volume.to_string(), state: State::Busy(doing) };
        self.places.borrow_mut().insert(uuid, place);
    }

    /// The device of a volume is served here.
    pub(super) fn is_here(&self, uuid: &Uuid, device: Device) {
        self.set(uuid, State::Here(Rc::new(device)));
    }

    /// A volume has no device here.
    pub(super) fn forget(&self, uuid: &Uuid) {
        self.places.borrow_mut().remove(uuid);
    }

    /// What was left to the next daemon meanwhile stays left.
    fn set(&self, uuid: &Uuid, state: State) {
        if let Some(place) = self.places.borrow_mut().get_mut(uuid) {
            place.state = state;
        }
    }
}
