//! Which chunks leave the fast tier: those of the regions that promise the coldest.

use super::{HeadTime, COLDEST_PERCENT, NOISE};
use crate::tier::heat::OCTAVE;
use crate::tier::{View, GROUP_CHUNKS};
use crate::units::{ChunkId, Tier};

/// Regions that one call of `victims` looks at, and while none holds a chunk that may leave.
pub(super) const LOOKS: usize = 16;
pub(super) const LOOKS_IN_VAIN: usize = 128;

/// What a mark has of a use a moment ago, at most. Regions of what was just used would hide others behind them if it had
/// nothing of it, and would be found too late when the moment has passed if it had all.
const LATELY: i32 = OCTAVE;

/// A chunk leaves a hole where so many of its 1 MiB neighbours stay: what is read as a whole would be cut in two, and the disk
/// asked for a piece in the middle.
const NEIGHBOURS_THAT_STAY: usize = 3;

/// The first `n`, in order: most of what is found at a look does not matter.
pub(super) fn first_of<T: Ord>(list: &mut [T], n: usize) -> &[T] {
    let n = n.min(list.len());
    if n > 0 && n < list.len() {
        list.select_nth_unstable(n - 1);
    }
    list[..n].sort_unstable();
    &list[..n]
}

impl HeadTime {
    /// At most `max` chunks that should leave the fast tier, the coldest first as far as it is known.
    pub(super) fn coldest_chunks(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        let slots = v.fast_slots();
        let mut out = Vec::with_capacity(max.min(1024));
        if max == 0 || slots == 0 {
            return out;
        }
        self.refresh(v, 64);
        self.note_some_copies(v);
        let short = v.free_fast() < v.keep_free();
        if self.end_of_filling(v) && !short && self.queue.len() == 0 {
            return out;
        }
        let coldest = self.sample.quantile(&self.clock, COLDEST_PERCENT).unwrap_or(i32::MAX);
        let (mut found, promised) = self.search(v, max, if short { i32::MAX } else { coldest }, coldest);
        // What was used lately cools faster or slower than heat does, and the sample is of some time ago: by a little the coldest
        // of all may be warmer than it says.
        let least = found.iter().map(|(worth, _)| *worth).min().unwrap_or(coldest);
        let coldest = coldest.max(least.min(coldest.saturating_add(NOISE)));
        // For a promotion only the coldest leave. To free what should be free the coldest there are must, and where colder
        // ones are promised elsewhere a few of them: next time it is looked there.
        let limit = if short { promised.saturating_add(NOISE) } else { coldest };
        let sure = found.iter().filter(|(worth, _)| *worth <= limit).count();
        let few = if short { max.min(GROUP_CHUNKS as usize) } else { 0 };
        let max = if sure >= few { max } else { few };
        let found = first_of(&mut found, sure.max(few));
        self.take_coldest(found, v, max, |c| !self.leaves_a_hole(v, c, coldest), &mut out);
        if out.is_empty() {
            self.take_coldest(found, v, max, |_| true, &mut out);
        }
        if out.is_empty() && !short {
            self.prune(v);
        }
        out
    }

    /// Looks at the regions that promise the coldest chunks, until `max` are found that none of the others undercuts; the chunks found
    /// with what they are worth, and what the others promise: `usual` while some were never looked at. Those come up one by one, in
    /// their turns, where enough is found without them: of many chunks that are equally cold, as after a fill, the first would
    /// otherwise come from all over the tier.
    fn search(&mut self, v: &impl View, max: usize, limit: i32, usual: i32) -> (Vec<(i32, ChunkId)>, i32) {
        let (mut found, mut seen) = (Vec::new(), vec![self.regions.next_turn()]);
        self.look(v, seen[0], false, &mut found);
        while let Some((coldest, mark)) = self.regions.coldest(&self.clock, &seen) {
            let enough = |mark| found.iter().filter(|(heat, _)| *heat <= mark).count() >= max;
            let looks = if found.is_empty() { LOOKS_IN_VAIN } else { LOOKS };
            let promised = mark.unwrap_or(usual);
            let known = promised < i32::MAX;
            if seen.len() >= looks || known && (promised > limit || enough(promised)) {
                return (found, promised);
            }
            self.look(v, coldest, false, &mut found);
            seen.push(coldest);
        }
        (found, i32::MAX)
    }

    /// Looks at a region: its chunks that may leave, or those of them with a kept copy, are added to `found` with what they are worth.
    pub(super) fn look(&mut self, v: &impl View, r: usize, copied: bool, found: &mut Vec<(i32, ChunkId)>) {
        let (mut heats, mut of_copied) = (Vec::new(), Vec::new());
        for slot in self.regions.slots(r, v.fast_slots()) {
            let Some(c) = v.fast_at(slot) else { continue };
            let (may_leave, has_copy) = (self.may_leave(v, c), v.has_copy(c));
            if !may_leave && !has_copy {
                continue;
            }
            let (worth, lasting) = self.scale().in_slot(v, c, slot);
            let heat = self.clock.absolute(worth.min(lasting + LATELY), 0);
            if has_copy {
                of_copied.push(heat);
            }
            if may_leave {
                heats.push(heat);
                if has_copy || !copied {
                    found.push((worth, c));
                }
            }
        }
        self.regions.set(&self.clock, r, &mut heats);
        match of_copied.is_empty() {
            true => self.copied.clear(r),
            false => self.copied.set(&self.clock, r, &mut of_copied),
        }
    }

    /// Whether nothing speaks against moving a fast chunk now. What has just come up stays, unless free slots are few.
    fn may_leave(&self, v: &impl View, c: ChunkId) -> bool {
        let fresh = v.free_fast().saturating_mul(2) >= v.keep_free() && self.residence.is_fresh(c, v.now());
        !fresh && !self.waits(c, v.now())
    }

    /// Takes up to `max` of the chunks found, with neighbours, that are `fit`.
    fn take_coldest(
        &self,
        found: &[(i32, ChunkId)],
        v: &impl View,
        max: usize,
        fit: impl Fn(ChunkId) -> bool,
        out: &mut Vec<ChunkId>,
    ) {
        for &(heat, c) in found {
            if out.len() >= max {
                break;
            }
            if out.binary_search(&c).is_err() && fit(c) {
                self.take_group(v, c, heat, max, out);
                out.sort_unstable();
            }
        }
    }

    fn leaves_a_hole(&self, v: &impl View, c: ChunkId, coldest: i32) -> bool {
        let first = c.0 - c.0 % GROUP_CHUNKS;
        let stays = |n: &ChunkId| {
            v.tier_of(*n) == Some(Tier::Fast) && self.scale().worth(v, *n) > coldest.saturating_add(NOISE)
        };
        (first..first + GROUP_CHUNKS).map(ChunkId).filter(stays).count() >= NEIGHBOURS_THAT_STAY
    }

    /// Adds a victim and those of its 1 MiB neighbours that are about as cold.
    fn take_group(&self, v: &impl View, c: ChunkId, limit: i32, max: usize, out: &mut Vec<ChunkId>) {
        let first = c.0 - c.0 % GROUP_CHUNKS;
        let known = out.len();
        out.push(c);
        for n in (first..first + GROUP_CHUNKS).map(ChunkId) {
            let cold = || self.scale().worth(v, n) <= limit.saturating_add(NOISE);
            let free = || v.tier_of(n) == Some(Tier::Fast) && self.may_leave(v, n);
            if n != c && out.len() < max && !out[..known].contains(&n) && free() && cold() {
                out.push(n);
            }
        }
    }
}
