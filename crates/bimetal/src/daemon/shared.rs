//! What the group's thread and the control thread share: a queue of questions, and the state of a wished stop.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bimetal_host::signals;
use bimetal_volume::options::{Status, Uuid};
use tokio::sync::{mpsc, oneshot};

use super::ending::Ending;
use super::families::Work;
use super::jobs::{Job, Jobs};
use super::keeper::users_among;
use super::nameless::MemberFile;
use super::opened::OpenFile;
use super::places::Places;
use super::report;
use crate::api::{self, MemberChange, VolumeChange};
use crate::config::{uuid_bytes, uuid_text};
use crate::runstate;

/// Questions that may wait for the group's thread.
const QUEUE: usize = 64;
/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for devices: the kernel looks for partitions before it shows one.
const DEVICE_PATIENCE: Duration = Duration::from_secs(15);

/// What is said when the group's thread does not answer.
pub(super) const SILENT: &str = "the group does not answer: a device may hang; see the log and dmesg";
/// The same while it ends.
const ENDING: &str =
    "the group is being stopped and does not answer any more; if that lasts, a device may hang: see the log and dmesg. With \
     `bimetal stop --force` the daemon gives a device up that has not answered for 30 s";

/// The same when it has ended.
const ENDED: &str = "the daemon serves nothing any more and ends";

/// Whether that is all that is known of what was asked for.
pub(crate) fn is_silence(words: &str) -> bool {
    [SILENT, ENDING, ENDED].contains(&words)
}

/// What the control side may want of the group's thread.
pub(crate) enum Ask {
    /// Tell what you are doing.
    Snapshot(oneshot::Sender<Snapshot>),
    /// Tell which files of volumes are open.
    OpenFiles(oneshot::Sender<Vec<OpenFile>>),
    /// Change the volumes, and set down in the jobs what has come of it.
    Volumes(VolumeChange, Arc<Job>),
    /// The same of the members.
    Members(MemberChange, Arc<Job>),
    /// The same of the families.
    Families(Work, Arc<Job>),
    /// Verify the group while it is in use.
    Check(api::CheckRequest, Arc<Job>),
    /// Tell the header of a family.
    FamilyHeader(String, oneshot::Sender<Result<api::FamilyHeader, String>>),
    /// Make a ublk device of a volume.
    Attach {
        volume: String,
        /// The volume's, if it is known: one that has the name and another UUID is not meant.
        uuid: Option<Uuid>,
        reply: oneshot::Sender<Result<Made, String>>,
    },
    /// Take the ublk device of a volume away.
    Detach {
        volume: String,
        /// The volume's, if it is known: it counts instead of the name.
        uuid: Option<Uuid>,
        /// Although somebody uses it.
        force: bool,
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Show the volumes as files; the folder, or why not.
    ShowFiles(oneshot::Sender<Result<std::path::PathBuf, String>>),
    /// Tell what has become of a volume's content from this byte on; `None` if there is no such volume or byte.
    Fates(String, u64, oneshot::Sender<Option<api::Fates>>),
    /// Copy a volume onto a plain device.
    Dissolve(api::DissolveRequest, oneshot::Sender<Result<api::Dissolving, String>>),
    /// End in order.
    Shutdown,
}

/// What came of the wish for a ublk device.
#[derive(Debug)]
pub(crate) enum Made {
    Device {
        path: std::path::PathBuf,
        /// The volume's.
        uuid: Uuid,
        /// It was made for this wish.
        new: bool,
    },
    /// This machine cannot do it, for this reason.
    Impossible(String),
}

/// The group's state at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) clients: Vec<api::Client>,
    pub(crate) files: Option<api::Files>,
    pub(crate) recent: Vec<api::RecentMoves>,
    pub(crate) dissolving: Option<api::Dissolving>,
    pub(crate) last_check: Option<api::LastCheck>,
    /// Where clients connect.
    pub(crate) exports: Vec<String>,
    /// What is to be said of ublk devices that refuse flushes.
    pub(crate) losses: Vec<String>,
}

