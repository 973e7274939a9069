//! Which of the queued chunks come to the fast tier now, and with which neighbours.

use super::{HeadTime, Kind};
use crate::tier::candidates::{Wanted, MOST_OF_GROUP};
use crate::tier::heat::OCTAVE;
use crate::tier::{View, GROUP_CHUNKS};
use crate::units::{ChunkId, Tier};

/// Groups of the queue that one call of `candidates` looks at.
const QUEUE_ROUNDS: usize = 16;

impl HeadTime {
    /// At most `max` chunks that should come to the fast tier now, in groups of neighbours.
    pub(super) fn ripe_chunks(&mut self, v: &mut impl View, max: usize) -> Vec<ChunkId> {
        let mut out = Vec::with_capacity(max.min(1024));
        if max == 0 || self.queue.len() == 0 {
            return out;
        }
        self.refresh(v, 64);
        let mut later = Vec::new();
        for _ in 0..QUEUE_ROUNDS {
            let room = max - out.len();
            if room == 0 {
                break;
            }
            let taken = self.queue.take(room.div_ceil(GROUP_CHUNKS as usize));
            if taken.is_empty() {
                break;
            }
            for mut w in taken {
                self.ripe(v, &mut w, max, &mut out);
                later.push(w);
            }
        }
        for w in later.into_iter().rev() {
            self.queue.put_back(w);
        }
        out
    }

    /// The chunks of a queued group that may move now; those that have to wait stay in `w`.
    fn ripe(&self, v: &impl View, w: &mut Wanted, max: usize, out: &mut Vec<ChunkId>) {
        let bar = self.bar(v, if w.stream { Kind::Stream } else { Kind::Random }, w.stream && self.fills(v));
        // A neighbour in a stream costs no seek of its own, so half the heat is enough, but not less than that of what
        // leaves.
        let coldest = self.coldest.map_or(i32::MIN, |h| self.clock.relative(h));
        let near_bar = (bar.least.max(bar.ahead) - OCTAVE).max(coldest);
        let (now, asked) = (v.now(), std::mem::take(&mut w.mask));
        let (mut ripe, mut near, mut rest, mut fast) = (0u8, 0u8, 0u8, 0u8);
        for i in 0..GROUP_CHUNKS {
            let (c, bit) = (ChunkId(w.group * GROUP_CHUNKS + i), 1u8 << i);
            match v.tier_of(c) {
                Some(Tier::Slow) => {}
                Some(Tier::Fast) => {
                    fast |= bit;
                    continue;
                }
                None => continue,
            }
            if self.unreadable.waits(c, now) {
                // Nobody waits that long: it may be asked for again.
                continue;
            }
            let heat = self.clock.relative(v.heat(c));
            if self.backoff.waits(c, now) || self.residence.is_fresh(c, now) {
                w.mask |= asked & bit;
            } else if asked & bit != 0 && self.over(v, c, heat, w.stream, &bar) >= 0 {
                ripe |= bit;
            } else if w.stream && heat >= near_bar {
                near |= bit;
            } else {
                rest |= bit;
            }
        }
        if ripe == 0 {
            return;
        }
        if (ripe | near | fast).count_ones() >= MOST_OF_GROUP {
            near |= rest;
        }
        // Where there is not room for all, a neighbour must not take the place of the chunk that was asked for.
        let mut chosen = 0u8;
        for bit in [ripe, near].iter().flat_map(|m| (0..GROUP_CHUNKS).map(|i| 1u8 << i).filter(move |b| m & b != 0)) {
            if out.len() + (chosen.count_ones() as usize) < max {
                chosen |= bit;
            }
        }
        w.mask |= ripe & !chosen;
        out.extend((0..GROUP_CHUNKS).filter(|i| chosen >> i & 1 != 0).map(|i| ChunkId(w.group * GROUP_CHUNKS + i)));
    }

    /// Drops candidates that do not deserve a move any more. While no slot can be freed for them nobody else asks.
    pub(super) fn prune(&mut self, v: &impl View) {
        for w in self.queue.take(usize::MAX).into_iter().rev() {
            let (mut waiting, mut ripe) = (w, Vec::new());
            self.ripe(v, &mut waiting, GROUP_CHUNKS as usize, &mut ripe);
            if waiting.mask != 0 || !ripe.is_empty() {
                self.queue.put_back(w);
            }
        }
    }
}
