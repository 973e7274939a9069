//! The reserve: fast slots that new data find.
//!
//! Terms: a chunk of the fast tier with a kept copy can be *let go*: it goes down to that copy by an edit of the map, and its slot
//! is free a commit later. So only a part of the reserve has to be free; the rest may hold cold chunks that can be let go, and
//! serves reads meanwhile. A group without copies keeps all of it free.
//!
//! - Chunks are let go when free slots become few, in batches: each costs a journal write on the slow tier, which is nothing
//!   beside the new data that would have to go there.
//! - Only what is colder than new data is let go, so a flood of them does not drive out what is used.

/// Of so many chunks with a copy one is taken for cold enough to be let go, while nobody knows.
const COPIES_PER_COLD: u64 = 2;
/// A quarter of the reserve is free in any case ...
const FREE_SHARE: u64 = 4;
/// ... and so many slots, two turns of exchanges: a very small fast tier has no use for less.
const FREE_LEAST: u64 = 16;
/// Chunks are let go when less than this share of the reserve is free: streams leave that much to small writes.
const LOW_SHARE: u64 = 8;
/// Chunks that are let go at a time, at most.
pub const AT_ONCE: usize = 512;

/// How many chunks can be let go, of so many with a copy, if about so many are cold and have one.
pub fn standing(copies: u64, cold: Option<u64>) -> u64 {
    cold.map_or(copies / COPIES_PER_COLD, |cold| cold.min(copies))
}

/// How much of a reserve of so many slots has to be free where so many chunks of the fast tier can be let go.
pub fn to_keep_free(reserve: u64, standing: u64) -> u64 {
    let least = (reserve / FREE_SHARE).max(FREE_LEAST).min(reserve);
    (reserve - reserve.min(standing)).max(least)
}

/// Free slots below which chunks are let go: none where none can be.
pub fn low(reserve: u64, standing: u64) -> u64 {
    if standing == 0 {
        return 0;
    }
    (reserve / LOW_SHARE).max(1).min(reserve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_let_go_need_not_be_free() {
        assert_eq!(
            [0, 1, 50, 500, 768, 50_000].map(|standing| to_keep_free(1024, standing)),
            [1024, 1023, 974, 524, 256, 256]
        );
        assert_eq!([None, Some(30), Some(3000)].map(|cold| standing(100, cold)), [50, 30, 100]);
        // Small reserves are free altogether.
        assert_eq!([0, 1, 8, 16, 17, 64, 65].map(|reserve| to_keep_free(reserve, 1000)), [0, 1, 8, 16, 16, 16, 16]);
        assert_eq!(to_keep_free(68, 1000), 17);
    }

    #[test]
    fn it_is_low_before_it_is_gone() {
        assert_eq!([(1024, 0), (1024, 1), (8, 9), (4, 9), (0, 9)].map(|(r, copies)| low(r, copies)), [0, 128, 1, 1, 0]);
    }
}
