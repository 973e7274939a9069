//! Who works on what right now.
//!
//! Terms: a *claim* excludes other writes, TRIMs and zeroings from blocks of a chunk while one is under way. A *pin*
//! says that I/O is in flight on a slot. A chunk in *motion* is being copied by the mover.
//!
//! Invariants:
//! 1. Claims of one request are taken in the order of its volume's chunks, so that no two requests wait for each other.
//! 2. A slot that was left is not free while it is pinned (C2.1).
//! 3. Whoever claims blocks of a chunk in motion cancels the move (C3.1, D7), and no copy begins while another holds a
//!    claim.
//! 4. Who wants a chunk alone gets it when those before it are done, however many come after; and waits for nothing that
//!    waits for a claim.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, SlotId};
use crate::wait::Signal;

/// A fast hash for small integer keys that no input can choose freely.
#[derive(Default)]
pub(crate) struct IntHasher(u64);

impl Hasher for IntHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        let x = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 32);
    }
}

type IntMap<K, V> = HashMap<K, V, BuildHasherDefault<IntHasher>>;

#[derive(Default)]
struct Claim {
    busy: u32,
    holders: u32,
    /// Somebody waits to have the chunk alone: nobody else gets a claim.
    awaited: bool,
}

#[derive(Default)]
struct Pinned {
    count: u32,
    /// The overwriting that was the last here, by its number.
    overwritten: u64,
}

#[derive(Default)]
pub(crate) struct Claims {
    claims: RefCell<IntMap<ChunkId, Claim>>,
    released: Signal,
    pins: RefCell<IntMap<SlotId, Pinned>>,
    /// How often blocks that are not valid were overwritten in a slot that was pinned.
    overwrites: Cell<u64>,
    /// Notified when a slot's last pin goes.
    pub(crate) unpinned: Signal,
    /// Chunks in motion, and whether their move was cancelled.
    motion: RefCell<IntMap<ChunkId, bool>>,
    /// TRIMs that hit a chunk in motion.
    pub(crate) trims_in_motion: Cell<u64>,
}

