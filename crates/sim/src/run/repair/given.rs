//! What a repair is given: the devices that are at hand, and how that changes from one attempt to the next.

use std::cell::{Cell, RefCell};

use bimetal_volume::units::Tier;

use crate::disk::SimDisk;
use crate::run::forge;

/// What a repair is given.
pub(in crate::run) struct Given {
    /// Members that are left.
    pub(super) devices: Vec<SimDisk>,
    /// Devices in place of one that is gone: the last one; those before it were given to repairs that were cut off.
    pub(super) new: RefCell<Vec<(SimDisk, Tier)>>,
    /// Of these only the last one is at hand in this attempt.
    pub(super) last_only: Cell<bool>,
    /// The one that was gone works again.
    pub(super) back: RefCell<Option<SimDisk>>,
    /// Not at hand in this attempt.
    pub(super) absent: Cell<Option<usize>>,
    /// A member was left out of an attempt: what was on it may be given up.
    pub(super) loose: Cell<bool>,
    /// Older copies are better than nothing.
    pub(super) kept_copies: bool,
    /// A member has no labels: what is on it is not served until the repair is done.
    pub(super) unlabelled: bool,
}

impl Given {
    /// All devices; the new one as such until a repair has made it a member.
    pub(in crate::run) fn split(&self) -> (Vec<SimDisk>, Option<(SimDisk, Tier)>) {
        let at_hand = self.devices.iter().enumerate().filter(|(i, _)| Some(*i) != self.absent.get());
        let mut devices: Vec<SimDisk> = at_hand.map(|(_, d)| d.clone()).chain(self.back.borrow().clone()).collect();
        let mut news = self.new.borrow().clone();
        let fresh = news.pop_if(|(disk, _)| forge::own_uuid(disk).is_none());
        let earlier = news.len().saturating_sub(usize::from(fresh.is_none()));
        let hidden = if self.last_only.get() { earlier } else { 0 };
        devices.extend(news.into_iter().skip(hidden).map(|(disk, _)| disk));
        (devices, fresh)
    }

    /// A device that is to become a member.
    pub(in crate::run) fn add(&self, new: (SimDisk, Tier)) {
        self.new.borrow_mut().push(new);
    }

    /// Takes new ones away: all, all but the last, or none.
    pub(super) fn without_new(&self, which: u64) -> Vec<(SimDisk, Tier)> {
        let mut new = self.new.borrow_mut();
        let kept = match which {
            0 => 0,
            1 => 1,
            _ => new.len(),
        };
        let away = new.len().saturating_sub(kept);
        new.drain(..away).collect()
    }

    pub(in crate::run) fn of(devices: Vec<SimDisk>, kept_copies: bool) -> Given {
        let (new, last_only, back, absent, loose) = Default::default();
        Given { devices, new, last_only, back, absent, loose, kept_copies, unlabelled: false }
    }

    /// All that there is, of which a member has no labels.
    pub(super) fn with_unlabelled(devices: Vec<SimDisk>) -> Given {
        Given { unlabelled: true, ..Given::of(devices, false) }
    }
}
