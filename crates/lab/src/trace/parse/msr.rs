//! MSR Cambridge (SNIA IOTTA 388): `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, without a header, which
//! some have put before it. The timestamp counts 100 ns ticks (Windows file time), `Type` is `Read` or `Write`, offset and size are bytes.

use super::number::{commas, digits, field, integer};
use super::{LineParser, Parsed, Raw};
use crate::trace::devices::Names;
use crate::trace::error::excerpt;
use crate::trace::{Fix, Op, Wrong};

const TICK_NS: u128 = 100;

fn operation(text: &[u8]) -> Option<Op> {
    if text.eq_ignore_ascii_case(b"read") {
        Some(Op::Read)
    } else if text.eq_ignore_ascii_case(b"write") {
        Some(Op::Write)
    } else {
        None
    }
}

/// Whether a line names the columns.
fn is_header(line: &[u8]) -> bool {
    let mut fields = commas(line).map(<[u8]>::trim_ascii);
    let mut is = |name: &str| fields.next().is_some_and(|f| f.eq_ignore_ascii_case(name.as_bytes()));
    ["timestamp", "hostname", "disknumber", "type", "offset", "size"].into_iter().all(&mut is)
}

pub(in crate::trace) fn begins(line: &[u8]) -> bool {
    if is_header(line) {
        return true;
    }
    let mut fields = commas(line).map(<[u8]>::trim_ascii);
    fields.next().and_then(digits).is_some() && fields.nth(2).and_then(operation).is_some()
}

#[derive(Default)]
pub(super) struct Msr {
    /// `host.disk` of the line, kept to save an allocation for each.
    name: Vec<u8>,
}

impl LineParser for Msr {
    fn line(&mut self, line: &[u8], names: &mut Names) -> Result<Parsed, Wrong> {
        if !line.first().is_some_and(u8::is_ascii_digit) && is_header(line) {
            return Ok(Parsed::Dropped(Fix::Header));
        }
        let fields = &mut commas(line);
        let ticks = integer(fields, "Timestamp")?;
        self.name.clear();
        self.name.extend_from_slice(field(fields, "Hostname")?);
        self.name.push(b'.');
        self.name.extend_from_slice(field(fields, "DiskNumber")?);
        let text = field(fields, "Type")?;
        let op = operation(text).ok_or_else(|| Wrong::UnknownOp(excerpt(text)))?;
        let offset = integer(fields, "Offset")?;
        let len = integer(fields, "Size")?;
        let device = names.number(&self.name)?;
        Ok(Parsed::Request(Raw::new(u128::from(ticks) * TICK_NS, Some(device), op, offset, len)))
    }
}
