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

use std::cell::Cell;
use std::time::Duration;

use crate::env::Instant;
use crate::mutant::{self, Mutant};

/// Slots and flushed data wait so long for others, to be told together.
pub(super) const SOON: Duration = Duration::from_secs(3);
/// All news are told by then, however busy the disk is.
const LATEST: Duration = Duration::from_secs(10);
/// A disk without requests for so long is quiet.
const QUIET: Duration = Duration::from_millis(100);
/// The shortest rest.
pub(super) const SOONEST: Duration = Duration::from_millis(1);

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

#[derive(Default)]
pub(super) struct Telling {
    news: Cell<News>,
    /// How long the oldest have waited.
    since: Cell<Option<Instant>>,
    /// Somebody waits for a slot.
    demanded: Cell<bool>,
}

impl Telling {
    /// There is something to tell.
    pub(super) fn note(&self, news: News) {
        self.news.set(self.news.get().max(news));
    }

    /// A client has flushed. Says whether that makes something urgent.
    pub(super) fn flushed(&self) -> bool {
        let urgent = self.news.get() == News::Data && !mutant::on(Mutant::C8FlushedLate);
        if urgent {
            self.note(News::Flushed);
        }
        urgent
    }

    pub(super) fn demand(&self) {
        self.demanded.set(true);
    }

    pub(super) fn take_demand(&self) -> bool {
        self.demanded.replace(false)
    }

    pub(super) fn has_news(&self) -> bool {
        self.news.get() != News::None
    }

    /// How long what is to be told may still wait, with disks that have been quiet for so long: nothing when it is due. Its time
    /// begins when this is asked for the first time.
    pub(super) fn rest(&self, quiet: Duration, now: Instant) -> Duration {
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
    pub(super) fn begin(&self) -> News {
        self.since.set(None);
        self.news.take()
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
        assert!(telling.has_news() && !telling.take_demand());
        telling.demand();
        assert!(telling.take_demand() && !telling.take_demand());
    }
}
