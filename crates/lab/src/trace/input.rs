//! The bytes of a trace: decompressed, and cut into lines or records with bounded memory.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use flate2::bufread::GzDecoder;

use super::{Position, TraceError, Wrong};

/// No line of any format is longer.
pub(super) const LINE_MAX: usize = 4096;
/// Bytes held at any time.
const BUFFER: usize = 64 * 1024;
/// First bytes of a gzip member (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A buffered stream of lines or records. A trace is cut into one of the two kinds, never both.
pub(super) struct Input {
    source: Box<dyn Read + Send>,
    gzip: bool,
    /// Bytes that are no gzip follow its end.
    trailing: Arc<AtomicBool>,
    buffer: Vec<u8>,
    /// The bytes not handed out yet are `buffer[start..end]`.
    start: usize,
    end: usize,
    ended: bool,
    position: Position,
}

/// The members of a gzip file, one after another. What follows the last is left alone, as gzip does.
struct Members<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
    trailing: Arc<AtomicBool>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            // The next begins where this one ended, or nothing does.
            let next = loop {
                match member.get_mut().fill_buf() {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    next => break next?.first().copied(),
                }
            };
            self.trailing.store(next.is_some_and(|b| b != GZIP[0]), Ordering::Relaxed);
            let ended = self.member.take().filter(|_| next == Some(GZIP[0]));
            self.member = ended.map(|m| GzDecoder::new(m.into_inner()));
        }
        Ok(0)
    }
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// With a line end after it.
    Whole(&'a [u8]),
    /// The trace's last bytes.
    Unended(&'a [u8]),
    /// Nothing is left.
    End,
}

/// A record of fixed size.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// The trace ends inside.
    Cut,
    /// Nothing is left.
    End,
}

impl Input {
    /// Reads from `source`, through gzip if it begins like it.
    pub(super) fn new(source: impl Read + Send + 'static) -> Result<Input, TraceError> {
        let mut plain = Input {
            source: Box::new(source),
            gzip: false,
            trailing: Arc::default(),
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            ended: false,
            position: Position::Line(0),
        };
        if plain.peek(GZIP.len())? != GZIP {
            return Ok(plain);
        }
        let head = io::Cursor::new(plain.buffer[..plain.end].to_vec());
        let packed = BufReader::new(head.chain(plain.source));
        let members = Members { member: Some(GzDecoder::new(packed)), trailing: plain.trailing.clone() };
        Ok(Input { source: Box::new(members), gzip: true, start: 0, end: 0, ended: false, ..plain })
    }

    /// Where the line or record handed out last lies.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// Whether something that is no trace follows its end.
    pub(super) fn has_more(&self) -> bool {
        self.trailing.load(Ordering::Relaxed)
    }

    /// Counts records instead of lines from here on.
    pub(super) fn count_records(&mut self) {
        self.position = Position::Record(0);
    }

    /// The next `n` bytes, or all that are left; `n` is at most the buffer's size. They are not used up.
    pub(super) fn peek(&mut self, n: usize) -> Result<&[u8], TraceError> {
        while self.end - self.start < n && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + n)])
    }

    /// The next line.
    pub(super) fn line(&mut self) -> Result<Line<'_>, TraceError> {
        let mut seen = 0;
        loop {
            if let Some(i) = self.buffer[self.start + seen..self.end].iter().position(|&b| b == b'\n') {
                let line = self.start..self.start + seen + i;
                self.start = line.end + 1;
                self.step();
                return self.bounded(line).map(Line::Whole);
            }
            seen = self.end - self.start;
            if self.ended || seen > LINE_MAX {
                break;
            }
            self.fill()?;
        }
        if seen == 0 {
            return Ok(Line::End);
        }
        let line = self.start..self.end;
        self.start = self.end;
        self.step();
        self.bounded(line).map(Line::Unended)
    }

    /// The next record of `size` bytes, at most the buffer's size.
    pub(super) fn record(&mut self, size: usize) -> Result<Record<'_>, TraceError> {
        let left = self.peek(size)?.len();
        if left == 0 {
            return Ok(Record::End);
        }
        self.step();
        let start = self.start;
        self.start += left;
        Ok(if left < size { Record::Cut } else { Record::Whole(&self.buffer[start..start + size]) })
    }

    /// Skips bytes that belong to the record handed out last; false if the trace ends before.
    pub(super) fn skip(&mut self, mut n: usize) -> Result<bool, TraceError> {
        while n > 0 {
            let here = self.peek(n.min(BUFFER))?.len();
            if here == 0 {
                return Ok(false);
            }
            self.start += here;
            n -= here;
        }
        Ok(true)
    }

    fn step(&mut self) {
        match &mut self.position {
            Position::Line(n) | Position::Record(n) => *n += 1,
        }
    }

    fn bounded(&self, line: std::ops::Range<usize>) -> Result<&[u8], TraceError> {
        if line.len() > LINE_MAX {
            return Err(TraceError::Bad { at: self.position, wrong: Wrong::LineTooLong(LINE_MAX) });
        }
        Ok(&self.buffer[line])
    }

    /// Reads more, moving what is left to the buffer's front.
    fn fill(&mut self) -> Result<(), TraceError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        debug_assert!(self.end < self.buffer.len());
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.failure(e)),
            }
            return Ok(());
        }
    }

    fn failure(&self, source: io::Error) -> TraceError {
        let at = self.position;
        match source.kind() {
            io::ErrorKind::UnexpectedEof if self.gzip => TraceError::GzipCut { at },
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput if self.gzip => {
                TraceError::GzipDamaged { at, source }
            }
            _ => TraceError::Read { at, source },
        }
    }
}
