//! Why a trace cannot be read.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::{Fix, Format, Repairs};

/// Where in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line of a text format, from 1; 0 before the first.
    Line(u64),
    /// A record of a binary format, from 1; 0 before the first.
    Record(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Line(n) => write!(f, "line {n}"),
            Position::Record(n) => write!(f, "record {n}"),
        }
    }
}

/// What is wrong with a line or a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// The line ends too early.
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    /// A field that should be a number is not, or does not fit.
    #[error("the field `{field}` is not a number that fits: `{text}`")]
    NotANumber {
        /// Its name in the format's description.
        field: &'static str,
        /// What is there, shortened.
        text: String,
    },
    /// An operation that the format does not have.
    #[error("unknown operation `{0}`")]
    UnknownOp(String),
    /// The first line does not name the format.
    #[error("`{expected}` was expected, not `{found}`")]
    NotHeader {
        /// The line that opens every trace of this format.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A line that no format has: a binary file, most likely.
    #[error("the line is longer than {0} bytes")]
    LineTooLong(usize),
    /// A record that does not begin with the format's mark.
    #[error("the record's mark is {0:#010x}, not that of the format")]
    Magic(u32),
    /// A record of a version that is not known.
    #[error("version {0} of the format is not known")]
    Version(u32),
    /// Requests of several devices, and nobody said where they should lie.
    #[error("a second device, `{second}` after `{first}`: choose one, or say where each lies")]
    SecondDevice {
        /// The device met first.
        first: String,
        /// The other one.
        second: String,
    },
    /// More devices than a recording has.
    #[error("more than {0} devices")]
    ManyDevices(usize),
}

/// A trace that cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("{path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading failed.
    #[error("after {at}: {source}")]
    Read {
        /// The last thing that was read whole.
        at: Position,
        /// Why.
        source: io::Error,
    },
    /// The compressed file ends too early.
    #[error("after {at}: the gzip file is cut short")]
    GzipCut {
        /// The last thing that was read whole.
        at: Position,
    },
    /// The compressed file does not decompress.
    #[error("after {at}: the gzip file is damaged: {source}")]
    GzipDamaged {
        /// The last thing that was read whole.
        at: Position,
        /// Why.
        source: io::Error,
    },
    /// Nothing at the beginning tells the format.
    #[error("the format is not recognised; known are {}", Format::names())]
    UnknownFormat,
    /// A name that no format has.
    #[error("no trace format is named `{name}`; known are {}", Format::names())]
    NoSuchFormat {
        /// What was asked for, shortened.
        name: String,
    },
    /// A line or record that makes no sense.
    #[error("{at}: {wrong}")]
    Bad {
        /// Where.
        at: Position,
        /// What.
        wrong: Wrong,
    },
    /// Something that would have been repaired, had [`super::Options::strict`] not been set.
    #[error("{at}: {}", fix.what())]
    Refused {
        /// Where.
        at: Position,
        /// What.
        fix: Fix,
    },
    /// Too much goes back in time for an accident.
    #[error(
        "{back} of {requests} requests are more than 10 s earlier than one before them, first at {at}; the latest so far is at \
         {latest}: the trace is not in order of time"
    )]
    NotInOrder {
        /// The first that goes back.
        at: Position,
        /// The one with the latest time.
        latest: Position,
        /// Requests that go back.
        back: u64,
        /// Requests read.
        requests: u64,
    },
    /// Nothing is left to replay.
    #[error("the trace holds no requests{}", Repairs::because(repairs))]
    Empty {
        /// What was dropped.
        repairs: Box<Repairs>,
    },
}

/// At most 40 printable characters of what a file holds, for a message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let shown = bytes.get(..40).unwrap_or(bytes);
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("{}{dots}", shown.escape_ascii())
}
