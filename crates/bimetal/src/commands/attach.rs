//! `bimetal attach`: a volume as a block device of this machine.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use bimetal_host::attach::{self, AttachError, Attached, Request};
use bimetal_host::locator::{NbdLocator, NbdServer};
use bimetal_host::Locator;
use serde_json::json;

use super::detach::{held, is_anothers, DaemonProcess, Handle};
use crate::api::{self, Attachment, Status};
use crate::cli::{Attach, Via};
use crate::output::Output;
use crate::{config, paths, runstate};

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

pub(crate) fn run(args: Attach, output: Output) -> Result<()> {
    let group = &args.target.group;
    let Served { status, started } = match running(group)? {
        Some(status) => Served { status, started: false },
        None if args.no_start => {
            bail!("group '{group}' is not being served; start it with `bimetal serve {group}` or without --no-start")
        }
        None => start(group)?,
    };
    let volume = match choose(&status, args.target.volume.as_deref()) {
        Err(e) if started => return Err(stopped_again(group, e)),
        found => found?,
    };
    let uuid = config::uuid_bytes(&volume.uuid).context("the daemon's answer is not understood")?;
    let request = Request {
        inode: bimetal_export::fuse::inode_of(&uuid),
        size: volume.size_bytes,
        export: export_of(&status, &volume.name)?,
        show_file: &|| show_file(group, &volume.name).map_err(|e| format!("{e:#}")),
        read_only: status.read_only,
        sector_size: volume.sector_bytes,
        not_by_ublk: None,
        via: args.via.map(|v| match v {
            Via::Ublk => attach::Via::Ublk,
            Via::Nbd => attach::Via::Nbd,
            Via::Fuse => attach::Via::Fuse,
        }),
    };
    let made = runstate::update_attachments(group, |list| {
        let maker = Maker { group, volume, uuid, daemon: DaemonProcess::of(&status), request: &request };
        maker.attach_or_find(list)
    })??;
    let (attachment, why) = made;
    eprintln!("Attached {group}/{} by {}: {why}.", volume.name, attachment.via);
    let answer = json!({
        "schema": api::SCHEMA, "group": group, "volume": volume.name, "device": attachment.device,
        "via": attachment.via, "why": why,
    });
    output.show(&answer, || attachment.device.clone())
}

