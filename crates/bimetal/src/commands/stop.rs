//! `bimetal stop`: wishes a stop and waits until the daemon is gone.

use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use serde_json::json;

use crate::api::{self, StopAccepted, StopRequest};
use crate::cli::Stop;
use crate::output::Output;
use crate::{holders, runstate};

const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) fn run(args: Stop, output: Output) -> Result<()> {
    let group = &args.group;
    let Some(daemon) = runstate::daemon(group)? else {
        if let Some(pid) = runstate::locked_by(group) {
            bail!("group '{group}' is served by process {pid}, but its control socket is gone; end that process");
        }
        let answer = json!({ "schema": api::SCHEMA, "group": group, "stopped": false, "was_running": false });
        return output.show(&answer, || format!("Group '{group}' was not being served."));
    };
    let accepted: StopAccepted = daemon.post("/v1/stop", &StopRequest { force: args.force })?;
    if !accepted.waits_for.is_empty() {
        eprintln!("Waiting: {}.", accepted.waits_for.join(", "));
    }
    let deadline = Instant::now() + Duration::from_secs(args.timeout);
    while runstate::locked_by(group).is_some() {
        if Instant::now() >= deadline {
            bail!("{}", too_slow(group, args.timeout));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let answer = json!({ "schema": api::SCHEMA, "group": group, "stopped": true, "was_running": true });
    output.show(&answer, || format!("Stopped group '{group}'; everything is flushed."))
}

fn too_slow(group: &str, seconds: u64) -> String {
    let held = match runstate::attachments(group) {
        Ok(attachments) => {
            let seen = holders::of_all(attachments.clone());
            if seen.is_empty() {
                holders::hidden_of_all(&attachments)
            } else {
                seen
            }
        }
        Err(error) => vec![format!("{error:#}")],
    };
    if held.is_empty() {
        return format!("group '{group}' did not stop within {seconds} s; see `bimetal status {group}`");
    }
    format!(
        "group '{group}' still serves, because {}. It stops as soon as that is released (umount, swapoff, the end of a program), or now with --force",
        held.join(", ")
    )
}
