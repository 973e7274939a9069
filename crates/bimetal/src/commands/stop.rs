//! `bimetal stop`: wishes a stop, waits until the daemon is gone, and tells how it ended.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use bimetal_host::attach::began;
use serde_json::json;

use crate::api::{self, StopAccepted, StopRequest};
use crate::cli::Stop;
use crate::output::Output;
use crate::runstate::{self, End, Holder};
use crate::{elsewhere, holders, paths};

const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) fn run(args: Stop, output: Output) -> Result<ExitCode> {
    let group = &args.group;
    let Some(daemon) = runstate::daemon(group)? else {
        if let Some(holder) = runstate::holder(group) {
            bail!("{}", silent(group, &holder));
        }
        if let Some(server) = elsewhere::server_of(group) {
            bail!("{}", server.words(group));
        }
        if !paths::config_file(group)?.exists() && !paths::run_dir(group).exists() {
            bail!("no group named '{group}' is known here; `bimetal status` lists those that are");
        }
        let answer = json!({ "schema": api::SCHEMA, "group": group, "stopped": false, "was_running": false });
        output.show(&answer, || format!("Group '{group}' was not being served."))?;
        return Ok(ExitCode::SUCCESS);
    };
    drop(daemon);
    let process = daemon_of(group);
    let began = process.and_then(began);
    let accepted = runstate::ask(group, |daemon| match another_serves(group, process) {
        // Somebody has started the group anew meanwhile: that one is not meant.
        true => Ok(None),
        false => daemon.post("/v1/stop", &StopRequest { force: args.force }).map(Some),
    })?;
    // Somebody else has told it to stop, and it is about to be gone.
    let gone = StopAccepted { schema: api::SCHEMA, process, began, waits_for: Vec::new() };
    let accepted = accepted.flatten().unwrap_or(gone);
    if !accepted.waits_for.is_empty() {
        crate::output::tell(&format!("Waiting: {}.", accepted.waits_for.join(", ")));
    }
    // One beyond what a clock can show does not come.
    let deadline = Instant::now().checked_add(Duration::from_secs(args.timeout));
    // A service manager may start the next daemon at once.
    while runstate::is_served_by(group, accepted.process) {
        if deadline.is_some_and(|end| Instant::now() >= end) {
            bail!("{}", too_slow(group, args.timeout));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let end = runstate::end_of(group, accepted.process, accepted.began.or(began));
    let cut_off = end.as_ref().map_or_else(Vec::new, |end| end.cut_off.clone());
    match failure(group, end) {
        None => {
            let answer = json!({
                "schema": api::SCHEMA, "group": group, "stopped": true, "was_running": true, "cut_off": cut_off,
            });
            output.show(&answer, || stopped(group, &cut_off))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(error) => {
            let answer = json!({
                "schema": api::SCHEMA, "group": group, "stopped": false, "ended": true, "was_running": true, "error": error,
            });
            output.show(&answer, String::new)?;
            crate::output::tell(&format!("bimetal: {error}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Who has the group and cannot be asked. What would be said of a daemon that is starting is not known: nobody can ask it before it serves.
fn silent(group: &str, holder: &Holder) -> String {
    if !holder.is_daemon() {
        return holder.words(group);
    }
    let pid = &holder.process;
    format!(
        "process {pid} has group '{group}' and cannot be asked to stop: it is still starting (or ending), or its control socket is gone. \
         Try again in a moment; if that goes on, end the process in order: kill {pid}"
    )
}

/// Whether another process than this one serves the group by now, as far as one may know.
fn another_serves(group: &str, process: Option<u32>) -> bool {
    process.is_some_and(|process| daemon_of(group).is_some_and(|now| now != process))
}

/// The process that serves the group now, as far as one may know. A command that has come to have it for itself is none.
fn daemon_of(group: &str) -> Option<u32> {
    runstate::holder(group).filter(Holder::is_daemon)?.process.parse().ok()
}

/// What a person is told of a stop in order. What is in the page cache of somebody who was cut off is flushed by nobody.
fn stopped(group: &str, cut_off: &[String]) -> String {
    match cut_off {
        [] => format!("Stopped group '{group}'; everything is flushed."),
        who => format!(
            "Stopped group '{group}' while it was used: {}. What had reached it is flushed; whoever still uses that gets \
             errors from now on, and what had not been written out yet is lost.",
            who.join(", ")
        ),
    }
}

/// What is wrong with how the daemon ended, in words. Who does not say that all went well is not taken for one who did.
fn failure(group: &str, end: Option<End>) -> Option<String> {
    let what = match end {
        Some(End { error: None, .. }) => return None,
        Some(End { error: Some(error), .. }) => format!("has ended, but could not be stopped in order: {error}"),
        None => "has ended, but did not say whether in order: its process may have been killed".into(),
    };
    let log = runstate::log_file(group);
    Some(format!(
        "group '{group}' {what}. What was flushed before is safe, what was written later may be lost. See the log ({}, or \
         journalctl -u bimetal@{group}) and `bimetal check {group}`; the next start recovers the group",
        log.display()
    ))
}

/// Who keeps the daemon from stopping. It knows best itself.
fn waited_for(group: &str) -> Vec<String> {
    let status = runstate::daemon(group).ok().flatten().and_then(|d| d.get::<api::Status>("/v1/status").ok());
    if let Some(status) = status.filter(|s| !s.stop_waits_for.is_empty()) {
        return status.stop_waits_for;
    }
    match runstate::attachments(group) {
        Ok(attachments) => {
            let seen = holders::of_all(attachments.clone());
            if seen.is_empty() {
                holders::hidden_of_all(&attachments)
            } else {
                seen
            }
        }
        Err(error) => vec![format!("{error:#}")],
    }
}

fn too_slow(group: &str, seconds: u64) -> String {
    let held = waited_for(group);
    if held.is_empty() {
        return format!("group '{group}' did not stop within {seconds} s; see `bimetal status {group}`");
    }
    format!(
        "group '{group}' still serves, because {}. It stops as soon as that is released (umount, swapoff, the end of a program), or now with --force",
        held.join(", ")
    )
}
