//! Chunks that could not be read when they were to be moved. That says something of the chunk and not of the work: each is left alone
//! for long, longer every time, and keeps no other from moving.
//!
//! Invariants:
//! 1. However many there are, those whose wait is over are tried by one batch in [`RETRY`] at most: all others are for what has never
//!    failed.
//! 2. Memory is bounded: at most [`MOST`] chunks of each tier are known. What finds no place waits as other moves do that failed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::View;
use crate::env::Instant;
use crate::units::{ChunkId, Tier};

/// Chunks of a tier that are known at most: 4 GiB.
const MOST: usize = 1 << 15;
/// First wait; each further one is [`TIMES`] as long, but for the last: 1, 4, 16, 64, 256 minutes.
const FIRST: Duration = Duration::from_secs(60);
const TIMES: u32 = 4;
const LONGEST: u32 = 4;
/// When one that was tried again has failed again, others are left alone for so long.
const RETRY: Duration = Duration::from_secs(60);
/// Chunks that have lost their home are forgotten this often.
const TIDY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
struct Entry {
    tier: Tier,
    /// Failures after the first, as far as they count.
    again: u32,
    not_before: Instant,
}

/// The chunks that could not be read, as far as is known.
pub(super) struct Unreadable {
    chunks: BTreeMap<ChunkId, Entry>,
    /// How many of them are on each tier.
    on: [usize; 2],
    next_retry: [Instant; 2],
    tidied: Instant,
}

impl Unreadable {
    pub(super) fn new() -> Unreadable {
        Unreadable { chunks: BTreeMap::new(), on: [0; 2], next_retry: [Instant(0); 2], tidied: Instant(0) }
    }

    /// Bytes of memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * std::mem::size_of::<(ChunkId, Entry)>()
    }

    /// How many there are on each tier.
    pub(super) fn count(&self) -> [usize; 2] {
        self.on
    }

    /// Notes a failure. False if there are too many to know one more.
    pub(super) fn failed(&mut self, c: ChunkId, tier: Tier, now: Instant) -> bool {
        let known = self.chunks.get(&c).filter(|e| e.tier == tier).copied();
        if known.is_some_and(|e| now < e.not_before) {
            // Whoever tried it did not ask.
            return true;
        }
        self.forget(c);
        if self.on[tier as usize] >= MOST {
            return false;
        }
        let again = known.map_or(0, |e| (e.again + 1).min(LONGEST));
        if known.is_some() {
            self.next_retry[tier as usize] = now.plus(RETRY);
        }
        self.chunks.insert(c, Entry { tier, again, not_before: now.plus(FIRST * TIMES.pow(again)) });
        self.on[tier as usize] += 1;
        true
    }

    /// Whether a chunk could not be read.
    pub(super) fn knows(&self, c: ChunkId) -> bool {
        !self.chunks.is_empty() && self.chunks.contains_key(&c)
    }

    /// Whether a chunk could not be read and is left alone for now.
    pub(super) fn waits(&self, c: ChunkId, now: Instant) -> bool {
        if self.chunks.is_empty() {
            return false;
        }
        self.chunks.get(&c).is_some_and(|e| now < e.not_before.max(self.next_retry[e.tier as usize]))
    }

    /// A chunk was read, or is written anew.
    pub(super) fn forget(&mut self, c: ChunkId) {
        if self.chunks.is_empty() {
            return;
        }
        if let Some(e) = self.chunks.remove(&c) {
            self.on[e.tier as usize] -= 1;
        }
    }

    /// Forgets now and then those that have no home any more.
    pub(super) fn tidy(&mut self, v: &impl View) {
        let now = v.now();
        if self.chunks.is_empty() || now.since(self.tidied) < TIDY {
            return;
        }
        self.tidied = now;
        let on = &mut self.on;
        self.chunks.retain(|c, e| {
            let stays = v.is_mapped(*c);
            on[e.tier as usize] -= usize::from(!stays);
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn waits_grow_to_hours() {
        let (mut u, c, mut now) = (Unreadable::new(), ChunkId(3), Instant(1));
        assert!(!u.waits(c, now));
        for minutes in [1, 4, 16, 64, 256, 256] {
            assert!(u.failed(c, Tier::Fast, now));
            // Somebody else tries, which changes nothing.
            assert!(u.failed(c, Tier::Fast, now));
            let end = now.plus(MINUTE * minutes);
            assert!(u.waits(c, Instant(end.0 - 1)) && !u.waits(c, end) && u.knows(c));
            now = end;
        }
        assert_eq!(u.count(), [1, 0]);
        // What fails elsewhere is another matter.
        u.failed(c, Tier::Slow, now);
        assert_eq!((u.count(), u.waits(c, now.plus(MINUTE))), ([0, 1], false));
        u.forget(c);
        assert_eq!((u.count(), u.waits(c, now), u.knows(c)), ([0, 0], false, false));
    }

    #[test]
    fn when_a_second_try_fails_the_others_wait_too() {
        let (mut u, now) = (Unreadable::new(), Instant(1));
        for c in 0..9 {
            u.failed(ChunkId(c), if c < 8 { Tier::Fast } else { Tier::Slow }, now);
        }
        let later = now.plus(MINUTE);
        assert!((0..9).all(|c| !u.waits(ChunkId(c), later)));
        u.failed(ChunkId(0), Tier::Fast, later);
        assert!((0..8).all(|c| u.waits(ChunkId(c), later)) && !u.waits(ChunkId(8), later));
        assert!((1..8).all(|c| !u.waits(ChunkId(c), later.plus(RETRY))));
        assert!(!u.waits(ChunkId(99), later), "what never failed does not wait");
    }

    #[test]
    fn too_many_take_no_more_memory_and_none_of_the_other_tier() {
        let (mut u, now) = (Unreadable::new(), Instant(1));
        let noted = (0..3 * MOST as u64).filter(|c| u.failed(ChunkId(*c), Tier::Slow, now)).count();
        assert_eq!((noted, u.count()), (MOST, [0, MOST]));
        assert!(u.failed(ChunkId(u64::MAX), Tier::Fast, now));
        u.forget(ChunkId(7));
        assert!(u.failed(ChunkId(3 * MOST as u64), Tier::Slow, now));
        assert!(u.bytes() < 3 << 20);
    }
}
