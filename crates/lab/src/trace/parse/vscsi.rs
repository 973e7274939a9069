//! vscsiStats records of VMware ESX as in the CloudPhysics traces: little-endian, no header. Bytes of a record:
//!
//! | version | size | command | version | serial | length | segments | block | time, us | response |
//! |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
//! | 1 | 32 | 12..14 | 14..16 | 0..4 | 4..8 | 8..12 | 16..24 | 24..32 | |
//! | 2 | 40 | 0..2 | 2..4 | 4..8 | 8..12 | 12..16 | 16..24 | 24..32 | 32..40 |
//!
//! The version field's high byte is the version; the command is a SCSI operation code (SBC-3); the length is bytes, a
//! block 512 bytes.

use super::{Parsed, Parser, Raw, SECTOR};
use crate::trace::devices::Names;
use crate::trace::input::{Input, Record};
use crate::trace::{Fix, Op, TraceError, Wrong};

/// Records that must agree before bytes are taken for this format; it has no mark of its own.
const AGREE: usize = 2;

/// A layout of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) enum Version {
    One,
    Two,
}

impl Version {
    fn size(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    fn number(self) -> u8 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    /// Operation code, version, length.
    fn fields(self, record: &[u8]) -> Option<(u16, u16, u32)> {
        Some(match self {
            Version::One => (u16_at(record, 12)?, u16_at(record, 14)?, u32_at(record, 4)?),
            Version::Two => (u16_at(record, 0)?, u16_at(record, 2)?, u32_at(record, 8)?),
        })
    }

    fn fits(self, record: &[u8]) -> bool {
        self.fields(record)
            .is_some_and(|(command, version, _)| version >> 8 == u16::from(self.number()) && command < 256)
    }

    /// The version of the records that a trace begins with.
    pub(in crate::trace) fn detect(head: &[u8]) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let mut records = head.chunks_exact(version.size()).take(AGREE).peekable();
            records.peek().is_some() && records.all(|r| version.fits(r))
        })
    }
}

/// Kind of a SCSI command; `None` if it moves no data or its place is not in the record (UNMAP, WRITE SAME).
fn operation(command: u16) -> Option<Op> {
    match command {
        // READ (6), (10), (12), (16)
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        // WRITE (6), (10), (12), (16), and the same with VERIFY
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Op::Write),
        // SYNCHRONIZE CACHE (10), (16)
        0x35 | 0x91 => Some(Op::Flush),
        _ => None,
    }
}

/// A reader of records of one version.
pub(super) struct Vscsi {
    /// `None` if the first records are of neither.
    version: Option<Version>,
}

impl Vscsi {
    pub(super) fn new(head: &[u8]) -> Vscsi {
        Vscsi { version: Version::detect(head) }
    }
}

impl Parser for Vscsi {
    fn next(&mut self, input: &mut Input, _: &mut Names) -> Result<Option<Parsed>, TraceError> {
        let version = self.version.unwrap_or(Version::One);
        let record = match input.record(version.size())? {
            Record::Whole(record) => record,
            Record::Cut => return Ok(Some(Parsed::Dropped(Fix::CutTail))),
            Record::End => return Ok(None),
        };
        let parsed = if version.fits(record) { parse(version, record) } else { None };
        match parsed {
            Some(parsed) => Ok(Some(parsed)),
            None => {
                let found = version.fields(record).map_or(0, |(_, v, _)| u32::from(v >> 8));
                Err(TraceError::Bad { at: input.position(), wrong: Wrong::Version(found) })
            }
        }
    }
}

fn parse(version: Version, record: &[u8]) -> Option<Parsed> {
    let (command, _, len) = version.fields(record)?;
    let block = u64_at(record, 16)?;
    let time_ns = u128::from(u64_at(record, 24)?) * 1000;
    Some(match operation(command) {
        Some(op) => Parsed::Request(Raw::new(time_ns, None, op, block.saturating_mul(SECTOR), u64::from(len))),
        None => Parsed::Dropped(Fix::OtherCommand),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
