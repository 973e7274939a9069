//! For how long heat lasts: the half-life that would have served best of late.
//!
//! Where the same data are used for ever a long memory is best, where one project follows another a short one; no
//! single half-life is good at both.
//!
//! Terms: a part of the chunks, chosen by hash, is *followed*. A *trial* is a fast tier in miniature with a half-life
//! of its own: it holds as large a part of the fast slots, and ranks the chunks that are followed by its own heat. Its
//! *gain* is the visits that it would have served less those that its promotions cost.
//!
//! Invariants:
//! 1. A chunk is followed or not for ever, so a trial sees every visit of the chunks that it knows.
//! 2. `inside[i]` is `k` exactly if the trial `i` holds the entry at place `k` of its row.

use super::heat::{usual_half_life, Clock, ANCIENT, MISSED, OCTAVE};
use super::newborn::{Birth, Newborns};
use crate::units::ChunkId;

/// Half-lives tried, in halves of the usual one.
const HALVES: [u64; TRIALS] = [1, 2, 8, 32];
const TRIALS: usize = 4;
/// The trial of the usual half-life.
const USUAL: usize = 1;

/// Chunks that are followed at most, and the places where one of them can be.
const ENTRIES: usize = 8192;
const WAYS: usize = 8;
/// Fast slots of a trial at most.
const SLOTS: u32 = 512;
/// One chunk in so many is followed at most: most visits cost nothing here.
const LEAST_SHARE: u32 = 4;
/// Chunks that a trial looks at for a victim.
const LOOKS: usize = 12;

/// A promotion must be ahead of its victim by 1.5 visits and by half an octave: half a visit more than in earnest, which tells the
/// half-lives apart better.
const EXCHANGE: i32 = 2396;
const NOISE: i32 = OCTAVE / 2;
/// A visit served, and a promotion, in units of gain. Moves take half the time of a visit, but there cannot be many.
const VISIT: i64 = 1024;
const PROMOTION: i64 = VISIT;

/// Visits between two choices. At each, gains lose a part, so that the last 32 rounds count.
const ROUND: u32 = 256;
const FADE: i64 = 32;

const NOBODY: u64 = u64::MAX;
const OUTSIDE: u16 = u16::MAX;

/// A chunk that is followed.
#[derive(Clone, Copy)]
struct Entry {
    chunk: u64,
    heats: [u16; TRIALS],
    inside: [u16; TRIALS],
    /// How it was born and when, in visits, if it was while it is followed.
    born: Option<(Birth, u32)>,
}

/// A fast tier in miniature.
struct Trial {
    clock: Clock,
    /// Entries that it holds.
    row: Vec<u16>,
    gain: i64,
}

/// Spreads chunks evenly over 32 bits, unlike other hashes of the policy: what is followed is no special part of their
/// tables.
fn spread(c: ChunkId) -> u32 {
    (c.0.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32) as u32
}

/// Trials of several half-lives, and what becomes of new chunks.
pub(super) struct HalfLife {
    table: Box<[Entry]>,
    trials: [Trial; TRIALS],
    /// One chunk in so many is followed.
    share: u32,
    /// Chunks that a trial holds.
    slots: usize,
    usual: u64,
    chosen: usize,
    visits: u32,
    random: u32,
    newborns: Newborns,
}

impl HalfLife {
    pub(super) fn new(fast_slots: u32) -> HalfLife {
        let share = fast_slots.div_ceil(SLOTS).max(LEAST_SHARE);
        let usual = usual_half_life(fast_slots);
        let empty = Entry { chunk: NOBODY, heats: [0; TRIALS], inside: [OUTSIDE; TRIALS], born: None };
        let trial = |halves: u64| Trial {
            clock: Clock::with_half_life(usual * halves / 2 / u64::from(share)),
            row: Vec::new(),
            gain: 0,
        };
        HalfLife {
            table: vec![empty; ENTRIES].into_boxed_slice(),
            trials: HALVES.map(trial),
            share,
            slots: (fast_slots / share).max(1) as usize,
            usual,
            chosen: USUAL,
            visits: 0,
            random: 1,
            newborns: Newborns::new(usual / u64::from(share)),
        }
    }

    /// The fast tier has another size, and `clock` gets the half-life for it. What was learned stays; who is followed, and what the
    /// trials hold, begins anew.
    pub(super) fn resized(&mut self, clock: &mut Clock, fast_slots: u32) {
        let new = HalfLife::new(fast_slots);
        if (new.share, new.slots, new.usual) == (self.share, self.slots, self.usual) {
            return;
        }
        let known = std::mem::replace(self, new);
        self.chosen = known.chosen;
        self.newborns = known.newborns;
        self.newborns.set_half_life(self.usual / u64::from(self.share));
        self.tell(clock);
    }

