//! Where chunks get their first home.
//!
//! Terms: a *run* is a row of chunks that get their first home one after the other; from a certain length on it is a
//! *stream*. A *copy* is a stream beside which about as much is read in streams: its data exist already, and rarely are
//! both used.
//!
//! - New chunks go to the fast tier while there is room beyond the reserve, and then take the reserve: that is what it
//!   is for.
//! - A stream leaves a part of the reserve to small writes; a copy leaves most of it, and nothing is let go for one.
//! - Once a stream has been sent to the slow tier it stays there until there is room again: it is laid out in one run,
//!   and does not take every slot that the mover frees.

use super::stream::{Streams, RUN};
use super::{Touch, View};
use crate::units::{Tier, CHUNK};

/// A run is a stream from this length on; on a small group from this part of its reserve on.
const STREAM: u64 = 8 << 20;
const STREAM_SHARE: u64 = 8;
/// Eighths of the reserve that a stream leaves alone, and of what should be free that a copy does.
const LEFT_BY_STREAM: u64 = 1;
const LEFT_BY_COPY: u64 = 5;
/// Where only a part of the reserve is kept free, because the rest can be let go or few new data come, a stream leaves this share of
/// it free at any time: of the eighth that is free at least, half. Leaving all of that costs some real traces 2 to 3 % of disk time.
const FREE_SHARE: u64 = 16;
/// Reads and births of the last part of a reserve's size tell a copy.
const WINDOW_SHARE: u64 = 4;

/// Runs of new chunks, and what is read beside them.
pub(super) struct Births {
    runs: Streams,
    /// Bytes born in streams, and read in streams. Halved together.
    born: u64,
    read: u64,
    /// Chunks that streams took of the reserve since it was whole.
    taken: u64,
}

impl Births {
    pub(super) fn new() -> Births {
        Births { runs: Streams::new(), born: 0, read: 0, taken: 0 }
    }

    /// The tier for a chunk without a home.
    pub(super) fn place(&mut self, v: &impl View, t: &Touch) -> Tier {
        let (free, reserve, keep_free) = (v.free_fast(), v.reserve(), v.keep_free());
        // All chunks of a large request are placed before it is counted, so births have a detector of their own. A
        // small write stands for the whole chunk that it begins.
        let stream_from = (u64::from(reserve) * CHUNK / STREAM_SHARE).clamp(RUN, STREAM);
        let run = self.runs.add(t.chunk.0 * CHUNK, CHUNK, true, stream_from);
        let stream = run.bytes > stream_from;
        if stream {
            self.count(v, CHUNK, 0);
        }
        if free > keep_free {
            self.taken = 0;
            self.runs.set_direct(run.id, false);
            return Tier::Fast;
        }
        if stream {
            let direct = self.runs.direct(run.id) || !self.has_room_for_stream(v);
            self.runs.set_direct(run.id, direct);
            self.taken += u64::from(!direct);
            return if direct { Tier::Slow } else { Tier::Fast };
        }
        match free {
            0 => Tier::Slow,
            _ => Tier::Fast,
        }
    }

    /// Whether a stream may take of the reserve.
    fn has_room_for_stream(&self, v: &impl View) -> bool {
        let [free, reserve, keep_free] = [v.free_fast(), v.reserve(), v.keep_free()].map(u64::from);
        match self.is_copy() {
            true => free * 8 > keep_free * LEFT_BY_COPY,
            false if keep_free == reserve => free * 8 > reserve * LEFT_BY_STREAM,
            false => free * FREE_SHARE > reserve && (self.taken + 1) * 8 <= reserve * (8 - LEFT_BY_STREAM),
        }
    }

    /// So much was read in a stream.
    pub(super) fn beside(&mut self, v: &impl View, read: u64) {
        self.count(v, 0, read);
    }

    fn count(&mut self, v: &impl View, born: u64, read: u64) {
        let window = (u64::from(v.reserve()) * CHUNK / WINDOW_SHARE).max(STREAM);
        self.born += born;
        self.read = (self.read + read).min(window);
        if self.born > window {
            self.born /= 2;
            self.read /= 2;
        }
    }

    fn is_copy(&self) -> bool {
        self.read * 2 > self.born
    }
}
