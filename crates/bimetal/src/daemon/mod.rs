//! `bimetal serve`: the daemon of one group.
//!
//! Threads: the main thread runs the group, its devices and its exports on one ring; `control` answers the API;
//! [`keeper`] waits for the moment to stop. They meet in [`shared`].

mod alarms;
mod answers;
mod check;
mod connected;
mod dissolve;
mod ending;
mod exports;
mod families;
mod files;
mod history;
mod jobs;
mod keeper;
mod limit;
mod losses;
mod members;
mod nameless;
mod opened;
mod places;
mod raw;
mod report;
mod setup;
mod shared;
mod sockets;
mod takeover;
mod ublk;
mod volumes;
mod ways;

use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::group::Group;
use bimetal_volume::options::{MemberStatus, OpenOptions};

use crate::cli::Serve;
use crate::config::uuid_text;
use crate::members as found_members;
use crate::output::Output;
use crate::{handover, log, loss, metadata_room, paths, runstate, words};
use answers::Answers;
pub(crate) use bimetal_host::attach::began;
pub(crate) use families::{Change as FamilyTable, Work as FamilyWork};
pub(crate) use jobs::Done;
use losses::Losses;
pub(crate) use members::engine as change_members;
use places::Places;
pub(crate) use report::{families, member_row, volume_row};
use setup::{SetUp, Wanted};
#[cfg(test)]
pub(crate) use shared::Facts;
pub(crate) use shared::{is_silence, Made, Shared, Snapshot};
pub(crate) use volumes::{engine as change_volumes, meant};
use ways::Ways;

/// Runs until the daemon is told to stop.
pub(crate) fn run(args: Serve, _output: Output) -> Result<()> {
    if args.background {
        // A terminal that closes must not take the daemon with it.
        let _ = rustix::process::setsid();
    }
    if let Some(raw) = args.raw.clone() {
        return raw::run(&raw, &args);
    }
    let name = args.group.clone().context("name the group to serve")?;
    let lock = runstate::lock(&name)?;
    runstate::set_end_aside(&name);
    handover::sweep(&name);
    let reactor = Reactor::new()?;
    let warnings = hygiene();
    #[cfg(feature = "mutants")]
    switch_mutant_on()?;
    let env = reactor.env();
    let served = reactor.block_on(async move { serve(env, name, args, &warnings).await });
    // What it still held is gone before the next daemon may come: a socket's file would be that one's.
    drop(reactor);
    drop(lock);
    served
}

/// Test builds: the fault that `BIMETAL_MUTANT` names is on, on this thread, which is the one of the engine.
#[cfg(feature = "mutants")]
fn switch_mutant_on() -> Result<()> {
    use bimetal_volume::mutant::{set, Mutant};
    let Ok(wanted) = std::env::var("BIMETAL_MUTANT") else { return Ok(()) };
    let found = Mutant::ALL.iter().find(|m| m.name() == wanted);
    set(Some(*found.with_context(|| format!("there is no mutant '{wanted}'"))?));
    log::warn(&format!("this daemon is faulty on purpose ({wanted})"));
    Ok(())
}

/// What a process does that other processes' memory depends on (I9); what of it was not possible.
fn hygiene() -> Vec<String> {
    let wanted = bimetal_host::hygiene::Wanted { lock_memory: true, core_dumps: false };
    bimetal_host::hygiene::prepare(wanted).warnings
}

