//! `bimetal lab replay`: one recording on every placement policy.

use std::path::Path;

use anyhow::{bail, Context, Result};
use bimetal_lab::compare::{cell_of, Cell, How, Origin};
use bimetal_lab::policy::{Budget, Start, Stream, CHUNKS_MAX};
use bimetal_volume::units::CHUNK;
use serde_json::json;

use super::matrix;
use crate::api;
use crate::cli::{FastSize, Replay};
use crate::output::Output;
use crate::recording::{Recorded, Summary};
use crate::size::approx;

/// Fast tiers if nobody says otherwise.
const USUAL: [FastSize; 3] = [FastSize::Percent(5.0), FastSize::Percent(10.0), FastSize::Percent(20.0)];

pub(crate) fn run(args: Replay, output: Output) -> Result<()> {
    let start = if args.recording.aged { Start::Aged } else { Start::Fresh };
    let mut recorded = Recorded::open(&args.trace, &args.recording)?;
    let stream = Stream::new(recorded.by_ref(), start)?;
    let summary = recorded.finish()?;
    if stream.accesses() == 0 {
        bail!("{}: the trace reads and writes nothing", args.trace.display());
    }
    let sizes = if args.fast.is_empty() { USUAL.to_vec() } else { args.fast.clone() };
    let slots = sizes.iter().map(|s| slots(*s, &stream)).collect::<Result<Vec<u32>>>()?;
    let budget = if args.unlimited { Budget::UNLIMITED } else { Budget::USUAL };
    let how = How { percents: Vec::new(), budget, bounds: !args.no_bounds };
    let name = name(&args.trace);
    let cells = cells(&name, &stream, &slots, &how);
    output.show(&as_json(&args.trace, &stream, &summary, &cells), || words(&args.trace, &stream, &summary, &cells))
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
}

/// Chunks of a fast tier.
fn slots(size: FastSize, stream: &Stream) -> Result<u32> {
    let slots = match size {
        FastSize::Bytes(bytes) => bytes / CHUNK,
        FastSize::Percent(percent) => (f64::from(stream.footprint) * percent / 100.0) as u64,
    };
    // More than any replay can touch is as good as all of it.
    u32::try_from(slots.clamp(1, CHUNKS_MAX)).context("a fast tier of that size")
}

/// The cells, on several threads.
fn cells(name: &str, stream: &Stream, slots: &[u32], how: &How) -> Vec<Cell> {
    let sizes = if slots.len() == 1 { "a fast tier".into() } else { format!("{} fast tiers", slots.len()) };
    super::in_parallel(slots, how.steps(), &format!("replays on {sizes}"), |slots, step| {
        cell_of(name, Origin::Trace, stream, *slots, how, step)
    })
}

fn as_json(path: &Path, stream: &Stream, summary: &Summary, cells: &[Cell]) -> serde_json::Value {
    json!({
        "schema": api::SCHEMA, "trace": path.display().to_string(), "read": summary.json(), "cut": stream.cut,
        "accesses": stream.accesses(), "footprint_bytes": u64::from(stream.footprint) * CHUNK,
        "cells": cells.iter().map(matrix::cell_json).collect::<Vec<_>>(),
    })
}

fn words(path: &Path, stream: &Stream, summary: &Summary, cells: &[Cell]) -> String {
    let mut text = format!(
        "{}: {} requests ({}), {} accesses of chunks, {} touched.\n{}",
        path.display(),
        summary.requests,
        summary.format,
        stream.accesses(),
        approx(u64::from(stream.footprint) * CHUNK),
        summary.words(),
    );
    if stream.cut {
        text += &format!("  only the first {} accesses are replayed; the trace goes on\n", stream.accesses());
    }
    for cell in cells {
        text += &format!("\n{}", matrix::cell_words(cell));
    }
    text += "\nDISK TIME: head time of the slow disk per access, in ms; WITH MOVES: and for moves.\n\
             MOVES: chunks moved per 100 accesses. MOVED/USED: bytes moved per byte that users read and wrote.\n\
             Least after a use: who moves up what was used, with its neighbours of 1 MiB, needs no less; it\n\
             knows what of it is used again. Least of all: also knows what is used first.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_tier_is_a_size_or_a_part_of_what_is_touched() {
        let stream = Stream { footprint: 1000, ..Stream::default() };
        assert_eq!(slots(FastSize::Percent(5.0), &stream).expect("legal"), 50);
        assert_eq!(slots(FastSize::Percent(0.01), &stream).expect("legal"), 1);
        assert_eq!(slots(FastSize::Bytes(1 << 20), &stream).expect("legal"), 8);
        assert_eq!(slots(FastSize::Bytes(u64::MAX), &stream).expect("legal"), 1 << 26);
    }
}
