//! The daemon of a group, for commands that need one: asked, or started.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::api::{self, Status};
use crate::client::Client;
use crate::{paths, runstate};

/// A daemon that takes longer to recover its group is told of, but not waited for.
const START: Duration = Duration::from_secs(120);
/// A daemon that is stopping is waited for so long, and one that is kept from it so long.
const STOP: Duration = Duration::from_secs(30);
const HELD: Duration = Duration::from_secs(5);
/// One that answers with an error may be at its end, and is asked again for so long.
const SILENCE: Duration = Duration::from_secs(15);
/// A log that is longer is begun anew with the next daemon.
const LOG_MAX: u64 = 1 << 20;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A group that is served now.
pub(super) struct Served {
    pub(super) status: Status,
    /// By a daemon that was started for this.
    pub(super) started: bool,
}

/// The group's daemon; it is started if there is none and that is not unwanted.
pub(super) fn served(group: &str, no_start: bool) -> Result<Served> {
    use_or_start(group, no_start, false)
}

/// The same, but also a daemon that is to stop and waits for somebody: what it waits for may wait for a passphrase, as a
/// mounted device of a locked volume does.
pub(super) fn served_to_unlock(group: &str) -> Result<Served> {
    use_or_start(group, false, true)
}

fn use_or_start(group: &str, no_start: bool, held_will_do: bool) -> Result<Served> {
    match running(group, held_will_do)? {
        Some(status) => Ok(Served { status, started: false }),
        None if no_start => {
            bail!("group '{group}' is not being served; start it with `bimetal serve {group}` or without --no-start")
        }
        None => start(group),
    }
}

