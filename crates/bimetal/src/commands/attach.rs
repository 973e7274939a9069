//! `bimetal attach`: a volume as a block device of this machine.

use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use bimetal_host::attach::{self, AttachError, Attached, Request};
use bimetal_host::locator::{NbdLocator, NbdServer};
use bimetal_host::Locator;
use serde_json::json;

use super::detach::{held, is_anothers, DaemonProcess, Handle};
use super::served::{choose, refuse_locked, served, stopped_again, Served};
use crate::api::{self, Attachment, Status};
use crate::cli::{Attach, Via};
use crate::output::Output;
use crate::{config, runstate};

pub(crate) fn run(args: Attach, output: Output) -> Result<()> {
    let group = &args.target.group;
    let Served { status, started } = served(group, args.no_start)?;
    let made = attached(&args, &status);
    let (attachment, why) = made.map_err(|why| if started { stopped_again(group, why) } else { why })?;
    crate::output::tell(&format!("Attached {group}/{} by {}: {why}.", attachment.volume, attachment.via));
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "volume": attachment.volume, "device": attachment.device,
        "via": attachment.via, "why": why,
    });
    output.show(&answer, || attachment.device.clone())
}

/// Attaches what is meant, or finds it attached; and says why by this way.
fn attached(args: &Attach, status: &Status) -> Result<(Attachment, String)> {
    let group = &args.target.group;
    let volume = choose(status, args.target.volume.as_deref())?;
    refuse_locked(group, volume)?;
    let uuid = config::uuid_bytes(&volume.uuid).context("the daemon's answer is not understood")?;
    let request = Request {
        inode: bimetal_export::fuse::inode_of(&uuid),
        size: volume.size_bytes,
        export: export_of(status, &volume.name)?,
        show_file: &|| show_file(group, &volume.name).map_err(|e| format!("{e:#}")),
        read_only: status.read_only,
        sector_size: volume.sector_bytes,
        not_by_ublk: None,
        via: args.via.map(|v| match v {
            Via::Ublk => attach::Via::Ublk,
            Via::Nbd => attach::Via::Nbd,
            Via::Fuse => attach::Via::Fuse,
        }),
    };
    let mut maker = Maker { group, volume, uuid, daemon: DaemonProcess::of(status), request: &request, made: None };
    match runstate::update_attachments(group, |list| maker.attach_or_find(list)) {
        Ok(attached) => attached,
        Err(error) => Err(maker.not_recorded(error)),
    }
}

/// Has the daemon mount its volumes as files, and gives that of the volume.
fn show_file(group: &str, volume: &str) -> Result<PathBuf> {
    let daemon = runstate::daemon(group)?.context("it is gone")?;
    let shown: api::FilesShown = daemon.post("/v1/files", &())?;
    Ok(Path::new(&shown.folder).join(volume))
}

/// Whether a device is there and has a size: one that was let go by hand (`losetup -d`) has none.
fn has_size(device: &str) -> bool {
    let name = Path::new(device).file_name().unwrap_or_default();
    let size = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("size"));
    Path::new(device).exists() && size.is_ok_and(|sectors| sectors.trim() != "0")
}

/// Makes one attachment.
struct Maker<'a> {
    group: &'a str,
    volume: &'a api::Volume,
    uuid: [u8; 16],
    /// The group's daemon.
    daemon: DaemonProcess,
    request: &'a Request<'a>,
    /// The device that it has made.
    made: Option<Attachment>,
}

