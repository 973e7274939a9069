//! One file per command.

mod advise;
mod attach;
mod attached;
mod check;
pub(crate) mod create;
mod destroy;
pub(crate) mod detach;
mod devices;
mod dissolve;
mod dump;
mod family;
pub(crate) mod lab;
mod member;
mod repair;
mod rescue;
mod restore;
mod scan;
mod served;
mod status;
mod stop;
pub(crate) mod ublk;
mod volume;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Command;
use crate::output::Output;

/// Runs a command.
pub(crate) fn run(command: Command, output: Output) -> Result<ExitCode> {
    match command {
        Command::Create(args) => create::run(args, output)?,
        Command::Scan(args) => return scan::run(args, output),
        Command::Devices => devices::run(output)?,
        Command::Serve(args) => crate::daemon::run(args, output)?,
        Command::Attach(args) => attach::run(args, output)?,
        Command::Detach(args) => detach::run(args, output)?,
        Command::Stop(args) => return stop::run(args, output),
        Command::Status(args) => return status::run(args, output),
        Command::Volume(args) => volume::run(args.command, output)?,
        Command::Family(args) => family::run(args.command, output)?,
        Command::Member(args) => member::run(args.command, output)?,
        Command::Destroy(args) => destroy::run(args, output)?,
        Command::Check(args) => return check::run(args, output),
        Command::Dump(args) => dump::run(args, output)?,
        Command::Restore(args) => restore::run(args, output)?,
        Command::Rescue(args) => rescue::run(args, output)?,
        Command::Repair(args) => repair::run(args, output)?,
        Command::Dissolve(args) => dissolve::run(&args, output)?,
        Command::Advise(args) => advise::run(args, output)?,
        Command::Lab(args) => return lab::run(args, output),
        Command::Demo(args) => crate::demo::run(args, output)?,
        Command::Flush(args) => return crate::beside::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}
