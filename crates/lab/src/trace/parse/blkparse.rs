//! What blkparse prints in its default format, one event per line:
//!
//! `major,minor cpu sequence seconds pid event kind sector + sectors [process]`
//!
//! The kind is letters: `F` first for a flush before, then `R`, `W`, `D` (discard) or `N` (none), then `F` for FUA and
//! others that do not matter here. A flush alone has no sectors. The totals at the end of the output are left out.

use super::number::{digits, integer, seconds, words};
use super::{Event, LineParser, Parsed, Raw, SECTOR};
use crate::trace::devices::Names;
use crate::trace::error::excerpt;
use crate::trace::{Fix, Op, Wrong};

/// Whether a word is `major,minor`.
fn is_device(word: &[u8]) -> bool {
    let mut parts = word.split(|&b| b == b',');
    let mut number = || parts.next().and_then(digits).is_some();
    number() && number() && parts.next().is_none()
}

pub(in crate::trace) fn begins(line: &[u8]) -> bool {
    let mut words = words(line);
    words.next().is_some_and(is_device)
        && words.next().and_then(digits).is_some()
        && words.next().and_then(digits).is_some()
        && seconds(&mut words, "time").is_ok()
}

/// A request's kind, from its letters.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// `None` if it carries no data.
    op: Option<Op>,
    flush_before: bool,
    fua: bool,
}

fn kind(letters: &[u8]) -> Result<Kind, Wrong> {
    let unknown = || Wrong::UnknownOp(excerpt(letters));
    let (flush_before, rest) = match letters.strip_prefix(b"F") {
        Some(rest) => (true, rest),
        None => (false, letters),
    };
    let (&first, others) = match rest.split_first() {
        Some(split) => split,
        None if flush_before => (&b'N', &[][..]),
        None => return Err(unknown()),
    };
    let op = match first {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        b'D' => Some(Op::Trim),
        // `FF` is a flush too, `F` after it what it always has.
        b'N' | b'F' => None,
        _ => return Err(unknown()),
    };
    if !others.iter().all(|l| b"FASMEBVND".contains(l)) {
        return Err(unknown());
    }
    Ok(Kind { op, flush_before, fua: others.contains(&b'F') })
}

pub(super) struct Blkparse {
    event: u8,
}

impl Blkparse {
    pub(super) fn new(event: Event) -> Blkparse {
        let event = match event {
            Event::Queue => b'Q',
            Event::Issue => b'D',
            Event::Complete => b'C',
        };
        Blkparse { event }
    }
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8], names: &mut Names) -> Result<Parsed, Wrong> {
        let words = &mut words(line);
        let Some(name) = words.next().filter(|w| is_device(w)) else {
            return Ok(Parsed::Dropped(Fix::OtherEvent));
        };
        integer(words, "cpu")?;
        integer(words, "sequence")?;
        let time_ns = seconds(words, "time")?;
        integer(words, "pid")?;
        let event = words.next().ok_or(Wrong::Missing("event"))?;
        if event != [self.event] {
            return Ok(Parsed::Dropped(Fix::OtherEvent));
        }
        let kind = kind(words.next().ok_or(Wrong::Missing("kind"))?)?;
        let device = Some(names.number(name)?);
        let next = words.next().ok_or(Wrong::Missing("sector"))?;
        let sector = digits(next);
        // Without data no length follows, but the process in brackets, or the time it took in parentheses. A command
        // that the block layer only passes on has its bytes in parentheses, after its length or alone.
        let ends = |word: &[u8]| word.starts_with(b"[") || word.starts_with(b"(");
        let data = match (kind.op, sector, words.next()) {
            (Some(op), Some(sector), Some(b"+")) => Some((op, sector)),
            (Some(_), Some(_), Some(word)) if ends(word) => None,
            (Some(_), Some(_), _) => return Err(Wrong::Missing("+")),
            (Some(_), None, _) if !ends(next) => {
                return Err(Wrong::NotANumber { field: "sector", text: excerpt(next) });
            }
            _ => None,
        };
        let Some((op, sector)) = data else {
            return Ok(if kind.flush_before {
                Parsed::Request(Raw::new(time_ns, device, Op::Flush, 0, 0))
            } else {
                Parsed::Dropped(Fix::OtherCommand)
            });
        };
        let sectors = integer(words, "sectors")?;
        let plain = Raw::new(time_ns, device, op, sector.saturating_mul(SECTOR), sectors.saturating_mul(SECTOR));
        Ok(Parsed::Request(Raw { flush_before: kind.flush_before, fua: kind.fua, ..plain }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters() {
        let plain = |op| Kind { op: Some(op), flush_before: false, fua: false };
        assert_eq!(kind(b"R"), Ok(plain(Op::Read)));
        assert_eq!(kind(b"RAM"), Ok(plain(Op::Read)));
        assert_eq!(kind(b"WS"), Ok(plain(Op::Write)));
        assert_eq!(kind(b"DS"), Ok(plain(Op::Trim)));
        assert_eq!(kind(b"WFS"), Ok(Kind { op: Some(Op::Write), flush_before: false, fua: true }));
        assert_eq!(kind(b"FWFS"), Ok(Kind { op: Some(Op::Write), flush_before: true, fua: true }));
        assert_eq!(kind(b"FN"), Ok(Kind { op: None, flush_before: true, fua: false }));
        assert_eq!(kind(b"N"), Ok(Kind { op: None, flush_before: false, fua: false }));
        for bad in [&b"X"[..], b"", b"Rx", b"1"] {
            assert!(kind(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