    fn tell(&self, clock: &mut Clock) {
        clock.set_half_life(self.usual * HALVES[self.chosen] / 2);
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        std::mem::size_of_val(&*self.table) + TRIALS * self.slots * std::mem::size_of::<u16>()
    }

    /// Heat that a birth stands for, relative to now.
    pub(super) fn heat_of(&self, birth: Birth) -> i32 {
        self.newborns.heat(birth)
    }

    /// Counts a visit of weight 1, or a birth; now and then `clock` is given the half-life that has proved best.
    pub(super) fn visit(&mut self, clock: &mut Clock, c: ChunkId, birth: Option<Birth>) {
        let h = spread(c);
        if u64::from(h) * u64::from(self.share) >= 1 << 32 {
            return;
        }
        let at = self.entry_of(c, h as usize);
        self.follow(at, birth);
        for i in 0..TRIALS {
            self.try_visit(i, at, birth);
        }
        self.visits = self.visits.wrapping_add(1);
        if !self.visits.is_multiple_of(ROUND) {
            return;
        }
        self.newborns.learn();
        if self.choose() {
            self.tell(clock);
        }
    }

    /// Notes what becomes of new chunks.
    fn follow(&mut self, at: usize, birth: Option<Birth>) {
        self.newborns.pass();
        let entry = &mut self.table[at];
        match (birth, entry.born) {
            (Some(birth), _) => {
                entry.born = Some((birth, self.visits));
                self.newborns.born(birth);
            }
            (None, Some((birth, at))) => self.newborns.visited(birth, self.visits.wrapping_sub(at)),
            (None, None) => {}
        }
    }

    /// The entry of a chunk; one that is not known takes the place of the coldest.
    fn entry_of(&mut self, c: ChunkId, h: usize) -> usize {
        let first = h % (ENTRIES / WAYS) * WAYS;
        let set = first..first + WAYS;
        if let Some(at) = set.clone().find(|i| self.table[*i].chunk == c.0) {
            return at;
        }
        let clock = &self.trials[TRIALS - 1].clock;
        let known = |i: &usize| self.table[*i].chunk != NOBODY;
        let at = set.min_by_key(|i| (known(i), clock.rank(self.table[*i].heats[TRIALS - 1]))).unwrap_or(first);
        (0..TRIALS).for_each(|i| self.leave(i, at));
        let heats = std::array::from_fn(|i| self.trials[i].clock.absolute(ANCIENT, 0));
        self.table[at] = Entry { chunk: c.0, heats, inside: [OUTSIDE; TRIALS], born: None };
        at
    }

    /// What a visit does in one trial.
    fn try_visit(&mut self, i: usize, at: usize, birth: Option<Birth>) {
        let (random, born) = (self.random(), birth.is_some());
        let (trial, entry) = (&mut self.trials[i], &mut self.table[at]);
        let missed = entry.inside[i] == OUTSIDE && !born;
        trial.clock.visit(if missed { MISSED } else { 0 });
        let before = trial.clock.relative(entry.heats[i]);
        let heat = birth.map_or_else(|| trial.clock.ladd(before, 0), |birth| self.newborns.heat(birth));
        entry.heats[i] = trial.clock.absolute(heat, random);
        if entry.inside[i] != OUTSIDE {
            trial.gain += if born { 0 } else { VISIT };
            return;
        }
        if trial.row.len() >= self.slots {
            let (coldest, victim) = self.coldest(i);
            let trial = &mut self.trials[i];
            if !born {
                if heat < trial.clock.ladd(coldest, EXCHANGE).max(coldest + NOISE) {
                    return;
                }
                trial.gain -= PROMOTION;
            }
            self.leave(i, victim);
        }
        let trial = &mut self.trials[i];
        self.table[at].inside[i] = trial.row.len() as u16;
        trial.row.push(at as u16);
    }

    /// The coldest of some chunks of a full trial, and its heat.
    fn coldest(&mut self, i: usize) -> (i32, usize) {
        let mut least = (i32::MAX, 0);
        for _ in 0..LOOKS {
            let place = (u64::from(self.random()) * self.slots as u64) >> 32;
            let at = usize::from(self.trials[i].row[place as usize]);
            least = least.min((self.trials[i].clock.relative(self.table[at].heats[i]), at));
        }
        least
    }

    fn leave(&mut self, i: usize, at: usize) {
        let place = std::mem::replace(&mut self.table[at].inside[i], OUTSIDE);
        let row = &mut self.trials[i].row;
        if place == OUTSIDE {
            return;
        }
        row.swap_remove(usize::from(place));
        if let Some(moved) = row.get(usize::from(place)) {
            self.table[usize::from(*moved)].inside[i] = place;
        }
    }

