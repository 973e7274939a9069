//! A start mends what has rotted on a member, and is cut off on the way: the next one ends it. A part of the experiments in
//! `damage`.

use bimetal_format::block::crc32c;
use bimetal_volume::units::{Tier, CHUNK};

use super::repair::{Content, Given, USED};
use super::{forge, Run, Wrong, SLOTS_START};
use crate::counters::Seen;
use crate::disk::Faults;
use crate::scenario::Speed;

const BLOCK: u64 = 4096;
/// Starts of one experiment that are cut off, at most, and events after which they are.
const CUT_OFF: u64 = 3;
const EVENTS: u64 = 120;

impl Run<'_> {
    /// The root of a member's page directory rots, which others know all of, or that of each fast member; the first start after it is
    /// cut off after so many events.
    pub(super) fn rotten_directory(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let Some(before) = self.known_without(member)? else { return Ok(()) };
        if !self.cut_off_before()? {
            return Ok(());
        }
        let fast = |i: &usize| self.shared.specs[*i].tier == Tier::Fast;
        let every = fast(&member) && self.stopped_in_order && self.world.random(|p| p.coin());
        (0..self.disks.len()).filter(|i| *i == member || (every && fast(i))).for_each(|i| self.rot_root(i));
        self.mending_cut_off(first)?;
        self.mended(&before)?;
        // What the member was given is of the newest epoch: it is told from an older copy of itself.
        match !fast(&member) || self.fast_ones(&self.insiders()?) > 1 {
            true => self.recognised(member, &before),
            false => Ok(()),
        }
    }

    /// C6: the end that the last start left in a member's journal rots, before anything came behind it; starts after it are cut off.
    pub(super) fn rotten_seal(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let disk = &self.disks[member];
        let Some(label) = forge::newest_label(disk).filter(|_| !self.stopped_in_order) else { return Ok(()) };
        let end = label.journal_end;
        let nothing_since = label.epoch.confirmed && label.generation < label.epoch.first_generation;
        // An earlier lap lies there: where there was none, the simulated disks hold no zeros.
        let earlier_lap = forge::journal_block(disk, &label, end).is_some_and(|(head, _)| head.sequence < end);
        if !self.insiders()?[member] || !nothing_since || end == label.journal_tail || !earlier_lap {
            return Ok(());
        }
        let Some(before) = self.content(self.disks.clone(), false)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let Some(layout) = forge::layout(&disk.store(), member) else { return Ok(()) };
        self.world.random(|p| disk.store_mut().rot(layout.journal_block(end - 1) / BLOCK, p));
        self.mending_cut_off(first)?;
        self.mended(&before)
    }

    /// C6: a member's journal is lost, and other members know everything; starts after it are cut off. Until one has come to its end the
    /// journal counts as damaged: without the others nothing is shown that was not shown before, such as zeros for what was flushed.
    pub(super) fn lost_journal(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let slow = |i: usize| self.shared.specs[i].tier == Tier::Slow;
        let others_know = slow(member) || self.fast_ones(&inside) > 1;
        if self.stopped_in_order || !inside[member] || !others_know || self.standing(member, &self.disks)?.leaving {
            return Ok(());
        }
        let rots = match self.world.random(|p| p.coin()) {
            true => self.rot_ring(member),
            false => self.rot_end(member),
        };
        // One that looks like an older copy of itself is refused: see `nothing_is_lost`.
        if !rots || !self.starts_for_once()? {
            return Ok(());
        }
        let rest: Vec<_> = (0..self.disks.len()).filter(|i| inside[*i] && (slow(*i) || *i == member)).collect();
        let of = |some: &[usize]| self.content(some.iter().map(|i| self.disks[*i].clone()).collect(), false);
        let without = || of(&rest);
        let (before, whole) = (without()?, self.content(self.disks.clone(), false)?);
        // What others show alone, as possibly stale, is shown where the directory of this one cannot be read either.
        let alone: Vec<_> = rest.iter().copied().filter(|i| *i != member).collect();
        let alone = of(&alone)?.unwrap_or_default();
        self.mending_cut_off(first)?;
        let (Some(before), Some(whole)) = (before, whole) else {
            return Err("a read-only start was refused after a journal was lost".into());
        };
        let now = without()?.unwrap_or_default();
        for (v, (((name, was), (_, now)), (_, whole))) in before.iter().zip(&now).zip(&whole).enumerate() {
            let is_alone = |block: usize| alone.get(v).is_some_and(|(_, blocks)| blocks[block] == now[block]);
            let other = |b: &usize| now[*b].is_some() && now[*b] != was[*b] && now[*b] != whole[*b] && !is_alone(*b);
            if let Some(block) = (0..now.len()).find(other) {
                return Err(format!(
                    "a start was cut off that found a journal lost: with that member alone block {block} of volume {name} shows what \
                     it did not: {:08x?} before, {:08x?} now, {:08x?} with all",
                    was[block], now[block], whole[block]
                ));
            }
        }
        self.mended(&whole)
    }

    /// Whether a writable start is not refused. The disks are as before.
    fn starts_for_once(&self) -> Result<bool, Wrong> {
        let saved: Vec<_> = self.disks.iter().map(|d| d.store().image()).collect();
        let started = self.starts(&Given::of(self.disks.clone(), false))?;
        for (disk, image) in self.disks.iter().zip(saved) {
            disk.store_mut().swap_image(image);
        }
        Ok(started)
    }

    /// The same of pages of a member's map.
    pub(super) fn rotten_pages(&self, member: usize, first: u64) -> Result<(), Wrong> {
        let Some(before) = self.known_without(member)? else { return Ok(()) };
        if !self.cut_off_before()? {
            return Ok(());
        }
        let mut store = self.disks[member].store_mut();
        let end = store.blocks();
        for block in forge::pages(&store, member, end.min(SLOTS_START / BLOCK)) {
            self.world.random(|p| p.coin().then(|| store.rot(block, p)));
        }
        drop(store);
        self.mending_cut_off(first)?;
        match self.world.random(|p| p.coin()) {
            true => self.alone_after_use(),
            false => self.mended(&before),
        }
    }

    /// In half of the cases after an orderly stop a start is cut off before anything rots. False if the epoch was confirmed: then the
    /// disks may not know everything.
    fn cut_off_before(&self) -> Result<bool, Wrong> {
        if !self.stopped_in_order || self.world.random(|p| p.coin()) {
            return Ok(true);
        }
        let events = self.world.random(|p| p.below(EVENTS));
        if let Some(why) = self.cut_off_start(self.disks.clone(), events)? {
            return Err(format!("a start after an orderly stop was refused: {why}"));
        }
        self.lose_power();
        let inside = self.insiders()?;
        let mut labels = (0..self.disks.len()).filter(|i| inside[*i]).filter_map(|i| forge::own_label(&self.disks[i]));
        Ok(labels.any(|l| l.clean || (l.stopped && !l.epoch.confirmed)))
    }

    /// The group is used and stopped, and the fast members are gone: nothing shows what was there before, whatever starts that mended
    /// made of kept copies.
    fn alone_after_use(&self) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let slow = |i: &usize| self.shared.specs[*i].tier == Tier::Slow;
        let rest = (0..self.disks.len()).filter(|i| inside[*i] && slow(i)).map(|i| self.disks[i].clone()).collect();
        if !self.used_once(&Given::of(self.disks.clone(), false))? {
            return Err("a group whose pages were mended does not start".into());
        }
        let Some(content) = self.content(rest, false)? else {
            return Err("a start without fast members was refused".into());
        };
        let zeros = crc32c(&[0; BLOCK as usize]);
        for (name, blocks) in content {
            let used = blocks.iter().take((USED * CHUNK / BLOCK) as usize);
            if let Some(block) = used.flatten().position(|sum| *sum != zeros) {
                return Err(format!(
                    "without fast members {name} shows old data, for one in its {block}th block that is served"
                ));
            }
        }
        Ok(())
    }

    /// Starts that mend what has rotted are cut off, the first after so many events.
    fn mending_cut_off(&self, first: u64) -> Result<(), Wrong> {
        let later: Vec<u64> = self.world.random(|p| (0..p.below(CUT_OFF)).map(|_| p.below(EVENTS)).collect());
        for events in std::iter::once(first).chain(later) {
            let before = self.world.injected();
            self.hide_a_root();
            let refused = self.cut_off_start(self.disks.clone(), events)?;
            self.heal();
            if let Some(why) = refused.filter(|_| self.world.injected() == before) {
                return Err(format!("a start that mends what has rotted was refused: {why}"));
            }
            self.lose_power();
            self.shared.marks.borrow_mut().mark(Seen::MendingCutOff);
        }
        Ok(())
    }

    /// A start that is not cut off comes to its end, and all is as it was.
    fn mended(&self, before: &Content) -> Result<(), Wrong> {
        let given = Given::of(self.disks.clone(), false);
        if !self.starts(&given)? {
            return Err("a start after those that were cut off was refused".into());
        }
        self.is_sound(&given)?;
        self.holds(&given, before, true, "after what had rotted was mended")
    }

    /// In half of the starts a disk cannot read the root of its page directory, however often it is asked.
    fn hide_a_root(&self) {
        let (hides, disk) = self.world.random(|p| (p.coin(), p.below(self.disks.len() as u64) as usize));
        if hides {
            self.hide_root_of(disk);
        }
    }

    pub(super) fn hide_root_of(&self, disk: usize) {
        let layout = forge::layout(&self.disks[disk].store(), disk);
        if let Some(layout) = layout {
            let sides = [0, 1].map(|side| layout.root_block(0, side) / BLOCK);
            let area = (sides[0].min(sides[1]), sides[0].max(sides[1]) + 1);
            let faults = Faults { read_ppm: 1_000_000, limit: u32::MAX, area, ..Faults::default() };
            self.disks[disk].set_behaviour(faults, Speed::of(self.shared.specs[disk].tier).latency());
        }
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
