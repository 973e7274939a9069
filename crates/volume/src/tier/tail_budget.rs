//! How many requests to a busy disk moves may hold up.
//!
//! A disk has one head: whatever is moved beside a request delays it. So no pace leaves a load untouched, but its tail can be
//! kept: a request is *held up* if it was there beside moves and took so much longer than what one in [`TAIL`] exceeds without them.
//! For each that is, [`FEW`] must be served before more is moved. So what goes at a time may be more than one request's worth: it
//! holds up those that are there, once. A load on another disk of the tier holds nobody back.

use std::time::Duration;

use super::histogram::Histogram;
use crate::env::Instant;

/// The tail that is kept is what one request in so many exceeds.
const TAIL: u32 = 100;
/// One request in so many may be held up: half of those beyond the tail, since some take long anyway.
const FEW: i32 = 200;
/// In the tail times this, by what is moved. Evacuations: below the 1.5 that are promised, since a tail is known within a few percent
/// only. Moves of the mover, which can wait: below 1.1.
pub(super) const BY_EVACUATIONS: Budget = Budget { much: 1.3, longest: Duration::from_secs(2) };
pub(super) const BY_MOVES: Budget = Budget { much: 1.05, longest: Duration::from_secs(1) };
/// Requests without moves that say what is usual, and that many at most: then the old ones count half.
const USUAL: u32 = 2 * TAIL;
const USUAL_MOST: u32 = 6 * TAIL;
/// A load that comes after such a pause is another one, with another tail.
const PAUSE: Duration = Duration::from_secs(2);
/// What is usual is worked out anew after so many.
const OFTEN: u32 = TAIL / 2;
/// Bins of an octave, as a power of two.
const PARTS: u32 = 5;
/// While it is not known what is usual: so long nothing has moved before something does, or so long something has.
const UNKNOWN: Duration = Duration::from_secs(1);
const UNKNOWN_LONGEST: Duration = Duration::from_secs(30);
/// What is owed at most, in requests held up: a load that is served slowly would never have done with more.
const DEBT: i32 = 10;
/// Until it is asked again.
const SOON: Duration = Duration::from_millis(20);

/// How much is borne.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// A request is held up that takes so many times the tail.
    much: f64,
    /// However little a load bears, something moves after this time.
    longest: Duration,
}

/// Something that is under way or not.
#[derive(Default)]
struct Span {
    on: bool,
    ended: Option<Instant>,
}

impl Span {
    fn set(&mut self, on: bool, now: Instant) {
        if self.on && !on {
            self.ended = Some(now);
        }
        self.on = on;
    }

    /// Whether it was under way at any time while a request was that has just ended: one that had to wait may end later.
    fn met(&self, latency: Duration, now: Instant) -> bool {
        self.on || self.ended.is_some_and(|ended| now.since(ended) < latency)
    }
}

/// What the requests of a tier bear of evacuations, or of other moves.
pub(super) struct TailBudget {
    of: Budget,
    /// Latencies while nothing is moved.
    usual: Histogram,
    /// What counts as held up, if that is known.
    limit: Option<Duration>,
    /// When a request ended last.
    last: Option<Instant>,
    /// Moves of whatever kind, and those that it is about.
    moves: Span,
    own: Span,
    /// When one of its own began last.
    begun: Instant,
    /// Requests that are to be served before more is moved; below zero: what is left of one that may be held up.
    owed: i32,
}

impl TailBudget {
    pub(super) fn new(of: Budget, now: Instant) -> TailBudget {
        let usual = Histogram::new(PARTS);
        let (moves, own) = Default::default();
        TailBudget { of, usual, limit: None, last: None, moves, own, begun: now, owed: 0 }
    }

    /// Says whether chunks are on the move from now on, and whether any of its own is.
    pub(super) fn beside(&mut self, moving: bool, own: bool, now: Instant) {
        self.moves.set(moving, now);
        self.own.set(own, now);
    }

    /// Something of its own begins to move.
    pub(super) fn begins(&mut self, now: Instant) {
        self.begun = now;
    }

    /// A request ended that took so long.
    pub(super) fn served(&mut self, latency: Duration, now: Instant) {
        if self.last.is_some_and(|last| now.since(last) >= latency + PAUSE) {
            self.usual.clear();
            (self.limit, self.owed) = (None, 0);
        }
        self.last = Some(now);
        self.owed = (self.owed - 1).max(-FEW);
        if self.own.met(latency, now) && self.limit.is_some_and(|limit| latency > limit) {
            self.owed = (self.owed + FEW).min(DEBT * FEW);
        }
        if self.moves.met(latency, now) {
            return;
        }
        self.usual.add(latency);
        if self.usual.count() >= USUAL_MOST {
            self.usual.halve();
        }
        if self.usual.count() >= USUAL && self.usual.count() % OFTEN == 0 {
            self.limit = Some(self.usual.slowest_but_one_in(TAIL).mul_f64(self.of.much));
        }
    }

