//! What the volume manager notices of the requests: visits, streams.

use bimetal_sim::model::{Op, Request};
use bimetal_sim::prng::mix;

/// Entries of the correlation filter, and after how many ns it is cleared (US 8914381; POLICY 3).
const ENTRIES: usize = 4096;
const CLEARED_NS: u64 = 2_000_000_000;
/// Streams that are followed at a time.
const STREAMS: usize = 16;
/// A run of so many bytes is a stream.
const STREAM: u64 = 1 << 20;

/// Drops repeated touches of a unit within one pass over it.
pub(super) struct Correlation {
    last: Vec<u32>,
    clear_at: u64,
}

impl Correlation {
    pub(super) fn new() -> Correlation {
        Correlation { last: vec![u32::MAX; ENTRIES], clear_at: CLEARED_NS }
    }

    /// Whether this touch counts.
    pub(super) fn counts(&mut self, unit: u32, now: u64) -> bool {
        if now >= self.clear_at {
            self.last.fill(u32::MAX);
            self.clear_at = now + CLEARED_NS;
        }
        let entry = &mut self.last[mix(u64::from(unit)) as usize % ENTRIES];
        std::mem::replace(entry, unit) != unit
    }
}

/// What kind of load a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    StreamRead,
    StreamWrite,
    Random,
}

#[derive(Clone, Copy, Default)]
struct Stream {
    end: u64,
    len: u64,
    write: bool,
    used: u64,
}

/// Follows runs of requests that go on where an earlier one ended.
#[derive(Default)]
pub(super) struct Streams {
    known: [Stream; STREAMS],
    clock: u64,
    longest_write: u64,
}

impl Streams {
    /// What a read or write belongs to.
    pub(super) fn kind(&mut self, request: &Request) -> Kind {
        self.clock += 1;
        let write = request.op == Op::Write;
        let goes_on = |s: &Stream| s.end == request.offset && s.write == write && s.len > 0;
        let i = match self.known.iter().position(goes_on) {
            Some(i) => i,
            None => {
                let oldest = (0..STREAMS).min_by_key(|i| self.known[*i].used).unwrap_or(0);
                self.known[oldest] = Stream::default();
                oldest
            }
        };
        let stream = &mut self.known[i];
        let (end, len) = (request.offset + request.len, stream.len + request.len);
        *stream = Stream { end, len, write, used: self.clock };
        match (len >= STREAM, write) {
            (false, _) => Kind::Random,
            (true, false) => Kind::StreamRead,
            (true, true) => {
                self.longest_write = self.longest_write.max(len);
                Kind::StreamWrite
            }
        }
    }

    /// Bytes of the longest run of writes so far.
    pub(super) fn longest_write(&self) -> u64 {
        self.longest_write
    }
}
