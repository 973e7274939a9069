//! What the group's thread answers the control side: all of it while it serves, and what becomes of it while it ends, which takes as
//! long as the devices do.

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bimetal_host::HostEnv;
use bimetal_volume::env::Env;
use bimetal_volume::group::Group;
use bimetal_volume::options::Uuid;
use tokio::sync::{mpsc, oneshot};

use super::history::{self, History};
use super::jobs::Job;
use super::opened::OpenFile;
use super::shared::{Ask, Made, Shared, Snapshot};
use super::ublk::Devices;
use super::ways::Ways;
use super::{alarms, check, dissolve, families, members, report, volumes};

/// Answers questions, and has what it takes.
pub(super) struct Answers {
    env: HostEnv,
    group: Group<HostEnv>,
    ways: Rc<Ways>,
    shared: Arc<Shared>,
    history: Rc<RefCell<History>>,
    copies: Rc<dissolve::Desk>,
    families: Rc<families::Desk>,
    checks: Rc<check::Desk>,
}

impl Answers {
    /// Begins to watch the group, too: who asks wants to know what was before.
    pub(super) fn new(
        env: &HostEnv,
        group: &Group<HostEnv>,
        ways: &Rc<Ways>,
        shared: &Arc<Shared>,
        times: check::Regular,
    ) -> Answers {
        let history = Rc::new(RefCell::new(History::default()));
        let sampler = (env.clone(), group.clone(), history.clone());
        env.spawn(async move {
            let (env, group, history) = sampler;
            loop {
                history.borrow_mut().sample(seconds(&env), &group.status().mover);
                env.sleep(Duration::from_secs(history::SAMPLE_SECONDS)).await;
            }
        });
        let watch = (env.clone(), group.clone(), shared.clone());
        env.spawn(async move {
            let (env, group, shared) = watch;
            alarms::watch(&env, &group, &shared).await;
        });
        let checks = Rc::new(check::Desk::default());
        let regular = (checks.clone(), env.clone(), group.clone(), shared.clone());
        env.spawn(async move {
            let (checks, env, group, shared) = regular;
            checks.regularly(&env, &group, &shared, times).await;
        });
        Answers {
            env: env.clone(),
            group: group.clone(),
            ways: ways.clone(),
            shared: shared.clone(),
            history,
            copies: Rc::default(),
            families: Rc::default(),
            checks,
        }
    }

    /// The desk that may still copy a volume.
    pub(super) fn copies(&self) -> &dissolve::Desk {
        &self.copies
    }

    /// Answers until the control side says that it is time to end.
    pub(super) async fn until_shutdown(&self, questions: &mut mpsc::Receiver<Ask>) {
        while let Some(question) = questions.recv().await {
            match question {
                Ask::Shutdown => return,
                question => self.answer(question),
            }
        }
    }

    /// Tells who asks how it is while the group ends; nothing is begun any more.
    pub(super) async fn beside<T>(&self, questions: &mut mpsc::Receiver<Ask>, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                ended = &mut end => return ended,
                Some(question) = questions.recv() => match question {
                    Ask::Snapshot(_) | Ask::OpenFiles(_) | Ask::Fates(..) => self.answer(question),
                    question => refuse(question, &format!("group '{}' is being stopped", self.shared.facts.group)),
                },
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let status = self.group.status();
        let recent = self.history.borrow().recent(seconds(&self.env), &status.mover);
        Snapshot {
            status,
            clients: self.ways.clients(),
            files: self.ways.files.status(),
            recent,
            dissolving: self.copies.row(),
            last_check: self.checks.last(self.env.now()),
            exports: self.ways.nbd.uris(&self.group.volume_names()),
            losses: self.ways.devices.losses.words(),
        }
    }

    fn open_files(&self) -> Vec<OpenFile> {
        self.ways.files.open_of(&self.group.status().volumes)
    }

