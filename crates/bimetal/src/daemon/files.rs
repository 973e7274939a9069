//! The volumes of a group as files, in a FUSE mount that the daemon serves itself.
//!
//! Mounting and unmounting happen beside the group's thread, because they may ask what that thread must answer.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use bimetal_export::{fuse, Export};
use bimetal_host::fuse::{mount, owner, page_size, remove_dead, unmount, Device, Fashion};
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::{Group, Volume};

use super::exports;
use crate::{api, log};

/// How long an end waits for answers that a device keeps back.
const GRACE: Duration = Duration::from_secs(10);
/// How long the kernel may take to let a file go.
const RELEASE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The files, mounted or not.
pub(crate) struct Files {
    env: HostEnv,
    group: String,
    /// Where they are mounted unless somebody wants it otherwise.
    usual: PathBuf,
    shown: RefCell<Option<Shown>>,
}

/// A mount.
struct Shown {
    folder: PathBuf,
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
        Files { env: env.clone(), group: group.to_owned(), usual, shown: RefCell::default() }
    }

    /// Mounts the files in `folder`, or the usual one, unless they are mounted already. Gives the folder.
    pub(crate) async fn show(&self, folder: Option<&Path>, group: &Group<HostEnv>) -> Result<PathBuf> {
        let ended = self.shown.borrow().as_ref().map(|s| (s.server.status().ended, s.folder.clone()));
        if let Some((false, folder)) = ended {
            return Ok(folder);
        }
        let folder = std::path::absolute(folder.unwrap_or(&self.usual)).context("not a path")?;
        let (at, name) = (folder.clone(), self.group.clone());
        let file = self.env.blocking(move || mount(&at, &name)).await??;
        let device = Device::new(&self.env, file);
        let (uid, gid) = owner();
        let terms = fuse::Terms { page_size: page_size(), uid, gid, since: self.env.unix_seconds() };
        let exports = exports::of_group(group);
        let server = fuse::Server::start(self.env.clone(), device, exports, terms, fuse::Limits::default());
        log::info(&format!("the volumes of group '{}' are files in {}", self.group, folder.display()));
        *self.shown.borrow_mut() = Some(Shown { folder: folder.clone(), server });
        Ok(folder)
    }

    /// Shows a volume that was just made.
    pub(crate) fn add(&self, export: Export<Volume<HostEnv>>) {
        if let Some(shown) = self.shown.borrow().as_ref() {
            shown.server.add(export);
        }
    }

    /// Shows a volume under another name.
    pub(crate) fn rename(&self, name: &str, new: &str) {
        if let Some(shown) = self.shown.borrow().as_ref() {
            shown.server.rename(name, new);
        }
    }

    /// Shows a volume no longer; whoever has its file open gets errors.
    pub(crate) fn remove(&self, name: &str) {
        if let Some(shown) = self.shown.borrow().as_ref() {
            shown.server.remove(name);
        }
    }

    /// What the API tells of the mount.
    pub(crate) fn status(&self) -> Option<api::Files> {
        let shown = self.shown.borrow();
        let shown = shown.as_ref()?;
        let status = shown.server.status();
        (!status.ended).then(|| api::Files {
            folder: shown.folder.display().to_string(),
            requests: status.answered,
            in_flight: status.in_flight as u64,
        })
    }

    /// Answers what was taken and unmounts. Whoever still has a file open gets errors from it.
    pub(crate) async fn hide(&self) {
        let Some(Shown { folder, server }) = self.shown.take() else { return };
        if let Err(e) = self.unmount_soon(&folder).await {
            if e.kind() == ErrorKind::ResourceBusy {
                log::warn(&format!("files in {} are in use; they give errors from now on", folder.display()));
            }
            server.finish(GRACE).await;
            // Fails when it was unmounted from outside.
            let _ = self.unmount(&folder, Fashion::Lazily).await;
        }
        server.finish(GRACE).await;
        server.close();
        if folder == self.usual {
            // An empty folder in the run state harms nobody.
            let _ = self.env.blocking(move || std::fs::remove_dir(folder)).await;
        }
    }

    /// Unmounts as soon as it is not used: a loop device lets go of its file a little after it says so.
    async fn unmount_soon(&self, folder: &Path) -> std::io::Result<()> {
        let end = self.env.now().plus(RELEASE);
        loop {
            match self.unmount(folder, Fashion::IfUnused).await {
                Err(e) if e.kind() == ErrorKind::ResourceBusy && self.env.now() < end => {
                    self.env.sleep(LOOK_AGAIN).await
                }
                result => return result,
            }
        }
    }

    async fn unmount(&self, folder: &Path, fashion: Fashion) -> std::io::Result<()> {
        let folder = folder.to_owned();
        self.env.blocking(move || unmount(&folder, fashion)).await?
    }
}
