//! Work that may take longer than whoever asked for it waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::api;

/// Jobs remembered.
const REMEMBERED: usize = 32;
/// How long one answer waits for the end; whoever wants to know asks again.
const PATIENCE: Duration = Duration::from_secs(8);

/// What has come of a job: the size that a volume has now, if it has a new one, or why it failed.
pub(crate) type Outcome = Result<Option<u64>, String>;

/// One job.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    outcome: watch::Sender<Option<Outcome>>,
}

impl Job {
    /// It has ended.
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// What is known of it, at its end or after a while.
    pub(crate) async fn wait(&self) -> api::Job {
        let mut ended = self.outcome.subscribe();
        let _still_running = tokio::time::timeout(PATIENCE, ended.wait_for(Option::is_some)).await;
        let outcome = self.outcome.borrow().clone();
        let (error, size_bytes) = match &outcome {
            None => (None, None),
            Some(Ok(size)) => (None, *size),
            Some(Err(why)) => (Some(why.clone()), None),
        };
        api::Job { schema: api::SCHEMA, job: self.number, done: outcome.is_some(), error, size_bytes }
    }
}

/// The newest jobs.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<(u64, VecDeque<Arc<Job>>)>);

impl Jobs {
    /// A new one.
    pub(crate) fn begin(&self) -> Arc<Job> {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.0 += 1;
        let job = Arc::new(Job { number: jobs.0, outcome: watch::Sender::new(None) });
        jobs.1.push_back(job.clone());
        if jobs.1.len() > REMEMBERED {
            jobs.1.pop_front();
        }
        job
    }

    /// One of them.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Job>> {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.1.iter().find(|j| j.number == number).cloned()
    }
}
