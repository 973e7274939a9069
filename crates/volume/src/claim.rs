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
//! 4. Who waits for blocks of a chunk gets them when those before it are done, however many come after: who wants any of the same
//!    blocks stands behind it. Counter-example without: two clients that rewrite a block each in turns always hold one of them, and
//!    who wants the whole chunk waits for ever.
//! 5. Nobody who holds a claim asks for another one of the same chunk: it would stand behind those who wait for it. So those in line
//!    wait for claims that are held, and these, by 1, for nothing but chunks further on.
//! 6. Somebody stands in line only while somebody else holds a claim on the chunk. A claim that ends is handed on in the same step.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::rc::Rc;

use crate::line::{Line, Place};
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
    /// Who waits for which blocks, if anybody does.
    line: Option<Box<Line<u32>>>,
}

impl Claim {
    /// Whether whoever comes now gets these blocks.
    fn is_free(&self, mask: u32) -> bool {
        self.busy & mask == 0 && self.line.as_ref().is_none_or(|line| line.all().all(|wants| *wants & mask == 0))
    }

    fn take(&mut self, mask: u32) {
        self.busy |= mask;
        self.holders += 1;
    }

    /// Gives the first in line what it waits for that nobody holds, and nobody before it waits for.
    fn hand_on(&mut self) -> Option<Rc<Place<u32>>> {
        let line = self.line.as_mut()?;
        let mut taken = self.busy;
        let next = line.call_any(|wants| {
            let free = *wants & taken == 0;
            taken |= *wants;
            free
        })?;
        if line.is_empty() {
            self.line = None;
        }
        self.take(*next.wants());
        Some(next)
    }

    /// Somebody does not want to wait any more. Says whether it still did.
    fn give_up(&mut self, place: &Rc<Place<u32>>) -> bool {
        let Some(line) = self.line.as_mut() else { return false };
        let waited = line.leave(place);
        if line.is_empty() {
            self.line = None;
        }
        waited
    }
}

#[derive(Default)]
struct Pinned {
    count: u32,
    /// The overwriting that was the last here, by its number.
    overwritten: u64,
}

/// A move on its way.
struct Motion {
    cancelled: bool,
    /// It was begun by the holder of a claim, which may be gone before it ends.
    under_claim: bool,
}

#[derive(Default)]
pub(crate) struct Claims {
    claims: RefCell<IntMap<ChunkId, Claim>>,
    pins: RefCell<IntMap<SlotId, Pinned>>,
    /// How often blocks that are not valid were overwritten in a slot that was pinned.
    overwrites: Cell<u64>,
    /// Notified when a slot's last pin goes.
    pub(crate) unpinned: Signal,
    /// Chunks in motion.
    motion: RefCell<IntMap<ChunkId, Motion>>,
    /// TRIMs that hit a chunk in motion.
    pub(crate) trims_in_motion: Cell<u64>,
}

impl Claims {
    /// Claims blocks `mask` of a chunk; waits for others who hold any of them, or wait for any.
    pub(crate) async fn claim(&self, chunk: ChunkId, mask: u32) -> Claimed<'_> {
        let mut claimed = Claimed { claims: self, chunk, mask, place: self.take_or_stand(chunk, mask) };
        if let Some(place) = claimed.place.clone() {
            place.called().await;
            claimed.place = None;
        }
        claimed
    }

    /// Takes blocks that are free, or gives a place in line for them.
    fn take_or_stand(&self, chunk: ChunkId, mask: u32) -> Option<Rc<Place<u32>>> {
        let mut table = self.claims.borrow_mut();
        let c = table.entry(chunk).or_default();
        if c.is_free(mask) || mutant::on(Mutant::RmwWithoutClaim) {
            c.take(mask);
            return None;
        }
        Some(c.line.get_or_insert_default().stand(mask))
    }

    /// Claims a whole chunk.
    pub(crate) async fn claim_alone(&self, chunk: ChunkId) -> Claimed<'_> {
        self.claim(chunk, u32::MAX).await
    }

    /// Hands on what nobody holds any more, and forgets a chunk that nobody wants.
    fn hand_on(&self, chunk: ChunkId) {
        loop {
            let mut table = self.claims.borrow_mut();
            let Some(c) = table.get_mut(&chunk) else { return };
            let Some(next) = c.hand_on() else {
                if c.holders == 0 {
                    debug_assert!(c.line.is_none(), "invariant 6");
                    table.remove(&chunk);
                }
                return;
            };
            drop(table);
            next.wake();
        }
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
        if let Some(m) = motion.get_mut(&chunk) {
            if trim {
                self.trims_in_motion.set(self.trims_in_motion.get() + 1);
            }
            let spared = mutant::on(if trim { Mutant::C3SwitchDespiteTrim } else { Mutant::C3SwitchDespiteWrite });
            m.cancelled = !(spared || m.under_claim && mutant::on(Mutant::C3ForcedGoesOn));
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
        self.motion.borrow_mut().insert(chunk, Motion { cancelled: false, under_claim: own > 0 });
        true
    }

    /// Ends a move and says whether it may still switch.
    pub(crate) fn end_motion(&self, chunk: ChunkId) -> bool {
        self.motion.borrow_mut().remove(&chunk).is_some_and(|m| !m.cancelled)
    }

    pub(crate) fn is_cancelled(&self, chunk: ChunkId) -> bool {
        self.motion.borrow().get(&chunk).is_none_or(|m| m.cancelled)
    }

    pub(crate) fn in_motion(&self, chunk: ChunkId) -> bool {
        self.motion.borrow().contains_key(&chunk)
    }

    pub(crate) fn motions(&self) -> usize {
        self.motion.borrow().len()
    }
}

/// Blocks of a chunk claimed, or waited for; released when dropped.
pub(crate) struct Claimed<'a> {
    claims: &'a Claims,
    pub(crate) chunk: ChunkId,
    pub(crate) mask: u32,
    /// While it is waited for.
    place: Option<Rc<Place<u32>>>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        // It goes last, with nothing borrowed: a task may go with its waker.
        let place = self.place.take();
        let mut table = self.claims.claims.borrow_mut();
        if let Some(c) = table.get_mut(&self.chunk) {
            if !place.as_ref().is_some_and(|place| c.give_up(place)) {
                c.busy &= !self.mask;
                c.holders -= 1;
            }
        }
        drop(table);
        self.claims.hand_on(self.chunk);
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

#[cfg(test)]
mod tests;
