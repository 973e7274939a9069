//! Recorded or generated block I/O.
//!
//! A trace is a stream of [`Access`]es in order of time. [`open`] reads one from a file in any of the known
//! [`Format`]s, plain or gzip, without holding it in memory. What a reader had to drop or change is counted in
//! [`Repairs`]; what it cannot make sense of is a [`TraceError`] with the line or record where it was met.
//!
//! Reading order: `input` (bytes, lines, records), `parse` (one file per format), `devices` (where a device of the
//! recording lies on the volume), `clock` (times), `reader` (checks and repairs), `merge`, `write`, `summary`.

mod clock;
mod devices;
mod error;
mod format;
mod input;
mod merge;
mod parse;
mod reader;
mod repair;
mod summary;
mod write;

#[cfg(test)]
mod tests;

pub use devices::{Devices, Extent};
pub use error::{Position, TraceError, Wrong};
pub use format::Format;
pub use merge::Merge;
pub use parse::Event;
pub use reader::{open, survey, Options, Reader};
pub use repair::{Fix, Repairs};
pub use summary::{FootprintTooLarge, Hottest, Summary, Tally};
pub use write::write_csv;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards.
    Trim,
    /// Makes everything that was written durable.
    Flush,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Microseconds since the first request; never less than that of the one before.
    pub time_us: u64,
    /// What it does.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 only for [`Op::Flush`].
    pub len: u64,
}