impl Claims {
    /// Claims blocks `mask` of a chunk; waits for others who hold any of them.
    pub(crate) async fn claim(&self, chunk: ChunkId, mask: u32) -> Claimed<'_> {
        loop {
            if self.try_claim(chunk, mask) {
                return Claimed { claims: self, chunk, mask };
            }
            self.released.wait().await;
        }
    }

    /// Claims a whole chunk as soon as those who hold a claim on it now are done.
    pub(crate) async fn claim_alone(&self, chunk: ChunkId) -> Claimed<'_> {
        let turn = loop {
            if let Some(turn) = self.await_turn(chunk) {
                break turn;
            }
            self.released.wait().await;
        };
        while self.holders(chunk) > 0 {
            self.released.wait().await;
        }
        drop(turn);
        // In the same step: nobody else has had the chance.
        let mut table = self.claims.borrow_mut();
        *table.entry(chunk).or_default() = Claim { busy: u32::MAX, holders: 1, awaited: false };
        Claimed { claims: self, chunk, mask: u32::MAX }
    }

    fn await_turn(&self, chunk: ChunkId) -> Option<Turn<'_>> {
        let mut table = self.claims.borrow_mut();
        let awaited = &mut table.entry(chunk).or_default().awaited;
        // Made only if it is to be had: dropping one ends somebody's turn.
        (!std::mem::replace(awaited, true)).then(|| Turn { claims: self, chunk })
    }

    fn forget_unused(&self, chunk: ChunkId) {
        let mut table = self.claims.borrow_mut();
        if table.get(&chunk).is_some_and(|c| c.holders == 0 && !c.awaited) {
            table.remove(&chunk);
        }
        drop(table);
        self.released.notify();
    }

    fn try_claim(&self, chunk: ChunkId, mask: u32) -> bool {
        let mut table = self.claims.borrow_mut();
        let c = table.entry(chunk).or_default();
        if (c.busy & mask != 0 || c.awaited) && !mutant::on(Mutant::RmwWithoutClaim) {
            return false;
        }
        c.busy |= mask;
        c.holders += 1;
        true
    }

    /// Claims on the chunk, by whomever.
    pub(crate) fn holders(&self, chunk: ChunkId) -> u32 {
        self.claims.borrow().get(&chunk).map_or(0, |c| c.holders)
    }

    /// Blocks of the chunk that somebody has claimed.
    pub(crate) fn busy(&self, chunk: ChunkId) -> u32 {
        self.claims.borrow().get(&chunk).map_or(0, |c| c.busy)
    }

    /// Whether somebody has a claim on any of these chunks, or waits for one.
    pub(crate) fn any_in(&self, chunks: Range<ChunkId>) -> bool {
        self.claims.borrow().keys().any(|c| chunks.contains(c))
    }

    /// Says that I/O on the slot is in flight, until the pin is dropped.
    pub(crate) fn pin(&self, slot: SlotId) -> Pin<'_> {
        self.pins.borrow_mut().entry(slot).or_default().count += 1;
        Pin { claims: self, slot }
    }

    /// Blocks of the slot that are not valid are overwritten from here on. A read that began while they were valid may find
    /// either.
    pub(crate) fn overwrites(&self, slot: SlotId) {
        if let Some(pinned) = self.pins.borrow_mut().get_mut(&slot) {
            self.overwrites.set(self.overwrites.get() + 1);
            pinned.overwritten = self.overwrites.get();
        }
    }

    /// A moment to ask of what was overwritten since then.
    pub(crate) fn moment(&self) -> u64 {
        self.overwrites.get()
    }

    pub(crate) fn is_pinned(&self, slot: SlotId) -> bool {
        self.pins.borrow().contains_key(&slot)
    }

    /// The chunk is about to change: its move, if one is under way, must not switch.
    pub(crate) fn cancel_motion(&self, chunk: ChunkId, trim: bool) {
        let mut motion = self.motion.borrow_mut();
        if motion.is_empty() {
            return;
        }
        if let Some(cancelled) = motion.get_mut(&chunk) {
            if trim {
                self.trims_in_motion.set(self.trims_in_motion.get() + 1);
            }
            let spared = mutant::on(if trim { Mutant::C3SwitchDespiteTrim } else { Mutant::C3SwitchDespiteWrite });
            *cancelled = !spared;
        }
    }

    /// Begins a move; false if a claim is held or the chunk moves already (C3.1).
    pub(crate) fn begin_motion(&self, chunk: ChunkId) -> bool {
        self.begin_motion_beside(chunk, 0)
    }

    /// The same for the holder of a claim on the whole chunk.
    pub(crate) fn begin_motion_under(&self, claim: &Claimed<'_>) -> bool {
        self.begin_motion_beside(claim.chunk, 1)
    }

    fn begin_motion_beside(&self, chunk: ChunkId, own: u32) -> bool {
        let writer = self.holders(chunk) > own && !mutant::on(Mutant::C3CopyDespiteWriter);
        if writer || self.motion.borrow().contains_key(&chunk) {
            return false;
        }
        self.motion.borrow_mut().insert(chunk, false);
        true
    }

    /// Ends a move and says whether it may still switch.
    pub(crate) fn end_motion(&self, chunk: ChunkId) -> bool {
        let cancelled = self.motion.borrow_mut().remove(&chunk).unwrap_or(true);
        !cancelled
    }

    pub(crate) fn is_cancelled(&self, chunk: ChunkId) -> bool {
        self.motion.borrow().get(&chunk).copied().unwrap_or(true)
    }

    pub(crate) fn in_motion(&self, chunk: ChunkId) -> bool {
        self.motion.borrow().contains_key(&chunk)
    }

    pub(crate) fn motions(&self) -> usize {
        self.motion.borrow().len()
    }
}

/// Blocks of a chunk claimed; released when dropped.
pub(crate) struct Claimed<'a> {
    claims: &'a Claims,
    pub(crate) chunk: ChunkId,
    pub(crate) mask: u32,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut table = self.claims.claims.borrow_mut();
        if let Some(c) = table.get_mut(&self.chunk) {
            c.busy &= !self.mask;
            c.holders -= 1;
        }
        drop(table);
        self.claims.forget_unused(self.chunk);
    }
}

/// Waits to have a chunk alone; others wait behind it until this is dropped.
struct Turn<'a> {
    claims: &'a Claims,
    chunk: ChunkId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(c) = self.claims.claims.borrow_mut().get_mut(&self.chunk) {
            c.awaited = false;
        }
        self.claims.forget_unused(self.chunk);
    }
}

/// I/O in flight on a slot; ends when dropped.
pub(crate) struct Pin<'a> {
    claims: &'a Claims,
    slot: SlotId,
}

impl Pin<'_> {
    /// Whether blocks of the slot that are not valid any more were overwritten after that moment.
    pub(crate) fn overwritten_since(&self, moment: u64) -> bool {
        let pins = self.claims.pins.borrow();
        self.claims.overwrites.get() != moment && pins.get(&self.slot).is_some_and(|p| p.overwritten > moment)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let mut pins = self.claims.pins.borrow_mut();
        if let Some(pinned) = pins.get_mut(&self.slot) {
            pinned.count -= 1;
            if pinned.count == 0 {
                pins.remove(&self.slot);
                drop(pins);
                self.claims.unpinned.notify();
            }
        }
    }
}
