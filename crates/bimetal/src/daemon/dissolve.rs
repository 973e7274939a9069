//! One volume at a time is copied onto a plain device while it is in use, until nobody uses it and both are the same.
//!
//! Nothing of it is written down but on the device itself: after the end of the daemon the same request goes on with it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use bimetal_host::device::Access;
use bimetal_host::{HostDevice, HostEnv};
use bimetal_volume::dissolve::{Dissolve, DissolveError, Frozen, Phase, PIECE};
use bimetal_volume::env::Env;
use bimetal_volume::error::Error;
use bimetal_volume::group::Group;
use bimetal_volume::options::Uuid;
use bimetal_volume::Volume;

use super::members::own;
use super::{volumes, Ways};
use crate::api::{self, DissolveRequest, Dissolving, VolumeChange};
use crate::config::uuid_text;
use crate::{log, members};

/// Between two looks whether somebody still uses the volume, or has cancelled.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
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
    volume: Volume<HostEnv>,
    name: String,
    uuid: Uuid,
    onto: String,
    delete: bool,
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
            volume: self.name.clone(),
            volume_uuid: uuid_text(&self.uuid),
            onto: self.onto.clone(),
            phase: phase.into(),
            done_bytes: at.done,
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
    /// A request is being looked at.
    opening: Cell<bool>,
}

impl Desk {
    /// What the status shows.
    pub(crate) fn row(&self) -> Option<Dissolving> {
        let now = self.job.borrow().as_ref().map(|job| job.row());
        now.or_else(|| self.last.borrow().clone())
    }

    /// Begins, goes on with or cancels a run.
    pub(super) async fn ask(
        self: &Rc<Desk>,
        group: &Group<HostEnv>,
        ways: &Rc<Ways>,
        request: DissolveRequest,
    ) -> Result<Dissolving> {
        let current = self.job.borrow().clone();
        if request.cancel {
            let job = current.filter(|job| job.name == request.volume);
            let job = job.with_context(|| format!("volume '{}' is not being copied", request.volume))?;
            job.cancelled.set(true);
            return Ok(job.row());
        }
        if let Some(job) = current {
            if job.name == request.volume && job.onto == request.onto {
                return Ok(job.row());
            }
            bail!(
                "volume '{}' is being copied onto {}; one at a time: wait for it, or --cancel it",
                job.name,
                job.onto
            );
        }
        if self.opening.replace(true) {
            bail!("another such request is just being looked at; try again");
        }
        let begun = begin(group, ways, &request).await;
        self.opening.set(false);
        let job = begun?;
        *self.job.borrow_mut() = Some(job.clone());
        let (desk, group, ways, row) = (self.clone(), group.clone(), ways.clone(), job.row());
        let env = ways.env.clone();
        env.spawn(async move {
            work(&job, &group, &ways).await;
            *desk.last.borrow_mut() = Some(job.row());
            desk.job.take();
        });
        Ok(row)
    }
}

async fn begin(group: &Group<HostEnv>, ways: &Ways, request: &DissolveRequest) -> Result<Rc<Job>> {
    let name = request.volume.clone();
    let volume = group.volume(&name).with_context(|| format!("there is no volume '{name}'"))?;
    let locator = members::parse(&request.onto)?;
    let onto = locator.to_string();
    let (own, at) = (own(group, &ways.group, ways.nbd.servers()), locator.clone());
    if let Some(why) = ways.env.blocking(move || own.why_not(&at)).await? {
        bail!("nothing of group '{}' can be copied onto {onto}: {why}", ways.group);
    }
    let device = HostDevice::open(&ways.env, &locator, Access::SERVE).await?;
    if let (Ok(label), false) = (members::read_label(&device).await?, request.force) {
        bail!(
            "{onto} is a member of the Bimetal group '{}'; destroy that group first, or add --force",
            label.group_name
        );
    }
    let run = Dissolve::begin(volume.clone(), device, PIECE).with_context(|| onto.clone())?;
    let (uuid, state) = (volume.uuid(), RefCell::new(State::Working));
    log::info(&format!("volume '{name}' is being copied onto {onto}"));
    Ok(Rc::new(Job { volume, name, uuid, onto, delete: request.delete, run, state, cancelled: Cell::new(false) }))
}

/// Carries a run out, and sets down how it ended.
async fn work(job: &Rc<Job>, group: &Group<HostEnv>, ways: &Rc<Ways>) {
    let env = ways.env.clone();
    let cancelled = async {
        while !job.cancelled.get() {
            env.sleep(LOOK_AGAIN).await;
        }
    };
    let ended = unless(to_the_end(job, group, ways), cancelled).await;
    let (state, words) = match ended {
        None => (State::Cancelled, format!("copying volume '{}' onto {} is cancelled", job.name, job.onto)),
        Some(Ok(())) => (State::Done, format!("{} holds what volume '{}' held", job.onto, job.name)),
        Some(Err(why)) => {
            let words = format!("volume '{}' is not copied onto {}: {why}", job.name, job.onto);
            (State::Failed(why), words)
        }
    };
    log::info(&words);
    *job.state.borrow_mut() = state;
}

async fn to_the_end(job: &Job, group: &Group<HostEnv>, ways: &Rc<Ways>) -> Result<(), String> {
    let failed = |e: DissolveError| told(&ways.group, &e);
    job.run.copy().await.map_err(failed)?;
    // Until it is deleted, or nothing more is to be done, nobody writes to the volume.
    let _frozen = still(job, ways).await.map_err(failed)?;
    if job.delete {
        let name = job.volume.name();
        volumes::change(group, ways, VolumeChange::Delete { name, force: true }).await?;
    }
    Ok(())
}

/// Has the volume stand still, equal to the device, as soon as nobody uses it.
async fn still(job: &Job, ways: &Ways) -> Result<Frozen, DissolveError> {
    let mut next = ways.env.now().plus(CATCH_UP);
    loop {
        match ways.users_of(&job.uuid) {
            Some(users) => {
                *job.state.borrow_mut() = State::Waiting(users);
                ways.env.sleep(LOOK_AGAIN).await;
                if ways.env.now() >= next {
                    job.run.catch_up().await?;
                    next = ways.env.now().plus(CATCH_UP);
                }
            }
            None => {
                *job.state.borrow_mut() = State::Working;
                let frozen = job.run.finish().await?;
                // Whoever came meanwhile is not to be refused.
                if ways.users_of(&job.uuid).is_none() {
                    return Ok(frozen);
                }
            }
        }
    }
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
        DissolveError::TooSmall { .. } | DissolveError::Twice | DissolveError::Unkept { .. } => e.to_string(),
    }
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
            "{what}. Everything is there but what still changes; the last of it is copied when nobody uses the volume \
             ({users}): unmount it, and `bimetal detach {group}/{}`.",
            d.volume
        )),
        (None, "done" | "failed" | "cancelled") => None,
        (None, phase) => Some(format!("{what} ({phase}, {} %).", d.done_bytes * 100 / d.total_bytes.max(1))),
    }
}
