//! The journal ring of a member.
//!
//! Terms: block `sequence` lies at `sequence % blocks`. `tail` is the first block that recovery replays, `head` the
//! next to be written. A commit writes whole blocks; its blocks carry the same generation.
//!
//! Invariants:
//! 1. Blocks from `tail` to `head` are never overwritten (C5.3): `head - tail <= blocks`.
//! 2. Each block carries the hash of the one before (C6).
//! 3. `durable` is the position after the newest commit that is durable on every fast member; a checkpoint may move
//!    the tail up to there.

use bimetal_format::journal::{self, JournalHead, Record};
use bimetal_format::label::Label;

use super::{Member, WriteFor};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError};
use crate::units::BLOCK;

/// A position in the ring's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Sequence of the next block.
    pub(crate) sequence: u64,
    /// Hash of the block before it.
    pub(crate) hash: u64,
}

/// The upper half of what stands for the hash before a journal that begins anew.
const ANEW: u64 = 0x616e_6577 << 32;

impl Position {
    /// Where a journal begins anew, unconnected to what is on the ring: there is no block before it.
    pub(crate) fn anew(sequence: u64, random: u64) -> Position {
        Position { sequence, hash: ANEW | random >> 32 }
    }

    /// Whether the hash is that of a block on the ring.
    pub(crate) fn follows_a_block(&self) -> bool {
        self.sequence > 0 && self.hash >> 32 != ANEW >> 32
    }
}

pub(crate) struct Journal {
    pub(crate) tail: u64,
    pub(crate) head: Position,
    pub(crate) durable: Position,
    /// Times the ring came back to its first block.
    pub(crate) wraps: u64,
}

impl Journal {
    /// An empty journal that begins at the label's tail.
    pub(crate) fn at_tail(label: &Label) -> Journal {
        let at = Position { sequence: label.journal_tail, hash: label.journal_tail_hash };
        Journal { tail: label.journal_tail, head: at, durable: at, wraps: 0 }
    }

    pub(crate) fn used(&self) -> u64 {
        self.head.sequence - self.tail
    }
}

impl<D: Device> Member<D> {
    /// Blocks that so many records take.
    pub(crate) fn blocks_for(&self, records: usize) -> u64 {
        records.div_ceil(self.journal_records) as u64
    }

    /// Whether more than `part` in `of` of the ring is in use.
    pub(crate) fn journal_used(&self, part: u64, of: u64) -> bool {
        self.journal.borrow().used() * of > self.layout.journal_blocks * part
    }

    /// Whether a checkpoint would make room: not if all that is in use is of a commit under way, which may wait for another member.
    pub(crate) fn journal_gains(&self) -> bool {
        let j = self.journal.borrow();
        j.durable.sequence > j.tail
    }

    /// Whether `blocks` more fit the ring.
    pub(crate) fn journal_has_room(&self, blocks: u64) -> bool {
        self.journal.borrow().used() + blocks <= self.layout.journal_blocks
    }

    /// Appends the records of commit `generation`; not synced. The caller holds `meta` and has made room.
    pub(crate) async fn append(&self, records: &[Record], generation: u64, epoch: u64) -> Result<(), DeviceError> {
        self.append_blocks(self.blocks_for(records.len()), records, generation, epoch).await
    }

    /// Appends a block without records; not synced. The caller holds `meta` and has made room.
    pub(crate) async fn append_end(&self, generation: u64, epoch: u64) -> Result<(), DeviceError> {
        self.append_blocks(1, &[], generation, epoch).await
    }

    /// The same, and synced. The caller has no other blocks on their way, either.
    pub(crate) async fn append_durable_end(&self, generation: u64, epoch: u64) -> Result<(), DeviceError> {
        self.append_end(generation, epoch).await?;
        self.sync_all().await?;
        let mut j = self.journal.borrow_mut();
        j.durable = j.head;
        Ok(())
    }

    async fn append_blocks(
        &self,
        count: u64,
        records: &[Record],
        generation: u64,
        epoch: u64,
    ) -> Result<(), DeviceError> {
        assert!(self.journal_has_room(count), "journal invariant 1");
        let start = self.journal.borrow().head;
        let mut buf = BufMut::new((count * BLOCK) as usize);
        let mut at = start;
        let mut rest = records.chunks(self.journal_records);
        for block in buf.chunks_exact_mut(BLOCK as usize) {
            let records = rest.next().unwrap_or_default();
            let head = JournalHead {
                sequence: at.sequence,
                generation,
                epoch,
                previous: at.hash,
                commit_start: start.sequence,
            };
            let salt = self.salt(self.layout.journal_block(at.sequence));
            at = Position { sequence: at.sequence + 1, hash: journal::encode(block, &head, records, &salt) };
        }
        let buf = buf.freeze();
        let until_wrap = self.layout.journal_blocks - start.sequence % self.layout.journal_blocks;
        let first = count.min(until_wrap);
        {
            let mut j = self.journal.borrow_mut();
            j.head = at;
            j.wraps += u64::from(count >= until_wrap);
        }
        let place = self.layout.journal_block(start.sequence);
        self.write(place, buf.slice(0, (first * BLOCK) as usize), WriteFor::Engine).await?;
        if count > first {
            let rest = buf.slice((first * BLOCK) as usize, ((count - first) * BLOCK) as usize);
            self.write(self.layout.journal, rest, WriteFor::Engine).await?;
        }
        Ok(())
    }
}
