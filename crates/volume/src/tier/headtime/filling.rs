//! Free slots serve nobody: while there is plenty of them, and nothing is born that would want them, whatever is read in streams
//! fills them. A data set that is read from end to end again and again has its part on the fast tier from its first pass on.
//!
//! Terms: a *filler* is a chunk that came up for nothing but a free slot, and was not used since.
//!
//! - Of a stream that is larger than the fast tier its beginning fills, as much as fits: pieces from all over it would make the disk seek.
//! - Filling begins with plenty, which the mover never makes: it frees a few slots at a time, each for a chunk that is used. It goes on
//!   down to what is kept free.
//! - Nothing leaves for what only fills: when the mover asks for victims, those that wait have to show what all others must.
//! - New data end it, for as long as births are remembered, and fillers leave for them, faster than they come ([`Filled`]): each goes down to
//!   its copy, by an edit of the map. So new data find what they would have found without fillers.
//! - It takes what the SSD's life has to spare, so that what is used later can still come up ([`View::may_fill`]).
//!
//! Fillers are known by a bit of their slot. It may be stale where one has left by itself: it is looked at again before it is believed.
//! After a start nothing is known of them, and they are cold chunks with a copy, as others are.
//!
//! [`Filled`]: crate::tier::reserve::Filled

use super::{HeadTime, AGAIN};
use crate::tier::heat::OCTAVE;
use crate::tier::View;
use crate::units::{ChunkId, Tier};

/// What shows less has come up for a free slot: one or two passes of a stream. Data that were written in one go and read once have two,
/// and fill slots like others, but are no reason to send new data elsewhere.
const FILLER: i32 = AGAIN + OCTAVE;

/// Whether free slots are being filled, and which have been.
pub(super) struct Filling {
    on: bool,
    /// A bit for each fast slot.
    fillers: Box<[u64]>,
    count: u64,
}

impl Filling {
    pub(super) fn new(fast_slots: u32) -> Filling {
        Filling { on: false, fillers: vec![0; (fast_slots as usize).div_ceil(64)].into_boxed_slice(), count: 0 }
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.fillers)
    }

    /// About how many fillers there are: stale ones are counted until somebody looks.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn set(&mut self, slot: u32, filler: bool) {
        let Some(word) = self.fillers.get_mut(slot as usize / 64) else { return };
        let bit = 1 << (slot % 64);
        let was = *word & bit != 0;
        *word = if filler { *word | bit } else { *word & !bit };
        self.count = self.count + u64::from(filler) - u64::from(was);
    }

    /// The first slot with a bit, from this one on.
    fn next(&self, slot: u32) -> Option<u32> {
        let (first, rest) = (slot as usize / 64, u64::MAX << (slot % 64));
        let words = self.fillers.iter().enumerate().skip(first);
        let mut left = words.map(|(i, word)| (i, if i == first { word & rest } else { *word }));
        left.find(|(_, word)| *word != 0).map(|(i, word)| i as u32 * 64 + word.trailing_zeros())
    }
}

/// Whether there is room for everything: nothing has to leave. The mover frees some slots more than it must for promotions,
/// which is not plenty.
pub(super) fn is_plenty(v: &impl View) -> bool {
    v.free_fast() > v.keep_free() + v.reserve() / 4 + 8
}

impl HeadTime {
    /// Queues a chunk that is read in a stream, if free slots are to be filled.
    pub(super) fn consider_filling(&mut self, v: &impl View, c: ChunkId) {
        self.filling.on = self.filling.on || is_plenty(v);
        if self.fills(v) && v.tier_of(c) == Some(Tier::Slow) && !self.waits(c, v.now()) {
            self.queue.push_filling(c);
        }
    }

    /// Whether what is read in a stream fills free slots now.
    pub(super) fn fills(&self, v: &impl View) -> bool {
        self.filling.on && v.free_fast() > v.keep_free() && self.influx.is_quiet() && v.may_fill()
    }

    /// Slots are to be freed: filling is over, and what waits only for that is forgotten. Whether it was not over before.
    pub(super) fn end_of_filling(&mut self, v: &impl View) -> bool {
        let filled = std::mem::take(&mut self.filling.on);
        if filled {
            self.prune(v);
        }
        filled
    }

    /// A chunk has come up: while slots are filled it did for that, if it shows little.
    pub(super) fn note_filled(&mut self, v: &impl View, c: ChunkId) {
        if let Some(slot) = v.fast_slot(c) {
            let fills = self.filling.on && self.influx.is_quiet();
            let filler = fills && self.clock.relative(v.heat(c)) < FILLER;
            self.filling.set(slot, filler);
        }
    }

    /// A chunk is visited: a filler is used again then, and none any more.
    pub(super) fn visited_again(&mut self, v: &impl View, c: ChunkId) {
        if self.filling.count > 0 {
            v.fast_slot(c).into_iter().for_each(|slot| self.filling.set(slot, false));
        }
    }

    /// At most `max` fillers, if new data have come since.
    pub(super) fn take_filled(&mut self, v: &impl View, max: usize) -> Vec<ChunkId> {
        let mut out = Vec::new();
        let mut from = 0;
        while let Some(slot) = self.filling.next(from).filter(|_| out.len() < max && !self.influx.is_quiet()) {
            // One that is on the move is none any more.
            self.filling.set(slot, false);
            out.extend(v.fast_at(slot).filter(|c| v.has_copy(*c)));
            from = slot + 1;
        }
        out.sort_unstable();
        out
    }
}
