//! Free slots of one member: a bitmap with a summary level.
//!
//! Runs: a chunk goes right after its predecessor if that slot is free; else it starts in a wholly free, aligned group
//! of eight slots (1 MiB), at its own place in the group, so that its neighbours can join it; only when no such group
//! is left are single holes filled.

use crate::units::SlotIndex;

const GROUP: u64 = 8;

/// Free slots of a member.
pub(crate) struct FreeSlots {
    /// Bit set: slot is free.
    words: Vec<u64>,
    /// Bit set: the word has a free slot.
    summary: Vec<u64>,
    count: u64,
    free: u64,
    /// Wholly free aligned groups.
    free_groups: u64,
    /// Where the last search ended.
    hand: usize,
}

impl FreeSlots {
    /// All of `count` slots free.
    pub(crate) fn new(count: u64) -> FreeSlots {
        let n = count.div_ceil(64) as usize;
        let mut s = FreeSlots {
            words: vec![u64::MAX; n],
            summary: vec![0; n.div_ceil(64)],
            count,
            free: count,
            free_groups: count / GROUP,
            hand: 0,
        };
        if count % 64 != 0 {
            s.words[n - 1] = (1 << (count % 64)) - 1;
        }
        for i in 0..n {
            s.summary[i / 64] |= 1 << (i % 64);
        }
        s
    }

    /// Slots in all.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Free slots.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Whether a slot is free.
    pub(crate) fn is_free(&self, s: SlotIndex) -> bool {
        u64::from(s) < self.count && self.words[s as usize / 64] & 1 << (s % 64) != 0
    }

    fn group_is_free(&self, s: SlotIndex) -> bool {
        let byte = s as usize / 64;
        (self.words[byte] >> ((s % 64) & !7)) & 0xff == 0xff
    }

    /// Takes this slot; false if it was not free.
    pub(crate) fn take_exact(&mut self, s: SlotIndex) -> bool {
        if !self.is_free(s) {
            return false;
        }
        if self.group_is_free(s) {
            self.free_groups -= 1;
        }
        let w = s as usize / 64;
        self.words[w] &= !(1 << (s % 64));
        if self.words[w] == 0 {
            self.summary[w / 64] &= !(1 << (w % 64));
        }
        self.free -= 1;
        true
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, s: SlotIndex) {
        assert!(u64::from(s) < self.count && !self.is_free(s), "slot {s} given back twice");
        let w = s as usize / 64;
        self.words[w] |= 1 << (s % 64);
        self.summary[w / 64] |= 1 << (w % 64);
        self.free += 1;
        if self.group_is_free(s) {
            self.free_groups += 1;
        }
    }

    /// Takes a free slot: `after` if given and free, else by the rules above for a chunk whose number ends in
    /// `lane` (0..8).
    pub(crate) fn take(&mut self, after: Option<SlotIndex>, lane: u32) -> Option<SlotIndex> {
        if let Some(s) = after {
            if self.take_exact(s) {
                return Some(s);
            }
        }
        if self.free == 0 {
            return None;
        }
        let slot = match self.find_group() {
            Some(first) => first + lane % GROUP as u32,
            None => self.find_any()?,
        };
        let taken = self.take_exact(slot);
        debug_assert!(taken);
        Some(slot)
    }

    /// First slot of a wholly free group, from the hand on.
    fn find_group(&mut self) -> Option<SlotIndex> {
        if self.free_groups == 0 {
            return None;
        }
        let n = self.words.len();
        for i in 0..n {
            let w = (self.hand + i) % n;
            let word = self.words[w];
            if word == 0 {
                continue;
            }
            for g in 0..8 {
                if (word >> (g * 8)) & 0xff == 0xff {
                    self.hand = w;
                    return Some((w * 64 + g * 8) as SlotIndex);
                }
            }
        }
        None
    }

    fn find_any(&mut self) -> Option<SlotIndex> {
        let n = self.summary.len();
        let start = self.hand / 64;
        for i in 0..=n {
            let s = (start + i) % n;
            if self.summary[s] != 0 {
                let w = s * 64 + self.summary[s].trailing_zeros() as usize;
                self.hand = w;
                return Some((w * 64) as SlotIndex + self.words[w].trailing_zeros());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_predecessor_and_then_opens_groups() {
        let mut f = FreeSlots::new(64);
        let a = f.take(None, 3).unwrap();
        assert_eq!(a % 8, 3);
        assert_eq!(f.take(Some(a + 1), 4), Some(a + 1));
        let b = f.take(None, 0).unwrap();
        assert_ne!(a / 8, b / 8, "an unrelated chunk opens its own group");
    }

    #[test]
    fn every_slot_is_given_once_and_comes_back() {
        for count in [1u64, 7, 8, 63, 64, 65, 200, 5000] {
            let mut f = FreeSlots::new(count);
            let mut seen = vec![false; count as usize];
            for lane in 0..count {
                let s = f.take(None, lane as u32 * 5).expect("free") as usize;
                assert!(!std::mem::replace(&mut seen[s], true));
            }
            assert_eq!((f.free(), f.take(None, 0)), (0, None));
            for s in 0..count {
                f.give(s as u32);
            }
            assert_eq!((f.free(), f.free_groups), (count, count / 8));
        }
    }
}
