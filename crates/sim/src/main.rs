//! Command line of the simulator.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    bimetal_sim::command::main(&words)
}
