//! One volume at a time is copied onto a plain device while it is in use, until nobody uses it and both are the same.
//!
//! Nothing of it is written down but on the device itself: after the end of the daemon the same request goes on with it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv};
use bimetal_volume::dissolve::{Dissolve, DissolveError, Phase, PIECE};
use bimetal_volume::env::{Device, Env};
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::group::Group;
use bimetal_volume::Volume;

use super::members::{carried, own};
use super::Ways;
use crate::api::{self, DissolveRequest, Dissolving};
use crate::commands::create::refuse_used;
use crate::config::uuid_text;
use crate::erase::erase_rest;
use crate::former::{self, Standing};
use crate::{log, members, runstate, waiting};

/// Between two looks whether somebody still uses the volume, or has cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A device that takes longer to open, or to look at, is not waited for.
const OPENING: Duration = Duration::from_secs(10);
/// Nor is a run that does not end when it is cancelled, at the end of the daemon.
const ENDING: Duration = Duration::from_secs(5);
/// While it is in use, what is changed is copied this often.
const CATCH_UP: Duration = Duration::from_secs(5);

type Run = Dissolve<HostEnv, HostDevice>;

/// How far a run is, beyond what the engine knows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Working,
    /// Everything is copied but what still changes: these use the volume.
    Waiting(String),
    Done,
    Failed(String),
    Cancelled,
}

struct Job {
    /// No other run of this daemon has it.
    number: u64,
    volume: Volume<HostEnv>,
    onto: String,
    device: HostDevice,
    run: Run,
    state: RefCell<State>,
    cancelled: Cell<bool>,
}

impl Job {
    fn row(&self) -> Dissolving {
        let (state, at) = (self.state.borrow().clone(), self.run.progress());
        let phase = match (&state, at.phase) {
            (State::Waiting(_), _) => "waiting",
            (State::Done, _) => "done",
            (State::Failed(_), _) => "failed",
            (State::Cancelled, _) => "cancelled",
            (State::Working, Phase::Copying) => "copying",
            (State::Working, Phase::Checking) => "checking",
            (State::Working, Phase::Finishing) => "finishing",
        };
        let (waits_for, error) = match state {
            State::Waiting(users) => (Some(users), None),
            State::Failed(why) => (None, Some(why)),
            _ => (None, None),
        };
        Dissolving {
            run: self.number,
            volume: self.volume.name(),
            volume_uuid: uuid_text(&self.volume.uuid()),
            onto: self.onto.clone(),
            phase: phase.into(),
            // What was written meanwhile is gone over again.
            done_bytes: at.done.min(at.total),
            total_bytes: at.total,
            written_bytes: at.written,
            unsure_bytes: at.unsure,
            waits_for,
            error,
        }
    }
}

/// The run under way, and how the last one ended. That one has let go of its device.
#[derive(Default)]
pub(crate) struct Desk {
    job: RefCell<Option<Rc<Job>>>,
    last: RefCell<Option<Dissolving>>,
    runs: Cell<u64>,
    /// Devices that could not keep what was written: what they show may be what they do not hold.
    distrusted: RefCell<BTreeSet<String>>,
    /// The daemon ends: nothing begins any more.
    ended: Cell<bool>,
    /// A request is being looked at.
    opening: Cell<bool>,
}

impl Desk {
    /// What the status shows.
    pub(crate) fn row(&self) -> Option<Dissolving> {
        let now = self.job.borrow().as_ref().map(|job| job.row());
        now.or_else(|| self.last.borrow().clone())
    }

