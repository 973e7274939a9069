//! One client: carries out its steps in order, tells the oracle, and judges each answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags, TO_ITS_END};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::DeviceError;
use bimetal_volume::error::Error;
use bimetal_volume::units::CHUNK;
use bimetal_volume::{Group, Volume};

use super::hung::Needs;
use super::judge::{legal, Faults, Kind};
use super::leave::Elsewhere;
use super::Shared;
use crate::content::{MAX_WRITE, SECTOR};
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::SimEnv;
use crate::oracle::{Issued, Promise, Value};
use crate::scenario::{Act, Step};
use crate::text::step_text;
use crate::world::Injected;

const BLOCK: u64 = 4096;
pub(super) const MICROS: u64 = 1_000;
/// Time between two looks at a range that another client is writing.
pub(super) const RETRY: u64 = 50 * MICROS;
const HEAT_GAP: u64 = 50_000 * MICROS;

/// What a client needs.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) env: SimEnv,
    pub(super) shared: Rc<Shared>,
    pub(super) group: Group<SimEnv>,
    /// By number; those that are there.
    pub(super) volumes: Rc<RefCell<Vec<Option<Volume<SimEnv>>>>>,
    /// Injected when the session began, and when the group was open.
    pub(super) start: Injected,
    pub(super) opened: Injected,
    pub(super) elsewhere: Rc<Elsewhere>,
}

/// A write-like request.
#[derive(Clone, Copy)]
enum Change {
    Write,
    Trim,
    Zeroes { given_up: bool },
}

impl Client {
    /// Carries out steps until they end, something is wrong, or the world ends.
    pub(super) async fn work(self, steps: Vec<Step>) {
        for step in steps {
            if self.shared.failed() {
                return;
            }
            self.shared.world.note(20, step.offset, || format!("step {}", step_text(&step)));
            self.step(step).await;
            self.shared.world.step_done();
        }
    }

    pub(super) fn flags(&self, fua: bool, no_hole: bool) -> WriteFlags {
        WriteFlags { fua, no_hole, outlives: self.shared.outlives }
    }

    pub(super) async fn step(&self, s: Step) {
        let Some(s) = self.inside(s) else { return };
        match s.act {
            Act::Read => self.read(s.volume, s.offset, s.len).await,
            Act::Write { fua } => self.change(Change::Write, &s, self.flags(fua, false)).await,
            Act::Trim { fua } => self.change(Change::Trim, &s, self.flags(fua, false)).await,
            Act::Zeroes { fua, no_hole, given_up } => {
                self.change(Change::Zeroes { given_up }, &s, self.flags(fua, no_hole)).await;
            }
            Act::Dying { change, after } => self.dying(change, &s, after).await,
            Act::Flush => self.flush(s.volume).await,
            Act::Cache => {
                // A hint; its failure says nothing.
                if let Some(v) = self.volume(s.volume) {
                    let _ = v.cache(s.offset, s.len, TO_ITS_END).await;
                }
            }
            Act::Make { .. } | Act::Delete | Act::Resize { .. } | Act::Rename | Act::Encrypt { .. } => {
                self.change_volume(&s).await;
            }
            Act::MakeFamily { family } | Act::DropFamily { family } | Act::NewHeader { family } => {
                self.change_family(s.act, family).await;
            }
            Act::Relock { family } => self.relock(family).await,
            Act::AddMember { .. } | Act::Evacuate { .. } | Act::Keep { .. } | Act::Remove { .. } => {
                self.change_members(&s).await;
            }
            Act::Dissolve => self.dissolve(s.volume, s.len).await,
            Act::Copy => match s.len {
                0 => self.shared.copy_all(),
                micros => self.shared.copy_in_start.set(micros),
            },
            Act::Rot { disk } => self.rot(disk),
            Act::RotLabel { disk } => self.rot_label(disk),
            Act::RotMap { disk } => self.rot_map(disk),
            Act::RotKeys { disk, family } => {
                self.shared.rot_keys(disk, family);
                self.shared.rotten.set(true);
            }
            Act::Check { mend } => self.check(mend).await,
            Act::Sleep => self.shared.world.sleep(s.len * MICROS).await,
            Act::Heat { times } => {
                for _ in 0..times {
                    let Some(s) = self.inside(s) else { return };
                    self.read(s.volume, s.offset, s.len).await;
                    self.shared.world.sleep(HEAT_GAP).await;
                }
            }
            Act::Fill => {
                let mut at = s.offset;
                while at < s.offset + s.len && !self.shared.failed() {
                    let len = CHUNK.min(s.offset + s.len - at);
                    let piece = Step { act: Act::Write { fua: false }, offset: at, len, ..s };
                    self.change(Change::Write, &piece, self.flags(false, false)).await;
                    at += len;
                }
            }
        }
    }

