//! The stream detector: up to 64 sequential runs at a time, found by the address each would continue at.

use crate::units::{ChunkId, CHUNK};

/// Runs followed at the same time.
const RECORDS: usize = 64;
/// A request belongs to a run if it begins within this many bytes of the run's end, on either side: requests of one
/// stream overtake each other in a queue.
const GAP: u64 = 256 << 10;
/// A disk needs no seek for a request that begins at most so many bytes behind the end of another ...
const NEAR: u64 = 64 << 10;
/// ... while fewer runs than it has places for in its cache have begun since.
const NEAR_RUNS: u32 = 16;
/// Unit in which run ends are compared; 2^32 of them are 128 TiB, and a false match beyond does no harm.
const UNIT_SHIFT: u32 = 15;
/// From this length on a run is established: its requests follow each other, and it is kept longer.
pub(super) const RUN: u64 = 1 << 20;
/// A newer record is preferred to an established run only after this many requests.
const KEEP_RUN: u32 = 4096;

/// What a request goes on from without a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// Nothing: the disk seeks.
    Nothing,
    /// A request that ended in the same chunk.
    Same,
    /// One that ended in another.
    Other,
}

/// What is known of a run after a request was added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of its record.
    pub(super) id: usize,
    /// Bytes that went forward in it; gaps, repetitions and overtaken requests do not count.
    pub(super) bytes: u64,
    /// The same before this request; 0 if the run begins with it.
    pub(super) before: u64,
    /// The chunk in which it began.
    pub(super) start: u64,
    /// The request enters a chunk that the run had not reached.
    pub(super) entered: bool,
    /// This request made the run reach the length asked for.
    pub(super) became_stream: bool,
    /// All its chunks had their first home from it.
    pub(super) born: bool,
    /// What the request goes on from.
    pub(super) follows: Follows,
    /// Which run it is, of all.
    pub(super) number: u32,
}

#[derive(Clone, Copy, Default)]
struct Record {
    end: u64,
    bytes: u64,
    start: u64,
    high: u64,
    born: bool,
    /// New chunks of this run go to the slow tier.
    direct: bool,
    /// Runs that had begun when it was last extended.
    begun: u32,
    /// Which run it is.
    number: u32,
}

impl Record {
    /// What a request at `offset` goes on from after `begun` runs.
    fn follows(&self, offset: u64, begun: u32) -> Follows {
        let near = offset.checked_sub(self.end).is_some_and(|gap| gap <= NEAR);
        if !near || begun.wrapping_sub(self.begun) >= NEAR_RUNS {
            Follows::Nothing
        } else if self.end.saturating_sub(1) / CHUNK == offset / CHUNK {
            Follows::Same
        } else {
            Follows::Other
        }
    }
}

/// Table of runs, the least recently used is replaced.
pub(super) struct Streams {
    /// `end >> UNIT_SHIFT` of each record, apart from the rest so that a search is a few vector instructions.
    keys: [u32; RECORDS],
    stamps: [u32; RECORDS],
    records: [Record; RECORDS],
    last: usize,
    clock: u32,
    /// Runs that have begun.
    begun: u32,
}

impl Streams {
    pub(super) fn new() -> Streams {
        // No run ends at the last address of the key space.
        let keys = [u32::MAX - ((2 * GAP) >> UNIT_SHIFT) as u32; RECORDS];
        Streams { keys, stamps: [0; RECORDS], records: [Record::default(); RECORDS], last: 0, clock: 0, begun: 0 }
    }

    /// Adds a request; `threshold` is the length from which a run is a stream.
    pub(super) fn add(&mut self, offset: u64, len: u64, born: bool, threshold: u64) -> Run {
        self.tick();
        let end = offset.saturating_add(len);
        let chunk = end.saturating_sub(1) / CHUNK;
        let Some(id) = self.find(offset) else {
            let id = self.oldest();
            self.begun = self.begun.wrapping_add(1);
            let (start, number) = (offset / CHUNK, self.begun);
            self.records[id] =
                Record { end, bytes: len, start, high: chunk, born, direct: false, begun: number, number };
            self.keep(id);
            let follows = Follows::Nothing;
            let (bytes, before) = (len, 0);
            return Run { id, bytes, before, start, entered: true, became_stream: false, born, follows, number };
        };
        let r = &mut self.records[id];
        let (before, follows) = (r.bytes, r.follows(offset, self.begun));
        r.begun = self.begun;
        r.bytes += end.saturating_sub(r.end.max(offset));
        r.end = r.end.max(end);
        let entered = chunk > r.high;
        if entered {
            r.high = chunk;
            r.born &= born;
        }
        let run = Run {
            id,
            bytes: r.bytes,
            before,
            start: r.start,
            entered,
            became_stream: before < threshold && r.bytes >= threshold,
            born: r.born,
            follows,
            number: r.number,
        };
        self.keep(id);
        run
    }

