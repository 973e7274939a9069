//! A simulated disk as the engine sees it: requests take virtual time, may fail, and run to their end even if nobody
//! waits for them any more.

use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeSet;
use std::future::{poll_fn, Future};
use std::rc::Rc;

use bimetal_format::layout::keys_extents;
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Answering, Device, DeviceError, DeviceTraits, Instant};

use super::cell::{Cell, BLOCK};
use super::faults::{Faults, Latency, WriteOutcome};
use super::store::{Store, Survival};
use crate::world::{Action, Signal, World};

const EIO: i32 = 5;
/// Metadata of the members of the simulator lies in so many blocks at the start and at the end.
const METADATA_BLOCKS: u64 = 512;
/// A discard that hangs is carried out after once to twice this time.
const HANG_NANOS: u64 = 60_000_000_000;
/// How long a disk that stands still answers nothing.
const STANDS_NANOS: u64 = 300_000_000_000;
/// A late write lands within this time, if no sync comes first.
const LATE_NANOS: u64 = 2_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Sync,
    Discard,
    /// A failed write or discard that lands late.
    Late,
}

struct OpState {
    kind: Kind,
    /// Content of a write or discard that is not applied yet.
    cells: Option<Vec<Cell>>,
    /// Record of one that is.
    record: Option<u32>,
    /// A read that saw its data when it was submitted.
    seen: Option<Vec<Cell>>,
    buf: Option<BufMut>,
    result: Option<Result<(), DeviceError>>,
}

/// A request on its way.
pub struct Op {
    disk: SimDisk,
    number: u64,
    first: u64,
    blocks: u64,
    /// Sequence number of its submission, and its time.
    began: u64,
    at: u64,
    /// The disk had died when it was submitted: nothing comes of it.
    dead: bool,
    signal: Signal,
    state: RefCell<OpState>,
}

impl Op {
    /// The device answers, or a late write lands.
    pub fn step(self: &Rc<Op>) {
        if self.disk.0.world.crash_point() {
            return;
        }
        let mut inner = self.disk.0.inner.borrow_mut();
        if self.state.borrow().kind == Kind::Late {
            if let Some(at) = inner.late.iter().position(|l| Rc::ptr_eq(&l.op, self)) {
                let (first, cells) = inner.late.remove(at).landing(&inner.store);
                let record = inner.store.apply(first, cells);
                inner.store.complete(record, self.disk.0.world.sequence());
            }
            return;
        }
        inner.in_flight.retain(|op| op.number != self.number);
        inner.answered = self.disk.0.world.now();
        self.disk.finish(&mut inner, self);
        drop(inner);
        self.signal.fire();
    }
}

struct LateWrite {
    op: Rc<Op>,
    cells: Vec<Cell>,
    reported: u64,
    /// A discard: what it does not make undefined it does not touch.
    discard: bool,
}

impl LateWrite {
    /// What it leaves behind if it lands now.
    fn landing(self, store: &Store) -> (u64, Vec<Cell>) {
        let first = self.op.first;
        (first, if self.discard { undefined(self.cells, first, store) } else { self.cells })
    }
}

/// What a discard leaves behind: what it does not make undefined it does not touch, whatever that is by now.
fn undefined(cells: Vec<Cell>, first: u64, store: &Store) -> Vec<Cell> {
    let cell = |(cell, block): (Cell, u64)| match cell {
        Cell::Virgin => cell,
        _ => store.current(block).clone(),
    };
    cells.into_iter().zip(first..).map(cell).collect()
}

/// A request to a disk that died.
#[derive(Clone, Copy, Debug)]
pub struct LastWords {
    /// Its first block.
    pub first: u64,
    /// It was a sync, or for metadata.
    pub grave: bool,
}

struct Inner {
    store: Store,
    latency: Latency,
    faults: Faults,
    in_flight: Vec<Rc<Op>>,
    late: Vec<LateWrite>,
    next: u64,
    /// When it gave its last answer.
    answered: u64,
    /// Requests of this session.
    requests: u32,
    /// The first request over which it stands still, by its number.
    stood_over: u64,
    /// From when to when it stands still, if it has begun to in this session.
    stood: Option<(u64, u64)>,
    /// It has died in this session, and what became of its cache is decided.
    cache_decided: bool,
    /// What it was asked for as it died, if nothing else hung on it.
    last_words: Option<LastWords>,
    /// Blocks that cannot be read before they are written.
    unread: BTreeSet<u64>,
}

