//! Whether what a read returned is legal, and what is known from it on (rules 2, 5 to 9).

use bimetal_volume::backend::{Piece, Pieces};
use smallvec::SmallVec;

use super::block::{fresh, Block};
use super::history::{Entry, Knowledge, Span, SpanId};
use super::value::{code_of, Value};
use super::{Change, Older, Oracle, Wrong, BLOCK, SECTOR_BYTES, ZERO_CODE};
use crate::content::{describe_bytes, is_data_of, may_be_patched, SECTOR, SECTORS};

impl Oracle {
    /// Checks the answer of a read that was issued at sequence `issued`, and learns from it.
    pub fn check(&mut self, volume: usize, offset: u64, pieces: &Pieces, issued: u64) -> Result<(), Wrong> {
        self.check_pieces(volume, offset, pieces, issued, true)
    }

    /// Checks the answer of a read in a start that will be undone: learns nothing (rules 5 and 6 do not apply). As
    /// `stale` says, older data of the same place is accepted, and zeros in a block that was loaded (it may have been written
    /// in part): slow members alone may report it instead of hiding it (C8.1). Zeros for what is not stored stay wrong.
    pub fn peek(
        &mut self,
        volume: usize,
        offset: u64,
        pieces: &Pieces,
        issued: u64,
        stale: Older,
    ) -> Result<(), Wrong> {
        self.stale = stale;
        let result = self.check_pieces(volume, offset, pieces, issued, false);
        self.stale = Older::None;
        result
    }

    fn check_pieces(
        &mut self,
        volume: usize,
        offset: u64,
        pieces: &Pieces,
        issued: u64,
        learn: bool,
    ) -> Result<(), Wrong> {
        let mut at = offset;
        let aligned = |p: &Piece| p.len() % SECTOR_BYTES == 0;
        if offset % SECTOR_BYTES == 0 && pieces.iter().all(aligned) {
            for piece in pieces {
                match piece {
                    Piece::Data(b) => self.check_bytes(volume, at, b, issued, learn)?,
                    Piece::Zero(n) => self.check_zeros(volume, at, *n, issued, learn)?,
                }
                at += piece.len();
            }
            return Ok(());
        }
        let mut flat = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Data(b) => flat.extend_from_slice(b),
                Piece::Zero(n) => flat.resize(flat.len() + *n as usize, 0),
            }
        }
        self.check_bytes(volume, offset, &flat, issued, learn)
    }

    /// Zeros of any length were read; blocks without history need no look.
    fn check_zeros(&mut self, volume: usize, offset: u64, len: u64, issued: u64, learn: bool) -> Result<(), Wrong> {
        let zeros = [0; BLOCK as usize];
        let mut at = offset;
        while at < offset + len {
            let end = (at - at % BLOCK + BLOCK).min(offset + len);
            if self.volumes[volume].blocks[(at / BLOCK) as usize].is_some() {
                let stale = std::mem::replace(&mut self.stale, Older::None);
                let result = self.check_bytes(volume, at, &zeros[..(end - at) as usize], issued, learn);
                self.stale = stale;
                result?;
            }
            at = end;
        }
        Ok(())
    }

    fn check_bytes(&mut self, volume: usize, offset: u64, bytes: &[u8], issued: u64, learn: bool) -> Result<(), Wrong> {
        let mut at = 0;
        while at < bytes.len() {
            let byte = offset + at as u64;
            let n = (SECTOR - (byte % SECTOR_BYTES) as usize).min(bytes.len() - at);
            self.check_sector(volume, byte, &bytes[at..at + n], issued, learn)?;
            at += n;
        }
        Ok(())
    }

    fn check_sector(&mut self, volume: usize, byte: u64, bytes: &[u8], issued: u64, learn: bool) -> Result<(), Wrong> {
        let sector = byte / SECTOR_BYTES;
        let v = &mut self.volumes[volume];
        let k = Knowledge { spans: &self.spans, flushed: v.flushed, daemon: false };
        let slot = &mut v.blocks[(byte / BLOCK) as usize];
        let virgin = fresh();
        let h = slot.as_ref().map_or(&virgin, |b| b.history((sector % SECTORS as u64) as usize));
        let whole = bytes.len() == SECTOR;
        let code = whole.then(|| code_of(bytes)).flatten();
        let inside = (byte % SECTOR_BYTES) as usize;
        let same = |value: Value| {
            if whole {
                self.patches.matches(value, volume, sector, bytes, code)
            } else {
                self.patches.bytes(value, volume, sector)[inside..inside + bytes.len()] == *bytes
            }
        };
        if let [only] = h.entries() {
            if same(only.value) {
                return Ok(());
            }
        }
        let legal = |e: &&Entry| h.live(e, issued, &k) || (self.sync_failed && h.survives(e, &k, u64::MAX));
        let candidates: SmallVec<[Entry; 4]> = h.entries().iter().filter(legal).copied().collect();
        let found: SmallVec<[Entry; 4]> = candidates.iter().filter(|e| same(e.value)).copied().collect();
        let older = |c: u64| c == ZERO_CODE || is_data_of(c, volume, sector);
        let was_once = || code.map_or_else(|| !whole || may_be_patched(bytes, volume, sector), older);
        let writer = code.and_then(crate::content::writer_of).map(|(_, write)| write);
        let outdated = self.stale == Older::Recent
            && writer.is_some_and(|w| is_outdated(&self.changes, &self.spans, volume, sector, w));
        if found.is_empty() && self.stale != Older::None && was_once() && !outdated {
            return Ok(());
        }
        if found.is_empty() {
            let legal = candidates.iter().map(|e| self.patches.describe(e.value)).collect();
            let mut got = describe_bytes(bytes);
            if self.stale != Older::None && was_once() {
                got += ", which was replaced long ago";
            }
            return Err(Wrong { volume, offset: byte, got, legal });
        }
        // An older read may still bring back what this one rules out.
        let oldest = self.reads.iter().copied().min().unwrap_or(issued).min(issued);
        let quiet = h.quiet(&k) && h.last_answer(&k) < oldest;
        if learn && whole && quiet && !self.sync_failed && candidates.len() > found.len() {
            let mut pruned = h.clone();
            pruned.prune(&k, u64::MAX);
            let end = pruned.last_answer(&k) + 1;
            let settled = pruned.settle(&found, k.spans.len() as SpanId, &k);
            *slot.get_or_insert_with(|| Block::Whole(fresh())).split_at(sector) = pruned;
            if settled {
                self.spans.push(Span::new(end, end, false, false));
            }
        }
        Ok(())
    }
}

/// Whether a slow member alone must know that this data of a sector is not the newest.
fn is_outdated(changes: &[Change], spans: &[Span], volume: usize, sector: u64, write: u64) -> bool {
    let Some(old) = changes.iter().find(|c| c.value == Value::write(write)) else { return false };
    let over = spans[old.span as usize].answered;
    let (from, to) = (sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES);
    let covers = |c: &Change| c.volume == volume && c.from <= from && to <= c.to;
    changes.iter().any(|c| c.told && covers(c) && spans[c.span as usize].issued > over)
}
