//! `bimetal detach`: takes block devices away again.

use std::path::PathBuf;

use anyhow::{bail, Context, Result};
use bimetal_host::attach::{self, Attached};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::{self, Attachment};
use crate::cli::Detach;
use crate::output::Output;
use crate::{holders, paths, runstate};

/// What is stored of an attachment besides what people see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handle {
    fuse: bool,
    mount_dir: Option<PathBuf>,
    helper_pid: Option<u32>,
    /// The daemon that served it: the device of a daemon that died is dead too.
    pub(crate) daemon_pid: u32,
}

impl Handle {
    pub(crate) fn new(a: &Attached, daemon_pid: u32) -> Handle {
        let fuse = a.via == attach::Via::Fuse;
        Handle { fuse, mount_dir: a.mount_dir.clone(), helper_pid: a.helper_pid, daemon_pid }
    }

    pub(crate) fn of(attachment: &Attachment) -> Result<Handle> {
        let parsed = serde_json::from_value(attachment.handle.clone());
        parsed.with_context(|| format!("the record of {} is damaged", attachment.device))
    }

    pub(crate) fn via(&self) -> attach::Via {
        if self.fuse {
            attach::Via::Fuse
        } else {
            attach::Via::Nbd
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

pub(crate) fn run(args: Detach, output: Output) -> Result<()> {
    let found = find(&args.target);
    if let Some(group) = group_of(&args.target) {
        runstate::remove_dead_mount(group)?;
    }
    let (group, list) = found?;
    let mut devices = Vec::new();
    for a in &list {
        take_down(&group, a)?;
        devices.push(a.device.clone());
    }
    let answer = json!({ "schema": api::SCHEMA, "group": group, "detached": devices });
    output.show(&answer, || format!("Detached {}.", devices.join(", ")))
}

/// The attachments that a text names: a device, a volume, or all of a group.
fn find(target: &str) -> Result<(String, Vec<Attachment>)> {
    if target.starts_with('/') {
        let real = |p: &str| std::fs::canonicalize(p).unwrap_or_else(|_| PathBuf::from(p));
        for group in paths::groups_with_run_state() {
            let found = runstate::attachments(&group).into_iter().find(|a| real(&a.device) == real(target));
            if let Some(a) = found {
                return Ok((group, vec![a]));
            }
        }
        bail!("{target} was not attached by Bimetal; `bimetal status` lists what is");
    }
    let (group, volume) = target.split_once('/').map_or((target, None), |(g, v)| (g, Some(v)));
    if !bimetal_format::label::is_name(group) {
        bail!("'{target}' is neither a device nor GROUP/VOLUME");
    }
    let mut list = runstate::attachments(group);
    list.retain(|a| volume.is_none_or(|v| a.volume == v));
    if list.is_empty() {
        bail!("{target} is not attached");
    }
    Ok((group.to_string(), list))
}

/// The group in `GROUP` or `GROUP/VOLUME`.
fn group_of(target: &str) -> Option<&str> {
    let group = target.split('/').next()?;
    bimetal_format::label::is_name(group).then_some(group)
}

/// Takes one device down and forgets it. Refused while somebody holds it.
pub(crate) fn take_down(group: &str, attachment: &Attachment) -> Result<()> {
    let held = holders::of(&attachment.device);
    if !held.is_empty() {
        bail!("{}; release it first (umount, swapoff)", held.join(", "));
    }
    attach::detach(&Handle::of(attachment)?.attached(attachment))?;
    runstate::update_attachments(group, |list| list.retain(|a| a.device != attachment.device))?;
    runstate::remove_dead_mount(group)
}
