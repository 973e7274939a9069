//! `bimetal lab`: experiments and policies on modelled devices.

mod compare;
mod matrix;
mod replay;
mod report_file;
pub(crate) mod reviews;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use anyhow::Result;

use crate::cli::{Lab, LabCommand};
use crate::output::{chain, tell, Output};
use crate::progress::Progress;

pub(crate) fn run(args: Lab, output: Output) -> Result<ExitCode> {
    crate::progress::cleared_when_interrupted();
    match args.command {
        LabCommand::Reviews(args) => reviews::run(args, output),
        LabCommand::Replay(args) => replay::run(args, output).map(|()| ExitCode::SUCCESS),
        LabCommand::Compare(args) => compare::run(args, output),
    }
}

/// Threads for work that takes all there are.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What is said after the answer was shown, which is the only document on standard output.
fn afterwards(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("bimetal: {}", chain(&error)));
            ExitCode::FAILURE
        }
    }
}

/// What becomes of each item, in order, on several threads. `work` is given what it is to call after each of `steps` steps, and
/// `what` completes "3 of 7 ..." while it lasts.
pub(super) fn in_parallel<I: Sync, O: Send>(
    items: &[I],
    steps: usize,
    what: &str,
    work: impl Fn(&I, &mut dyn FnMut()) -> O + Sync,
) -> Vec<O> {
    let results: Vec<Mutex<Option<O>>> = items.iter().map(|_| Mutex::default()).collect();
    let (next, done, all) = (AtomicUsize::new(0), AtomicUsize::new(0), items.len() * steps);
    let progress = Mutex::new(Progress::new());
    let tell = |done: usize| {
        let mut p = progress.lock().unwrap_or_else(|e| e.into_inner());
        let part = p.part(done as u64, all as u64);
        p.show(|| format!("{done} of {all} {what}, {part}"));
    };
    tell(0);
    let thread = || loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let Some((item, result)) = items.get(i).zip(results.get(i)) else { return };
        let out = work(item, &mut || tell(done.fetch_add(1, Ordering::Relaxed) + 1));
        *result.lock().unwrap_or_else(|e| e.into_inner()) = Some(out);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads().min(items.len()) {
            scope.spawn(thread);
        }
    });
    results.into_iter().filter_map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner())).collect()
}
