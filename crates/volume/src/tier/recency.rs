//! What a chunk of the fast tier is worth because it was used a moment ago.
//!
//! Heat counts visits over a long time: for eight visits of each slot and more. What is used comes in bursts, though, so that a
//! chunk that was used lately is likelier to be used next than its count says, the more so the fewer visits it has to show. Plain
//! recency does well by that alone on recordings of minutes and hours. So the last use of each slot is remembered, and for a
//! while counts like [`FIRST`] visits more. Only what has to leave is judged so: a candidate has always been used just now, and
//! would need no second touch.
//!
//! Terms: a *use* is a visit of a chunk that is on the fast tier, or the arrival of one there. A *stamp* says in which *span* a slot
//! was used last; a span is [`SPANS`]`^-1` uses of each slot. The *age* of a slot is the spans since.
//!
//! Invariants:
//! 1. An age never goes round: within [`SWEEP`] spans each stamp is looked at, and taken away if it is older than [`OLDEST`].
//! 2. A slot to which a chunk came without a use (a new one in a stream) has no stamp.

use super::heat::OCTAVE;

/// Spans in as many uses as there are slots.
const SPANS: u32 = 32;
/// What a use just now counts like: four visits.
const FIRST: i32 = 2 * OCTAVE;
/// After so many spans, a quarter of a use per slot, that has halved twice; it falls with the square of the age, as the
/// chance that bursts go on does.
const HALVED: f64 = 8.0;
/// A stamp of such an age may be taken away ...
const OLDEST: u8 = 160;
/// ... and is within so many spans.
const SWEEP: u32 = 64;
/// What no use counts like.
pub(super) const NONE: i32 = i32::MIN;

/// When each slot of the fast tier was used last.
pub(super) struct Recency {
    /// 0: long ago.
    stamps: Box<[u8]>,
    /// The span, 1 to 255.
    now: u8,
    /// Uses in it.
    uses: u32,
    /// Uses of a span.
    span: u32,
    /// The slot that is looked at next.
    sweep: usize,
    /// What a use counts like, by its age.
    weights: Box<[i32; 256]>,
}

fn weight(age: usize) -> i32 {
    FIRST - (2.0 * (1.0 + age as f64 / HALVED).log2() * f64::from(OCTAVE)) as i32
}

impl Recency {
    pub(super) fn new(fast_slots: u32) -> Recency {
        Recency {
            stamps: vec![0; fast_slots as usize].into_boxed_slice(),
            now: 1,
            uses: 0,
            span: (fast_slots / SPANS).max(1),
            sweep: 0,
            weights: Box::new(std::array::from_fn(weight)),
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.stamps) + std::mem::size_of_val(&*self.weights)
    }

    /// The chunk in a slot is used.
    pub(super) fn used(&mut self, slot: u32) {
        if let Some(stamp) = self.stamps.get_mut(slot as usize) {
            *stamp = self.now;
        }
        self.uses += 1;
        if self.uses >= self.span {
            self.uses = 0;
            self.now = self.now.checked_add(1).unwrap_or(1);
            self.take_away_the_oldest();
        }
    }

    /// Another chunk has come to a slot, without a use.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(stamp) = self.stamps.get_mut(slot as usize) {
            *stamp = 0;
        }
    }

    /// What the last use of a slot counts like, as a heat relative to now in fine steps; [`NONE`] if it is long ago.
    pub(super) fn counts_like(&self, slot: u32) -> i32 {
        match self.stamps.get(slot as usize) {
            None | Some(0) => NONE,
            Some(stamp) => self.weights[usize::from(self.age(*stamp))],
        }
    }

    /// Spans since a stamp; there are 255 of them.
    fn age(&self, stamp: u8) -> u8 {
        if self.now >= stamp {
            self.now - stamp
        } else {
            self.now + (255 - stamp)
        }
    }

    fn take_away_the_oldest(&mut self) {
        let slots = self.stamps.len();
        for _ in 0..slots.div_ceil(SWEEP as usize) {
            let at = self.sweep % slots;
            if self.stamps[at] != 0 && self.age(self.stamps[at]) >= OLDEST {
                self.stamps[at] = 0;
            }
            self.sweep = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_counts_like_four_visits_and_less_with_the_square_of_its_age() {
        let octaves = [0, 8, 24, 56].map(|age| weight(age) / OCTAVE);
        assert_eq!(octaves, [2, 0, -2, -4]);
        let mut r = Recency::new(3200);
        r.used(7);
        assert_eq!((r.counts_like(7), r.counts_like(8), r.counts_like(u32::MAX)), (FIRST, NONE, NONE));
        // A quarter as many uses as there are slots.
        (0..800).for_each(|_| r.used(9));
        assert_eq!((r.counts_like(7), r.counts_like(9)), (0, FIRST));
        r.forget(9);
        r.forget(u32::MAX);
        assert_eq!(r.counts_like(9), NONE);
    }

    #[test]
    fn what_was_used_long_ago_never_looks_as_if_it_were_just_now() {
        for slots in [1, 2, 31, 32, 1000, 4096] {
            let mut r = Recency::new(slots);
            r.used(0);
            let mut before = r.counts_like(0);
            for _ in 0..slots.max(SPANS) * 40 {
                // Of another group that is gone: it counts all the same.
                r.used(u32::MAX);
                let now = r.counts_like(0);
                assert!(now <= before, "{slots} slots: {now} after {before}");
                before = now;
            }
            assert_eq!(before, NONE, "{slots} slots");
        }
    }

    #[test]
    fn a_tier_without_slots_has_no_stamps() {
        let mut r = Recency::new(0);
        (0..1000).for_each(|_| r.used(0));
        assert_eq!(r.counts_like(0), NONE);
    }
}
