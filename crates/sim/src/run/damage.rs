//! Starts with a member missing, stale or rotten. Each is an experiment on the side: the media are put back afterwards,
//! so that the run goes on as if it had not been.

use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, Extent, Piece};
use bimetal_volume::env::Env as _;
use bimetal_volume::error::Error;
use bimetal_volume::fate::{Fate, FateRun};
use bimetal_volume::group::OpenError;
use bimetal_volume::options::{MemberState, OpenOptions};
use bimetal_volume::units::{Tier, CHUNK};
use bimetal_volume::{Group, Volume};

use super::table::listed;
use super::{Run, Shared, Wrong, SLOTS_START, STEP_LIMIT};
use crate::counters::Seen;
use crate::disk::{Image, SimDisk};
use crate::env::{Ended, SimEnv};
use crate::scenario::{Damage, End};
use crate::world::CrashPoint;

const BLOCK: u64 = 4096;
/// How long a group is open whose start was not cut off.
const AFTER_START: Duration = Duration::from_secs(2);
/// Blocks of the first label.
const LABEL: std::ops::Range<u64> = 16..32;
/// First block after the labels' zone: the journal begins there.
const JOURNAL: u64 = 256;

impl Run<'_> {
    /// Only after a power cut or stop: with data in caches the media say nothing.
    pub(super) fn damaged_start(&mut self, damage: Damage, index: usize) -> Result<(), Wrong> {
        if self.disks.iter().any(|d| d.store().dirty()) {
            return Ok(());
        }
        self.heal();
        let saved: Vec<Image> = self.disks.iter().map(|d| d.store().image()).collect();
        self.world.restart(None);
        self.world.note(40, 0, || format!("experiment: {damage:?}"));
        let result = match damage {
            Damage::Missing(m) => self.without(m, false, index),
            Damage::Alone => self.without(0, true, index),
            Damage::Forged => self.forged(index),
            Damage::Gap(m) => self.gap(m),
            Damage::Lost(m) => self.lost_pages(m),
            Damage::Stale(m) => self.stale(m),
            Damage::Fork(m) => self.fork(m),
            // A crash may have torn one of the two labels: rot in the other is then a second fault at once.
            Damage::Rot(m, blocks) => self.rotten(m, blocks, self.stopped_in_order),
        };
        for (disk, image) in self.disks.iter().zip(saved) {
            disk.power_cut(false);
            disk.store_mut().swap_image(image);
        }
        self.world.note(41, 0, || "experiment over".into());
        self.shared.marks.borrow_mut().mark(Seen::DamagedStart);
        result.map_err(|e| format!("with {damage:?}: {e}"))
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
        let leaving = if alone { None } else { self.leaving(missing)? };
        // Another fast member may not know yet that it is empty.
        let may_go = leaving == Some(Leaving::Empty) && (tier == Tier::Slow || self.stopped_in_order);
        if leaving == Some(Leaving::Empty) {
            self.cut_off_starts(&rest, may_go)?;
        }
        for allow_missing in [false, true] {
            match self.try_start(rest.clone(), OpenOptions { allow_missing, ..self.open_options() })? {
                Some((env, group)) if leaving.is_some() => return self.without_dead(&env, &group),
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
        let safe = (known || exact).then(|| tier_code(tier.other()));
        let view = View { healthy: &healthy, safe, exact };
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
        Ok(())
    }

    /// A member that was leaving is taken for one that has left: then all data is there without it, and still is when it
    /// comes back.
    fn without_dead(&self, env: &SimEnv, group: &Group<SimEnv>) -> Result<(), Wrong> {
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

    /// Writable starts without an emptied member, and with it, that are cut off. None is refused if the rest knows for sure
    /// that it is empty.
    fn cut_off_starts(&self, rest: &[SimDisk], may_go: bool) -> Result<(), Wrong> {
        for _ in 0..self.world.random(|p| p.below(17)) {
            let (back, events) = self.world.random(|p| (p.coin(), p.below(220)));
            let devices = if back { self.disks.clone() } else { rest.to_vec() };
            match self.cut_off_start(devices, events)? {
                // A start that began an epoch on that member alone: two histories are never put together.
                Some(OpenError::Fork { .. }) if back => {}
                Some(refusal) if back || may_go => {
                    return Err(format!("a start after others that were cut off was refused; the emptied member is back: {back}: {refusal}"));
                }
                _ => {}
            }
        }
        self.lose_power();
        Ok(())
    }

    fn lose_power(&self) {
        self.disks.iter().for_each(|d| d.power_cut(false));
        self.world.restart(None);
    }

    /// A writable start, and the power goes after so many events: in it, or soon after. Gives why it was refused, if it was.
    fn cut_off_start(&self, devices: Vec<SimDisk>, events: u64) -> Result<Option<OpenError>, Wrong> {
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

    /// Whether the member on this disk is leaving.
    fn leaving(&self, disk: usize) -> Result<Option<Leaving>, Wrong> {
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let uuid = super::forge::own_uuid(&self.disks[disk]);
        let members = group.status().members;
        env.kill();
        let leaving = members.iter().find(|m| Some(m.uuid) == uuid && m.state == MemberState::Leaving);
        Ok(leaving.map(|m| if m.free == m.slots { Leaving::Empty } else { Leaving::InUse }))
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
        if self.scenario.spares.is_empty() {
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

    fn fast_ones(&self, inside: &[bool]) -> usize {
        self.scenario.disks().zip(inside).filter(|(m, inside)| m.tier == Tier::Fast && **inside).count()
    }

    /// A writable start of all members, and the power goes as soon as it is done.
    fn settled_start(&self) -> Result<(), Wrong> {
        let options = OpenOptions { migrate: false, ..self.open_options() };
        let Some((env, _group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a start with all members was refused".into());
        };
        env.kill();
        self.disks.iter().for_each(|d| d.power_cut(false));
        Ok(())
    }

    /// C5.2: an older page is damaged, not a fallback.
    fn lost_pages(&self, member: usize) -> Result<(), Wrong> {
        let Some(before) = &self.before else { return Ok(()) };
        let mut store = self.disks[member].store_mut();
        for block in super::forge::pages(&store, member, SLOTS_START / BLOCK) {
            store.revert(block, &before[member]);
        }
        drop(store);
        let any = OpenOptions { writable: false, ..self.open_options() };
        match self.try_start(self.disks.clone(), any)? {
            None => Ok(()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, Some(View::NOTHING), false);
                env.kill();
                result
            }
        }
    }

    /// C7.3: a page that gives two chunks one slot. Nobody may read the data of another.
    fn forged(&self, index: usize) -> Result<(), Wrong> {
        if index == 0 || self.scenario.sessions[index - 1].end != End::Stop {
            return Ok(());
        }
        for (i, disk) in self.disks.iter().enumerate() {
            super::forge::double_homes(&mut disk.store_mut(), i, SLOTS_START / BLOCK);
        }
        let any = OpenOptions { writable: false, ..self.open_options() };
        match self.try_start(self.disks.clone(), any)? {
            None => Ok(()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, Some(View::NOTHING), false);
                env.kill();
                result
            }
        }
    }

    /// C5: damaged metadata is mended from another copy, or reads as an error; never as other data.
    fn rotten(&self, member: usize, blocks: u32, labels: bool) -> Result<(), Wrong> {
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
        let any = OpenOptions { writable: false, ..self.open_options() };
        match self.try_start(self.disks.clone(), any)? {
            None => Err("a read-only start with some rotten blocks on one member was refused".into()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, Some(View::NOTHING), false);
                env.kill();
                result
            }
        }
    }

    /// C5: what a rotten journal block knew is lost, and said to be; a slot that it gave to another chunk shows that
    /// one's data to nobody.
    fn gap(&self, member: usize) -> Result<(), Wrong> {
        let disk = &self.disks[member];
        let candidates = super::forge::journal_blocks(&disk.store(), member, JOURNAL..SLOTS_START / BLOCK);
        let Some(last) = candidates.iter().map(|(_, generation)| *generation).max() else { return Ok(()) };
        let older: Vec<u64> = candidates.iter().filter(|(_, g)| *g < last).map(|(block, _)| *block).collect();
        if older.is_empty() {
            return Ok(());
        }
        let block = self.world.random(|p| *p.pick(&older));
        self.world.random(|p| disk.store_mut().rot(block, p));
        let any = OpenOptions { writable: false, ..self.open_options() };
        match self.try_start(self.disks.clone(), any)? {
            None => Err("a read-only start with one rotten journal block was refused".into()),
            Some((env, group)) => {
                let result = self.peek(&env, &group, Some(View::NOTHING), false);
                env.kill();
                result
            }
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

    /// What a start with all members shows, without writing: where every block lives.
    fn healthy_view(&self) -> Result<Vec<Vec<Extent>>, Wrong> {
        let options = OpenOptions { writable: false, ..self.open_options() };
        let Some((env, group)) = self.try_start(self.disks.clone(), options)? else {
            return Err("a read-only start with all members was refused".into());
        };
        let extents = |v: &Option<Volume<SimEnv>>| match v {
            Some(v) => v.extents(0, v.size(), usize::MAX).map_err(|e| format!("extents: {e}")),
            None => Ok(Vec::new()),
        };
        let view = listed(&self.shared, &group)?.iter().map(extents).collect();
        env.kill();
        view
    }

    /// Reads everything, run by run of one fate: reads and fates must agree, and each fate must be true. With a view
    /// errors are legal where it says so, else nowhere.
    pub(super) fn peek(
        &self,
        env: &SimEnv,
        group: &Group<SimEnv>,
        view: Option<View<'_>>,
        kept_copies: bool,
    ) -> Result<(), Wrong> {
        let volumes = Rc::new(listed(&self.shared, group)?);
        let mut fates = Vec::new();
        for (index, volume) in volumes.iter().enumerate() {
            let Some(v) = volume else {
                fates.push(Vec::new());
                continue;
            };
            let found = v.fates(0, v.size(), usize::MAX).map_err(|e| format!("fates of volume {index}: {e}"))?;
            check_fates(&found, v.size(), view, index).map_err(|e| format!("fates of volume {index}: {e}"))?;
            let extents = v.extents(0, v.size(), usize::MAX).map_err(|e| format!("extents of volume {index}: {e}"))?;
            check_holes(&found, &extents).map_err(|e| format!("extents of volume {index}: {e}"))?;
            fates.push(found);
        }
        let shared = self.shared.clone();
        let ended = env.run(STEP_LIMIT, async move {
            for (index, volume) in volumes.iter().enumerate() {
                let Some(volume) = volume else { continue };
                for run in &fates[index] {
                    let mut at = run.offset;
                    while at < run.offset + run.len {
                        let len = (CHUNK - at % CHUNK).min(run.offset + run.len - at);
                        read_fate(&shared, index, volume, (at, len), run.fate, kept_copies).await?;
                        at += len;
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

/// A member that is leaving.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Empty,
    InUse,
}

/// Reads a range of one fate, which is inside a chunk, and holds what comes against it.
async fn read_fate(
    shared: &Shared,
    index: usize,
    volume: &Volume<SimEnv>,
    (at, len): (u64, u64),
    fate: Fate,
    kept_copies: bool,
) -> Result<(), Wrong> {
    let issued = shared.world.sequence();
    let answer = volume.read(at, len).await;
    let place = || format!("read {at}+{len} of volume {index}, {fate:?}");
    let lost = matches!(fate, Fate::Lost | Fate::PerhapsLost);
    let served = !lost && (fate != Fate::KeptCopy || kept_copies);
    match answer {
        Ok(_) if !served => Err(format!("{}: no error", place())),
        Ok(pieces) => {
            let zeros = pieces.iter().all(|p| matches!(p, Piece::Zero(_)));
            if zeros != (fate == Fate::NeverWritten) {
                return Err(format!("{}: zeros without data: {zeros}", place()));
            }
            let stale = matches!(fate, Fate::PossiblyStale | Fate::KeptCopy);
            let judged = shared.oracle.borrow_mut().peek(index, at, &pieces, issued, stale);
            judged.map_err(|w| format!("{}: {w}", place()))
        }
        Err(Error::Lost) if !served => Ok(()),
        Err(e) => Err(format!("{} failed: {e}", place())),
    }
}

/// What a start with all members shows, and what a start without some of them owes to it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// Where every block of each volume lives; empty: not known.
    healthy: &'a [Vec<Extent>],
    /// The tier (as extents number it) whose data must be served; all else may be lost.
    safe: Option<u8>,
    /// What holds no data must be told from what is lost.
    exact: bool,
}

impl View<'_> {
    /// Anything may be lost.
    const NOTHING: View<'static> = View { healthy: &[], safe: None, exact: false };
}

/// Whether fates cover the volume, and are no worse than the view allows.
fn check_fates(found: &[FateRun], size: u64, view: Option<View<'_>>, volume: usize) -> Result<(), Wrong> {
    let mut at = 0;
    for run in found {
        if run.offset != at || run.len == 0 || run.len % BLOCK != 0 {
            return Err(format!("{run:?} does not follow {at}"));
        }
        at += run.len;
    }
    if at != size {
        return Err(format!("they end at {at} of {size}"));
    }
    let Some(view) = view else {
        let bad = found.iter().find(|r| !matches!(r.fate, Fate::NeverWritten | Fate::Whole));
        return bad.map_or(Ok(()), |r| Err(format!("nothing is missing, but {r:?}")));
    };
    let mut at = 0;
    for e in view.healthy.get(volume).into_iter().flatten() {
        for run in found.iter().filter(|r| r.offset < at + e.len && at < r.offset + r.len) {
            let lost = matches!(run.fate, Fate::Lost | Fate::PerhapsLost | Fate::KeptCopy);
            // What is on both tiers (a kept copy) is safe whichever of them is gone.
            let safe = e.data && view.safe.is_some_and(|t| e.tier == t || e.tier == BOTH);
            if lost && safe {
                return Err(format!("{run:?}, but {at}+{} is on what is left", e.len));
            }
            if view.exact && (run.fate == Fate::NeverWritten) == e.data {
                return Err(format!("{run:?}, but {at}+{} holds data: {}", e.len, e.data));
            }
            if view.exact && matches!(run.fate, Fate::PossiblyStale | Fate::PerhapsLost) {
                return Err(format!("{run:?}, but what is left knows everything"));
            }
        }
        at += e.len;
    }
    Ok(())
}

/// Whether holes are where nothing was ever written, and nowhere else: a client takes them for zeros unread.
fn check_holes(found: &[FateRun], extents: &[Extent]) -> Result<(), Wrong> {
    let mut at = 0;
    for e in extents {
        for run in found.iter().filter(|r| r.offset < at + e.len && at < r.offset + r.len) {
            if e.data == (run.fate == Fate::NeverWritten) {
                return Err(format!("{run:?}, but {at}+{} holds data: {}", e.len, e.data));
            }
        }
        at += e.len;
    }
    Ok(())
}

/// Extents of chunks with a kept copy say so.
const BOTH: u8 = 3;

fn tier_code(tier: Tier) -> u8 {
    match tier {
        Tier::Fast => 1,
        Tier::Slow => 2,
    }
}
