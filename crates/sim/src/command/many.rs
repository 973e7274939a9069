//! Many random runs on several threads; each run lives on one thread alone.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{shrunk, Args};
use crate::counters::Counters;
use crate::run::{run as run_scenario, Outcome, Report};
use crate::scenario::Scenario;
use crate::text;
use crate::workload::generate;

/// Failures after which looking for more is no use.
const ENOUGH: usize = 10;

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A run with its outcome; a panic of the engine is a failure like any other.
pub struct Judged {
    /// How it ended.
    pub outcome: Outcome,
    /// What else is known, if it did not panic.
    pub report: Option<Report>,
}

impl Judged {
    /// Crash points passed.
    pub fn points(&self) -> u64 {
        self.report.as_ref().map_or(0, |r| r.points.iter().sum())
    }

    /// Crashes survived.
    pub fn crashes(&self) -> u64 {
        self.report.as_ref().map_or(0, |r| r.crashes)
    }

    /// Hash of the trace.
    pub fn trace(&self) -> u64 {
        self.report.as_ref().map_or(0, |r| r.trace)
    }

    /// What failed.
    pub fn failure(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Failed(what) => Some(what),
            _ => None,
        }
    }
}

/// Keeps panics of runs off the terminal: they become outcomes.
pub(super) fn catch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or(String::new(), |l| format!(" at {}:{}", l.file(), l.line()));
        let payload = info.payload();
        let words = payload.downcast_ref::<&str>().copied();
        let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic");
        let text = format!("{words}{place}");
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{text}\n{}", std::backtrace::Backtrace::force_capture());
        }
        PANIC.with(|p| p.borrow_mut().get_or_insert(text).len());
    }));
}

/// Runs a scenario.
pub fn guarded(scenario: &Scenario, log: bool) -> Judged {
    PANIC.with(|p| p.borrow_mut().take());
    match catch_unwind(AssertUnwindSafe(|| run_scenario(scenario, log))) {
        Ok(report) => Judged { outcome: report.outcome.clone(), report: Some(report) },
        Err(_) => {
            let what = PANIC.with(|p| p.borrow_mut().take()).unwrap_or_else(|| "panic".into());
            Judged { outcome: Outcome::Failed(format!("panic: {what}")), report: None }
        }
    }
}

struct Found {
    seed: u64,
    what: String,
}

#[derive(Default)]
struct Board {
    counters: Counters,
    failures: Vec<Found>,
    broken_promises: u64,
}

pub(super) fn run(args: &Args<'_>) -> Result<bool, String> {
    let (start, jobs) = (args.number("--start", 1)?, args.number("--jobs", 2)?.max(1));
    let minutes = args.number("--minutes", 0)?;
    let seeds = args.number("--seeds", if minutes > 0 { u64::MAX - start } else { 10_000 })?;
    let enough = if args.flag("--keep-going") { usize::MAX } else { ENOUGH };
    let deadline = (minutes > 0).then(|| Instant::now() + Duration::from_secs(minutes * 60));
    println!("seeds {start} to {}, {jobs} jobs", start.saturating_add(seeds - 1));
    catch_panics();
    let began = Instant::now();
    let (next, stop, board) = (AtomicU64::new(start), AtomicBool::new(false), Mutex::new(Board::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                let mut mine = Counters::default();
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - start >= seeds || deadline.is_some_and(|d| Instant::now() > d) {
                        break;
                    }
                    one(seed, &mut mine, &board, &stop, enough);
                }
                if let Ok(mut board) = board.lock() {
                    board.counters.merge(&mine);
                }
            });
        }
    });
    let board = board.into_inner().map_err(|_| "a thread of the simulator itself panicked")?;
    Ok(summary(&board, began.elapsed()))
}

fn one(seed: u64, counters: &mut Counters, board: &Mutex<Board>, stop: &AtomicBool, enough: usize) {
    let judged = guarded(&generate(seed), false);
    if let Some(r) = &judged.report {
        counters.add(r.marks);
        counters.points += judged.points();
        counters.crashes += r.crashes;
        counters.requests += r.requests;
    }
    let Ok(mut board) = board.lock() else { return };
    match judged.outcome {
        Outcome::Passed => {}
        Outcome::BrokenPromise { .. } => board.broken_promises += 1,
        Outcome::Failed(what) => {
            println!("seed {seed} FAILED: {what}");
            board.failures.push(Found { seed, what });
            if board.failures.len() >= enough {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn summary(board: &Board, took: Duration) -> bool {
    print!("{}", board.counters);
    let runs = board.counters.runs() + board.failures.iter().filter(|f| f.what.starts_with("panic")).count() as u64;
    let rate = runs as f64 / took.as_secs_f64() * 60.0;
    println!("{runs} runs in {:.1} s: {rate:.0} per minute", took.as_secs_f64());
    println!("{} runs found a member out that breaks its promise", board.broken_promises);
    let unseen = board.counters.unseen();
    if !unseen.is_empty() {
        println!("FAILED: fewer than 1 % of the runs had: {}", unseen.join(", "));
    }
    for f in &board.failures {
        println!("FAILED: seed {}; again: sim replay {}", f.seed, f.seed);
    }
    if let Some(first) = board.failures.iter().min_by_key(|f| f.seed) {
        println!("seed {} made smaller:\n{}", first.seed, text::print(&shrunk(&generate(first.seed))));
    }
    let failed = board.failures.len() as u64;
    println!("{} passed, {failed} failed", runs - failed);
    failed == 0 && unseen.is_empty()
}
