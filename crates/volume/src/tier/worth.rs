//! What a chunk is worth on the fast tier: its heat, and more if it stands alone or was used there a moment ago.
//!
//! A disk seeks once for what lies together. A chunk whose neighbours are as warm as it is, is mostly asked for together with
//! them, and shares that seek; one that stands alone among cold ones saves the head a whole seek with each visit: two chunks that
//! are read together save 13 + 1 ms, each of them alone 13 ms. That is told by the heats around a chunk, not by the length of the
//! request that visits it: weighing visits by their run makes the chunks of a large file, which is read in long and short
//! pieces, unequally hot by chance, and tears it between the tiers.
//!
//! What a use a moment ago is worth, and why, says [`super::recency`]. Worth is asked for where chunks are compared, and kept nowhere.

use super::heat::{Clock, OCTAVE};
use super::recency::{Recency, NONE};
use super::View;
use crate::units::ChunkId;

/// How much more a chunk is worth that stands alone. By the head's time of two chunks it would be nine tenths of an octave for
/// those that are always read together, and nothing for those that never are.
pub(super) const ALONE: i32 = OCTAVE / 2;
/// A neighbour counts if it is at most so much colder.
const AS_WARM: i32 = OCTAVE * 3 / 2;

/// What chunks are rated by.
#[derive(Clone, Copy)]
pub(super) struct Scale<'a> {
    pub(super) clock: &'a Clock,
    pub(super) recency: &'a Recency,
}

impl Scale<'_> {
    /// The worth of a chunk relative to now, in the fine steps of heats.
    pub(super) fn worth(self, v: &impl View, c: ChunkId) -> i32 {
        match v.fast_slot(c) {
            Some(slot) => self.in_slot(v, c, slot).0,
            None => self.lasting(v, c),
        }
    }

    /// The worth of the chunk in a fast slot, and what of it lasts: a use a moment ago left out.
    pub(super) fn in_slot(self, v: &impl View, c: ChunkId, slot: u32) -> (i32, i32) {
        let (heat, alone) = (self.clock.relative(v.heat(c)), self.alone(v, c));
        let lately = self.recency.counts_like(slot);
        let used = if lately == NONE { heat } else { self.clock.ladd(heat, lately) };
        (used + alone, heat + alone)
    }

    fn lasting(self, v: &impl View, c: ChunkId) -> i32 {
        self.clock.relative(v.heat(c)) + self.alone(v, c)
    }

    /// How much more a chunk is worth than its heat because it stands alone.
    pub(super) fn alone(self, v: &impl View, c: ChunkId) -> i32 {
        let heat = self.clock.relative(v.heat(c));
        let warm = |n: ChunkId| v.is_mapped(n) && self.clock.relative(v.heat(n)) >= heat - AS_WARM;
        let beside = (c.0 > 0 && warm(ChunkId(c.0 - 1))) || warm(ChunkId(c.0 + 1));
        if beside {
            0
        } else {
            ALONE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::toy::Toy;
    use crate::units::Tier;

    #[test]
    fn a_chunk_among_colder_ones_is_worth_more_than_its_heat() {
        let (mut g, clock, recency) = (Toy::new(64, 64, 0), Clock::new(64), Recency::new(64));
        let scale = Scale { clock: &clock, recency: &recency };
        g.pass(0..64, true);
        let mut worths = |of: [i32; 3]| {
            (9..).zip(of).for_each(|(c, octaves)| g.w.set_heat(ChunkId(c), clock.absolute(octaves * OCTAVE, 0)));
            [9, 10, 11].map(|c| scale.worth(&g.w, ChunkId(c)))
        };
        assert_eq!(worths([-9, 3, -9])[1], 3 * OCTAVE + ALONE);
        assert_eq!(worths([3, 3, -9]), [3 * OCTAVE, 3 * OCTAVE, -9 * OCTAVE]);
        assert_eq!(worths([-9, 3, 2])[1..], [3 * OCTAVE, 2 * OCTAVE]);
        assert_eq!(worths([-9, 3, 1])[1..], [3 * OCTAVE + ALONE, OCTAVE]);
    }

    #[test]
    fn the_first_chunk_of_all_has_one_neighbour() {
        let (g, clock, recency) = (Toy::new(8, 8, 0), Clock::new(8), Recency::new(8));
        let scale = Scale { clock: &clock, recency: &recency };
        assert_eq!(scale.worth(&g.w, ChunkId(0)), clock.relative(0) + ALONE);
        assert_eq!(scale.alone(&g.w, ChunkId(0)), ALONE);
    }

    #[test]
    fn what_was_used_a_moment_ago_is_worth_more_for_a_while_where_it_lies_on_the_fast_tier() {
        let (mut g, clock, mut recency) = (Toy::new(64, 64, 0), Clock::new(64), Recency::new(64));
        g.pass(0..64, true);
        g.pass(64..72, true);
        assert_eq!((g.w.tier_of(ChunkId(9)), g.w.tier_of(ChunkId(70))), (Some(Tier::Fast), Some(Tier::Slow)));
        let slot = g.w.fast_slot(ChunkId(9)).unwrap();
        let visits = |v: i32| (f64::from(v).log2() * f64::from(OCTAVE)) as i32;
        for c in 0..72 {
            g.w.set_heat(ChunkId(c), clock.absolute(visits(4), 0));
        }
        let plain = Scale { clock: &clock, recency: &recency }.worth(&g.w, ChunkId(9));
        recency.used(slot);
        let scale = Scale { clock: &clock, recency: &recency };
        // Four visits, and what counts like four.
        assert_eq!([9, 10, 70].map(|c| scale.worth(&g.w, ChunkId(c)) - plain), [OCTAVE, 0, 0]);
        assert_eq!(scale.in_slot(&g.w, ChunkId(9), slot), (plain + OCTAVE, plain));
    }
}