    /// Chooses the half-life with the highest gain; whether it is another one.
    fn choose(&mut self) -> bool {
        if self.trials[USUAL].row.len() < self.slots {
            // There is room for everything: no half-life is better than another.
            self.trials.iter_mut().for_each(|t| t.gain = 0);
            return false;
        }
        let gain = |i: usize| self.trials[i].gain;
        let best = (0..TRIALS).fold(self.chosen, |best, i| if gain(i) > gain(best) { i } else { best });
        let other = std::mem::replace(&mut self.chosen, best) != best;
        self.trials.iter_mut().for_each(|t| t.gain -= t.gain / FADE);
        other
    }

    fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: u32 = 1024;

    /// The half-life chosen, in halves of the usual one, after visits of these chunks, which are spread out.
    fn chosen(visits: impl Iterator<Item = u64>) -> u64 {
        let (mut half_life, mut clock) = (HalfLife::new(FAST), Clock::new(FAST));
        visits.for_each(|c| half_life.visit(&mut clock, ChunkId(c * 7), None));
        let halves = HALVES[half_life.chosen];
        // The clock was told.
        let before = clock.value();
        clock.visit(0);
        assert_eq!((1 << 32) / (clock.value() - before), half_life.usual * halves / 2);
        halves
    }

    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    #[test]
    fn what_is_used_for_ever_is_remembered_longer() {
        let mut s = 1;
        // Popularity falls off slowly, so that only long counts tell chunks apart.
        let visits = (0..600_000).map(|_| {
            let x = random(&mut s) % 16384;
            x * x / 32768
        });
        assert!(chosen(visits) > 2);
    }

    #[test]
    fn what_is_followed_by_something_else_is_forgotten_sooner() {
        let mut s = 1;
        let visits = (0..600_000u64).map(|i| {
            let project = i / 12_000 * 100_000;
            project + random(&mut s) % 2000
        });
        assert_eq!(chosen(visits), 1);
    }

    #[test]
    fn what_fits_into_the_fast_tier_changes_nothing() {
        let mut s = 1;
        assert_eq!(chosen((0..300_000).map(|_| random(&mut s) % 500)), 2);
    }

    #[test]
    fn a_fast_tier_of_another_size_has_another_half_life_and_what_was_learned_stays() {
        let (mut h, mut clock, mut s) = (HalfLife::new(FAST), Clock::new(FAST), 1);
        for i in 0..600_000u64 {
            let project = i / 12_000 * 100_000;
            h.visit(&mut clock, ChunkId((project + random(&mut s) % 2000) * 7), None);
            // They are never asked for again.
            h.visit(&mut clock, ChunkId((1 << 40) + i * 7), Some(Birth::Stream));
        }
        let born = h.heat_of(Birth::Stream);
        assert!(HALVES[h.chosen] != 2 && born < Birth::Stream.usual(), "{} {born}", HALVES[h.chosen]);
        let halves = HALVES[h.chosen];
        let half_life = |clock: &mut Clock| {
            let before = clock.value();
            clock.visit(0);
            (1 << 32) / (clock.value() - before)
        };
        h.visits = 77;
        h.resized(&mut clock, FAST);
        assert_eq!((h.visits, half_life(&mut clock)), (77, usual_half_life(FAST) * halves / 2), "it has the same size");
        for slots in [8 * FAST, FAST / 2] {
            h.resized(&mut clock, slots);
            assert_eq!(half_life(&mut clock), usual_half_life(slots) * halves / 2);
            assert_eq!((HALVES[h.chosen], h.heat_of(Birth::Stream), h.visits), (halves, born, 0));
            assert!(h.trials.iter().all(|t| t.row.is_empty() && t.gain == 0));
            (0..50_000u64).for_each(|i| h.visit(&mut clock, ChunkId(i % 20_000), None));
            assert_eq!(h.trials[USUAL].row.len(), h.slots);
        }
    }

    #[test]
    fn rows_and_entries_agree_whatever_happens() {
        let (mut h, mut clock, mut s) = (HalfLife::new(64), Clock::new(64), 5);
        for i in 0..50_000 {
            h.visit(&mut clock, ChunkId(random(&mut s) % 300_000), (i % 7 == 0).then_some(Birth::Random));
        }
        for (i, trial) in h.trials.iter().enumerate() {
            assert_eq!(trial.row.len(), h.slots);
            let inside = h.table.iter().filter(|e| e.inside[i] != OUTSIDE).count();
            assert_eq!(inside, h.slots);
            for (place, at) in trial.row.iter().enumerate() {
                assert_eq!(usize::from(h.table[usize::from(*at)].inside[i]), place);
            }
        }
    }
}
