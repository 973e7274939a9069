//! Reads a group back by what it says of each range: whether that holds data, and whether that is lost or may be old.

use std::rc::Rc;

use bimetal_volume::backend::{Backend, Extent, Piece};
use bimetal_volume::error::Error;
use bimetal_volume::fate::{Fate, FateRun};
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use super::table::listed;
use super::{Run, Shared, Wrong, STEP_LIMIT};
use crate::env::{Ended, SimEnv};
use crate::oracle::Older;

const BLOCK: u64 = 4096;

/// What a start with all members shows, and what a start without some of them owes to it.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// Where every block of each volume lives; empty: not known.
    pub(super) healthy: &'a [Vec<Place>],
    /// The disks whose data must be served, by number; all else may be lost.
    pub(super) safe: &'a [bool],
    /// What holds no data must be told from what is lost.
    pub(super) exact: bool,
    /// What may be old lacks the newest changes at most.
    pub(super) recent: bool,
}

impl View<'_> {
    /// Anything may be lost.
    pub(super) const NOTHING: View<'static> = View { healthy: &[], safe: &[], exact: false, recent: false };
}

/// A range inside a chunk, and where it is.
pub(super) struct Place {
    len: u64,
    data: bool,
    /// The disks that it is on: that of its home, and that of a kept copy which is as good.
    on: Vec<usize>,
}

impl Run<'_> {
    /// Reads everything, run by run of one fate: reads and fates must agree, and each fate must be true. With a view
    /// errors are legal where it says so, else nowhere.
    pub(super) fn peek(
        &self,
        env: &SimEnv,
        group: &Group<SimEnv>,
        view: Option<View<'_>>,
        kept_copies: bool,
    ) -> Result<(), Wrong> {
        self.peek_at(env, listed(&self.shared, group)?, view, kept_copies)
    }

    /// The same of some volumes, by number.
    pub(super) fn peek_at(
        &self,
        env: &SimEnv,
        volumes: Vec<Option<Volume<SimEnv>>>,
        view: Option<View<'_>>,
        kept_copies: bool,
    ) -> Result<(), Wrong> {
        let volumes = Rc::new(volumes);
        let mut fates = Vec::new();
        for (index, volume) in volumes.iter().enumerate() {
            let Some(v) = volume else {
                fates.push(Vec::new());
                continue;
            };
            let found = v.fates(0, v.size(), usize::MAX).map_err(|e| format!("fates of volume {index}: {e}"))?;
            check_fates(&found, v.size(), view, index).map_err(|e| format!("fates of volume {index}: {e}"))?;
            let extents = all_extents(v)?;
            check_holes(&found, &extents).map_err(|e| format!("extents of volume {index}: {e}"))?;
            fates.push(found);
        }
        let shared = self.shared.clone();
        let recent = view.is_some_and(|v| v.recent);
        let ended = env.run(STEP_LIMIT, async move {
            for (index, volume) in volumes.iter().enumerate() {
                let Some(volume) = volume else { continue };
                for run in &fates[index] {
                    let mut at = run.offset;
                    while at < run.offset + run.len {
                        let len = (CHUNK - at % CHUNK).min(run.offset + run.len - at);
                        read_fate(&shared, index, volume, (at, len), run.fate, (kept_copies, recent)).await?;
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

/// Reads a range of one fate, which is inside a chunk, and holds what comes against it.
async fn read_fate(
    shared: &Shared,
    index: usize,
    volume: &Volume<SimEnv>,
    (at, len): (u64, u64),
    fate: Fate,
    (kept_copies, recent): (bool, bool),
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
            let stale = match fate {
                Fate::PossiblyStale if recent => Older::Recent,
                Fate::PossiblyStale | Fate::KeptCopy => Older::Any,
                _ => Older::None,
            };
            let judged = shared.oracle.borrow_mut().peek(index, at, &pieces, issued, stale);
            judged.map_err(|w| format!("{}: {w}", place()))
        }
        Err(Error::Lost) if !served => Ok(()),
        Err(e) => Err(format!("{} failed: {e}", place())),
    }
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
            // What is on two members (a kept copy) is safe whichever of them is gone.
            let safe = e.data && e.on.iter().any(|disk| view.safe.get(*disk) == Some(&true));
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

/// All extents of a volume, in as many answers as it takes.
pub(super) fn all_extents(v: &Volume<SimEnv>) -> Result<Vec<Extent>, Wrong> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < v.size() {
        let some = v.extents(at, v.size() - at, usize::MAX).map_err(|e| format!("extents of {}: {e}", v.name()))?;
        let len: u64 = some.iter().map(|e| e.len).sum();
        if len == 0 || len > v.size() - at {
            return Err(format!("extents of {} from byte {at} on cover {len} bytes", v.name()));
        }
        all.extend(some);
        at += len;
    }
    Ok(all)
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

/// Where everything in a volume lives. `disks` has the disk of each member, by index.
pub(super) fn places(v: &Volume<SimEnv>, disks: &[Option<usize>]) -> Result<Vec<Place>, Wrong> {
    let (mut places, mut at) = (Vec::new(), 0);
    for e in all_extents(v)? {
        let end = at + e.len;
        while at < end {
            let len = (CHUNK - at % CHUNK).min(end - at);
            let on = v.members_of(at).filter_map(|m| disks.get(usize::from(m)).copied().flatten()).collect();
            places.push(Place { len, data: e.data, on });
            at += len;
        }
    }
    Ok(places)
}
