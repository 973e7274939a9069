//! Which request goes on where an earlier one ended: there a disk's head is already, or its cache has read ahead.

use bimetal_volume::units::CHUNK;

/// Ends of requests that are remembered: as many as a disk's cache has segments.
const ENDS: usize = 16;
/// A request goes on where another ended if it begins at most so many bytes further.
const GAP: u64 = 64 << 10;

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

/// What is known of a request's place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// What it goes on from.
    pub(crate) follows: Follows,
    /// Bytes of the run so far.
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy)]
struct End {
    at: u64,
    bytes: u64,
    /// When it was last extended, in requests.
    stamp: u64,
}

/// Ends of the last requests.
pub(crate) struct Ends {
    ends: [End; ENDS],
    requests: u64,
}

impl Ends {
    pub(crate) fn new() -> Ends {
        Ends { ends: [End { at: u64::MAX, bytes: 0, stamp: 0 }; ENDS], requests: 0 }
    }

    /// Looks for the request that this one goes on from, and remembers where this one ends.
    pub(crate) fn follow(&mut self, offset: u64, end: u64) -> Run {
        self.requests += 1;
        let found = self.ends.iter().position(|e| offset.checked_sub(e.at).is_some_and(|gap| gap <= GAP));
        let oldest = (0..ENDS).min_by_key(|i| self.ends[*i].stamp).unwrap_or(0);
        let number = found.unwrap_or(oldest);
        let before = self.ends[number];
        let bytes = (end - offset).saturating_add(if found.is_some() { before.bytes } else { 0 });
        self.ends[number] = End { at: end, bytes, stamp: self.requests };
        let follows = match found {
            None => Follows::Nothing,
            // The end of an earlier request, as its last byte.
            Some(_) if before.at > 0 && (before.at - 1) / CHUNK == offset / CHUNK => Follows::Same,
            Some(_) => Follows::Before,
        };
        Run { follows, bytes }
    }
}
