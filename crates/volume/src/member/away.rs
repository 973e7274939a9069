//! The away bitmap (C8.1): regions of which this member may not know the newest state. A region is a map page.
//!
//! Invariants:
//! 1. `durable` bits are on the medium; a chunk gets its first home when the bit of its region is.
//! 2. A block is written to its older side; if either side is unreadable at a start, the block counts as all set.
//! 3. What counts as all set for that is written so before anything is done that relies on it: what could not be read may be
//!    readable again at the next start, and says what was true then.
//! 4. What is written later has a higher sequence, also than copies that nobody could read: with neither side read it goes on from
//!    the generation, of which there are more than writes of a block (`PER_GENERATION` for each).
//! 5. A side that cannot be read is one ahead of a sound one at most: what is written to either is so, and changes go to them by turns.

use std::ops::RangeInclusive;

use bimetal_format::away::{self as raw, REGIONS_PER_BLOCK};
use bimetal_format::layout::away_blocks;

use super::{Member, WriteFor};
use crate::buf::BufMut;
use crate::env::{Device, DeviceError};
use crate::mutant::{self, Mutant};
use crate::units::BLOCK;

const WORDS: usize = REGIONS_PER_BLOCK / 64;
/// Regions set together with one that is needed: a GiB, so that new data practically never wait for a bit.
pub(crate) const AHEAD: u32 = 32;
/// More than a block is written within a generation: each write sets a bit of it at least, or clears all.
const PER_GENERATION: u64 = 1 << 20;
/// Generations above this are taken for it: sequences have an end (2^62).
const LAST_GENERATION: u64 = 1 << 41;

pub(crate) struct Away {
    /// Durable bits, all blocks one after another.
    durable: Vec<u64>,
    /// Per block: sequence of the newest copy, and its side.
    newest: Vec<(u64, u8)>,
    /// Blocks of which not both sides were sound when they were loaded.
    pub(crate) unsound: Vec<u64>,
    /// No copy that was read or written has a higher sequence.
    highest: u64,
}

impl Away {
    pub(crate) fn new(regions: u64) -> Away {
        let blocks = away_blocks(regions) as usize;
        Away { durable: vec![0; blocks * WORDS], newest: vec![(0, 1); blocks], unsound: Vec::new(), highest: 0 }
    }

    /// Sequence and side of the newest copy of a block.
    pub(crate) fn newest_of(&self, index: u64) -> (u64, u8) {
        self.newest[index as usize]
    }

    /// Durable bits of a block.
    fn bits(&self, index: u64) -> &[u64] {
        &self.durable[index as usize * WORDS..][..WORDS]
    }

    /// Whether these are the durable bits of a block.
    fn holds(&self, index: u64, bits: &[u64]) -> bool {
        self.bits(index) == bits
    }

    pub(crate) fn is_set(&self, region: u32) -> bool {
        self.durable[region as usize / 64] & 1 << (region % 64) != 0
    }
}

impl<D: Device> Member<D> {
    /// Reads both sides of every block; what cannot be read counts as set.
    pub(crate) async fn load_away(&self) -> Result<(), DeviceError> {
        let mut away = Away::new(self.layout.pages);
        away.highest = self.away.borrow().highest;
        for index in 0..away.newest.len() {
            let mut sound = 0;
            for side in 0..2u8 {
                let place = self.layout.away_block(index as u64, side);
                // What cannot be read is as good as rotten.
                let Ok(buf) = self.read(place, BufMut::new(BLOCK as usize)).await else { continue };
                let Ok((sequence, bits)) = raw::decode(&buf, index as u64, &self.salt(place)) else { continue };
                if bits.len() != WORDS {
                    continue;
                }
                sound += 1;
                away.highest = away.highest.max(sequence);
                if sequence > away.newest[index].0 {
                    away.newest[index] = (sequence, side);
                    away.durable[index * WORDS..][..WORDS].copy_from_slice(&bits);
                }
            }
            if sound < 2 {
                away.unsound.push(index as u64);
                away.durable[index * WORDS..][..WORDS].fill(u64::MAX);
            }
        }
        *self.away.borrow_mut() = away;
        Ok(())
    }

