//! `bimetal lab compare`: all loads, all policies.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;
use bimetal_lab::compare::{compare, generated, traces_in, Case, Cell, How, Matrix, TUNING_SEEDS, VALIDATION_SEEDS};
use bimetal_lab::report::Report;
use serde_json::json;

use super::matrix;
use crate::cli::{wrong_usage, Compare};
use crate::output::Output;
use crate::progress::Progress;
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

/// What all loads gave, and what is missing.
pub(super) struct Done {
    pub(super) cells: Vec<Cell>,
    pub(super) missing: Vec<String>,
}

pub(crate) fn run(args: Compare, output: Output) -> Result<()> {
    let how = How { bounds: !args.no_bounds, percents: args.fast, ..How::default() };
    let Done { cells, missing } = all_loads(&Loads { only: args.only, traces: args.traces, how })?;
    if let Some(path) = &args.out {
        let date = date::today();
        let (missing, version) = (missing.as_slice(), env!("CARGO_PKG_VERSION"));
        let report = Report { outcomes: &[], cells: &cells, missing, date: &date, version };
        super::write_file(path, &report.html())?;
    }
    output.show(&as_json(&cells, &missing), || words(&cells, &missing, args.out.as_deref()))
}

/// Replays all loads on all policies.
pub(super) fn all_loads(loads: &Loads) -> Result<Done> {
    let (mut cases, mut missing) = traces(loads.traces.as_deref())?;
    cases.extend(generated(TUNING_SEEDS.chain(VALIDATION_SEEDS)));
    if let Some(unknown) = loads.only.iter().find(|name| cases.iter().all(|c| c.name != **name)) {
        wrong_usage(&format!("no load is named {unknown}; `bimetal lab compare --help` names them"));
    }
    cases.retain(|c| loads.only.is_empty() || loads.only.contains(&c.name));
    let matrix = run_all(&cases, &loads.how);
    missing.extend(matrix.refused.iter().map(|(name, e)| format!("{name} could not be replayed: {e}")));
    Ok(Done { cells: matrix.cells, missing })
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

fn as_json(cells: &[Cell], missing: &[String]) -> serde_json::Value {
    json!({
        "schema": api::SCHEMA, "missing": missing,
        "cells": cells.iter().map(matrix::cell_json).collect::<Vec<_>>(),
    })
}

fn words(cells: &[Cell], missing: &[String], out: Option<&Path>) -> String {
    let mut text = matrix::overview(cells);
    text += "\nBIMETAL, BEST OTHER: disk time per access, in ms.\n\
             GAP: the part closed of that between clock+Bloom N=2 and what nobody can do better.\n";
    let unseen: Vec<Cell> = cells.iter().filter(|c| !c.origin.was_tuned_on()).cloned().collect();
    text += &format!("\nAll {} cells\n{}", cells.len(), matrix::summary(cells));
    if !unseen.is_empty() && unseen.len() < cells.len() {
        let kind = "from generator seeds that were not used in tuning";
        text += &format!("\nThe {} cells {kind}\n{}", unseen.len(), matrix::summary(&unseen));
    }
    for line in missing {
        text += &format!("\n{line}\n");
    }
    if let Some(path) = out {
        text += &format!("\nThe full matrix is in {}.\n", path.display());
    }
    text
}
