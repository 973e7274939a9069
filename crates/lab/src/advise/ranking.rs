//! The ranking at one half-life: how many chunks are hotter than a given one.
//!
//! Terms: the *clock* is where a visit just now lies on the scale of heats. A *bin* is half an octave: the policy does
//! not exchange chunks whose heats are nearer than that, so within a bin chunks have a fixed order of their own. Bins
//! from the clock's downwards lie in a ring of [`BINS`]; chunks colder than that are *ancient* and not told apart.
//!
//! Invariants:
//! 1. `bins` and `blocks` agree: a block is the sum of its bins.
//! 2. A chunk that ranks is counted in exactly one bin, or among the ancient.

use bimetal_volume::units::CHUNK;

use super::heat::{Sums, LIGHT, LOG_1_5, OCTAVE};
use super::ladder;

/// A run is a stream from this length on, as the policy has it.
const STREAM: u64 = 8 << 20;

/// Fine steps of a bin, as a shift.
const BIN_SHIFT: u32 = 11;
/// Bins of the ring: 128 octaves, of which 32 are kept before the clock for heats of many visits.
const BINS: u32 = 256;
const AHEAD: u32 = 64;
const BLOCK: u32 = 16;

/// Counts of ranked chunks by heat.
pub(super) struct Ranking {
    bins: Vec<u32>,
    blocks: Vec<u32>,
    ancient: u32,
    /// One more than the highest bin of the ring.
    top: u32,
    clock: u32,
    /// Bytes of the longest stream that may earn places by coming twice.
    longest: u64,
    /// Parts of a fine step not yet in `clock`, and what a visit adds, both times 2^32.
    fraction: u64,
    per_visit: u64,
}

impl Ranking {
    pub(super) fn new(number: usize) -> Ranking {
        // Away from 0, so that the ring is whole from the beginning.
        let clock = BINS << BIN_SHIFT;
        let per_visit = (u64::from(OCTAVE) << 32) / ladder::half_life(number);
        let (bins, blocks) = (vec![0; BINS as usize], vec![0; (BINS / BLOCK) as usize]);
        let (top, bytes) = ((clock >> BIN_SHIFT) + AHEAD, ladder::slots(number) * CHUNK);
        Ranking { bins, blocks, ancient: 0, top, clock, longest: bytes / 2, fraction: 0, per_visit }
    }

    /// Moves the clock by a visit in a run of so many bytes.
    pub(super) fn pass(&mut self, run: u64) {
        self.fraction += if run >= STREAM { self.per_visit >> 4 } else { self.per_visit };
        self.clock = self.clock.saturating_add((self.fraction >> 32) as u32);
        self.fraction &= u64::from(u32::MAX);
        let top = (self.clock >> BIN_SHIFT) + AHEAD;
        while self.top < top {
            // The lowest bin's place becomes that of the new highest.
            let place = (self.top % BINS) as usize;
            let n = std::mem::take(&mut self.bins[place]);
            self.blocks[place / BLOCK as usize] -= n;
            self.ancient += n;
            self.top += 1;
        }
    }

    /// Heat after a visit in a run of so many bytes, and whether it earns a place: by one and a half visits of its
    /// kind; in a stream that is too large for the SSD by two others.
    pub(super) fn visited(&self, heat: u32, run: u64, sums: &Sums) -> (u32, bool) {
        let one = if run >= STREAM { self.clock - LIGHT } else { self.clock };
        let bar = if run >= STREAM && run > self.longest { self.clock + OCTAVE } else { one + LOG_1_5 };
        let sum = sums.add(heat, one);
        (sum, sum >= bar)
    }

    /// The place of a heat's bin in the ring; `None` for the ancient.
    fn place(&self, heat: u32) -> Option<usize> {
        let bin = (heat >> BIN_SHIFT).min(self.top - 1);
        (bin + BINS >= self.top).then_some((bin % BINS) as usize)
    }

