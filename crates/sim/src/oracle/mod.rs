//! What a read may return: for each 512-byte sector of each volume the set of legal values.
//!
//! Terms: a request is *issued*, then *answered* or *failed*. Request B *follows* A if B was issued after A was
//! answered. An entry of a sector's history is a value and the request that wrote it.
//!
//! 1. Before any write a sector holds zeros. WRITE_ZEROES writes zeros to exactly its range, TRIM to the whole 4 KiB
//!    blocks inside its range; a write of part of a sector changes those bytes of whatever value the sector has.
//! 2. A read may return the value of any request issued before the read ended, unless another request that follows it
//!    was answered before the read was issued. So overlapping requests may end up in either order, sector by sector.
//! 3. A request is durable if it was answered with FUA, or answered before a FLUSH was issued that was answered.
//! 4. At a crash a sector keeps any value but those that a durable request follows. (What was not flushed may be old or
//!    new, sector by sector.)
//!    After the death of the daemon alone a request that was to outlive it counts as durable until the next power cut.
//! 5. After a crash those values are alternatives. The first read settles which it is: the others can never be read
//!    again; after a power cut at all, after the death of the daemon until the next power cut or flush (what sits in a
//!    device's cache may still be lost; a flush ends that).
//! 6. A read with no request in flight on the sector settles in the same way which of two overlapping writes came last.
//! 7. A failed write may have happened or not. If the disk may still carry it out late, reads that began before the next
//!    FLUSH was answered settle nothing; but a request that follows it replaces it like any other (C2.2: what failed must be over
//!    before its place is written again).
//!    A request whose client is dead counts as failed from then on; it may take effect until it ends, but over nothing that was issued
//!    since.
//! 8. After a failed sync the device may have lost anything not durable, so until the next start a read may return
//!    whatever rule 4 allows.
//! 9. Nothing else is ever legal: no data of another place, no poison, no mixture inside a sector.

mod block;
mod check;
mod history;
mod value;

use crate::content::{SECTOR, SECTORS};
use block::{fresh, Block};
use history::{Entry, History, Knowledge, Span, SpanId};
use value::Patches;
pub use value::Value;

const BLOCK: u64 = (SECTOR * SECTORS) as u64;
const SECTOR_BYTES: u64 = SECTOR as u64;

/// A wrong answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which volume, by number.
    pub volume: usize,
    /// First byte of the sector.
    pub offset: u64,
    /// What came back.
    pub got: String,
    /// What would have been legal.
    pub legal: Vec<String>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "volume {} byte {}: read {}; legal: {}", self.volume, self.offset, self.got, self.legal.join(", or "))
    }
}

/// The way everything ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Device caches are lost.
    Power,
    /// Only the daemon dies.
    Daemon,
}

/// What the answer to a request promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing before the next flush.
    None,
    /// The death of the daemon does not undo it.
    OutlivesDaemon,
    /// Nothing undoes it (FUA).
    Durable,
}

/// A write-like request that was issued; to be handed back when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Issued(SpanId);

struct Volume {
    blocks: Vec<Option<Block>>,
    /// Something was cut off its end once: what was there is not known any more.
    cut: bool,
    /// Issue of the last flush that was answered.
    flushed: u64,
    /// Failed requests that may still take effect, and when they failed.
    open: Vec<(SpanId, u64)>,
}

/// The oracle of one group.
pub struct Oracle {
    volumes: Vec<Volume>,
    spans: Vec<Span>,
    patches: Patches,
    next_write: u64,
    sync_failed: bool,
    /// In a peek: what older data of the same place is accepted.
    stale: Older,
    /// Every change, in the order of their issues.
    changes: Vec<Change>,
    /// Virtual time, in nanoseconds.
    time: u64,
    /// When the reads in flight were issued.
    reads: Vec<u64>,
}

/// What a slow member alone may show instead of the newest data (C8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// Nothing.
    None,
    /// What was replaced by something durable, but not [`TOLD`] or more before a session ended in which nothing failed.
    Recent,
    /// Whatever was there once.
    Any,
}

/// A slow member has heard after this, in nanoseconds of virtual time: ten seconds of patience beside a load that never pauses, and
/// what disks and others take.
pub const TOLD: u64 = 22_000_000_000;

/// A write-like request as a whole.
struct Change {
    volume: usize,
    from: u64,
    to: u64,
    value: Value,
    span: SpanId,
    /// When it became durable, in a session that goes on.
    durable_at: Option<u64>,
    /// Slow members must have heard of it.
    told: bool,
}

/// The code of a sector of zeros.
const ZERO_CODE: u64 = 0;

/// The span of everything that was there at the beginning.
const BEGINNING: SpanId = 0;

impl Oracle {
    /// The oracle of fresh volumes of these sizes in bytes.
    pub fn new(sizes: &[u64]) -> Oracle {
        let volume = |size: &u64| Volume {
            blocks: (0..size.div_ceil(BLOCK)).map(|_| None).collect(),
            cut: false,
            flushed: 0,
            open: Vec::new(),
        };
        Oracle {
            volumes: sizes.iter().map(volume).collect(),
            spans: vec![Span::new(0, 0, true, true)],
            patches: Patches::default(),
            next_write: 1,
            sync_failed: false,
            stale: Older::None,
            changes: Vec::new(),
            time: 0,
            reads: Vec::new(),
        }
    }

