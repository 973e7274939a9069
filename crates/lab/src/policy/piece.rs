//! A trace cut at chunk borders, with everything said of each piece that does not depend on where chunks live.
//!
//! A *piece* is the part of a request inside one chunk: one chunk access. A *visit* is a piece that counts, after the
//! correlation filter. A piece *follows* when it goes on where a recent request ended, so that a disk that served the
//! one before need not seek.

use bimetal_volume::units::CHUNK;

use super::follow::{Ends, Follows};
use super::number::{Numbers, GROUP};
use super::visit::Filter;
use crate::trace::{Access, Op};

/// Most pieces of a replay; a longer trace is cut there. 400 MiB, and as much again for the bounds.
pub const PIECES_MAX: usize = 1 << 24;

/// What a trace says of chunks before it touches them first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// What is read first was there before, on the slow tier; what is written first is new.
    Fresh,
    /// Everything was there before, on the slow tier.
    Aged,
}

/// What a piece does to its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes a chunk that has a home.
    Write,
    /// Writes a chunk that has none: it gets its first.
    Birth,
    /// Discards the whole chunk: it loses its home.
    Trim,
}

/// One request's part in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Nanoseconds since the first request.
    pub time_ns: u64,
    /// The chunk: its number on the volume, or on a large one its number among what is touched ([`super::number`]).
    pub chunk: u32,
    /// First byte in the chunk.
    pub offset: u32,
    /// Bytes, at most a chunk.
    pub len: u32,
    /// What it does.
    pub kind: Kind,
    /// What it goes on from.
    pub follows: Follows,
    /// Chunks that its run went through right before its own, 255 at most.
    pub behind: u8,
    /// Whether it counts as a visit.
    pub visit: bool,
}

impl Piece {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Birth)
    }

    /// Chunks of a run before the one in which it has come to a byte, where it began so many bytes before.
    pub(crate) fn behind(bytes: u64) -> u8 {
        bytes.div_ceil(CHUNK).min(u8::MAX.into()) as u8
    }
}

/// Bytes of the largest block device that Linux has.
const END_MAX: u64 = i64::MAX as u64;

/// A request reaches beyond the end of any device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request ends at byte {end}; no device reaches beyond byte {END_MAX}")]
pub struct TooLarge {
    /// Where the request ends, in bytes.
    pub end: u64,
}

/// A trace in pieces.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// In order of time.
    pub pieces: Vec<Piece>,
    /// Highest number of a chunk + 1.
    pub chunks: u32,
    /// Chunks touched.
    pub footprint: u32,
    /// Bytes read and written.
    pub user_bytes: u64,
    /// The trace goes on, but has [`PIECES_MAX`] pieces already, or touches too many places.
    pub cut: bool,
}

impl Stream {
    /// Cuts a trace. Flushes, discards of parts of a chunk and reads of what was discarded do nothing to a disk and are
    /// left out, and so is what comes after [`PIECES_MAX`] pieces, or after so many places that there are no numbers for
    /// more ([`super::CHUNKS_MAX`]).
    ///
    /// # Errors
    /// [`TooLarge`] for a request beyond what any device has.
    pub fn new(accesses: impl IntoIterator<Item = Access>, start: Start) -> Result<Stream, TooLarge> {
        let mut cutter = Cutter::new(start);
        for a in accesses {
            if cutter.is_full() {
                cutter.stream.cut = true;
                break;
            }
            cutter.add(&a)?;
        }
        Ok(cutter.done())
    }

    /// Pieces that read or write.
    pub fn accesses(&self) -> u64 {
        self.pieces.iter().filter(|p| p.kind != Kind::Trim).count() as u64
    }

    /// Pieces that count as visits.
    pub fn visits(&self) -> u64 {
        self.pieces.iter().filter(|p| p.visit).count() as u64
    }
}

/// What a trace has shown of a chunk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Seen {
    #[default]
    Never,
    Mapped,
    Trimmed,
}

