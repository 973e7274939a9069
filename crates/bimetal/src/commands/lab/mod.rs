//! `bimetal lab`: experiments and policies on modelled devices.

mod compare;
mod matrix;
mod replay;
pub(crate) mod reviews;

use anyhow::Result;

use crate::cli::{Lab, LabCommand};
use crate::output::Output;

pub(crate) fn run(args: Lab, output: Output) -> Result<()> {
    crate::progress::cleared_when_interrupted();
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

/// Writes a file whole or not at all, as far as the file system lets us.
fn write_file(path: &std::path::Path, text: &str) -> Result<()> {
    use anyhow::Context;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