    /// Whether new chunks of the run go to the slow tier.
    pub(super) fn direct(&self, id: usize) -> bool {
        self.records[id].direct
    }

    pub(super) fn set_direct(&mut self, id: usize, direct: bool) {
        self.records[id].direct = direct;
    }

    fn find(&self, offset: u64) -> Option<usize> {
        let low = (offset >> UNIT_SHIFT) as u32;
        let gap = (GAP >> UNIT_SHIFT) as u32;
        let near = |key: u32| low.wrapping_sub(key).wrapping_add(gap) <= 2 * gap;
        if near(self.keys[self.last]) {
            return Some(self.last);
        }
        // Branch-free over all records: any match first, its index only when there is one.
        let mut any = false;
        for key in self.keys {
            any |= near(key);
        }
        if any {
            self.keys.iter().position(|key| near(*key))
        } else {
            None
        }
    }

    fn oldest(&self) -> usize {
        let mut least = u32::MAX;
        for stamp in self.stamps {
            least = least.min(stamp);
        }
        self.stamps.iter().position(|s| *s == least).unwrap_or(0)
    }

    fn keep(&mut self, id: usize) {
        let r = &self.records[id];
        self.keys[id] = (r.end >> UNIT_SHIFT) as u32;
        self.stamps[id] = self.clock + if r.bytes >= RUN { KEEP_RUN } else { 0 };
        self.last = id;
    }

    /// Counts a request; before the stamps would wrap they all start again.
    fn tick(&mut self) {
        self.clock += 1;
        if self.clock >= u32::MAX - 2 * KEEP_RUN {
            self.clock = 1;
            self.stamps = [0; RECORDS];
        }
    }

    /// The chunk in which the run's farthest request ended.
    pub(super) fn high(&self, id: usize) -> ChunkId {
        ChunkId(self.records[id].high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const STREAM: u64 = 8 * MIB;

    #[test]
    fn interleaved_streams_among_random_requests_are_found() {
        let mut s = Streams::new();
        let mut rng = 1u64;
        let mut became = 0;
        for i in 0..256u64 {
            for k in 0..8u64 {
                let run = s.add(k * 1000 * MIB + i * 128 * 1024, 128 * 1024, true, STREAM);
                became += u32::from(run.became_stream);
            }
            for _ in 0..20 {
                rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                s.add((1 << 40) + (rng >> 24) % (1 << 40), 4096, false, STREAM);
            }
        }
        assert_eq!(became, 8);
    }

    #[test]
    fn requests_that_overtake_each_other_still_make_a_stream() {
        let mut s = Streams::new();
        let mut longest = 0;
        for i in 0..256u64 {
            let run = s.add((i ^ 1) * 128 * 1024, 128 * 1024, false, STREAM);
            longest = longest.max(run.bytes);
        }
        assert!(longest >= 16 * MIB, "{longest}");
    }

    #[test]
    fn rewriting_one_place_is_no_stream() {
        let mut s = Streams::new();
        for _ in 0..10_000 {
            let run = s.add(5 * MIB, 4096, false, STREAM);
            assert!(run.bytes <= 4096);
        }
    }

    #[test]
    fn random_requests_in_a_small_range_are_no_stream() {
        let mut s = Streams::new();
        let mut rng = 7u64;
        for _ in 0..200_000 {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let run = s.add(((rng >> 33) % (16 * MIB)) & !4095, 4096, false, STREAM);
            assert!(run.bytes < MIB, "{run:?}");
        }
    }

    #[test]
    fn a_request_follows_another_until_the_disk_has_forgotten_it() {
        let mut s = Streams::new();
        let mut follows = |at: u64| s.add(at, 4096, false, STREAM).follows;
        assert_eq!(follows(MIB), Follows::Nothing);
        assert_eq!(follows(MIB + 4096), Follows::Same);
        assert_eq!(follows(MIB + 20_000), Follows::Same);
        assert_eq!(follows(MIB + 16_384), Follows::Nothing, "backwards");
        assert_eq!(follows(MIB + CHUNK - 4096 - 30_000), Follows::Nothing, "too far away");
        assert_eq!(follows(MIB + CHUNK), Follows::Other);
        (0..15).for_each(|i| assert_eq!(follows((100 + i) * MIB), Follows::Nothing));
        assert_eq!(follows(MIB + CHUNK + 4096), Follows::Same);
        (0..16).for_each(|i| assert_eq!(follows((200 + i) * MIB), Follows::Nothing));
        assert_eq!(follows(MIB + CHUNK + 8192), Follows::Nothing);
    }

    #[test]
    fn a_chunk_is_entered_once_by_a_run() {
        let mut s = Streams::new();
        let entered = (0..320u64).filter(|i| s.add(i * 4096, 4096, false, STREAM).entered).count();
        assert_eq!(entered, 10);
    }
}
