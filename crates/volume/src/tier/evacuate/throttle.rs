//! How much leaves a member at a time, by what clients want of the tiers concerned.

use std::time::Duration;

use super::UNDER_WAY;
use crate::env::Env;
use crate::group::core::Core;
use crate::tier::under_way::{Planner, Stage};
use crate::units::{MemberIndex, Tier};

/// A tier left alone by clients for so long is idle, and for so long nobody is there at all.
const IDLE: Duration = Duration::from_millis(100);
const LONG_IDLE: Duration = Duration::from_secs(2);

/// How an evacuation goes.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Chunks moved together, at most.
    pub(super) batch: usize,
    /// And runs of slots in which they lie on the member.
    pub(super) runs: usize,
    /// Chunks that are being copied, at most.
    copying: usize,
    /// Whether it rests after each batch.
    pub(super) rests: bool,
}

/// While nobody is there.
const ALONE: Throttle = Throttle { batch: 64, runs: 64, copying: 128, rests: false };
/// Between requests: one that comes waits for a few pieces of [`super::super::carry::RUN`] chunks, and the devices are hardly ever
/// idle.
const BETWEEN: Throttle = Throttle { batch: 16, runs: 4, copying: 32, rests: false };
/// Beside requests. A disk reads so many chunks in some 50 ms, so many runs in some 90: for so long a request waits.
const BESIDE: Throttle = Throttle { batch: 32, runs: 8, copying: 32, rests: true };

/// Why nothing may be begun now.
pub(super) enum NotYet {
    /// Enough is on its way.
    HandsFull,
    /// Clients want the devices, for this time at least.
    Rest(Duration),
}

impl From<Duration> for NotYet {
    fn from(rest: Duration) -> NotYet {
        NotYet::Rest(rest)
    }
}

impl<E: Env> Core<E> {
    /// How the evacuation of this member may go on: what is copied must not wait for what is being switched, within limits. Or why
    /// not.
    pub(super) fn throttle(&self, m: MemberIndex) -> Result<Throttle, NotYet> {
        let (now, concerned) = (self.env.now(), self.tiers_of_evacuation(m));
        let mut scheduler = self.mover.scheduler.borrow_mut();
        let foreground = &mut scheduler.foreground;
        let steady = foreground.is_steady(now);
        let quiet = |t: Tier| match steady && t == Tier::Fast {
            // Small requests to the fast tier that never pause say themselves how much they bear.
            true => IDLE,
            false => foreground.quiet(t, now),
        };
        let mut throttle = match concerned.into_iter().map(quiet).min() {
            Some(quiet) if quiet < IDLE => BESIDE,
            Some(quiet) if quiet < LONG_IDLE => BETWEEN,
            _ => ALONE,
        };
        let on_the_way: usize = [Planner::Scheduler, Planner::Evacuation]
            .map(|p| self.mover.under_way.of_both(p, Stage::OnItsWay, &self.standing_still()))
            .iter()
            .sum();
        if self.evacuating_copies() >= throttle.copying || on_the_way >= UNDER_WAY {
            return Err(NotYet::HandsFull);
        }
        if throttle.rests && concerned.contains(&Tier::Slow) && foreground.quiet(Tier::Slow, now) < IDLE {
            foreground.bears_evacuations(now)?;
        }
        if steady {
            throttle.batch = foreground.spare(throttle.batch, now)?.max(1);
        }
        Ok(throttle)
    }
}
