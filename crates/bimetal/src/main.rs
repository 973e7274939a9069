//! `bimetal`: the command line, the daemon, the control API.
//!
//! Reading order: `cli` (what can be asked), `commands/` (one file per command), `daemon/` (the process that serves a
//! group), `control/` (its HTTP API), `client` (the other end of it), `runstate`, `config`, `paths` (what lies where).

// What is told must be told through `output`: the macros end the program where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod api;
mod beside;
mod cli;
mod client;
mod commands;
mod config;
mod consent;
mod control;
mod daemon;
mod date;
mod demo;
mod disks;
#[cfg(test)]
mod documents;
mod durable;
mod elsewhere;
mod erase;
mod former;
mod handover;
mod hex;
mod holders;
mod legs;
mod log;
mod loss;
mod members;
mod metadata_room;
mod output;
mod own;
mod paths;
mod plain;
mod progress;
mod recording;
mod restoring;
#[cfg(test)]
mod rights;
mod runstate;
mod saved;
mod sharing;
mod shown;
mod size;
mod standing;
mod twins;
mod uuid;
mod waiting;
mod words;

use std::process::ExitCode;

use bimetal_host::memory::LargePages;
use clap::Parser;

use crate::output::Output;

/// The map of a large group is asked for at random.
#[global_allocator]
static MEMORY: LargePages = LargePages;

fn main() -> ExitCode {
    bimetal_host::signals::ignore_file_size_limit();
    let cli = cli::Cli::parse();
    let output = Output { json: cli.json };
    let done = commands::run(cli.command, output);
    log::finish();
    match done {
        Ok(code) => code,
        Err(error) => {
            let error = output::chain(&error);
            if output.json {
                let failure = api::Failure { schema: api::SCHEMA, error: error.clone() };
                // Standard error says it too.
                let _ = output.show(&failure, String::new);
            }
            output::tell(&format!("bimetal: {error}"));
            ExitCode::FAILURE
        }
    }
}