    /// A volume, if it is there.
    pub(super) fn volume(&self, number: usize) -> Option<Volume<SimEnv>> {
        self.volumes.borrow()[number].clone()
    }

    /// Numbers of the volumes that are there.
    pub(super) fn numbers(&self) -> Vec<usize> {
        self.shared.table.borrow().living().map(|(n, _)| n).collect()
    }

    /// The step, cut at the end of its volume; `None` if nothing is left of it.
    pub(super) fn inside(&self, s: Step) -> Option<Step> {
        if !s.act.has_range() && s.act != Act::Flush {
            return Some(s);
        }
        let size = self.shared.table.borrow().get(s.volume)?.chunks * CHUNK;
        match s.act {
            Act::Flush => Some(s),
            _ if s.offset >= size => None,
            _ => Some(Step { len: s.len.min(size - s.offset), ..s }),
        }
    }

    /// An answer reached the client. False if the world ended before.
    pub(super) fn answered(&self) -> bool {
        let alive = !self.shared.world.crash_point();
        self.shared.requests.set(self.shared.requests.get() + u64::from(alive));
        alive
    }

    /// Rule 8 of the oracle.
    fn note_failed_syncs(&self) {
        if self.shared.world.injected().syncs > self.start.syncs {
            self.shared.oracle.borrow_mut().sync_failed();
        }
    }

    /// A volume that is changed meanwhile may refuse what it would have taken before.
    fn overtaken(&self, volume: usize, stamp: (u64, bool), error: &Error) -> bool {
        let changed = stamp.1 || self.shared.table.borrow().stamp(volume) != stamp;
        changed && matches!(error, Error::OutOfRange { .. } | Error::Deleted | Error::Locked)
    }

    /// Judges the failure of a request that is not about a range of a volume.
    pub(super) fn judge(&self, kind: Kind, what: &str, error: &Error, before: Injected) {
        let doubt = self.shared.world.injected().grave() > self.start.grave();
        self.judge_with(kind, what, error, before, doubt);
    }

    /// Judges that of one that is. `noticed`: the group noticed something meanwhile that puts data in doubt, which it does when all
    /// has ended that was asked for together with what failed.
    fn judge_at(&self, kind: Kind, what: &str, error: &Error, before: Injected, noticed: bool, at: (usize, u64, u64)) {
        let noticed = noticed && self.shared.world.injected().grave() > self.start.grave();
        let doubt = matches!(error, Error::Lost) && (noticed || self.in_doubt(at));
        self.judge_with(kind, what, error, before, doubt);
    }

    fn judge_with(&self, kind: Kind, what: &str, error: &Error, before: Injected, doubt: bool) {
        let now = self.shared.world.injected();
        let latching = self.shared.may_latch(&self.start, &now);
        let faults = Faults { start: self.start, before, now, latching, doubt };
        // Nothing has to be asked of a disk that is known to be lost.
        let lost = match error {
            Error::Device { member, source: DeviceError::Disconnected } if kind == Kind::Write => self.is_lost(*member),
            _ => false,
        };
        if !lost && !legal(kind, error, &faults) {
            self.shared.fail(format!("{what} failed without a fault that justifies it: {error}"));
        }
    }

