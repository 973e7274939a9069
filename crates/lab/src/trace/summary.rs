//! What a trace is like, in a dozen numbers: how much, how often the same, how concentrated.
//!
//! A *chunk access* is one read or write touching one chunk: a request that spans k chunks counts k times. Discards and
//! flushes touch nothing.

use std::collections::HashMap;
use std::fmt;

use bimetal_volume::units::CHUNK;

use super::{Access, Op};

/// Chunks that are counted at most if nobody says otherwise: 8 TiB of touched data, about 1 GiB of memory.
const CHUNKS_MAX: usize = 1 << 26;
const MIB: f64 = (1u64 << 20) as f64;
const GIB: f64 = (1u64 << 30) as f64;

/// A trace touches more chunks than may be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trace touches more than {chunks_max} chunks of 128 KiB")]
pub struct FootprintTooLarge {
    /// How many may be counted.
    pub chunks_max: usize,
}

/// Counts accesses, for a [`Summary`].
#[derive(Clone, Debug)]
pub struct Tally {
    chunks_max: usize,
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    bytes_read: u64,
    bytes_written: u64,
    bytes_trimmed: u64,
    duration_us: u64,
    end: u64,
    accesses: u64,
    /// Accesses of each chunk. Only looked up and sorted, never walked in its own order.
    chunks: HashMap<u64, u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally::with_limit(CHUNKS_MAX)
    }
}

impl Tally {
    /// Counts at most so many different chunks.
    pub fn with_limit(chunks_max: usize) -> Tally {
        Tally {
            chunks_max,
            reads: 0,
            writes: 0,
            trims: 0,
            flushes: 0,
            bytes_read: 0,
            bytes_written: 0,
            bytes_trimmed: 0,
            duration_us: 0,
            end: 0,
            accesses: 0,
            chunks: HashMap::new(),
        }
    }

    /// Counts an access.
    ///
    /// # Errors
    /// Too many different chunks; what was counted before stays.
    pub fn add(&mut self, access: &Access) -> Result<(), FootprintTooLarge> {
        self.duration_us = access.time_us;
        let (count, bytes) = match access.op {
            Op::Read => (&mut self.reads, &mut self.bytes_read),
            Op::Write => (&mut self.writes, &mut self.bytes_written),
            Op::Trim => (&mut self.trims, &mut self.bytes_trimmed),
            Op::Flush => {
                self.flushes += 1;
                return Ok(());
            }
        };
        *count += 1;
        *bytes = bytes.saturating_add(access.len);
        let end = access.offset.saturating_add(access.len);
        self.end = self.end.max(end);
        if access.op == Op::Trim || access.len == 0 {
            return Ok(());
        }
        for chunk in access.offset / CHUNK..=(end - 1) / CHUNK {
            let seen = self.chunks.len();
            let count = self.chunks.entry(chunk).or_insert(0);
            if *count == 0 && seen >= self.chunks_max {
                self.chunks.remove(&chunk);
                return Err(FootprintTooLarge { chunks_max: self.chunks_max });
            }
            *count += 1;
            self.accesses += 1;
        }
        Ok(())
    }

    /// The numbers so far.
    pub fn summary(&self) -> Summary {
        let mut counts: Vec<u64> = self.chunks.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hottest = |percent: usize| {
            let chunks = (counts.len() * percent).div_ceil(100);
            Hottest { chunks: chunks as u64, accesses: counts[..chunks].iter().sum() }
        };
        Summary {
            reads: self.reads,
            writes: self.writes,
            trims: self.trims,
            flushes: self.flushes,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            bytes_trimmed: self.bytes_trimmed,
            duration_us: self.duration_us,
            end: self.end,
            chunks: counts.len() as u64,
            accesses: self.accesses,
            hottest_1: hottest(1),
            hottest_10: hottest(10),
            used_once: counts.iter().rev().take_while(|&&n| n == 1).count() as u64,
        }
    }
}

/// The most used part of the touched chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hottest {
    /// How many chunks that is, rounded up.
    pub chunks: u64,
    /// Chunk accesses that fall on them.
    pub accesses: u64,
}

/// A trace in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Discards.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of all reads.
    pub bytes_read: u64,
    /// Bytes of all writes.
    pub bytes_written: u64,
    /// Bytes of all discards.
    pub bytes_trimmed: u64,
    /// Time of the last request, in microseconds.
    pub duration_us: u64,
    /// One more than the highest byte of any request.
    pub end: u64,
    /// Different chunks read or written.
    pub chunks: u64,
    /// Chunk accesses.
    pub accesses: u64,
    /// The hottest 1 % of the chunks.
    pub hottest_1: Hottest,
    /// The hottest 10 % of the chunks.
    pub hottest_10: Hottest,
    /// Chunks with a single access.
    pub used_once: u64,
}

impl Summary {
    /// Requests of all kinds.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes + self.trims + self.flushes
    }

    /// Reads among reads and writes, 0 to 1.
    pub fn read_share(&self) -> f64 {
        share(self.reads, self.reads + self.writes)
    }

    /// Bytes of the touched chunks.
    pub fn footprint(&self) -> u64 {
        self.chunks * CHUNK
    }

    /// Chunk accesses that fall on the hottest 1 % of the chunks, 0 to 1.
    pub fn hottest_1_share(&self) -> f64 {
        share(self.hottest_1.accesses, self.accesses)
    }

    /// Chunk accesses that fall on the hottest 10 % of the chunks, 0 to 1.
    pub fn hottest_10_share(&self) -> f64 {
        share(self.hottest_10.accesses, self.accesses)
    }

    /// Chunks with a single access among all, 0 to 1.
    pub fn used_once_share(&self) -> f64 {
        share(self.used_once, self.chunks)
    }
}

/// A part of a whole, 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl fmt::Display for Summary {
    /// One number per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: u64| bytes as f64 / GIB;
        writeln!(f, "requests        {}", self.requests())?;
        writeln!(f, "  reads         {} ({:.1} % of reads and writes)", self.reads, 100.0 * self.read_share())?;
        writeln!(f, "  writes        {}", self.writes)?;
        writeln!(f, "  discards      {}", self.trims)?;
        writeln!(f, "  flushes       {}", self.flushes)?;
        writeln!(f, "time            {:.1} s", self.duration_us as f64 / 1e6)?;
        writeln!(f, "read            {:.2} GiB", gib(self.bytes_read))?;
        writeln!(f, "written         {:.2} GiB", gib(self.bytes_written))?;
        writeln!(f, "discarded       {:.2} GiB", gib(self.bytes_trimmed))?;
        writeln!(f, "highest byte    {:.2} GiB", gib(self.end))?;
        writeln!(f, "chunks touched  {} (footprint {:.1} MiB)", self.chunks, self.footprint() as f64 / MIB)?;
        writeln!(f, "chunk accesses  {}", self.accesses)?;
        writeln!(f, "hottest 1 %     {:.1} % of accesses", 100.0 * self.hottest_1_share())?;
        writeln!(f, "hottest 10 %    {:.1} % of accesses", 100.0 * self.hottest_10_share())?;
        write!(f, "used once       {:.1} % of chunks", 100.0 * self.used_once_share())
    }
}
