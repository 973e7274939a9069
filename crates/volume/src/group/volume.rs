//! A volume: the face that exports see.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use bimetal_format::label::{PageRun, PlacementCode, VolumeRow, VolumeState};
use bimetal_format::ENTRIES_PER_PAGE;

use super::core::Core;
use super::gate::OwnRoom;
use crate::backend::{Backend, Extent, Pieces, Wanted, WriteFlags};
use crate::buf::Buf;
use crate::dissolve::watch::Watch;
use crate::env::Env;
use crate::error::Error;
use crate::family::Cipher;
use crate::fate::Fate;
use crate::io::split::{parts, runs, Part};
use crate::kept::kept_slot;
use crate::mutant::{self, Mutant};
use crate::options::Uuid;
use crate::tier::Policy;
use crate::turns::Turns;
use crate::units::{ChunkId, MemberIndex, Placement, Tier, BLOCK, CHUNK};
use crate::wait::{Pace, Signal};

/// Stretches of a volume that one answer of [`Backend::extents`] tells of at most: nobody else has a turn meanwhile. Whoever asks
/// goes on where the answer ends.
const LOOKS: usize = 8192;

/// What the group knows of a volume.
pub(crate) struct VolumeInfo {
    pub(crate) name: RefCell<String>,
    pub(crate) uuid: Uuid,
    pub(crate) id: u32,
    /// Bytes that requests may reach. Less than what the table says while the volume shrinks.
    pub(crate) size: Cell<u64>,
    /// Bytes by the table.
    listed: Cell<u64>,
    pub(crate) placement: Placement,
    /// Its pages of the map, in the order of its chunks.
    pub(crate) runs: RefCell<Rc<[PageRun]>>,
    /// It is deleted: no request is let in.
    pub(crate) deleted: Cell<bool>,
    /// It is about to be: no request is let in either, but what it is promised is kept until the labels say so.
    pub(crate) ending: Cell<bool>,
    /// Its family and key, if it has a family.
    pub(crate) cipher: Cipher,
    pub(crate) fast_chunks: Cell<u64>,
    pub(crate) slow_chunks: Cell<u64>,
    /// Of a volume bound to a tier: chunks on members that leave. They will need slots elsewhere.
    pub(crate) homeless: Cell<u64>,
    /// Chunks on each member, as far as there were any.
    on_members: RefCell<Vec<u64>>,
    requests: InFlight,
    /// For bytes in flight, beside the room that all volumes share.
    pub(crate) room: Rc<OwnRoom>,
    /// The same for a run of zeros.
    pub(crate) zeroing: Turns,
    /// Clients that came so far.
    arrivals: Cell<u64>,
    /// Of these, how many are there.
    present: Cell<u64>,
    /// Whoever copies it onto another device.
    pub(crate) watch: Watch,
}

/// Requests in flight, by the period in which they were let in. A new period begins when the volume changes.
#[derive(Default)]
struct InFlight {
    period: Cell<usize>,
    counts: [Cell<u64>; 2],
    less: Signal,
}

/// A request that was let in; leaves when dropped.
pub(crate) struct LetIn<'a>(&'a InFlight, usize);

impl Drop for LetIn<'_> {
    fn drop(&mut self) {
        let count = &self.0.counts[self.1];
        count.set(count.get() - 1);
        if count.get() == 0 {
            self.0.less.notify();
        }
    }
}

impl VolumeInfo {
    pub(crate) fn new(row: &VolumeRow) -> VolumeInfo {
        VolumeInfo {
            name: RefCell::new(row.name.clone()),
            uuid: row.uuid,
            id: row.id,
            size: Cell::new(row.size),
            listed: Cell::new(row.size),
            placement: placement_of(row),
            runs: RefCell::new(row.runs.as_slice().into()),
            deleted: Cell::new(row.state == VolumeState::Deleted),
            ending: Cell::new(false),
            cipher: Cipher::of(row),
            fast_chunks: Cell::new(0),
            slow_chunks: Cell::new(0),
            homeless: Cell::new(0),
            on_members: RefCell::default(),
            requests: InFlight::default(),
            room: Rc::default(),
            zeroing: Turns::new(1),
            arrivals: Cell::new(0),
            present: Cell::new(0),
            watch: Watch::default(),
        }
    }

    /// Takes over what the table says of it now.
    pub(crate) fn update(&self, row: &VolumeRow) {
        self.name.borrow_mut().clone_from(&row.name);
        self.size.set(row.size);
        self.listed.set(row.size);
        *self.runs.borrow_mut() = row.runs.as_slice().into();
        self.deleted.set(row.state == VolumeState::Deleted);
        self.cipher.update(row);
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.size.get() / CHUNK
    }

    /// Chunks that it is promised a home for (I5): those of the table, also while it shrinks, which may yet be refused.
    pub(crate) fn promised(&self) -> u64 {
        self.listed.get() / CHUNK
    }

    /// Chunks that have a home.
    pub(crate) fn mapped(&self) -> u64 {
        self.fast_chunks.get() + self.slow_chunks.get()
    }

