//! The ciphertext of a chunk goes to the slot that it is to live in.
//!
//! Whoever waits for that has a claim on the whole chunk, and everybody who wants to write there waits for him. So the writes are a task
//! of their own: when their member stands still ([`Member::stands_still`](crate::member::Member::stands_still)) they are left to it, and
//! the chunk goes to another one that has room.
//!
//! 1. A slot that was given up is free when what was sent there has come to its end, however late (C2.2): else it would land on what
//!    another chunk has there by then. A stop waits for it, as for all that is on its way.
//! 2. In the background nothing is sent to a member that stands still, nor waited for there. A client's write that finds no room
//!    elsewhere waits, like that to a new chunk.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bimetal_format::Entry;

use super::cipher::key_of;
use crate::buf::{Buf, BufMut};
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::io::split::runs;
use crate::member::WriteFor;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, Placement, SlotId, Tier, BLOCK, BLOCKS_PER_CHUNK, CHUNK};
use crate::wait::{self, Signal};

/// Whether the member stands still is looked at so often.
const LOOK: Duration = Duration::from_millis(200);
/// A slot is looked for again after so long, and for so long in all.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(20);

/// For whom a chunk is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// A client writes to it.
    Demand,
    /// It is its turn: it may have another one later.
    Turn,
}

/// Valid blocks of a chunk as ciphertext, by where they begin in it.
type Content = Vec<(u64, Buf)>;

/// Writes on their way to a slot.
#[derive(Default)]
struct Sent {
    outcome: RefCell<Option<Result<(), Error>>>,
    ended: Signal,
    /// Nobody wants them there any more.
    given_up: Cell<bool>,
}

/// What became of such writes.
enum Came {
    To(Result<(), Error>),
    /// Their member stands still: the chunk goes to this slot, or nowhere now.
    ToAStandstill(Option<SlotId>),
}

impl<E: Env> Core<E> {
    /// Copies what is valid of a chunk, encrypted, to another slot, and says to which one. So many failures were known
    /// before what is copied was found to be current.
    pub(super) async fn copy_elsewhere(
        self: &Rc<Self>,
        v: &VolumeInfo,
        before: (ChunkId, Entry),
        failures: u64,
        on: On,
    ) -> Result<SlotId, Error> {
        let (chunk, entry) = before;
        let from = SlotId { member: entry.member, slot: entry.slot };
        if mutant::on(Mutant::EncryptedInPlace) {
            let content = self.ciphertext_of(v, chunk, entry.mask, from).await?;
            return self.write_ciphertext(from, content).await.map(|()| from);
        }
        let to = self.slot_to_encrypt_to(v, chunk, self.tier_of_member(from.member)).await?;
        let _held = self.families.hold(1);
        if on == On::Turn && self.standing_still().has(to.member) {
            self.untake(to, chunk);
            return Err(stands_still(to));
        }
        let content = match self.ciphertext_of(v, chunk, entry.mask, from).await {
            Ok(content) => content,
            Err(e) => {
                self.untake(to, chunk);
                return Err(e);
            }
        };
        let to = self.write_where_it_answers(v, chunk, to, content, on).await?;
        let sure = if self.health.failures() == failures { Ok(()) } else { self.health.check() };
        if let Err(e) = sure {
            self.untake(to, chunk);
            return Err(e);
        }
        // The commit that makes the change of the entry durable syncs this first, like what a client has written. A copy that failed is
        // nobody's: a member that is lost owes no sync for it.
        if !mutant::on(Mutant::EncryptedNotSynced) {
            self.members[to.member as usize].sync.owe_client();
        }
        Ok(to)
    }

    /// Reads what is valid of a chunk and encrypts it. What is copied must not be overtaken by a write of unknown outcome (C2.2).
    async fn ciphertext_of(&self, v: &VolumeInfo, chunk: ChunkId, mask: u32, from: SlotId) -> Result<Content, Error> {
        if !mutant::on(Mutant::C2TaintedEncrypted) {
            self.cleanse(from).await?;
        }
        let number = v.number_of(chunk).ok_or(Error::Lost)?;
        let _pin = self.claims.pin(from);
        let mut content = Content::new();
        for (first, end, valid) in runs(mask, 0, BLOCKS_PER_CHUNK) {
            if valid {
                let at = u64::from(first) * BLOCK;
                let mut data = self.read_slot(from, at, u64::from(end - first) * BLOCK).await?;
                key_of(v)?.encrypt((number * CHUNK + at) / BLOCK, &mut data);
                content.push((at, data.freeze()));
            }
        }
        Ok(content)
    }

    /// Writes a chunk's ciphertext to this slot, which was taken for it, or to another one, and says to which.
    async fn write_where_it_answers(
        self: &Rc<Self>,
        v: &VolumeInfo,
        chunk: ChunkId,
        mut to: SlotId,
        content: Content,
        on: On,
    ) -> Result<SlotId, Error> {
        loop {
            let sent = self.send(chunk, to, content.clone());
            match self.comes_to(v, chunk, to, &sent, on).await {
                Came::To(Ok(())) => return Ok(to),
                Came::To(Err(e)) => {
                    self.untake(to, chunk);
                    return Err(e);
                }
                Came::ToAStandstill(elsewhere) => {
                    self.give_up(chunk, to, &sent);
                    to = elsewhere.ok_or_else(|| stands_still(to))?;
                }
            }
        }
    }

