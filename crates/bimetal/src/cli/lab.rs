//! The command lines of `bimetal advise` and `bimetal lab`.

use bimetal_lab::trace::Format;
use bimetal_volume::units::CHUNK;
use clap::{Args, Subcommand};

use super::size;

/// A recording, and how to read it.
#[derive(Debug, Args)]
pub(crate) struct Recording {
    /// csv, msr, spc, vscsi, blktrace, blkparse or fio [default: recognised]
    #[arg(long, value_name = "NAME", value_parser = format)]
    pub(crate) format: Option<Format>,
    /// Of a recording of several devices take only this one (as the recording names it, blktrace: 8,0)
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Take it that what is written first was on the disk before, as on a volume long in use
    #[arg(long)]
    pub(crate) aged: bool,
}

fn format(name: &str) -> Result<Format, String> {
    name.parse().map_err(|e: bimetal_lab::trace::TraceError| e.to_string())
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal advise                      # how to record a trace on this machine
  bimetal advise day.bin
  bimetal advise hm_0.csv.gz --json
One pass over the trace, in bounded memory; what is kept of it is replayed to the daemon's own policy at each size. Moves are \
made at once and cost nothing, so it is what tiering comes to, not what it costs on the way.")]
pub(crate) struct Advise {
    /// A recording of block I/O, plain or gzip, - for standard input; without it: how to make one
    pub(crate) trace: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) recording: Recording,
}

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  bimetal lab reviews --out report.html
  bimetal lab replay day.bin
  bimetal lab compare --out policies.html")]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// The experiments of five reviews of Fusion Drives and SSDs: what was printed, what models of them do, what
    /// Bimetal does
    Reviews(Reviews),
    /// Replay one recording on every placement policy, side by side
    Replay(Replay),
    /// Replay all loads, recorded and generated, on every placement policy: the matrix
    Compare(Compare),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab reviews
  bimetal lab reviews --only F3,G4 --out part.html
  bimetal lab reviews --matrix --json
Everything runs in virtual time on modelled devices: no disk is needed, and the same version gives the same figures.
All of it takes some minutes on two cores.")]
pub(crate) struct Reviews {
    /// Only these experiments: F1 to F9, G1 to G7, D1 to D3, Z1, Z2, S1 to S4
    #[arg(long, value_name = "ID", value_delimiter = ',', value_parser = crate::commands::lab::reviews::known)]
    pub(crate) only: Vec<String>,
    /// Write the report with charts here
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub(crate) out: std::path::PathBuf,
    /// Take the matrix of placement policies (`bimetal lab compare`) into the report
    #[arg(long)]
    pub(crate) matrix: bool,
    /// Replace FILE even if it is no report of Bimetal's
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab compare
  BIMETAL_TRACES=/data/traces bimetal lab compare --out policies.html
  bimetal lab compare --only zipf-files,drift --fast 10 --no-bounds
Generated loads, each with six seeds (301 to 303 are not used in tuning): zipf-files, scan, film-copy, drift, shift, loop, \
churn, boot, sync-writes, vm-image, nearly-full. Recordings are named by their file without its ending (.csv, .csv.gz). With a load that was named and cannot be replayed the \
exit code is 1.")]
pub(crate) struct Compare {
    /// Only these loads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Fast tiers, in percent of what a load touches
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [5, 10, 20],
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) fast: Vec<u32>,
    /// Recordings: *.csv, *.csv.gz [default: the folder that BIMETAL_TRACES names]
    #[arg(long, value_name = "DIR")]
    pub(crate) traces: Option<std::path::PathBuf>,
    /// Leave out what needs to see the future and much time: the bounds
    #[arg(long)]
    pub(crate) no_bounds: bool,
    /// Write the matrix as an HTML file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<std::path::PathBuf>,
    /// Replace FILE even if it is no report of Bimetal's
    #[arg(long)]
    pub(crate) force: bool,
}

/// A fast tier: so many bytes, or a part of what the load touches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FastSize {
    Bytes(u64),
    Percent(f64),
}

fn fast_size(text: &str) -> Result<FastSize, String> {
    let Some(number) = text.strip_suffix('%') else {
        return match size(text)?.0 {
            0..CHUNK => Err("a fast tier holds at least one chunk of 128 KiB; write 10%, or a size like 64GiB".into()),
            bytes => Ok(FastSize::Bytes(bytes)),
        };
    };
    match number.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(FastSize::Percent(percent)),
        _ => Err(format!("'{text}' is not a part of what is touched; write 10%, or a size like 64GiB")),
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab replay day.bin
  bimetal lab replay hm_0.csv.gz --fast 64GiB --aged
  bimetal lab replay fio.log --format fio --fast 5% --fast 20% --json
All policies see the same accesses, the same disk and the same budget of moves; the two caches beside them, a hybrid \
disk's of 8 GB and Smart Response of 64 GB, are filled without one. Time is that of the slow disk's head.")]
pub(crate) struct Replay {
    /// A recording of block I/O, plain or gzip; - for standard input
    pub(crate) trace: std::path::PathBuf,
    #[command(flatten)]
    pub(crate) recording: Recording,
    /// Size of the fast tier, or part of what is touched; may be repeated [default: 5%, 10%, 20%]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = fast_size)]
    pub(crate) fast: Vec<FastSize>,
    /// Moves cost no budget and are made at once
    #[arg(long)]
    pub(crate) unlimited: bool,
    /// Leave out what needs to see the future and much time: the bounds
    #[arg(long)]
    pub(crate) no_bounds: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_sizes() {
        assert_eq!(fast_size("5%"), Ok(FastSize::Percent(5.0)));
        assert_eq!(fast_size("64GiB"), Ok(FastSize::Bytes(64 << 30)));
        for bad in ["0", "1000", "0%", "101%", "%", "-1%", "nan%", "much"] {
            assert!(fast_size(bad).is_err(), "{bad}");
        }
    }
}
