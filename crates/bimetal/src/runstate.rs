//! The run-state folder of a group: `lock`, `control.sock`, `nbd.sock`, `log`, `attachments.json` (and `attachments.lock`,
//! which whoever changes it holds), `ended.json` and `ended.earlier` (how the last daemons ended), `lost.json` (what clients of ublk devices have to
//! be told: [`loss`](crate::loss)), `fuse` (a mount).

mod end;
mod lock;

use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::attach::{began, Attached, Via};
use bimetal_host::probe::loops;
use bimetal_host::probe::sysfs::DeviceNumber;

use crate::api::{self, Attachment};
use crate::client::{self, Client, Ended};
use crate::commands::detach::{is_anothers, record, DaemonProcess};
use crate::{holders, paths};
pub(crate) use end::{end_of, note_end, set_end_aside, End};
use lock::lock_file;
pub(crate) use lock::{holder, holder_for_long, lock, lock_for_command, locked_by, refuse_served, Holder, Lock};

/// How long the list of what is attached may be held by somebody, and how often it is looked.
pub(crate) const LIST_PATIENCE: Duration = Duration::from_secs(20);
const LIST_LOOK_AGAIN: Duration = Duration::from_millis(20);

/// All files that may be there.
pub(crate) const FILES: [&str; 12] = [
    "lock",
    "log",
    "control.sock",
    "nbd.sock",
    "attachments.json",
    "attachments.new",
    "attachments.lock",
    "ended.json",
    "ended.new",
    "ended.earlier",
    "lost.json",
    "lost.new",
];

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
    paths::run_dir(name).join(paths::FILES)
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

/// A daemon takes a question in its last moments and answers no more: so often it is asked again, and after so long.
const LOOKS: usize = 4;
const AGAIN: Duration = Duration::from_millis(100);

/// Asks the daemon of group `name` what may be asked twice; `None` if it is not running, or ends meanwhile.
pub(crate) fn ask<T>(name: &str, question: impl Fn(Client) -> Result<T>) -> Result<Option<T>> {
    for look in 1..=LOOKS {
        let Some(daemon) = daemon(name)? else { break };
        match question(daemon) {
            Err(error) if error.is::<Ended>() && look < LOOKS => std::thread::sleep(AGAIN),
            answer => return answer.map(Some),
        }
    }
    Ok(None)
}

/// Mode of files that only their owner may read, and so lock.
pub(crate) const PRIVATE: u32 = 0o600;

/// Takes away what daemons of group `name` have left, unless something of it may still be attached. Its lock goes with
/// whoever holds it.
pub(crate) fn forget(name: &str, _held: &Lock) {
    if !attachments(name).is_ok_and(|list| list.is_empty()) {
        return;
    }
    for file in FILES.into_iter().filter(|file| *file != "lock") {
        // Most of them are not there.
        let _ = std::fs::remove_file(paths::run_dir(name).join(file));
    }
}

/// Whether that daemon still serves group `name`. The lock tells, or, to those who may not read it, the control socket.
pub(crate) fn is_served_by(name: &str, process: Option<u32>) -> bool {
    let lock = File::open(lock_file(name));
    if lock.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied) {
        return daemon(name).is_ok_and(|found| found.is_some());
    }
    let is_it = |holder: Holder| holder.is_daemon() && process.is_none_or(|p| holder.process == p.to_string());
    holder(name).is_some_and(is_it)
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

fn list_file(name: &str) -> PathBuf {
    paths::run_dir(name).join("attachments.json")
}

/// Changes the list of attachments under a lock of its own: `attach` and `detach` may run at the same time. Who reads it needs
/// no lock, because a new list takes the place of the old one at once: whatever ends this process leaves a whole one.
pub(crate) fn update_attachments<T>(name: &str, change: impl FnOnce(&mut Vec<Attachment>) -> T) -> Result<T> {
    update_attachments_until(Instant::now() + LIST_PATIENCE, name, change)
}

/// The same, by somebody who does not wait for the lock beyond `end`.
pub(crate) fn update_attachments_until<T>(
    end: Instant,
    name: &str,
    change: impl FnOnce(&mut Vec<Attachment>) -> T,
) -> Result<T> {
    let held = hold_attachments(name, end)?;
    let path = list_file(name);
    let mut list = read_list(&path)?;
    let before = list.clone();
    let result = change(&mut list);
    if list != before {
        replace(&path, serde_json::to_string_pretty(&list)?.as_bytes())
            .with_context(|| format!("cannot write {}, the list of what is attached", path.display()))?;
    }
    drop(held);
    Ok(result)
}

/// Keeps others from attaching and detaching, until what it gives is dropped. Somebody who does not come to an end with that is not
/// waited for beyond `end`: a daemon has to be able to stop.
pub(crate) fn hold_attachments(name: &str, end: Instant) -> Result<File> {
    let lock = paths::make_run_dir(name)?.join("attachments.lock");
    let file = open_rw(&lock)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(LIST_LOOK_AGAIN),
            Err(TryLockError::WouldBlock) => {
                let who = holders::others_with_open(&lock);
                let who = if who.is_empty() { "try again when it has ended".into() } else { who.join(", ") };
                bail!("another command has been attaching or detaching something of '{name}' for too long: {who}");
            }
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("cannot lock {}", lock.display())),
        }
    }
}

