//! Everything between an open group and its being served.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use tokio::sync::mpsc;

use super::exports::{Address, Exports};
use super::files::Files;
use super::locators;
use super::losses::Losses;
use super::nameless::MemberFile;
use super::places::Places;
use super::shared::{Ask, Facts, Shared};
use super::sockets::ControlSockets;
use super::ublk::Devices;
use super::ways::Ways;
use crate::cli::Serve;
use crate::config::uuid_text;
use crate::control::{self, Control};
use crate::{log, loss, members as found_members, runstate};

/// What the daemon was asked for.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) args: Serve,
    /// Where clients come to.
    pub(super) addresses: Vec<Address>,
    /// The control socket, and where everybody looks for it.
    pub(super) control: PathBuf,
    pub(super) usual: PathBuf,
}

/// All that serves a group.
pub(super) struct SetUp<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) questions: mpsc::Receiver<Ask>,
    pub(super) api: Control,
    pub(super) sockets: ControlSockets<'a>,
    pub(super) ways: Rc<Ways>,
    pub(super) losses: Losses,
}

/// Makes the sockets, files and devices by which the group is used.
pub(super) async fn set_up<'a>(
    env: &HostEnv,
    group: &Group<HostEnv>,
    found: found_members::Members,
    wanted: &'a Wanted,
) -> Result<SetUp<'a>> {
    let name = &wanted.name;
    // Whoever sees the exports' socket may ask for the status at once.
    let (listener, sockets) = ControlSockets::bind(&wanted.control, &wanted.usual)?;
    let losses = Losses::found(env, loss::Place::of(name));
    if let (false, Some(why)) = (wanted.args.read_only, found.connected_anew()) {
        losses.perhaps(why).await;
    }
    let watched = group.clone();
    losses.watch(async move { watched.until_latched().await });
    let exports = Exports::open(env, group, &wanted.addresses).await?;
    let files = Files::new(env, name, runstate::files_dir(name)).await;
    if let Some(folder) = &wanted.args.fuse {
        files.show(Some(folder), group).await.context("--fuse")?;
    }
    let facts = Facts {
        group: name.clone(),
        since: Instant::now(),
        files: std::sync::Mutex::new(files_of(env, &found).await),
        places: Places::new(locators(&found)),
        sector_bytes: exports.sector_bytes(),
    };
    // A device that turned out to be no member is let go: it may be added again.
    drop(found);
    let (shared, questions) = Shared::new(facts);
    let api = control::start(listener, shared.clone())?;
    catch_signals(env, &shared)?;
    let keeper = shared.clone();
    std::thread::Builder::new().name("keeper".into()).spawn(move || keeper.keep_until_stop())?;
    let devices = Devices::new(env, group, name, &losses);
    let ways = Rc::new(Ways { env: env.clone(), group: name.clone(), nbd: exports, files, devices });
    Ok(SetUp { shared, questions, api, sockets, ways, losses })
}

/// So long a group may take to be stopped that is not served after all. A member that stands still must not keep the process.
const PATIENCE: Duration = Duration::from_secs(30);

/// Stops a group that cannot be served, because an address is taken for instance: after a stop in order nothing is in doubt, should a member
/// die before the next start.
pub(super) async fn leave_in_order(env: &HostEnv, group: &Group<HostEnv>) {
    match env.timeout(PATIENCE, group.stop()).await {
        Some(Ok(())) => {}
        Some(Err(e)) => {
            log::warn(&format!("the group could not be stopped in order, and the next start recovers it: {e}"))
        }
        None => log::warn("a member stands still: the group was not stopped in order, and the next start recovers it"),
    }
}

/// Those of the members that are files.
async fn files_of(env: &HostEnv, found: &found_members::Members) -> Vec<MemberFile> {
    let all: Vec<(u8, String, String)> = found
        .labelled()
        .map(|(at, label)| (label.member, uuid_text(&found_members::own_uuid(label)), at.to_string()))
        .collect();
    let files = move || all.iter().filter_map(|(index, uuid, at)| MemberFile::at(*index, uuid, at)).collect();
    env.blocking(files).await.unwrap_or_default()
}

fn catch_signals(env: &HostEnv, shared: &Arc<Shared>) -> Result<()> {
    let signals = bimetal_host::signals::Signals::catch(env).context("cannot catch signals")?;
    let shared = shared.clone();
    env.spawn(async move {
        while let Ok(signal) = signals.next().await {
            shared.signalled(signal);
        }
    });
    Ok(())
}
