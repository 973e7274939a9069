//! The program `sim`.

mod determinism;
mod many;
mod mutants;
mod sweep;

use std::process::ExitCode;

pub use many::{guarded, Judged};

use crate::run::Outcome;
use crate::scenario::Scenario;
use crate::shrink::Shrinker;
use crate::{text, workload};

/// Runs that shrinking one scenario may take.
const SHRINK_RUNS: u32 = 6000;

const USAGE: &str = "\
sim: crashes the engine in virtual time and checks what is left

  sim run [--seeds N] [--start S] [--jobs J] [--minutes M]   random runs; seeds S, S+1, ...
      [--keep-going]                                         do not stop after ten failures
  sim replay SEED|FILE [--log] [--print] [--shrink]          one run again; --log tells everything
      [--mutant NAME]                                        with this planted fault
  sim sweep [--only NAME] [--jobs J]                         directed scenarios, a crash at every point; NAME: a part of one
      [--mutant NAME]                                        with this planted fault
  sim mutants [--only NAME]                                  every planted fault of the engine is caught
  sim determinism [--seeds N] [--start S]                    the same seed twice is the same run
";

/// A command line: words and options.
pub(crate) struct Args<'a> {
    words: Vec<&'a str>,
    options: Vec<(&'a str, &'a str)>,
    flags: Vec<&'a str>,
}

const VALUED: [&str; 6] = ["--seeds", "--start", "--jobs", "--minutes", "--only", "--mutant"];
const FLAGS: [&str; 5] = ["--keep-going", "--log", "--print", "--shrink", "--help"];

impl<'a> Args<'a> {
    fn parse(all: &'a [String]) -> Result<Args<'a>, String> {
        let mut args = Args { words: Vec::new(), options: Vec::new(), flags: Vec::new() };
        let mut rest = all.iter();
        while let Some(word) = rest.next() {
            if VALUED.contains(&word.as_str()) {
                let value = rest.next().ok_or_else(|| format!("{word} needs a value"))?;
                args.options.push((word, value));
            } else if FLAGS.contains(&word.as_str()) {
                args.flags.push(word);
            } else if word.starts_with('-') {
                return Err(format!("there is no option {word}\n\n{USAGE}"));
            } else {
                args.words.push(word);
            }
        }
        Ok(args)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.options.iter().find(|o| o.0 == name).map(|o| o.1)
    }

    pub(crate) fn number(&self, name: &str, otherwise: u64) -> Result<u64, String> {
        match self.text(name) {
            None => Ok(otherwise),
            Some(v) => v.parse().map_err(|_| format!("{name} {v}: not a number")),
        }
    }

    /// Those of `all` with the text of `--only` in their names, or all. That there are none is a mistake: nothing would be
    /// done, and nothing could fail.
    pub(crate) fn chosen<'t, T>(&self, all: &'t [T], name: impl Fn(&T) -> &str) -> Result<Vec<&'t T>, String> {
        let only = self.text("--only").unwrap_or_default();
        let chosen: Vec<&T> = all.iter().filter(|one| name(one).contains(only)).collect();
        if chosen.is_empty() {
            let names: Vec<&str> = all.iter().map(name).collect();
            return Err(format!("nothing is called '{only}'; there are: {}", names.join(", ")));
        }
        Ok(chosen)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.flags.contains(&name)
    }
}

/// Runs a command line; the code is 0 for success, 1 for a failure found, 2 for a wrong command line.
pub fn main(words: &[String]) -> ExitCode {
    let result = Args::parse(words).and_then(|args| match args.words.first().copied() {
        _ if args.flag("--help") => {
            print!("{USAGE}");
            Ok(true)
        }
        Some("run") => many::run(&args),
        Some("replay") => replay(&args),
        Some("sweep") => sweep::sweep(&args),
        Some("mutants") => mutants::mutants(&args),
        Some("determinism") => determinism::determinism(&args),
        _ => Err(USAGE.into()),
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(2)
        }
    }
}

fn load(what: &str) -> Result<Scenario, String> {
    if let Ok(seed) = what.parse() {
        return Ok(workload::generate(seed));
    }
    let content = std::fs::read_to_string(what).map_err(|e| format!("{what}: {e}"))?;
    text::parse(&content).map_err(|e| format!("{what}: {e}"))
}

fn replay(args: &Args<'_>) -> Result<bool, String> {
    let what = args.words.get(1).ok_or("replay needs a seed or a file")?;
    let mut scenario = load(what)?;
    many::catch_panics();
    if let Some(name) = args.text("--mutant") {
        mutants::switch_on(name)?;
    }
    if args.flag("--shrink") {
        scenario = shrunk(&scenario);
    }
    if args.flag("--print") || args.flag("--shrink") {
        print!("{}", text::print(&scenario));
    }
    let judged = guarded(&scenario, args.flag("--log"));
    println!("{} points, {} crashes, trace {:016x}", judged.points(), judged.crashes(), judged.trace());
    let passed = match &judged.outcome {
        Outcome::Passed => true,
        Outcome::BrokenPromise { member, what } => {
            println!("member {member} broke its promise: {what}");
            true
        }
        Outcome::Failed(what) => {
            println!("FAILED: {what}");
            false
        }
    };
    println!("{} passed, {} failed", u32::from(passed), u32::from(!passed));
    Ok(passed)
}

/// The smallest scenario that fails like this one; the same if it does not fail.
pub(crate) fn shrunk(scenario: &Scenario) -> Scenario {
    let Some(failure) = guarded(scenario, false).failure().map(str::to_string) else { return scenario.clone() };
    let mut fails = |s: &Scenario| guarded(s, false).failure().map(str::to_string);
    Shrinker::new(&mut fails, SHRINK_RUNS, &failure).shrink(scenario.clone())
}