/// What is known of the group from outside it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: String,
    pub(crate) since: Instant,
    /// Where the members are.
    pub(crate) places: Places,
    /// Members that are files.
    pub(crate) files: Mutex<Vec<MemberFile>>,
    /// Logical sector of the volumes.
    pub(crate) sector_bytes: u32,
}

impl Facts {
    /// Which file is a member that is one.
    pub(crate) fn note_file(&self, file: MemberFile) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// Members that are files.
    pub(crate) fn files(&self) -> Vec<MemberFile> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A member has gone; its file, if it was one.
    pub(crate) fn forget_file(&self, uuid: &str) -> Option<MemberFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files.iter().position(|f| f.uuid == uuid)?;
        Some(files.remove(at))
    }

    /// Where the members are.
    pub(crate) fn locators(&self) -> Vec<(String, String)> {
        self.places.all()
    }
}

/// See the head of this file.
pub(crate) struct Shared {
    pub(crate) facts: Facts,
    questions: mpsc::Sender<Ask>,
    stop: Mutex<Ending>,
    stop_changed: Condvar,
    pub(crate) jobs: Jobs,
}

impl Shared {
    /// The control side's end, and the queue that the group's thread reads: its executor can be woken from here.
    pub(crate) fn new(facts: Facts) -> (Arc<Shared>, mpsc::Receiver<Ask>) {
        let (questions, queue) = mpsc::channel(QUEUE);
        (
            Arc::new(Shared {
                facts,
                questions,
                stop: Mutex::default(),
                stop_changed: Condvar::new(),
                jobs: Jobs::default(),
            }),
            queue,
        )
    }

    pub(super) fn ask(&self, question: Ask) -> bool {
        self.questions.try_send(question).is_ok()
    }