    /// Whether a chunk of the range may be in doubt (C11.1): a sync or a request for metadata failed on its member, and it was
    /// changed, or moved, and that is not durable. What a start could not read of the map is in doubt all the time.
    fn in_doubt(&self, (volume, offset, len): (usize, u64, u64)) -> bool {
        let (now, Some(v)) = (self.shared.world.injected(), self.volume(volume)) else { return false };
        if self.opened.metadata > self.start.metadata {
            return true;
        }
        let uuids: Vec<_> = self.shared.disks.iter().map(super::forge::own_uuid).collect();
        let members = self.group.status().members;
        let grave = |disk: usize| now.grave[disk] > self.start.grave[disk];
        let failed = |index| {
            let own = members.iter().find(|m| m.index == index);
            // The label of a disk cannot be told while it is written.
            own.is_none_or(|m| uuids.iter().position(|u| *u == Some(m.uuid)).is_none_or(grave))
        };
        (offset / CHUNK..(offset + len).div_ceil(CHUNK)).any(|chunk| {
            let home = v.members_of(chunk * CHUNK).next();
            let unsure = self.shared.oracle.borrow().is_unsure(volume, chunk * CHUNK, CHUNK);
            // A chunk whose first write has failed with the sync has no home any more.
            match home {
                Some(member) => (unsure || self.shared.moves) && failed(member),
                None => unsure && now.grave() > self.start.grave(),
            }
        })
    }

    pub(super) async fn read(&self, volume: usize, offset: u64, len: u64) {
        let Some(v) = self.volume(volume) else { return };
        let stamp = self.shared.table.borrow().stamp(volume);
        let issued = self.shared.world.sequence();
        let (before, failures) = (self.shared.world.injected(), self.group.counters().failures);
        self.shared.oracle.borrow_mut().read_begins(issued);
        let begun = self.begins(&v, offset, len, Needs::Homes);
        let result = v.read(offset, len).await;
        if !self.answered() {
            return;
        }
        self.ends(begun, (volume, &v), || format!("read {offset}+{len} of volume {volume}"));
        self.shared.world.note(24, issued, || format!("answered: read {offset}+{len} of volume {volume}"));
        self.check_elsewhere(volume, &v, offset, len);
        self.note_failed_syncs();
        match &result {
            Ok(pieces) => {
                let got: u64 = pieces.iter().map(|p| p.len()).sum();
                if got != len {
                    self.shared.fail(format!("read {offset}+{len} of volume {volume} returned {got} bytes"));
                } else if let Err(wrong) = self.shared.oracle.borrow_mut().check(volume, offset, pieces, issued) {
                    self.shared.fail(format!("read {offset}+{len}: {wrong}"));
                }
            }
            Err(e) if self.overtaken(volume, stamp, e) => {}
            Err(e) => {
                let what = format!("read {offset}+{len} of volume {volume}");
                let noticed = self.group.counters().failures > failures;
                self.judge_at(Kind::Read, &what, e, before, noticed, (volume, offset, len));
            }
        }
        self.shared.oracle.borrow_mut().read_ends(issued);
    }

    /// Waits until no other request would make the outcome of a change inside a sector depend on order.
    pub(super) async fn claim(&self, volume: usize, offset: u64, len: u64) {
        let sector = SECTOR as u64;
        let cuts = offset % sector != 0 || (offset + len) % sector != 0;
        let (from, to) = (offset / sector * sector, (offset + len).next_multiple_of(sector));
        loop {
            let clash = |b: &(usize, u64, u64, bool)| b.0 == volume && b.1 < to && from < b.2 && (cuts || b.3);
            if !self.shared.busy.borrow().iter().any(clash) {
                break;
            }
            self.shared.world.sleep(RETRY).await;
        }
        self.shared.busy.borrow_mut().push((volume, from, to, cuts));
    }

