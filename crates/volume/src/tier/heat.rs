//! Heat as a forward-decayed logarithm.
//!
//! A chunk's heat `L` is a `u16` in 128ths of an octave. A virtual clock `n` runs forward with the visits counted
//! in the whole group; `2^(L - n)` is the number of visits of the chunk, each halved for every octave the clock has
//! moved since. So decay costs nothing: no chunk is ever aged, and two chunks that are not touched keep their order.
//!
//! `L` wraps every 512 octaves. A value is read as being at most [`AHEAD`] octaves in front of the clock, and behind
//! it otherwise. So that a chunk which sleeps for long does not come to look hot, whatever has slept for more than [`ASLEEP`]
//! octaves is set to [`ANCIENT`], well before 480 have passed ([`Sleepers`](super::sleepers::Sleepers)). Coarser steps would not
//! wrap, but be worse: rounded at random to steps of a sixteenth of an octave, the count of a hot chunk is off by 15 % (Flajolet,
//! Approximate Counting, 1985), in these by 5 %, and chunks that are equally hot would be parted.
//!
//! On the members a heat is one byte, which comes round after 127 octaves; a page of the map says under which octave of the
//! clock its bytes were written, so that they keep their meaning while the clock goes on.

use std::sync::OnceLock;

use crate::env::Instant;

/// Steps of `u16` heat in an octave.
pub(super) const STEPS: i32 = 128;
/// Fine steps in an octave: relative heats are compared in these.
pub(super) const OCTAVE: i32 = 4096;
/// Fine steps in a `u16` step.
const FINE: i32 = OCTAVE / STEPS;
/// A heat is never more than this many octaves in front of the clock.
const AHEAD: i32 = 32;
/// Relative heat of a chunk about which nothing is known.
pub(super) const ANCIENT: i32 = -128 * OCTAVE;
/// One that is as cold as that has not been used for so long that it is as good as unknown.
const ASLEEP: i32 = -256 * OCTAVE;

/// Visits (of weight 1) per fast slot after which a visit counts half.
const HALF_LIFE_PER_SLOT: u64 = 8;
/// On a tiny fast tier it takes a few more: counts of less than that are chance.
const HALF_LIFE_LEAST: u64 = 1024;
/// The clock also moves by an octave in this time, so that a group that is hardly used forgets too.
const HALF_LIFE_SECONDS: u64 = 14 * 86_400;

/// Steps of coarse heat in an octave; 255 values (all but 0) are used modulo 255.
const COARSE_STEPS: i32 = 2;
/// A coarse heat is at most this many octaves in front of the clock.
const COARSE_AHEAD: i32 = 16;

/// The weight of a visit is `2^-LIGHT` for one inside a stream: it costs the disk a sixteenth of a random access.
pub(super) const LIGHT: i32 = 4;

/// A visit that the slow tier has to serve makes others older as two do: while what is used is on the fast tier the past is
/// remembered for long, and when something else is used it is forgotten sooner.
pub(super) const MISSED: i32 = OCTAVE;

/// Visits of weight 1 after which a visit counts half, unless something else has proved better.
pub(super) fn usual_half_life(fast_slots: u32) -> u64 {
    (u64::from(fast_slots) * HALF_LIFE_PER_SLOT).max(HALF_LIFE_LEAST)
}

/// What a visit of weight 1 adds to a clock; a sixteenth of it is not 0.
fn per_visit(half_life: u64) -> u64 {
    ((1u64 << 32) / half_life.max(1)).max(16)
}

/// Where a clock starts: so late that what was never used (heat 0) is cold, that its octave is not 0, and at a multiple of the 255
/// half octaves after which coarse heats repeat, so that what was saved under an earlier clock keeps its meaning.
const START: u64 = 255 << 32;

/// `log2(1 + 2^-x)` in fine steps, for x = 0 .. 16 octaves in steps.
type Sums = [u16; 16 * STEPS as usize];

fn sums() -> &'static Sums {
    static SUMS: OnceLock<Sums> = OnceLock::new();
    SUMS.get_or_init(|| {
        std::array::from_fn(|i| {
            let x = i as f64 / f64::from(STEPS);
            ((1.0 + (-x).exp2()).log2() * f64::from(OCTAVE)).round() as u16
        })
    })
}

