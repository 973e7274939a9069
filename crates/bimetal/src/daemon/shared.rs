//! What the group's thread and the control thread share: a queue of questions, and the state of a wished stop.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bimetal_volume::options::Status;
use tokio::sync::{mpsc, oneshot};

use super::report;
use crate::api;
use crate::runstate;

/// Questions that may wait for the group's thread.
const QUEUE: usize = 64;
/// An answer that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a waiting stop looks whether the holders are gone.
const LOOK_AGAIN: Duration = Duration::from_millis(300);

/// What the control side may want of the group's thread.
pub(crate) enum Ask {
    /// Tell what you are doing.
    Snapshot(oneshot::Sender<Snapshot>),
    /// Show the volumes as files; the folder, or why not.
    ShowFiles(oneshot::Sender<Result<std::path::PathBuf, String>>),
    /// End in order.
    Shutdown,
}

/// The group's state at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) clients: Vec<api::Client>,
    pub(crate) files: Option<api::Files>,
    pub(crate) recent: Vec<api::RecentMoves>,
}

/// What does not change while the daemon lives.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: String,
    pub(crate) since: Instant,
    /// Member UUID (as text) and where it was found.
    pub(crate) locators: Vec<(String, String)>,
    /// Logical sector of the volumes.
    pub(crate) sector_bytes: u32,
    /// Where clients connect.
    pub(crate) exports: Vec<String>,
}

#[derive(Default)]
struct Stop {
    wished: bool,
    forced: bool,
    waits_for: Vec<String>,
}

/// See the head of this file.
pub(crate) struct Shared {
    pub(crate) facts: Facts,
    questions: mpsc::Sender<Ask>,
    stop: Mutex<Stop>,
    stop_changed: Condvar,
}

impl Shared {
    /// The control side's end, and the queue that the group's thread reads: its executor can be woken from here.
    pub(crate) fn new(facts: Facts) -> (Arc<Shared>, mpsc::Receiver<Ask>) {
        let (questions, queue) = mpsc::channel(QUEUE);
        (Arc::new(Shared { facts, questions, stop: Mutex::default(), stop_changed: Condvar::new() }), queue)
    }

    fn ask(&self, question: Ask) -> bool {
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
        let (sender, receiver) = oneshot::channel();
        if !self.ask(Ask::ShowFiles(sender)) {
            return None;
        }
        tokio::time::timeout(PATIENCE, receiver).await.ok()?.ok()
    }

    /// `GET /v1/status`.
    pub(crate) async fn status(&self) -> Option<api::Status> {
        let snapshot = self.snapshot().await?;
        let mut status = report::status(&self.facts, &snapshot, self.attachments());
        let stop = self.lock_stop();
        if stop.wished {
            status.state = "stopping".into();
            status.stop_waits_for.clone_from(&stop.waits_for);
            let waits = stop.waits_for.iter().map(|w| format!("Stopping waits until it is released: {w}."));
            status.summary.splice(0..0, waits);
        }
        Some(status)
    }

    /// Block devices made from this group, with their holders.
    pub(crate) fn attachments(&self) -> Vec<api::Attachment> {
        runstate::attachments(&self.facts.group)
    }

    fn lock_stop(&self) -> std::sync::MutexGuard<'_, Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wishes a stop: it happens as soon as nobody holds an attached device, or at once with `force`. Returns who
    /// holds one now.
    pub(crate) fn ask_to_stop(&self, force: bool) -> Vec<String> {
        let holders = self.holders();
        let mut stop = self.lock_stop();
        stop.wished = true;
        stop.forced |= force;
        stop.waits_for = if stop.forced { Vec::new() } else { holders };
        self.stop_changed.notify_all();
        stop.waits_for.clone()
    }

    /// SIGTERM or SIGINT: the first wishes a stop, the second insists. Called on the group's thread: it only takes a
    /// note, the keeper does what follows.
    pub(crate) fn signalled(&self, name: &str) {
        let mut stop = self.lock_stop();
        if stop.wished {
            stop.forced = true;
            crate::log::info(&format!("{name} again: stopping now"));
        } else {
            crate::log::info(&format!("{name}: stopping"));
        }
        stop.wished = true;
        self.stop_changed.notify_all();
    }

    fn holders(&self) -> Vec<String> {
        self.attachments().into_iter().flat_map(|a| a.held_by).collect()
    }

    /// Runs on a thread of its own until a wished stop can happen: waits for the holders, detaches the devices and
    /// tells the group's thread. Detaching flushes the device, so the group must still be serving then.
    pub(crate) fn keep_until_stop(&self) {
        let mut stop = self.lock_stop();
        while !stop.wished {
            stop = self.stop_changed.wait(stop).unwrap_or_else(PoisonError::into_inner);
        }
        let mut told = false;
        while !stop.forced {
            drop(stop);
            let holders = self.holders();
            stop = self.lock_stop();
            if holders.is_empty() {
                break;
            }
            if stop.waits_for != holders || !told {
                told = true;
                crate::log::warn(&format!(
                    "still serving, because {}; release it, or send SIGTERM again (`bimetal stop --force`) to stop now",
                    holders.join(", ")
                ));
            }
            stop.waits_for = holders;
            (stop, _) = self.stop_changed.wait_timeout(stop, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner);
        }
        stop.waits_for.clear();
        drop(stop);
        for attachment in self.attachments() {
            if let Err(e) = crate::commands::detach::take_down(&self.facts.group, &attachment) {
                crate::log::warn(&format!("{} could not be detached: {e:#}", attachment.device));
            }
        }
        while !self.ask(Ask::Shutdown) {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}