    pub(super) fn enter(&mut self, heat: u32) {
        match self.place(heat) {
            Some(i) => {
                self.bins[i] += 1;
                self.blocks[i / BLOCK as usize] += 1;
            }
            None => self.ancient += 1,
        }
    }

    pub(super) fn leave(&mut self, heat: u32) {
        match self.place(heat) {
            Some(i) => {
                self.bins[i] -= 1;
                self.blocks[i / BLOCK as usize] -= 1;
            }
            None => self.ancient -= 1,
        }
    }

    /// Chunks hotter than a ranked one of this heat. Of those as hot a part counts, `tie` / 2^32, which should be
    /// always the same for a chunk.
    pub(super) fn rank(&self, heat: u32, tie: u32) -> u64 {
        let (above, same) = match self.place(heat) {
            Some(i) => (self.above(i), self.bins[i]),
            None => (self.blocks.iter().map(|n| u64::from(*n)).sum(), self.ancient),
        };
        above + ((u64::from(same) * u64::from(tie)) >> 32)
    }

    /// Chunks in hotter bins than that at a place of the ring.
    fn above(&self, place: usize) -> u64 {
        let sum = |from: usize, to: usize| self.bins[from..to].iter().map(|n| u64::from(*n)).sum::<u64>();
        let whole = |from: usize, to: usize| self.blocks[from..to].iter().map(|n| u64::from(*n)).sum::<u64>();
        let (block, size, first) = (place / BLOCK as usize, BLOCK as usize, (self.top % BINS) as usize);
        // From a place to the end of its block, or to the ring's border if that is in the same block.
        let border = first / size;
        let end = (block + 1) * size;
        if place < first {
            // The ring's highest bin lies before its border, behind the place.
            return match block == border {
                true => sum(place + 1, first),
                false => sum(place + 1, end) + whole(block + 1, border) + sum(border * size, first),
            };
        }
        sum(place + 1, end) + whole(block + 1, self.blocks.len()) + whole(0, border) + sum(border * size, first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_sim::prng::Prng;

    /// Ranks against counting, over several turns of the ring.
    #[test]
    fn ranks_are_those_of_a_sorted_list() {
        let (sums, mut rng) = (Sums::new(), Prng::new(5));
        let mut r = Ranking::new(0);
        let mut heats = vec![0u32; 300];
        heats.iter().for_each(|h| r.enter(*h));
        for step in 0..30_000u64 {
            let c = rng.skewed(299) as usize;
            r.leave(heats[c]);
            heats[c] = r.visited(heats[c], if step % 3 == 0 { STREAM } else { 0 }, &sums).0;
            r.enter(heats[c]);
            // Some pauses are long, so that chunks grow ancient.
            let pause = if rng.below(1000) == 0 { 200_000 } else { 7 };
            (0..pause).for_each(|_| r.pass(0));
            if step % 100 == 0 {
                let oldest = r.top - BINS;
                let bin = |h: u32| (h >> BIN_SHIFT).max(oldest - 1);
                let c = rng.below(300) as usize;
                let hotter = heats.iter().filter(|h| bin(**h) > bin(heats[c])).count() as u64;
                assert_eq!(r.rank(heats[c], 0), hotter, "step {step}");
                let same = heats.iter().filter(|h| bin(**h) == bin(heats[c])).count() as u64;
                assert!(r.rank(heats[c], u32::MAX) < hotter + same);
            }
        }
        assert!(r.ancient > 0, "nothing grew ancient");
    }

    #[test]
    fn two_visits_earn_a_place_and_one_does_not() {
        let sums = Sums::new();
        for run in [0, STREAM, 200 * STREAM] {
            let r = Ranking::new(3);
            let (once, earned) = r.visited(0, run, &sums);
            assert!(!earned);
            // The SSD of ranking 3 has 4 GiB, of which half is for a stream.
            assert!(r.visited(once, run, &sums).1);
        }
        let (r, long) = (Ranking::new(3), 4 << 30);
        let twice = r.visited(r.visited(0, long, &sums).0, long, &sums);
        assert!(!twice.1);
    }
}