impl Maker<'_> {
    /// Runs under the lock of the list, so that a volume is attached once.
    fn attach_or_find(&mut self, list: &mut Vec<Attachment>) -> Result<(Attachment, String)> {
        let status = self.refuse_if_ended()?;
        self.refuse_if_another(&status)?;
        let before = list.clone();
        self.tidy(list);
        if let Some(at) = list.iter().position(|a| a.is_of_volume(&self.volume.name, &self.volume.uuid)) {
            let old = list[at].clone();
            if self.still_works(&old)? {
                return Ok((old, "it was attached already".into()));
            }
            list.remove(at);
        }
        let found = self.find(&status, &before)?;
        let is_new = found.is_none();
        let attached = found.map_or_else(|| self.make(), Ok)?;
        let attachment = super::detach::record(&self.volume.name, &self.volume.uuid, &attached, self.daemon);
        self.made = is_new.then(|| attachment.clone());
        // The kernel gave the device away: what was attached as that is gone.
        list.retain(|a| a.device != attachment.device);
        list.push(attachment.clone());
        let Attached { why, .. } = attached;
        Ok((attachment, why))
    }

    /// Whoever waited for the list may find that the daemon is about to end, and what it serves with it, or that it has ended.
    fn refuse_if_ended(&self) -> Result<Status> {
        let daemon =
            runstate::daemon(self.group)?.with_context(|| format!("group '{}' is not being served", self.group))?;
        let status: Status = daemon.get("/v1/status")?;
        if status.state == "stopping" {
            bail!("group '{}' is being stopped; try again when that has ended", self.group);
        }
        if DaemonProcess::of(&status) != self.daemon {
            bail!("the daemon of group '{}' was started anew meanwhile; try again", self.group);
        }
        Ok(status)
    }

    /// Whoever waited for the list may find that the name is another volume's. Who serves it goes by the name.
    fn refuse_if_another(&self, status: &Status) -> Result<()> {
        let (group, name) = (self.group, &self.volume.name);
        match status.volumes.iter().find(|v| v.name == *name) {
            Some(now) if now.uuid == self.volume.uuid => Ok(()),
            Some(_) => bail!("'{name}' of group '{group}' is another volume by now; try again if that is the one"),
            None => bail!("group '{group}' has no volume '{name}' any more"),
        }
    }

    /// A device of the volume that was made before, by somebody who was killed before it was written down. What was on the list `before`
    /// is none: the status tells of that, too, though it may have been taken down since.
    fn find(&self, status: &Status, before: &[Attachment]) -> Result<Option<Attached>> {
        let connected = runstate::unwritten(before, &status.attachments);
        let of_volume = connected.iter().find(|a| a.is_of_volume(&self.volume.name, &self.volume.uuid));
        let found = match (of_volume, &status.files) {
            (Some(a), _) => Some(attach::adopt(self.request, Handle::of(a)?.attached(a))?),
            (None, Some(files)) => attach::find_made(self.request, Path::new(&files.folder))?,
            (None, None) => None,
        };
        let Some(found) = found else { return Ok(None) };
        if self.request.via.is_some_and(|v| v != found.via) {
            let device = found.device.display();
            bail!("'{}' is already attached as {device} by {}; detach it first", self.volume.name, found.via);
        }
        Ok(Some(found))
    }

    /// Takes the device that was made away again: it could not be written down, and would be found by nobody. Gives the error to tell.
    fn not_recorded(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(made) = &self.made else { return error };
        let device = &made.device;
        match super::detach::take_away(self.group, made) {
            Ok(()) => error.context(format!("{device} was taken away again, because it cannot be written down")),
            Err(why) => error.context(format!(
                "{device} is there, but cannot be written down, nor be taken away again ({why:#}); when there is room for the \
                 list: bimetal detach {device}"
            )),
        }
    }

    /// Takes down what was attached under this name of a volume that is deleted. What somebody still holds stays.
    fn tidy(&self, list: &mut Vec<Attachment>) {
        let (name, uuid) = (&self.volume.name, &self.volume.uuid);
        list.retain(|a| {
            let other = a.volume == *name && !a.is_of_volume(name, uuid);
            let gone = || Handle::of(a).is_ok_and(|handle| attach::detach(&handle.attached(a)).is_ok());
            !other || !is_anothers(a) && !held(a).is_empty() || !(a.via == "ublk" || gone())
        });
    }

    /// Whether what was attached before works still. If not, it is taken down.
    fn still_works(&self, old: &Attachment) -> Result<bool> {
        let handle = Handle::of(old)?;
        let attached = handle.attached(old);
        if attach::is_anothers(&attached) || attach::shows_another(&attached, self.request.inode) {
            return Ok(false);
        }
        let by_ublk = handle.via() == attach::Via::Ublk;
        // A ublk device is as good as its daemon, whichever that is now.
        if by_ublk || handle.is_served_by(self.daemon) && has_size(&old.device) {
            if self.request.via.is_some_and(|v| v != handle.via()) {
                bail!("'{}' is already attached as {} by {}; detach it first", self.volume.name, old.device, old.via);
            }
            return if by_ublk { self.is_served(old) } else { Ok(true) };
        }
        // Its daemon died: the device gives errors only. Whoever still holds it must let go first.
        let held = held(old);
        if !held.is_empty() {
            bail!(
                "{} is left over from a daemon that died, and cannot be replaced while {}; release it first (umount)",
                old.device,
                held.join(", ")
            );
        }
        attach::detach(&handle.attached(old))?;
        Ok(false)
    }

    /// Whether a ublk device is the one that the daemon serves. It makes none while there is one that it does not serve:
    /// what was written down is then the only trace of that, and stays.
    fn is_served(&self, old: &Attachment) -> Result<bool> {
        match super::ublk::attach(self.group, self.volume)? {
            Ok(device) => Ok(device.as_os_str() == &*old.device),
            Err(why) if Path::new(&old.device).exists() => {
                bail!("{} is there, but ublk cannot be used here: {why}", old.device)
            }
            Err(_) => Ok(false),
        }
    }

    /// By ublk, which only the daemon can, or else by a way of this program.
    fn make(&self) -> Result<Attached> {
        let wish = self.request.via;
        if wish.is_some_and(|v| v != attach::Via::Ublk) {
            self.refuse_beside_ublk()?;
            return self.make_here(self.request);
        }
        match super::ublk::attach(self.group, self.volume)? {
            Ok(device) => {
                let why =
                    if wish.is_some() { "you asked for it" } else { "the kernel's ublk driver is the shortest way" };
                Ok(Attached { via: attach::Via::Ublk, device, mount_dir: None, helper_pid: None, why: why.into() })
            }
            Err(why) if wish.is_some() => Err(AttachError::Unavailable { via: attach::Via::Ublk, why }.into()),
            Err(why) => {
                self.refuse_beside_ublk()?;
                self.make_here(&Request { not_by_ublk: Some(why), ..self.request.clone() })
            }
        }
    }

    /// By a way of this program. The kernel's NBD client takes whatever had the name when it connected, and keeps that.
    fn make_here(&self, request: &Request<'_>) -> Result<Attached> {
        let made = attach::attach(request)?;
        if made.via == attach::Via::Nbd {
            let same = self.refuse_if_ended().and_then(|status| self.refuse_if_another(&status));
            if let Err(why) = same {
                attach::detach(&made).with_context(|| format!("{why:#}; and {} stays", made.device.display()))?;
                return Err(why);
            }
        }
        Ok(made)
    }

    /// Two devices of one volume would each have a page cache, and a file system on each.
    fn refuse_beside_ublk(&self) -> Result<()> {
        match super::ublk::alive(&self.uuid)?.first() {
            None => Ok(()),
            Some(found) => {
                let device = found.id.path();
                bail!("'{}' is already attached as {}; detach it first", self.volume.name, device.display())
            }
        }
    }
}

/// Where the daemon exports the volume; a unix socket if there is one.
fn export_of(status: &Status, volume: &str) -> Result<NbdLocator> {
    let all = status.exports.iter().filter_map(|uri| match Locator::parse(uri) {
        Ok(Locator::Nbd(nbd)) if nbd.export == volume => Some(nbd),
        _ => None,
    });
    let best = all.min_by_key(|nbd| !matches!(nbd.server, NbdServer::Unix(_)));
    best.with_context(|| format!("the daemon does not export '{volume}' by NBD"))
}
