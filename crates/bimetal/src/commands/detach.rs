//! `bimetal detach`: takes block devices away again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::attach::{self, Attached};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::ublk::Orphan;
use crate::api::{self, Attachment};
use crate::cli::Detach;
use crate::config::{uuid_bytes, uuid_text};
use crate::output::Output;
use crate::{beside, holders, paths, runstate};

/// How long a program that just looks at a device may take.
const GLANCE: Duration = Duration::from_secs(2);

/// What is stored of an attachment besides what people see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handle {
    fuse: bool,
    #[serde(default)]
    ublk: bool,
    mount_dir: Option<PathBuf>,
    helper_pid: Option<u32>,
    /// The daemon that served it: the device of a daemon that died is dead too.
    daemon_pid: u32,
    /// When that daemon began ([`attach::began`]). Records of earlier versions lack it.
    #[serde(default)]
    daemon_began: Option<u64>,
}

/// A daemon, as a process that no later one is taken for: a container that is started again gives the same process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DaemonProcess {
    pub(crate) pid: u32,
    pub(crate) began: Option<u64>,
}

impl DaemonProcess {
    /// This one.
    pub(crate) fn own() -> DaemonProcess {
        let pid = std::process::id();
        DaemonProcess { pid, began: attach::began(pid) }
    }

    pub(crate) fn of(status: &api::Status) -> DaemonProcess {
        DaemonProcess { pid: status.pid, began: status.process_began }
    }
}

impl Handle {
    pub(crate) fn new(a: &Attached, daemon: DaemonProcess) -> Handle {
        let (fuse, ublk) = (a.via == attach::Via::Fuse, a.via == attach::Via::Ublk);
        let (mount_dir, helper_pid) = (a.mount_dir.clone(), a.helper_pid);
        Handle { fuse, ublk, mount_dir, helper_pid, daemon_pid: daemon.pid, daemon_began: daemon.began }
    }

    /// Whether it was served by this daemon, as far as both say who they are.
    pub(crate) fn is_served_by(&self, daemon: DaemonProcess) -> bool {
        let other = self.daemon_began.zip(daemon.began).is_some_and(|(before, now)| before != now);
        self.daemon_pid == daemon.pid && !other
    }

    pub(crate) fn of(attachment: &Attachment) -> Result<Handle> {
        let parsed = serde_json::from_value(attachment.handle.clone());
        parsed.with_context(|| format!("the record of {} is damaged", attachment.device))
    }

    pub(crate) fn via(&self) -> attach::Via {
        match (self.ublk, self.fuse) {
            (true, _) => attach::Via::Ublk,
            (false, true) => attach::Via::Fuse,
            (false, false) => attach::Via::Nbd,
        }
    }

    pub(crate) fn attached(&self, a: &Attachment) -> Attached {
        Attached {
            via: self.via(),
            device: PathBuf::from(&a.device),
            mount_dir: self.mount_dir.clone(),
            helper_pid: self.helper_pid,
            why: String::new(),
        }
    }
}

/// The record of a ublk device that this daemon serves.
pub(crate) fn record_of(volume: &str, uuid: &[u8; 16], device: &Path) -> Attachment {
    let device = device.to_owned();
    let attached = Attached { via: attach::Via::Ublk, device, mount_dir: None, helper_pid: None, why: String::new() };
    record(volume, &uuid_text(uuid), &attached, DaemonProcess::own())
}

/// The record of an attached device.
pub(crate) fn record(volume: &str, uuid: &str, attached: &Attached, daemon: DaemonProcess) -> Attachment {
    Attachment {
        volume: volume.to_string(),
        device: attached.device.display().to_string(),
        via: attached.via.to_string(),
        held_by: Vec::new(),
        volume_uuid: uuid.to_string(),
        handle: serde_json::to_value(Handle::new(attached, daemon)).unwrap_or_default(),
    }
}

