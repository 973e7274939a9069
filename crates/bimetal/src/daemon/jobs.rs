//! Work that may take longer than whoever asked for it waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use crate::api;

/// Jobs remembered.
const REMEMBERED: usize = 32;
/// How long one answer waits for the end; whoever wants to know asks again.
const PATIENCE: Duration = Duration::from_secs(8);
/// The same where there is progress to tell.
const LIVELY: Duration = Duration::from_millis(300);

/// What a job has made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Bytes that a volume has now, if it has a new size; of a new member those for data.
    pub(crate) size: Option<u64>,
    /// Bytes that volumes can still grow by.
    pub(crate) room: Option<u64>,
    /// The new member, or the one that was taken out.
    pub(crate) member: Option<api::ChangedMember>,
    /// Bytes in use on a member that is to leave.
    pub(crate) used: Option<u64>,
    /// Why the label of what was taken out is still there.
    pub(crate) not_erased: Option<String>,
    /// Why its place is not free, though it was taken out.
    pub(crate) not_free: Option<String>,
    /// Why a new member is written down nowhere, and what follows.
    pub(crate) not_noted: Option<String>,
    /// What a check found.
    pub(crate) checked: Option<api::Checked>,
}

/// What has come of a job, or why it failed.
pub(crate) type Outcome = Result<Done, String>;

/// One job.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    outcome: watch::Sender<Option<Outcome>>,
    over: Mutex<Option<(u64, u64)>>,
}

impl Job {
    /// It has ended.
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// It is over so much, of how much.
    pub(crate) fn is_over(&self, part: u64, of: u64) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = Some((part, of));
    }

    fn how_far(&self) -> Option<(u64, u64)> {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.outcome.borrow().is_some()
    }

    /// What is known of it, at its end or after a while.
    pub(crate) async fn wait(&self) -> api::Job {
        let mut ended = self.outcome.subscribe();
        let patience = if self.how_far().is_some() { LIVELY } else { PATIENCE };
        let _still_running = tokio::time::timeout(patience, ended.wait_for(Option::is_some)).await;
        let outcome = self.outcome.borrow().clone();
        let (error, done) = match outcome.clone() {
            None => (None, Done::default()),
            Some(Ok(done)) => (None, done),
            Some(Err(why)) => (Some(why), Done::default()),
        };
        api::Job {
            schema: api::SCHEMA,
            job: self.number,
            done: outcome.is_some(),
            error,
            size_bytes: done.size,
            room_bytes: done.room,
            member: done.member,
            used_bytes: done.used,
            not_erased: done.not_erased,
            not_free: done.not_free,
            not_noted: done.not_noted,
            checked: done.checked,
            over: self.how_far(),
        }
    }
}

/// The newest jobs, and all that are under way.
pub(crate) struct Jobs(Mutex<(u64, VecDeque<Arc<Job>>)>);

impl Default for Jobs {
    /// Whoever waits for a job may ask the next daemon of the group without knowing: its numbers are others, beginning with the time.
    fn default() -> Jobs {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        Jobs(Mutex::new((now, VecDeque::new())))
    }
}

impl Jobs {
    /// A new one; refused while too many are under way. The oldest that has ended is forgotten for it: of one that goes on
    /// somebody wants to know the end.
    pub(crate) fn begin(&self) -> Result<Arc<Job>, String> {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.1.len() >= REMEMBERED {
            let ended = jobs.1.iter().position(|job| job.has_ended());
            let Some(at) = ended else {
                return Err(format!("{REMEMBERED} changes of this group are under way; try again when one has ended"));
            };
            jobs.1.remove(at);
        }
        jobs.0 += 1;
        let job = Arc::new(Job { number: jobs.0, outcome: watch::Sender::new(None), over: Mutex::default() });
        jobs.1.push_back(job.clone());
        Ok(job)
    }

    /// One of them.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Job>> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.1.iter().find(|j| j.number == number).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_has_other_numbers() {
        let before = Jobs::default().begin().expect("room").number;
        std::thread::sleep(Duration::from_millis(5));
        assert!(Jobs::default().begin().expect("room").number > before + 1);
    }

    #[test]
    fn a_job_that_goes_on_is_never_forgotten() {
        let jobs = Jobs::default();
        let all: Vec<_> = (0..REMEMBERED).map(|_| jobs.begin().expect("room")).collect();
        let refused = jobs.begin().expect_err("all are under way");
        assert!(refused.contains("32 changes of this group are under way"), "{refused}");
        all[5].finish(Ok(Done::default()));
        let new = jobs.begin().expect("one has ended");
        assert!(jobs.find(all[5].number).is_none(), "forgotten for the new one");
        for job in all.iter().filter(|job| job.number != all[5].number).chain([&new]) {
            assert!(jobs.find(job.number).is_some(), "{}", job.number);
        }
    }
}
