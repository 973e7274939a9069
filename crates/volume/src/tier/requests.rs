//! Requests of users, as the mover hears of them: they go to a member, and come back, or hang there.

use std::time::Duration;

use super::DeviceRange;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::member::{add, take_off};
use crate::units::{MemberIndex, Tier};

impl<E: Env> Core<E> {
    /// A foreground request goes to the device of this member.
    pub(crate) fn foreground_begins(&self, member: MemberIndex) -> Instant {
        let (now, m) = (self.env.now(), &self.members[member as usize]);
        add(&m.foreground, 1);
        self.mover.scheduler.borrow_mut().foreground_started(m.tier, now);
        now
    }

    /// It came back; it was for these bytes.
    pub(crate) fn foreground_ends(&self, range: &DeviceRange, begun: Instant) {
        let (now, m) = (self.env.now(), &self.members[range.member as usize]);
        let tier = m.tier;
        take_off(&m.foreground, 1);
        self.mover.scheduler.borrow_mut().foreground_done(tier, range, now.since(begun), now);
        if self.mover.scheduler.borrow().foreground.hangs() {
            // Perhaps it is a member that answers again.
            self.tell_what_hangs();
        }
        if self.mover.resting.get() && self.has_work() || self.runs_low() {
            self.mover.resting.set(false);
            self.mover.low.set(0);
            self.mover_wake.notify();
        }
    }

    /// For how long the foreground has left a tier alone.
    pub(crate) fn quiet_for(&self, tier: Tier) -> Duration {
        self.mover.scheduler.borrow().foreground.quiet(tier, self.env.now())
    }

    /// Requests that a member which stands still has not answered keep nothing from moving elsewhere.
    pub(super) fn tell_what_hangs(&self) {
        let (now, still) = (self.env.now(), self.standing_still());
        for tier in [Tier::Fast, Tier::Slow] {
            let hanging = self.members_of(tier).filter(|m| still.has(m.index)).map(|m| m.foreground.get()).sum::<u64>();
            self.mover.scheduler.borrow_mut().foreground.hang(tier, hanging as u32, now);
        }
    }
}
