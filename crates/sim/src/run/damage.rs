//! Starts with a member missing, stale or rotten. Each is an experiment on the side: the media are put back afterwards,
//! so that the run goes on as if it had not been.

use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{MemberIndex, Tier};
use bimetal_volume::{Group, Volume};

use super::dead::Leave;
use super::fates::{places, Place, View};
use super::table::listed;
use super::{Run, Shared, Wrong, SLOTS_START, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::{Cell, Faults, Image, SimDisk};
use crate::env::{Ended, SimEnv};
use crate::scenario::{Damage, Speed};

const BLOCK: u64 = 4096;
/// Blocks of the first label.
pub(super) const LABEL: std::ops::Range<u64> = 16..32;
/// First block after the labels' zone: the journal begins there.
const JOURNAL: u64 = 256;
/// Blocks of a hole in a ring at least.
const HOLE: u64 = 16;

impl Shared {
    /// What a disk holds of the header of a family rots; of all if it is 0.
    pub(super) fn rot_keys(&self, disk: usize, family: u8) {
        let mut store = self.disks[disk].store_mut();
        let blocks = store.blocks();
        let behind = blocks - 2 * JOURNAL + (LABEL.end - LABEL.start)..blocks - JOURNAL;
        let written = |b: &u64| !matches!(store.durable(*b), Cell::Virgin);
        let of_it = |b: &u64| family == 0 || super::family::is_header_of(store.durable(*b), family);
        let keys: Vec<u64> = (LABEL.end..JOURNAL).chain(behind).filter(written).filter(of_it).collect();
        for block in keys {
            self.world.random(|p| store.rot(block, p));
        }
    }
}

impl Run<'_> {
    /// Only after a power cut or stop: with data in caches the media say nothing.
    pub(super) fn damaged_start(&mut self, damage: Damage, index: usize) -> Result<(), Wrong> {
        if self.disks.iter().any(|d| d.store().dirty()) {
            return Ok(());
        }
        self.heal();
        match damage {
            Damage::Decay(m) => {
                self.rot_pages(m);
                return Ok(());
            }
            Damage::Gone(m, events) => return self.goes_on_without(m, events),
            _ => {}
        }
        self.on_the_side(&format!("{damage:?}"), |run| run.damaged(damage, index))
    }

    /// Carries out an experiment, and puts the media back.
    pub(super) fn on_the_side(
        &mut self,
        what: &str,
        experiment: impl FnOnce(&mut Self) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let saved: Vec<Image> = self.disks.iter().map(|d| d.store().image()).collect();
        self.world.restart(None);
        self.world.note(40, 0, || format!("experiment: {what}"));
        let result = experiment(self);
        for (disk, image) in self.disks.iter().zip(saved) {
            disk.power_cut(false);
            disk.store_mut().swap_image(image);
            disk.set_unread(std::iter::empty());
        }
        self.world.note(41, 0, || "experiment over".into());
        self.shared.marks.borrow_mut().mark(Seen::DamagedStart);
        result.map_err(|e| format!("with {what}: {e}"))
    }

    fn damaged(&mut self, damage: Damage, index: usize) -> Result<(), Wrong> {
        match damage {
            Damage::Missing(m) => self.without(m, false, index),
            Damage::Decay(_) | Damage::Gone(..) => Ok(()),
            Damage::Alone => self.without(0, true, index),
            Damage::NoFast if self.stopped_in_order => self.without(0, true, index),
            Damage::NoFast => self.no_fast(),
            Damage::NoFastNorPages(m) => {
                self.rot_pages(m);
                self.no_fast()
            }
            Damage::Forged => self.forged(),
            Damage::Gap(m) => self.gap(m),
            Damage::End(m) => self.rotten_end(m),
            Damage::Ring(m) => self.rotten_ring(m),
            Damage::Hole(m) => self.hole_in_the_ring(m),
            Damage::Unflushed(m) => self.unflushed(m),
            Damage::Journal(m, events) => self.lost_journal(m, events),
            Damage::Seal(m, events) => self.rotten_seal(m, events),
            Damage::Keys(m) => self.rotten_keys(m),
            Damage::Lost(m) => self.lost_pages(m),
            Damage::Stale(m) => self.stale(m),
            Damage::Old(m) => self.old(m),
            Damage::AtStart(m) => self.of_a_start(m),
            Damage::Midst(m, always) => self.of_the_midst(m, always),
            Damage::MidstBesideGap(m) => self.of_the_midst_beside_gap(m),
            Damage::Fork(m) => self.fork(m),
            Damage::Halves(m) => self.halves(m),
            // A crash may have torn one of the two labels: rot in the other is then a second fault at once.
            Damage::Labels(m) => self.without_labels(m),
            Damage::Directory(m, events) => self.rotten_directory(m, events),
            Damage::Pages(m, events) => self.rotten_pages(m, events),
            Damage::Back(m, gone, back) => self.back_and_forth(m, gone, back),
            Damage::Starts(first, then) => self.many_starts(first, then),
            Damage::Hidden(m, events) => self.repaired_while_hidden(m, events),
            Damage::Repair(m, events) => self.repaired_without(m, events),
            Damage::Rot(m, blocks) => self.rotten(m, blocks, self.stopped_in_order),
        }
    }

    /// C8: a writable start is refused; a degraded one tells lost from never written. With `alone` all fast members are
    /// gone, and what lives on the slow tier came there by moves: all of it must be served.
    fn without(&self, missing: usize, alone: bool, index: usize) -> Result<(), Wrong> {
        let members: Vec<_> = self.scenario.disks().collect();
        let inside = self.insiders()?;
        if !alone && !inside[missing] {
            return Ok(());
        }
        let gone = |i: usize| if alone { members[i].tier == Tier::Fast } else { i == missing };
        let rest: Vec<SimDisk> =
            self.disks.iter().enumerate().filter(|(i, _)| inside[*i] && !gone(*i)).map(|(_, d)| d.clone()).collect();
        // A commit that was cut off may be known to the missing fast member alone, so that the others cannot know where
        // its chunks live. Half of the time a start makes all of them equal first.
        let tier = members[missing].tier;
        let crashed = index > 0 && !self.stopped_in_order;
        let cut_off = crashed && !alone && tier == Tier::Fast && self.fast_ones(&inside) > 1;
        let settled = cut_off && self.world.random(|p| p.coin());
        if settled {
            self.settled_start()?;
        }
        let healthy = self.healthy_view()?;
        let Leave { told, may_go } = if alone { Leave::default() } else { self.leave_of(missing, &rest)? };
        for allow_missing in [false, true] {
            match self.try_start(rest.clone(), OpenOptions { allow_missing, ..self.open_options() })? {
                Some((env, group)) if told => return self.without_dead(&env, &group),
                Some(_) => return Err("a writable start without all members was not refused".into()),
                None if may_go => {
                    return Err("a start without an emptied member was refused".into());
                }
                None => {}
            }
        }
        // Every fast member knows everything; slow members alone only know what was theirs.
        let slow_only = !(0..members.len()).any(|i| inside[i] && !gone(i) && members[i].tier == Tier::Fast);
        let known = alone || (!slow_only && (settled || !cut_off));
        let exact = self.exact(slow_only, known);
        let there = (0..members.len()).map(|i| (known || exact) && inside[i] && !gone(i));
        let safe: Vec<bool> = there.collect();
        let view = View { healthy: &healthy, safe: &safe, exact, recent: true };
        for kept_copies in [false, true] {
            let degraded = OpenOptions { writable: false, allow_missing: true, kept_copies, ..self.open_options() };
            let Some((env, group)) = self.try_start(rest.clone(), degraded)? else {
                return Err("a degraded start was refused".into());
            };
            let result = self.peek(&env, &group, Some(view), kept_copies);
            env.kill();
            if self.disks.iter().any(|d| d.store().dirty()) {
                return Err("a read-only start wrote to a member".into());
            }
            result?;
        }
        let gone = if alone { (0..members.len()).find(|i| inside[*i] && gone(*i)) } else { Some(missing) };
        match self.world.random(|p| p.coin()) {
            true => self.repaired(rest, gone, None),
            false => Ok(()),
        }
    }

    /// After a crash slow members alone know of what is theirs only, and of the newest not even that.
    fn no_fast(&self) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let slow = |i: usize| self.shared.specs[i].tier == Tier::Slow;
        let rest = self.disks.iter().enumerate().filter(|(i, _)| inside[*i] && slow(*i)).map(|(_, d)| d.clone());
        let degraded = OpenOptions { writable: false, allow_missing: true, ..self.open_options() };
        let before = self.world.injected();
        self.disturb();
        let started = self.try_start(rest.collect(), degraded)?;
        self.heal();
        let disturbed = self.world.injected() != before;
        let Some((env, group)) = started else {
            return if disturbed { Ok(()) } else { Err("a degraded start was refused".into()) };
        };
        let result = self.peek(&env, &group, Some(View { recent: !disturbed, ..View::NOTHING }), false);
        env.kill();
        result
    }

    /// Whether what is left must know of every block whether it holds data: a fast member that has all commits, or a
    /// slow one that was stopped in order.
    fn exact(&self, slow_only: bool, known: bool) -> bool {
        match slow_only {
            true => self.stopped_in_order,
            false => known,
        }
    }

    /// Which disks a start takes for members.
    pub(super) fn insiders(&self) -> Result<Vec<bool>, Wrong> {
        if self.scenario.spares.is_empty() && !self.shared.roster.borrow().missed_one() {
            return Ok(vec![true; self.disks.len()]);
        }
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let members = group.status().members;
        env.kill();
        let label = |d: &SimDisk| super::forge::own_uuid(d);
        Ok(self.disks.iter().map(|d| members.iter().any(|m| Some(m.uuid) == label(d))).collect())
    }

    pub(super) fn fast_ones(&self, inside: &[bool]) -> usize {
        self.scenario.disks().zip(inside).filter(|(m, inside)| m.tier == Tier::Fast && **inside).count()
    }

    /// A writable start of all members, and the power goes as soon as it is done.
    pub(super) fn settled_start(&self) -> Result<(), Wrong> {
        let options = OpenOptions { migrate: false, ..self.open_options() };
        let Some((env, _group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a start with all members was refused".into());
        };
        env.kill();
        self.disks.iter().for_each(|d| d.power_cut(false));
        Ok(())
    }

    /// Every copy of a map page on this disk rots.
    fn rot_pages(&self, member: usize) {
        let mut store = self.disks[member].store_mut();
        for block in super::forge::pages(&store, member, SLOTS_START / BLOCK) {
            self.world.random(|p| store.rot(block, p));
        }
    }

    /// C5.2: an older page is damaged, not a fallback.
    fn lost_pages(&self, member: usize) -> Result<(), Wrong> {
        let Some(before) = &self.before else { return Ok(()) };
        let known = self.others_know(member)?;
        let mut store = self.disks[member].store_mut();
        for block in super::forge::pages(&store, member, SLOTS_START / BLOCK) {
            store.revert(block, &before[member]);
        }
        drop(store);
        match known && self.world.random(|p| p.coin()) {
            true => self.nothing_is_lost(false),
            false => self.look(true).map(|_| ()),
        }
    }

    /// C7.3: a page that gives two chunks one slot. Nobody may read the data of another.
    fn forged(&self) -> Result<(), Wrong> {
        // Else a record of the journal may take the slot from one of the two, and nobody can see that it was forged.
        if !self.stopped_in_order {
            return Ok(());
        }
        for (i, disk) in self.disks.iter().enumerate() {
            super::forge::double_homes(&mut disk.store_mut(), i, SLOTS_START / BLOCK);
        }
        self.look(false)?;
        Ok(())
    }

    /// C5: damaged metadata is mended from another copy, or reads as an error; never as other data.
    fn rotten(&self, member: usize, blocks: u32, labels: bool) -> Result<(), Wrong> {
        let known = self.others_know(member)?;
        let disk = &self.disks[member];
        let pages = JOURNAL + u64::from(self.scenario.journal)..SLOTS_START / BLOCK;
        let written = |b: &u64| !matches!(disk.store().durable(*b), crate::disk::Cell::Virgin);
        let candidates: Vec<u64> = LABEL.filter(|_| labels).chain(pages).filter(written).collect();
        for _ in 0..blocks.min(candidates.len() as u32) {
            let block = self.world.random(|p| *p.pick(&candidates));
            let lost_write =
                self.before.as_ref().filter(|_| !LABEL.contains(&block) && self.world.random(|p| p.coin()));
            match lost_write {
                Some(before) => disk.store_mut().revert(block, &before[member]),
                None => self.world.random(|p| disk.store_mut().rot(block, p)),
            };
        }
        if known && self.world.random(|p| p.coin()) {
            return self.nothing_is_lost(false);
        }
        if !self.look(true)? {
            return Err("a read-only start with some rotten blocks on one member was refused".into());
        }
        Ok(())
    }

    /// Whether there is another member that knows all that this one does.
    fn others_know(&self, member: usize) -> Result<bool, Wrong> {
        let inside = self.insiders()?;
        let slow = self.shared.specs[member].tier == Tier::Slow;
        Ok(slow || !inside[member] || self.fast_ones(&inside) > 1 || self.stopped_in_order)
    }

    /// C5.2: what is damaged in the map of one member is mended by those that know all of it. One whose journal lacks the last commit
    /// that it had confirmed, where another has begun the next one, may be refused: it looks like an older copy of itself.
    fn nothing_is_lost(&self, may_be_refused: bool) -> Result<(), Wrong> {
        for writable in [false, true] {
            let options = OpenOptions { writable, migrate: false, ..self.open_options() };
            let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
                if may_be_refused {
                    return Ok(());
                }
                return Err(format!(
                    "a start (writable: {writable}) was refused, though another member knows everything"
                ));
            };
            let result = self.peek(&env, &group, None, false);
            env.kill();
            result?;
        }
        Ok(())
    }

    /// The headers of families are whole on another member.
    fn rotten_keys(&self, member: usize) -> Result<(), Wrong> {
        self.shared.rot_keys(member, 0);
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with rotten keys on one member was refused".into());
        };
        let result = self.headers_are_whole(&env, &group);
        env.kill();
        result
    }

    /// C5: what a rotten journal block knew is lost, and said to be; a slot that it gave to another chunk shows that
    /// one's data to nobody.
    fn gap(&self, member: usize) -> Result<(), Wrong> {
        let known = self.others_know(member)?;
        // What rots of the last commit looks like one that was cut off: others have it, or nobody can know.
        let newest = known && self.world.random(|p| p.coin());
        if !self.rot_journal(member, newest) {
            return Ok(());
        }
        if newest {
            return self.nothing_is_lost(true);
        }
        if known && self.world.random(|p| p.coin()) {
            return self.nothing_is_lost(false);
        }
        if !self.look(false)? {
            return Err("a read-only start with one rotten journal block was refused".into());
        }
        Ok(())
    }

    /// C6: the end of a journal rots, and the heads of its blocks tell that commits are missing: nothing is served as if it had been
    /// cut off before them.
    fn rotten_end(&self, member: usize) -> Result<(), Wrong> {
        let known = self.others_know(member)?;
        if !self.rot_end(member) {
            return Ok(());
        }
        if known {
            return self.nothing_is_lost(true);
        }
        if !self.look(false)? {
            return Err("a read-only start with a rotten end of one journal was refused".into());
        }
        Ok(())
    }

    /// C6: nothing is left of a journal, and the label tells that there was something: it is not taken for an empty one.
    fn rotten_ring(&self, member: usize) -> Result<(), Wrong> {
        let known = self.others_know(member)?;
        if !self.rot_ring(member) {
            return Ok(());
        }
        if known {
            return self.nothing_is_lost(self.shared.specs[member].tier == Tier::Fast);
        }
        if self.try_start(self.disks.clone(), self.open_options())?.is_some() {
            return Err("a writable start without the only journal was not refused".into());
        }
        if !self.look(false)? {
            return Err("a read-only start without the only journal was refused".into());
        }
        Ok(())
    }

    /// C6: a hole in a journal is no device that has died, and not the journal's end.
    fn hole_in_the_ring(&self, member: usize) -> Result<(), Wrong> {
        let known = self.others_know(member)?;
        let disk = &self.disks[member];
        let (from, len, rots) = self.world.random(|p| (p.next(), p.range(HOLE, 3 * HOLE), p.coin()));
        let ring = u64::from(self.scenario.journal);
        let last = super::forge::last_commits(&disk.store(), member, JOURNAL..SLOTS_START / BLOCK, 3);
        let first = match last[..] {
            [rotten, behind, ..] if rots => {
                self.rot_body(member, rotten);
                behind
            }
            _ => JOURNAL + from % ring,
        };
        disk.set_unread((0..len.min(ring)).map(|n| JOURNAL + (first - JOURNAL + n) % ring));
        if known {
            return self.nothing_is_lost(false);
        }
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with a hole in one journal was refused".into());
        };
        // No repair is tried: a start before it may end its journal just before the hole, and what comes behind is not known any more.
        let result = self.peek(&env, &group, Some(View::NOTHING), false);
        env.kill();
        result
    }

    /// C7.1: nothing is built upon a member of which no sync succeeds, and all of it can be read.
    fn unflushed(&self, member: usize) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let tier = self.shared.specs[member].tier;
        let faults = Faults { sync_ppm: 1_000_000, limit: u32::MAX, ..Faults::default() };
        self.disks[member].set_behaviour(faults, Speed::of(tier).latency());
        if self.try_start(self.disks.clone(), self.open_options())?.is_some() && inside[member] {
            return Err("a writable start with a member whose syncs fail was not refused".into());
        }
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with a member whose syncs fail was refused".into());
        };
        let result = self.peek(&env, &group, None, false);
        env.kill();
        self.heal();
        match self.disks.iter().any(|d| d.store().dirty()) {
            true => Err("a start with a member whose syncs fail wrote to a member".into()),
            false => result,
        }
    }

    /// The last two commits in the member's journal rot, but for their heads; false if there are none.
    pub(super) fn rot_end(&self, member: usize) -> bool {
        let disk = &self.disks[member];
        let blocks = super::forge::last_commits(&disk.store(), member, JOURNAL..SLOTS_START / BLOCK, 2);
        blocks.iter().for_each(|block| self.rot_body(member, *block));
        !blocks.is_empty()
    }

    /// A journal block of the member rots, but for its head.
    fn rot_body(&self, member: usize, block: u64) {
        let disk = &self.disks[member];
        let mut bytes = disk.store().durable(block).bytes(member, block);
        *bytes.last_mut().expect("a block") ^= 1;
        disk.store_mut().put(block, Cell::from_bytes(&bytes));
    }

    /// All of the member's journal rots; false if its label does not tell that there is something.
    pub(super) fn rot_ring(&self, member: usize) -> bool {
        let disk = &self.disks[member];
        let promises = super::forge::newest_label(disk)
            .is_some_and(|l| l.journal_end > l.journal_tail || super::forge::has_block_before_tail(disk, &l));
        let ring = JOURNAL..JOURNAL + u64::from(self.scenario.journal);
        let written = |b: &u64| promises && !matches!(disk.store().durable(*b), Cell::Virgin);
        let blocks = ring.filter(written).collect::<Vec<u64>>();
        for block in blocks {
            self.world.random(|p| disk.store_mut().rot(block, p));
        }
        promises
    }

    /// A journal block of the member rots, of the `newest` commit or of one before; false if there is none.
    pub(super) fn rot_journal(&self, member: usize, newest: bool) -> bool {
        let disk = &self.disks[member];
        let candidates = super::forge::journal_blocks(&disk.store(), member, JOURNAL..SLOTS_START / BLOCK);
        let last = candidates.iter().map(|(_, generation)| *generation).max();
        let of_age = candidates.iter().filter(|(_, g)| (Some(*g) == last) == newest);
        let blocks: Vec<u64> = of_age.map(|(block, _)| *block).collect();
        if blocks.is_empty() {
            return false;
        }
        let block = self.world.random(|p| *p.pick(&blocks));
        self.world.random(|p| disk.store_mut().rot(block, p));
        true
    }

    /// A read-only start of all members, and everything is read; anything may be lost, and what may be old lacks the newest changes at
    /// most if it is to be `recent`. False if it was refused.
    fn look(&self, recent: bool) -> Result<bool, Wrong> {
        let options = OpenOptions { writable: false, ..self.open_options() };
        let before = self.world.injected();
        self.disturb();
        let started = self.try_start(self.disks.clone(), options)?;
        self.heal();
        let disturbed = self.world.injected() != before;
        let Some((env, group)) = started else { return Ok(disturbed) };
        let gap = group.status().recovery.iter().any(|what| what.contains("no other member has the same records"));
        self.shared.marks.borrow_mut().mark_if(gap, Seen::GapServed);
        let result = self.peek(&env, &group, Some(View { recent: recent && !disturbed, ..View::NOTHING }), false);
        env.kill();
        result?;
        if self.world.random(|p| p.coin()) {
            self.repaired(self.disks.clone(), None, None)?;
        }
        Ok(true)
    }

    /// In some starts a few reads of metadata fail, on one disk.
    fn disturb(&self) {
        let count = self.disks.len() as u64;
        let (disturbs, disk, limit) = self.world.random(|p| (p.chance(250_000), p.below(count), p.range(1, 3)));
        if disturbs {
            let pages = JOURNAL + u64::from(self.scenario.journal);
            let (zone, inside) = self.world.random(|p| (p.below(4), p.below(32)));
            let from = [JOURNAL, pages, pages, pages + inside][zone as usize];
            let area = (from, SLOTS_START / BLOCK);
            let faults = Faults { read_ppm: 500_000, limit: limit as u32, area, ..Faults::default() };
            let tier = self.shared.specs[disk as usize].tier;
            self.disks[disk as usize].set_behaviour(faults, Speed::of(tier).latency());
        }
    }

    pub(super) fn try_start(
        &self,
        devices: Vec<SimDisk>,
        options: OpenOptions,
    ) -> Result<Option<(SimEnv, Group<SimEnv>)>, Wrong> {
        let env = SimEnv::new(&self.world);
        let opener = env.clone();
        match env.run(STEP_LIMIT, async move { Group::open(opener, devices, options).await }) {
            Ended::Done(Ok(group)) => {
                super::family::unlock_all(&group)?;
                Ok(Some((env, group)))
            }
            Ended::Done(Err(e)) => {
                self.world.note(42, 0, || format!("refused: {e}"));
                env.kill();
                Ok(None)
            }
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("start hung: {why}")),
        }
    }

    /// What a start with all members shows, without writing: where every block lives.
    fn healthy_view(&self) -> Result<Vec<Vec<Place>>, Wrong> {
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let uuids: Vec<_> = self.disks.iter().map(super::forge::own_uuid).collect();
        let mut disks = vec![None; usize::from(MemberIndex::MAX) + 1];
        for m in group.status().members {
            disks[usize::from(m.index)] = uuids.iter().position(|u| *u == Some(m.uuid));
        }
        let places = |v: &Option<Volume<SimEnv>>| match v {
            Some(v) => places(v, &disks),
            None => Ok(Vec::new()),
        };
        let view = listed(&self.shared, &group)?.iter().map(places).collect();
        env.kill();
        view
    }
}