    /// Begins, goes on with or cancels a run. Nothing begins of which nobody hears.
    pub(super) async fn ask(
        self: &Rc<Desk>,
        group: &Group<HostEnv>,
        ways: &Rc<Ways>,
        request: DissolveRequest,
        is_heard: impl Fn() -> bool,
    ) -> Result<Dissolving> {
        let name = &request.volume;
        let volume = group.volume(name).with_context(|| format!("there is no volume '{name}'"))?;
        if request.volume_uuid.as_ref().is_some_and(|meant| *meant != uuid_text(&volume.uuid())) {
            return Err(StructureError::AnotherVolume(name.clone()).into());
        }
        let current = self.job.borrow().clone();
        let same = current.clone().filter(|job| job.volume.uuid() == volume.uuid());
        if request.cancel {
            let job = same.with_context(|| format!("volume '{name}' is not being copied"))?;
            job.cancelled.set(true);
            return Ok(job.row());
        }
        if let Some(job) = same.filter(|job| job.onto == request.onto) {
            match job.cancelled.get() {
                true => bail!("it is just being broken off; try again in a moment"),
                false => return Ok(job.row()),
            }
        }
        if self.distrusted.borrow().contains(&request.onto) {
            bail!("{} could not keep what was written to it: take another device", request.onto);
        }
        if let Some(job) = current {
            let (other, onto) = (job.volume.name(), &job.onto);
            bail!("volume '{other}' is being copied onto {onto}; one at a time: wait for it, or --cancel it");
        }
        if self.opening.replace(true) {
            bail!("another such request is just being looked at; try again");
        }
        self.runs.set(self.runs.get() + 1);
        let begun = unless(begin(group, ways, &request, volume, self.runs.get()), ways.env.sleep(OPENING)).await;
        self.opening.set(false);
        let job = begun.with_context(|| format!("{} does not answer", request.onto))??;
        if !is_heard() || self.ended.get() {
            bail!("nobody waits for it any more");
        }
        log::info(&format!("volume '{name}' is being copied onto {}", job.onto));
        *self.job.borrow_mut() = Some(job.clone());
        let (desk, ways, row) = (self.clone(), ways.clone(), job.row());
        let env = ways.env.clone();
        env.spawn(async move {
            if let Err(DissolveError::Sync(_)) = work(&job, &ways).await {
                desk.distrusted.borrow_mut().insert(job.onto.clone());
            }
            *desk.last.borrow_mut() = Some(job.row());
            desk.job.take();
        });
        Ok(row)
    }

    /// Ends the run under way: what comes now is the end of the ways, which is not that of their users.
    pub(super) async fn end(&self, env: &HostEnv) {
        self.ended.set(true);
        if let Some(job) = &*self.job.borrow() {
            job.cancelled.set(true);
        }
        let limit = env.now().plus(ENDING);
        while (self.job.borrow().is_some() || self.opening.get()) && env.now() < limit {
            env.sleep(LOOK_AGAIN).await;
        }
    }
}

async fn begin(
    group: &Group<HostEnv>,
    ways: &Ways,
    request: &DissolveRequest,
    volume: Volume<HostEnv>,
    number: u64,
) -> Result<Rc<Job>> {
    let locator = members::parse(&request.onto)?;
    let onto = locator.to_string();
    let (own, at) = (own(group, &ways.group, ways.nbd.servers()), locator.clone());
    if let Some(why) = ways.env.blocking(move || own.why_not(&at)).await? {
        bail!("nothing of group '{}' can be copied onto {onto}: {why}", ways.group);
    }
    // Who asked has looked, and then asked back: meanwhile the name may have become another device's.
    refuse_used(&ways.env, &locator, request.force).await?;
    let device = waiting::open(&ways.env, &locator, Access::SERVE).await?;
    former::refuse_carrier(&locator, &device, request.force).await?;
    match carried(&device, group).await? {
        // Under another name it may be one of those that are in use.
        Some((label, Standing::Member)) => bail!("{}", former::own_member(&label, &locator)),
        Some((label, Standing::Former)) if !request.force => bail!("{}", former::refusal(&label, &locator)),
        Some(_) => {}
        None if request.force => {}
        // Whether that group goes on without it would have to be asked of devices that may hang.
        None => {
            if let Ok(label) = members::read_label(&device).await? {
                bail!(
                "{onto} carries a label of the Bimetal group '{}'; add --force to take it all the same (what it holds of it is lost)",
                label.group_name
            );
            }
        }
    }
    if !request.force {
        former::refuse_others(&ways.env, &locator, &device).await?;
    }
    let run = Dissolve::begin(volume.clone(), device.clone(), PIECE).with_context(|| onto.clone())?;
    let state = RefCell::new(State::Working);
    Ok(Rc::new(Job { number, volume, onto, device, run, state, cancelled: Cell::default() }))
}

