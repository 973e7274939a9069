//! Starts with members that were not always used together (C4).

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{Tier, CHUNK};

use super::fates::View;
use super::repair::Given;
use super::{Run, Wrong, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::Image;
use crate::env::Ended;

impl Run<'_> {
    /// C4: an image from before the last session must be refused, or nothing of it may be believed.
    pub(super) fn stale(&self, member: usize) -> Result<(), Wrong> {
        let Some(before) = &self.before else { return Ok(()) };
        self.with_old_and_one_lost(member, before[member].clone())?;
        self.with_old(member, before[member].clone())
    }

    /// The same of an image from before the second session.
    pub(super) fn old(&self, member: usize) -> Result<(), Wrong> {
        let Some(oldest) = &self.oldest else { return Ok(()) };
        self.with_old_and_one_lost(member, oldest[member].clone())?;
        self.with_old(member, oldest[member].clone())
    }

    /// The same of a copy from the midst of a session, after which the members say that it ended in order, or know more.
    pub(super) fn of_the_midst(&self, member: usize, always: bool) -> Result<(), Wrong> {
        let copies = self.shared.copies.borrow();
        let Some(copies) = copies.as_ref().filter(|_| always || self.shared.copies_show.get()) else { return Ok(()) };
        if self.shared.copies_show.get() {
            self.with_old_and_one_lost(member, copies[member].clone())?;
        }
        self.with_old(member, copies[member].clone())
    }

    /// The same, beside another fast member that knows of commits since, though a block before them rots: what is read is right, or
    /// nothing is.
    pub(super) fn of_the_midst_beside_gap(&self, member: usize) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let is_other = |i: &usize| *i != member && inside[*i] && self.shared.specs[*i].tier == Tier::Fast;
        let others: Vec<usize> = (0..inside.len()).filter(is_other).collect();
        let copies = self.shared.copies.borrow();
        let Some(copies) = copies.as_ref().filter(|_| !others.is_empty()) else { return Ok(()) };
        let other = self.world.random(|p| *p.pick(&others));
        match self.rot_journal(other, false) {
            true => self.with_old(member, copies[member].clone()),
            false => Ok(()),
        }
    }

    /// The same of a copy that was made in a start: of the epoch that has commits, and not confirmed.
    pub(super) fn of_a_start(&self, member: usize) -> Result<(), Wrong> {
        let own = super::forge::epoch(&self.disks[member]);
        let copies = self.shared.copies.borrow();
        let Some(image) = copies.as_ref().map(|copies| copies[member].clone()) else { return Ok(()) };
        let current = self.disks[member].store_mut().swap_image(image);
        let then = super::forge::epoch(&self.disks[member]);
        let is_of_start = own.zip(then).is_some_and(|(own, then)| own.id == then.id && !then.confirmed);
        let image = self.disks[member].store_mut().swap_image(current);
        match is_of_start {
            true => self.with_old(member, image),
            false => Ok(()),
        }
    }

    /// In half of the cases another member is lost besides. One is there that is as it was last, and stays: beside it nothing of the old
    /// one is believed.
    fn with_old_and_one_lost(&self, member: usize, image: Image) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let others: Vec<usize> = (0..inside.len()).filter(|i| inside[*i] && *i != member).collect();
        let (wanted, lost, kept_copies) = self.world.random(|p| (p.coin(), *p.pick(&others), p.coin()));
        let stays = |i: &&usize| **i != lost && self.shared.roster.borrow().surely_leaving(**i) == Some(false);
        if !wanted || !inside[member] || !others.iter().any(|i| stays(&i)) {
            return Ok(());
        }
        let rest = others.iter().chain([&member]).filter(|i| **i != lost).map(|i| self.disks[*i].clone()).collect();
        let current = self.disks[member].store_mut().swap_image(image);
        let options = OpenOptions { writable: false, allow_missing: true, kept_copies, ..self.open_options() };
        if let Some((env, group)) = self.try_start(rest, options)? {
            let result = self.peek(&env, &group, Some(View::NOTHING), kept_copies);
            env.kill();
            result.map_err(|e| format!("and without disk {lost}: {e}"))?;
        }
        self.disks[member].store_mut().swap_image(current);
        Ok(())
    }

    fn with_old(&self, member: usize, image: Image) -> Result<(), Wrong> {
        self.disks[member].store_mut().swap_image(image);
        match self.try_start(self.disks.clone(), self.open_options())? {
            None => Ok(()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, None, false);
                env.kill();
                result
            }
        }
    }

    /// C4.2: a copy of the group from before the last session lived a life of its own, and all members but one are of
    /// that. Two histories are never put together, not even to be read.
    pub(super) fn fork(&mut self, member: usize) -> Result<(), Wrong> {
        let Some(before) = &self.before else { return Ok(()) };
        let ours = self.disks[member].store().image();
        for (disk, image) in self.disks.iter().zip(before) {
            disk.store_mut().swap_image(image.clone());
        }
        // What has left the group there is welcome to be any state.
        if !self.other_life()? || !self.insiders()?[member] {
            return Ok(());
        }
        self.disks[member].store_mut().swap_image(ours);
        // What has left it here is no member of either.
        let Some(own) = super::forge::own_uuid(&self.disks[member]) else { return Ok(()) };
        for writable in [true, false] {
            let options = OpenOptions { writable, ..self.open_options() };
            let Some((env, group)) = self.try_start(self.disks.clone(), options)? else { continue };
            // An emptied one that is to leave keeps nobody from starting: the others are of one history without it.
            let together = group.status().members.iter().any(|m| m.uuid == own);
            env.kill();
            if together {
                return Err("members of two histories were put together".into());
            }
        }
        Ok(())
    }

    /// C4.2: one member goes on with a new device, the others go on without it, and both are used. Then all are together: which history
    /// is wanted nobody can know.
    pub(super) fn halves(&self, member: usize) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let tier = self.shared.specs[member].tier;
        let Some(other) = (0..inside.len()).find(|i| self.shared.specs[*i].tier != tier) else { return Ok(()) };
        let of = |i: &usize| self.disks[*i].clone();
        let rest = (0..inside.len()).filter(|i| *i != member && inside[*i]).map(|i| of(&i)).collect();
        let sides = [Given::of(vec![of(&member)], false), Given::of(rest, false)];
        sides[0].add(self.disk_like(other, 1));
        for side in &sides {
            let done = matches!(self.repair(side, None)?, Some(Ok(_)));
            self.lose_power();
            // Not every side has room for what was promised.
            if !inside[member] || !done || !self.used_once(side)? {
                return Ok(());
            }
        }
        let all: Vec<_> = sides.iter().flat_map(|side| side.split().0).collect();
        self.shared.marks.borrow_mut().mark(Seen::UsedApart);
        for writable in [true, false] {
            if self.try_start(all.clone(), OpenOptions { writable, ..self.open_options() })?.is_some() {
                return Err(format!("two halves that were used apart were put together (writable: {writable})"));
            }
        }
        Ok(())
    }

    /// Starts what the media hold, writes to every volume, and stops in order; whether all that went well.
    fn other_life(&self) -> Result<bool, Wrong> {
        let Some((env, group)) = self.try_start(self.disks.clone(), self.open_options())? else { return Ok(false) };
        // It has what it had then; the oracle knows of later.
        let volumes: Vec<_> = group.status().volumes.iter().filter_map(|v| group.volume(&v.name)).collect();
        let ended = env.run(STEP_LIMIT, async move {
            for v in &volumes {
                let data = BufMut::zeroed(CHUNK as usize).freeze();
                v.write(0, data, WriteFlags::default()).await?;
            }
            group.stop().await
        });
        env.kill();
        self.disks.iter().for_each(|d| d.power_cut(false));
        match ended {
            Ended::Done(result) => Ok(result.is_ok()),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("a life apart hung: {why}")),
        }
    }
}