    /// Asks the group's thread for its state; `None` if it does not answer in time.
    pub(crate) async fn snapshot(&self) -> Option<Snapshot> {
        let (sender, receiver) = oneshot::channel();
        if !self.ask(Ask::Snapshot(sender)) {
            return None;
        }
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// `POST /v1/files`: the folder with the volumes as files; `None` if the group's thread does not answer in time.
    pub(crate) async fn show_files(&self) -> Option<Result<std::path::PathBuf, String>> {
        if let Err(why) = self.refuse_if_stopping() {
            return Some(Err(why));
        }
        let (sender, receiver) = oneshot::channel();
        if !self.ask(Ask::ShowFiles(sender)) {
            return None;
        }
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// `GET /v1/volumes/NAME/fates/FROM`; `None` if the group's thread does not answer in time.
    pub(crate) async fn fates(&self, volume: String, from: u64) -> Option<Option<api::Fates>> {
        let (sender, receiver) = oneshot::channel();
        if !self.ask(Ask::Fates(volume, from, sender)) {
            return None;
        }
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// `POST /v1/attach`. Whoever gives up waiting gets no device.
    pub(crate) async fn attach(&self, request: api::VolumeRequest) -> Result<Made, String> {
        self.refuse_if_stopping()?;
        let (reply, receiver) = oneshot::channel();
        let uuid = uuid_bytes(&request.volume_uuid);
        self.wait_for(Ask::Attach { volume: request.volume, uuid, reply }, receiver).await
    }

    /// `POST /v1/detach`.
    pub(crate) async fn detach(&self, request: api::VolumeRequest) -> Result<(), String> {
        let (reply, receiver) = oneshot::channel();
        let api::VolumeRequest { volume, volume_uuid, force } = request;
        let uuid = uuid_bytes(&volume_uuid);
        self.wait_for(Ask::Detach { volume, uuid, force, reply }, receiver).await
    }

    /// `POST /v1/dissolve`.
    pub(crate) async fn dissolve(&self, request: api::DissolveRequest) -> Result<api::Dissolving, String> {
        let (reply, receiver) = oneshot::channel();
        self.wait_for(Ask::Dissolve(request, reply), receiver).await
    }

    /// `GET /v1/families/NAME/header`.
    pub(crate) async fn family_header(&self, family: String) -> Result<api::FamilyHeader, String> {
        let (reply, receiver) = oneshot::channel();
        self.wait_for(Ask::FamilyHeader(family, reply), receiver).await
    }

    async fn wait_for<T>(&self, question: Ask, answer: oneshot::Receiver<Result<T, String>>) -> Result<T, String> {
        let silent = || Err(self.silence().to_string());
        if !self.ask(question) {
            return silent();
        }
        match tokio::time::timeout(DEVICE_PATIENCE, answer).await {
            Ok(Ok(result)) => result,
            _ => silent(),
        }
    }

    /// `GET /v1/status`.
    pub(crate) async fn status(&self) -> Option<api::Status> {
        let snapshot = self.snapshot().await?;
        let (attachments, trouble) = match self.attachments_beside(Some(&snapshot)) {
            Ok(all) => (all, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}."))),
        };
        let mut status = report::status(&self.facts, &snapshot, attachments);
        let copied = status.dissolving.as_ref().and_then(|d| super::dissolve::words(&self.facts.group, d));
        let checked = status.last_check.as_ref().and_then(|c| super::check::words(&self.facts.group, c));
        let nameless = self.nameless();
        let losses = snapshot.losses.iter().map(|words| format!("{words}."));
        status.summary.splice(0..0, nameless.into_iter().chain(losses).chain(trouble).chain(checked).chain(copied));
        let stop = self.lock_stop();
        if stop.wished {
            status.state = "stopping".into();
            status.stop_waits_for.clone_from(&stop.waits_for);
            let mut waits: Vec<String> =
                stop.waits_for.iter().map(|w| format!("Stopping waits until it is released: {w}.")).collect();
            if waits.is_empty() {
                waits.push("Stopping: what is under way is ended, and the members are brought up to date.".into());
            }
            status.summary.splice(0..0, waits);
        }
        Some(status)
    }

    /// Refuses, in words, what would hurt an attached device.
    pub(crate) async fn may_change(&self, change: &VolumeChange) -> Result<(), String> {
        let (name, forced) = match change {
            VolumeChange::Create { .. } | VolumeChange::Encrypt { .. } => return Ok(()),
            VolumeChange::Resize { name, force, .. } | VolumeChange::Delete { name, force, .. } => (name, *force),
            VolumeChange::Rename { name, .. } => (name, false),
        };
        if forced {
            return Ok(());
        }
        // A device that is left over from a deleted volume of that name is none of this one.
        let of_name = |s: Snapshot| s.status.volumes.into_iter().find(|v| v.name == *name);
        let uuid = self.snapshot().await.and_then(of_name).map_or(String::new(), |v| uuid_text(&v.uuid));
        let attachments = self.attachments().map_err(|error| format!("{error:#}"))?;
        let Some(at) = attachments.into_iter().find(|a| a.is_of_volume(name, &uuid)) else { return Ok(()) };
        // The engine's side knows whether it shrinks: the attached device is a client like any other.
        if matches!(change, VolumeChange::Resize { .. }) {
            return Ok(());
        }
        let held = at.held_by.join(", ");
        let held = if held.is_empty() { String::new() } else { format!(" ({held})") };
        Err(format!(
            "volume '{name}' is attached as {}{held}; detach it first: bimetal detach {}/{name}",
            at.device, self.facts.group
        ))
    }

    /// Begins a change of the volumes, or says why none begins now.
    pub(crate) fn change_volumes(&self, change: VolumeChange) -> Result<Arc<Job>, String> {
        self.begin(|job| Ask::Volumes(change, job))
    }

    /// The same for the members.
    pub(crate) fn change_members(&self, change: MemberChange) -> Result<Arc<Job>, String> {
        self.begin(|job| Ask::Members(change, job))
    }

    /// The same for the families.
    pub(crate) fn change_families(&self, work: Work) -> Result<Arc<Job>, String> {
        let Work::Lock { name, uuid, force: true } = &work else { return self.begin(|job| Ask::Families(work, job)) };
        match self.jobs.begin_to_lock(name, *uuid)? {
            (job, true) => self.ask_for(job, |job| Ask::Families(work, job)),
            (under_way, false) => Ok(under_way),
        }
    }

    /// Begins a check of the group.
    pub(crate) fn check(&self, request: api::CheckRequest) -> Result<Arc<Job>, String> {
        self.begin(|job| {
            job.is_over(0, 0);
            Ask::Check(request, job)
        })
    }

    fn begin(&self, question: impl FnOnce(Arc<Job>) -> Ask) -> Result<Arc<Job>, String> {
        self.ask_for(self.jobs.begin()?, question)
    }

    fn ask_for(&self, job: Arc<Job>, question: impl FnOnce(Arc<Job>) -> Ask) -> Result<Arc<Job>, String> {
        if self.ask(question(job.clone())) {
            return Ok(job);
        }
        // Nobody will ever work on it.
        job.finish(Err(self.silence().into()));
        Err(self.silence().into())
    }

    /// What to say when the group's thread does not answer.
    pub(crate) fn silence(&self) -> &'static str {
        match self.lock_stop().wished {
            _ if self.has_ended() => ENDED,
            true => ENDING,
            false => SILENT,
        }
    }

    /// Whether the group's thread has done everything and answers nobody any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.questions.is_closed()
    }

    /// Block devices made from this group, with their holders, but for those that only the kernel's NBD client knows of
    /// ([`Shared::all_attachments`]).
    pub(super) fn attachments(&self) -> anyhow::Result<Vec<api::Attachment>> {
        runstate::attachments(&self.facts.group)
    }

    pub(super) fn lock_stop(&self) -> MutexGuard<'_, Ending> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody changes the wish, or so long.
    pub(super) fn wait_for_change<'a>(
        &self,
        stop: MutexGuard<'a, Ending>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, Ending> {
        match limit {
            None => self.stop_changed.wait(stop).unwrap_or_else(PoisonError::into_inner),
            Some(d) => self.stop_changed.wait_timeout(stop, d).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    /// Wishes a stop: it happens as soon as nobody uses an attached device or the file of a volume, and no member is a file that has lost its
    /// name, or at once with `force`. Returns what it waits for now.
    pub(crate) async fn ask_to_stop(&self, force: bool) -> Vec<String> {
        let mut users = if force { Vec::new() } else { users_among(self.all_attachments().await) };
        if !force {
            users.extend(self.glance_at_files().await);
            users.extend(self.nameless_to_wait_for());
        }
        let mut stop = self.lock_stop();
        stop.wished = true;
        stop.forced |= force;
        stop.waits_for = if stop.forced { Vec::new() } else { users };
        self.stop_changed.notify_all();
        stop.waits_for.clone()
    }

    /// Nothing is attached any more once a stop is wished: who waits for it would wait for that, too.
    fn refuse_if_stopping(&self) -> Result<(), String> {
        match self.lock_stop().wished {
            true => Err(format!("group '{}' is being stopped", self.facts.group)),
            false => Ok(()),
        }
    }

    /// Whether the end is not to wait for anybody.
    pub(super) fn is_forced(&self) -> bool {
        self.lock_stop().forced
    }

    /// These are cut off by the end of the daemon.
    pub(super) fn cut_off(&self, who: Vec<String>) {
        self.lock_stop().cut_off.extend(who);
    }

    /// All of them.
    pub(super) fn who_is_cut_off(&self) -> Vec<String> {
        self.lock_stop().cut_off.clone()
    }

    /// A signal that asks for the end. Called on the group's thread: it only takes a note, the keeper does what follows.
    pub(crate) fn signalled(&self, signal: i32) {
        if let Some(words) = self.lock_stop().signalled(signals::name(signal), signals::is_sent(signal)) {
            crate::log::info(&words);
        }
        self.stop_changed.notify_all();
    }
}