/// Puts a new file in the place of the old one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    let mut file = open_rw(&new)?;
    // What an earlier process left half written.
    file.set_len(0)?;
    file.write_all(content)?;
    // The folder may lie on a disk: the name must not come before the content.
    file.sync_data()?;
    Ok(std::fs::rename(&new, path)?)
}

/// What cannot be read is no empty list: who took it for one would take devices away from under file systems.
fn read_list(path: &Path) -> Result<Vec<Attachment>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, path),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => {
            Err(e).with_context(|| format!("{} cannot be read, so what is attached is not known", path.display()))
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Attachment>> {
    serde_json::from_str(text).with_context(|| {
        format!(
            "{} is damaged, so what is attached is not known; unmount what is mounted from this group (lsblk shows it), \
             then remove that file and try again",
            path.display()
        )
    })
}

/// Loop devices over the files of group `name` that are not on its list: an `attach` was killed before it could write its device
/// down. A daemon that stops is not to pull them away. Known by the name that the file had then; no file is asked.
fn unrecorded(name: &str, list: &[Attachment]) -> Vec<Attachment> {
    let Ok(folder) = bimetal_host::fuse::true_path(&files_dir(name)) else { return Vec::new() };
    let is_new = |device: &Path| list.iter().all(|a| Path::new(&a.device) != device);
    let here = loops::all_named().into_iter();
    let here = here.filter(|(device, file)| file.parent() == Some(&*folder) && is_new(device));
    let record = |(device, file): (PathBuf, PathBuf)| {
        let volume = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mount_dir = Some(folder.clone());
        let attached = Attached { via: Via::Fuse, device, mount_dir, helper_pid: None, why: String::new() };
        // The mount is that of the daemon that lives now, or is dead with whichever was the last.
        let pid = locked_by(name).and_then(|pid| pid.parse().ok()).unwrap_or_default();
        record(&volume, "", &attached, DaemonProcess { pid, began: began(pid) })
    };
    here.map(record).collect()
}

/// The attachments of group `name`, each with those who hold it now, also loop devices that nobody has written down.
pub(crate) fn attachments(name: &str) -> Result<Vec<Attachment>> {
    attachments_beside(name, &[])
}

/// The same with those of the devices that were `found` connected to its daemon which nobody has written down.
pub(crate) fn attachments_beside(name: &str, found: &[Attachment]) -> Result<Vec<Attachment>> {
    let mut list = read_list(&list_file(name))?;
    list.extend(unrecorded(name, &list));
    list.extend(unwritten(&list, found));
    for a in &mut list {
        // What is another's by now is held by those who use that.
        if !is_anothers(a) {
            a.held_by = holders::of(&a.device);
        }
    }
    Ok(list)
}

/// What was found attached by the kernel's NBD client, but is not on the list. What is there with that number may have been attached
/// before.
pub(crate) fn unwritten(list: &[Attachment], found: &[Attachment]) -> Vec<Attachment> {
    let is_new = |a: &&Attachment| list.iter().all(|b| b.device != a.device || b.via == a.via && is_anothers(b));
    found.iter().filter(|a| a.via == "nbd").filter(is_new).cloned().collect()
}

/// The attachments of group `name` for commands: the daemon knows also the devices of the kernel's NBD client that are connected to it
/// and that nobody has written down. A daemon that does not answer knows of none.
pub(crate) fn all_attachments(name: &str) -> Result<Vec<Attachment>> {
    let told = ask(name, |daemon| daemon.get::<api::Attachments>("/v1/attachments"));
    let found = told.ok().flatten().map(|told| told.attachments).unwrap_or_default();
    attachments_beside(name, &found)
}

/// Numbers of the devices that volumes of group `name` are attached as. Those of loop devices are left out: they are known
/// by their files, and given to others when they are free.
pub(crate) fn attached_numbers(name: &str) -> Result<Vec<DeviceNumber>> {
    let devices = read_list(&list_file(name))?.into_iter().filter(|a| a.via != "fuse");
    let metas = devices.filter_map(|a| std::fs::metadata(a.device).ok()).filter(|m| m.file_type().is_block_device());
    Ok(metas.map(|m| DeviceNumber::new(m.rdev())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_damaged_is_not_taken_for_an_empty_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("attachments.json");
        assert!(read_list(&path).expect("nothing was ever attached").is_empty());
        for text in ["", " ", "[", "[{\"volume\": \"main\""] {
            std::fs::write(&path, text).expect("written");
            let said = format!("{:#}", read_list(&path).expect_err("damaged"));
            assert!(said.contains("attachments.json is damaged"), "{said}");
        }
        // A list that was cut off while it was written harms nobody.
        std::fs::write(path.with_extension("new"), "[{\"vol").expect("written");
        replace(&path, b"[]").expect("replaced");
        assert!(read_list(&path).expect("whole").is_empty());
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder");
        assert!(format!("{:#}", read_list(&path).expect_err("unreadable")).contains("cannot be read"));
    }
}
