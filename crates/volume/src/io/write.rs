//! Writes: in place on the home slot; a new chunk takes a slot first. A mask bit is set when the write has completed
//! (C1.2), and a failed write sets none (C11.2).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bimetal_format::{entry, Entry};
use smallvec::SmallVec;

use super::anew::Anew;
use super::split::{mask_of, Part};
use crate::backend::{Piece, Wanted, WriteFlags};
use crate::buf::{Buf, BufMut};
use crate::claim::{Claimed, Pin};
use crate::commit::Reserved;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::family::cipher::{self, Writing};
use crate::family::elsewhere::On;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::kept::kept_slot;
use crate::member::WriteFor;
use crate::mutant::{self, Mutant};
use crate::tier::{DeviceRange, Policy, Touch};
use crate::units::{ChunkId, MemberIndex, SlotId, Tier, BLOCK, CHUNK};
use crate::wait;

/// Chunks of one request that are handled together. Longer requests take several rounds, so that claims, slots and
/// memory of one request are bounded. They lie in two regions at most.
const ROUND: usize = 64;

/// A part of a write that has a home. A chunk that got it for this alone loses it when this is dropped without anything having been
/// sent there: it would be held by nothing.
struct Placed<'a, E: Env> {
    core: &'a Core<E>,
    part: Part,
    slot: SlotId,
    /// The slot is not the chunk's home yet.
    anew: Option<Anew<'a, E>>,
    /// Its blocks are ciphertext.
    encrypted: bool,
    /// Something is on its way to the slot, or was.
    sent: Cell<bool>,
    claimed: Claimed<'a>,
    _pin: Pin<'a>,
}

impl<E: Env> Drop for Placed<'_, E> {
    fn drop(&mut self) {
        if self.anew.is_none() && !self.sent.get() && !mutant::on(Mutant::EmptyChunkKeepsSlot) {
            self.core.leave_if_empty(&self.claimed);
        }
    }
}

/// What a round that failed may do once more, elsewhere.
#[derive(Default)]
struct FirstTry {
    /// Some chunk may go elsewhere: it was written anew, or has no home.
    elsewhere: Cell<bool>,
    /// Parts that were sent and failed. What is done must not be done again: others may have written there since, and been told so.
    failed: RefCell<SmallVec<[Part; 2]>>,
}

/// One device request: a run of neighbouring parts.
struct Run {
    member: MemberIndex,
    offset: u64,
    data: Buf,
    parts: std::ops::Range<usize>,
}

impl<E: Env> Core<E> {
    /// Writes `data` at `offset` of a volume, as long as that is `wanted`.
    pub(crate) async fn write(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        data: Buf,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let _in = v.let_in_to_change(offset, data.len() as u64)?;
        self.write_let_in(v, offset, data, flags, wanted).await
    }

    /// The same for a request that was let in.
    pub(super) async fn write_let_in(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        data: Buf,
        flags: WriteFlags,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let len = data.len() as u64;
        let _admitted = self.admit_change(v, len).await?;
        let all: SmallVec<[Part; 2]> = v.parts(offset, len).collect();
        for round in all.chunks(ROUND) {
            self.write_round(v, offset, round, &data, wanted).await?;
            if mutant::on(Mutant::ChunkBorder) {
                break;
            }
        }
        if flags.fua {
            self.make_durable(all.iter().map(|p| p.chunk)).await?;
        } else if flags.outlives {
            self.make_outlive(all.iter().map(|p| p.chunk)).await?;
        }
        Ok(())
    }

    /// Writes what lies in a few chunks of a request that begins at byte `offset` of the volume.
    async fn write_round(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        round: &[Part],
        data: &Buf,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        // It has no room and no claim yet: others do not wait for it.
        self.announce([round[0].chunk.page(), round[round.len() - 1].chunk.page()]).await?;
        let first = FirstTry::default();
        let written = self.write_parts(v, offset, round, data, Some(&first), wanted).await;
        if !matches!(written, Err(Error::Device { .. })) || !first.elsewhere.get() {
            return written;
        }
        // The homes that the chunks have, or get now, may take what another place did not. Once: it may be a device that takes nothing.
        let failed = first.failed.take();
        let rest = if failed.is_empty() { round } else { &failed };
        self.write_parts(v, offset, rest, data, None, wanted).await
    }

