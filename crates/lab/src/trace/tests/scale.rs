//! Long traces, and lines that never end: time and memory stay bounded.

use std::io::Read;

use super::*;

/// Makes its bytes while they are read: a header, then the same lines again and again.
struct Endless {
    head: Vec<u8>,
    line: &'static [u8],
    lines: u64,
    left: Vec<u8>,
    handed_out: u64,
}

impl Endless {
    fn new(head: &str, line: &'static [u8], lines: u64) -> Endless {
        Endless { head: head.into(), line, lines, left: Vec::new(), handed_out: 0 }
    }
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.left.is_empty() {
            self.left = std::mem::take(&mut self.head);
            let now = self.lines.min(1000);
            self.lines -= now;
            self.left.extend(self.line.repeat(now as usize));
        }
        let n = self.left.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.left[..n]);
        self.left.drain(..n);
        self.handed_out += n as u64;
        Ok(n)
    }
}

const HEADER: &str = "time_us,op,offset_bytes,length_bytes\n";

#[test]
fn ten_million_lines() {
    const LINES: u64 = 10_000_000;
    let source = Endless::new(HEADER, b"1234567,R,1048576,4096\n", LINES);
    let mut reader = Reader::new(source, &Options::default()).unwrap();
    let mut count = 0u64;
    for access in reader.by_ref() {
        assert_eq!(access.unwrap().offset, 1 << 20);
        count += 1;
    }
    assert_eq!(count, LINES);
    assert_eq!(reader.position(), Position::Line(LINES + 1));
    assert!(reader.repairs().is_clean());
}

#[test]
fn a_repair_for_every_line_costs_no_memory() {
    let source = Endless::new(HEADER, b"5,R,0,0\n4,T,0,0\n", 100_000);
    let mut reader = Reader::new(source, &Options::default()).unwrap();
    assert!(matches!(reader.next(), Some(Err(TraceError::Empty { .. }))));
    assert_eq!(reader.repairs().count(Fix::ZeroLength), 200_000);
    assert!(std::mem::size_of_val(reader.repairs()) < 1024);
}

/// Counts what is taken of it.
struct Counted(std::sync::Arc<std::sync::atomic::AtomicU64>, Endless);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.read(buffer)?;
        self.0.fetch_add(n as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(n)
    }
}

#[test]
fn a_line_without_end_is_given_up_soon() {
    for (head, line) in [(HEADER, 2), ("fio version 3 iolog\n", 2), ("0,0,512,r,0.0\n", 2)] {
        let taken = std::sync::Arc::default();
        let source = Counted(std::sync::Arc::clone(&taken), Endless::new(head, b"0123456789", u64::MAX));
        let last = Reader::new(source, &Options::default()).unwrap().last().unwrap();
        assert_eq!(last.unwrap_err().to_string(), format!("line {line}: the line is longer than 4096 bytes"));
        assert!(taken.load(std::sync::atomic::Ordering::Relaxed) < 1 << 20);
    }
}

#[test]
fn a_small_file_that_unpacks_to_a_large_one_is_read_piece_by_piece() {
    let packed = gzip(&vec![b'0'; 64 << 20]);
    assert!(packed.len() < 100_000);
    let message = fails(&packed, &of(Format::Csv)).1;
    assert_eq!(message, "line 1: the line is longer than 4096 bytes");
}