impl Inner {
    /// It has died in this session.
    fn is_dead(&self) -> bool {
        self.faults.dies_after > 0 && self.requests > self.faults.dies_after
    }
}

struct Disk {
    index: usize,
    size: u64,
    traits: DeviceTraits,
    world: World,
    inner: RefCell<Inner>,
}

/// Handle to a simulated disk.
#[derive(Clone)]
pub struct SimDisk(Rc<Disk>);

impl SimDisk {
    /// A fresh disk of `size` bytes.
    pub fn new(world: &World, index: usize, size: u64, traits: DeviceTraits, latency: Latency) -> SimDisk {
        let inner = Inner {
            store: Store::new(index, size / BLOCK as u64),
            latency,
            faults: Faults::default(),
            in_flight: Vec::new(),
            late: Vec::new(),
            next: 0,
            answered: 0,
            requests: 0,
            stood: None,
            stood_over: 0,
            cache_decided: false,
            last_words: None,
            unread: BTreeSet::new(),
        };
        SimDisk(Rc::new(Disk { index, size, traits, world: world.clone(), inner: RefCell::new(inner) }))
    }

    /// Its number.
    pub fn index(&self) -> usize {
        self.0.index
    }

    /// Its content.
    pub fn store(&self) -> Ref<'_, Store> {
        Ref::map(self.0.inner.borrow(), |i| &i.store)
    }

    /// Its content, to be changed.
    pub fn store_mut(&self) -> RefMut<'_, Store> {
        RefMut::map(self.0.inner.borrow_mut(), |i| &mut i.store)
    }

    /// Sets faults and speed for the next session.
    pub fn set_behaviour(&self, faults: Faults, latency: Latency) {
        let mut inner = self.0.inner.borrow_mut();
        inner.store.lying |= faults.lies;
        inner.store.shows = faults.shows;
        inner.faults = faults;
        inner.latency = latency;
        (inner.requests, inner.stood, inner.cache_decided) = (0, None, false);
        inner.last_words = None;
    }

    /// These blocks cannot be read before they are written, and all others can.
    pub fn set_unread(&self, blocks: impl Iterator<Item = u64>) {
        self.0.inner.borrow_mut().unread = blocks.collect();
    }

    /// It has died in this session.
    pub fn has_died(&self) -> bool {
        self.0.inner.borrow().is_dead()
    }

    /// Whether it stands still at some moment of this session, if so much is asked of it.
    pub fn will_stand_still(&self) -> bool {
        self.0.inner.borrow().faults.stands_after > 0
    }

    /// From when to when it stands still, if it has begun to.
    pub fn stood_still(&self) -> Option<(u64, u64)> {
        self.0.inner.borrow().stood
    }

    /// Since when something waits for it that is no discard.
    pub fn waits_for(&self) -> Option<u64> {
        let inner = self.0.inner.borrow();
        let asked = inner.in_flight.iter().filter(|op| op.state.borrow().kind != Kind::Discard);
        asked.map(|op| op.at).min()
    }

    /// Whether it has stood still since, and has still to answer what it was asked before: of a write it will owe a sync.
    pub fn answers_still(&self) -> bool {
        let inner = self.0.inner.borrow();
        inner.stood.is_some() && inner.in_flight.iter().any(|op| op.number < inner.stood_over)
    }

    /// Whether something was answered that no sync has made durable yet, or a sync or a request for metadata is under way.
    pub fn owes_a_sync(&self) -> bool {
        self.owes(&self.0.inner.borrow())
    }

    /// What it was asked for as it died, if nothing else hung on it: nothing was to be made durable there, and no request for metadata
    /// under way.
    pub fn last_words(&self) -> Option<LastWords> {
        self.0.inner.borrow().last_words
    }

    /// Lifts all faults.
    pub fn heal(&self, latency: Latency) {
        self.set_behaviour(Faults::default(), latency);
        self.store_mut().lying = false;
    }

    /// The power is cut: the cache is lost, requests in flight are undone, done or torn (all of them with `tear`).
    pub fn power_cut(&self, tear: bool) {
        let mut inner = self.0.inner.borrow_mut();
        let ops = std::mem::take(&mut inner.in_flight);
        let mut unapplied: Vec<(u64, Vec<Cell>)> = ops
            .iter()
            .filter(|op| !op.dead)
            .filter_map(|op| Some((op.first, op.state.borrow_mut().cells.take()?)))
            .collect();
        let late = std::mem::take(&mut inner.late);
        unapplied.extend(late.into_iter().map(|l| l.landing(&inner.store)));
        self.0.world.random(|prng| {
            let survival = if tear { Survival::TORN } else { Survival::random(prng) };
            inner.store.power_cut(unapplied, survival, prng);
        });
    }

    /// The daemon dies: its requests in flight each happen or not; the cache stays.
    pub fn daemon_death(&self) {
        let mut inner = self.0.inner.borrow_mut();
        let now = self.0.world.sequence();
        for op in std::mem::take(&mut inner.in_flight) {
            let mut state = op.state.borrow_mut();
            if op.dead {
                continue;
            }
            if let Some(record) = state.record {
                inner.store.complete(record, now);
            } else if let Some(cells) = state.cells.take().filter(|_| self.0.world.random(|p| p.coin())) {
                let record = inner.store.apply(op.first, cells);
                inner.store.complete(record, now);
            }
        }
        inner.store.close(&self.slots());
    }

    /// The end of a run: requests hold their disk, and the disk them.
    pub fn forget_requests(&self) {
        let (requests, late) = {
            let mut inner = self.0.inner.borrow_mut();
            (std::mem::take(&mut inner.in_flight), std::mem::take(&mut inner.late))
        };
        drop((requests, late));
    }

    fn submit(
        &self,
        kind: Kind,
        first: u64,
        blocks: u64,
        cells: Option<Vec<Cell>>,
        buf: Option<BufMut>,
    ) -> Option<Rc<Op>> {
        let world = &self.0.world;
        if world.crash_point() {
            return None;
        }
        let mut inner = self.0.inner.borrow_mut();
        if kind == Kind::Write {
            let blocks = cells.iter().flatten().zip(first..);
            world.see(self.0.index, blocks.filter_map(|(c, b)| c.codes(self.0.index, b)).flatten());
        }
        inner.requests = inner.requests.saturating_add(1);
        inner.next += 1;
        let number = inner.next;
        let (mut early, mut delay) = world.random(|p| (p.coin(), inner.latency.draw(blocks, p)));
        let hang_ppm = inner.faults.hang_ppm;
        if kind == Kind::Discard && hang_ppm > 0 && self.draws_fault(&mut inner, hang_ppm) {
            (early, delay) = (false, HANG_NANOS + world.random(|p| p.below(HANG_NANOS)));
        }
        if inner.faults.stands_after > 0 && inner.requests > inner.faults.stands_after {
            world.stand_still();
            let time = match inner.faults.stands_ms {
                0 => STANDS_NANOS,
                ms => u64::from(ms) * 1_000_000,
            };
            if inner.stood.is_none() {
                (inner.stood, inner.stood_over) = (Some((world.now(), world.now() + time)), number);
            }
            let until = inner.stood.map_or(0, |(_, until)| until);
            delay += until.saturating_sub(world.now());
        }
        let dead = inner.is_dead();
        if dead && !inner.cache_decided {
            let owes = self.owes(&inner);
            inner.last_words = (!owes).then_some(LastWords { first, grave: self.is_grave(first, blocks) });
        }
        if dead && !std::mem::replace(&mut inner.cache_decided, true) && world.random(|p| p.coin()) {
            // It had no power for a moment: what was not synced may be gone.
            world.random(|p| {
                let survival = Survival::random(p);
                inner.store.power_cut(Vec::new(), survival, p);
            });
            world.inject(|i| {
                i.syncs += 1;
                i.grave[self.0.index] += 1;
            });
        }
        let mut state = OpState { kind, cells, record: None, seen: None, buf, result: None };
        if early && !dead {
            state.record = state.cells.take().map(|cells| inner.store.apply(first, cells));
            if kind == Kind::Read {
                state.seen = Some((first..first + blocks).map(|b| inner.store.current(b).clone()).collect());
            }
        }
        let began = world.sequence();
        world.note(kind as u64 + 1, number << 40 | first << 12 | blocks, || {
            format!("disk {} {kind:?} {number}: block {first} +{blocks}", self.0.index)
        });
        let state = RefCell::new(state);
        let (disk, at, signal) = (self.clone(), world.now(), Signal::default());
        let op = Rc::new(Op { disk, number, first, blocks, began, at, dead, signal, state });
        inner.in_flight.push(op.clone());
        drop(inner);
        world.after(delay, Action::Device(op.clone()));
        Some(op)
    }

    /// Blocks in which no metadata lies.
    fn slots(&self) -> std::ops::Range<u64> {
        METADATA_BLOCKS..self.0.size / BLOCK as u64 - METADATA_BLOCKS
    }

    fn owes(&self, inner: &Inner) -> bool {
        inner.store.owes() || inner.in_flight.iter().any(|op| self.is_grave(op.first, op.blocks))
    }

    /// Whether this is a sync, or a request for metadata.
    fn is_grave(&self, first: u64, blocks: u64) -> bool {
        blocks == 0 || !self.slots().contains(&first)
    }

    /// Whether this block is of the keys zone.
    fn is_of_keys(&self, block: u64) -> bool {
        let sides = keys_extents(self.0.size).map(|e| e.offset / BLOCK as u64..(e.offset + e.len) / BLOCK as u64);
        sides.iter().any(|side| side.contains(&block))
    }

    /// A request that begins at this block has failed: if it was one of metadata, that is counted. Of headers nobody needs what was just
    /// to be written.
    fn note_metadata(&self, first: u64, write: bool) {
        if write && self.is_of_keys(first) {
            self.0.world.inject(|i| i.header_writes += 1);
        } else if !self.slots().contains(&first) {
            self.0.world.inject(|i| {
                i.metadata += 1;
                i.metadata_writes += u64::from(write);
                i.grave[self.0.index] += 1;
            });
        }
    }

    fn draws_fault(&self, inner: &mut Inner, ppm: u32) -> bool {
        let hit = inner.faults.limit > 0 && self.0.world.random(|p| p.chance(ppm));
        inner.faults.limit -= u32::from(hit);
        hit
    }

    fn finish(&self, inner: &mut Inner, op: &Rc<Op>) {
        let state = &mut *op.state.borrow_mut();
        let mut faults = inner.faults;
        let slots = self.slots();
        let elsewhere = faults.area != (0, 0) && !(faults.area.0..faults.area.1).contains(&op.first);
        if elsewhere || faults.data_only && !slots.contains(&op.first) {
            (faults.read_ppm, faults.write_ppm) = (0, 0);
        }
        let failed = match state.kind {
            _ if inner.is_dead() => true,
            Kind::Read if inner.unread.range(op.first..op.first + op.blocks).next().is_some() => true,
            Kind::Read => self.draws_fault(inner, faults.read_ppm),
            Kind::Write | Kind::Discard => self.draws_fault(inner, faults.write_ppm),
            Kind::Sync => self.draws_fault(inner, faults.sync_ppm),
            Kind::Late => false,
        };
        let world = &self.0.world;
        match state.kind {
            Kind::Read => self.finish_read(inner, op, state, failed),
            Kind::Write | Kind::Discard if failed => self.fail_write(inner, op, state),
            Kind::Write | Kind::Discard | Kind::Late => {
                inner.unread.retain(|block| !(op.first..op.first + op.blocks).contains(block));
                let mut cells = state.cells.take();
                let metadata = faults.garbled_ppm > 0 && (faults.garbled_from..METADATA_BLOCKS).contains(&op.first);
                if metadata && self.draws_fault(inner, faults.garbled_ppm) {
                    self.garble(op, cells.as_mut());
                }
                if let Some(cells) = cells.as_mut().filter(|_| state.kind == Kind::Discard) {
                    *cells = undefined(std::mem::take(cells), op.first, &inner.store);
                }
                let record = cells.map(|c| inner.store.apply(op.first, c)).or(state.record);
                inner.store.complete(record.expect("applied now or before"), world.sequence());
            }
            Kind::Sync if failed => {
                world.random(|p| inner.store.sync_fails(op.began, p));
                world.inject(|i| {
                    i.syncs += 1;
                    i.grave[self.0.index] += 1;
                });
            }
            Kind::Sync => {
                self.settle_late(inner, op.began);
                inner.store.sync(op.began);
            }
        }
        if failed {
            world.note(9, op.number, || format!("disk {} {:?} {} FAILS", self.0.index, state.kind, op.number));
        } else {
            world.note(8, op.number, || format!("disk {} {:?} {} done", self.0.index, state.kind, op.number));
        }
        state.result = Some(if failed { Err(DeviceError::Io(EIO)) } else { Ok(()) });
    }

    /// Spoils one bit of what a write stores.
    fn garble(&self, op: &Op, cells: Option<&mut Vec<Cell>>) {
        let world = &self.0.world;
        world.inject(|i| i.writes += 1);
        self.note_metadata(op.first, true);
        world.note(10, op.number, || format!("disk {} write {} is stored wrongly", self.0.index, op.number));
        let Some(cells) = cells else { return };
        let i = world.random(|p| p.below(cells.len() as u64)) as usize;
        let mut bytes = cells[i].bytes(self.0.index, op.first + i as u64);
        bytes[world.random(|p| p.below(BLOCK as u64)) as usize] ^= 1;
        cells[i] = Cell::from_bytes(&bytes);
    }

    fn finish_read(&self, inner: &Inner, op: &Op, state: &mut OpState, failed: bool) {
        let buf = state.buf.as_mut().expect("a read has a buffer");
        if failed {
            self.0.world.inject(|i| i.reads += 1);
            self.note_metadata(op.first, false);
            buf.fill(0xbd);
            return;
        }
        for (i, out) in buf.chunks_exact_mut(BLOCK).enumerate() {
            let block = op.first + i as u64;
            let cell = state.seen.as_ref().map_or_else(|| inner.store.current(block), |seen| &seen[i]);
            cell.fill(out, self.0.index, block);
        }
    }

    /// Reports a write as failed and decides what became of it.
    fn fail_write(&self, inner: &mut Inner, op: &Rc<Op>, state: &mut OpState) {
        let world = &self.0.world;
        world.inject(|i| i.writes += 1);
        self.note_metadata(op.first, true);
        if let Some(record) = state.record {
            inner.store.complete(record, world.sequence());
            return;
        }
        let mut cells = state.cells.take().expect("not applied yet");
        if op.dead {
            return;
        }
        let (late, discard) = (inner.faults.late, state.kind == Kind::Discard);
        match world.random(|p| WriteOutcome::random(late, p)) {
            WriteOutcome::Nothing => return,
            WriteOutcome::Done => {}
            WriteOutcome::Torn => {
                for (i, cell) in cells.iter_mut().enumerate() {
                    let block = op.first + i as u64;
                    let keep = world.random(|p| p.next()) as u8;
                    *cell = cell.merge(inner.store.current(block), keep, self.0.index, block);
                }
            }
            WriteOutcome::Late => {
                world.inject(|i| i.late += u64::from(!discard));
                let state =
                    OpState { kind: Kind::Late, cells: None, record: None, seen: None, buf: None, result: None };
                let landing = Rc::new(Op {
                    disk: self.clone(),
                    number: op.number,
                    first: op.first,
                    blocks: op.blocks,
                    began: op.began,
                    at: op.at,
                    dead: false,
                    signal: Signal::default(),
                    state: RefCell::new(state),
                });
                inner.late.push(LateWrite { op: landing.clone(), cells, reported: world.sequence(), discard });
                world.after(world.random(|p| p.below(LATE_NANOS)), Action::Device(landing));
                return;
            }
        }
        let record = inner.store.apply(op.first, cells);
        inner.store.complete(record, world.sequence());
    }

    /// A sync that began at `began` ends: older late writes land now or never.
    fn settle_late(&self, inner: &mut Inner, began: u64) {
        let late = std::mem::take(&mut inner.late);
        let (settled, rest) = late.into_iter().partition::<Vec<_>, _>(|l| l.reported < began);
        inner.late = rest;
        for l in settled {
            if self.0.world.random(|p| p.coin()) {
                let (first, cells) = l.landing(&inner.store);
                let record = inner.store.apply(first, cells);
                inner.store.complete(record, began);
            }
        }
    }

    fn range(&self, offset: u64, len: u64) -> (u64, u64) {
        let block = BLOCK as u64;
        assert!(offset % block == 0 && len % block == 0 && len > 0, "request {offset}+{len} is not made of blocks");
        assert!(offset + len <= self.0.size, "request {offset}+{len} is beyond the end {}", self.0.size);
        (offset / block, len / block)
    }
}

