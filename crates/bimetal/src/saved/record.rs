//! Records: a head of 24 bytes, then the content.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `BMsv` |
//! | 4 | 4 | CRC-32C over the checksum before (4 bytes), the head with this field zero, and the content |
//! | 8 | 1 | kind: 1 content, 2 unreadable, 3 end |
//! | 9 | 1 | index of the member |
//! | 10 | 2 | zeros |
//! | 12 | 4 | bytes of the range on the member |
//! | 16 | 8 | first byte of it; of the end: records before it |
//!
//! The checksum before the first record is that of the header. Content has the bytes of its range, the end 8: the sum of the bytes
//! of all content. Integers are little-endian.

use std::io::{ErrorKind, Read, Write};

use anyhow::{bail, Context, Result};
use bimetal_format::block::crc32c;

use super::{BLOCK, PIECE};

const MAGIC: [u8; 4] = *b"BMsv";
const HEAD: usize = 24;
const CRC: std::ops::Range<usize> = 4..8;
const END_LEN: usize = 8;

/// A record as it is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    Content { member: u8, offset: u64, content: &'a [u8] },
    Unreadable { member: u8, offset: u64, length: u64 },
    End,
}

/// Kinds, as stored.
const CONTENT: u8 = 1;
const UNREADABLE: u8 = 2;
const THE_END: u8 = 3;

/// The head and content of a record with its checksum, and the checksum.
fn sealed(chain: u32, mut head: [u8; HEAD], content: &[u8], scratch: &mut Vec<u8>) -> u32 {
    head[CRC].fill(0);
    scratch.clear();
    scratch.extend(chain.to_le_bytes());
    scratch.extend(head);
    scratch.extend(content);
    crc32c(scratch)
}

/// Writes records.
pub(super) struct RecordWriter<W> {
    out: W,
    chain: u32,
    records: u64,
    bytes: u64,
    scratch: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    /// `chain` is the checksum of what stands before the records.
    pub(super) fn new(out: W, chain: u32) -> RecordWriter<W> {
        RecordWriter { out, chain, records: 0, bytes: 0, scratch: Vec::new() }
    }

    pub(super) fn content(&mut self, member: u8, offset: u64, content: &[u8]) -> std::io::Result<()> {
        self.bytes += content.len() as u64;
        self.put(CONTENT, member, content.len() as u64, offset, content)
    }

    pub(super) fn unreadable(&mut self, member: u8, offset: u64, length: u64) -> std::io::Result<()> {
        self.put(UNREADABLE, member, length, offset, &[])
    }

    /// The end: without it the file counts as cut off.
    pub(super) fn end(mut self) -> std::io::Result<W> {
        let (records, bytes) = (self.records, self.bytes);
        self.put(THE_END, 0, END_LEN as u64, records, &bytes.to_le_bytes())?;
        Ok(self.out)
    }

    fn put(&mut self, kind: u8, member: u8, length: u64, offset: u64, content: &[u8]) -> std::io::Result<()> {
        assert!(length <= PIECE, "a record holds at most a piece");
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[8] = kind;
        head[9] = member;
        head[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        head[16..24].copy_from_slice(&offset.to_le_bytes());
        self.chain = sealed(self.chain, head, content, &mut self.scratch);
        head[CRC].copy_from_slice(&self.chain.to_le_bytes());
        self.records += 1;
        self.out.write_all(&head)?;
        self.out.write_all(content)
    }
}

/// Reads records, and believes none whose checksum is wrong.
pub(super) struct RecordReader<R> {
    input: R,
    chain: u32,
    records: u64,
    bytes: u64,
    content: Vec<u8>,
    scratch: Vec<u8>,
}

impl<R: Read> RecordReader<R> {
    pub(super) fn new(input: R, chain: u32) -> RecordReader<R> {
        RecordReader { input, chain, records: 0, bytes: 0, content: Vec::new(), scratch: Vec::new() }
    }

    /// The next record. Errors say what is wrong with the file.
    pub(super) fn next(&mut self) -> Result<Record<'_>> {
        let mut head = [0; HEAD];
        read_whole(&mut self.input, &mut head)?;
        let number =
            |range: std::ops::Range<usize>| head[range].iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let (kind, member, length, offset) = (head[8], head[9], number(12..16), number(16..24));
        let stored = match kind {
            CONTENT => length,
            UNREADABLE => 0,
            THE_END if length == END_LEN as u64 => length,
            _ => bail!("{} is none", self.here()),
        };
        let whole_blocks = kind == THE_END || (length > 0 && length % BLOCK == 0 && offset % BLOCK == 0);
        // Before memory is taken for it.
        if head[..4] != MAGIC || length > PIECE || !whole_blocks {
            bail!("{} is none", self.here());
        }
        self.content.resize(stored as usize, 0);
        read_whole(&mut self.input, &mut self.content)?;
        let crc = sealed(self.chain, head, &self.content, &mut self.scratch);
        if head[CRC] != crc.to_le_bytes() || head[10..12] != [0, 0] {
            bail!("the checksum of {} is wrong", self.here());
        }
        self.chain = crc;
        if kind == THE_END {
            return self.end(offset);
        }
        self.records += 1;
        self.bytes += stored;
        Ok(match kind {
            CONTENT => Record::Content { member, offset, content: &self.content },
            _ => Record::Unreadable { member, offset, length },
        })
    }

    fn end(&mut self, records: u64) -> Result<Record<'_>> {
        if records != self.records || self.content != self.bytes.to_le_bytes() {
            bail!("its end speaks of other records than there are");
        }
        let mut more = [0];
        match self.input.read(&mut more).context("it cannot be read")? {
            0 => Ok(Record::End),
            _ => bail!("something follows its end"),
        }
    }

    fn here(&self) -> String {
        format!("record {}", self.records)
    }
}

/// Reads exactly as much.
pub(super) fn read_whole(input: &mut impl Read, into: &mut [u8]) -> Result<()> {
    match input.read_exact(into) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => bail!("it is cut off"),
        other => other.context("it cannot be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut w = RecordWriter::new(Vec::new(), 7);
        w.content(0, 65536, &[1; 4096]).expect("memory");
        w.unreadable(3, 8192, 12288).expect("memory");
        w.end().expect("memory")
    }

    #[test]
    fn records_read_back() {
        let bytes = written();
        let mut r = RecordReader::new(&bytes[..], 7);
        let first = r.next().expect("sound");
        assert_eq!(first, Record::Content { member: 0, offset: 65536, content: &[1; 4096] });
        assert_eq!(r.next().expect("sound"), Record::Unreadable { member: 3, offset: 8192, length: 12288 });
        assert_eq!(r.next().expect("sound"), Record::End);
    }

    #[test]
    fn a_record_of_another_place_in_the_file_is_refused() {
        let bytes = written();
        assert!(RecordReader::new(&bytes[..], 8).next().is_err(), "of another file");
        let second = &bytes[HEAD + 4096..];
        assert!(RecordReader::new(second, 7).next().is_err(), "the first is missing");
    }

    #[test]
    fn a_huge_record_takes_no_memory() {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[8] = CONTENT;
        head[12..16].copy_from_slice(&0xffff_f000u32.to_le_bytes());
        let mut r = RecordReader::new(&head[..], 0);
        assert!(r.next().expect_err("too long").to_string().contains("record 0 is none"));
        assert_eq!(r.content.capacity(), 0);
    }
}