/// What the group's daemon says. One that is stopping is waited for: what it has attached goes with it. The last that it
/// does is to end the group, which answers nothing then. With `held_will_do` one that is kept from it is not waited for.
fn running(group: &str, held_will_do: bool) -> Result<Option<Status>> {
    let began = Instant::now();
    loop {
        let Some(daemon) = runstate::daemon(group)? else { return Ok(None) };
        match daemon.get::<Status>("/v1/status") {
            Ok(status) if status.state != "stopping" => return Ok(Some(status)),
            Ok(status) if held_will_do && !status.stop_waits_for.is_empty() => return Ok(Some(status)),
            Ok(status) => {
                let held = status.stop_waits_for.join(", ");
                let (limit, why) = match held.is_empty() {
                    true => (STOP, held),
                    false => (HELD, format!(", and waits until it is released: {held}")),
                };
                if began.elapsed() >= limit {
                    bail!("group '{group}' is being stopped{why}; try again when that has ended");
                }
            }
            // What cannot be understood now will not be later.
            Err(e) if e.is::<serde_json::Error>() || began.elapsed() >= SILENCE => return Err(e),
            Err(_) => {}
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A daemon that was started for nothing does not stay, unless somebody uses it by now.
pub(super) fn stopped_again(group: &str, error: anyhow::Error) -> anyhow::Error {
    match end_unused(group) {
        Ok(true) => error.context("the daemon that was started for this is stopped again"),
        Ok(false) => error.context(format!(
            "the daemon that was started for this is used by now, and runs on (bimetal stop {group})"
        )),
        Err(why) => error.context(format!("the daemon that was started for this is there still ({why:#})")),
    }
}

/// Tells a daemon to stop, and waits until it has: whatever is asked next would find one that does not answer any more.
fn end(group: &str, daemon: Client) -> Result<()> {
    let accepted: api::StopAccepted = daemon.post("/v1/stop", &api::StopRequest::default())?;
    // It waits for others, and so may we for ever.
    let limit = if accepted.waits_for.is_empty() { STOP } else { Duration::ZERO };
    let began = Instant::now();
    while runstate::is_served_by(group, accepted.process) {
        if began.elapsed() >= limit {
            bail!("it is to stop, but has not ended yet; `bimetal status {group}` says what it waits for");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Ends the daemon if it was started for this, unless somebody uses it by now.
pub(super) fn stop_if(started: bool, group: &str) {
    if let Some(Err(e)) = started.then(|| end_unused(group)) {
        crate::output::tell(&format!("bimetal: the daemon that was started for this is there still: {e:#}"));
    }
}

/// Ends a daemon that nobody uses: a key that it has counts as use. Whether none is there now.
fn end_unused(group: &str) -> Result<bool> {
    let Some(daemon) = runstate::daemon(group)? else { return Ok(true) };
    let status: Status = daemon.get("/v1/status")?;
    let copies = status.dissolving.as_ref().is_some_and(api::Dissolving::is_under_way);
    let unlocked = status.families.iter().any(|f| f.unlocked);
    let used =
        copies || unlocked || status.files.is_some() || !status.clients.is_empty() || !status.attachments.is_empty();
    match runstate::daemon(group)?.filter(|_| !used) {
        Some(daemon) => end(group, daemon).map(|()| true),
        None => Ok(!used),
    }
}

/// Refuses what cannot be read, with the command that helps.
pub(super) fn refuse_locked(group: &str, volume: &api::Volume) -> Result<()> {
    match &volume.family {
        Some(family) if volume.locked => {
            bail!("volume '{}' is locked; unlock its family first: bimetal family unlock {group}/{family}", volume.name)
        }
        _ => Ok(()),
    }
}

/// The volume that is meant.
pub(super) fn choose<'a>(status: &'a Status, wanted: Option<&str>) -> Result<&'a api::Volume> {
    let group = &status.group;
    let names = || status.volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>().join(", ");
    match (wanted, status.volumes.as_slice()) {
        (_, []) => bail!("group '{group}' has no volume; make one: bimetal volume create {group}/NAME"),
        (Some(name), all) => all
            .iter()
            .find(|v| v.name == name)
            .with_context(|| format!("group '{group}' has no volume '{name}'; it has: {}", names())),
        (None, [only]) => Ok(only),
        (None, _) => bail!("group '{group}' has several volumes ({}); name one: {group}/NAME", names()),
    }
}

/// Starts the daemon in the background and waits until it serves. If somebody else starts one at the same time, that one
/// is waited for.
fn start(group: &str) -> Result<Served> {
    paths::make_run_dir(group)?;
    let log = runstate::log_file(group);
    let (mut child, logged) = spawn(group, &log)?;
    let begun = Instant::now();
    loop {
        // An answer means that everything is served. A daemon that fails to serve is heard of below.
        if let Some(Ok(status)) = runstate::daemon(group)?.map(|daemon| daemon.get::<Status>("/v1/status")) {
            let started = status.pid == child.id();
            if !started {
                // Somebody else's was faster. Ours waits for the lock, and would serve the group again if that is stopped soon.
                end_child(&child);
            }
            if started {
                crate::output::tell(&format!(
                    "Started the daemon of group ‘{group}’ (process {}, log {}).",
                    child.id(),
                    log.display()
                ));
            }
            return Ok(Served { status, started });
        }
        // Somebody else's daemon that is starting is waited for, a command that has the group for itself is not.
        if child.try_wait()?.is_some() && !runstate::holder(group).is_some_and(|holder| holder.is_daemon()) {
            let text = std::fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(text.get(logged..).unwrap_or_default()).into_owned();
            // Where there is no room for its words, there is none for its lock.
            let unsaid =
                || runstate::lock_for_command(group).err().map_or("it says nothing".into(), |e| format!("{e:#}"));
            let said = text.lines().last().map(|line| line.trim_start_matches("bimetal: ").to_string());
            let why = said.unwrap_or_else(unsaid);
            // What went wrong is worth more than what is left.
            let _ = forget_unknown(group);
            bail!("the daemon of group ‘{group}’ ended at once: {why}");
        }
        if begun.elapsed() > START {
            bail!("the daemon of group ‘{group}’ does not serve yet; it goes on trying, see {}", log.display());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Ends a daemon that has not begun to serve; one that has by now stops in order.
fn end_child(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    // It may have given up already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
}

/// What a group that nobody knows has left: the log, which was made for its daemon.
fn forget_unknown(group: &str) -> Result<()> {
    if !paths::config_file(group)?.exists() {
        let lock = runstate::lock_for_command(group)?;
        runstate::forget(group, &lock);
    }
    Ok(())
}

/// Starts the process; and says how long the log was before. What is there may be of a daemon that is starting, too.
fn spawn(group: &str, log: &Path) -> Result<(Child, usize)> {
    let fail = || format!("cannot write {}", log.display());
    let mut file = std::fs::File::options().append(true).create(true).open(log).with_context(fail)?;
    let length = |file: &std::fs::File| file.metadata().map(|m| m.len()).with_context(fail);
    if length(&file)? > LOG_MAX && runstate::locked_by(group).is_none() {
        file = std::fs::File::create(log)
            .and_then(|_| std::fs::File::options().append(true).open(log))
            .with_context(fail)?;
    }
    let logged = length(&file)? as usize;
    let program = std::env::current_exe().context("the program cannot find itself")?;
    let child = Command::new(program)
        .args(["serve", group, "--background"])
        .env_remove("NOTIFY_SOCKET")
        .current_dir("/")
        .envs(paths::for_elsewhere())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .context("the daemon cannot be started")?;
    Ok((child, logged))
}
