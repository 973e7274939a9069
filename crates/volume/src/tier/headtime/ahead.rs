//! Fast streams that are served by the fast tier now, and come to chunks of the slow one in a moment.
//!
//! To the scheduler the disk is quiet then, and moves would have it to themselves. But a stream that is nearly as fast as the disk
//! takes seconds to catch up with what it waited for them, and bears no wait.
//!
//! - How far a stream comes in a moment is not known of each; it is no farther than all of them together came lately.
//! - For each chunk that is entered one is looked at, as far ahead: so all of them are, one after the other.
//! - What comes is believed for a while after it was seen last: a hole in what lies on the slow tier does not end it.

use std::time::Duration;

use super::{HeadTime, Run};
use crate::env::Instant;
use crate::tier::View;
use crate::units::{ChunkId, Tier};

/// Chunks that streams enter are counted for so long.
const SECOND: Duration = Duration::from_secs(1);
/// Who enters fewer in that time (8 MiB) does not miss what moves take from the disk, and may go on for hours, as a film does.
const FAST: u64 = 64;
/// A moment is this part of it.
const MOMENT: u64 = 4;
/// For so long a stream is expected.
const LASTS: Duration = Duration::from_secs(2);

/// Whether fast streams are on their way to the slow tier.
#[derive(Default)]
pub(super) struct Ahead {
    /// When the count began; what it is now, and what it was in the second before.
    began: Instant,
    entered: u64,
    before: u64,
    /// When a chunk of the slow tier was seen ahead of a stream.
    seen: Option<Instant>,
}

impl Ahead {
    /// A stream enters a chunk of the fast tier. How many chunks ahead it will be in a moment, if it is fast.
    fn enters(&mut self, now: Instant) -> Option<u64> {
        let gone = now.since(self.began);
        if gone >= SECOND {
            self.before = if gone < 2 * SECOND { self.entered } else { 0 };
            (self.began, self.entered) = (now, 0);
        }
        self.entered += 1;
        let in_a_second = self.before.max(self.entered);
        (in_a_second >= FAST).then_some(in_a_second / MOMENT)
    }

    /// Whether a stream comes.
    pub(super) fn comes(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) < LASTS)
    }
}

impl HeadTime {
    /// A request inside a stream touches a chunk.
    pub(super) fn look_ahead(&mut self, v: &impl View, c: ChunkId, run: &Run) {
        if !run.entered || v.tier_of(c) != Some(Tier::Fast) {
            return;
        }
        let now = v.now();
        let ahead = self.ahead.enters(now).map(|chunks| ChunkId(c.0 + chunks));
        if ahead.is_some_and(|there| v.tier_of(there) == Some(Tier::Slow)) {
            self.ahead.seen = Some(now);
        }
    }
}
