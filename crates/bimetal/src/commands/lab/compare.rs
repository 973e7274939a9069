//! `bimetal lab compare`: all loads, all policies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{bail, Result};
use bimetal_lab::compare::{compare, generated, traces_in, Case, Cell, How, Matrix, TUNING_SEEDS, VALIDATION_SEEDS};
use bimetal_lab::report::Report;
use bimetal_lab::trace::Repairs;
use serde_json::json;

use super::matrix;
use super::report_file::ReportFile;
use crate::cli::{wrong_usage, Compare};
use crate::output::Output;
use crate::progress::Progress;
use crate::recording::repairs_json;
use crate::{api, date};

/// Names a folder of recordings.
const TRACES: &str = "BIMETAL_TRACES";

/// Which loads, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    /// Only those of these names; all if there are none.
    pub(super) only: Vec<String>,
    /// The folder of recordings, instead of the one that the environment names.
    pub(super) traces: Option<PathBuf>,
    pub(super) how: How,
}

/// What all loads gave, what is missing, and what is not as it was recorded.
pub(super) struct Done {
    pub(super) cells: Vec<Cell>,
    pub(super) missing: Vec<String>,
    repaired: Vec<(String, Repairs)>,
    /// Loads that were named and could not be replayed.
    failed: Vec<String>,
}

impl Done {
    /// What was repaired and cut in the loads, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let repairs = |(name, repairs): &(String, Repairs)| {
            let lines: Vec<String> = repairs.to_string().lines().map(|line| format!("{name}: {line}")).collect();
            lines
        };
        let mut notes: Vec<String> = self.repaired.iter().flat_map(repairs).collect();
        let mut cut: Vec<&Cell> = self.cells.iter().filter(|c| c.cut).collect();
        cut.dedup_by_key(|c| &c.workload);
        let words = |c: &Cell| {
            format!("{}: only its first {} accesses are replayed; the recording goes on", c.workload, c.accesses)
        };
        notes.extend(cut.into_iter().map(words));
        notes
    }

    /// An error if what was asked for is not among the answers.
    fn check(&self) -> Result<()> {
        if !self.failed.is_empty() {
            bail!("not all that was named could be replayed: {}", self.failed.join(", "));
        }
        if self.cells.is_empty() {
            bail!("nothing could be replayed");
        }
        Ok(())
    }
}

pub(crate) fn run(args: Compare, output: Output) -> Result<ExitCode> {
    let how = How { bounds: !args.no_bounds, percents: args.fast, ..How::default() };
    let file = args.out.as_deref().map(|path| ReportFile::new(path, args.force)).transpose()?;
    let done = all_loads(&Loads { only: args.only, traces: args.traces, how })?;
    let (missing, notes) = (done.missing.as_slice(), done.notes());
    let date = date::today();
    let html = || {
        let version = env!("CARGO_PKG_VERSION");
        Report { outcomes: &[], cells: &done.cells, missing, notes: &notes, date: &date, version }.html()
    };
    // A report of nothing would replace one of something.
    let file = file.filter(|_| !done.cells.is_empty());
    let written = file.as_ref().map_or(Ok(()), |file| file.write(&html()));
    let out = file.as_ref().map(ReportFile::path).filter(|_| written.is_ok());
    output.show(&as_json(&done), || words(&done, &notes, out))?;
    Ok(super::afterwards(written.and_then(|()| done.check())))
}

/// Replays all loads on all policies.
pub(super) fn all_loads(loads: &Loads) -> Result<Done> {
    let (mut cases, mut missing) = traces(loads.traces.as_deref())?;
    cases.extend(generated(TUNING_SEEDS.chain(VALIDATION_SEEDS)));
    if let Some(unknown) = loads.only.iter().find(|name| cases.iter().all(|c| c.name != **name)) {
        wrong_usage(&format!("no load is named {unknown}; `bimetal lab compare --help` names them"));
    }
    cases.retain(|c| loads.only.is_empty() || loads.only.contains(&c.name));
    let Matrix { cells, refused, repaired } = run_all(&cases, &loads.how);
    missing.extend(refused.iter().map(|(name, e)| format!("{name} could not be replayed: {e}")));
    let failed = refused.into_iter().map(|(name, _)| name).filter(|name| loads.only.contains(name)).collect();
    Ok(Done { cells, missing, repaired, failed })
}

