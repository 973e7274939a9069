//! fio's I/O log, versions 2 and 3 (fio's manual, "Trace file format"). The first line names the version. A line of
//! version 2 is `file action` or `file action offset length`, and `file wait us` lets time pass; version 3 begins each
//! line with microseconds since the start and has no waits.

use super::number::{field, integer, words};
use super::{LineParser, Parsed, Raw};
use crate::trace::devices::Names;
use crate::trace::error::excerpt;
use crate::trace::{Fix, Op, Wrong};

const HEADER_2: &str = "fio version 2 iolog";
const HEADER_3: &str = "fio version 3 iolog";

pub(in crate::trace) fn begins(line: &[u8]) -> bool {
    Version::of(line).is_some()
}

#[derive(Clone, Copy)]
enum Version {
    Two,
    Three,
}

impl Version {
    fn of(line: &[u8]) -> Option<Version> {
        if line == HEADER_2.as_bytes() {
            Some(Version::Two)
        } else if line == HEADER_3.as_bytes() {
            Some(Version::Three)
        } else {
            None
        }
    }
}

#[derive(Default)]
pub(super) struct Fio {
    /// Known once the header was read.
    version: Option<Version>,
    /// Sum of the waits so far; version 2 only.
    waited_us: u128,
}

impl LineParser for Fio {
    fn line(&mut self, line: &[u8], names: &mut Names) -> Result<Parsed, Wrong> {
        let Some(version) = self.version else {
            self.version = Version::of(line);
            return match self.version {
                Some(_) => Ok(Parsed::Nothing),
                None => Err(Wrong::NotHeader { expected: HEADER_3, found: excerpt(line) }),
            };
        };
        if let Some(another) = Version::of(line) {
            // `cat` of two.
            (self.version, self.waited_us) = (Some(another), 0);
            return Ok(Parsed::Dropped(Fix::Header));
        }
        let words = &mut words(line);
        let time_us = match version {
            Version::Two => self.waited_us,
            Version::Three => u128::from(integer(words, "timestamp")?),
        };
        let file = field(words, "file")?;
        let op = match (field(words, "action")?, version) {
            (b"read", _) => Op::Read,
            (b"write", _) => Op::Write,
            (b"trim", _) => Op::Trim,
            (b"sync" | b"datasync", _) => Op::Flush,
            (b"add" | b"open" | b"close", _) => return Ok(Parsed::Nothing),
            // Starts writing back, but promises nothing.
            (b"sync_file_range", _) => return Ok(Parsed::Dropped(Fix::OtherCommand)),
            (b"wait", Version::Two) => {
                self.waited_us += u128::from(integer(words, "microseconds")?);
                return Ok(Parsed::Nothing);
            }
            (other, _) => return Err(Wrong::UnknownOp(excerpt(other))),
        };
        let (offset, len) = match op {
            Op::Flush => (0, 0),
            _ => (integer(words, "offset")?, integer(words, "length")?),
        };
        let device = names.number(file)?;
        Ok(Parsed::Request(Raw::new(time_us * 1000, Some(device), op, offset, len)))
    }
}
