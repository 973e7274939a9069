//! `bimetal lab`: experiments and policies on modelled devices.

mod compare;
mod matrix;
mod replay;
pub(crate) mod reviews;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use anyhow::Result;

use crate::cli::{Lab, LabCommand};
use crate::output::Output;
use crate::progress::Progress;

pub(crate) fn run(args: Lab, output: Output) -> Result<()> {
    match args.command {
        LabCommand::Reviews(args) => reviews::run(args, output),
        LabCommand::Replay(args) => replay::run(args, output),
        LabCommand::Compare(args) => compare::run(args, output),
    }
}

/// Threads for work that takes all there are.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What becomes of each item, in order, on several threads. `what` completes "3 of 7 ..." while it lasts.
pub(super) fn in_parallel<I: Sync, O: Send>(items: &[I], what: &str, work: impl Fn(&I) -> O + Sync) -> Vec<O> {
    let results: Vec<Mutex<Option<O>>> = items.iter().map(|_| Mutex::default()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let progress = Mutex::new(Progress::new());
    let tell = |done: usize| {
        let mut p = progress.lock().unwrap_or_else(|e| e.into_inner());
        let part = p.part(done as u64, items.len() as u64);
        p.show(|| format!("{done} of {} {what}, {part}", items.len()));
    };
    tell(0);
    let thread = || loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let Some((item, result)) = items.get(i).zip(results.get(i)) else { return };
        let out = work(item);
        *result.lock().unwrap_or_else(|e| e.into_inner()) = Some(out);
        tell(done.fetch_add(1, Ordering::Relaxed) + 1);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads().min(items.len()) {
            scope.spawn(thread);
        }
    });
    results.into_iter().filter_map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner())).collect()
}

/// Writes a file whole or not at all, as far as the file system lets us.
fn write_file(path: &std::path::Path, text: &str) -> Result<()> {
    use anyhow::Context;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
