//! The volumes of a group as files, in a FUSE mount that the daemon serves itself.
//!
//! Mounting and unmounting happen beside the group's thread, because they may ask what that thread must answer.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_export::ublk::device;
use bimetal_export::{fuse, Export};
use bimetal_host::fuse::{
    device_below, mount, number_of, owner, page_size, remove_dead, true_path, unmount_only, Device, Fashion, MountError,
};
use bimetal_host::ublk::{Control, DeviceId};
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::{Group, Volume};
use bimetal_volume::options::{Uuid, VolumeStatus};

use super::exports;
use super::opened::OpenFile;
use crate::{api, log};

/// How long an end waits for answers that a device keeps back.
const GRACE: Duration = Duration::from_secs(10);
/// How long the kernel may take to let a file go.
const RELEASE: Duration = Duration::from_secs(1);
/// How long a mount waits for another that is under way.
const TURN: Duration = Duration::from_secs(4);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The files, mounted or not.
pub(crate) struct Files {
    env: HostEnv,
    group: String,
    /// Where they are mounted unless somebody wants it otherwise.
    usual: PathBuf,
    /// The last one is the mount that is shown. Others were unmounted by somebody else while files were open.
    shown: RefCell<Vec<Shown>>,
    /// Somebody mounts.
    mounting: Cell<bool>,
    /// Nothing more is mounted.
    closed: Cell<bool>,
}

/// A mount.
struct Shown {
    folder: PathBuf,
    /// The folder as the kernel shows it.
    real: PathBuf,
    /// The kernel's number of it: something else may be mounted there one day.
    number: String,
    /// Folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
    server: fuse::Server<HostEnv, Volume<HostEnv>, Device>,
}

impl Files {
    /// Not mounted yet. What a daemon that died has left in the usual folder is removed.
    pub(crate) async fn new(env: &HostEnv, group: &str, usual: PathBuf) -> Files {
        let left = usual.clone();
        match env.blocking(move || remove_dead(&left)).await.and_then(|removed| removed) {
            Ok(false) => {}
            Ok(true) => log::info(&format!("removed a mount in {} that a dead daemon had left", usual.display())),
            Err(e) => log::warn(&format!("a mount in {} cannot be removed: {e}", usual.display())),
        }
        let (env, group) = (env.clone(), group.to_owned());
        Files { env, group, usual, shown: RefCell::default(), mounting: Cell::default(), closed: Cell::default() }
    }

    /// Mounts the files in `folder`, or the usual one, unless they are mounted already. Gives the folder. May take as long
    /// as the file system that the folder lies on.
    pub(crate) async fn show(&self, folder: Option<&Path>, group: &Group<HostEnv>) -> Result<PathBuf> {
        if !self.turn(TURN).await {
            bail!(
                "the files of group ‘{}’ are being mounted, and that takes long: a file system may hang; see the log and \
                 dmesg, and try again later",
                self.group
            );
        }
        let shown = self.show_alone(folder, group).await;
        self.mounting.set(false);
        shown
    }

    /// Waits until nobody mounts, but no longer than whoever asked: a mount may hang for ever. Then it is the caller's turn.
    async fn turn(&self, limit: Duration) -> bool {
        let end = self.env.now().plus(limit);
        while self.mounting.replace(true) {
            if self.env.now() >= end {
                return false;
            }
            self.env.sleep(LOOK_AGAIN).await;
        }
        true
    }

