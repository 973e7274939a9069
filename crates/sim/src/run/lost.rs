//! Disks that are lost and say so: who needs nothing of them is not refused.

use super::forge::is_of_away;
use super::Shared;
use crate::world::Injected;
use bimetal_volume::env::Device as _;
use bimetal_volume::units::Tier;

impl Shared {
    /// Whether the group may have latched between these moments.
    pub(super) fn may_latch(&self, start: &Injected, now: &Injected) -> bool {
        let failed = |disk: &usize| now.grave[*disk] > start.grave[*disk];
        (0..self.disks.len()).filter(failed).any(|disk| !self.is_needed_by_nobody(disk))
    }

    /// A slow disk was lost, and says so, when nothing was to be made durable there; and if it was asked for more than data just then, it
    /// was to hear of a region, which the write waits for alone that goes there.
    fn is_needed_by_nobody(&self, disk: usize) -> bool {
        let d = &self.disks[disk];
        let alone = d.last_words().is_some_and(|last| !last.grave || is_of_away(d, last.first));
        alone && d.is_lost() && self.specs[disk].tier == Tier::Slow && self.plain
    }
}
