//! A trace cut at chunk borders, with everything said of each piece that does not depend on where chunks live.
//!
//! A *piece* is the part of a request inside one chunk: one chunk access. A *visit* is a piece that counts, after the
//! correlation filter. A piece *follows* when it goes on where a recent request ended, so that a disk that served the
//! one before need not seek.

use bimetal_sim::prng::mix;
use bimetal_volume::units::CHUNK;

use crate::trace::{Access, Op};

/// Highest chunk of a replay, exclusive: 8 TiB. All state per chunk is in arrays.
pub const CHUNKS_MAX: u64 = 1 << 26;

/// Most pieces of a replay; a longer trace is cut there. 400 MiB, and as much again for the bounds.
pub const PIECES_MAX: usize = 1 << 24;

/// Ends of requests that are remembered: as many as a disk's cache has segments.
const ENDS: usize = 16;
/// A request goes on where another ended if it begins at most so many bytes further.
const GAP: u64 = 64 << 10;

/// Size and window of the correlation filter. On the mean the baselines do
/// better with this window than with 2 s.
const FILTER: usize = 4096;
const WINDOW_NS: u64 = 200_000_000;

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

/// What a piece goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Nothing: the disk seeks.
    Nothing,
    /// A request that ended in the same chunk.
    Same,
    /// One that ended in the chunk before.
    Before,
}

/// One request's part in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Nanoseconds since the first request.
    pub time_ns: u64,
    /// The chunk: offset of the request / 128 KiB.
    pub chunk: u32,
    /// First byte in the chunk.
    pub offset: u32,
    /// Bytes, at most a chunk.
    pub len: u32,
    /// What it does.
    pub kind: Kind,
    /// What it goes on from.
    pub follows: Follows,
    /// Whether it counts as a visit.
    pub visit: bool,
}

impl Piece {
    /// Whether it writes.
    pub fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Birth)
    }
}

/// A trace reaches beyond [`CHUNKS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request ends at byte {end}; a replay reaches to byte {} at most", CHUNKS_MAX * CHUNK)]
pub struct TooLarge {
    /// Where the request ends, in bytes.
    pub end: u64,
}

/// A trace in pieces.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// In order of time.
    pub pieces: Vec<Piece>,
    /// Highest chunk + 1.
    pub chunks: u32,
    /// Chunks touched.
    pub footprint: u32,
    /// Bytes read and written.
    pub user_bytes: u64,
    /// The trace goes on after [`PIECES_MAX`] pieces.
    pub cut: bool,
}

impl Stream {
    /// Cuts a trace. Flushes, discards of parts of a chunk and reads of what was discarded do nothing to a disk and are
    /// left out, and so is what comes after [`PIECES_MAX`] pieces.
    ///
    /// # Errors
    /// [`TooLarge`] for a request beyond the limit.
    pub fn new(accesses: impl IntoIterator<Item = Access>, start: Start) -> Result<Stream, TooLarge> {
        let mut cutter = Cutter::new(start);
        for a in accesses {
            if cutter.stream.pieces.len() >= PIECES_MAX {
                cutter.stream.cut = true;
                break;
            }
            cutter.add(&a)?;
        }
        Ok(cutter.stream)
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

/// What the trace has shown of a chunk so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Never,
    Mapped,
    Trimmed,
}

struct Cutter {
    start: Start,
    stream: Stream,
    seen: Vec<Seen>,
    /// Ends of the last requests, and when each was last extended.
    ends: [(u64, u64); ENDS],
    requests: u64,
    filter: Box<[(u32, u64)]>,
}

impl Cutter {
    fn new(start: Start) -> Cutter {
        let filter = vec![(u32::MAX, 0); FILTER].into_boxed_slice();
        Cutter { start, stream: Stream::default(), seen: Vec::new(), ends: [(u64::MAX, 0); ENDS], requests: 0, filter }
    }

    fn add(&mut self, a: &Access) -> Result<(), TooLarge> {
        if a.op == Op::Flush || a.len == 0 {
            return Ok(());
        }
        let end = a.offset.saturating_add(a.len);
        if end > CHUNKS_MAX * CHUNK {
            return Err(TooLarge { end });
        }
        let chunks = end.div_ceil(CHUNK) as usize;
        if self.seen.len() < chunks {
            self.seen.resize(chunks, Seen::Never);
            self.stream.chunks = chunks as u32;
        }
        let mut follows = if a.op == Op::Trim { Follows::Nothing } else { self.follow(a.offset, end) };
        let mut at = a.offset;
        while at < end {
            let next = end.min((at / CHUNK + 1) * CHUNK);
            self.piece(a, at, next, follows);
            (at, follows) = (next, Follows::Before);
        }
        Ok(())
    }

    /// Looks for the request that this one goes on from, and remembers where this one ends.
    fn follow(&mut self, offset: u64, end: u64) -> Follows {
        self.requests += 1;
        let found = self.ends.iter().position(|(e, _)| offset.checked_sub(*e).is_some_and(|gap| gap <= GAP));
        let oldest = (0..ENDS).min_by_key(|i| self.ends[*i].1).unwrap_or(0);
        let before = self.ends[found.unwrap_or(oldest)].0;
        self.ends[found.unwrap_or(oldest)] = (end, self.requests);
        match found {
            None => Follows::Nothing,
            // The end of an earlier request, as its last byte.
            Some(_) if before > 0 && (before - 1) / CHUNK == offset / CHUNK => Follows::Same,
            Some(_) => Follows::Before,
        }
    }

    fn piece(&mut self, a: &Access, at: u64, next: u64, follows: Follows) {
        let chunk = (at / CHUNK) as u32;
        let before = self.seen[chunk as usize];
        let whole = next - at == CHUNK;
        let kind = match (a.op, before) {
            (Op::Read, Seen::Trimmed) | (Op::Flush, _) => return,
            (Op::Read, _) => Kind::Read,
            (Op::Write, Seen::Trimmed) => Kind::Birth,
            (Op::Write, Seen::Never) if self.start == Start::Fresh => Kind::Birth,
            (Op::Write, _) => Kind::Write,
            (Op::Trim, Seen::Mapped) if whole => Kind::Trim,
            (Op::Trim, _) => return,
        };
        self.seen[chunk as usize] = if kind == Kind::Trim { Seen::Trimmed } else { Seen::Mapped };
        let (time_ns, len) = (a.time_us.saturating_mul(1000), (next - at) as u32);
        let visit = kind != Kind::Trim && self.counts(chunk, time_ns);
        self.stream.footprint += u32::from(before == Seen::Never);
        self.stream.user_bytes += if kind == Kind::Trim { 0 } else { u64::from(len) };
        let offset = (at % CHUNK) as u32;
        self.stream.pieces.push(Piece { time_ns, chunk, offset, len, kind, follows, visit });
    }

    /// The correlation filter: touches of a chunk that come together are one visit.
    fn counts(&mut self, chunk: u32, now: u64) -> bool {
        let e = &mut self.filter[mix(u64::from(chunk)) as usize % FILTER];
        if e.0 == chunk && now.saturating_sub(e.1) < WINDOW_NS {
            return false;
        }
        *e = (chunk, now);
        true
    }
}
