//! The reserve: fast slots that new data find.
//!
//! Terms: a chunk of the fast tier with a kept copy can be *let go*: it goes down to that copy by an edit of the map, and its slot
//! is free a commit later. So only a part of the reserve has to be free; the rest may hold cold chunks that can be let go, and
//! serves reads meanwhile. A group without copies keeps all of it free, unless few new data come.
//! The *influx* is what came of new data of late ([`super::Influx`]).
//!
//! - Twice the influx is enough, and an eighth of the reserve if that is more: where few new data come the rest serves what is
//!   used. A flood that nobody could foresee finds that eighth, and what the mover frees meanwhile.
//! - Chunks are let go when free slots become few, in batches: each costs a journal write on the slow tier, which is nothing
//!   beside the new data that would have to go there.
//! - Only what is colder than new data is let go, so a flood of them does not drive out what is used.

/// Of so many chunks with a copy one is taken for cold enough to be let go, while nobody knows.
const COPIES_PER_COLD: u64 = 2;
/// A quarter of the reserve is free, however many chunks can be let go ...
const FREE_SHARE: u64 = 4;
/// ... and so many slots, two turns of exchanges: a very small fast tier has no use for less ...
const FREE_LEAST: u64 = 16;
/// ... but no more than new data ask for: so many times what came at most of late, or the share below.
const INFLUXES: u64 = 2;
/// Chunks are let go when less than this share of the reserve is free: streams leave that much to small writes.
const LOW_SHARE: u64 = 8;
/// Chunks that are let go at a time, at most.
pub const AT_ONCE: usize = 512;

/// What the policy has learned. Unknown is what it has not seen enough for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// About how many chunks of the fast tier are cold and have a copy.
    pub cold_copies: Option<u64>,
    /// The most chunks that were born of late in one window, which is a time in which half as many visits are made as the fast
    /// tier has slots.
    pub influx: Option<u64>,
}

/// Free slots for each chunk that was born of late, while others only fill theirs: new data are to find what they would have found.
const SLOTS_PER_BIRTH: u64 = 16;

/// Chunks that only fill slots, and what came of new data. They are let go before anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// About so many chunks.
    pub chunks: u64,
    /// Chunks that were born of late.
    pub born: u64,
}

impl Filled {
    /// How many are to be let go, with so many slots free beyond what is kept free: as many again as are wanted, so that batches
    /// grow with what comes.
    pub fn to_let_go(&self, beyond: u64) -> u64 {
        let wanted = self.born.saturating_mul(SLOTS_PER_BIRTH);
        match wanted > beyond {
            true => (wanted.saturating_mul(2) - beyond).min(self.chunks),
            false => 0,
        }
    }
}

/// A reserve as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// Fast slots for new data.
    pub slots: u64,
    /// Chunks of the fast tier that have a copy.
    pub copies: u64,
    /// What is known of them, and of what is born.
    pub learned: Learned,
}

impl Reserve {
    /// How many chunks can be let go.
    fn standing(&self) -> u64 {
        self.learned.cold_copies.map_or(self.copies / COPIES_PER_COLD, |cold| cold.min(self.copies))
    }

    /// How many slots have to be free.
    pub fn to_keep_free(&self) -> u64 {
        let least = (self.slots / FREE_SHARE).max(FREE_LEAST).min(self.slots);
        let free = self.slots.saturating_sub(self.standing()).max(least);
        self.learned.influx.map_or(free, |influx| free.min((influx * INFLUXES).max(self.low_share())))
    }

    /// About how many of the slots that need not be free hold a chunk that can be let go.
    pub fn room_at_once(&self) -> u64 {
        self.standing().min(self.slots - self.to_keep_free())
    }

    /// Free slots below which chunks are let go: none where none can be.
    pub fn low(&self) -> u64 {
        if self.standing() == 0 {
            return 0;
        }
        // In batches also where little has to be free.
        self.low_share().min(self.to_keep_free() / 2).max(1).min(self.slots)
    }

    fn low_share(&self) -> u64 {
        (self.slots / LOW_SHARE).max(1).min(self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reserve beside so many chunks that can be let go, and twice as many with a copy.
    fn beside(slots: u64, standing: u64, influx: Option<u64>) -> Reserve {
        Reserve { slots, copies: 2 * standing, learned: Learned { cold_copies: None, influx } }
    }

    #[test]
    fn what_can_be_let_go_need_not_be_free() {
        let free = |slots, standing| beside(slots, standing, None).to_keep_free();
        assert_eq!([0, 1, 50, 500, 768, 50_000].map(|s| free(1024, s)), [1024, 1023, 974, 524, 256, 256]);
        let cold = |cold_copies| Reserve { slots: 0, copies: 100, learned: Learned { cold_copies, influx: None } };
        assert_eq!([None, Some(30), Some(3000)].map(|c| cold(c).standing()), [50, 30, 100]);
        // Small reserves are free altogether.
        assert_eq!([0, 1, 8, 16, 17, 64, 65].map(|slots| free(slots, 1000)), [0, 1, 8, 16, 16, 16, 16]);
        assert_eq!(free(68, 1000), 17);
    }

    #[test]
    fn where_few_new_data_come_less_is_free() {
        let free = |slots, influx| beside(slots, 50_000, Some(influx)).to_keep_free();
        assert_eq!([0, 3, 64, 100, 128, 1000].map(|influx| free(1024, influx)), [128, 128, 128, 200, 256, 256]);
        assert_eq!([0, 1, 2, 3].map(|influx| free(3, influx)), [1, 2, 3, 3]);
        assert_eq!(free(0, 0), 0);
    }

    #[test]
    fn where_few_new_data_come_little_is_free_also_if_nothing_can_be_let_go() {
        let hot = |influx| Reserve { slots: 1024, copies: 0, learned: Learned { cold_copies: Some(0), influx } };
        assert_eq!([None, Some(0), Some(300), Some(600)].map(|i| hot(i).to_keep_free()), [1024, 128, 600, 1024]);
        assert_eq!(hot(Some(0)).room_at_once(), 0);
        assert_eq!([10, 5000].map(|standing| beside(1024, standing, Some(0)).room_at_once()), [10, 896]);
    }

    #[test]
    fn it_is_low_before_it_is_gone() {
        let low = |slots, standing| beside(slots, standing, None).low();
        assert_eq!([(1024, 0), (1024, 1), (8, 9), (4, 9), (0, 9)].map(|(r, s)| low(r, s)), [0, 128, 1, 1, 0]);
    }

    #[test]
    fn what_only_fills_leaves_faster_than_new_data_come() {
        let filled = |born| Filled { chunks: 100, born };
        assert_eq!([0, 1, 2, 50].map(|born| filled(born).to_let_go(0)), [0, 32, 64, 100]);
        assert_eq!([0, 1, 2, 50].map(|born| filled(born).to_let_go(30)), [0, 0, 34, 100]);
    }

    #[test]
    fn chunks_are_let_go_in_batches() {
        for slots in (16..100).chain([1000, 1024, 32_768]) {
            for influx in [None, Some(0), Some(5)] {
                let reserve = beside(slots, 50_000, influx);
                assert!(reserve.low() <= (reserve.to_keep_free() / 2).max(1), "{slots} {influx:?}");
            }
        }
    }
}
