//! How much what is on the fast tier is worth there, from a rolling sample: cheaper than a histogram kept at every touch, and it
//! cannot drift when chunks are born, trimmed or moved.

use super::heat::Clock;
use super::unreadable::Unreadable;
use super::worth::Scale;
use super::View;

/// Chunks remembered.
const SAMPLES: usize = 256;

/// Slots whose look says how many cold chunks have a kept copy: then the older ones count half. Fewer say nothing.
const LOOKED_MOST: u32 = 4096;
const LOOKED_LEAST: u32 = 256;

/// A rolling sample of what chunks on the fast tier are worth, in the form of heats.
pub(super) struct Sample {
    heats: Box<[u16; SAMPLES]>,
    taken: usize,
    next: usize,
    /// Slots that were looked at, and those of them with a chunk that is cold and has a copy.
    looked: u32,
    cold_copies: u32,
}

impl Sample {
    pub(super) fn new() -> Sample {
        Sample { heats: Box::new([0; SAMPLES]), taken: 0, next: 0, looked: 0, cold_copies: 0 }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.heats)
    }

    /// Looks at `tries` random fast slots. `cold`: what counts as it,
    /// relative to now, if that is known. What cannot be read does not count: it cannot leave.
    pub(super) fn take(
        &mut self,
        v: &mut impl View,
        scale: Scale,
        tries: usize,
        cold: Option<i32>,
        unreadable: &Unreadable,
    ) {
        let slots = u64::from(v.fast_slots());
        if slots == 0 {
            return;
        }
        if self.looked >= LOOKED_MOST {
            (self.looked, self.cold_copies) = (self.looked / 2, self.cold_copies / 2);
        }
        for _ in 0..tries {
            // Multiply and shift: an index below `slots` without a division.
            let i = (u64::from(v.random()) * slots) >> 32;
            self.looked += u32::from(cold.is_some());
            if let Some(c) = v.fast_at(i as u32).filter(|c| !unreadable.knows(*c)) {
                let worth = scale.in_slot(v, c, i as u32).0;
                self.cold_copies += u32::from(cold.is_some_and(|cold| worth <= cold) && v.has_copy(c));
                self.heats[self.next] = scale.clock.absolute(worth, 0);
                self.next = (self.next + 1) % SAMPLES;
                self.taken = (self.taken + 1).min(SAMPLES);
            }
        }
    }

    /// About how many of so many fast slots have a chunk that is cold and has a kept copy; `None` before enough were seen.
    pub(super) fn cold_copies(&self, fast_slots: u32) -> Option<u64> {
        let share = || u64::from(fast_slots) * u64::from(self.cold_copies) / u64::from(self.looked);
        (self.looked >= LOOKED_LEAST).then(share)
    }

    /// Relative worth below or at which about `percent` of the fast tier lies; `None` before anything was seen.
    pub(super) fn quantile(&self, clock: &Clock, percent: u32) -> Option<i32> {
        if self.taken == 0 {
            return None;
        }
        let mut relative = [0i32; SAMPLES];
        for (r, heat) in relative.iter_mut().zip(self.heats.iter()).take(self.taken) {
            *r = clock.relative(*heat);
        }
        let rank = (self.taken * percent as usize / 100).min(self.taken - 1);
        let (_, value, _) = relative[..self.taken].select_nth_unstable(rank);
        Some(*value)
    }
}