/// The virtual clock, and arithmetic on heats that are given relative to it, in fine steps.
pub(super) struct Clock {
    /// Octaves, as fixed point with 32 fractional bits.
    n: u64,
    /// What a visit of weight 1 adds to `n`.
    per_visit: u64,
    /// When real time was last added.
    seen: Option<Instant>,
    ladd: &'static Sums,
}

impl Clock {
    /// A clock with the usual half-life for so many fast slots.
    pub(super) fn new(fast_slots: u32) -> Clock {
        Clock::with_half_life(usual_half_life(fast_slots))
    }

    /// A clock with a half-life of so many visits of weight 1.
    pub(super) fn with_half_life(visits: u64) -> Clock {
        Clock { n: START, per_visit: per_visit(visits), seen: None, ladd: sums() }
    }

    /// From now on heat halves in so many visits of weight 1. What was counted keeps its order.
    pub(super) fn set_half_life(&mut self, visits: u64) {
        self.per_visit = per_visit(visits);
    }

    pub(super) fn value(&self) -> u64 {
        self.n
    }

    /// Sets it to what was saved: nothing (0) for a new group.
    pub(super) fn set(&mut self, n: u64) {
        self.n = if n < START { n + START } else { n };
    }

    /// Moves the clock by a visit of weight `2^weight`, in fine steps.
    pub(super) fn visit(&mut self, weight: i32) {
        let part = (f64::from(weight) / f64::from(OCTAVE)).exp2();
        self.n = self.n.wrapping_add((self.per_visit as f64 * part) as u64);
    }

    /// Moves the clock by the real time that has passed; cheap when called often.
    pub(super) fn pass_time(&mut self, now: Instant) {
        let Some(seen) = self.seen else {
            self.seen = Some(now);
            return;
        };
        let seconds = now.since(seen).as_secs();
        if seconds > 0 {
            self.n = self.n.wrapping_add(seconds.saturating_mul((1 << 32) / HALF_LIFE_SECONDS));
            self.seen = Some(seen.plus(std::time::Duration::from_secs(seconds)));
        }
    }

    /// The clock in fine steps: 2^32 per octave become 2^12. 44 bits, so it does not wrap.
    fn fine(&self) -> i64 {
        (self.n >> 20) as i64
    }

    /// Heat relative to now, in fine steps: 0 is one visit just now.
    pub(super) fn relative(&self, heat: u16) -> i32 {
        let range = 65536 * i64::from(FINE);
        let ahead = (i64::from(heat) * i64::from(FINE) - self.fine()).rem_euclid(range);
        let d = if ahead < i64::from(AHEAD * OCTAVE) { ahead } else { ahead - range };
        d as i32
    }

    /// The heat of a chunk that sleeps, as it is to be kept: a long sleep must not go once round. `None` if it may stay as it is.
    pub(super) fn of_sleeper(&self, heat: u16) -> Option<u16> {
        (self.relative(heat) < ASLEEP).then(|| self.absolute(ANCIENT, 0))
    }

    /// Place of a heat in the order of all heats at this time: cheap, and good for comparisons only.
    pub(super) fn rank(&self, heat: u16) -> u16 {
        let now = (self.fine() / i64::from(FINE)) as u16;
        heat.wrapping_sub(now.wrapping_add((AHEAD * STEPS) as u16))
    }

    /// The heat with the highest rank.
    pub(super) fn hottest(&self) -> u16 {
        self.absolute((AHEAD - 1) * OCTAVE, 0)
    }

    /// The stored form of a relative heat, rounded up with the probability of the fraction: rounding to the nearest
    /// would stop the growth of a hot chunk, to which a visit adds less than half a step.
    pub(super) fn absolute(&self, relative: i32, random: u32) -> u16 {
        let range = 65536 * i64::from(FINE);
        let fine = (self.fine() + i64::from(relative)).rem_euclid(range);
        let up = i64::from(random & (FINE as u32 - 1));
        (((fine + up) / i64::from(FINE)) & 0xffff) as u16
    }

    /// Logarithm of the sum of two relative heats.
    pub(super) fn ladd(&self, a: i32, b: i32) -> i32 {
        let (high, low) = if a > b { (a, b) } else { (b, a) };
        let i = ((high - low) / FINE) as usize;
        high + self.ladd.get(i).map_or(0, |t| i32::from(*t))
    }

