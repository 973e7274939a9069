//! When the journals of slow members are told what they lag behind ([`super::lag`]). Each time costs a disk a seek and two syncs,
//! and whoever uses it waits for them.
//!
//! Terms: *news* are changes that are committed and not told yet. Should all others be lost, a slow member knows what it was told
//! (C8); its away bits say where it may be behind.
//!
//! 1. What lives on a slow member and was flushed is told within [`SOON`]: else it would not know of data that it has.
//! 2. Of all other news slow members hear when they are quiet after that, and within [`LATEST`] where they never are. Nothing is lost
//!    by hearing late of what has left.
//! 3. Nobody who needs a slot waits for that.
//! 4. Each slow member is told by a task of its own, which does nothing else: 1 holds whatever other members do, and whatever is
//!    discarded. Counter-example without: discards of what was trimmed take a minute, and the SSD dies in it.
//! 5. Before a chunk gets its first home slow members know durably that they may not know its region (C8.1). Of regions that are about
//!    to be needed they hear at once, so that no write waits for it. More bits than are needed do no harm, whenever the power goes.
//! 6. One whose connection is lost is told nothing: that would fail, and take writes from those who do not need it. What it has not
//!    heard stays noted, up to a limit ([`crate::member::checkpoint`]), and its slots stay untold. Nobody waits for those.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::Left;
use crate::env::{Env, Instant};
use crate::group::core::Core;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{MemberIndex, Tier};
use crate::wait::{self, Signal};

/// Slots and flushed data wait so long for others, to be told together.
const SOON: Duration = Duration::from_secs(3);
/// All news are told by then, however busy the disk is.
const LATEST: Duration = Duration::from_secs(10);
/// A disk without requests for so long is quiet.
const QUIET: Duration = Duration::from_millis(100);
/// A member that is lost stays so until it is opened anew; that the group can do without it by now is looked at so often.
const LOST: Duration = Duration::from_secs(10);
/// The shortest rest.
const SOONEST: Duration = Duration::from_millis(1);

/// What there is to tell, the most urgent of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum News {
    #[default]
    None,
    /// Chunks have left a slow member, or have a kept copy there.
    Left,
    /// Something lives on a slow member that is new or has changed, and nobody has asked to keep it.
    Data,
    /// The same, and a client has flushed since.
    Flushed,
}

/// What one slow member is to be told.
#[derive(Default)]
pub(crate) struct Telling {
    news: Cell<News>,
    /// How long the oldest have waited.
    since: Cell<Option<Instant>>,
    /// Somebody waits for a slot.
    demanded: Cell<bool>,
    /// Slots of it that are free some time after it has been told that their chunk left.
    untold: RefCell<Vec<Left>>,
    /// Regions that are about to be needed.
    regions: RefCell<BTreeSet<u32>>,
    wake: Signal,
}

impl Telling {
    /// There is something to tell.
    fn note(&self, news: News) {
        self.news.set(self.news.get().max(news));
        self.wake();
    }

    /// A client has flushed. That may make something urgent.
    fn flushed(&self) {
        if self.news.get() == News::Data && !mutant::on(Mutant::C8FlushedLate) {
            self.note(News::Flushed);
        }
    }

    fn demand(&self) {
        self.demanded.set(true);
        self.wake();
    }

    fn take_demand(&self) -> bool {
        self.demanded.replace(false)
    }

    pub(super) fn add_untold(&self, left: Left) {
        self.untold.borrow_mut().push(left);
        self.wake();
    }

    /// It is to hear that it may know nothing of these.
    pub(super) fn note_regions(&self, regions: &[u32]) {
        let mut noted = self.regions.borrow_mut();
        let before = noted.len();
        noted.extend(regions);
        if noted.len() > before {
            self.wake();
        }
    }

    /// How many slots wait for it.
    pub(crate) fn untold(&self) -> usize {
        self.untold.borrow().len()
    }

    /// Its task looks around.
    pub(super) fn wake(&self) {
        self.wake.notify();
    }

    fn has_anything(&self) -> bool {
        self.news.get() != News::None || self.untold() > 0
    }

    /// How long what is to be told may still wait, with disks that have been quiet for so long: nothing when it is due. Its time
    /// begins when this is asked for the first time.
    fn rest(&self, quiet: Duration, now: Instant) -> Duration {
        let since = self.since.get().unwrap_or(now);
        self.since.set(Some(since));
        let waited = now.since(since);
        let soon = SOON.saturating_sub(waited);
        let rest = match self.news.get() {
            _ if mutant::on(Mutant::C8ToldOnDemand) => SOON,
            News::Flushed => soon,
            _ if mutant::on(Mutant::C8ToldInPauses) => soon.max(QUIET.saturating_sub(quiet)),
            _ => soon.max(QUIET.saturating_sub(quiet).min(LATEST.saturating_sub(waited))),
        };
        if rest.is_zero() {
            rest
        } else {
            rest.max(SOONEST)
        }
    }

