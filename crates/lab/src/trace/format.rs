//! The known formats, their names, and how each is told from the others.

use std::fmt;
use std::str::FromStr;

use super::input::LINE_MAX;
use super::parse::{blkparse, blktrace, csv, fio, msr, spc, vscsi};
use super::TraceError;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// This project's CSV: `time_us,op,offset_bytes,length_bytes`.
    Csv,
    /// MSR Cambridge CSV: `timestamp,host,disk,type,offset,size,response`.
    Msr,
    /// SPC (UMass) CSV: `asu,lba,size,opcode,seconds`.
    Spc,
    /// Binary records of VMware's vscsiStats, versions 1 and 2, as CloudPhysics has them.
    Vscsi,
    /// The binary file that blktrace writes for each CPU, or `blkparse -d` for all.
    Blktrace,
    /// What blkparse prints.
    Blkparse,
    /// fio's I/O log, versions 2 and 3.
    Fio,
}

impl Format {
    /// All of them, in the order in which a trace is tried.
    pub const ALL: [Format; 7] =
        [Format::Blktrace, Format::Csv, Format::Fio, Format::Msr, Format::Spc, Format::Blkparse, Format::Vscsi];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::Msr => "msr",
            Format::Spc => "spc",
            Format::Vscsi => "vscsi",
            Format::Blktrace => "blktrace",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
        }
    }

    /// All names, for people.
    pub(super) fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }

    /// Whether it says which device a request went to.
    pub fn has_devices(self) -> bool {
        !matches!(self, Format::Csv | Format::Vscsi)
    }

    /// Whether it is binary.
    pub(super) fn has_records(self) -> bool {
        matches!(self, Format::Vscsi | Format::Blktrace)
    }

    /// The format of a trace that begins with these bytes, at least [`DETECT`] of them unless it is shorter.
    pub(super) fn detect(head: &[u8]) -> Option<Format> {
        // Binary first: text that follows is looked at line by line, of which a binary file may have none.
        let line = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).find(|l| !l.is_empty()).unwrap_or_default();
        Format::ALL.into_iter().find(|format| match format {
            Format::Blktrace => blktrace::begins(head),
            Format::Vscsi => vscsi::Version::detect(head).is_some(),
            Format::Csv => csv::begins(line),
            Format::Fio => fio::begins(line),
            Format::Msr => msr::begins(line),
            Format::Spc => spc::begins(line),
            Format::Blkparse => blkparse::begins(line),
        })
    }
}

/// Bytes that [`Format::detect`] looks at.
pub(super) const DETECT: usize = 2 * LINE_MAX;

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = TraceError;

    fn from_str(name: &str) -> Result<Format, TraceError> {
        Format::ALL
            .into_iter()
            .find(|f| f.name() == name)
            .ok_or_else(|| TraceError::NoSuchFormat { name: super::error::excerpt(name.as_bytes()) })
    }
}
