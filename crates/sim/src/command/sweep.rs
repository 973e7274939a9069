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
    let mutant = args.text("--mutant");
    catch_panics();
    let (mut passed, mut failed) = (0, 0);
    for d in args.chosen(&all(), |d| d.name)? {
        let (runs, failure) = one(d, jobs, mutant)?;
        println!("{:<26} {runs:>6} runs  {}", d.name, if failure.is_some() { "FAILED" } else { "ok" });
        passed += runs - u64::from(failure.is_some());
        if let Some((scenario, what)) = failure {
            failed += 1;
            // Threads of their own had the planted fault; making smaller would go on without it.
            let shown = if mutant.is_some() { scenario } else { shrunk(&scenario) };
            println!("FAILED: {what}\n{}", text::print(&shown));
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

/// Runs made, and the first failure.
type Swept = (u64, Option<(Scenario, String)>);

/// Sweeps one scenario, with a planted fault if one is named.
fn one(d: &Directed, jobs: u64, mutant: Option<&str>) -> Result<Swept, String> {
    let whole = guarded(d.whole(), false);
    let Some(report) = whole.report.filter(|_| whole.outcome == Outcome::Passed) else {
        return Ok((1, Some((d.whole().clone(), format!("{:?}", whole.outcome)))));
    };
    if let Some(name) = mutant {
        // Refuses a name that there is not; the fault is for the threads below.
        std::thread::scope(|s| s.spawn(|| super::mutants::switch_on(name)).join().unwrap_or(Ok(())))?;
    }
    let points = d.points(&report.points) * 2;
    let (next, runs, found) = (AtomicU64::new(0), AtomicU64::new(1), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                if let Some(name) = mutant {
                    // It exists.
                    let _ = super::mutants::switch_on(name);
                }
                loop {
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
                }
            });
        }
    });
    Ok((runs.into_inner(), found.into_inner().ok().flatten()))
}