    /// Whether something may be moved now; or how long to wait.
    pub(super) fn allows(&self, now: Instant) -> Result<(), Duration> {
        let rested = now.since(self.begun);
        let allowed = match self.limit {
            Some(_) => self.owed <= 0 || rested >= self.of.longest,
            // Who does not know yet what is usual cannot tell whether anybody is held up, and has to let it be seen.
            None => {
                let still = !self.moves.on && self.moves.ended.is_none_or(|ended| now.since(ended) >= UNKNOWN);
                still && rested >= UNKNOWN || rested >= UNKNOWN_LONGEST
            }
        };
        if allowed {
            Ok(())
        } else {
            Err(SOON)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A disk that serves one request after the other, each in 5 to 20 ms, and between them a piece of an evacuation whenever that
    /// is allowed, which takes `piece`. Gives the pieces, the requests, and the share of them that took over 1.5 times 20 ms.
    fn run(p: &mut TailBudget, now: &mut Instant, requests: u32, piece: Duration) -> (u32, f64) {
        let (mut pieces, mut late) = (0, 0);
        for n in 0..requests {
            let begun = *now;
            if p.allows(*now).is_ok() {
                pieces += 1;
                p.begins(*now);
                p.beside(true, true, *now);
                *now = now.plus(piece);
                p.beside(false, false, *now);
            }
            *now = now.plus(5 * MS + MS * 15 * (n * 613 % 1000) / 1000);
            let took = now.since(begun);
            late += u32::from(took > 30 * MS);
            p.served(took, *now);
        }
        (pieces, f64::from(late) / f64::from(requests))
    }

    #[test]
    fn the_tail_of_a_load_is_kept_whatever_a_move_takes() {
        for (piece, least) in [(2, 8000), (12, 100), (45, 45), (300, 45)] {
            let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
            run(&mut p, &mut now, 1000, piece * MS);
            let (pieces, late) = run(&mut p, &mut now, 10_000, piece * MS);
            assert!(late <= 0.009, "{piece} ms: {late}");
            assert!(pieces >= least, "{piece} ms: {pieces}");
        }
    }

    #[test]
    fn something_moves_however_little_a_load_bears() {
        let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
        run(&mut p, &mut now, 1000, 60 * MS);
        // It is held up every time, by others than those that ask.
        p.beside(true, true, now);
        assert!((95..=101).contains(&held_up(&mut p, &mut now, 10_000)), "one in two seconds");
    }

    /// A request in 20 ms, all of them held up; gives the pieces.
    fn held_up(p: &mut TailBudget, now: &mut Instant, requests: u32) -> u32 {
        let mut pieces = 0;
        for _ in 0..requests {
            *now = now.plus(20 * MS);
            p.served(100 * MS, *now);
            if p.allows(*now).is_ok() {
                pieces += 1;
                p.begins(*now);
            }
        }
        pieces
    }

    #[test]
    fn what_is_owed_is_paid_in_bounded_time() {
        let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
        run(&mut p, &mut now, 1000, 60 * MS);
        p.beside(true, true, now);
        held_up(&mut p, &mut now, 1_000_000);
        p.beside(false, false, now.plus(MS));
        run(&mut p, &mut now, 3 * (DEBT * FEW) as u32 / 2, 2 * MS);
        let (pieces, _) = run(&mut p, &mut now, 1000, 2 * MS);
        assert!(pieces >= 900, "{pieces} of pieces that nobody feels");
    }

    #[test]
    fn moves_of_the_mover_say_nothing_of_evacuations() {
        let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
        run(&mut p, &mut now, 1000, 60 * MS);
        p.beside(true, false, now);
        held_up(&mut p, &mut now, 1000);
        assert!(p.owed <= 0, "{}", p.owed);
    }

    #[test]
    fn a_load_after_a_pause_is_another_one() {
        let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
        for _ in 0..1000 {
            now = now.plus(100 * MS);
            p.served(100 * MS, now);
        }
        now = now.plus(PAUSE);
        run(&mut p, &mut now, 1000, 45 * MS);
        let (_, late) = run(&mut p, &mut now, 1000, 45 * MS);
        assert!(late <= 0.009, "{late}");
    }

    #[test]
    fn nobody_goes_fast_who_does_not_know_what_is_usual() {
        let (mut p, mut now) = (TailBudget::new(BY_EVACUATIONS, Instant(1)), Instant(1));
        p.beside(true, true, now);
        assert!((6..=7).contains(&held_up(&mut p, &mut now, 10_000)), "in 200 s");
    }
}