    async fn show_alone(&self, folder: Option<&Path>, group: &Group<HostEnv>) -> Result<PathBuf> {
        self.shown.borrow_mut().retain(|s| !s.server.status().ended);
        let last = self.shown.borrow().last().map(|s| (s.folder.clone(), s.number.clone()));
        if let Some((folder, number)) = &last {
            let at = folder.clone();
            if self.env.blocking(move || number_of(&at)).await?.as_ref() == Some(number) {
                return Ok(folder.clone());
            }
            log::warn(&format!("the files in {} were unmounted by somebody else", folder.display()));
        }
        let before = last.as_ref().map(|(folder, _)| folder.as_path());
        let folder = std::path::absolute(folder.or(before).unwrap_or(&self.usual)).context("not a path")?;
        let (at, tags) = (folder.clone(), group.status().volumes.iter().map(|v| device::tag_of(&v.uuid)).collect());
        self.env.blocking(move || refuse_own_ground(&at, tags)).await??;
        let (at, name) = (folder.clone(), self.group.clone());
        let (file, number, real, made) = self.env.blocking(move || mount_new(&at, &name)).await??;
        let number = number.with_context(|| format!("{}: it was unmounted at once", folder.display()))?;
        let device = Device::new(&self.env, file);
        let (uid, gid) = owner();
        let terms = fuse::Terms { page_size: page_size(), uid, gid, since: self.env.unix_seconds() };
        let exports = exports::of_group(group);
        let server = fuse::Server::start(self.env.clone(), device, exports, terms, fuse::Limits::default());
        let shown = Shown { folder: folder.clone(), real, number, made, server };
        if self.closed.get() {
            self.hide_one(shown).await;
            bail!("the daemon is stopping");
        }
        log::info(&format!("the volumes of group '{}' are files in {}", self.group, folder.display()));
        self.shown.borrow_mut().push(shown);
        Ok(folder)
    }

    /// Shows a volume that was just made.
    pub(crate) fn add(&self, export: &Export<Volume<HostEnv>>) {
        self.each(|server| server.add(export.clone()));
    }

    /// Shows a volume under another name.
    pub(crate) fn rename(&self, uuid: &Uuid, new: &str) {
        self.each(|server| server.rename(uuid, new));
    }

    /// Shows a volume no longer; whoever has its file open gets errors.
    pub(crate) fn remove(&self, uuid: &Uuid) {
        self.each(|server| server.remove(uuid));
    }

    fn each(&self, change: impl Fn(&fuse::Server<HostEnv, Volume<HostEnv>, Device>)) {
        self.shown.borrow().iter().for_each(|shown| change(&shown.server));
    }

    /// Who uses the file of a volume, in words.
    pub(crate) fn users_of(&self, uuid: &Uuid) -> Option<String> {
        let shown = self.shown.borrow();
        let alive = shown.iter().filter(|s| !s.server.status().ended);
        let open: Vec<_> = alive.filter(|s| s.server.opened(uuid) > 0).map(|s| s.folder.display()).collect();
        open.first().map(|folder| format!("its file in {folder} is open (fuser -v shows where, losetup a loop device)"))
    }

    /// Which files of these volumes are open.
    pub(crate) fn open_of(&self, volumes: &[VolumeStatus]) -> Vec<OpenFile> {
        let shown = self.shown.borrow();
        let alive = shown.iter().filter(|s| !s.server.status().ended);
        let of_mount = |s: &Shown| {
            let file = |v: &VolumeStatus| OpenFile {
                volume: v.name.clone(),
                uuid: v.uuid,
                path: s.real.join(&v.name),
                opens: s.server.opened(&v.uuid),
            };
            volumes.iter().map(file).filter(|file| file.opens > 0).collect::<Vec<_>>()
        };
        alive.flat_map(of_mount).collect()
    }

    /// What the API tells of the mount.
    pub(crate) fn status(&self) -> Option<api::Files> {
        let shown = self.shown.borrow();
        let shown = shown.last()?;
        let status = shown.server.status();
        (!status.ended).then(|| api::Files {
            folder: shown.folder.display().to_string(),
            requests: status.answered,
            in_flight: status.in_flight as u64,
        })
    }

    /// Answers what was taken and unmounts. Whoever still has a file open gets errors from it, and is told of in words.
    pub(crate) async fn hide(&self) -> Vec<String> {
        self.closed.set(true);
        let all = std::mem::take(&mut *self.shown.borrow_mut());
        let mut cut_off = Vec::new();
        for shown in all {
            cut_off.extend(self.hide_one(shown).await);
        }
        cut_off
    }