    /// Everything is being told now: what comes next has its own time. Says what was noted.
    fn begin(&self) -> News {
        self.since.set(None);
        self.news.take()
    }
}

impl<E: Env> Core<E> {
    /// Somebody waits for a slot: write journals now.
    pub(crate) fn demand_slots(&self) {
        self.members_of(Tier::Slow).for_each(|m| m.telling.demand());
    }

    /// Slow members that lag behind have something to hear, whether they have a slot to free for it or not.
    pub(crate) fn tell_slow(&self, news: News) {
        let behind = self.members_of(Tier::Slow).filter(|m| !m.lag.borrow().is_empty());
        behind.for_each(|m| m.telling.note(news));
    }

    /// Everything that was acknowledged to a client is durable, as it has asked for.
    pub(crate) fn has_flushed(&self) {
        self.members_of(Tier::Slow).for_each(|m| m.telling.flushed());
    }

    /// Begins to tell a member, if it is a slow one.
    pub(crate) fn start_telling(self: &Rc<Self>, member: MemberIndex) {
        if self.tier_of_member(member) == Tier::Slow {
            let core = self.clone();
            self.env.spawn(async move { core.run_teller(member).await });
        }
    }

    /// The task that tells a slow member.
    async fn run_teller(&self, member: MemberIndex) {
        let m = &self.members[member as usize];
        while !self.stopped.get() && !self.health.is_latched() && !m.is_gone() {
            let wake = m.telling.wake.wait();
            if self.is_out_of_reach(m) {
                wait::first(wake, self.env.sleep(LOST)).await;
                continue;
            }
            wait::first(self.tell_regions(m), m.left()).await;
            // A demand that is raised from here on counts for the next round.
            let demanded = m.telling.take_demand();
            if !m.telling.has_anything() {
                wake.await;
                continue;
            }
            let rest = m.telling.rest(self.quiet_for(Tier::Slow), self.env.now());
            if demanded || rest.is_zero() {
                self.tell(m).await;
            } else {
                wait::first(wake, self.env.sleep(rest)).await;
            }
        }
    }

    /// Sets the away bits of regions that were noted. Nobody waits for that.
    async fn tell_regions(&self, m: &Member<E::Device>) {
        let regions: Vec<u32> = m.telling.regions.take().into_iter().collect();
        if regions.is_empty() || mutant::on(Mutant::C1NoAwayBit) {
            return;
        }
        let _away = m.away_meta.lock().await;
        // A stop has cleared them, or is about to.
        if self.stopping.get() || m.is_gone() || m.away_covers(&regions) {
            return;
        }
        let set = m.set_away(&regions, self.options.away_ahead).await;
        let _lost = set.or_else(|e| self.failed_in_its_time(m, "a metadata write", e));
    }

    /// Writes the journal of a slow member that has something to hear. What it does not take (a group is latched then, or the member
    /// lost) stays untold.
    async fn tell(&self, m: &Member<E::Device>) {
        let news = m.telling.begin();
        match self.settle_lag_or(m, |what, e| self.failed_in_its_time(m, what, e)).await {
            Ok(()) => m.lane.add(m.telling.untold.take()),
            Err(_) => m.telling.note(news),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// When such news are told, in milliseconds, on a disk whose last request ends then.
    fn told(news: &[News], flushed_at: Option<u64>, busy_until: u64) -> u64 {
        let telling = Telling::default();
        news.iter().for_each(|n| telling.note(*n));
        for ms in 0..60_000 {
            if flushed_at == Some(ms) {
                telling.flushed();
            }
            if telling.rest(Duration::from_millis(ms.saturating_sub(busy_until)), Instant(1 + ms * MS)).is_zero() {
                assert_eq!(telling.begin() >= News::Data, news.contains(&News::Data));
                return ms;
            }
        }
        panic!("never");
    }

    #[test]
    fn a_busy_disk_hears_late_but_not_of_what_was_flushed() {
        assert_eq!(told(&[News::Left], None, 0), 3000);
        assert_eq!(told(&[News::Left], None, 5000), 5100);
        assert_eq!(told(&[News::Left], None, 60_000), 10_000);
        assert_eq!(told(&[News::Data], None, 60_000), 10_000);
        assert_eq!(told(&[News::Left, News::Data], Some(1000), 60_000), 3000);
        assert_eq!(told(&[News::Data, News::Left], Some(7000), 60_000), 7000);
        // What has left is flushed for the members that it went to.
        assert_eq!(told(&[News::Left], Some(1000), 60_000), 10_000);
    }

    #[test]
    fn what_comes_after_has_its_own_time() {
        let telling = Telling::default();
        telling.note(News::Flushed);
        assert_eq!(telling.rest(Duration::ZERO, Instant(1)), SOON);
        assert_eq!(telling.begin(), News::Flushed);
        telling.note(News::Left);
        assert_eq!(telling.rest(LATEST, Instant(60_000 * MS)), SOON);
        assert!(telling.has_anything() && !telling.take_demand());
        telling.demand();
        assert!(telling.take_demand() && !telling.take_demand());
    }
}