/// Waits for a request; for ever if there is none, because the world has ended.
async fn wait(op: Option<Rc<Op>>) -> (Option<BufMut>, Result<(), DeviceError>) {
    let Some(op) = op else { return std::future::pending().await };
    poll_fn(|cx| op.signal.poll(cx)).await;
    let mut state = op.state.borrow_mut();
    (state.buf.take(), state.result.expect("finished before it was signalled"))
}

impl Device for SimDisk {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn traits(&self) -> DeviceTraits {
        self.0.traits
    }

    fn answering(&self) -> Answering {
        let inner = self.0.inner.borrow();
        let oldest = inner.in_flight.iter().map(|op| Instant(op.at)).min();
        let silent_since = oldest.map(|o| o.max(Instant(inner.answered)));
        Answering { waiting: inner.in_flight.len() as u64, oldest, silent_since, lost: None }
    }

    fn is_lost(&self) -> bool {
        let inner = self.0.inner.borrow();
        inner.faults.tells && inner.is_dead()
    }

    fn read(&self, offset: u64, buf: BufMut) -> impl Future<Output = (BufMut, Result<(), DeviceError>)> {
        let (first, blocks) = self.range(offset, buf.len() as u64);
        let op = self.submit(Kind::Read, first, blocks, None, Some(buf));
        async move {
            let (buf, result) = wait(op).await;
            (buf.expect("a read gives its buffer back"), result)
        }
    }