    /// Writes the blocks that count as all set because not both sides could be read. `generation`: the newest that was given out.
    /// The caller holds `away_meta`, or is alone.
    pub(crate) async fn mend_away(&self, generation: u64) -> Result<(), DeviceError> {
        let unsound = self.away.borrow().unsound.clone();
        if unsound.is_empty() || mutant::on(Mutant::AwayUnreadUnwritten) {
            return Ok(());
        }
        for index in unsound {
            let (read, side) = self.away.borrow().newest_of(index);
            let known = self.at_least(read, generation);
            let (mut last, mut failed) = (None, None);
            // The side that could not be read first (invariant 5).
            for (sequence, side) in [(known + 2, 1 - side), (known + 3, side)] {
                match self.write_away_block(index, sequence, side, &[u64::MAX; WORDS]).await {
                    Ok(()) => last = Some((sequence, side)),
                    Err(e) => failed = Some(e),
                }
            }
            match (last, failed) {
                // One that is newer than the other ever was will do.
                (Some(newest), failed) if failed.is_none() || read > 0 => {
                    self.away.borrow_mut().newest[index as usize] = newest;
                }
                (_, failed) => return Err(failed.unwrap_or(DeviceError::Io(5))),
            }
        }
        self.sync_all().await
    }

    /// A sequence that no copy of a block has exceeded by more than one, if this is the newest that was read.
    fn at_least(&self, read: u64, generation: u64) -> u64 {
        if read > 0 || mutant::on(Mutant::AwaySequenceAnew) {
            return read;
        }
        self.away.borrow().highest.max(generation.min(LAST_GENERATION) * PER_GENERATION)
    }

    async fn write_away_block(&self, index: u64, sequence: u64, side: u8, bits: &[u64]) -> Result<(), DeviceError> {
        let place = self.layout.away_block(index, side);
        let mut buf = BufMut::new(BLOCK as usize);
        let highest = self.away.borrow().highest.max(sequence);
        self.away.borrow_mut().highest = highest;
        raw::encode(&mut buf, index, sequence, bits, &self.salt(place));
        self.write(place, buf.freeze(), WriteFor::Engine).await
    }

    /// Writes the first copies of both sides, all clear. For a new member.
    pub(crate) async fn format_away(&self) -> Result<(), DeviceError> {
        for index in 0..away_blocks(self.layout.pages) {
            for side in 0..2u8 {
                self.write_away_block(index, u64::from(side) + 1, side, &[0; WORDS]).await?;
            }
        }
        Ok(())
    }

    /// For a member that joins a group in use: says of no region that it knows it.
    pub(crate) async fn set_all_away(&self, generation: u64) -> Result<(), DeviceError> {
        self.load_away().await?;
        self.mend_away(generation).await?;
        self.write_away(|bits, _| bits.fill(u64::MAX)).await
    }

    /// Whether the bits of all `regions` are durable.
    pub(crate) fn away_covers(&self, regions: &[u32]) -> bool {
        let away = self.away.borrow();
        regions.iter().all(|r| away.is_set(*r))
    }

    /// The first of these regions, if there are so many, whose bit is not durable.
    pub(crate) fn first_not_away(&self, regions: RangeInclusive<u32>) -> Option<u32> {
        let (away, pages) = (self.away.borrow(), self.layout.pages as u32);
        regions.take_while(|r| *r < pages).find(|r| !away.is_set(*r))
    }

    /// Makes the bits of `regions` durable, each with those behind it, `ahead` in all. The caller holds `away_meta`.
    pub(crate) async fn set_away(&self, regions: &[u32], ahead: u32) -> Result<(), DeviceError> {
        self.write_away(|bits, pages| {
            for &r in regions {
                for near in r..(r + ahead.max(1)).min(pages) {
                    bits[near as usize / 64] |= 1 << (near % 64);
                }
            }
        })
        .await
    }

