//! Starts with a member missing, stale or rotten. Each is an experiment on the side: the media are put back afterwards,
//! so that the run goes on as if it had not been.

use std::rc::Rc;

use bimetal_volume::backend::Backend;
use bimetal_volume::error::Error;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::Group;

use super::{volumes, Run, Wrong, SLOTS_START, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::{Image, SimDisk};
use crate::env::{Ended, SimEnv};
use crate::scenario::{Damage, MemberSpec};

const BLOCK: u64 = 4096;
/// Blocks of the first label.
const LABEL: std::ops::Range<u64> = 16..32;
/// First block after the labels' zone: the journal begins there.
const JOURNAL: u64 = 256;

impl Run<'_> {
    /// Only after a power cut or stop: with data in caches the media say nothing.
    pub(super) fn damaged_start(&mut self, damage: Damage) -> Result<(), Wrong> {
        if self.disks.iter().any(|d| d.store().dirty()) {
            return Ok(());
        }
        self.heal();
        let saved: Vec<Image> = self.disks.iter().map(|d| d.store().image()).collect();
        self.world.restart(None);
        self.world.note(40, 0, || format!("experiment: {damage:?}"));
        let result = match damage {
            Damage::Missing(m) => self.without(m),
            Damage::Stale(m) => self.stale(m),
            Damage::Rot(m, blocks) => self.rotten(m, blocks),
        };
        for (disk, image) in self.disks.iter().zip(saved) {
            disk.power_cut();
            disk.store_mut().swap_image(image);
        }
        self.world.note(41, 0, || "experiment over".into());
        self.shared.marks.borrow_mut().mark(Seen::DamagedStart);
        result.map_err(|e| format!("with {damage:?}: {e}"))
    }

    /// C8: a writable start is refused; a degraded one tells lost from never written.
    fn without(&self, missing: usize) -> Result<(), Wrong> {
        let rest: Vec<SimDisk> =
            self.disks.iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, d)| d.clone()).collect();
        if self.try_start(rest.clone(), self.open_options())?.is_some() {
            return Err("a writable start without all members was not refused".into());
        }
        // Every fast member knows everything; slow members alone only know what was theirs.
        let fast = |(i, m): (usize, &MemberSpec)| i != missing && m.tier == Tier::Fast;
        let slow_only = !self.scenario.members.iter().enumerate().any(fast);
        let degraded = OpenOptions { writable: false, allow_missing: true, ..self.open_options() };
        match self.try_start(rest, degraded)? {
            None => Err("a degraded start was refused".into()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, true, slow_only);
                env.kill();
                if self.disks.iter().any(|d| d.store().dirty()) {
                    return Err("a read-only start wrote to a member".into());
                }
                result
            }
        }
    }

    /// C4: an image from before the last session must be refused, or nothing of it may be believed.
    fn stale(&self, member: usize) -> Result<(), Wrong> {
        let Some(before) = &self.before else { return Ok(()) };
        self.disks[member].store_mut().swap_image(before[member].clone());
        match self.try_start(self.disks.clone(), self.open_options())? {
            None => Ok(()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, false, false);
                env.kill();
                result
            }
        }
    }

    /// C5: damaged metadata is mended from another copy, or reads as an error; never as other data.
    fn rotten(&self, member: usize, blocks: u32) -> Result<(), Wrong> {
        let disk = &self.disks[member];
        let pages = JOURNAL + u64::from(self.scenario.journal)..SLOTS_START / BLOCK;
        let written = |b: &u64| !matches!(disk.store().durable(*b), crate::disk::Cell::Virgin);
        let candidates: Vec<u64> = LABEL.chain(pages).filter(written).collect();
        for _ in 0..blocks {
            let block = self.world.random(|p| *p.pick(&candidates));
            self.world.random(|p| disk.store_mut().rot(block, p));
        }
        let any = OpenOptions { writable: false, ..self.open_options() };
        match self.try_start(self.disks.clone(), any)? {
            None => Err("a read-only start with some rotten blocks on one member was refused".into()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, true, false);
                env.kill();
                result
            }
        }
    }

    fn try_start(&self, devices: Vec<SimDisk>, options: OpenOptions) -> Result<Option<(SimEnv, Group<SimEnv>)>, Wrong> {
        let env = SimEnv::new(&self.world);
        let opener = env.clone();
        match env.run(STEP_LIMIT, async move { Group::open(opener, devices, options).await }) {
            Ended::Done(Ok(group)) => Ok(Some((env, group))),
            Ended::Done(Err(e)) => {
                self.world.note(42, 0, || format!("refused: {e}"));
                env.kill();
                Ok(None)
            }
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("start hung: {why}")),
        }
    }

    /// Reads everything; with `lossy` what is lost may read as an error, with `stale` older data is accepted.
    fn peek(&self, env: &SimEnv, group: &Group<SimEnv>, lossy: bool, stale: bool) -> Result<(), Wrong> {
        let volumes = Rc::new(volumes(group, self.scenario.volumes.len())?);
        let shared = self.shared.clone();
        let ended = env.run(STEP_LIMIT, async move {
            for (index, volume) in volumes.iter().enumerate() {
                for at in (0..volume.size()).step_by(CHUNK as usize) {
                    let issued = shared.world.sequence();
                    match volume.read(at, CHUNK).await {
                        Ok(pieces) => shared
                            .oracle
                            .borrow_mut()
                            .peek(index, at, &pieces, issued, stale)
                            .map_err(|w| format!("read {at}+{CHUNK}: {w}"))?,
                        Err(Error::Lost) if lossy => {}
                        Err(e) => return Err(format!("read {at}+{CHUNK} of volume {index}: {e}")),
                    }
                }
            }
            Ok(())
        });
        match ended {
            Ended::Done(result) => result,
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("read hung: {why}")),
        }
    }
}