pub(crate) fn run(args: Detach, output: Output) -> Result<()> {
    let Some(target) = &args.target else { return run_all(args.force, output) };
    let found = find(target);
    if let Some(group) = group_of(target) {
        runstate::remove_dead_mount(group)?;
    }
    let (group, list) = found?;
    let (mut devices, mut stay, mut another) = (Vec::new(), Vec::new(), None);
    for a in &list {
        match take_down(&group, a, args.force) {
            Ok(Down::Away) => devices.push(a.device.clone()),
            Ok(Down::Another) => another = Some(&a.device),
            Err(error) => stay.push(error),
        }
    }
    refuse_rest(&devices, stay)?;
    if let (Some(device), []) = (another, devices.as_slice()) {
        return Err(is_given_away(target, device));
    }
    let answer = json!({ "schema": api::SCHEMA, "group": group, "detached": devices });
    output.show(&answer, || format!("Detached {}.", devices.join(", ")))
}

/// What is said of a device that is not the one any more that was attached: whoever unplugs a disk relies on what was detached.
fn is_given_away(target: &str, device: &str) -> anyhow::Error {
    anyhow::anyhow!("{target} is not attached: its device went away by itself, and {device} is another's by now")
}

/// Some devices had to stay: why, and which are gone all the same.
fn refuse_rest(gone: &[String], mut stay: Vec<anyhow::Error>) -> Result<()> {
    if gone.is_empty() && stay.len() == 1 {
        return Err(stay.remove(0));
    }
    if stay.is_empty() {
        return Ok(());
    }
    let why: Vec<String> = stay.iter().map(|error| format!("{error:#}")).collect();
    let done = if gone.is_empty() { String::new() } else { format!(" (detached: {})", gone.join(", ")) };
    bail!("{}{done}", why.join("; "))
}

/// `--all`: every device of every group, and what daemons that died have left. What is in use stays, and is named.
fn run_all(force: bool, output: Output) -> Result<()> {
    let (mut gone, mut stay) = (Vec::new(), Vec::new());
    for group in paths::groups_with_run_state() {
        if let Err(error) = take_all_down(&group, &mut gone, &mut stay) {
            stay.push(error);
        }
    }
    for orphan in super::ublk::remove_orphans(force)? {
        match orphan {
            Orphan::Removed(device) => gone.push(device),
            Orphan::Kept(why) => stay.push(anyhow::Error::msg(why)),
        }
    }
    forget_missing()?;
    refuse_rest(&gone, stay)?;
    let answer = json!({ "schema": api::SCHEMA, "detached": gone });
    output.show(&answer, || match gone.as_slice() {
        [] => "Nothing is attached.".into(),
        all => format!("Detached {}.", all.join(", ")),
    })
}

/// Those of one group. What is wrong with its list keeps no other group's devices.
fn take_all_down(group: &str, gone: &mut Vec<String>, stay: &mut Vec<anyhow::Error>) -> Result<()> {
    for a in runstate::all_attachments(group)? {
        if a.via == "ublk" && runstate::daemon(group)?.is_none() {
            // With the others that no daemon serves.
            continue;
        }
        match take_down(group, &a, false) {
            Ok(Down::Away) => gone.push(a.device),
            // Another record names it, or it is none of ours.
            Ok(Down::Another) => {}
            Err(error) => stay.push(error),
        }
    }
    Ok(())
}

/// Forgets ublk devices that are not there any more.
fn forget_missing() -> Result<()> {
    for group in paths::groups_with_run_state() {
        // A list that cannot be read names none.
        for a in runstate::attachments(&group).unwrap_or_default() {
            if a.via == "ublk" && !Path::new(&a.device).exists() {
                forget(&group, &a, Instant::now() + runstate::LIST_PATIENCE)?;
            }
        }
    }
    Ok(())
}