    /// In memory alone, for a start that only reads: this member may lack what was written anywhere.
    pub(crate) fn take_all_for_away(&self) {
        self.away.borrow_mut().durable.fill(u64::MAX);
    }

    /// Clears all bits: the pages of this member hold everything. The caller holds `away_meta`.
    pub(crate) async fn clear_away(&self) -> Result<(), DeviceError> {
        self.write_away(|bits, _| bits.fill(0)).await
    }

    /// Which sides of a block are not sound, the newest first; that one must hold the durable bits, too, if they are `known` to be what
    /// was written there last. The caller holds `away_meta`.
    pub(crate) async fn unsound_sides(&self, index: u64, known: bool) -> Vec<u8> {
        let newest = self.away.borrow().newest_of(index).1;
        let mut unsound = Vec::new();
        for side in [newest, 1 - newest] {
            let place = self.layout.away_block(index, side);
            let read = self.read(place, BufMut::new(BLOCK as usize)).await;
            let bits = read.ok().and_then(|b| raw::decode(&b, index, &self.salt(place)).ok().map(|(_, bits)| bits));
            let sound = bits.is_some_and(|bits| side != newest || !known || self.away.borrow().holds(index, &bits));
            if !sound {
                unsound.push(side);
            }
        }
        unsound
    }

    /// Writes the durable bits of a block to sides of it that are not sound: until both are, it counts as all set (invariant 2), and
    /// whichever is the newest then says the same. The caller holds `away_meta`, and syncs.
    pub(crate) async fn mend_sides(&self, index: u64, unsound: &[u8]) -> Result<(), DeviceError> {
        for side in unsound {
            let newest = self.away.borrow().newest_of(index).1;
            // However often it is tried in vain, the side that nobody can read is one ahead of the other at most (invariant 5).
            if unsound.len() == 1 && newest == *side {
                self.write_side(index, 1 - side).await?;
            }
            self.write_side(index, *side).await?;
        }
        Ok(())
    }

    /// Writes the durable bits of a block to one side of it, as the newest. Where that fails, how far it came is not known: what is written
    /// next is newer all the same, and goes to the other side.
    async fn write_side(&self, index: u64, side: u8) -> Result<(), DeviceError> {
        let (sequence, bits) = {
            let away = self.away.borrow();
            (away.newest_of(index).0 + 1, away.bits(index).to_vec())
        };
        self.away.borrow_mut().newest[index as usize] = (sequence, side);
        self.write_away_block(index, sequence, side, &bits).await
    }

    /// Writes every block with a bit set and both sides sound again, to its older side; the caller syncs. What is not sound is mended
    /// elsewhere.
    pub(crate) async fn write_away_anew(&self) -> Result<(), DeviceError> {
        let blocks = self.away.borrow().newest.len() as u64;
        for index in 0..blocks {
            let ((sequence, side), bits) = {
                let away = self.away.borrow();
                if away.unsound.contains(&index) {
                    continue;
                }
                (away.newest_of(index), away.bits(index).to_vec())
            };
            if bits.iter().any(|word| *word != 0) {
                self.write_away_block(index, sequence + 1, 1 - side, &bits).await?;
                self.away.borrow_mut().newest[index as usize] = (sequence + 1, 1 - side);
            }
        }
        Ok(())
    }

    async fn write_away(&self, change: impl FnOnce(&mut [u64], u32)) -> Result<(), DeviceError> {
        let (old, newest) = {
            let away = self.away.borrow();
            (away.durable.clone(), away.newest.clone())
        };
        let mut bits = old.clone();
        change(&mut bits, self.layout.pages as u32);
        let mut written = newest.clone();
        for index in 0..newest.len() {
            let part = index * WORDS..(index + 1) * WORDS;
            if bits[part.clone()] == old[part.clone()] {
                continue;
            }
            let (sequence, side) = newest[index];
            written[index] = (sequence + 1, 1 - side);
            self.write_away_block(index as u64, sequence + 1, 1 - side, &bits[part]).await?;
        }
        self.sync_all().await?;
        let mut away = self.away.borrow_mut();
        away.durable = bits;
        away.newest = written;
        Ok(())
    }
}