    /// Begins to write ciphertext to a slot, as a task of its own.
    fn send(self: &Rc<Self>, chunk: ChunkId, to: SlotId, content: Content) -> Rc<Sent> {
        let sent = Rc::new(Sent::default());
        let (core, task) = (self.clone(), sent.clone());
        self.env.spawn(async move {
            let outcome = core.write_ciphertext(to, content).await;
            if task.given_up.get() {
                core.is_adrift_no_more(chunk, to);
            }
            *task.outcome.borrow_mut() = Some(outcome);
            task.ended.notify();
        });
        sent
    }

    /// Nobody wants what was sent to a slot.
    fn give_up(&self, chunk: ChunkId, to: SlotId, sent: &Sent) {
        sent.given_up.set(true);
        self.families.adrift.set(self.families.adrift.get() + 1);
        if mutant::on(Mutant::AdriftFreedAtOnce) {
            self.untake(to, chunk);
        }
    }

    /// It has come to its end.
    fn is_adrift_no_more(&self, chunk: ChunkId, to: SlotId) {
        if !mutant::on(Mutant::AdriftFreedAtOnce) {
            self.untake(to, chunk);
        }
        self.families.adrift.set(self.families.adrift.get() - 1);
        self.families.ended.notify();
    }

    /// Waits for what was sent to a slot, unless its member stands still, and the chunk may go elsewhere or has time.
    async fn comes_to(&self, v: &VolumeInfo, chunk: ChunkId, to: SlotId, sent: &Sent, on: On) -> Came {
        loop {
            let ended = sent.ended.wait();
            if let Some(outcome) = sent.outcome.borrow_mut().take() {
                return Came::To(outcome);
            }
            wait::first(ended, self.env.sleep(LOOK)).await;
            let still = self.standing_still();
            if sent.outcome.borrow().is_some() || !still.has(to.member) {
                continue;
            }
            let tiers = tiers_for(v, self.tier_of_member(to.member));
            let elsewhere = self.slot_that_answers(tiers, v.placement, chunk, &still);
            if elsewhere.is_some() || on == On::Turn {
                return Came::ToAStandstill(elsewhere);
            }
        }
    }

    /// Nor may the copy be overtaken by such a write.
    async fn write_ciphertext(&self, to: SlotId, content: Content) -> Result<(), Error> {
        self.cleanse(to).await?;
        let _pin = self.claims.pin(to);
        for (at, data) in content {
            self.write_slot(to, at, data).await?;
        }
        Ok(())
    }

    async fn read_slot(&self, slot: SlotId, at: u64, len: u64) -> Result<BufMut, Error> {
        let m = &self.members[slot.member as usize];
        let read = m.read(m.layout.slot(slot.slot) + at, BufMut::new(len as usize)).await;
        read.map_err(|source| Error::Device { member: slot.member, source })
    }

    async fn write_slot(&self, slot: SlotId, at: u64, data: Buf) -> Result<(), Error> {
        let m = &self.members[slot.member as usize];
        let result = m.write(m.layout.slot(slot.slot) + at, data, WriteFor::Engine).await;
        if result.is_err() {
            // The next try should go elsewhere, as after a copy by the mover.
            m.taint(slot.slot);
            m.unwritable.borrow_mut().insert(slot.slot);
        }
        result.map_err(|source| Error::Device { member: slot.member, source })
    }

    /// A slot for the ciphertext: in the same tier rather than in the other. On a full group one comes free when those
    /// before it have left theirs (I5).
    async fn slot_to_encrypt_to(&self, v: &VolumeInfo, chunk: ChunkId, tier: Tier) -> Result<SlotId, Error> {
        let until = self.env.now().plus(PATIENCE);
        loop {
            let found = match self.slot_in_one_of(tiers_for(v, tier), v.placement, chunk).await {
                // Of a volume bound to a tier the mover may have to make room first.
                Err(Error::NoSpace) if self.env.now() < until && !self.stopping.get() => None,
                found => found?,
            };
            if let Some(slot) = found {
                return Ok(slot);
            }
            self.mover_wake.notify();
            self.env.sleep(LOOK_AGAIN).await;
        }
    }
}

/// Where the ciphertext of a chunk may go that lives in this tier.
fn tiers_for(v: &VolumeInfo, tier: Tier) -> [Tier; 2] {
    match v.placement {
        Placement::Auto => [tier, tier.other()],
        Placement::FastOnly => [Tier::Fast; 2],
        Placement::SlowOnly => [Tier::Slow; 2],
    }
}

/// Nothing was to be had of the member of this slot.
fn stands_still(slot: SlotId) -> Error {
    Error::Device { member: slot.member, source: DeviceError::Disconnected }
}