    fn write(&self, offset: u64, buf: Buf) -> impl Future<Output = Result<(), DeviceError>> {
        let (first, blocks) = self.range(offset, buf.len() as u64);
        assert!(buf.is_aligned(), "a device wants page-aligned memory");
        let cells = buf.chunks_exact(BLOCK).map(Cell::from_bytes).collect();
        let op = self.submit(Kind::Write, first, blocks, Some(cells), None);
        async move { wait(op).await.1 }
    }

    fn sync(&self) -> impl Future<Output = Result<(), DeviceError>> {
        let op = self.submit(Kind::Sync, 0, 0, None, None);
        async move { wait(op).await.1 }
    }

    fn discard(&self, offset: u64, len: u64) -> impl Future<Output = Result<(), DeviceError>> {
        let (first, blocks) = self.range(offset, len);
        let op = self.0.traits.discard.then(|| {
            let keep_ppm = self.0.world.random(|p| *p.pick(&[0, 0, 500_000, 1_000_000]));
            let inner = self.0.inner.borrow();
            let cell = |b| {
                if self.0.world.random(|p| p.chance(keep_ppm)) {
                    inner.store.current(b).clone()
                } else {
                    Cell::Virgin
                }
            };
            let cells = (first..first + blocks).map(cell).collect();
            drop(inner);
            self.submit(Kind::Discard, first, blocks, Some(cells), None)
        });
        async move {
            match op {
                None => Err(DeviceError::Unsupported),
                Some(op) => wait(op).await.1,
            }
        }
    }
}
