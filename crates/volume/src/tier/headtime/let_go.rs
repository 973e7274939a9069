//! Which chunks go down to the copy that they have kept, to make room for new data, and about how many there are.
//!
//! Copies may be few and lie anywhere, also where others are colder: so regions have a mark for them alone.

use super::victims::{first_of, LOOKS, LOOKS_IN_VAIN};
use super::HeadTime;
use crate::tier::newborn::Birth;
use crate::tier::View;
use crate::units::ChunkId;

/// What is among the coldest so many percent of the fast tier may be let go, however cold new data are.
const LET_GO_PERCENT: u32 = 25;
/// Slots that are looked at for copies that were there before anybody noted them: in a search for victims, and while new data wait.
const NOTED: u32 = 1024;
const NOTED_FOR_NEW_DATA: u32 = 1 << 16;

impl HeadTime {
    /// At most `max` chunks with a kept copy that are colder than a small new one, or among the coldest quarter.
    pub(super) fn cold_with_copy(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        if max == 0 || v.fast_slots() == 0 {
            return Vec::new();
        }
        self.refresh(v, 64);
        self.note_copies(v, NOTED_FOR_NEW_DATA);
        let limit = self.cold.map_or(i32::MAX, |h| self.clock.relative(h));
        let (mut found, mut seen) = (Vec::new(), Vec::new());
        while let Some((region, mark)) = self.copied.coldest_marked(&self.clock, &seen) {
            let looks = if found.is_empty() { LOOKS_IN_VAIN } else { LOOKS };
            let enough = found.iter().filter(|(worth, _)| *worth <= mark).count() >= max;
            if seen.len() >= looks || mark > limit || enough {
                break;
            }
            self.look(v, region, true, &mut found);
            seen.push(region);
        }
        found.retain(|(worth, _)| *worth <= limit);
        let mut out: Vec<_> = first_of(&mut found, max).iter().map(|(_, c)| *c).collect();
        out.sort_unstable();
        out
    }

    /// What may be let go is at most as warm as this.
    pub(super) fn cold_limit(&self) -> Option<u16> {
        let quarter = self.sample.quantile(&self.clock, LET_GO_PERCENT)?;
        Some(self.clock.absolute(quarter.max(self.half_life.heat_of(Birth::Random)), 0))
    }

    /// Notes where copies lie that chunks had before the policy was told of any.
    pub(super) fn note_some_copies(&mut self, v: &impl View) {
        self.note_copies(v, NOTED);
    }

    fn note_copies(&mut self, v: &impl View, slots: u32) {
        let end = v.fast_slots().min(self.noted.saturating_add(slots));
        for slot in self.noted..end {
            if let Some(c) = v.fast_at(slot).filter(|c| v.has_copy(*c)) {
                self.copied.note_first(&self.clock, slot, v.heat(c));
            }
        }
        self.noted = end.max(self.noted);
    }
}