impl Seen {
    /// What a request does to a chunk that it touches whole or in part; `None`: nothing that a disk would notice.
    pub(crate) fn kind(self, op: Op, whole: bool, start: Start) -> Option<Kind> {
        match (op, self) {
            (Op::Read, Seen::Trimmed) | (Op::Flush, _) => None,
            (Op::Read, _) => Some(Kind::Read),
            (Op::Write, Seen::Trimmed) => Some(Kind::Birth),
            (Op::Write, Seen::Never) if start == Start::Fresh => Some(Kind::Birth),
            (Op::Write, _) => Some(Kind::Write),
            (Op::Trim, Seen::Mapped) if whole => Some(Kind::Trim),
            (Op::Trim, _) => None,
        }
    }

    /// What is known of a chunk after that.
    pub(crate) fn after(kind: Kind) -> Seen {
        match kind {
            Kind::Trim => Seen::Trimmed,
            _ => Seen::Mapped,
        }
    }
}

struct Cutter {
    start: Start,
    stream: Stream,
    numbers: Numbers,
    /// By number, as far as those are given.
    seen: Vec<Seen>,
    ends: Ends,
    filter: Filter,
}

impl Cutter {
    fn new(start: Start) -> Cutter {
        let (numbers, seen) = (Numbers::default(), Vec::new());
        Cutter { start, stream: Stream::default(), numbers, seen, ends: Ends::new(), filter: Filter::new() }
    }

    fn is_full(&self) -> bool {
        self.stream.pieces.len() >= PIECES_MAX || self.numbers.are_used_up()
    }

    /// The stream, with the numbers that chunks have in the end.
    fn done(mut self) -> Stream {
        let (first, chunks) = self.numbers.settle();
        let group = GROUP as u32;
        for p in &mut self.stream.pieces {
            p.chunk = first[(p.chunk / group) as usize] + p.chunk % group;
        }
        self.stream.chunks = chunks;
        self.stream
    }

    fn add(&mut self, a: &Access) -> Result<(), TooLarge> {
        if a.op == Op::Flush || a.len == 0 {
            return Ok(());
        }
        let end = a.offset.saturating_add(a.len);
        if end > END_MAX {
            return Err(TooLarge { end });
        }
        if a.op == Op::Trim {
            self.discard(a, end);
            return Ok(());
        }
        let found = self.ends.follow(a.offset, end);
        let (mut follows, run) = (found.follows, found.bytes - a.len);
        let mut at = a.offset;
        while at < end {
            if self.is_full() {
                // Rather than all of a request that has no end.
                self.stream.cut = true;
                break;
            }
            let next = end.min((at / CHUNK + 1) * CHUNK);
            let behind = Piece::behind(run + at - a.offset);
            self.piece(a, at, next, (follows, behind));
            (at, follows) = (next, Follows::Before);
        }
        Ok(())
    }

    fn piece(&mut self, a: &Access, at: u64, next: u64, (follows, behind): (Follows, u8)) {
        let place = at / CHUNK;
        let chunk = self.numbers.of(place);
        if self.seen.len() < self.numbers.given() {
            self.seen.resize(self.numbers.given(), Seen::Never);
        }
        let before = self.seen[chunk as usize];
        let Some(kind) = before.kind(a.op, next - at == CHUNK, self.start) else { return };
        self.seen[chunk as usize] = Seen::after(kind);
        let (time_ns, len, offset) = (a.time_us.saturating_mul(1000), (next - at) as u32, (at % CHUNK) as u32);
        let visit = self.filter.counts(place, time_ns);
        self.stream.footprint += u32::from(before == Seen::Never);
        self.stream.user_bytes += u64::from(len);
        self.stream.pieces.push(Piece { time_ns, chunk, offset, len, kind, follows, behind, visit });
    }

    /// Chunks that a discard covers whole lose their homes, those that have one. It may be as long as the volume.
    fn discard(&mut self, a: &Access, end: u64) {
        let time_ns = a.time_us.saturating_mul(1000);
        for (_, chunk) in self.numbers.known(a.offset.div_ceil(CHUNK)..end / CHUNK) {
            let seen = &mut self.seen[chunk as usize];
            if *seen == Seen::Mapped {
                *seen = Seen::Trimmed;
                let (kind, follows, len) = (Kind::Trim, Follows::Nothing, CHUNK as u32);
                self.stream.pieces.push(Piece {
                    time_ns,
                    chunk,
                    offset: 0,
                    len,
                    kind,
                    follows,
                    behind: 0,
                    visit: false,
                });
            }
        }
    }
}
