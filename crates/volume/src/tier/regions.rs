//! Where the coldest chunks of the fast tier lie, without looking at all of them.
//!
//! Terms: a *region* is a run of fast slots. Its *mark* is the worth up to which one in [`SHARE`] of its chunks was when
//! somebody looked (with little of what a use a moment ago adds, which passes), or the heat of a colder chunk that has come to it
//! since, which is no more than its worth.
//!
//! Invariants:
//! 1. A mark is never too high for long: heat only grows, new and cooled chunks are noted, and what was missed (a chunk
//!    that had to stay and no longer has to) is found when the region's turn comes.
//! 2. A mark that is too low costs a look, which corrects it.

use super::heat::Clock;

/// Slots of a region, unless there are too many regions.
const SLOTS: u32 = 256;
/// Most regions.
const REGIONS: u32 = 1 << 16;
/// The mark of a region is that of the chunk at one part in so many: a few cold chunks do not draw looks to a hot
/// region.
const SHARE: usize = 16;

/// Marks of all regions of the fast tier.
pub(super) struct Regions {
    /// `None`: nobody has looked.
    marks: Box<[Option<u16>]>,
    /// Slots of a region.
    size: u32,
    /// The region whose turn is next.
    turn: u32,
}

impl Regions {
    pub(super) fn new(fast_slots: u32) -> Regions {
        let size = SLOTS.max(fast_slots.div_ceil(REGIONS));
        let count = fast_slots.div_ceil(size).max(1);
        Regions { marks: vec![None; count as usize].into_boxed_slice(), size, turn: 0 }
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.marks)
    }

    /// Slots of region `r`.
    pub(super) fn slots(&self, r: usize, fast_slots: u32) -> std::ops::Range<u32> {
        let first = (r as u32).saturating_mul(self.size).min(fast_slots);
        first..first.saturating_add(self.size).min(fast_slots)
    }

    /// A chunk of this heat has come to a slot, or has cooled there.
    pub(super) fn note(&mut self, clock: &Clock, slot: u32, heat: u16) {
        if let Some(Some(mark)) = self.marks.get_mut((slot / self.size) as usize) {
            if clock.rank(heat) < clock.rank(*mark) {
                *mark = heat;
            }
        }
    }

    /// The region with the lowest mark but for those `seen`, and its mark relative to now; before all others comes one
    /// that nobody has looked at, which has none.
    pub(super) fn coldest(&self, clock: &Clock, seen: &[usize]) -> Option<(usize, Option<i32>)> {
        let mut best = (i32::MAX, None);
        for (r, mark) in self.marks.iter().enumerate() {
            let rank = mark.map_or(-1, |heat| i32::from(clock.rank(heat)));
            // Most are not below the best so far: only then it counts whether they were seen.
            if rank < best.0 && !seen.contains(&r) {
                best = (rank, Some(r));
            }
        }
        let r = best.1?;
        Some((r, self.marks[r].map(|mark| clock.relative(mark))))
    }

    /// The region with the lowest mark of those that have one, but for those `seen`.
    pub(super) fn coldest_marked(&self, clock: &Clock, seen: &[usize]) -> Option<(usize, i32)> {
        let mut best: Option<(u16, usize, u16)> = None;
        for (r, heat) in self.marks.iter().enumerate().filter_map(|(r, mark)| Some((r, (*mark)?))) {
            let rank = clock.rank(heat);
            if best.is_none_or(|b| rank < b.0) && !seen.contains(&r) {
                best = Some((rank, r, heat));
            }
        }
        best.map(|(_, r, heat)| (r, clock.relative(heat)))
    }

    /// As [`Regions::note`], also in a region that has no mark.
    pub(super) fn note_first(&mut self, clock: &Clock, slot: u32, heat: u16) {
        match self.marks.get_mut((slot / self.size) as usize) {
            Some(mark @ None) => *mark = Some(heat),
            _ => self.note(clock, slot, heat),
        }
    }

    /// Takes the mark of a region away.
    pub(super) fn clear(&mut self, r: usize) {
        self.marks[r] = None;
    }

    /// Sets the mark of a region by the heats of those of its chunks that may leave, which are put in another order.
    pub(super) fn set(&mut self, clock: &Clock, r: usize, heats: &mut [u16]) {
        let mark = match heats.len() {
            // Nothing can leave: it comes last.
            0 => clock.hottest(),
            n => *heats.select_nth_unstable_by_key(n / SHARE, |h| clock.rank(*h)).1,
        };
        self.marks[r] = Some(mark);
    }

    /// Each region in turn.
    pub(super) fn next_turn(&mut self) -> usize {
        let r = self.turn as usize % self.marks.len();
        self.turn = (r as u32 + 1) % self.marks.len() as u32;
        r
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::heat::OCTAVE;

    #[test]
    fn regions_are_found_coldest_first_and_cover_all_slots() {
        let clock = Clock::new(1000);
        let heat = |octaves: i32| clock.absolute(octaves * OCTAVE, 0);
        let mut regions = Regions::new(1000);
        let covered: Vec<u32> = (0..4).flat_map(|r| regions.slots(r, 1000)).collect();
        assert_eq!(covered, (0..1000).collect::<Vec<u32>>());
        assert_eq!(regions.coldest(&clock, &[]), Some((0, None)));
        for (r, octaves) in [(0, -3), (1, -20), (2, 5), (3, -1)] {
            // One chunk that is colder than a sixteenth of its region does not count.
            let mut heats = vec![heat(octaves); 40];
            heats[7] = heat(-60);
            regions.set(&clock, r, &mut heats);
        }
        assert_eq!(regions.coldest(&clock, &[]), Some((1, Some(-20 * OCTAVE))));
        assert_eq!(regions.coldest(&clock, &[1, 3]), Some((0, Some(-3 * OCTAVE))));
        regions.note(&clock, 600, heat(-40));
        regions.note(&clock, 601, heat(-10));
        assert_eq!(regions.coldest(&clock, &[]), Some((2, Some(-40 * OCTAVE))));
        regions.set(&clock, 2, &mut []);
        assert_eq!(regions.coldest(&clock, &[]), Some((1, Some(-20 * OCTAVE))));
        assert_eq!(regions.coldest(&clock, &[0, 1, 2, 3]), None);
        assert_eq!([0; 5].map(|_| regions.next_turn()), [0, 1, 2, 3, 0]);
    }

    #[test]
    fn of_regions_with_a_mark_the_coldest_is_found() {
        let clock = Clock::new(1000);
        let heat = |octaves: i32| clock.absolute(octaves * OCTAVE, 0);
        let mut regions = Regions::new(1024);
        assert_eq!(regions.coldest_marked(&clock, &[]), None);
        regions.note_first(&clock, 300, heat(-3));
        regions.note_first(&clock, 301, heat(4));
        regions.note_first(&clock, 1023, heat(-2));
        assert_eq!(regions.coldest_marked(&clock, &[]), Some((1, -3 * OCTAVE)));
        assert_eq!(regions.coldest_marked(&clock, &[1]), Some((3, -2 * OCTAVE)));
        regions.clear(1);
        assert_eq!(regions.coldest_marked(&clock, &[3]), None);
    }

    #[test]
    fn the_largest_tier_has_no_more_regions_than_a_small_table() {
        let regions = Regions::new(u32::MAX);
        assert!(regions.bytes() <= 4 << 16);
        assert_eq!(regions.slots(regions.marks.len() - 1, u32::MAX).end, u32::MAX);
    }
}
