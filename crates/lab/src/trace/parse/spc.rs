//! SPC trace file format 1.01 (UMass Financial and WebSearch): `ASU,LBA,Size,Opcode,Timestamp` and optional further
//! fields, no header. The LBA counts sectors of 512 bytes, the size is bytes, the opcode `R` or `W` in either case, the
//! timestamp seconds with a fraction. Fields may have space around them.

use super::number::{commas, digits, field, integer, seconds};
use super::{LineParser, Parsed, Raw, SECTOR};
use crate::trace::devices::Names;
use crate::trace::error::excerpt;
use crate::trace::{Op, Wrong};

fn operation(text: &[u8]) -> Option<Op> {
    match text {
        b"R" | b"r" => Some(Op::Read),
        b"W" | b"w" => Some(Op::Write),
        _ => None,
    }
}

pub(in crate::trace) fn begins(line: &[u8]) -> bool {
    let mut fields = commas(line).map(<[u8]>::trim_ascii);
    (0..3).all(|_| fields.next().and_then(digits).is_some())
        && fields.next().and_then(operation).is_some()
        && seconds(&mut fields, "Timestamp").is_ok()
}

pub(super) struct Spc;

impl LineParser for Spc {
    fn line(&mut self, line: &[u8], names: &mut Names) -> Result<Parsed, Wrong> {
        let fields = &mut commas(line);
        let asu = field(fields, "ASU")?;
        let sector = integer(fields, "LBA")?;
        let len = integer(fields, "Size")?;
        let text = field(fields, "Opcode")?;
        let op = operation(text).ok_or_else(|| Wrong::UnknownOp(excerpt(text)))?;
        let time_ns = seconds(fields, "Timestamp")?;
        let device = names.number(asu)?;
        Ok(Parsed::Request(Raw::new(time_ns, Some(device), op, sector.saturating_mul(SECTOR), len)))
    }
}
