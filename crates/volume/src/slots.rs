//! Free slots of one member: a bitmap with two summaries.
//!
//! Runs: a chunk goes right after its predecessor if that slot is free; else it starts in a wholly free, aligned group
//! of eight slots (1 MiB), at its own place in the group, so that its neighbours can join it; only when no such group
//! is left are single holes filled.
//!
//! Invariants:
//! 1. A slot that is taken has its bit set, and so has what is behind the last slot in its word. Free is 0, so that the
//!    system need not give memory for parts of a large member that were never used.
//! 2. A bit of a summary is set if the word has no free slot (`full`), or no wholly free group (`crowded`).

use crate::units::SlotIndex;

/// Slots of a group.
pub(crate) const GROUP: u64 = 8;

/// Free slots of a member.
pub(crate) struct FreeSlots {
    taken: Vec<u64>,
    full: Vec<u64>,
    crowded: Vec<u64>,
    count: u64,
    free: u64,
    /// Wholly free aligned groups.
    free_groups: u64,
    /// The word where the last search ended.
    hand: usize,
}

impl FreeSlots {
    /// All of `count` slots free.
    pub(crate) fn new(count: u64) -> FreeSlots {
        let n = count.div_ceil(64) as usize;
        let mut s = FreeSlots {
            taken: vec![0; n],
            full: vec![0; n.div_ceil(64)],
            crowded: vec![0; n.div_ceil(64)],
            count,
            free: count,
            free_groups: count / GROUP,
            hand: 0,
        };
        set_behind(&mut s.taken, count);
        set_behind(&mut s.full, n as u64);
        set_behind(&mut s.crowded, n as u64);
        if n > 0 {
            s.summarize(n - 1);
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
        u64::from(s) < self.count && self.taken[s as usize / 64] & 1 << (s % 64) == 0
    }

    /// Whether a slot of these, which begin and end with a word or with the last slot, is taken.
    pub(crate) fn any_taken(&self, slots: std::ops::Range<SlotIndex>) -> bool {
        let words = slots.start as usize / 64..(slots.end as usize).div_ceil(64);
        let behind = |w: usize| if (w as u64 + 1) * 64 > self.count { u64::MAX << (self.count % 64) } else { 0 };
        words.into_iter().any(|w| self.taken[w] & !behind(w) != 0)
    }

    /// Whether a slot, and all of its group, is free.
    pub(crate) fn is_in_free_group(&self, s: SlotIndex) -> bool {
        self.is_free(s) && self.group_is_free(s)
    }

    fn group_is_free(&self, s: SlotIndex) -> bool {
        (self.taken[s as usize / 64] >> ((s % 64) & !7)) & 0xff == 0
    }

    /// Makes the summaries of a word true.
    fn summarize(&mut self, word: usize) {
        let w = self.taken[word];
        put(&mut self.full, word, w == u64::MAX);
        put(&mut self.crowded, word, free_groups_of(w) == 0);
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
        self.taken[w] |= 1 << (s % 64);
        self.summarize(w);
        self.free -= 1;
        true
    }

    /// Gives a slot back.
    pub(crate) fn give(&mut self, s: SlotIndex) {
        assert!(u64::from(s) < self.count && !self.is_free(s), "slot {s} given back twice");
        let w = s as usize / 64;
        self.taken[w] &= !(1 << (s % 64));
        self.summarize(w);
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
        let w = first_zero(&self.crowded, self.hand)?;
        self.hand = w;
        Some((w * 64) as SlotIndex + (free_groups_of(self.taken[w]).trailing_zeros() & !7))
    }

    fn find_any(&mut self) -> Option<SlotIndex> {
        let w = first_zero(&self.full, self.hand & !63)?;
        self.hand = w;
        Some((w * 64) as SlotIndex + self.taken[w].trailing_ones())
    }
}

/// A bit in each byte of the word that is 0; of those below the first such byte none.
fn free_groups_of(word: u64) -> u64 {
    const LOW: u64 = u64::MAX / 255;
    word.wrapping_sub(LOW) & !word & (LOW << 7)
}

/// Sets the bits behind the first `count` in the last word.
fn set_behind(words: &mut [u64], count: u64) {
    if count % 64 != 0 {
        words[count as usize / 64] |= u64::MAX << (count % 64);
    }
}

fn put(words: &mut [u64], bit: usize, value: bool) {
    let mask = 1 << (bit % 64);
    // What is as it should be is not written: it may have no memory yet.
    if (words[bit / 64] & mask != 0) != value {
        words[bit / 64] ^= mask;
    }
}

/// The first bit that is not set, from `from` on and then from the beginning.
fn first_zero(words: &[u64], from: usize) -> Option<usize> {
    let n = words.len();
    let mut mask = u64::MAX << (from % 64);
    for i in 0..=n {
        let w = (from / 64 + i) % n;
        let zeros = !words[w] & mask;
        if zeros != 0 {
            return Some(w * 64 + zeros.trailing_zeros() as usize);
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_slot_is_seen_in_its_words_and_what_is_behind_the_last_is_not() {
        let mut s = FreeSlots::new(200);
        assert!(!s.any_taken(0..200) && !s.any_taken(128..200));
        assert!(s.take_exact(130));
        assert!(s.any_taken(128..200) && s.any_taken(0..200) && !s.any_taken(0..128));
    }

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
    fn a_group_that_got_free_is_found_wherever_it_is() {
        let count = 64 * 64 * 3 + 20;
        let mut f = FreeSlots::new(count);
        while f.take(None, 0).is_some() {}
        for first in [count - 20, 64 * 64 + 8, 0] {
            (0..8).for_each(|i| f.give((first + i) as u32));
            f.give(40);
            assert_eq!(f.take(None, 5), Some(first as u32 + 5), "a hole is left alone while there is a group");
            assert!((0..8).all(|i| i == 5 || f.take_exact((first + i) as u32)));
            assert_eq!((f.take(None, 0), f.take(None, 0)), (Some(40), None));
        }
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