    pub(super) fn release(&self, volume: usize, offset: u64, len: u64) {
        let sector = SECTOR as u64;
        let (from, to) = (offset / sector * sector, (offset + len).next_multiple_of(sector));
        let mut busy = self.shared.busy.borrow_mut();
        if let Some(at) = busy.iter().position(|b| (b.0, b.1, b.2) == (volume, from, to)) {
            busy.swap_remove(at);
        }
    }

    async fn change(&self, change: Change, s: &Step, flags: WriteFlags) {
        self.claim(s.volume, s.offset, s.len).await;
        // Waiting, the volume may have become shorter.
        if let Some(s) = self.inside(*s) {
            self.change_claimed(change, &s, flags).await;
        }
        self.release(s.volume, s.offset, s.len);
    }

    async fn change_claimed(&self, change: Change, s: &Step, flags: WriteFlags) {
        let world = &self.shared.world;
        let (volume, offset, len) = (s.volume, s.offset, s.len);
        let Some(v) = self.volume(volume) else { return };
        let stamp = self.shared.table.borrow().stamp(volume);
        let before = world.injected();
        let durable = flags.fua || flags.outlives;
        let begun = match change {
            Change::Write => self.write_begins(volume, &v, (offset, len), durable),
            Change::Zeroes { .. } if flags.no_hole && !durable && self.is_bound(volume) => {
                self.write_begins(volume, &v, (offset, len), durable)
            }
            Change::Trim | Change::Zeroes { .. } => self.begins(&v, offset, len, Needs::More),
        };
        let now = world.sequence();
        let (issued, data) = {
            let mut oracle = self.shared.oracle.borrow_mut();
            let (from, to, value, data) = match change {
                Change::Write => {
                    let id = oracle.write_id();
                    assert!(id <= MAX_WRITE, "a run has fewer writes");
                    world.note(21, id, || format!("write {id} issued: volume {volume} {offset}+{len}"));
                    let mut buf = BufMut::with_phase(len as usize, offset);
                    oracle.fill(volume, offset, id, &mut buf);
                    (offset, offset + len, Value::write(id), Some(buf.freeze()))
                }
                Change::Zeroes { .. } => (offset, offset + len, Value::ZERO, None),
                Change::Trim => (offset.next_multiple_of(BLOCK), (offset + len) / BLOCK * BLOCK, Value::ZERO, None),
            };
            (oracle.issue(volume, from, to.saturating_sub(from), value, promise_of(flags), now), data)
        };
        let frozen = self.shared.frozen.get() == Some(volume);
        let new = matches!(change, Change::Write) && self.is_alone_in_new(&v, s);
        let closed = self.closed_to_new(&v, offset, len);
        let result = match (change, data) {
            (Change::Write, Some(data)) => v.write(offset, data, flags).await,
            (Change::Trim, _) => v.trim(offset, len, flags).await,
            (Change::Zeroes { given_up: true }, _) => {
                // It is asked twice in each step, and once for an edge.
                let left = Cell::new(2 + offset / 512 % 3);
                v.write_zeroes(offset, len, flags, &|| left.replace(left.get().saturating_sub(1)) > 0).await
            }
            _ => v.write_zeroes(offset, len, flags, TO_ITS_END).await,
        };
        if !self.answered() {
            return;
        }
        world.note(22, offset, || format!("answered: {} {result:?}", step_text(s)));
        match result {
            Ok(()) => {
                let mut oracle = self.shared.oracle.borrow_mut();
                oracle.tick(world.now());
                oracle.answered(issued, world.sequence());
                drop(oracle);
                self.ends(begun, (volume, &v), || step_text(s));
            }
            Err(e) => {
                let late = world.injected().late > before.late;
                self.shared.oracle.borrow_mut().failed(volume, issued, late, world.sequence());
                let stands_still = frozen && e == Error::Frozen;
                let given_up = matches!(change, Change::Zeroes { given_up: true }) && e == Error::Stopping;
                self.check_not_sent_to(&closed, &e);
                if new && self.shared.table.borrow().stamp(volume) == stamp {
                    self.check_tried_elsewhere(s, &e, before, issued);
                }
                if !(self.overtaken(volume, stamp, &e) || stands_still || given_up) {
                    self.judge_at(Kind::Write, &step_text(s), &e, before, false, (volume, offset, len));
                }
            }
        }
    }

