//! What a chunk is worth on the fast tier: its heat, and more if it stands alone.
//!
//! A disk seeks once for what lies together. A chunk whose neighbours are as warm as it is, is mostly asked for together with
//! them, and shares that seek; one that stands alone among cold ones saves the head a whole seek with each visit: two chunks that
//! are read together save 13 + 1 ms, each of them alone 13 ms. That is told by the heats around a chunk, not by the length of the
//! request that visits it: weighing visits by their run makes the chunks of a large file, which is read in long and short
//! pieces, unequally hot by chance, and tears it between the tiers.
//!
//! Worth is asked for where chunks are compared, and kept nowhere.

use super::heat::{Clock, OCTAVE};
use super::View;
use crate::units::ChunkId;

/// How much more a chunk is worth that stands alone. By the head's time of two chunks it would be nine tenths of an octave for
/// those that are always read together, and nothing for those that never are.
pub(super) const ALONE: i32 = OCTAVE / 2;
/// A neighbour counts if it is at most so much colder.
const AS_WARM: i32 = OCTAVE * 3 / 2;

/// The worth of a chunk relative to now, in the fine steps of heats.
pub(super) fn worth(clock: &Clock, v: &impl View, c: ChunkId) -> i32 {
    let heat = clock.relative(v.heat(c));
    let warm = |n: ChunkId| v.is_mapped(n) && clock.relative(v.heat(n)) >= heat - AS_WARM;
    let beside = (c.0 > 0 && warm(ChunkId(c.0 - 1))) || warm(ChunkId(c.0 + 1));
    heat + if beside { 0 } else { ALONE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::toy::Toy;

    #[test]
    fn a_chunk_among_colder_ones_is_worth_more_than_its_heat() {
        let (mut g, clock) = (Toy::new(64, 64, 0), Clock::new(64));
        g.pass(0..64, true);
        let mut worths = |of: [i32; 3]| {
            (9..).zip(of).for_each(|(c, octaves)| g.w.set_heat(ChunkId(c), clock.absolute(octaves * OCTAVE, 0)));
            [9, 10, 11].map(|c| worth(&clock, &g.w, ChunkId(c)))
        };
        assert_eq!(worths([-9, 3, -9])[1], 3 * OCTAVE + ALONE);
        assert_eq!(worths([3, 3, -9]), [3 * OCTAVE, 3 * OCTAVE, -9 * OCTAVE]);
        assert_eq!(worths([-9, 3, 2])[1..], [3 * OCTAVE, 2 * OCTAVE]);
        assert_eq!(worths([-9, 3, 1])[1..], [3 * OCTAVE + ALONE, OCTAVE]);
    }

    #[test]
    fn the_first_chunk_of_all_has_one_neighbour() {
        let (g, clock) = (Toy::new(8, 8, 0), Clock::new(8));
        assert_eq!(worth(&clock, &g.w, ChunkId(0)), clock.relative(0) + ALONE);
    }
}