    /// Logarithm of the difference of two relative heats, at least that of a visit in a stream.
    pub(super) fn lsub(&self, a: i32, b: i32) -> i32 {
        let visits = |x: i32| (f64::from(x.min(AHEAD * OCTAVE)) / f64::from(OCTAVE)).exp2();
        let least = visits(-LIGHT * OCTAVE);
        ((visits(a) - visits(b)).max(least).log2() * f64::from(OCTAVE)) as i32
    }

    /// Octaves of the clock, to be saved beside coarse heats: never 0.
    pub(super) fn octave(&self) -> u32 {
        (self.n >> 32) as u32
    }

    /// One byte for the entry on the members: half octaves on the absolute scale. 0: older than the byte can say.
    pub(super) fn coarse(&self, heat: u16) -> u8 {
        let rel = self.relative(heat).min((COARSE_AHEAD - 1) * OCTAVE);
        if rel < -(255 / COARSE_STEPS - COARSE_AHEAD) * OCTAVE {
            return 0;
        }
        let half = (self.fine() + i64::from(rel) + i64::from(OCTAVE / COARSE_STEPS / 2)) * i64::from(COARSE_STEPS);
        (half.div_euclid(i64::from(OCTAVE)).rem_euclid(255) + 1) as u8
    }

    /// Undoes [`Clock::coarse`] to half an octave, however long ago that was: `at` is what [`Clock::octave`] said then, 0 if that
    /// is not known.
    pub(super) fn restore(&self, coarse: u8, at: u32) -> u16 {
        if coarse == 0 {
            return self.absolute(ANCIENT, 0);
        }
        let then = if at == 0 { self.fine() } else { i64::from(at) * i64::from(OCTAVE) };
        // A clock that is behind what was saved under it was lost: nothing is known of the time since.
        let now = self.fine().max(then);
        let halves = (then * i64::from(COARSE_STEPS)).div_euclid(i64::from(OCTAVE));
        let ahead = (i64::from(coarse) - 1 - halves).rem_euclid(255);
        let limit = i64::from(COARSE_AHEAD * COARSE_STEPS);
        let half = if ahead <= limit { ahead } else { ahead - 255 };
        let fine = (halves + half) * i64::from(OCTAVE / COARSE_STEPS);
        self.absolute((fine - now).max(i64::from(ANCIENT)) as i32, 0)
    }

    /// 0 to 15 for people: 10 is one random visit now, a step is a factor of 2.
    pub(super) fn level(&self, heat: u16) -> u8 {
        // Half a stored step more: a heat that was rounded down belongs to the level it came from.
        let octaves = (self.relative(heat) + FINE).div_euclid(OCTAVE);
        (octaves + 10).clamp(0, 15) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u32) -> u32 {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *state ^ (*state >> 16)
    }

    #[test]
    fn heat_counts_visits_and_halves_them_each_octave() {
        let mut clock = Clock::new(1024);
        let mut rng = 1;
        for visits in [1u32, 2, 10, 1000] {
            // The mean over many chunks: a single one is rounded at random.
            let mut sum = 0.0;
            for _ in 0..200 {
                let mut heat = clock.absolute(ANCIENT, 0);
                for _ in 0..visits {
                    let sum = clock.ladd(clock.relative(heat), 0);
                    heat = clock.absolute(sum, random(&mut rng));
                }
                sum += f64::from(clock.relative(heat)) / f64::from(OCTAVE);
            }
            let mean = (sum / 200.0).exp2() / f64::from(visits);
            assert!((0.9..1.1).contains(&mean), "{visits}: {mean}");
        }
        let heat = clock.absolute(3 * OCTAVE, 0);
        for _ in 0..2 * 8 * 1024 {
            clock.visit(0);
        }
        assert!((clock.relative(heat) - OCTAVE).abs() <= 2, "{}", clock.relative(heat));
    }

