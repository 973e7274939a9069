//! Carries the experiments out, on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use super::outcome::{Column, Outcome};
use super::seen::{Results, Seen};

/// Experiments that share their state: what one leaves is what the next begins with.
pub(super) struct Session {
    /// Ids of its rows.
    pub(super) ids: &'static [&'static str],
    /// What is measured in it.
    pub(super) columns: &'static [Column],
    /// Measures a column.
    pub(super) measure: fn(Column) -> Seen,
    /// Makes the rows.
    pub(super) report: fn(&Results) -> Vec<Outcome>,
}

/// How far the experiments are.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Rows that were worked on.
    pub rows: String,
    /// Who was measured.
    pub column: Column,
    /// Measurements that are complete, and how many there will be.
    pub done: usize,
    /// See `done`.
    pub all: usize,
    /// What the measured system said of itself at the end, for those who look after it.
    pub notes: Vec<String>,
}

/// Measures all columns of these sessions on so many threads; the rows, in order.
pub(super) fn run(sessions: &[Session], progress: &(dyn Fn(Progress) + Sync), threads: usize) -> Vec<Outcome> {
    let columns = |(i, s): (usize, &Session)| s.columns.iter().map(move |c| (i, *c)).collect::<Vec<_>>();
    let mut jobs: Vec<(usize, Column)> = sessions.iter().enumerate().flat_map(columns).collect();
    // Bimetal's take longest: they come first, so that no thread is left with one at the end.
    jobs.sort_by_key(|(_, column)| *column != Column::Bimetal);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let seen: Mutex<Vec<(usize, Column, Seen)>> = Mutex::default();
    let work = || loop {
        let Some((i, column)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied() else { break };
        let result = (sessions[i].measure)(column);
        let (rows, notes) = (sessions[i].ids.join(", "), result.notes.clone());
        if let Ok(mut seen) = seen.lock() {
            seen.push((i, column, result));
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress(Progress { rows, column, done, all: jobs.len(), notes });
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut seen = seen.into_inner().unwrap_or_default();
    seen.sort_by_key(|(i, column, _)| (*i, *column));
    let report = |(i, session): (usize, &Session)| {
        let of = seen.iter().filter(|(s, ..)| *s == i).map(|(_, c, seen)| (*c, seen.clone()));
        (session.report)(&Results(of.collect()))
    };
    sessions.iter().enumerate().flat_map(report).collect()
}
