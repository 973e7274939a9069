//! This project's CSV: a header line, then `time_us,op,offset_bytes,length_bytes`; `op` is `R`, `W`, `T` (discard) or
//! `F` (flush, with zeros for offset and length).

use super::number::{commas, field, integer};
use super::{LineParser, Parsed, Raw};
use crate::trace::devices::Names;
use crate::trace::error::excerpt;
use crate::trace::{Fix, Op, Wrong};

/// The first line of every such trace.
pub(in crate::trace) const HEADER: &str = "time_us,op,offset_bytes,length_bytes";

/// The letter of an operation.
pub(in crate::trace) fn letter(op: Op) -> char {
    match op {
        Op::Read => 'R',
        Op::Write => 'W',
        Op::Trim => 'T',
        Op::Flush => 'F',
    }
}

pub(in crate::trace) fn begins(line: &[u8]) -> bool {
    line == HEADER.as_bytes()
}

#[derive(Default)]
pub(super) struct Csv {
    header_seen: bool,
}

impl LineParser for Csv {
    fn line(&mut self, line: &[u8], _: &mut Names) -> Result<Parsed, Wrong> {
        if !self.header_seen {
            if !begins(line) {
                return Err(Wrong::NotHeader { expected: HEADER, found: excerpt(line) });
            }
            self.header_seen = true;
            return Ok(Parsed::Nothing);
        }
        if begins(line) {
            // `cat` of two.
            return Ok(Parsed::Dropped(Fix::Header));
        }
        let fields = &mut commas(line);
        let time_us = integer(fields, "time_us")?;
        let op = match field(fields, "op")? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"T" => Op::Trim,
            b"F" => Op::Flush,
            other => return Err(Wrong::UnknownOp(excerpt(other))),
        };
        let offset = integer(fields, "offset_bytes")?;
        let len = integer(fields, "length_bytes")?;
        Ok(Parsed::Request(Raw::new(u128::from(time_us) * 1000, None, op, offset, len)))
    }
}
