//! blktrace's binary records (linux/blktrace_api.h, version 7), in the byte order of the recording machine. A record of
//! 48 bytes: mark and version (4), sequence (4), time in ns (8), sector (8), bytes (4), action (4), pid (4), device
//! (4), cpu (4), error (2), length of what follows the record (2). The action's low half is the event, its high half
//! the kind of request.

use super::{Event, Parsed, Parser, Raw, SECTOR};
use crate::trace::devices::Names;
use crate::trace::input::{Input, Record};
use crate::trace::{Fix, Op, TraceError, Wrong};

const SIZE: usize = 48;
/// The upper three bytes of the first word.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;

/// The event without the flag that a cgroup id follows.
const EVENT: u32 = 0xff;
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

const KIND_WRITE: u32 = 1 << (16 + 1);
const KIND_FLUSH: u32 = 1 << (16 + 2);
const KIND_PASSTHROUGH: u32 = 1 << (16 + 9);
const KIND_NOTIFY: u32 = 1 << (16 + 10);
const KIND_DISCARD: u32 = 1 << (16 + 13);
const KIND_DRIVER: u32 = 1 << (16 + 14);
const KIND_FUA: u32 = 1 << (16 + 15);

/// Byte order of the recording machine.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// Of a record that begins with this word; `None` if it is no record.
    fn of(word: [u8; 4]) -> Option<Order> {
        let is_mark = |word: u32| word & !0xff == MAGIC;
        if is_mark(u32::from_le_bytes(word)) {
            Some(Order::Little)
        } else if is_mark(u32::from_be_bytes(word)) {
            Some(Order::Big)
        } else {
            None
        }
    }

    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        }
    }
}

pub(in crate::trace) fn begins(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|&word| Order::of(word).is_some())
}

/// The fields of a record that matter here.
struct Fields {
    time_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    /// Bytes after the record that belong to it.
    more: u16,
}

impl Fields {
    fn read(record: &[u8; SIZE]) -> Result<Fields, Wrong> {
        let take4 = |at: usize| [record[at], record[at + 1], record[at + 2], record[at + 3]];
        let take8 = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&record[at..at + 8]);
            bytes
        };
        let mark = take4(0);
        let order = Order::of(mark).ok_or(Wrong::Magic(u32::from_le_bytes(mark)))?;
        let version = order.u32(mark) & 0xff;
        if version != VERSION {
            return Err(Wrong::Version(version));
        }
        Ok(Fields {
            time_ns: order.u64(take8(8)),
            sector: order.u64(take8(16)),
            bytes: order.u32(take4(24)),
            action: order.u32(take4(28)),
            device: order.u32(take4(36)),
            more: order.u16([record[46], record[47]]),
        })
    }

    fn is(&self, kind: u32) -> bool {
        self.action & kind != 0
    }
}

/// A reader of records.
pub(super) struct Blktrace {
    event: u32,
}

impl Blktrace {
    pub(super) fn new(event: Event) -> Blktrace {
        let event = match event {
            Event::Queue => QUEUE,
            Event::Issue => ISSUE,
            Event::Complete => COMPLETE,
        };
        Blktrace { event }
    }

    fn parse(&self, fields: &Fields, names: &mut Names) -> Result<Parsed, Wrong> {
        if fields.is(KIND_NOTIFY | KIND_DRIVER) || fields.action & EVENT != self.event {
            return Ok(Parsed::Dropped(Fix::OtherEvent));
        }
        if fields.is(KIND_PASSTHROUGH) {
            return Ok(Parsed::Dropped(Fix::OtherCommand));
        }
        // The kernel's internal device number: 12 bits major, 20 bits minor.
        let name = format!("{},{}", fields.device >> 20, fields.device & 0xf_ffff);
        let device = Some(names.number(name.as_bytes())?);
        let time_ns = u128::from(fields.time_ns);
        if fields.bytes == 0 {
            // A flush, or one of the steps that the kernel makes of a flush.
            return Ok(if fields.is(KIND_FLUSH) {
                Parsed::Request(Raw::new(time_ns, device, Op::Flush, 0, 0))
            } else {
                Parsed::Dropped(Fix::OtherCommand)
            });
        }
        let op = if fields.is(KIND_DISCARD) {
            Op::Trim
        } else if fields.is(KIND_WRITE) {
            Op::Write
        } else {
            Op::Read
        };
        let offset = fields.sector.saturating_mul(SECTOR);
        let plain = Raw::new(time_ns, device, op, offset, u64::from(fields.bytes));
        Ok(Parsed::Request(Raw { flush_before: fields.is(KIND_FLUSH), fua: fields.is(KIND_FUA), ..plain }))
    }
}

impl Parser for Blktrace {
    fn next(&mut self, input: &mut Input, names: &mut Names) -> Result<Option<Parsed>, TraceError> {
        let fields = match input.record(SIZE)? {
            Record::Whole(record) => record.first_chunk().map(Fields::read),
            Record::Cut => return Ok(Some(Parsed::Dropped(Fix::CutTail))),
            Record::End => return Ok(None),
        };
        let bad = |at, wrong| TraceError::Bad { at, wrong };
        let fields = match fields {
            Some(Ok(fields)) => fields,
            Some(Err(wrong)) => return Err(bad(input.position(), wrong)),
            None => return Ok(Some(Parsed::Dropped(Fix::CutTail))),
        };
        if !input.skip(usize::from(fields.more))? {
            return Ok(Some(Parsed::Dropped(Fix::CutTail)));
        }
        self.parse(&fields, names).map(Some).map_err(|wrong| bad(input.position(), wrong))
    }
}
