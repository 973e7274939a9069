//! Says what recorded traces are like: `summary FILE...`. Formats are recognised; damage is repaired and reported.

use std::path::Path;
use std::process::ExitCode;

use bimetal_lab::trace::{open, Options, Tally};

fn summarise(path: &Path) -> Result<String, Box<dyn std::error::Error>> {
    let mut reader = open(path, &Options::default())?;
    let mut tally = Tally::default();
    for access in reader.by_ref() {
        tally.add(&access?)?;
    }
    let repairs = reader.repairs().to_string();
    let end = if repairs.is_empty() { "" } else { "\n" };
    Ok(format!("{}: {}\n{}{end}{repairs}\n", path.display(), reader.format(), tally.summary()))
}

fn main() -> ExitCode {
    let paths: Vec<_> = std::env::args_os().skip(1).collect();
    if paths.is_empty() {
        eprintln!("usage: summary FILE...");
        return ExitCode::from(2);
    }
    let mut status = ExitCode::SUCCESS;
    for path in &paths {
        match summarise(Path::new(path)) {
            Ok(report) => println!("{report}"),
            Err(e) => {
                eprintln!("{}: {e}", Path::new(path).display());
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}