    #[test]
    fn two_chunks_that_are_equally_hot_look_so() {
        let (clock, mut rng) = (Clock::new(1024), 1);
        // Relative heats after 200 visits each.
        let counted: Vec<f64> = (0..500)
            .map(|_| {
                let mut heat = clock.absolute(ANCIENT, 0);
                (0..200).for_each(|_| heat = clock.absolute(clock.ladd(clock.relative(heat), 0), random(&mut rng)));
                (f64::from(clock.relative(heat)) / f64::from(OCTAVE)).exp2()
            })
            .collect();
        let variance = counted.iter().map(|n| (n / 200.0 - 1.0).powi(2)).sum::<f64>() / counted.len() as f64;
        assert!(variance.sqrt() < 0.07, "off by {} at the standard deviation", variance.sqrt());
    }

    #[test]
    fn order_never_changes_without_touches_even_across_the_wrap() {
        let mut clock = Clock::new(1);
        clock.set((512u64 << 32) - (5 << 32));
        let (hot, cold) = (clock.absolute(4 * OCTAVE, 0), clock.absolute(-8 * OCTAVE, 0));
        for _ in 0..440 {
            assert_eq!(clock.relative(hot) - clock.relative(cold), 12 * OCTAVE);
            clock.set(clock.value() + (1 << 32));
        }
        assert!(clock.relative(hot) < -430 * OCTAVE);
    }

    #[test]
    fn coarse_heat_keeps_half_octaves_over_time() {
        let mut state = 9;
        for clock_at in [256u64, 257, 4095, 4096, 70_000] {
            let mut clock = Clock::new(4096);
            clock.set((clock_at << 32) + u64::from(random(&mut state)));
            for octaves in -100..15 {
                let heat = clock.absolute(octaves * OCTAVE + 700, 0);
                let coarse = clock.coarse(heat);
                assert_ne!(coarse, 0);
                let before = clock.value();
                // Restored at once, or after the clock has moved on.
                for later in [0u64, 1, 7] {
                    clock.set(before + (later << 32) + later * 12345);
                    let off = clock.relative(clock.restore(coarse, 0)) - clock.relative(heat);
                    assert!(off.abs() <= OCTAVE / 2, "{clock_at} {octaves} {later}: {off}");
                    clock.set(before);
                }
            }
            assert_eq!(clock.coarse(clock.absolute(ANCIENT, 0)), 0);
            assert!(clock.relative(clock.restore(0, 0)) < -100 * OCTAVE);
            assert!(clock.relative(clock.restore(clock.coarse(clock.absolute(30 * OCTAVE, 0)), 0)) > 14 * OCTAVE);
        }
    }

    #[test]
    fn coarse_heat_means_the_same_however_late_it_is_read() {
        let mut state = 5;
        for octaves in -111..15 {
            let mut clock = Clock::new(4096);
            clock.set((300 << 32) + u64::from(random(&mut state)));
            let (coarse, at) = (clock.coarse(clock.absolute(octaves * OCTAVE + 99, 0)), clock.octave());
            for later in [0, 1, 60, 100, 127, 128, 130, 255, 500, 512, 70_000] {
                clock.set((300 << 32) + u64::from(random(&mut state)) + ((later as u64) << 32));
                let off = clock.relative(clock.restore(coarse, at)) - ((octaves - later) * OCTAVE).max(ANCIENT);
                assert!(off.abs() <= 2 * OCTAVE, "{octaves} octaves, read {later} later: off by {off}");
            }
            // The label with the clock was lost.
            clock.set(0);
            let off = clock.relative(clock.restore(coarse, at)) - octaves * OCTAVE;
            assert!(off.abs() <= 2 * OCTAVE, "{octaves} octaves, without the clock: off by {off}");
        }
    }

    #[test]
    fn what_was_added_can_be_taken_away() {
        let clock = Clock::new(4096);
        for rest in [-LIGHT * OCTAVE, -OCTAVE, 0, 3 * OCTAVE] {
            let back = clock.lsub(clock.ladd(rest, 0), 0);
            assert!((back - rest).abs() < OCTAVE / 8, "{rest}: {back}");
        }
        assert_eq!(clock.lsub(-OCTAVE, 0), -LIGHT * OCTAVE);
    }

    #[test]
    fn levels_for_people() {
        let clock = Clock::new(4096);
        let level = |octaves: i32| clock.level(clock.absolute(octaves * OCTAVE, 0));
        assert_eq!([level(-200), level(-10), level(-4), level(0), level(5), level(30)], [0, 0, 6, 10, 15, 15]);
    }
}