async fn serve(env: HostEnv, name: String, args: Serve, warnings: &[String]) -> Result<()> {
    let addresses = exports::addresses(&args.nbd, args.allow_remote, &runstate::nbd_socket(&name))?;
    let usual = runstate::control_socket(&name);
    let control = args.control.clone().map_or_else(|| usual.clone(), |wanted| sockets::place(wanted, &usual));
    match args.control {
        Some(_) => paths::check_socket_path(&control, "take a shorter path for --control")?,
        None => paths::check_run_socket(&control)?,
    }
    sockets::clear(&control, &usual)?;
    if let Some(folder) = args.fuse.clone() {
        // Before the group is opened: what is refused later leaves it as if it had crashed.
        env.blocking(move || bimetal_host::fuse::look(&folder)).await?.context("--fuse")?;
    }
    let access = if args.read_only { Access::READ } else { Access::SERVE };
    let found = found_members::open(&env, Some(&name), &found_members::parse_all(&args.members)?, access).await?;
    check_name(&name, &found)?;
    // Not before there is something to serve: they would stand before the real trouble.
    warnings.iter().for_each(|line| log::warn(line));
    let options = OpenOptions {
        writable: !args.read_only,
        allow_missing: args.allow_missing,
        kept_copies: args.kept_copies,
        commit_interval: Duration::from_secs(args.commit_interval),
        migrate: !args.no_migrate && !args.read_only,
        ..OpenOptions::default()
    };
    let regular = check::Regular {
        first: Duration::from_secs(args.check_first),
        every: Duration::from_secs(args.check_every * 3600),
    };
    let begun = Instant::now();
    if !args.read_only {
        metadata_room::at_start(&found).await;
    }
    let syncs = loss::watch_syncs(&env, &name);
    let opened = Group::open(env.clone(), found.devices(), options).await;
    drop(syncs);
    let group = opened.map_err(|e| found.refusal(&name, e))?;
    found.way_to_restored().iter().for_each(|way| log::warn(way));
    for line in group.status().recovery {
        log::info(&found.named(&line));
    }
    if !args.read_only {
        members::strike_out(&env, &group, &Places::new(locators(&found)), &found.strangers).await;
    }
    let wanted = Wanted { name, args, addresses, control, usual };
    let set_up = match setup::set_up(&env, &group, found, &wanted).await {
        Ok(set_up) => set_up,
        Err(refused) => {
            setup::leave_in_order(&env, &group).await;
            return Err(refused);
        }
    };
    let SetUp { shared, mut questions, api, sockets, ways, losses } = set_up;
    log::info(&format!(
        "serving group '{}' after {} ms on {}",
        wanted.name,
        begun.elapsed().as_millis(),
        ways.nbd.uris(&group.volume_names()).join(", ")
    ));
    families::locked(&group.status()).iter().for_each(|line| log::info(line));
    notify_ready();
    ways.devices.take_over_all().await;
    let answers = Answers::new(&env, &group, &ways, &shared, regular);
    answers.until_shutdown(&mut questions).await;
    let end = stop(&env, &group, &ways, &losses, &shared, answers.copies());
    let stopped = answers.beside(&mut questions, end).await;
    drop(questions);
    drop(sockets);
    // Whoever asked for the stop may still wait for the answer, which came before it.
    api.finish();
    stopped
}

/// A group that was named must be the one that was found.
fn check_name(name: &str, found: &found_members::Members) -> Result<()> {
    let other = found.opened.iter().filter_map(|m| m.label.as_ref()).find(|l| l.group_name != name);
    if let Some(label) = other {
        bail!("these members belong to group '{}', not to '{name}': serve it under its own name", label.group_name);
    }
    Ok(())
}

/// Where each member was found, by its UUID.
pub(crate) fn locators(found: &found_members::Members) -> Vec<(String, String)> {
    found.labelled().map(|(at, label)| (uuid_text(&found_members::own_uuid(label)), at.to_string())).collect()
}

/// The order matters: clients get their answers, then the group is flushed and marked clean, then the sockets go.
async fn stop(
    env: &HostEnv,
    group: &Group<HostEnv>,
    ways: &Ways,
    losses: &Losses,
    shared: &Shared,
    desk: &dissolve::Desk,
) -> Result<()> {
    notify("STOPPING=1");
    let name = &shared.facts.group;
    let end = async {
        desk.end(env).await;
        shared.cut_off(ways.stop().await);
        group.stop().await
    };
    let given_up = limit::GivenUp::default();
    let stopped = given_up.within_limit(env, group, shared, end).await;
    let error = how_it_failed(&stopped.map(|s| s.map_err(|e| e.to_string())), given_up.words(), &lost(group, shared));
    if error.is_some() && is_writable(group) {
        // It may have latched just now; and what was noted before may not have been written yet.
        losses.lost(error.clone().unwrap_or_default()).await;
    }
    if let Err(e) = runstate::note_end(name, error.clone(), shared.who_is_cut_off()) {
        log::warn(&format!("who waits for this end does not learn how it went: {e:#}"));
    }
    if let Some(why) = error {
        bail!(
            "group '{name}' could not be stopped in order; what was flushed is still on the members, and the next start recovers it: {why}"
        );
    }
    log::info(&format!("group '{name}' is stopped"));
    Ok(())
}

/// Why a group was not stopped in order, if it was not; `stopped` is missing if that did not come to its end.
fn how_it_failed(stopped: &Option<Result<(), String>>, given_up: Option<String>, lost: &[String]) -> Option<String> {
    let failed = stopped.as_ref().and_then(|s| s.as_ref().err()).cloned();
    if failed.is_none() && given_up.is_none() {
        return None;
    }
    let lost = if failed.is_some() { lost } else { &[] };
    let all: Vec<String> = given_up.into_iter().chain(failed).chain(lost.iter().cloned()).collect();
    Some(all.join("; "))
}

/// Connections to members that are lost, in words.
fn lost(group: &Group<HostEnv>, shared: &Shared) -> Vec<String> {
    let places = shared.facts.locators();
    let line = |m: &MemberStatus| Some(format!("{}: {}", words::member_name(m, &places), m.lost.as_ref()?));
    group.status().members.iter().filter_map(line).collect()
}

/// Whether it was opened for writing: else nothing can be lost.
fn is_writable(group: &Group<HostEnv>) -> bool {
    let status = group.status();
    status.latched.is_some() || !status.read_only
}

fn notify_ready() {
    notify("READY=1");
}

/// Tells systemd, if it listens.
fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    // A service manager that does not listen is not ours to mend.
    let _ = address.and_then(|a| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &a));
}
