//! Starts without a member that was leaving: it counts as having left if nothing is on it.

use std::time::Duration;

use bimetal_volume::env::Env as _;
use bimetal_volume::group::OpenError;
use bimetal_volume::options::{MemberState, OpenOptions};
use bimetal_volume::units::Tier;
use bimetal_volume::Group;

use super::{Run, Wrong, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::{Ended, SimEnv};
use crate::world::CrashPoint;

/// How long a group is open whose start was not cut off.
const AFTER_START: Duration = Duration::from_secs(2);

/// More events than a start of a small group takes: the power goes soon after.
const WHOLE: u64 = 220;

/// More starts than a label can name.
const MANY: usize = bimetal_format::label::EPOCH_HISTORY + 6;

/// What a member is to a group.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) leaving: bool,
    /// It is there, and nothing is on it.
    pub(super) empty: bool,
}

/// Whether a group can do without a member, because that is leaving.
#[derive(Clone, Copy, Default)]
pub(super) struct Leave {
    /// The others say that it is leaving.
    pub(super) told: bool,
    /// They know for sure that nothing is on it: they must do without.
    pub(super) may_go: bool,
}

impl Run<'_> {
    /// A member that was leaving is taken for one that has left: then all data is there without it, and still is when it
    /// comes back.
    pub(super) fn without_dead(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
        let result = self.peek(env, group, None, false);
        env.kill();
        result.map_err(|e| format!("without a member that was leaving: {e}"))?;
        self.shared.marks.borrow_mut().mark(Seen::DeadLeaver);
        self.lose_power();
        let Some((env, group)) = self.try_start(self.disks.clone(), self.open_options())? else {
            return Err("a start with a member that was thought dead was refused".into());
        };
        let result = self.peek(&env, &group, None, false);
        env.kill();
        result.map_err(|e| format!("with a member that was thought dead: {e}"))
    }

    /// A start without an emptied member that is cut off, one with it that is, and all data after them.
    pub(super) fn back_and_forth(&self, disk: usize, gone: u64, back: u64) -> Result<(), Wrong> {
        let own = self.standing(disk, &self.disks)?;
        if !(own.leaving && own.empty) {
            return Err("the member that is to go and come is not empty".into());
        }
        let rest: Vec<SimDisk> =
            self.disks.iter().enumerate().filter(|(i, _)| *i != disk).map(|(_, d)| d.clone()).collect();
        for (devices, events, all) in [(&rest, gone, false), (&self.disks, back, true), (&self.disks, WHOLE, true)] {
            match self.cut_off_start(devices.clone(), events)? {
                None => {}
                // A start that began an epoch on that member alone: two histories are never put together.
                Some(OpenError::Fork { .. }) if all => return Ok(()),
                Some(refusal) => {
                    return Err(format!("a start that was to be cut off after {events} was refused: {refusal}"))
                }
            }
        }
        self.lose_power();
        let Some((env, group)) = self.try_start(self.disks.clone(), self.open_options())? else {
            return Err("a start was refused after one that was not".into());
        };
        let result = self.peek(&env, &group, None, false);
        env.kill();
        self.lose_power();
        result.map_err(|e| format!("cut off after {gone} without it, {back} with it: {e}"))
    }

    /// A start that is cut off after the first number of events, many after the second, and all data after them.
    pub(super) fn many_starts(&self, first: u64, then: u64) -> Result<(), Wrong> {
        for events in std::iter::once(first).chain((0..MANY).map(|_| then)) {
            if let Some(refusal) = self.cut_off_start(self.disks.clone(), events)? {
                return Err(format!("after starts that were cut off one was refused: {refusal}"));
            }
        }
        self.lose_power();
        let Some((env, group)) = self.try_start(self.disks.clone(), self.open_options())? else {
            return Err("after starts that were cut off one was refused".into());
        };
        let result = self.peek(&env, &group, None, false);
        env.kill();
        result
    }

    /// Writable starts without an emptied member, and with it, that are cut off. None is refused if the rest knows for sure
    /// that it is empty.
    fn cut_off_starts(&self, rest: &[SimDisk], may_go: bool) -> Result<(), Wrong> {
        for _ in 0..self.world.random(|p| p.below(17)) {
            let (back, events) = self.world.random(|p| (p.coin(), p.below(WHOLE)));
            let devices = if back { self.disks.clone() } else { rest.to_vec() };
            match self.cut_off_start(devices, events)? {
                // A start that began an epoch on that member alone: two histories are never put together.
                Some(OpenError::Fork { .. }) if back => {}
                Some(refusal) if back || may_go => {
                    return Err(format!(
                        "a start after others that were cut off was refused; the emptied member is back: {back}: {refusal}"
                    ));
                }
                _ => {}
            }
        }
        self.lose_power();
        Ok(())
    }

    pub(super) fn lose_power(&self) {
        self.disks.iter().for_each(|d| d.power_cut(false));
        self.world.restart(None);
    }

    /// A writable start, and the power goes after so many events: in it, or soon after. Gives why it was refused, if it was.
    pub(super) fn cut_off_start(&self, devices: Vec<SimDisk>, events: u64) -> Result<Option<OpenError>, Wrong> {
        self.lose_power();
        self.world.restart(Some(CrashPoint { steps: 0, events }));
        let env = SimEnv::new(&self.world);
        let (opener, options) = (env.clone(), self.open_options());
        let ended = env.run(STEP_LIMIT, async move {
            let group = Group::open(opener.clone(), devices, options).await;
            if group.is_ok() {
                opener.sleep(AFTER_START).await;
            }
            group.map(|_| ())
        });
        env.kill();
        match ended {
            Ended::Done(result) => Ok(result.err()),
            Ended::Crashed => Ok(None),
            Ended::Hung(why) => Err(format!("start hung: {why}")),
        }
    }

    /// What the member on this disk is to a group of these: all, or those without it.
    pub(super) fn standing(&self, disk: usize, asked: &[SimDisk]) -> Result<Standing, Wrong> {
        let allow_missing = asked.len() < self.disks.len();
        let options = OpenOptions { writable: false, allow_missing, ..self.open_options() };
        let Some((env, group)) = self.try_start(asked.to_vec(), options)? else {
            return Err("a read-only start with nothing damaged was refused".into());
        };
        let uuid = super::forge::own_uuid(&self.disks[disk]);
        let members = group.status().members;
        env.kill();
        let member = members.iter().find(|m| Some(m.uuid) == uuid);
        // One that is struck off has left.
        Ok(member.map_or(Standing { leaving: true, empty: true }, |m| Standing {
            leaving: m.state == MemberState::Leaving,
            empty: m.present && m.free == m.slots,
        }))
    }

    /// What those without it make of this member, after starts that were cut off if it is empty.
    pub(super) fn leave_of(&self, disk: usize, rest: &[SimDisk]) -> Result<Leave, Wrong> {
        let own = self.standing(disk, &self.disks)?;
        // Only its own label may say so yet, or no longer.
        let told = self.told_of(disk, rest)?;
        if own.leaving != told {
            self.shared.marks.borrow_mut().mark(Seen::HalfTold);
        }
        // Another fast member may not know yet that it is empty.
        let known = self.shared.specs[disk].tier == Tier::Slow || self.stopped_in_order;
        let may_go = own.leaving && own.empty && told && known;
        if !own.empty || !(own.leaving || told) {
            return Ok(Leave { told, may_go });
        }
        self.cut_off_starts(rest, may_go)?;
        // By now the others may have heard it, either way.
        Ok(Leave { told: self.standing(disk, rest)?.leaving, may_go })
    }

    /// Whether those without it say that this member is leaving, which must be as it was answered.
    fn told_of(&self, disk: usize, rest: &[SimDisk]) -> Result<bool, Wrong> {
        let told = self.standing(disk, rest)?.leaving;
        match self.shared.roster.borrow().surely_leaving(disk) {
            Some(sure) if sure != told => {
                Err(format!("the others say that disk {disk} is leaving: {told}, but the opposite was answered"))
            }
            _ => Ok(told),
        }
    }
}