/// Carries a run out, and sets down how it ended.
async fn work(job: &Rc<Job>, ways: &Rc<Ways>) -> Result<(), DissolveError> {
    let env = ways.env.clone();
    let cancel = async {
        while !job.cancelled.get() {
            env.sleep(LOOK_AGAIN).await;
        }
        job.run.give_up(true);
    };
    let ended = beside(to_the_end(job, ways), cancel).await;
    let elsewhere = if ended.is_ok() { elsewhere(job).await } else { None };
    let (name, onto) = (job.volume.name(), &job.onto);
    let failed = |why: String| {
        let words = format!("volume '{name}' is not copied onto {onto}: {why}");
        (State::Failed(why), words)
    };
    let (state, words) = match (&ended, elsewhere) {
        (Err(DissolveError::GivenUp), _) => {
            (State::Cancelled, format!("copying volume '{name}' onto {onto} is broken off"))
        }
        (Ok(()), None) => (State::Done, format!("{onto} holds what volume '{name}' held")),
        (Ok(()), Some(why)) => failed(why),
        (Err(e), _) => failed(told(&ways.group, e)),
    };
    log::info(&words);
    *job.state.borrow_mut() = state;
    ended
}

/// Copies while the volume is in use, and the last of it as soon as nobody uses it.
async fn to_the_end(job: &Job, ways: &Ways) -> Result<(), DissolveError> {
    job.run.copy().await?;
    // Before the volume stands still: a device that does so, too, is to hold up nothing then that cannot be given up.
    clear_rest(job).await?;
    let mut next = ways.env.now().plus(CATCH_UP);
    loop {
        if job.cancelled.get() {
            return Err(DissolveError::GivenUp);
        }
        if let Some(users) = users_of(job, ways).await {
            *job.state.borrow_mut() = State::Waiting(users);
            ways.env.sleep(LOOK_AGAIN).await;
            if ways.env.now() >= next {
                job.run.catch_up().await?;
                next = ways.env.now().plus(CATCH_UP);
            }
            continue;
        }
        *job.state.borrow_mut() = State::Working;
        // Most of it before the volume stands still. Whoever comes then does not find it so for long.
        job.run.catch_up().await?;
        match beside(job.run.finish(), give_way(job, ways)).await {
            // Whoever cancels it, too, has lifted the freeze.
            Ok(frozen) if users_of(job, ways).await.is_none() && frozen.stands() => return Ok(()),
            Ok(_) | Err(DissolveError::GivenUp) if !job.cancelled.get() => job.run.give_up(false),
            Ok(_) => return Err(DissolveError::GivenUp),
            Err(e) => return Err(e),
        }
    }
}

/// Gives the end of a run up for whoever comes, who can write at once. The run may have to wait for its device still.
async fn give_way(job: &Job, ways: &Ways) {
    let users = loop {
        match users_of(job, ways).await {
            Some(users) => break users,
            None => ways.env.sleep(LOOK_AGAIN).await,
        }
    };
    job.run.give_up(true);
    *job.state.borrow_mut() = State::Waiting(users);
}

/// What lies behind the last whole block is not of the volume either.
async fn clear_rest(job: &Job) -> Result<(), DissolveError> {
    let offset = job.device.size();
    erase_rest(&job.device).await.map(drop).map_err(|source| DissolveError::Onto { offset, source })
}