    /// Answers, or begins what was asked for. Whoever asked may have given up.
    fn answer(&self, question: Ask) {
        let Answers { env, group, ways, shared, .. } = self;
        match question {
            Ask::Shutdown => {}
            Ask::Snapshot(reply) => drop(reply.send(self.snapshot())),
            Ask::OpenFiles(reply) => drop(reply.send(self.open_files())),
            Ask::Volumes(change, job) => {
                let (group, ways) = (group.clone(), ways.clone());
                env.spawn(async move { job.finish(volumes::change(&group, &ways, change).await) });
            }
            Ask::Members(change, job) => {
                let (group, ways, shared) = (group.clone(), ways.clone(), shared.clone());
                env.spawn(async move { job.finish(members::change(&group, &ways, &shared, change).await) });
            }
            Ask::Families(work, job) => {
                let (group, ways, families, copies) =
                    (group.clone(), ways.clone(), self.families.clone(), self.copies.clone());
                let copied: families::Copied = Rc::new(move || copies.row());
                env.spawn(async move { job.finish(families.change(&group, &ways, copied, work).await) });
            }
            Ask::Check(request, job) => {
                let (own, group, shared, checks) = (env.clone(), group.clone(), shared.clone(), self.checks.clone());
                env.spawn(async move { job.finish(checks.check(&own, &group, &shared, request, &job).await) });
            }
            Ask::FamilyHeader(name, reply) => {
                let group = group.clone();
                env.spawn(async move {
                    let _ = reply.send(families::header(&group, &name).await);
                });
            }
            Ask::Attach { volume, uuid, reply } => {
                let devices = ways.devices.clone();
                env.spawn(async move { attach(&devices, &volume, uuid, reply).await });
            }
            Ask::Detach { volume, uuid, force, reply } => {
                let devices = ways.devices.clone();
                env.spawn(async move {
                    let _ = reply.send(devices.detach_asked(&volume, uuid, force).await);
                });
            }
            Ask::Dissolve(request, reply) => {
                let (group, ways, copies) = (group.clone(), ways.clone(), self.copies.clone());
                env.spawn(async move {
                    let asked = copies.ask(&group, &ways, request, || !reply.is_closed()).await;
                    let _ = reply.send(asked.map_err(|e| format!("{e:#}")));
                });
            }
            Ask::Fates(volume, from, reply) => drop(reply.send(report::fates(group, &volume, from))),
            Ask::ShowFiles(reply) => {
                // A folder may hang, and the mount with it.
                let (group, ways) = (group.clone(), ways.clone());
                env.spawn(async move {
                    let shown = ways.files.show(None, &group).await.map_err(|e| format!("{e:#}"));
                    let _ = reply.send(shown);
                });
            }
        }
    }
}

fn seconds(env: &HostEnv) -> u64 {
    env.now().0 / 1_000_000_000
}

/// Makes a ublk device. Of one that nobody heard of nothing is to stay, unless somebody has found it all the same.
async fn attach(devices: &Devices, volume: &str, uuid: Option<Uuid>, reply: oneshot::Sender<Result<Made, String>>) {
    let made = devices.attach(volume, uuid).await;
    let new = match &made {
        Ok(Made::Device { uuid, new: true, .. }) => Some(*uuid),
        _ => None,
    };
    let heard = reply.send(made).is_ok();
    let Some(uuid) = new else { return };
    if heard || devices.detach(&uuid, false).await.is_err() {
        devices.record_new(&uuid).await;
    }
}

/// Says why it is not done.
fn refuse(question: Ask, why: &str) {
    let of_job = |job: Arc<Job>| job.finish(Err(why.into()));
    let why = why.to_string();
    match question {
        Ask::Volumes(_, job) | Ask::Members(_, job) | Ask::Families(_, job) | Ask::Check(_, job) => of_job(job),
        Ask::FamilyHeader(_, reply) => drop(reply.send(Err(why))),
        Ask::Attach { reply, .. } => drop(reply.send(Err(why))),
        Ask::Detach { reply, .. } => drop(reply.send(Err(why))),
        Ask::ShowFiles(reply) => drop(reply.send(Err(why))),
        Ask::Dissolve(_, reply) => drop(reply.send(Err(why))),
        Ask::Snapshot(_) | Ask::OpenFiles(_) | Ask::Fates(..) | Ask::Shutdown => {}
    }
}
