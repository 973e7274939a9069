//! What the tests of the readers share.

mod bad;
mod folder;
mod formats;
mod place;
mod random;
mod scale;
mod tally;

use std::io::{Cursor, Write};

use flate2::write::GzEncoder;
use flate2::Compression;

use super::*;

fn access(time_us: u64, op: Op, offset: u64, len: u64) -> Access {
    Access { time_us, op, offset, len }
}

fn reader(bytes: impl AsRef<[u8]>, options: &Options) -> Result<Reader, TraceError> {
    Reader::new(Cursor::new(bytes.as_ref().to_vec()), options)
}

/// Everything up to the end or the first error, and what was repaired.
fn read_with(bytes: impl AsRef<[u8]>, options: &Options) -> (Vec<Access>, Option<TraceError>, Repairs) {
    let mut reader = match reader(bytes, options) {
        Ok(reader) => reader,
        Err(e) => return (Vec::new(), Some(e), Repairs::default()),
    };
    let mut accesses = Vec::new();
    let mut failed = None;
    for item in reader.by_ref() {
        assert!(failed.is_none(), "a reader ends after an error");
        match item {
            Ok(access) => accesses.push(access),
            Err(e) => failed = Some(e),
        }
    }
    (accesses, failed, reader.repairs().clone())
}

/// Of a trace in which nothing is wrong.
fn read_clean(bytes: impl AsRef<[u8]>) -> Vec<Access> {
    let (accesses, failed, repairs) = read_with(bytes, &Options::default());
    assert!(failed.is_none(), "{failed:?}");
    assert!(repairs.is_clean(), "{repairs}");
    accesses
}

/// The message of a trace that cannot be read, and what came before.
fn fails(bytes: impl AsRef<[u8]>, options: &Options) -> (Vec<Access>, String) {
    let (accesses, failed, _) = read_with(bytes, options);
    (accesses, failed.expect("an error").to_string())
}

fn of(format: Format) -> Options {
    Options { format: Some(format), ..Options::default() }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A record of vscsiStats, version 1.
fn vscsi1(command: u8, len: u32, block: u64, time_us: u64) -> Vec<u8> {
    let mut record = Vec::new();
    for word in [7u32, len, 1] {
        record.extend(word.to_le_bytes());
    }
    record.extend(u16::from(command).to_le_bytes());
    record.extend(0x0100u16.to_le_bytes());
    record.extend(block.to_le_bytes());
    record.extend(time_us.to_le_bytes());
    record
}

/// A record of vscsiStats, version 2.
fn vscsi2(command: u8, len: u32, block: u64, time_us: u64) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(u16::from(command).to_le_bytes());
    record.extend(0x0200u16.to_le_bytes());
    for word in [7u32, len, 1] {
        record.extend(word.to_le_bytes());
    }
    for long in [block, time_us, 350] {
        record.extend(long.to_le_bytes());
    }
    record
}

/// A record of blktrace with `more` bytes after it, in the byte order asked for.
fn blktrace(big: bool, time_ns: u64, sector: u64, bytes: u32, action: u32, more: u16) -> Vec<u8> {
    let mut record = Vec::new();
    let short = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let word = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    let long = |n: u64| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    record.extend(word(0x6561_7407));
    record.extend(word(1));
    record.extend(long(time_ns));
    record.extend(long(sector));
    record.extend(word(bytes));
    record.extend(word(action));
    record.extend(word(4711));
    record.extend(word(8 << 20 | 16));
    record.extend(word(0));
    record.extend(short(0));
    record.extend(short(more));
    assert_eq!(record.len(), 48);
    record.extend(std::iter::repeat_n(0xee, usize::from(more)));
    record
}

/// The action of a request that is queued: its kind is bits of the high half.
fn queued(kind: u32) -> u32 {
    1 | (kind | 1 << 4) << 16
}