    /// Chunks that live on a member.
    pub(crate) fn mapped_on(&self, m: MemberIndex) -> u64 {
        self.on_members.borrow().get(m as usize).copied().unwrap_or(0)
    }

    /// One chunk more or less lives on a member.
    pub(crate) fn count_on(&self, m: MemberIndex, by: i64) {
        let mut on = self.on_members.borrow_mut();
        if on.len() <= m as usize {
            on.resize(m as usize + 1, 0);
        }
        let count = &mut on[m as usize];
        *count = (*count as i64 + by) as u64;
    }

    /// Refuses a range that is not inside the volume.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        match self.cipher.is_locked() {
            true if !self.deleted.get() => Err(Error::Locked),
            _ => self.check_range(offset, len),
        }
    }

    /// Whether it has this range, locked or not.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        let size = self.size.get();
        match offset.checked_add(len) {
            _ if self.deleted.get() || self.ending.get() => Err(Error::Deleted),
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size }),
        }
    }

    /// Checks a range and lets the request in, in one step: a change of the volume waits for those let in before it.
    pub(crate) fn let_in(&self, offset: u64, len: u64) -> Result<LetIn<'_>, Error> {
        self.check(offset, len)?;
        let period = self.requests.period.get();
        let count = &self.requests.counts[period];
        count.set(count.get() + 1);
        Ok(LetIn(&self.requests, period))
    }

    /// Waits until all requests that were let in before this call have ended. One caller at a time.
    pub(crate) async fn drained(&self) {
        let before = self.requests.period.get();
        // Whoever waited before may have been given up half-way: then requests of the other period are older than these.
        while self.requests.counts[1 - before].get() > 0 {
            self.requests.less.wait().await;
        }
        self.requests.period.set(1 - before);
        while self.requests.counts[before].get() > 0 {
            self.requests.less.wait().await;
        }
    }

    /// Waits until no request is under way, or that is not waited for any more when one has ended. Beside [`VolumeInfo::drained`], which
    /// may wait for others.
    pub(crate) async fn idle_or(&self, enough: impl Fn() -> bool) {
        while self.requests.counts.iter().any(|count| count.get() > 0) && !enough() {
            self.requests.less.wait().await;
        }
    }

    /// The parts of a byte range, chunk by chunk.
    pub(crate) fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = Part> + Clone {
        let runs = self.runs.borrow().clone();
        parts(move |n| chunk_in(&runs, n), offset, len)
    }

    /// The chunks of a byte range, those that follow each other in the map together.
    pub(crate) fn chunk_ranges(&self, offset: u64, len: u64) -> impl Iterator<Item = Range<ChunkId>> {
        let runs = self.runs.borrow().clone();
        let (mut n, end) = (offset / CHUNK, (offset + len).div_ceil(CHUNK));
        std::iter::from_fn(move || {
            if n >= end {
                return None;
            }
            let first = chunk_in(&runs, n).0;
            let count = chunks_left(&runs, n).clamp(1, end - n);
            n += count;
            Some(ChunkId(first)..ChunkId(first + count))
        })
    }

    /// The chunks that it has pages for, in its order, each run as first chunk and number; those beyond its size
    /// included.
    pub(crate) fn chunk_runs(&self) -> Vec<(u64, u64)> {
        self.runs.borrow().iter().map(chunks_of).collect()
    }

    /// Which of its chunks this one is.
    pub(crate) fn number_of(&self, chunk: ChunkId) -> Option<u64> {
        let mut before = 0;
        for (first, count) in self.chunk_runs() {
            if (first..first + count).contains(&chunk.0) {
                return Some(before + chunk.0 - first);
            }
            before += count;
        }
        None
    }
}

/// First chunk and number of chunks of a run of pages.
pub(crate) fn chunks_of(run: &PageRun) -> (u64, u64) {
    (u64::from(run.first) * ENTRIES_PER_PAGE as u64, u64::from(run.count) * ENTRIES_PER_PAGE as u64)
}

/// The `n`-th chunk of a volume with these runs.
pub(crate) fn chunk_in(runs: &[PageRun], mut n: u64) -> ChunkId {
    let mut last = 0;
    for (first, count) in runs.iter().map(chunks_of) {
        if n < count {
            return ChunkId(first + n);
        }
        n -= count;
        last = first + count;
    }
    debug_assert!(false, "the range was checked");
    ChunkId(last)
}

/// How many chunks of a volume with these runs follow each other in the map from its `n`-th on.
pub(crate) fn chunks_left(runs: &[PageRun], mut n: u64) -> u64 {
    for (_, count) in runs.iter().map(chunks_of) {
        if n < count {
            return count - n;
        }
        n -= count;
    }
    0
}

fn placement_of(row: &VolumeRow) -> Placement {
    match row.placement {
        PlacementCode::Auto => Placement::Auto,
        PlacementCode::FastOnly => Placement::FastOnly,
        PlacementCode::SlowOnly => Placement::SlowOnly,
    }
}

/// A handle to a volume of an open group.
pub struct Volume<E: Env> {
    pub(crate) core: Rc<Core<E>>,
    pub(crate) info: Rc<VolumeInfo>,
}

