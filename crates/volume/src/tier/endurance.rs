//! The endurance budget: promotions write to the SSD what is on the disk already, so they get a share of its life and
//! no more. New data and demotions are not limited: room is needed whatever it costs.
//!
//! Terms: the *life* of an SSD is what a host may write to it: raw size * program/erase cycles / write amplification. A
//! *token* stands for a chunk that may be promoted.
//!
//! Invariants:
//! 1. Over any time t no more is promoted than [`BURST`] and what [`SHARE_PERCENT`] of the life over [`LIFE_YEARS`] is
//!    for t.
//! 2. Tokens depend on the fast tier's size, the time, and the chunks promoted; on nothing else.
//!
//! The engine does not know the SSD. It takes the fast tier for the whole of it, which is right or too low: what else
//! lies on the SSD is spare. It starts with a full burst, so a group that is opened again gets another.

use std::time::Duration;

use super::GROUP_CHUNKS;
use crate::env::Instant;
use crate::mutant::{self, Mutant};
use crate::units::CHUNK;

/// Program/erase cycles of the flash of an ordinary SSD.
const CYCLES: u64 = 3000;
/// Write amplification times ten, of a nearly full SSD whose reserve is trimmed.
const AMPLIFICATION_TENTHS: u64 = 36;
/// How long an SSD should last.
const LIFE_YEARS: u64 = 5;
/// What promotions may take of it.
const SHARE_PERCENT: u64 = 30;
/// No SSD is smaller. A smaller fast tier is a part of one, or a trial; neither needs to be spared more than this.
const SMALLEST_SSD: u64 = 32 << 30;
/// Tokens saved up at most: 8 GiB. A 32 GB SSD can be written so often 11 000 times.
pub(crate) const BURST: u64 = (8 << 30) / CHUNK;

const YEAR_SECONDS: u64 = 31_557_600;
const NANOS: u128 = 1_000_000_000;

/// A bucket of tokens.
pub(super) struct Endurance {
    tokens: u64,
    /// Most tokens.
    burst: u64,
    /// Up to when tokens were earned.
    earned: Instant,
}

impl Endurance {
    /// A full bucket; `burst` is [`BURST`] but in tests.
    pub(super) fn new(burst: u64, now: Instant) -> Endurance {
        Endurance { tokens: burst, burst, earned: now }
    }

    /// Time in which a fast tier of so many slots earns a token.
    fn interval(fast_slots: u32) -> Duration {
        let raw = u128::from((u64::from(fast_slots) * CHUNK).max(SMALLEST_SSD));
        let share = raw * u128::from(CYCLES * 10 / AMPLIFICATION_TENTHS * SHARE_PERCENT) / 100;
        let ns = u128::from(LIFE_YEARS * YEAR_SECONDS) * NANOS * u128::from(CHUNK) / share;
        // Below 3 s, because of the smallest SSD.
        Duration::from_nanos(ns.max(1) as u64)
    }

    /// Chunks that may be promoted now.
    pub(super) fn tokens(&mut self, fast_slots: u32, now: Instant) -> u64 {
        let interval = Endurance::interval(fast_slots);
        let gained = match mutant::on(Mutant::BudgetNeverRefills) {
            true => 0,
            false => (now.since(self.earned).as_nanos() / interval.as_nanos()) as u64,
        };
        self.tokens = self.tokens.saturating_add(gained).min(self.burst);
        // What is left of an interval counts for the next token.
        let rest = now.since(self.earned).as_nanos() % interval.as_nanos();
        self.earned = Instant(now.0.saturating_sub(rest as u64));
        self.tokens
    }

    /// Whether more than half of a burst is left: what is promoted for nothing but a free slot leaves the rest to what is used.
    pub(super) fn is_to_spare(&mut self, fast_slots: u32, now: Instant) -> bool {
        self.tokens(fast_slots, now) > self.burst / 2
    }

    /// A chunk was promoted.
    pub(super) fn spend(&mut self) {
        self.tokens = self.tokens.saturating_sub(1);
    }

    /// How long it takes until a group of 1 MiB may be promoted: less is not worth a seek.
    pub(super) fn next_group(fast_slots: u32) -> Duration {
        Endurance::interval(fast_slots) * GROUP_CHUNKS as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn promoted_in(fast_slots: u32, seconds: u64, step: Duration) -> u64 {
        let (mut e, mut now, mut promoted) = (Endurance::new(BURST, Instant(1)), Instant(1), 0);
        while now.0 < seconds * 1_000_000_000 {
            for _ in 0..e.tokens(fast_slots, now) {
                e.spend();
                promoted += 1;
            }
            now = now.plus(step);
        }
        promoted
    }

    #[test]
    fn an_ssd_of_128_gb_gets_8_gib_and_some_18_gb_a_day() {
        let slots = (137_000_000_000 / CHUNK) as u32;
        let day = |days| promoted_in(slots, days * DAY, Duration::from_millis(700)) * CHUNK;
        let (one, two) = (day(1), day(2));
        assert!((18_000_000_000..19_500_000_000).contains(&(two - one)), "{}", two - one);
        assert!((one - (two - one)).abs_diff(8 << 30) < 10 << 20, "{one} {two}");
    }

    #[test]
    fn nothing_is_lost_or_gained_by_asking_often() {
        let counts = [3, 1000, 60_000].map(|ms| promoted_in(0, 3600, Duration::from_millis(ms)));
        // 2.4 s for a token of the smallest SSD.
        assert!(counts.iter().all(|n| (BURST + 1450..BURST + 1500).contains(n)), "{counts:?}");
    }

    #[test]
    fn tokens_are_saved_up_to_the_burst() {
        let mut e = Endurance::new(BURST, Instant(1));
        (0..BURST + 5).for_each(|_| e.spend());
        assert_eq!(e.tokens(0, Instant(1)), 0);
        assert_eq!(e.tokens(0, Instant(u64::MAX)), BURST);
    }

    #[test]
    fn half_of_the_burst_is_not_to_spare() {
        let mut e = Endurance::new(10, Instant(1));
        let spared: Vec<bool> = (0..10).map(|_| (e.is_to_spare(0, Instant(1)), e.spend()).0).collect();
        assert_eq!(spared.iter().filter(|to_spare| **to_spare).count(), 5);
        assert!(e.tokens(0, Instant(1)) == 0 && !e.is_to_spare(0, Instant(1)));
    }
}