/// Recordings of the folder that was named, and what was not found.
fn traces(named: Option<&Path>) -> Result<(Vec<Case>, Vec<String>)> {
    let folder = match named {
        Some(folder) => Some(folder.to_owned()),
        None => std::env::var_os(TRACES).filter(|v| !v.is_empty()).map(PathBuf::from),
    };
    let Some(folder) = folder else {
        let why = format!("No recordings: {TRACES} names no folder, and neither does --traces. Generated loads only.");
        return Ok((Vec::new(), vec![why]));
    };
    let cases = traces_in(&folder)?;
    let missing = match cases.is_empty() {
        true => vec![format!("No recordings (*.csv, *.csv.gz) are in {}.", folder.display())],
        false => Vec::new(),
    };
    Ok((cases, missing))
}

fn run_all(cases: &[Case], how: &How) -> Matrix {
    let progress = Mutex::new(Progress::new());
    compare(cases, how, super::threads(), &|p| {
        let mut line = progress.lock().unwrap_or_else(|e| e.into_inner());
        let part = line.part(p.done as u64, p.of as u64);
        line.show(|| format!("{} of {} loads, {part}; last {}", p.done, p.of, p.name));
    })
}

fn as_json(done: &Done) -> serde_json::Value {
    let repairs = |(name, repairs): &(String, Repairs)| json!({"load": name, "repairs": repairs_json(repairs)});
    json!({
        "schema": api::SCHEMA, "missing": done.missing, "failed": done.failed,
        "repaired": done.repaired.iter().map(repairs).collect::<Vec<_>>(),
        "cells": done.cells.iter().map(matrix::cell_json).collect::<Vec<_>>(),
    })
}

fn words(done: &Done, notes: &[String], out: Option<&Path>) -> String {
    let cells = &done.cells;
    let mut text = String::new();
    if !cells.is_empty() {
        text += &matrix::overview(cells);
        text += "\nBIMETAL, BEST OTHER: disk time per access, in ms. The others are the policies with the same budget of moves.\n\
                 GAP: the part closed of that between clock+Bloom N=2 and the least for who moves up what was used,\n\
                 with its neighbours of 1 MiB, and knows what of it is used again. Least of all: also knows what\n\
                 is used first.\n";
        text += &format!("\nAll {} cells\n{}", cells.len(), matrix::summary(cells));
    }
    let unseen: Vec<Cell> = cells.iter().filter(|c| !c.origin.was_tuned_on()).cloned().collect();
    if !unseen.is_empty() && unseen.len() < cells.len() {
        let kind = "from generator seeds that were not used in tuning";
        text += &format!("\nThe {} cells {kind}\n{}", unseen.len(), matrix::summary(&unseen));
    }
    if !notes.is_empty() {
        text += "\nNot as it was recorded:\n";
        text.extend(notes.iter().map(|note| format!("  {note}\n")));
    }
    for line in &done.missing {
        text += &format!("\n{line}\n");
    }
    if let Some(path) = out {
        text += &format!("\nThe full matrix is in {}.\n", path.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_lab::compare::Origin;

    #[test]
    fn what_was_cut_is_said() {
        let cell = Cell {
            workload: "long".into(),
            origin: Origin::Trace,
            percent: 5,
            fast_slots: 1,
            accesses: 7,
            footprint: 20,
            cut: true,
            entries: Vec::new(),
            bounds: None,
        };
        let cells = vec![
            cell.clone(),
            Cell { percent: 10, ..cell.clone() },
            Cell { workload: "other".into(), cut: false, ..cell },
        ];
        let done = Done { cells, missing: Vec::new(), repaired: Vec::new(), failed: Vec::new() };
        assert_eq!(done.notes(), ["long: only its first 7 accesses are replayed; the recording goes on"]);
        assert!(words(&done, &done.notes(), None).contains("long: only its first 7 accesses"));
    }
}
