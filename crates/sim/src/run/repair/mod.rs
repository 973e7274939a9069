//! A group is repaired, and the power goes on the way: what was served before is served afterwards, what was not is zeros.
//! A part of the experiments in `damage`.

mod given;
mod served;

use bimetal_format::block::crc32c;
use bimetal_format::label::Repair;
use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::{Device as _, DeviceTraits};
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::group::OpenError;
use bimetal_volume::inspect;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::repair::{Plan, RepairError, Report};
use bimetal_volume::units::{Tier, CHUNK};

pub(super) use self::given::Given;
pub(super) use self::served::Content;

use super::damage::LABEL;
use super::{forge, Run, Wrong, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::{Image, SimDisk};
use crate::env::{Ended, SimEnv};
use crate::scenario::Speed;
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;
/// Repairs of one experiment that are cut off, at most, and events after which they are.
const CUT_OFF: u64 = 4;
const EVENTS: u64 = 160;
/// Chunks of each volume that are written after a repair.
pub(super) const USED: u64 = 32;

impl Run<'_> {
    /// A member is gone, and the first repair is cut off after so many events.
    pub(super) fn repaired_without(&self, gone: usize, events: u64) -> Result<(), Wrong> {
        let rest = self.disks.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, d)| d.clone()).collect();
        self.repaired(rest, Some(gone), Some(events))
    }

    /// A repair is cut off after so many events while a member's directory cannot be read, and then it can: the group is what it was, or
    /// what the repair makes of it, and nothing between.
    pub(super) fn repaired_while_hidden(&self, member: usize, events: u64) -> Result<(), Wrong> {
        let given = Given::of(self.disks.clone(), false);
        let Some(whole) = self.content(self.disks.clone(), false)? else { return Ok(()) };
        self.hide_root_of(member);
        let kept = self.content(self.disks.clone(), false)?;
        // Another member's map will do.
        let Some(kept) = kept.filter(|kept| *kept != whole) else { return Ok(()) };
        let ended = self.repair(&given, Some(CrashPoint { steps: 0, events }))?;
        self.heal();
        self.lose_power();
        if let Some(ended) = ended {
            return self.judge(&given, &kept, ended);
        }
        self.shared.marks.borrow_mut().mark(Seen::RepairCutOff);
        let Some(now) = self.content(self.disks.clone(), false)? else {
            return Err("after a repair that was cut off a read-only start was refused".into());
        };
        if now != whole {
            self.holds(&given, &kept, false, "after a repair that was cut off")?;
        }
        match self.repair(&given, None)? {
            Some(ended) => self.judge(&given, &now, ended),
            None => Err("crashed without a crash point".into()),
        }
    }

    /// Repairs what is left, half of the time with a device in place of `gone`, in some attempts of which all but the last are
    /// cut off, the first after so many events.
    pub(super) fn repaired(&self, devices: Vec<SimDisk>, gone: Option<usize>, first: Option<u64>) -> Result<(), Wrong> {
        let (replaced, kept_copies) = self.world.random(|p| (p.coin(), p.coin()));
        let given = Given::of(devices, kept_copies);
        given.new.borrow_mut().extend(gone.filter(|_| replaced).map(|i| self.disk_like(i, 1)));
        match self.content(given.devices.clone(), kept_copies)? {
            Some(before) => self.repaired_to(&given, &before, gone, first),
            None => Ok(()),
        }
    }

    /// What is served while all is whole, if others know all that this member does; none if it may be done without.
    pub(super) fn known_without(&self, member: usize) -> Result<Option<Content>, Wrong> {
        let inside = self.insiders()?;
        let fast = self.shared.specs[member].tier == Tier::Fast;
        let known = self.stopped_in_order || !fast || self.fast_ones(&inside) > 1;
        // One that was leaving may be done without.
        if !inside[member] || !known || self.standing(member, &self.disks)?.leaving {
            return Ok(None);
        }
        if !self.stopped_in_order {
            // A commit, or a change of the volumes, that was cut off may be known to that member alone.
            self.settled_start()?;
        }
        match self.content(self.disks.clone(), false)? {
            None => Err("a read-only start with all members was refused".into()),
            before => Ok(before),
        }
    }

    /// Both labels of a member rot: it is recognised, and nothing is lost if others know what lives on it.
    pub(super) fn without_labels(&self, member: usize) -> Result<(), Wrong> {
        match self.known_without(member)? {
            Some(before) => self.recognised(member, &before),
            None => Ok(()),
        }
    }

    /// The same, where that is so.
    pub(super) fn recognised(&self, member: usize, before: &Content) -> Result<(), Wrong> {
        self.rot_labels(&self.disks[member]);
        let given = Given::with_unlabelled(self.disks.clone());
        if self.starts(&given)? {
            return Err("a writable start with a member without labels was not refused".into());
        }
        self.shared.marks.borrow_mut().mark(Seen::Recognised);
        self.repaired_to(&given, before, None, None)
    }

    fn rot_labels(&self, disk: &SimDisk) {
        let mut store = disk.store_mut();
        let second = store.blocks() - 512;
        for block in LABEL.chain(second..second + LABEL.end - LABEL.start) {
            self.world.random(|p| store.rot(block, p));
        }
    }

    /// Repairs what is left, again if it is cut off, and sees what has come of what was there before.
    fn repaired_to(
        &self,
        given: &Given,
        before: &Content,
        gone: Option<usize>,
        first: Option<u64>,
    ) -> Result<(), Wrong> {
        let broken = !self.starts(given)?;
        let later: Vec<u64> = self.world.random(|p| (0..p.below(CUT_OFF)).map(|_| p.below(EVENTS)).collect());
        let cut_off =
            first.or_else(|| self.world.random(|p| p.coin().then(|| p.below(EVENTS)))).into_iter().chain(later);
        let (mut copy, mut done_alone) = (None, None);
        for events in cut_off {
            let others = self.world.random(|p| (p.below(6), p.below(given.devices.len() as u64), p.below(4)));
            given.last_only.set(done_alone.is_some() || self.world.random(|p| p.below(3)) == 0);
            let point = CrashPoint { steps: 0, events: done_alone.take().unwrap_or(events) };
            given.absent.set((others.0 == 0 && given.devices.len() > 2).then_some(others.1 as usize));
            given.loose.set(given.loose.get() || given.absent.get().is_some());
            let ended = self.repair(given, Some(point))?;
            let whole = given.absent.take().is_none();
            given.last_only.take();
            if let Some(ended) = ended.filter(|_| whole) {
                self.judge(given, before, ended)?;
                return copy.map_or(Ok(()), |(i, image)| self.old_copy(given, i, image));
            }
            let i = self.world.random(|p| p.below(given.devices.len() as u64)) as usize;
            copy = Some((i, given.devices[i].store().image()));
            let news = given.new.borrow().len();
            if let (0, Some(gone), true) = (others.2, gone, news > 0) {
                given.new.borrow_mut().push(self.disk_like(gone, news + 1));
            }
            self.shared.marks.borrow_mut().mark(Seen::RepairCutOff);
            self.lose_power();
            if given.loose.get() {
                continue;
            }
            if broken && self.world.random(|p| p.coin()) && self.starts(given)? {
                // It may have been whole but for that.
                self.holds(given, before, true, "after a repair that was cut off and a start that should not be")?;
            }
            self.holds(given, before, false, "after a repair that was cut off")?;
            if Self::is_done_on_new_alone(given) {
                self.then_without_a_member(given)?;
                // The next attempt knows nothing of it, and comes as far with another new device, or a little further.
                let (again, further) = self.world.random(|p| (p.coin(), p.below(3) * p.below(EVENTS / 4)));
                if let (Some(gone), true) = (gone, again) {
                    let number = given.new.borrow().len() + 1;
                    given.add(self.disk_like(gone, number));
                    done_alone = Some(events + further);
                }
            }
        }
        self.repaired_at_last(given, before, gone, copy)
    }

    /// Whether the repair is done on one new device, and on no member.
    fn is_done_on_new_alone(given: &Given) -> bool {
        let is_done = |disk: &SimDisk| forge::own_label(disk).is_some_and(|l| l.repair == Repair::Done);
        let on_new = given.new.borrow().iter().filter(|(disk, _)| is_done(disk)).count();
        on_new == 1 && !given.devices.iter().any(is_done)
    }

    /// A member dies when the repair is done on a new device alone, whose map is whole: what is on the others is read, as if the repair had
    /// come to its end.
    fn then_without_a_member(&self, given: &Given) -> Result<(), Wrong> {
        if given.devices.len() < 2 {
            return Ok(());
        }
        let dead = self.world.random(|p| p.below(given.devices.len() as u64)) as usize;
        let without = || {
            let mut rest = given.split().0;
            rest.remove(dead);
            self.content(rest, given.kept_copies)
        };
        let now = without()?;
        let all: Vec<SimDisk> = given.split().0.into_iter().chain(given.split().1.map(|(disk, _)| disk)).collect();
        let before: Vec<Image> = all.iter().map(|d| d.store().image()).collect();
        let ended = self.repair(given, None)?;
        self.lose_power();
        let at_the_end = without()?;
        all.iter().zip(before).for_each(|(d, image)| drop(d.store_mut().swap_image(image)));
        let (Some(Ok(_)), Some(at_the_end)) = (ended, at_the_end) else { return Ok(()) };
        let zeros = Some(crc32c(&[0; BLOCK as usize]));
        let blocks = |content: Content| content.into_iter().flat_map(|(_, blocks)| blocks);
        // What is given up may be in doubt as long as the repair is not done.
        let same = |(now, end): (Option<u32>, Option<u32>)| now == end || (now.is_none() && end == zeros);
        match now.is_some_and(|now| blocks(now).zip(blocks(at_the_end)).all(same)) {
            true => Ok(()),
            false => {
                Err("what is read without a member, when a repair is done on a new device, is not what it comes to"
                    .into())
            }
        }
    }

    /// The repair is not cut off any more. New ones may be out of reach from here on, and the one in whose place they came work again.
    fn repaired_at_last(
        &self,
        given: &Given,
        before: &Content,
        gone: Option<usize>,
        copy: Option<(usize, Image)>,
    ) -> Result<(), Wrong> {
        let (which, works) = self.world.random(|p| (p.below(6), p.coin()));
        let away = given.without_new(which);
        let known = !given.loose.get();
        if let (false, true, Some(gone)) = (away.is_empty(), works, gone) {
            given.back.replace(Some(self.disks[gone].clone()));
            given.loose.set(true);
        }
        let Some(ended) = self.repair(given, None)? else { return Err("crashed without a crash point".into()) };
        let is_done = ended.is_ok();
        if !(away.is_empty() || is_done) {
            // There is no room without them, for instance; and what a repair is in the midst of is not known without them either.
            return match ended {
                Err(RepairError::NoMember(_) | RepairError::NoRoom { .. } | RepairError::TierSmall { .. }) => Ok(()),
                ended if given.loose.get() => self.judge(given, before, ended),
                ended => Err(format!("a repair without its new device was refused: {:?}", ended.err())),
            };
        }
        let used = self.world.random(|p| p.coin());
        match (away.is_empty(), copy) {
            (true, Some((i, image))) => {
                self.judge(given, before, ended)?;
                self.old_copy(given, i, image)
            }
            (false, _) if known && !used => self.are_back(given, away),
            (false, _) if known => {
                self.judge(given, before, ended)?;
                self.are_back(given, away)
            }
            _ => self.judge(given, before, ended),
        }
    }

    /// New devices of repairs that were cut off, and that was done without them, are connected again, some of them when the group was used
    /// and repaired once more: nothing was served with them, and nothing is otherwise with them than without.
    fn are_back(&self, given: &Given, away: Vec<(SimDisk, Tier)>) -> Result<(), Wrong> {
        self.lose_power();
        if self.world.random(|p| p.coin()) {
            let again = self.used_once(given)? && matches!(self.repair(given, None)?, Some(Ok(_)));
            self.lose_power();
            if !again {
                return Err("a group could not be used and repaired again".into());
            }
            self.shared.marks.borrow_mut().mark(Seen::LeftByOlder);
        }
        let members = given.split().0;
        let without = self.content(members.clone(), given.kept_copies)?;
        given.new.borrow_mut().extend(away);
        let with = self.content(given.split().0, given.kept_copies)?;
        if without.is_none() || with != without {
            return Err("a new device of a repair that was done without it changes what is read".into());
        }
        match self.starts(given)? {
            true => self.recognised_beside(given, &members),
            false => Err("a start is refused beside a new device of a repair that was done without it".into()),
        }
    }

    /// A member loses its labels beside them: it is known by what else is on it, and not struck off.
    fn recognised_beside(&self, given: &Given, members: &[SimDisk]) -> Result<(), Wrong> {
        self.lose_power();
        self.rot_labels(&members[self.world.random(|p| p.below(members.len() as u64)) as usize]);
        match self.repair(given, None)? {
            Some(Ok(report)) if !report.struck_off.is_empty() => {
                Err("a member without labels is struck off beside a new device of a repair that was done without it"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// A member as it was while a repair was under way is put in its place, after the group was used and repaired once more.
    fn old_copy(&self, given: &Given, member: usize, image: Image) -> Result<(), Wrong> {
        if !self.used_once(given)? {
            return Ok(());
        }
        if !matches!(self.repair(given, None)?, Some(Ok(_))) {
            return Ok(());
        }
        self.lose_power();
        let now = self.content(given.split().0, false)?;
        given.devices[member].store_mut().swap_image(image);
        if self.world.random(|p| p.coin()) {
            // Then it has to prove that it is a member by what else is on it.
            self.rot_labels(&given.devices[member]);
            if !matches!(self.repair(given, None)?, Some(Ok(_))) {
                return Ok(());
            }
            self.lose_power();
        }
        let (Some(shown), Some(now)) = (self.content(given.split().0, false)?, now) else { return Ok(()) };
        let zeros = Some(crc32c(&[0; BLOCK as usize]));
        let blocks = |content: Content| content.into_iter().flat_map(|(_, blocks)| blocks);
        let old = |(shown, now): (Option<u32>, Option<u32>)| shown.is_some() && shown != now && shown != zeros;
        match blocks(shown).zip(blocks(now)).any(old) {
            true => Err("an old copy of a member is taken for it".into()),
            false => Ok(()),
        }
    }

    /// The first chunks of each volume are written and the group is stopped, at once after a start, if it starts.
    pub(super) fn used_once(&self, given: &Given) -> Result<bool, Wrong> {
        // The mover gives volumes back what they were promised on the SSDs, where one has gone.
        let options = OpenOptions { migrate: true, ..self.open_options() };
        let Some((env, group)) = self.try_start(given.split().0, options)? else { return Ok(false) };
        let volumes: Vec<_> = group.volume_names().iter().filter_map(|n| group.volume(n)).collect();
        let ended = env.run(STEP_LIMIT, async move {
            // The later ones are those bound to a tier; while others are written the mover would bring their room back.
            for v in volumes.iter().rev() {
                let len = v.size().min(USED * CHUNK);
                v.write(0, BufMut::zeroed(len as usize).freeze(), WriteFlags::default()).await?;
            }
            group.stop().await
        });
        env.kill();
        self.lose_power();
        match ended {
            Ended::Done(Ok(())) => Ok(true),
            Ended::Done(Err(e)) => Err(format!("a group could not be used after a repair: {e}")),
            Ended::Crashed | Ended::Hung(_) => Err("a group did not stop after a repair".into()),
        }
    }

    /// An empty disk like this one.
    pub(super) fn disk_like(&self, index: usize, number: usize) -> (SimDisk, Tier) {
        let m = &self.shared.specs[index];
        let traits = DeviceTraits { discard: m.discard, rotational: m.tier == Tier::Slow };
        let disk = SimDisk::new(
            &self.world,
            self.disks.len() + number,
            self.disks[index].size(),
            traits,
            Speed::of(m.tier).latency(),
        );
        (disk, m.tier)
    }

    /// How a repair ends; nothing if the power goes before.
    pub(super) fn repair(
        &self,
        given: &Given,
        point: Option<CrashPoint>,
    ) -> Result<Option<Result<Report, RepairError>>, Wrong> {
        let (devices, new) = given.split();
        let (kept_copies, journal) = (given.kept_copies, self.scenario.journal);
        self.world.restart(point);
        let env = SimEnv::new(&self.world);
        let own = env.clone();
        let ended = env.run(STEP_LIMIT, async move {
            let mut plan = Plan::new(own, devices, kept_copies).await?;
            if let Some((disk, tier)) = new {
                let new = NewMember { tier, force: false, journal_blocks: (journal > 0).then_some(journal) };
                plan.add(disk, &new).await?;
            }
            plan.carry_out().await
        });
        env.kill();
        match ended {
            Ended::Done(result) => Ok(Some(result)),
            Ended::Crashed => Ok(None),
            Ended::Hung(why) => Err(format!("a repair hung: {why}")),
        }
    }

    /// A repair has ended.
    fn judge(&self, given: &Given, before: &Content, ended: Result<Report, RepairError>) -> Result<(), Wrong> {
        self.lose_power();
        match ended {
            Ok(_) => {}
            // It says so before it writes anything.
            Err(RepairError::NoMember(_) | RepairError::NoRoom { .. } | RepairError::TierSmall { .. }) => {
                return self.holds(given, before, false, "after a repair that was refused");
            }
            // Those who were without each other have each struck the other off.
            Err(RepairError::Open(OpenError::Fork { .. } | OpenError::Stale { .. })) if given.loose.get() => {
                return Ok(());
            }
            Err(e) => return Err(format!("a repair was refused: {e}")),
        }
        self.shared.marks.borrow_mut().mark(Seen::Repaired);
        self.is_sound(given)?;
        self.holds(given, before, true, "after a repair")?;
        if !self.starts(given)? {
            return Err("a start after a repair was refused".into());
        }
        self.holds(given, before, true, "after a repair and a start")?;
        match self.used_once(given)? {
            true => Ok(()),
            false => Err("the next start after a repair was refused".into()),
        }
    }

    /// Whether a writable start is not refused. Its power goes soon after.
    pub(super) fn starts(&self, given: &Given) -> Result<bool, Wrong> {
        let started = self.try_start(given.split().0, OpenOptions { migrate: false, ..self.open_options() })?;
        if let Some((env, _)) = &started {
            env.kill();
        }
        self.lose_power();
        Ok(started.is_some())
    }

    /// The check finds nothing.
    pub(super) fn is_sound(&self, given: &Given) -> Result<(), Wrong> {
        let env = SimEnv::new(&self.world);
        let (checker, devices) = (env.clone(), given.split().0);
        let ended = env.run(STEP_LIMIT, async move { inspect::check(checker, devices, &|_, _| {}).await });
        env.kill();
        match ended {
            // Devices that are no members, and were none before, are told of.
            Ended::Done(Ok(report)) => match report.problems.iter().find(|p| p.serious || p.what.contains("header")) {
                None => Ok(()),
                Some(p) => Err(format!("after a repair the check finds {p:?}")),
            },
            Ended::Done(Err(e)) => Err(format!("after a repair the check was refused: {e}")),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("the check hung: {why}")),
        }
    }
}
