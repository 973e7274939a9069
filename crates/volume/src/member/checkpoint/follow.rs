//! How slow members follow the checkpoints of fast ones, so that their maps are not far behind should they be left alone one day, and
//! make room in their own journals.
//!
//! 1. That can wait for a quiet moment: pages that lie all over the map stop a stream for seconds.
//! 2. Each follows in a task of its own: over a checkpoint it may stand still for hours, and for ever if it has left by then. No other
//!    member waits for that, nor does heat that is to be saved.
//! 3. A checkpoint that has begun goes on to its end, also if its member has left: what that was sent may still arrive, and whoever erases
//!    its label waits for the locks that are held until then (`remove_member`).
//! 4. One whose connection is lost gets none. What it has not heard stays noted, up to a limit.

use std::rc::Rc;
use std::time::Duration;

use crate::env::{Env, Instant};
use crate::error::Error;
use crate::group::core::Core;
use crate::member::{Member, Standing};
use crate::units::{MemberIndex, Tier};
use crate::wait;

/// A slow member that lags behind by more chunks is told of them in its journal (I10), also if it is lost: the group latches then.
const LAG_MAX: usize = 64 << 10;
/// Slow members follow a checkpoint of a fast one when they have had nothing to do for so long ...
const QUIET: Duration = Duration::from_secs(1);
/// ... and after this time at the latest.
const LATEST: Duration = Duration::from_secs(300);

impl<E: Env> Core<E> {
    /// Begins to have a member follow, if it is a slow one.
    pub(crate) fn start_following(self: &Rc<Self>, member: MemberIndex) {
        if self.tier_of_member(member) == Tier::Slow {
            let core = self.clone();
            self.env.spawn(async move { core.run_follower(member).await });
        }
    }

    /// Fast members have written their checkpoints.
    pub(super) fn have_slow_follow(&self) {
        self.members_of(Tier::Slow).for_each(|m| self.have_follow(m));
        self.checkpoint_wake.notify();
    }

    fn have_follow(&self, m: &Member<E::Device>) {
        m.follows_since.set(m.follows_since.get().or(Some(self.env.now())));
    }

    /// The task of a slow member.
    async fn run_follower(&self, member: MemberIndex) {
        let m = &self.members[member as usize];
        // A stop has all of them write one, which is the last: none may begin behind it.
        while !self.stopping.get() && !self.health.is_latched() && !m.is_gone() {
            let wake = self.checkpoint_wake.wait();
            if m.lag.borrow().len() > LAG_MAX && self.settle_lag(m).await.is_err() {
                return;
            }
            if m.journal_used(1, 2) {
                self.have_follow(m);
            }
            if self.follows_now(m) {
                // A checkpoint of a fast member that ends from here on counts for the next round.
                m.follows_since.set(None);
                if self.follow(m).await.is_err() {
                    return;
                }
            }
            match self.follow_due(m) {
                None => wake.await,
                Some(_) => wait::first(wake, self.env.sleep(QUIET / 2)).await,
            }
        }
    }

    /// Since when a member is to follow, if it may. What one that is lost is sent would fail, and take writes from those who do not need
    /// it; one that leaves need not know where others have what.
    fn follow_due(&self, m: &Member<E::Device>) -> Option<Instant> {
        let is_spared = self.is_out_of_reach(m) || m.standing.get() == Standing::Leaving;
        m.follows_since.get().filter(|_| !is_spared)
    }

    fn follows_now(&self, m: &Member<E::Device>) -> bool {
        let is_due = |since| self.quiet_for(Tier::Slow) >= QUIET || self.env.now().since(since) >= LATEST;
        self.follow_due(m).is_some_and(is_due) || (m.journal_used(7, 8) && !self.is_out_of_reach(m))
    }

    /// Writes a checkpoint of a slow member. That it is lost meanwhile is no error.
    async fn follow(&self, m: &Member<E::Device>) -> Result<(), Error> {
        match self.checkpoint_while_reached(m).await {
            Err(Error::Device { .. }) => Ok(()),
            followed => followed,
        }
    }
}
