//! What a visit in a short run weighs.
//!
//! A disk seeks once for a run, so that a chunk of a long one saves its head less time than a chunk that is asked for alone.
//! Where runs meet they are cut, though: what is read in long pieces is worth little unless nearly all of it is on the fast
//! tier. By the head's time alone a chunk of 32 would weigh a tenth; then single visits of some chunks of a large file
//! outweigh all the long ones, and the file is torn between the tiers. So a visit gets lighter by [`LIGHTER`] with each doubling,
//! which is two fifths of that.
//!
//! How long a run is, is known only at its end: each time it has doubled, what its chunks were given for it is made less.

use super::HeadTime;
use crate::tier::correlate::hash;
use crate::tier::heat::OCTAVE;
use crate::tier::stream::Run;
use crate::tier::View;
use crate::units::{ChunkId, CHUNK};

/// What each doubling of a run takes from the weight of a visit in it.
const LIGHTER: i32 = OCTAVE / 4;

/// How often a run of so many bytes has doubled since its first chunk. A begun chunk counts: the head seeks once for both.
fn doublings(bytes: u64) -> i32 {
    bytes.div_ceil(CHUNK).max(1).ilog2() as i32
}

/// The weight of a visit in a run of so many bytes that is no stream.
pub(super) fn weight(bytes: u64) -> i32 {
    -doublings(bytes) * LIGHTER
}

impl HeadTime {
    /// If the run has doubled with the visit of `c`, takes from the chunks before it what they were given too much.
    pub(super) fn lengthened(&mut self, v: &mut impl View, c: ChunkId, run: &Run) {
        let (before, now) = (weight(run.before), weight(run.bytes));
        if before == now {
            return;
        }
        let too_much = self.clock.lsub(before, now);
        // What `c` is given follows, unless an earlier request has entered it. Bytes that were overtaken do not count.
        let end = if run.entered { c.0 } else { c.0 + 1 };
        for c in (run.start.max(end.saturating_sub(2 * run.bytes / CHUNK))..end).map(ChunkId) {
            // A visit that was not counted gave nothing.
            if v.tier_of(c).is_none() || !self.correlation.counted_in(c, run.number) {
                continue;
            }
            let heat = self.clock.relative(v.heat(c));
            // It has nothing but this visit, or its birth in this run, to show.
            let only = heat <= before + OCTAVE / 8;
            let heat = if only { heat - (before - now) } else { self.clock.lsub(heat, too_much).max(now) };
            v.set_heat(c, self.clock.absolute(heat, hash(u64::from(run.number))));
            self.note_region(v, c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_run_the_lighter_a_visit() {
        let weights = [0, 4096, CHUNK, CHUNK + 4096, 2 * CHUNK, 4 * CHUNK, 32 * CHUNK].map(weight);
        assert_eq!(weights, [0, 0, 0, -LIGHTER, -LIGHTER, -2 * LIGHTER, -5 * LIGHTER]);
    }
}