    /// The volume may have so many bytes from now on: those that are new hold zeros.
    pub fn grow(&mut self, volume: usize, size: u64) {
        let blocks = &mut self.volumes[volume].blocks;
        let wanted = size.div_ceil(BLOCK) as usize;
        if blocks.len() < wanted {
            blocks.resize_with(wanted, || None);
        }
    }

    /// Whether anything was ever written at byte `from` of a volume or behind.
    pub fn was_written(&self, volume: usize, from: u64) -> bool {
        self.volumes[volume].blocks.iter().skip((from / BLOCK) as usize).any(Option::is_some)
    }

    /// The volume ends at byte `from` now, by a request that was issued at `issued`. No data may be lost by that; what
    /// comes there later begins as zeros, for good.
    pub fn cut(&mut self, volume: usize, from: u64, issued: u64) -> Result<(), Wrong> {
        let v = &mut self.volumes[volume];
        v.cut = true;
        let k = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: false };
        for (i, block) in v.blocks.iter_mut().enumerate().skip((from / BLOCK) as usize) {
            let Some(old) = block.take() else { continue };
            for s in 0..SECTORS {
                let sector = (i * SECTORS + s) as u64;
                let h = old.history(s);
                let live: Vec<&Entry> = h.entries().iter().filter(|e| h.live(e, issued, &k)).collect();
                let zero = |e: &&Entry| self.patches.bytes(e.value, volume, sector).iter().all(|b| *b == 0);
                if !live.iter().any(zero) {
                    let legal = live.iter().map(|e| self.patches.describe(e.value)).collect();
                    return Err(Wrong { volume, offset: sector * SECTOR_BYTES, got: "cut off".into(), legal });
                }
            }
        }
        Ok(())
    }

    /// Whether all that the volume ever held is known.
    pub fn knows_past(&self, volume: usize) -> bool {
        !self.volumes[volume].cut
    }

    /// Whether something in a range is not durable, as far as is known.
    pub fn is_unsure(&self, volume: usize, offset: u64, len: u64) -> bool {
        let v = &self.volumes[volume];
        let k = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: false };
        let blocks = v.blocks.iter().skip((offset / BLOCK) as usize).take((len / BLOCK) as usize).flatten();
        let unsure = |h: &History| h.entries().iter().any(|e| !k.durable(e));
        blocks.into_iter().any(|b| (0..SECTORS).any(|s| unsure(b.history(s))))
    }

    /// A read is issued at sequence `now`.
    pub fn read_begins(&mut self, now: u64) {
        self.reads.push(now);
    }

    /// The read that was issued at `issued` has been checked, or failed.
    pub fn read_ends(&mut self, issued: u64) {
        self.reads.retain(|r| *r != issued);
    }

    /// A new write id: what the data of the next write carries.
    pub fn write_id(&mut self) -> u64 {
        self.next_write += 1;
        self.next_write - 1
    }

    /// The number that the next write will get.
    pub fn next_write(&self) -> u64 {
        self.next_write
    }

    /// Fills the data of write `id` at byte `offset` of a volume.
    pub fn fill(&self, volume: usize, offset: u64, id: u64, out: &mut [u8]) {
        let mut at = 0;
        while at < out.len() {
            let byte = offset + at as u64;
            let inside = (byte % SECTOR_BYTES) as usize;
            let n = (SECTOR - inside).min(out.len() - at);
            let sector = byte / SECTOR_BYTES;
            if n == SECTOR {
                crate::content::fill_sector(&mut out[at..at + n], crate::content::data_code(id, volume, sector));
            } else {
                let whole = self.patches.bytes(Value::write(id), volume, sector);
                out[at..at + n].copy_from_slice(&whole[inside..inside + n]);
            }
            at += n;
        }
    }

    /// A write, TRIM or WRITE_ZEROES of `value` is issued at sequence `now`. For TRIM hand in the whole blocks only.
    pub fn issue(&mut self, volume: usize, offset: u64, len: u64, value: Value, promise: Promise, now: u64) -> Issued {
        let span = self.spans.len() as SpanId;
        self.changes.push(Change {
            volume,
            from: offset,
            to: offset + len,
            value,
            span,
            durable_at: None,
            told: false,
        });
        let (durable, outlives) = (promise == Promise::Durable, promise != Promise::None);
        self.spans.push(Span::new(now, u64::MAX, durable, outlives));
        let mut at = offset;
        while at < offset + len {
            let end = (at - at % BLOCK + BLOCK).min(offset + len);
            self.issue_in_block(volume, at, end, value, span);
            at = end;
        }
        Issued(span)
    }

    fn issue_in_block(&mut self, volume: usize, from: u64, to: u64, value: Value, span: SpanId) {
        let horizon = self.reads.iter().copied().min().unwrap_or(u64::MAX);
        let v = &mut self.volumes[volume];
        let k = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: false };
        let block = v.blocks[(from / BLOCK) as usize].get_or_insert_with(|| Block::Whole(fresh()));
        if to - from == BLOCK {
            for h in block.histories_mut() {
                h.prune(&k, horizon);
                h.push(span, [value]);
            }
            return;
        }
        let base = from - from % BLOCK;
        for (i, h) in block.split().iter_mut().enumerate() {
            let start = base + i as u64 * SECTOR_BYTES;
            let (a, b) = (from.max(start), to.min(start + SECTOR_BYTES));
            if a >= b {
                continue;
            }
            h.prune(&k, horizon);
            let now = k.spans[span as usize].issued;
            let bases: Vec<Entry> = h.entries().iter().filter(|e| h.live(e, now, &k)).copied().collect();
            let (a, b) = ((a - start) as usize, (b - start) as usize);
            let values: Vec<Value> = bases.iter().map(|e| self.patches.patch(e.value, a, b, value)).collect();
            h.push(span, values);
        }
    }

    /// Whether nothing was issued since.
    pub fn is_newest(&self, issued: Issued) -> bool {
        self.spans.len() == issued.0 as usize + 1
    }

    /// The request was answered at sequence `now`.
    pub fn answered(&mut self, issued: Issued, now: u64) {
        let span = &mut self.spans[issued.0 as usize];
        span.answered = now;
        if span.durable {
            let found = self.changes.iter_mut().rev().find(|c| c.span == issued.0);
            found.into_iter().for_each(|c| c.durable_at = Some(self.time));
        }
    }

    /// It is so late, in nanoseconds of virtual time.
    pub fn tick(&mut self, time: u64) {
        self.time = time;
    }

    /// A session ends. With `calm` nothing has failed in it, and no disk was slower than such disks are: slow members have heard
    /// of what was durable long enough.
    pub fn session_ends(&mut self, calm: bool) {
        for c in &mut self.changes {
            let since = c.durable_at.take();
            c.told |= calm && since.is_some_and(|t| t + TOLD <= self.time);
        }
    }

    /// The request failed. `late`: it may still take effect (rule 7).
    pub fn failed(&mut self, volume: usize, issued: Issued, late: bool, now: u64) {
        let span = &mut self.spans[issued.0 as usize];
        (span.sure, span.open, span.answered) = (false, late, now);
        if late {
            self.volumes[volume].open.push((issued.0, now));
        }
    }

    /// The client that issued it is dead at sequence `now` (rule 7).
    pub fn left(&mut self, issued: Issued, now: u64) {
        let span = &mut self.spans[issued.0 as usize];
        (span.sure, span.open, span.answered) = (false, true, now);
    }

    /// A request whose client had left has ended at sequence `now`. `late`: it failed, and may still take effect.
    pub fn over(&mut self, volume: usize, issued: Issued, late: bool, now: u64) {
        let span = &mut self.spans[issued.0 as usize];
        if late {
            self.volumes[volume].open.push((issued.0, now));
        } else {
            (span.open, span.closed) = (false, now);
        }
    }

    /// A FLUSH issued at `issued` was answered at sequence `now` (rules 3 and 7).
    pub fn flushed(&mut self, volume: usize, issued: u64, now: u64) {
        let v = &mut self.volumes[volume];
        v.flushed = v.flushed.max(issued);
        let spans = &mut self.spans;
        for c in self.changes.iter_mut().filter(|c| c.volume == volume && !c.told && c.durable_at.is_none()) {
            let span = &spans[c.span as usize];
            c.durable_at = (span.sure && span.answered < issued).then_some(self.time);
        }
        v.open.retain(|(span, failed)| {
            let over = *failed < issued;
            if over {
                let span = &mut spans[*span as usize];
                (span.open, span.closed) = (false, now);
            }
            !over
        });
    }

    /// A sync failed on some disk (rule 8).
    pub fn sync_failed(&mut self) {
        self.sync_failed = true;
    }

    /// Everything ended at sequence `now` (rules 4 and 5).
    pub fn crash(&mut self, crash: Crash, now: u64) {
        let unknown = self.spans.len() as SpanId;
        // After a failed sync nothing is promised that is not durable (rule 8).
        let outlived = (crash == Crash::Daemon && !self.sync_failed).then_some(unknown + 1);
        for v in &mut self.volumes {
            let k = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: false };
            let only_daemon = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: true };
            for block in v.blocks.iter_mut().flatten() {
                for h in block.histories_mut() {
                    h.prune(&k, u64::MAX);
                    let left = h.left_by_daemon(&only_daemon);
                    h.crash(unknown);
                    if let Some(span) = outlived.filter(|_| left.len() < h.entries().len()) {
                        h.push(span, left);
                    }
                }
            }
            v.open.clear();
        }
        // What outlived the daemon follows what did not: only a power cut can bring that back.
        let durable = crash == Crash::Power;
        for at in [now.saturating_sub(1), now] {
            self.spans.push(Span::new(at, at, durable, true));
        }
        self.sync_failed = false;
        self.reads.clear();
    }
}

#[cfg(test)]
mod tests;
