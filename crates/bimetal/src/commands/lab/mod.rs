//! `bimetal lab`: experiments and policies on modelled devices.

mod compare;
mod matrix;
mod replay;
mod report_file;
pub(crate) mod reviews;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Lab, LabCommand};
use crate::output::{chain, tell, Output};

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