    /// Whether no chunk of a range has a home, and nobody else changes any of them.
    fn is_alone_in_new(&self, v: &Volume<SimEnv>, s: &Step) -> bool {
        let chunks = s.offset / CHUNK..(s.offset + s.len).div_ceil(CHUNK);
        let there =
            |b: &&(usize, u64, u64, bool)| b.0 == s.volume && b.1 < chunks.end * CHUNK && chunks.start * CHUNK < b.2;
        let others = self.shared.busy.borrow().iter().filter(there).count() > 1;
        !others && chunks.clone().all(|c| v.members_of(c * CHUNK).next().is_none())
    }

    /// A write of new chunks alone has failed, and no other change came meanwhile: more than one place has failed to take it.
    fn check_tried_elsewhere(&self, s: &Step, e: &Error, before: Injected, issued: Issued) {
        let once = self.shared.world.injected().writes == before.writes + 1;
        let alone = self.shared.oracle.borrow().is_newest(issued);
        // Requests of dead clients may be under way, and the engine changes what it encrypts. A disk that has died need not be asked.
        let unseen = self.shared.marks.borrow().has(Seen::DeadClient)
            || self.group.status().volumes.iter().any(|v| v.encrypting.is_some())
            || self.shared.disks.iter().any(SimDisk::has_died);
        if once && alone && !unseen && matches!(e, Error::Device { .. }) {
            self.shared.fail(format!("{} failed where one place has not taken it: {e}", step_text(s)));
        }
    }

    pub(super) async fn flush(&self, volume: usize) {
        let Some(v) = self.volume(volume) else { return };
        let stamp = self.shared.table.borrow().stamp(volume);
        let issued = self.shared.world.sequence();
        let before = self.shared.world.injected();
        let begun = self.begins(&v, 0, 0, Needs::Commit);
        let result = v.flush().await;
        if !self.answered() {
            return;
        }
        self.ends(begun, (volume, &v), || format!("flush of volume {volume}"));
        self.shared.world.note(23, issued, || format!("answered: flush of volume {volume}: {result:?}"));
        match result {
            Ok(()) => {
                let mut oracle = self.shared.oracle.borrow_mut();
                oracle.tick(self.shared.world.now());
                oracle.flushed(volume, issued, self.shared.world.sequence());
            }
            Err(e) if self.overtaken(volume, stamp, &e) => {}
            Err(e) => self.judge(Kind::Flush, &format!("flush of volume {volume}"), &e, before),
        }
    }

    /// Reads a whole volume in large pieces.
    pub(super) async fn read_back(&self, volume: usize) {
        let Some(size) = self.volume(volume).map(|v| v.size()) else { return };
        let mut at = 0;
        while at < size && !self.shared.failed() {
            let len = (8 * CHUNK).min(size - at);
            self.read(volume, at, len).await;
            at += len;
        }
    }

    /// Waits.
    pub(super) async fn sleep(&self, d: Duration) {
        self.shared.world.sleep(d.as_nanos() as u64).await;
    }
}

fn promise_of(flags: WriteFlags) -> Promise {
    match flags {
        WriteFlags { fua: true, .. } => Promise::Durable,
        WriteFlags { outlives: true, .. } => Promise::OutlivesDaemon,
        _ => Promise::None,
    }
}