    /// The same; chunks are written anew only if it is the first try.
    async fn write_parts(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        round: &[Part],
        data: &Buf,
        first: Option<&FirstTry>,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let failures = self.health.failures();
        let _room = self.room_for(v, round, first.is_some()).await?;
        let mut placed: SmallVec<[Placed<'_, E>; 2]> = SmallVec::new();
        let mut born: SmallVec<[ChunkId; 2]> = SmallVec::new();
        for part in round {
            if mutant::on(Mutant::ChunkBorder) && !placed.is_empty() {
                break;
            }
            let p = self.place_part(v, part, first, &mut born).await?;
            placed.push(p);
        }
        self.touch_all(round.iter().copied(), true, &born);
        let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
        let mut contents = self.contents_of(v, offset, &placed, data).await?.into_iter();
        for (i, p) in placed.iter().enumerate() {
            let (at, content) = contents.next().expect("one for each part");
            push_run(&mut runs, i, p.slot.member, self.slot_offset(p.slot) + at, content);
        }
        // What was read for the edges may be what an acknowledged write had replaced before a failed sync took that away:
        // merged with it, it must not be written (C11.1).
        if self.health.failures() != failures {
            self.health.check()?;
        }
        // Whoever writes there from now on waits for this one; whoever did before may have been told that it is done.
        if !wanted() && !mutant::on(Mutant::WriteOfTheGone) {
            return Err(Error::Stopping);
        }
        placed.iter().for_each(|p| p.sent.set(true));
        let results = match &runs[..] {
            [one] => SmallVec::<[_; 2]>::from_iter([self.transfer(one, &placed).await]),
            many => wait::all(many.iter().map(|r| self.transfer(r, &placed)).collect()).await.into(),
        };
        // A sync that failed meanwhile may have taken away what was written, and has named the chunks in doubt already:
        // a block that becomes valid now would be read as whatever its slot held before (C11.2).
        let doubt = self.health.failures() != failures && !mutant::on(Mutant::C11LateMask);
        let mut outcome = Ok(());
        for (run, result) in runs.iter().zip(results) {
            let result = if doubt { result.and(self.health.check()) } else { result };
            for p in &placed[run.parts.clone()] {
                self.settle_part(p, result.is_ok());
                if let Some(first) = first.filter(|_| result.is_err()) {
                    first.failed.borrow_mut().push(p.part);
                    first.elsewhere.set(first.elsewhere.get() || self.may_go_elsewhere(p));
                }
            }
            outcome = outcome.and(result);
        }
        outcome
    }

    fn slot_offset(&self, s: SlotId) -> u64 {
        self.members[s.member as usize].layout.slot(s.slot)
    }

    /// Claims the part's blocks and finds or makes the home of its chunk.
    async fn place_part<'a>(
        self: &'a Rc<Self>,
        v: &VolumeInfo,
        part: &Part,
        first: Option<&FirstTry>,
        born: &mut SmallVec<[ChunkId; 2]>,
    ) -> Result<Placed<'a, E>, Error> {
        let claimed = self.claim_part(v, part, v.cipher.is_on()).await?;
        loop {
            self.health.check()?;
            self.claims.cancel_motion(part.chunk, false);
            let entry = self.entry(part.chunk)?;
            let wanted = first.filter(|_| self.may_go_anew(v, part, &entry));
            if let Some((first, anew)) = wanted.and_then(|first| Some((first, self.begin_anew(v, part, &claimed)?))) {
                first.elsewhere.set(true);
                let (slot, encrypted) = (anew.slot, v.cipher.is_on());
                return Ok(Placed {
                    core: self,
                    part: *part,
                    slot,
                    anew: Some(anew),
                    encrypted,
                    sent: Cell::new(false),
                    claimed,
                    _pin: self.claims.pin(slot),
                });
            }
            // What waited for its blocks may change more than it took room for: overwrites, whose chunks were trimmed meanwhile.
            let valid = entry.is_mapped() && entry.mask & part.blocks() == part.blocks();
            if !valid && self.commit.has_too_many() {
                self.commit_changes().await?;
                continue;
            }
            let slot = match entry.is_mapped() {
                true => SlotId { member: entry.member, slot: entry.slot },
                false => {
                    let wish = self.wish_for(v, part);
                    let Some(slot) = self.allocate(v, part.chunk, wish).await? else { continue };
                    born.push(part.chunk);
                    let mask = if mutant::on(Mutant::C1DirtyAtSubmit) { part.blocks() } else { 0 };
                    let new = home(slot, mask, v.cipher.is_on());
                    self.change_entry(part.chunk, new);
                    slot
                }
            };
            self.cleanse(slot).await?;
            // Waiting for the sync of a tainted slot, the chunk may have moved.
            let now = self.entry(part.chunk)?;
            if !now.is_mapped() || (now.member, now.slot) != (slot.member, slot.slot) {
                continue;
            }
            self.claims.cancel_motion(part.chunk, false);
            self.end_kept(part.chunk);
            if mutant::on(Mutant::C1DirtyAtSubmit) {
                self.add_mask(part.chunk, part.blocks());
            }
            let encrypted = now.is_encrypted();
            let (sent, _pin) = (Cell::new(false), self.claims.pin(slot));
            return Ok(Placed { core: self, part: *part, slot, anew: None, encrypted, sent, claimed, _pin });
        }
    }

    /// Claims the part's blocks. With `encrypt`, plaintext that the chunk holds is encrypted first.
    async fn claim_part<'a>(
        self: &'a Rc<Self>,
        v: &VolumeInfo,
        part: &Part,
        encrypt: bool,
    ) -> Result<Claimed<'a>, Error> {
        loop {
            let claimed = self.claims.claim(part.chunk, part.blocks()).await;
            let e = self.entry(part.chunk)?;
            if !encrypt || !e.is_mapped() || e.is_encrypted() {
                return Ok(claimed);
            }
            drop(claimed);
            self.encrypt_chunk(v, part.chunk, On::Demand).await?;
        }
    }

    /// A slot with a write of unknown outcome is written again only after a sync (C2.2): else the old write could land
    /// after the new one.
    pub(crate) async fn cleanse(&self, slot: SlotId) -> Result<(), Error> {
        let m = &self.members[slot.member as usize];
        // Another write may fail while that goes on.
        while m.is_tainted(slot.slot) && !m.is_gone() && !mutant::on(Mutant::C2NoQuarantine) {
            // A sync that fails would take writes from those who do not need it.
            if m.is_lost() {
                return Err(Error::Device { member: slot.member, source: DeviceError::Disconnected });
            }
            self.sync_member(slot.member, m.sync.written()).await?;
        }
        Ok(())
    }

    /// Takes room for the entries that this round will change; overwrites in place need none.
    async fn room_for(&self, v: &VolumeInfo, round: &[Part], anew: bool) -> Result<Option<Reserved<'_>>, Error> {
        let mut changes = 0;
        for p in round {
            let e = self.entry(p.chunk)?;
            let plain = v.cipher.is_on() && !e.is_encrypted();
            let valid = e.is_mapped() && e.mask & p.blocks() == p.blocks();
            let anew = anew && self.may_go_anew(v, p, &e);
            changes += usize::from(!valid || plain || anew || kept_slot(&e).is_some());
        }
        if changes == 0 {
            return Ok(None);
        }
        self.wait_for_room(changes).await?;
        Ok(Some(self.commit.reserve(changes)))
    }

    /// Waits while so many more changes would be too many for one commit (I10).
    pub(crate) async fn wait_for_room(&self, changes: usize) -> Result<(), Error> {
        while !self.commit.has_room(changes) {
            let room = self.commit.room.wait();
            if self.commit.pending.borrow().is_empty() {
                room.await;
                self.health.check()?;
            } else {
                self.commit_changes().await?;
            }
        }
        Ok(())
    }

    /// The tier for a chunk that is new, or as good as new.
    pub(super) fn wish_for(&self, v: &VolumeInfo, part: &Part) -> Tier {
        let mut view = self.view();
        let address = part.chunk.0 * CHUNK + part.from;
        let touch = Touch { chunk: part.chunk, write: true, offset_in_group: address, len: part.len, born: true };
        match v.placement {
            crate::units::Placement::Auto => self.policy.borrow_mut().place(&mut view, &touch),
            crate::units::Placement::FastOnly => Tier::Fast,
            crate::units::Placement::SlowOnly => Tier::Slow,
        }
    }

    /// For each part the whole blocks to write, and their offset in the slot.
    async fn contents_of(
        &self,
        v: &VolumeInfo,
        offset: u64,
        placed: &[Placed<'_, E>],
        data: &Buf,
    ) -> Result<SmallVec<[(u64, Buf); 2]>, Error> {
        let mut contents: SmallVec<[(u64, Buf); 2]> = SmallVec::new();
        for p in placed {
            contents.push(self.content_of(v, offset, p, data).await?);
        }
        if placed.iter().any(|p| p.encrypted) {
            let len = contents.iter().map(|(_, c)| c.len() as u64).sum();
            let mut writing = Writing::new(v, len)?;
            for (p, (at, content)) in placed.iter().zip(&contents) {
                writing.add(chunk_start(offset, &p.part) + at, content, p.encrypted);
            }
            let all = writing.finish();
            let mut from = 0;
            for (_, content) in &mut contents {
                let len = content.len();
                *content = all.slice(from, len);
                from += len;
            }
        }
        Ok(contents)
    }

    /// The whole blocks to write for a part, not encrypted yet, and their offset in the slot. Edges inside a block are merged with what
    /// the block holds.
    async fn content_of(
        &self,
        v: &VolumeInfo,
        offset: u64,
        p: &Placed<'_, E>,
        data: &Buf,
    ) -> Result<(u64, Buf), Error> {
        let part = &p.part;
        let own = data.slice(part.at as usize, part.len as usize);
        if part.whole_blocks() == part.blocks() && own.is_aligned() {
            return Ok((part.from, own));
        }
        let first = part.from / BLOCK * BLOCK;
        let end = (part.from + part.len).next_multiple_of(BLOCK);
        let mut buf = BufMut::new((end - first) as usize);
        for edge in [first, end - BLOCK] {
            let whole = part.whole_blocks() & mask_of((edge / BLOCK) as u32, (edge / BLOCK) as u32 + 1) != 0;
            if !whole {
                let old = self.block_of(v, chunk_start(offset, part), part.chunk, edge).await?;
                buf[(edge - first) as usize..][..BLOCK as usize].copy_from_slice(&old);
            }
        }
        buf[(part.from - first) as usize..][..part.len as usize].copy_from_slice(&own);
        Ok((first, buf.freeze()))
    }

    /// The content of one block of a chunk that begins at byte `start` of the volume, zeros if it is not valid. The caller
    /// holds a claim on it.
    async fn block_of(&self, v: &VolumeInfo, start: u64, chunk: ChunkId, offset: u64) -> Result<BufMut, Error> {
        let e = self.entry(chunk)?;
        if !e.is_mapped() || e.mask & 1 << (offset / BLOCK) == 0 {
            return Ok(BufMut::zeroed(BLOCK as usize));
        }
        let m = &self.members[e.member as usize];
        let read = m.read(m.layout.slot(e.slot) + offset, BufMut::new(BLOCK as usize)).await;
        let mut block = read.map_err(|source| Error::Device { member: e.member, source })?;
        if e.is_encrypted() {
            cipher::decrypt_block(v, start + offset, &mut block)?;
        }
        Ok(block)
    }

    async fn transfer(&self, run: &Run, placed: &[Placed<'_, E>]) -> Result<(), Error> {
        let begun = self.foreground_begins(run.member);
        let m = &self.members[run.member as usize];
        let owed = mutant::on(Mutant::OwedBeforeWrite) && m.sync.owes_client();
        let result = m.write(run.offset, run.data.clone(), WriteFor::Client).await;
        let range = DeviceRange { member: run.member, offset: run.offset, bytes: run.data.len() as u64 };
        self.foreground_ends(&range, begun);
        if !owed {
            self.commit.owes();
        }
        if result.is_err() {
            for p in &placed[run.parts.clone()] {
                m.taint(p.slot.slot);
                if run.parts.len() == 1 {
                    // What comes next goes elsewhere, as after a copy by the mover. Of several it is not known which it was.
                    m.unwritable.borrow_mut().insert(p.slot.slot);
                }
            }
        }
        result.map_err(|source| Error::Device { member: run.member, source })
    }

    /// The write of a part has completed: its blocks are valid from now on, or, if it failed, as valid as before.
    fn settle_part(&self, p: &Placed<'_, E>, ok: bool) {
        let chunk = p.claimed.chunk;
        if let Some(anew) = &p.anew {
            if ok || mutant::on(Mutant::AnewThoughFailed) {
                anew.come_home();
            }
            return;
        }
        if ok || mutant::on(Mutant::C11MaskOnError) {
            let mut mask = p.claimed.mask;
            if mutant::on(Mutant::MaskBitLost) && mask.count_ones() > 1 {
                mask &= !(1 << mask.ilog2());
            }
            self.add_mask(chunk, mask);
            return;
        }
        self.leave_if_empty(&p.claimed);
    }

    /// Whether a part that has failed may be written to another place: its chunk has left the one that did not take it, because nothing
    /// of it is there. Not if the member is lost: that is for those to notice who come next.
    fn may_go_elsewhere(&self, p: &Placed<'_, E>) -> bool {
        let m = &self.members[p.slot.member as usize];
        let homeless = self.map.borrow().get(p.part.chunk).is_some_and(|e| !e.is_mapped());
        homeless && !m.is_lost() && !m.is_gone() && !mutant::on(Mutant::NewChunkTriedOnce)
    }

    /// A chunk without a valid block leaves its slot, unless others write to it.
    fn leave_if_empty(&self, claimed: &Claimed<'_>) {
        let chunk = claimed.chunk;
        let empty = self.map.borrow().get(chunk).is_some_and(|e| e.is_mapped() && e.mask == 0);
        if empty && self.claims.holders(chunk) == 1 {
            self.change_entry(chunk, Entry::default());
        }
    }

    fn add_mask(&self, chunk: ChunkId, mask: u32) {
        let Some(e) = self.map.borrow().get(chunk) else { return };
        if e.mask & mask != mask {
            self.change_entry(chunk, Entry { mask: e.mask | mask, ..e });
        }
    }

    /// Writes zeros over bytes of one block, if the block is valid at all.
    pub(super) async fn zero_edge(
        self: &Rc<Self>,
        v: &VolumeInfo,
        offset: u64,
        len: u64,
        wanted: Wanted<'_>,
    ) -> Result<(), Error> {
        let part = v.parts(offset, len).next();
        let Some(part) = part else { return Ok(()) };
        let e = self.entry(part.chunk)?;
        let valid = e.is_mapped() && e.mask & part.blocks() != 0;
        if !valid && self.claims.busy(part.chunk) & part.blocks() == 0 {
            return Ok(());
        }
        let mut zeros = BufMut::with_phase(len as usize, offset);
        zeros.fill(0);
        self.write_round(v, offset, &[part], &zeros.freeze(), wanted).await
    }
}

/// Where the chunk of a part begins in the volume; `offset` is where the request does.
fn chunk_start(offset: u64, part: &Part) -> u64 {
    offset + part.at - part.from
}

/// An entry whose chunk lives in `slot`.
pub(crate) fn home(slot: SlotId, mask: u32, encrypted: bool) -> Entry {
    let flags = if encrypted { entry::MAPPED | entry::ENCRYPTED } else { entry::MAPPED };
    Entry { slot: slot.slot, member: slot.member, mask, flags, ..Entry::default() }
}

/// Adds a part to the runs, joined with the one before where both are neighbours on the member and in memory.
fn push_run(runs: &mut SmallVec<[Run; 2]>, i: usize, member: MemberIndex, offset: u64, content: Buf) {
    if let Some(last) = runs.last_mut() {
        let adjacent = last.member == member && last.offset + last.data.len() as u64 == offset;
        if let Some(joined) = adjacent.then(|| last.data.join(&content)).flatten() {
            last.data = joined;
            last.parts.end = i + 1;
            return;
        }
    }
    runs.push(Run { member, offset, data: content, parts: i..i + 1 });
}

/// The bytes of an answer, in one piece. For callers that need them so.
pub fn gather(pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    for p in pieces {
        match p {
            Piece::Data(b) => out.extend_from_slice(b),
            Piece::Zero(n) => out.resize(out.len() + *n as usize, 0),
        }
    }
    out
}
