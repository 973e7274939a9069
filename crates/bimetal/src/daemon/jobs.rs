//! Work that may take longer than whoever asked for it waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bimetal_format::label::MAX_FAMILIES;
use bimetal_volume::options::Uuid;
use tokio::sync::watch;

use crate::api;

/// Jobs remembered.
const REMEMBERED: usize = 32;
/// So many more may be under way that lock families by force: one for each that a group can have.
const LOCKS: usize = MAX_FAMILIES;
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
    /// What it locks by force: the name of a family, and which one is meant.
    locks: Option<(String, Option<Uuid>)>,
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
        self.add(REMEMBERED, None)
    }

    /// A new one that locks a family by force, or the one that does so already (`false`). A key that has to go is not kept by changes that
    /// wait, for a disk perhaps: there is room for one of each family.
    pub(crate) fn begin_to_lock(&self, name: &str, meant: Option<Uuid>) -> Result<(Arc<Job>, bool), String> {
        let wanted = Some((name.to_owned(), meant));
        let under_way = self.all().1.iter().find(|job| job.locks == wanted && !job.has_ended()).cloned();
        match under_way {
            Some(job) => Ok((job, false)),
            None => Ok((self.add(REMEMBERED + LOCKS, wanted)?, true)),
        }
    }

    fn add(&self, limit: usize, locks: Option<(String, Option<Uuid>)>) -> Result<Arc<Job>, String> {
        let mut jobs = self.all();
        let under_way = jobs.1.iter().filter(|job| !job.has_ended()).count();
        if under_way >= limit {
            return Err(format!("{under_way} changes of this group are under way; try again when one has ended"));
        }
        while jobs.1.len() >= limit {
            let Some(at) = jobs.1.iter().position(|job| job.has_ended()) else { break };
            jobs.1.remove(at);
        }
        jobs.0 += 1;
        let job = Job { number: jobs.0, outcome: watch::Sender::new(None), over: Mutex::default(), locks };
        let job = Arc::new(job);
        jobs.1.push_back(job.clone());
        Ok(job)
    }

    fn all(&self) -> MutexGuard<'_, (u64, VecDeque<Arc<Job>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Job>> {
        self.all().1.iter().find(|j| j.number == number).cloned()
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

    #[test]
    fn a_family_is_locked_by_force_however_many_changes_wait() {
        let jobs = Jobs::default();
        let waiting: Vec<_> = (0..REMEMBERED).map(|_| jobs.begin().expect("room")).collect();
        let lock = |name: &str| jobs.begin_to_lock(name, Some([7; 16]));
        let (first, is_new) = lock("home").expect("there is room for it");
        assert!(is_new);
        // Whoever asks again waits for the same: no number of tries fills anything.
        let (again, is_new) = lock("home").expect("under way");
        assert!(!is_new && again.number == first.number);
        for n in 1..LOCKS {
            assert!(lock(&format!("other-{n}")).expect("room for each").1);
        }
        assert!(lock("more").is_err(), "no group has so many");
        assert!(jobs.begin().is_err(), "it is room for nothing else");
        first.finish(Ok(Done::default()));
        let (new, is_new) = lock("home").expect("it has ended, and may be unlocked since");
        assert!(is_new && new.number != first.number);
        assert!(waiting.iter().all(|job| jobs.find(job.number).is_some()), "nothing is forgotten for it");
    }
}