/// What the group's daemon says. One that is stopping is waited for: what it has attached goes with it. The last that it
/// does is to end the group, which answers nothing then.
fn running(group: &str) -> Result<Option<Status>> {
    let began = Instant::now();
    loop {
        let Some(daemon) = runstate::daemon(group)? else { return Ok(None) };
        match daemon.get::<Status>("/v1/status") {
            Ok(status) if status.state != "stopping" => return Ok(Some(status)),
            Ok(status) => {
                let held = status.stop_waits_for.join(", ");
                let (limit, why) = match held.is_empty() {
                    true => (STOP, held),
                    false => (HELD, format!(", and waits until it is released: {held}")),
                };
                if began.elapsed() >= limit {
                    bail!("group '{group}' is being stopped{why}; attach its volumes when that has ended");
                }
            }
            // What cannot be understood now will not be later.
            Err(e) if e.is::<serde_json::Error>() || began.elapsed() >= SILENCE => return Err(e),
            Err(_) => {}
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Has the daemon mount its volumes as files, and gives that of the volume.
fn show_file(group: &str, volume: &str) -> Result<PathBuf> {
    let daemon = runstate::daemon(group)?.context("it is gone")?;
    let shown: api::FilesShown = daemon.post("/v1/files", &())?;
    Ok(Path::new(&shown.folder).join(volume))
}

/// A daemon that was started for nothing does not stay.
fn stopped_again(group: &str, error: anyhow::Error) -> anyhow::Error {
    let stop = || -> Result<()> {
        let daemon = runstate::daemon(group)?.context("it is gone")?;
        let _accepted: api::StopAccepted = daemon.post("/v1/stop", &api::StopRequest::default())?;
        Ok(())
    };
    match stop() {
        Ok(()) => error.context("the daemon that was started for this is stopped again"),
        Err(_) => error,
    }
}

/// Makes one attachment.
struct Maker<'a> {
    group: &'a str,
    volume: &'a api::Volume,
    uuid: [u8; 16],
    /// The group's daemon.
    daemon: DaemonProcess,
    request: &'a Request<'a>,
}

impl Maker<'_> {
    /// Runs under the lock of the list, so that a volume is attached once.
    fn attach_or_find(&self, list: &mut Vec<Attachment>) -> Result<(Attachment, String)> {
        self.tidy(list);
        if let Some(at) = list.iter().position(|a| a.is_of_volume(&self.volume.name, &self.volume.uuid)) {
            let old = list[at].clone();
            if self.still_works(&old)? {
                return Ok((old, "it was attached already".into()));
            }
            list.remove(at);
        }
        let attached = self.make()?;
        let attachment = super::detach::record(&self.volume.name, &self.volume.uuid, &attached, self.daemon);
        // The kernel gave the device away: what was attached as that is gone.
        list.retain(|a| a.device != attachment.device);
        list.push(attachment.clone());
        let Attached { why, .. } = attached;
        Ok((attachment, why))
    }

    /// Takes down what was attached under this name of a volume that is deleted. What somebody still holds stays.
    fn tidy(&self, list: &mut Vec<Attachment>) {
        let (name, uuid) = (&self.volume.name, &self.volume.uuid);
        list.retain(|a| {
            let other = a.volume == *name && !a.is_of_volume(name, uuid);
            let gone = || Handle::of(a).is_ok_and(|handle| attach::detach(&handle.attached(a)).is_ok());
            !other || !is_anothers(a) && !held(a).is_empty() || !(a.via == "ublk" || gone())
        });
    }

    /// Whether what was attached before works still. If not, it is taken down.
    fn still_works(&self, old: &Attachment) -> Result<bool> {
        let handle = Handle::of(old)?;
        if attach::is_anothers(&handle.attached(old)) {
            return Ok(false);
        }
        let by_ublk = handle.via() == attach::Via::Ublk;
        // A ublk device is as good as its daemon, whichever that is now.
        if by_ublk || handle.is_served_by(self.daemon) && std::path::Path::new(&old.device).exists() {
            if self.request.via.is_some_and(|v| v != handle.via()) {
                bail!("'{}' is already attached as {} by {}; detach it first", self.volume.name, old.device, old.via);
            }
            return if by_ublk { self.is_served(old) } else { Ok(true) };
        }
        // Its daemon died: the device gives errors only. Whoever still holds it must let go first.
        let held = held(old);
        if !held.is_empty() {
            bail!(
                "{} is left over from a daemon that died, and cannot be replaced while {}; release it first (umount)",
                old.device,
                held.join(", ")
            );
        }
        attach::detach(&handle.attached(old))?;
        Ok(false)
    }

    /// Whether a ublk device is the one that the daemon serves. It makes none while there is one that it does not serve:
    /// what was written down is then the only trace of that, and stays.
    fn is_served(&self, old: &Attachment) -> Result<bool> {
        match super::ublk::attach(self.group, &self.volume.name)? {
            Ok(device) => Ok(device.as_os_str() == &*old.device),
            Err(why) if Path::new(&old.device).exists() => {
                bail!("{} is there, but ublk cannot be used here: {why}", old.device)
            }
            Err(_) => Ok(false),
        }
    }

    /// By ublk, which only the daemon can, or else by a way of this program.
    fn make(&self) -> Result<Attached> {
        let wish = self.request.via;
        if wish.is_some_and(|v| v != attach::Via::Ublk) {
            self.refuse_beside_ublk()?;
            return Ok(attach::attach(self.request)?);
        }
        match super::ublk::attach(self.group, &self.volume.name)? {
            Ok(device) => {
                let why =
                    if wish.is_some() { "you asked for it" } else { "the kernel's ublk driver is the shortest way" };
                Ok(Attached { via: attach::Via::Ublk, device, mount_dir: None, helper_pid: None, why: why.into() })
            }
            Err(why) if wish.is_some() => Err(AttachError::Unavailable { via: attach::Via::Ublk, why }.into()),
            Err(why) => {
                self.refuse_beside_ublk()?;
                Ok(attach::attach(&Request { not_by_ublk: Some(why), ..self.request.clone() })?)
            }
        }
    }

    /// Two devices of one volume would each have a page cache, and a file system on each.
    fn refuse_beside_ublk(&self) -> Result<()> {
        match super::ublk::alive(&self.uuid).first() {
            None => Ok(()),
            Some(found) => {
                let device = found.id.path();
                bail!("'{}' is already attached as {}; detach it first", self.volume.name, device.display())
            }
        }
    }
}

fn choose<'a>(status: &'a Status, wanted: Option<&str>) -> Result<&'a api::Volume> {
    let names = || status.volumes.iter().map(|v| v.name.as_str()).collect::<Vec<_>>().join(", ");
    match (wanted, status.volumes.as_slice()) {
        (Some(name), all) => all
            .iter()
            .find(|v| v.name == name)
            .with_context(|| format!("group '{}' has no volume '{name}'; it has: {}", status.group, names())),
        (None, [only]) => Ok(only),
        (None, _) => {
            bail!("group '{}' has several volumes; name one: {}/NAME with {}", status.group, status.group, names())
        }
    }
}

/// Where the daemon exports the volume; a unix socket if there is one.
fn export_of(status: &Status, volume: &str) -> Result<NbdLocator> {
    let all = status.exports.iter().filter_map(|uri| match Locator::parse(uri) {
        Ok(Locator::Nbd(nbd)) if nbd.export == volume => Some(nbd),
        _ => None,
    });
    let best = all.min_by_key(|nbd| !matches!(nbd.server, NbdServer::Unix(_)));
    best.with_context(|| format!("the daemon does not export '{volume}' by NBD"))
}

/// A group that is served now.
struct Served {
    status: Status,
    /// By a daemon that was started for this.
    started: bool,
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
            if started {
                eprintln!("Started the daemon of group ‘{group}’ (process {}, log {}).", child.id(), log.display());
            }
            return Ok(Served { status, started });
        }
        if child.try_wait()?.is_some() && runstate::locked_by(group).is_none() {
            let text = std::fs::read(&log).unwrap_or_default();
            let text = String::from_utf8_lossy(text.get(logged..).unwrap_or_default()).into_owned();
            let why = text.lines().last().unwrap_or("it says nothing").trim_start_matches("bimetal: ");
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

/// What a group that nobody knows has left: the log, which was made for its daemon.
fn forget_unknown(group: &str) -> Result<()> {
    if !paths::config_file(group)?.exists() {
        let lock = runstate::lock(group)?;
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
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .context("the daemon cannot be started")?;
    Ok((child, logged))
}