/// The attachments that a text names: a device, a volume, or all of a group.
fn find(target: &str) -> Result<(String, Vec<Attachment>)> {
    if target.starts_with('/') {
        return find_device(target);
    }
    let (group, volume) = target.split_once('/').map_or((target, None), |(g, v)| (g, Some(v)));
    if !bimetal_format::label::is_name(group) {
        bail!("'{target}' is neither a device nor GROUP/VOLUME");
    }
    let mut list = runstate::all_attachments(group)?;
    if let Some(name) = volume {
        let uuid = uuid_of(group, name);
        list.retain(|a| a.is_of_volume(name, uuid.as_deref().unwrap_or_default()));
    }
    if list.is_empty() {
        bail!("{target} is not attached");
    }
    Ok((group.to_string(), list))
}

/// The attachment that a device is now. What names it but was attached as it before is forgotten.
fn find_device(target: &str) -> Result<(String, Vec<Attachment>)> {
    let real = |p: &str| std::fs::canonicalize(p).unwrap_or_else(|_| PathBuf::from(p));
    let (mut unread, mut before) = (Ok(()), Vec::new());
    for group in paths::groups_with_run_state() {
        let mut list = runstate::all_attachments(&group).unwrap_or_else(|error| {
            unread = Err(error);
            Vec::new()
        });
        list.retain(|a| real(&a.device) == real(target));
        let (others, own): (Vec<_>, Vec<_>) = list.into_iter().partition(is_anothers_by_now);
        before.extend(others.into_iter().map(|a| (group.clone(), a)));
        if let Some(a) = own.into_iter().next() {
            forget_those(&before);
            return Ok((group, vec![a]));
        }
    }
    // It may be the one that is named there.
    unread?;
    if before.is_empty() {
        bail!("{target} was not attached by Bimetal; `bimetal status` lists what is");
    }
    forget_those(&before);
    Err(is_given_away(target, target))
}

/// Forgets what went away by itself. A list that somebody holds for long keeps nobody from detaching something else.
fn forget_those(before: &[(String, Attachment)]) {
    for (group, a) in before {
        let _ = forget(group, a, Instant::now() + GLANCE);
    }
}

/// The UUID of the volume that has this name now, if somebody can tell: a record may have been written with the name before.
fn uuid_of(group: &str, volume: &str) -> Option<String> {
    let status: api::Status = runstate::daemon(group).ok()??.get("/v1/status").ok()?;
    status.volumes.into_iter().find(|v| v.name == volume).map(|v| v.uuid)
}

/// The group in `GROUP` or `GROUP/VOLUME`.
fn group_of(target: &str) -> Option<&str> {
    let group = target.split('/').next()?;
    bimetal_format::label::is_name(group).then_some(group)
}

/// What has come of a device that was to be taken down.
enum Down {
    /// It was taken away, or had gone.
    Away,
    /// It is another's by now, and stays. What was written down of it is forgotten.
    Another,
}

/// Takes one device down and forgets it, for a command. Refused while somebody holds it; only a ublk device can be `force`d away.
fn take_down(group: &str, attachment: &Attachment, force: bool) -> Result<Down> {
    let mut another = is_anothers_by_now(attachment);
    if !another {
        refuse_held(attachment, force)?;
        // To look took a while: somebody else may have detached it, and attached another volume, which was given its number.
        another = shows_another(attachment);
    }
    if !another {
        release(group, attachment, force)?;
    }
    forget(group, attachment, Instant::now() + runstate::LIST_PATIENCE)?;
    Ok(if another { Down::Another } else { Down::Away })
}

/// Takes one device down. Refused while somebody holds it. Asks no daemon for what the device shows.
pub(crate) fn take_away(group: &str, attachment: &Attachment) -> Result<()> {
    refuse_held(attachment, false)?;
    release(group, attachment, false)
}

/// Refuses to take a device from under somebody who holds it, but by `force`.
fn refuse_held(attachment: &Attachment, force: bool) -> Result<()> {
    let forced = force && attachment.via == "ublk";
    if forced || is_anothers(attachment) {
        return Ok(());
    }
    let held = held(attachment);
    if held.is_empty() {
        return Ok(());
    }
    let words = format!("{}; release it first (umount, swapoff, or end the program)", held.join(", "));
    Err(holders::InUse(words).into())
}