    async fn hide_one(&self, shown: Shown) -> Option<String> {
        let Shown { folder, number, made, server, .. } = shown;
        let mut cut_off = None;
        if let Err(e) = self.unmount_soon(&folder, &number).await {
            // What somebody else has unmounted is not seen to be busy.
            if e.kind() == ErrorKind::ResourceBusy || server.is_open() {
                log::warn(&format!("files in {} are in use; they give errors from now on", folder.display()));
                cut_off = Some(format!("files in {} were open", folder.display()));
            }
            server.finish(GRACE).await;
            // Fails when it was unmounted from outside.
            let _ = self.unmount(&folder, &number, Fashion::Lazily).await;
        }
        server.finish(GRACE).await;
        server.close();
        // That in the run state may be of an earlier daemon.
        let made = if folder == self.usual { vec![folder] } else { made };
        // If it cannot be removed, an empty folder harms nobody.
        let _ = self.env.blocking(move || remove_made(&made)).await;
        cut_off
    }

    /// Unmounts as soon as it is not used: a loop device lets go of its file a little after it says so.
    async fn unmount_soon(&self, folder: &Path, number: &str) -> std::io::Result<()> {
        let end = self.env.now().plus(RELEASE);
        loop {
            match self.unmount(folder, number, Fashion::IfUnused).await {
                Err(e) if e.kind() == ErrorKind::ResourceBusy && self.env.now() < end => {
                    self.env.sleep(LOOK_AGAIN).await
                }
                result => return result,
            }
        }
    }

    async fn unmount(&self, folder: &Path, number: &str, fashion: Fashion) -> std::io::Result<()> {
        let (folder, number) = (folder.to_owned(), number.to_owned());
        self.env.blocking(move || unmount_only(&folder, &number, fashion)).await?
    }
}

/// Mounts, and gives the kernel's number of the mount, its path as the kernel shows it, and the folders that were made for it. Without
/// a mount none of them stays.
fn mount_new(folder: &Path, name: &str) -> Result<(OwnedFd, Option<String>, PathBuf, Vec<PathBuf>), MountError> {
    let is_missing = |f: &&Path| f.symlink_metadata().is_err_and(|e| e.kind() == ErrorKind::NotFound);
    let made: Vec<PathBuf> = folder.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    let mounted = mount(folder, name).inspect_err(|_| remove_made(&made));
    let real = || true_path(folder).unwrap_or_else(|_| folder.to_owned());
    mounted.map(|file| (file, number_of(folder), real(), made))
}

/// Removes folders, the innermost first, as far as nothing is in them.
fn remove_made(made: &[PathBuf]) {
    let _ = made.iter().try_for_each(std::fs::remove_dir);
}

/// A folder on a device of the group itself: to look it up would wait for the device, which would wait for this daemon.
fn refuse_own_ground(folder: &Path, tags: Vec<u64>) -> Result<()> {
    let is_ours = |source: &Path| {
        let Some(id) = disk_of(source) else { return false };
        let found = Control::open().and_then(|mut control| control.info(id));
        // What cannot be asked may be ours.
        found.map_or(true, |found| found.is_some_and(|f| tags.contains(&f.tag)))
    };
    let lies_on = device_below(folder, is_ours).with_context(|| format!("what {} lies on", folder.display()))?;
    if let Some(source) = lies_on {
        bail!(
            "{} lies on {}, which this daemon serves itself: take a folder elsewhere",
            folder.display(),
            source.display()
        );
    }
    Ok(())
}

/// The ublk device that a path names, or a partition of which.
fn disk_of(source: &Path) -> Option<DeviceId> {
    let number = source.to_str()?.strip_prefix("/dev/ublkb")?.split('p').next()?;
    DeviceId::of(Path::new(&format!("/dev/ublkb{number}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_host::Reactor;

    #[test]
    fn who_waits_for_a_mount_that_hangs_gives_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let reactor = Reactor::new().expect("a ring");
        let env = reactor.env();
        let folder = dir.path().join("fuse");
        reactor.block_on(async move {
            let files = Files::new(&env, "tank", folder).await;
            assert!(files.turn(TURN).await, "nobody mounts");
            assert!(!files.turn(LOOK_AGAIN * 3).await, "somebody does");
            files.mounting.set(false);
            assert!(files.turn(TURN).await);
        });
    }
}