impl<E: Env> Clone for Volume<E> {
    fn clone(&self) -> Self {
        Volume { core: self.core.clone(), info: self.info.clone() }
    }
}

impl<E: Env> Volume<E> {
    fn info(&self) -> &VolumeInfo {
        &self.info
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.info.name.borrow().clone()
    }

    /// Its name for ever.
    pub fn uuid(&self) -> Uuid {
        self.info.uuid
    }

    /// Tells the policy that the chunks of a range will be used soon, as long as that is `wanted`.
    async fn hint(&self, offset: u64, len: u64, wanted: Wanted<'_>) {
        let (mut walk, mut pace) = (self.info.walk(offset, len), Pace::default());
        while let Some(stretch) = walk.next(&self.core).filter(|_| wanted() && !self.core.stopping.get()) {
            if !stretch.unused {
                self.core.policy.borrow_mut().hint(&mut self.core.view(), stretch.first.chunk);
            }
            pace.step().await;
        }
    }

    /// What is to be said of a part, in order.
    fn extents_of(&self, part: &Part) -> impl Iterator<Item = Extent> {
        let core = &self.core;
        let entry = core.map.borrow().get(part.chunk).unwrap_or_default();
        let mapped = entry.is_mapped();
        let tier = match mapped.then(|| core.tier_of_member(entry.member)) {
            None => 0,
            Some(Tier::Fast) if kept_slot(&entry).is_some() && !core.kept.may_be_old() => 3,
            Some(Tier::Fast) => 1,
            Some(Tier::Slow) => 2,
        };
        // What holds nothing was never used.
        let heat = match mapped {
            true => core.policy.borrow().heat_level(core.map.borrow().heat(part.chunk)),
            false => 0,
        };
        // What is lost is no hole: a client takes holes for zeros without reading them (C8.1).
        let known = core.known(part.chunk);
        let (part, mask) = (*part, known.mask());
        let data = move |valid: bool| match mutant::on(Mutant::C8LostIsHole) {
            true => valid,
            false => known.fate(valid) != Fate::NeverWritten,
        };
        let (first, end) = ((part.from / BLOCK) as u32, (part.from + part.len).div_ceil(BLOCK) as u32);
        let cut = move |from: u32, to: u32| {
            let start = (u64::from(from) * BLOCK).max(part.from);
            (u64::from(to) * BLOCK).min(part.from + part.len) - start
        };
        let extent = move |(from, to, valid)| Extent { len: cut(from, to), data: data(valid), tier, heat };
        runs(mask, first, end).map(extent)
    }
}

impl<E: Env> Backend for Volume<E> {
    fn size(&self) -> u64 {
        self.info().size.get()
    }

    fn read_only(&self) -> bool {
        !self.core.writable
    }

    fn is_locked(&self) -> bool {
        self.info().cipher.is_locked()
    }

    fn sector_size(&self) -> u32 {
        self.core.sector_size
    }

    fn changes(&self) -> u64 {
        self.info().watch.changes()
    }

    fn arrive(&self) -> u64 {
        let (arrivals, present) = (&self.info().arrivals, &self.info().present);
        arrivals.set(arrivals.get() + 1);
        present.set(present.get() + 1);
        arrivals.get()
    }

    fn arrivals(&self) -> u64 {
        self.info().arrivals.get()
    }

    fn depart(&self) {
        let present = &self.info().present;
        present.set(present.get() - 1);
    }

    fn present(&self) -> u64 {
        self.info().present.get()
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.core.read(self.info(), offset, len).await
    }

    async fn write_while(&self, offset: u64, data: Buf, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.core.write(self.info(), offset, data, flags, wanted).await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.info().check(0, 0)?;
        self.core.flush().await
    }

    async fn trim_while(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.core.trim(self.info(), offset, len, flags, wanted).await
    }

    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags, wanted: Wanted<'_>) -> Result<(), Error> {
        self.core.write_zeroes(self.info(), offset, len, flags, wanted).await
    }

    async fn cache(&self, offset: u64, len: u64, wanted: Wanted<'_>) -> Result<(), Error> {
        let _in = self.info().let_in(offset, len)?;
        if self.core.writable {
            self.hint(offset, len, wanted).await;
            self.core.mover_wake.notify();
        }
        Ok(())
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        let v = self.info();
        v.check(offset, len)?;
        let mut out: Vec<Extent> = Vec::new();
        let mut walk = v.walk(offset, len);
        for _ in 0..LOOKS {
            let Some(stretch) = walk.next(&self.core) else { break };
            for e in self.extents_of(&stretch.first) {
                // What is unused is one extent of one kind, however long.
                let len = if stretch.unused { stretch.len } else { e.len };
                let full = out.len() == max.max(1);
                match out.last_mut() {
                    Some(last) if (last.data, last.tier, last.heat) == (e.data, e.tier, e.heat) => last.len += len,
                    _ if full => return Ok(out),
                    _ => out.push(Extent { len, ..e }),
                }
            }
        }
        Ok(out)
    }
}
