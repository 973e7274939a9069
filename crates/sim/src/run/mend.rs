//! A start mends what has rotted on a member, and is cut off on the way: the next one ends it. A part of the experiments in
//! `damage`.

use bimetal_volume::units::Tier;

use super::repair::{Content, Given};
use super::{forge, Run, Wrong, SLOTS_START};
use crate::counters::Seen;

const BLOCK: u64 = 4096;
/// Starts of one experiment that are cut off, at most, and events after which they are.
const CUT_OFF: u64 = 3;
const EVENTS: u64 = 120;

impl Run<'_> {
    /// The root of a member's page directory rots, which others know all of, or that of each fast member; the first start after it is
    /// cut off after so many events.
    pub(super) fn rotten_directory(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let Some(before) = self.known_without(member)? else { return Ok(()) };
        let fast = |i: &usize| self.shared.specs[*i].tier == Tier::Fast;
        let every = fast(&member) && self.stopped_in_order && self.world.random(|p| p.coin());
        (0..self.disks.len()).filter(|i| *i == member || (every && fast(i))).for_each(|i| self.rot_root(i));
        self.mended(first, &before)?;
        // What the member was given is of the newest epoch: it is told from an older copy of itself.
        match !fast(&member) || self.fast_ones(&self.insiders()?) > 1 {
            true => self.recognised(member, &before),
            false => Ok(()),
        }
    }

    /// The same of pages of a member's map.
    pub(super) fn rotten_pages(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let Some(before) = self.known_without(member)? else { return Ok(()) };
        let mut store = self.disks[member].store_mut();
        let end = store.blocks();
        for block in forge::pages(&store, member, end.min(SLOTS_START / BLOCK)) {
            self.world.random(|p| p.coin().then(|| store.rot(block, p)));
        }
        drop(store);
        self.mended(first, &before)
    }

    /// Starts that mend what has rotted are cut off, the first after so many events; then one is not, and all is as it was.
    fn mended(&self, first: u64, before: &Content) -> Result<(), Wrong> {
        let later: Vec<u64> = self.world.random(|p| (0..p.below(CUT_OFF)).map(|_| p.below(EVENTS)).collect());
        for events in std::iter::once(first).chain(later) {
            if let Some(why) = self.cut_off_start(self.disks.clone(), events)? {
                return Err(format!("a start that mends what has rotted was refused: {why}"));
            }
            self.lose_power();
            self.shared.marks.borrow_mut().mark(Seen::MendingCutOff);
        }
        let given = Given::of(self.disks.clone(), false);
        if !self.starts(&given)? {
            return Err("a start after those that were cut off was refused".into());
        }
        self.is_sound(&given)?;
        self.holds(&given, before, true, "after what had rotted was mended")
    }

    /// Both sides of the root, where they were written.
    fn rot_root(&self, member: usize) {
        let disk = &self.disks[member];
        let Some(layout) = forge::layout(&disk.store(), member) else { return };
        for side in [0, 1] {
            let block = layout.root_block(0, side) / BLOCK;
            self.world.random(|p| disk.store_mut().rot(block, p));
        }
    }
}
