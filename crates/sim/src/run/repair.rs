//! A group is repaired, and the power goes on the way: what was served before is served afterwards, what was not is zeros.
//! A part of the experiments in `damage`.

use bimetal_format::block::crc32c;
use bimetal_volume::backend::Backend;
use bimetal_volume::env::{Device as _, DeviceTraits};
use bimetal_volume::group::structure::NewMember;
use bimetal_volume::inspect;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::repair::{Plan, RepairError, Report};
use bimetal_volume::units::{Tier, CHUNK};

use super::damage::LABEL;
use super::{Run, Wrong, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::{Ended, SimEnv};
use crate::scenario::Speed;
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;
/// Repairs of one experiment that are cut off, at most, and events after which they are.
const CUT_OFF: u64 = 4;
const EVENTS: u64 = 160;

/// By volume, its name and, block by block, what is read: the checksum of it, or nothing where that is an error.
type Content = Vec<(String, Vec<Option<u32>>)>;

/// What a repair is given.
struct Given {
    /// Members that are left.
    devices: Vec<SimDisk>,
    /// A device in place of one that is gone.
    new: Option<(SimDisk, Tier)>,
    /// Older copies are better than nothing.
    kept_copies: bool,
    /// A member has no labels: what is on it is not served until the repair is done.
    unlabelled: bool,
}

impl Given {
    /// All devices; the new one as such until a repair has made it a member.
    fn split(&self) -> (Vec<SimDisk>, Option<(SimDisk, Tier)>) {
        let mut devices = self.devices.clone();
        let joined = self.new.as_ref().filter(|(disk, _)| super::forge::own_uuid(disk).is_some());
        devices.extend(joined.map(|(disk, _)| disk.clone()));
        (devices, self.new.clone().filter(|_| joined.is_none()))
    }
}

impl Run<'_> {
    /// A member is gone, and the first repair is cut off after so many events.
    pub(super) fn repaired_without(&self, gone: usize, events: u64) -> Result<(), Wrong> {
        let rest = self.disks.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, d)| d.clone()).collect();
        self.repaired(rest, Some(gone), Some(events))
    }

    /// Repairs what is left, half of the time with a device in place of `gone`, in some attempts of which all but the last are
    /// cut off, the first after so many events.
    pub(super) fn repaired(&self, devices: Vec<SimDisk>, gone: Option<usize>, first: Option<u64>) -> Result<(), Wrong> {
        let (replaced, kept_copies) = self.world.random(|p| (p.coin(), p.coin()));
        let new = gone.filter(|_| replaced).map(|i| self.disk_like(i));
        let given = Given { devices, new, kept_copies, unlabelled: false };
        match self.content(given.devices.clone(), kept_copies)? {
            Some(before) => self.repaired_to(&given, &before, first),
            None => Ok(()),
        }
    }

    /// Both labels of a member rot: it is recognised, and nothing is lost if others know what lives on it.
    pub(super) fn without_labels(&self, member: usize) -> Result<(), Wrong> {
        let inside = self.insiders()?;
        let fast = self.shared.specs[member].tier == Tier::Fast;
        let known = self.stopped_in_order || !fast || self.fast_ones(&inside) > 1;
        // A commit that was cut off may be known to that member alone.
        let same = self.stopped_in_order || !fast;
        // One that was leaving may be done without.
        if !inside[member] || !known || self.leaving(member)?.is_some() {
            return Ok(());
        }
        let Some(before) = self.content(self.disks.clone(), false)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let mut store = self.disks[member].store_mut();
        let second = store.blocks() - 512;
        for block in LABEL.chain(second..second + LABEL.end - LABEL.start) {
            self.world.random(|p| store.rot(block, p));
        }
        drop(store);
        let given = Given { devices: self.disks.clone(), new: None, kept_copies: false, unlabelled: true };
        if self.starts(&given)? {
            return Err("a writable start with a member without labels was not refused".into());
        }
        match same {
            true => self.repaired_to(&given, &before, None),
            false => self.repair(&given, None)?.map_or(Ok(()), |ended| self.repaired_at_all(&given, ended)),
        }
    }

    fn repaired_at_all(&self, given: &Given, ended: Result<Report, RepairError>) -> Result<(), Wrong> {
        self.lose_power();
        ended.map_err(|e| format!("a repair was refused: {e}"))?;
        match self.starts(given)? {
            true => Ok(()),
            false => Err("a start after a repair was refused".into()),
        }
    }

    /// Repairs what is left, again if it is cut off, and sees what has come of what was there before.
    fn repaired_to(&self, given: &Given, before: &Content, first: Option<u64>) -> Result<(), Wrong> {
        let broken = !self.starts(given)?;
        let later: Vec<u64> = self.world.random(|p| (0..p.below(CUT_OFF)).map(|_| p.below(EVENTS)).collect());
        let cut_off =
            first.or_else(|| self.world.random(|p| p.coin().then(|| p.below(EVENTS)))).into_iter().chain(later);
        for events in cut_off {
            let point = CrashPoint { steps: 0, events };
            if let Some(ended) = self.repair(given, Some(point))? {
                return self.judge(given, before, ended);
            }
            self.shared.marks.borrow_mut().mark(Seen::RepairCutOff);
            self.lose_power();
            if broken && self.world.random(|p| p.coin()) && self.starts(given)? {
                // It may have been whole but for that.
                self.holds(given, before, true, "after a repair that was cut off and a start that should not be")?;
            }
            self.holds(given, before, false, "after a repair that was cut off")?;
        }
        match self.repair(given, None)? {
            Some(ended) => self.judge(given, before, ended),
            None => Err("crashed without a crash point".into()),
        }
    }

    /// An empty disk like this one.
    fn disk_like(&self, index: usize) -> (SimDisk, Tier) {
        let m = &self.shared.specs[index];
        let traits = DeviceTraits { discard: m.discard, rotational: m.tier == Tier::Slow };
        let disk = SimDisk::new(
            &self.world,
            self.disks.len() + 1,
            self.disks[index].size(),
            traits,
            Speed::of(m.tier).latency(),
        );
        (disk, m.tier)
    }

    /// How a repair ends; nothing if the power goes before.
    fn repair(&self, given: &Given, point: Option<CrashPoint>) -> Result<Option<Result<Report, RepairError>>, Wrong> {
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
            Err(e) => return Err(format!("a repair was refused: {e}")),
        }
        self.shared.marks.borrow_mut().mark(Seen::Repaired);
        self.is_sound(given)?;
        self.holds(given, before, true, "after a repair")?;
        if !self.starts(given)? {
            return Err("a start after a repair was refused".into());
        }
        self.holds(given, before, true, "after a repair and a start")
    }

    /// Whether a writable start is not refused. Its power goes soon after.
    fn starts(&self, given: &Given) -> Result<bool, Wrong> {
        let started = self.try_start(given.split().0, OpenOptions { migrate: false, ..self.open_options() })?;
        if let Some((env, _)) = &started {
            env.kill();
        }
        self.lose_power();
        Ok(started.is_some())
    }

    /// The check finds nothing.
    fn is_sound(&self, given: &Given) -> Result<(), Wrong> {
        let env = SimEnv::new(&self.world);
        let (checker, devices) = (env.clone(), given.split().0);
        let ended = env.run(STEP_LIMIT, async move { inspect::check(checker, devices).await });
        env.kill();
        match ended {
            // Devices that are no members, and were none before, are told of.
            Ended::Done(Ok(report)) => match report.problems.iter().find(|p| p.serious) {
                None => Ok(()),
                Some(p) => Err(format!("after a repair the check finds {p:?}")),
            },
            Ended::Done(Err(e)) => Err(format!("after a repair the check was refused: {e}")),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("the check hung: {why}")),
        }
    }

    /// What was served is served, and is the same; what was not is zeros, or not served as long as the repair is not `done`.
    fn holds(&self, given: &Given, before: &Content, done: bool, when: &str) -> Result<(), Wrong> {
        let Some(now) = self.content(given.split().0, given.kept_copies)? else {
            return Err(format!("{when} a read-only start was refused"));
        };
        let zeros = crc32c(&[0; BLOCK as usize]);
        let names = |c: &Content| c.iter().map(|(name, blocks)| (name.clone(), blocks.len())).collect::<Vec<_>>();
        if names(before) != names(&now) {
            return Err(format!("{when} there are other volumes"));
        }
        for ((name, was), (_, is)) in before.iter().zip(&now) {
            let wrong = |(was, is): (&Option<u32>, &Option<u32>)| match was {
                Some(_) if given.unlabelled && !done => is.is_some() && is != was,
                Some(_) => is != was,
                None => *is != Some(zeros) && (done || is.is_some()),
            };
            if let Some(block) = was.iter().zip(is).position(wrong) {
                let (was, is) = (was[block], is[block]);
                return Err(format!(
                    "{when} block {block} of volume {name} was {was:08x?} and is {is:08x?} ({zeros:08x}: zeros)"
                ));
            }
        }
        Ok(())
    }

    /// What a read-only start of these serves; nothing if it is refused.
    fn content(&self, devices: Vec<SimDisk>, kept_copies: bool) -> Result<Option<Content>, Wrong> {
        let options = OpenOptions { writable: false, allow_missing: true, kept_copies, ..self.open_options() };
        let Some((env, group)) = self.try_start(devices, options)? else { return Ok(None) };
        let volumes: Vec<_> = group.volume_names().into_iter().filter_map(|n| Some((group.volume(&n)?, n))).collect();
        let ended = env.run(STEP_LIMIT, async move {
            let mut all = Content::new();
            for (v, name) in volumes {
                let mut blocks = Vec::new();
                for at in (0..v.size()).step_by(CHUNK as usize) {
                    blocks.extend(read_chunk(&v, at).await);
                }
                all.push((name, blocks));
            }
            all
        });
        env.kill();
        match ended {
            Ended::Done(all) => Ok(Some(all)),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("read hung: {why}")),
        }
    }
}

/// The blocks of a chunk, together if that is possible.
async fn read_chunk(v: &impl Backend, at: u64) -> Vec<Option<u32>> {
    let sums = |bytes: Vec<u8>| bytes.chunks(BLOCK as usize).map(|b| Some(crc32c(b))).collect::<Vec<_>>();
    if let Ok(pieces) = v.read(at, CHUNK).await {
        return sums(bimetal_volume::gather(&pieces));
    }
    let mut out = Vec::new();
    for block in (at..at + CHUNK).step_by(BLOCK as usize) {
        match v.read(block, BLOCK).await {
            Ok(pieces) => out.extend(sums(bimetal_volume::gather(&pieces))),
            Err(_) => out.push(None),
        }
    }
    out
}