/// Why nobody may be told that the copy is where it was to be: its name leads elsewhere by now. Whoever believed it would delete
/// the volume.
async fn elsewhere(job: &Job) -> Option<String> {
    let onto = &job.onto;
    match job.device.is_at_its_name().await {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "{onto} was moved, removed or replaced meanwhile: all was copied into what was there before, and not into what is there \
             now. Look for it, or ask again, to copy the volume onto what is there now"
        )),
        Err(e) => Some(format!("all was copied, but whether {onto} still leads to the copy cannot be found out: {e}")),
    }
}

/// Who uses the volume, in words; a device that this daemon does not serve (any more) is a user like any other.
async fn users_of(job: &Job, ways: &Ways) -> Option<String> {
    let uuid = job.volume.uuid();
    let (group, name, text) = (ways.group.clone(), job.volume.name(), uuid_text(&uuid));
    let recorded = ways.env.blocking(move || {
        let all = runstate::attachments(&group)?;
        let found = all.into_iter().find(|a| a.is_of_volume(&name, &text) && Path::new(&a.device).exists());
        anyhow::Ok(found.map(|a| a.device))
    });
    let recorded = match recorded.await.map_err(anyhow::Error::from).and_then(|found| found) {
        Ok(device) => device.map(|device| format!("it is attached as {device}")),
        Err(e) => Some(format!("perhaps somebody: {e:#}")),
    };
    // Last, since they may have come meanwhile.
    ways.users_of(&uuid).or(recorded)
}

fn told(group: &str, e: &DissolveError) -> String {
    match e {
        DissolveError::Source { source: Error::Stopping, .. } => {
            "the daemon was stopped; ask again to go on".to_string()
        }
        DissolveError::Source { source: Error::Lost, .. } => {
            format!("{e}; `bimetal rescue {group}` says what is lost")
        }
        DissolveError::Source { source: Error::Deleted, .. } => "it was deleted meanwhile".to_string(),
        DissolveError::Resized | DissolveError::Source { source: Error::OutOfRange { .. }, .. } => {
            "it was given another size meanwhile; ask again".to_string()
        }
        DissolveError::Source { .. } | DissolveError::Onto { .. } => {
            format!("{e}; what was copied stays, ask again to go on")
        }
        DissolveError::Sync(_) => {
            format!("{e}. What it shows now may not be what it holds: do not go on with it, take another device")
        }
        DissolveError::TooSmall { .. }
        | DissolveError::Twice
        | DissolveError::GivenUp
        | DissolveError::Unkept { .. } => e.to_string(),
    }
}

/// What `work` comes to; the other is carried on meanwhile.
async fn beside<T>(work: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
    let (mut work, mut other) = (pin!(work), pin!(other));
    let mut over = false;
    std::future::poll_fn(|cx| {
        over = over || other.as_mut().poll(cx).is_ready();
        work.as_mut().poll(cx)
    })
    .await
}

/// What `work` comes to; `None` if the other future ends first.
async fn unless<T>(work: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// The sentence of the status.
pub(crate) fn words(group: &str, d: &api::Dissolving) -> Option<String> {
    let what = format!("Volume '{}' is being copied onto {}", d.volume, d.onto);
    match (&d.waits_for, d.phase.as_str()) {
        (Some(users), _) => Some(format!(
            "{what}. All but its first and last two MiB and what still changes is there; these are copied when nobody uses the volume \
             ({users}): unmount it, and `bimetal detach {group}/{}`.",
            d.volume
        )),
        (None, "failed") => {
            let why = d.error.as_deref().unwrap_or("it failed");
            Some(format!("Volume '{}' was not copied onto {}: {why}.", d.volume, d.onto))
        }
        (None, "done" | "cancelled") => None,
        (None, phase) => Some(format!("{what} ({phase}, {} %).", d.done_bytes * 100 / d.total_bytes.max(1))),
    }
}
