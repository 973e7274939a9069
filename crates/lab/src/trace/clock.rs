//! Times of a trace: from the recording's clock to microseconds since the first request, never less than before.
//!
//! A time that is wrong must not become that of all that follow. A request more than [`JUMP`] later than what came before
//! waits until it is seen what follows: if that lies before the jump, the request's time was wrong, and is replaced. What
//! goes back a little is set to the latest time; if much goes back far, the trace is not in order, and nothing that is
//! said of it would be true.

use std::collections::VecDeque;

use super::{Access, Fix, Position, TraceError};

const SECOND: u128 = 1_000_000_000;
/// Further than this nobody waits for the next request, unless what follows says so.
const JUMP: u128 = 30 * 24 * 3600 * SECOND;
/// Nobody waits so long at all: ten years. The last requests have nothing after them that would say so.
const NEVER: u128 = 3650 * 24 * 3600 * SECOND;
/// Requests that wait at most.
const HOLD: usize = 64;
/// Back by less than this is what several processors, or the end of a request as its time, do to the order.
const FAR_BACK: u128 = 10 * SECOND;
/// So many that go back far are accidents, and so is one in so many.
const ACCIDENTS: u64 = 100;
const ACCIDENTS_ONE_IN: u64 = 100;

/// What a request becomes: at most a flush, a write and another flush, all at its time.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) time_ns: u128,
    pub(super) at: Position,
    pub(super) accesses: [Option<Access>; 3],
}

/// Gives requests their times.
#[derive(Default)]
pub(super) struct Clock {
    /// The first request's time on the recording's clock.
    start_ns: Option<u128>,
    /// The latest time so far, and where it was read.
    last_ns: u128,
    latest: Option<Position>,
    /// What is added to times, after a second recording began.
    shift_ns: u128,
    /// The next request is the first of another recording.
    anew: bool,
    waiting: VecDeque<Asked>,
    requests: u64,
    /// How many went back far, and where the first.
    back: u64,
    first_back: Option<Position>,
}

/// What comes of a request: it, with its time, and what was wrong with that.
pub(super) type Settled = (Asked, u64, Option<Fix>);

impl Clock {
    /// Time 0 on the recording's clock; `None` before the first request has its time.
    pub(super) fn start_ns(&self) -> Option<u128> {
        self.start_ns
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Another recording begins: if its times begin anew, they go on from the latest of this one.
    pub(super) fn begin_anew(&mut self, out: &mut VecDeque<Settled>) {
        self.end(out);
        self.anew = true;
    }

    /// Takes the next request; those whose times are certain go to `out`.
    pub(super) fn add(&mut self, mut asked: Asked, out: &mut VecDeque<Settled>) {
        if std::mem::take(&mut self.anew) && self.start_ns.is_some() {
            self.shift_ns = self.last_ns.saturating_sub(asked.time_ns);
        }
        asked.time_ns = asked.time_ns.saturating_add(self.shift_ns);
        self.requests += 1;
        if let Some(first) = self.waiting.front() {
            // The very first request may be the wrong one, too; the second says so.
            let room = if self.start_ns.is_some() { HOLD } else { 1 };
            if asked.time_ns.saturating_add(JUMP) < first.time_ns {
                self.disbelieve(asked.time_ns, out);
            } else if self.waiting.len() < room {
                return self.waiting.push_back(asked);
            } else {
                self.believe(out);
            }
        }
        if self.start_ns.is_none() || asked.time_ns > self.last_ns.saturating_add(JUMP) {
            self.waiting.push_back(asked);
        } else {
            out.push_back(self.settle(asked, None));
        }
    }

    /// Nothing follows.
    pub(super) fn end(&mut self, out: &mut VecDeque<Settled>) {
        let first = self.waiting.front().map_or(0, |a| a.time_ns);
        if self.start_ns.is_some() && first > self.last_ns.saturating_add(NEVER) {
            self.disbelieve(self.last_ns, out);
        } else {
            self.believe(out);
        }
    }

    /// Whether the requests so far are in order of time, but for accidents.
    pub(super) fn judge(&self) -> Result<(), TraceError> {
        match (self.first_back, self.latest) {
            (Some(at), Some(latest)) if self.back > ACCIDENTS && self.back > self.requests / ACCIDENTS_ONE_IN => {
                Err(TraceError::NotInOrder { at, latest, back: self.back, requests: self.requests })
            }
            _ => Ok(()),
        }
    }

    /// What waited has the times that it says.
    fn believe(&mut self, out: &mut VecDeque<Settled>) {
        while let Some(asked) = self.waiting.pop_front() {
            out.push_back(self.settle(asked, None));
        }
    }

    /// The times of what waited are wrong: that of the request before is put in their place, or else that of the next.
    fn disbelieve(&mut self, next_ns: u128, out: &mut VecDeque<Settled>) {
        let time_ns = if self.start_ns.is_some() { self.last_ns } else { next_ns };
        while let Some(asked) = self.waiting.pop_front() {
            out.push_back(self.settle(Asked { time_ns, ..asked }, Some(Fix::Ahead)));
        }
    }

    fn settle(&mut self, asked: Asked, mut fix: Option<Fix>) -> Settled {
        let start = *self.start_ns.get_or_insert(asked.time_ns);
        if asked.time_ns >= self.last_ns {
            (self.last_ns, self.latest) = (asked.time_ns, Some(asked.at));
        } else {
            fix = Some(Fix::Backwards);
            if self.last_ns - asked.time_ns > FAR_BACK {
                self.back += 1;
                self.first_back.get_or_insert(asked.at);
            }
        }
        (asked, u64::try_from((self.last_ns - start) / 1000).unwrap_or(u64::MAX), fix)
    }
}
