//! From a line or record of each format to a [`Raw`] request; no more is checked here than the format itself asks.

pub(super) mod blkparse;
pub(super) mod blktrace;
pub(super) mod csv;
pub(super) mod fio;
pub(super) mod msr;
pub(super) mod number;
pub(super) mod spc;
pub(super) mod vscsi;

use super::devices::Names;
use super::input::{Input, Line};
use super::{Fix, Format, Op, TraceError, Wrong};

/// Which moment in the life of a request to take from a recording that has several (blktrace, blkparse).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// Handed to the block layer (`Q`): what was asked for, before merging. The one to replay.
    #[default]
    Queue,
    /// Handed to the driver (`D`): what the device saw.
    Issue,
    /// Done (`C`).
    Complete,
}

/// Bytes of a sector in the formats that count in sectors.
pub(super) const SECTOR: u64 = 512;

/// A request as its trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw {
    /// Nanoseconds on the recording's own clock.
    pub(super) time_ns: u128,
    /// Number in [`Names`]; `None` if the format has no devices.
    pub(super) device: Option<u32>,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// What was written before is made durable first.
    pub(super) flush_before: bool,
    /// This write is made durable before it is acknowledged.
    pub(super) fua: bool,
}

impl Raw {
    /// A plain request.
    fn new(time_ns: u128, device: Option<u32>, op: Op, offset: u64, len: u64) -> Raw {
        Raw { time_ns, device, op, offset, len, flush_before: false, fua: false }
    }
}

/// What a line or record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// A request.
    Request(Raw),
    /// Something that is not passed on.
    Dropped(Fix),
    /// Part of the format that asks for nothing, such as a header.
    Nothing,
}

/// Takes one thing after another from a trace.
pub(super) trait Parser: Send {
    /// The next thing; `None` at the end.
    fn next(&mut self, input: &mut Input, names: &mut Names) -> Result<Option<Parsed>, TraceError>;
}

/// A format of one request per line.
trait LineParser: Send {
    /// Reads a line that is not empty, without its end and without space around it.
    fn line(&mut self, line: &[u8], names: &mut Names) -> Result<Parsed, Wrong>;
}

struct Lines<P> {
    parser: P,
    /// The last line had no end, which is still to be said.
    unended: bool,
}

impl<P: LineParser> Parser for Lines<P> {
    fn next(&mut self, input: &mut Input, names: &mut Names) -> Result<Option<Parsed>, TraceError> {
        if std::mem::take(&mut self.unended) {
            return Ok(Some(Parsed::Dropped(Fix::Unended)));
        }
        let (line, whole) = match input.line()? {
            Line::Whole(line) => (line.trim_ascii(), true),
            Line::Unended(line) => (line.trim_ascii(), false),
            Line::End => return Ok(None),
        };
        if line.is_empty() {
            return Ok(Some(Parsed::Dropped(Fix::Blank)));
        }
        match self.parser.line(line, names) {
            Ok(parsed) => {
                self.unended = !whole && matches!(parsed, Parsed::Request(_));
                Ok(Some(parsed))
            }
            // What cannot be read at the very end was most likely cut; but not if it is all there is.
            Err(wrong) if whole || matches!(wrong, Wrong::NotHeader { .. }) => {
                Err(TraceError::Bad { at: input.position(), wrong })
            }
            Err(_) => Ok(Some(Parsed::Dropped(Fix::CutTail))),
        }
    }
}

/// A parser of `format`; `head` are the first bytes of the trace.
pub(super) fn parser(format: Format, event: Event, head: &[u8]) -> Box<dyn Parser> {
    fn lines(parser: impl LineParser + 'static) -> Box<dyn Parser> {
        Box::new(Lines { parser, unended: false })
    }
    match format {
        Format::Csv => lines(csv::Csv::default()),
        Format::Msr => lines(msr::Msr::default()),
        Format::Spc => lines(spc::Spc),
        Format::Blkparse => lines(blkparse::Blkparse::new(event)),
        Format::Fio => lines(fio::Fio::default()),
        Format::Vscsi => Box::new(vscsi::Vscsi::new(head)),
        Format::Blktrace => Box::new(blktrace::Blktrace::new(event)),
    }
}
