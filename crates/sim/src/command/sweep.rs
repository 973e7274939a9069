//! `sim sweep`: every directed scenario with a crash at every point.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use super::many::{catch_panics, guarded};
use super::{shrunk, Args};
use crate::oracle::Crash;
use crate::run::Outcome;
use crate::scenario::Scenario;
use crate::sweep::{all, Directed};
use crate::text;

pub(super) fn sweep(args: &Args<'_>) -> Result<bool, String> {
    let jobs = args.number("--jobs", 2)?.max(1);
    catch_panics();
    let (mut passed, mut failed) = (0, 0);
    for d in all().iter().filter(|d| args.text("--only").is_none_or(|o| d.name == o)) {
        let (runs, failure) = one(d, jobs);
        println!("{:<26} {runs:>6} runs  {}", d.name, if failure.is_some() { "FAILED" } else { "ok" });
        passed += runs - u64::from(failure.is_some());
        if let Some((scenario, what)) = failure {
            failed += 1;
            println!("FAILED: {what}\n{}", text::print(&shrunk(&scenario)));
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Sweeps one scenario; runs made, and the first failure.
fn one(d: &Directed, jobs: u64) -> (u64, Option<(Scenario, String)>) {
    let whole = guarded(d.whole(), false);
    let Some(report) = whole.report.filter(|_| whole.outcome == Outcome::Passed) else {
        return (1, Some((d.whole().clone(), format!("{:?}", whole.outcome))));
    };
    let points = d.points(&report.points) * 2;
    let (next, runs, found) = (AtomicU64::new(0), AtomicU64::new(1), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= points {
                    break;
                }
                let s = d.at(i / 2, if i % 2 == 0 { Crash::Power } else { Crash::Daemon });
                runs.fetch_add(1, Ordering::Relaxed);
                if let Outcome::Failed(what) = guarded(&s, false).outcome {
                    next.store(points, Ordering::Relaxed);
                    if let Ok(mut found) = found.lock() {
                        found.get_or_insert((s, what));
                    }
                }
            });
        }
    });
    (runs.into_inner(), found.into_inner().ok().flatten())
}
