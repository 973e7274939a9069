//! Whether a volume of a size may be promised (I5, C2.3).

use std::time::Duration;

use super::StructureError;
use crate::env::{Env, Instant};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::create::promisable;
use crate::group::volumes::SetAside;
use crate::units::{Placement, Tier, CHUNK};

/// A tier that does not get emptier for so long will not, or for so long while something is on its way from one tier to the other: a
/// batch of moves shows when all of it has been copied.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_WITH_MOVES: Duration = Duration::from_secs(60);
/// Moves that make nothing free of what is wanted are waited for so long in all: no other change can begin meanwhile.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(600);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Kept copies dropped at each look.
const KEPT_AT_ONCE: usize = 64;

/// The tier that a placement binds a volume to.
pub(crate) fn tier_of(placement: Placement) -> Option<Tier> {
    match placement {
        Placement::Auto => None,
        Placement::FastOnly => Some(Tier::Fast),
        Placement::SlowOnly => Some(Tier::Slow),
    }
}

impl<E: Env> Core<E> {
    /// Chunks that may still be promised to a volume of this placement. Slots that are kept back are none.
    pub(super) fn room(&self, placement: Placement) -> u64 {
        let slots = self.slots_in(Tier::Fast) + self.slots_in(Tier::Slow);
        let kept_back = self.kept_back_in(Tier::Fast) + self.kept_back_in(Tier::Slow);
        let in_all = promisable(slots, kept_back).saturating_sub(self.volumes.promised_in_all());
        match tier_of(placement) {
            None => in_all,
            Some(tier) => in_all.min(self.room_in(tier, placement)),
        }
    }

    fn room_in(&self, tier: Tier, placement: Placement) -> u64 {
        promisable(self.slots_in(tier), self.kept_back_in(tier)).saturating_sub(self.volumes.bound(placement))
    }

    /// Refuses `need` more chunks for a volume of this placement if they are not there.
    pub(super) fn check_room(&self, placement: Placement, need: u64) -> Result<(), StructureError> {
        let bytes = |chunks: u64| chunks.saturating_mul(CHUNK);
        let have = self.room(Placement::Auto);
        if need > have {
            return Err(StructureError::NoRoom { need: bytes(need), have: bytes(have) });
        }
        if let Some(tier) = tier_of(placement) {
            let have = self.room_in(tier, placement);
            if need > have {
                return Err(StructureError::TierSmall { tier, need: bytes(need), have: bytes(have) });
            }
        }
        Ok(())
    }

    /// Keeps `need` slots of the tier that a placement binds to, and waits until they are free: the mover makes room on
    /// the fast tier, kept copies go from the slow one. To be held until the volume is in the table.
    pub(super) async fn free_bound(
        &self,
        placement: Placement,
        need: u64,
    ) -> Result<Option<SetAside<'_>>, StructureError> {
        let Some(tier) = tier_of(placement) else { return Ok(None) };
        let aside = self.volumes.keep_aside(tier, need);
        self.wait_for_slots(tier, || (self.volumes.promised(placement), need)).await?;
        Ok(Some(aside))
    }

    /// Waits until so many slots of a tier are free as volumes were promised, and more; `wanted` says how many of both.
    /// Whoever makes use of them does so in the same step.
    pub(super) async fn wait_for_slots(
        &self,
        tier: Tier,
        wanted: impl Fn() -> (u64, u64),
    ) -> Result<(), StructureError> {
        let mut progress = Progress::begin(self.env.now());
        loop {
            // Nothing is moved meanwhile, and no label could be written.
            self.check_reached()?;
            let (free, (promised, more)) = (self.free_in(tier), wanted());
            if free >= promised + more {
                return Ok(());
            }
            self.health.check()?;
            if self.stopping.get() {
                return Err(Error::Stopping.into());
            }
            progress.note(promised + more - free, self.mover.moved(), self.env.now());
            if progress.has_ended(self.mover.any_under_way(), self.env.now()) {
                let have = free.saturating_sub(promised);
                return Err(StructureError::TierFull { tier, need: more * CHUNK, have: have * CHUNK });
            }
            if tier == Tier::Slow {
                self.drop_kept(KEPT_AT_ONCE).await;
            }
            self.demand_slots();
            self.mover_wake.notify();
            self.env.sleep(LOOK_AGAIN).await;
        }
    }
}

/// Whether slots that are waited for still become free.
struct Progress {
    /// Slots that were missing when the fewest were, and since when.
    least: u64,
    least_since: Instant,
    /// Chunks that had changed their tier, and since when.
    moved: u64,
    moved_since: Instant,
}

impl Progress {
    fn begin(now: Instant) -> Progress {
        Progress { least: u64::MAX, least_since: now, moved: 0, moved_since: now }
    }

    fn note(&mut self, missing: u64, moved: u64, now: Instant) {
        if missing < self.least {
            (self.least, self.least_since) = (missing, now);
        }
        // Others take what they were promised meanwhile, and what leaves a member that is to leave frees slots which do not count.
        if moved > self.moved {
            (self.moved, self.moved_since) = (moved, now);
        }
    }

    fn has_ended(&self, moves_under_way: bool, now: Instant) -> bool {
        let patience = if moves_under_way { PATIENCE_WITH_MOVES } else { PATIENCE };
        let still = now.since(self.least_since);
        still >= PATIENCE_IN_ALL || still.min(now.since(self.moved_since)) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn slots_are_waited_for_while_they_become_fewer_and_moves_that_free_none_not_for_ever() {
        let mut p = Progress::begin(at(0));
        p.note(100, 5, at(0));
        assert!(!p.has_ended(false, at(9)) && p.has_ended(false, at(10)) && !p.has_ended(true, at(59)));
        for n in 1..50 {
            p.note(100 - n, 5, at(n * 50));
            assert!(!p.has_ended(true, at(n * 50 + 49)));
        }
        let from = 49 * 50;
        let gone_on = (1..1000).take_while(|n| {
            p.note(51 + n % 9, 5 + n, at(from + n));
            !p.has_ended(true, at(from + n))
        });
        assert_eq!(gone_on.count(), 599);
    }
}
