//! The run-state folder of a group: `lock`, `control.sock`, `nbd.sock`, `log`, `attachments.json`,
//! `fuse` (a mount).

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::probe::sysfs::DeviceNumber;

use crate::api::Attachment;
use crate::client::{self, Client};
use crate::{holders, paths};

/// The control socket of group `name`.
pub(crate) fn control_socket(name: &str) -> PathBuf {
    paths::run_dir(name).join("control.sock")
}

/// The default NBD socket of group `name`.
pub(crate) fn nbd_socket(name: &str) -> PathBuf {
    paths::run_dir(name).join("nbd.sock")
}

/// Where the daemon of group `name` mounts its volumes as files.
pub(crate) fn files_dir(name: &str) -> PathBuf {
    paths::run_dir(name).join("fuse")
}

/// Removes what a dead daemon of group `name` has left mounted. A living one looks after its mount itself.
pub(crate) fn remove_dead_mount(name: &str) -> Result<()> {
    let folder = files_dir(name);
    if bimetal_host::fuse::is_mounted(&folder) && locked_by(name).is_none() {
        bimetal_host::fuse::remove_dead(&folder)
            .with_context(|| format!("cannot unmount {}, which a dead daemon has left", folder.display()))?;
        // An empty folder harms nobody.
        let _ = std::fs::remove_dir(&folder);
    }
    Ok(())
}

/// The log of a daemon that was started in the background.
pub(crate) fn log_file(name: &str) -> PathBuf {
    paths::run_dir(name).join("log")
}

/// Connects to the daemon of group `name`; `None` if it is not running.
pub(crate) fn daemon(name: &str) -> Result<Option<Client>> {
    client::connect(&control_socket(name))
}

/// Mode of files that only their owner may read, and so lock.
const PRIVATE: u32 = 0o600;
const LOCK_PATIENCE: Duration = Duration::from_millis(300);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Held for as long as a daemon lives: one daemon per group. The kernel lets go when the process ends, however it ends.
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock of group `name`.
pub(crate) fn lock(name: &str) -> Result<Lock> {
    let path = paths::make_run_dir(name)?.join("lock");
    let mut file = open_rw(&path)?;
    let begun = std::time::Instant::now();
    let mut result = file.try_lock();
    // Who looks whether a daemon lives holds the lock for a moment, too.
    while matches!(result, Err(TryLockError::WouldBlock)) && begun.elapsed() < LOCK_PATIENCE {
        std::thread::sleep(LOCK_PAUSE);
        result = file.try_lock();
    }
    match result {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            bail!("group '{name}' is already being served (process {}); see `bimetal status {name}`", pid.trim());
        }
        Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Lock { _file: file })
}

/// Whether a daemon of group `name` holds the lock, and its process id.
pub(crate) fn locked_by(name: &str) -> Option<String> {
    let mut file = File::open(paths::run_dir(name).join("lock")).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).ok()?;
            Some(pid.trim().to_string())
        }
        _ => None,
    }
}

/// Opens a file for its owner alone: who may read a file may lock it, and so keep a daemon from starting.
fn open_rw(path: &Path) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE);
    let file = options.open(path).with_context(|| format!("cannot open {}", path.display()))?;
    // An earlier version may have made it for all.
    file.set_permissions(std::fs::Permissions::from_mode(PRIVATE))
        .with_context(|| format!("cannot set the rights of {}", path.display()))?;
    Ok(file)
}

/// Changes the list of attachments under a lock of its own: `attach` and `detach` may run at the same time.
pub(crate) fn update_attachments<T>(name: &str, change: impl FnOnce(&mut Vec<Attachment>) -> T) -> Result<T> {
    let path = paths::make_run_dir(name)?.join("attachments.json");
    let mut file = open_rw(&path)?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut list = parse(&text, &path)?;
    let result = change(&mut list);
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(serde_json::to_string_pretty(&list)?.as_bytes())?;
    Ok(result)
}

fn parse(text: &str, path: &Path) -> Result<Vec<Attachment>> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).with_context(|| format!("{} is damaged; remove it after a reboot", path.display()))
}

/// The attachments of group `name`, each with those who hold it now.
pub(crate) fn attachments(name: &str) -> Vec<Attachment> {
    let mut list = recorded(name);
    for a in &mut list {
        a.held_by = holders::of(&a.device);
    }
    list
}

/// Numbers of the devices that volumes of group `name` are attached as. Those of loop devices are left out: they are known
/// by their files, and given to others when they are free.
pub(crate) fn attached_numbers(name: &str) -> Vec<DeviceNumber> {
    let devices = recorded(name).into_iter().filter(|a| a.via != "fuse");
    let metas = devices.filter_map(|a| std::fs::metadata(a.device).ok()).filter(|m| m.file_type().is_block_device());
    metas.map(|m| DeviceNumber::new(m.rdev())).collect()
}

fn recorded(name: &str) -> Vec<Attachment> {
    let path = paths::run_dir(name).join("attachments.json");
    let Ok(text) = std::fs::read_to_string(&path) else { return Vec::new() };
    parse(&text, &path).unwrap_or_default()
}