/// Takes a device away by the means that made it.
fn release(group: &str, attachment: &Attachment, force: bool) -> Result<()> {
    let handle = Handle::of(attachment)?;
    match handle.via() {
        attach::Via::Ublk => super::ublk::detach(group, attachment, force),
        _ => Ok(attach::detach(&handle.attached(attachment))?),
    }
}

/// Whether a device surely shows another volume than the one that was attached. For commands only: it asks the daemon.
pub(super) fn shows_another(attachment: &Attachment) -> bool {
    let Some(uuid) = uuid_bytes(&attachment.volume_uuid) else { return false };
    let inode = bimetal_export::fuse::inode_of(&uuid);
    Handle::of(attachment).is_ok_and(|handle| attach::shows_another(&handle.attached(attachment), inode))
}

/// As [`is_anothers`], for commands: they may ask the ublk driver, too.
pub(super) fn is_anothers_by_now(attachment: &Attachment) -> bool {
    is_anothers(attachment) || attachment.via == "ublk" && super::ublk::is_anothers(attachment)
}

/// Whether a device is not the one that was attached any more: its number was given to somebody else.
pub(crate) fn is_anothers(attachment: &Attachment) -> bool {
    Handle::of(attachment).is_ok_and(|handle| attach::is_anothers(&handle.attached(attachment)))
}

/// Who holds an attached device, in words. Devices that say so only when they are asked are asked; a ublk device is when its
/// page cache is written out. The kernel's NBD client is ended under whoever has it open, so programs hold that one, too.
pub(crate) fn held(attachment: &Attachment) -> Vec<String> {
    let mut held = holders::of(&attachment.device);
    if held.is_empty() && attachment.via != "ublk" {
        held.extend(beside::hidden_holder(&attachment.device));
    }
    if held.is_empty() && attachment.via == "nbd" {
        held = stay_open(&attachment.device);
    }
    held
}

/// Programs that have a device open and do not close it soon: those that look at every block device of the machine do.
fn stay_open(device: &str) -> Vec<String> {
    let end = Instant::now() + GLANCE;
    loop {
        let open = holders::openers(device);
        if open.is_empty() || Instant::now() >= end {
            return open;
        }
        std::thread::sleep(GLANCE / 20);
    }
}

/// Strikes a device that was taken away off the list, for whose lock nobody waits beyond `end`.
pub(crate) fn forget(group: &str, attachment: &Attachment, end: Instant) -> Result<()> {
    // Another volume may have been given that device since it was taken away.
    runstate::update_attachments_until(end, group, |list| list.retain(|a| !a.is_same(attachment)))?;
    runstate::remove_dead_mount(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_with_the_process_id_of_another_is_not_taken_for_it() {
        let device = PathBuf::from("/dev/loop7");
        let attached =
            Attached { via: attach::Via::Fuse, device, mount_dir: None, helper_pid: None, why: String::new() };
        let daemon = |pid, began| DaemonProcess { pid, began };
        let handle = Handle::new(&attached, daemon(7, Some(100)));
        assert!(handle.is_served_by(daemon(7, Some(100))));
        assert!(!handle.is_served_by(daemon(7, Some(101))) && !handle.is_served_by(daemon(8, Some(100))));
        // What an earlier version has written, or says, is as good as it was.
        assert!(handle.is_served_by(daemon(7, None)));
        let mut old = serde_json::to_value(&handle).expect("JSON");
        old.as_object_mut().expect("an object").remove("daemon_began");
        let old: Handle = serde_json::from_value(old).expect("understood");
        assert!(old.is_served_by(daemon(7, Some(101))) && !old.is_served_by(daemon(8, None)));
        let own = DaemonProcess::own();
        assert!(own.began.is_some() && Handle::new(&attached, own).is_served_by(DaemonProcess::own()));
    }
}
