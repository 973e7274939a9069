//! A volume that has held plaintext is encrypted while it is in use: first each chunk, here, then what slots still hold
//! of the plaintext, see [`super::wipe`].
//!
//! A chunk is encrypted by copying it: what is valid of it is read, encrypted, and written to another slot, and then
//! one change of its entry names that slot and says that it holds ciphertext. So the change becomes durable like that of
//! a chunk written for the first time (C1), and a crash leaves the chunk as it was or as it is to be. Writers wait for
//! the one chunk that is being copied, and copy theirs themselves when they come first: plaintext is never written to a
//! volume that has a family. Readers do not wait. (Beside evacuation the other exception to D7.)
//!
//! 1. The copy happens under a claim on the whole chunk, and waits for no disk that stands still ([`super::elsewhere`]). What was read
//!    under it is current, unless a sync failed meanwhile: then it is dropped (C11.1).
//!    A chunk without valid blocks leaves its slot.
//! 2. It goes on until no chunk of the volume is plaintext, after a restart too: entries tell what is left.
//! 3. Beside clients it takes a quarter of the time at most.

use std::rc::Rc;
use std::time::Duration;

use bimetal_format::{entry, Entry};

use super::elsewhere::On;
use crate::env::Env;
use crate::error::Error;
use crate::group::core::Core;
use crate::group::create::headroom;
use crate::group::structure::room::tier_of;
use crate::group::volume::VolumeInfo;
use crate::units::{ChunkId, Tier};
use crate::wait;

/// Chunks encrypted side by side while clients leave the devices alone, and beside them.
const AT_ONCE: usize = 16;
const AT_ONCE_BESIDE: usize = 2;
/// Devices left alone by clients for so long are idle.
const IDLE: Duration = Duration::from_millis(100);
/// Beside clients: rest after some chunks, in times that they took, and at most.
const REST: u32 = 3;
const REST_MOST: Duration = Duration::from_secs(2);
/// After a pass that left something undone.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_MOST: Duration = Duration::from_secs(60);
/// A stop is noticed after so long.
const NOTICE: Duration = Duration::from_millis(200);

impl<E: Env> Core<E> {
    /// Encrypts what is to be encrypted, as a task of its own, if there is none yet.
    pub(crate) fn start_encrypting(self: &Rc<Self>) {
        self.families.wake.notify();
        if self.writable && self.next_to_encrypt().is_some() && !self.families.running.replace(true) {
            let core = self.clone();
            self.env.spawn(async move {
                core.encrypt_all().await;
                core.families.failing.set(core.next_to_encrypt().is_some());
                core.families.running.set(false);
                core.families.ended.notify();
            });
        }
    }

    /// Waits until nothing is being encrypted or overwritten any more, nor on its way for it. The group is stopping.
    pub(crate) async fn encryption_ended(&self) {
        while self.families.running.get() || self.families.adrift.get() > 0 {
            self.families.ended.wait().await;
        }
    }

    /// Whether this may still go on. A member that is lost is back at the next start at the earliest.
    pub(super) fn encrypts(&self) -> bool {
        !self.stopping.get() && !self.stopped.get() && !self.health.is_latched() && self.check_reached().is_ok()
    }

    /// Volumes that may be encrypted now.
    pub(super) fn to_encrypt(&self) -> Vec<Rc<VolumeInfo>> {
        let mut living = self.volumes.living();
        living.retain(|v| v.cipher.is_encrypting() && !v.cipher.is_locked());
        living
    }

    fn next_to_encrypt(&self) -> Option<Rc<VolumeInfo>> {
        self.to_encrypt().into_iter().next()
    }

    async fn encrypt_all(self: &Rc<Self>) {
        let mut rest = AGAIN;
        while self.encrypts() {
            let more = self.families.wake.wait();
            let volumes = self.to_encrypt();
            if volumes.is_empty() {
                return;
            }
            let mut ready = Vec::new();
            for v in &volumes {
                if self.encrypt_chunks_of(v).await == 0 {
                    ready.push(v.clone());
                }
            }
            // One that cannot be read keeps no other from its end.
            let wiped = ready.is_empty() || self.wipe_after(&ready).await;
            let done = wiped && ready.len() == volumes.len();
            self.families.failing.set(!done);
            if done {
                rest = AGAIN;
                continue;
            }
            wait::first(self.pause(rest), more).await;
            rest = (rest * 2).min(AGAIN_MOST);
        }
    }

    pub(super) async fn pause(&self, duration: Duration) {
        let until = self.env.now().plus(duration);
        while self.encrypts() && self.env.now() < until {
            self.env.sleep(until.since(self.env.now()).min(NOTICE)).await;
        }
    }

    /// Chunks encrypted side by side. Half of the headroom is for the slots that clients need (I5).
    fn chunks_at_once(&self) -> usize {
        let most = if self.is_quiet() { AT_ONCE } else { AT_ONCE_BESIDE };
        most.min((self.headroom() / 2) as usize).max(1)
    }

    /// Slots of a tier for the ciphertext of volumes that are bound to it and being encrypted: nobody makes room for them
    /// when it is full of what may live on both.
    pub(crate) fn aside_for_encryption(&self, tier: Tier) -> u64 {
        let own = |v: &VolumeInfo| tier_of(v.placement) == Some(tier) && v.cipher.is_encrypting() && !v.deleted.get();
        match self.volumes.all().iter().any(|v| own(v)) {
            true => self.slots_for_encryption(tier),
            false => 0,
        }
    }

    /// See [`Core::aside_for_encryption`]: a small part of the tier's headroom.
    pub(crate) fn slots_for_encryption(&self, tier: Tier) -> u64 {
        (headroom(self.slots_in(tier)) / 8).clamp(1, AT_ONCE as u64)
    }

    /// Whether clients leave the devices alone.
    pub(super) fn is_quiet(&self) -> bool {
        self.quiet_for(Tier::Fast).min(self.quiet_for(Tier::Slow)) >= IDLE
    }

    /// Rests beside clients after work that began then.
    pub(super) async fn rest_after(&self, begun: crate::env::Instant) {
        if !self.is_quiet() {
            let took = self.env.now().since(begun);
            self.pause((took * REST).min(REST_MOST)).await;
        }
    }

    /// One pass over a volume; says how many chunks could not be encrypted.
    async fn encrypt_chunks_of(self: &Rc<Self>, v: &Rc<VolumeInfo>) -> u64 {
        self.count_plain(v).await;
        let mut failed = 0;
        let mut pages = self.pages_in_use(v, 0);
        while let Some(chunks) = pages.next(self).await {
            let chunks: Vec<ChunkId> = chunks.filter(|c| self.is_plain(*c)).collect();
            let mut rest = &chunks[..];
            while !rest.is_empty() {
                if !self.encrypts() || v.deleted.get() {
                    return failed + rest.len() as u64;
                }
                let (now, later) = rest.split_at(rest.len().min(self.chunks_at_once()));
                rest = later;
                let begun = self.env.now();
                failed += self.encrypt_some(v, now).await;
                self.rest_after(begun).await;
            }
        }
        failed
    }

    /// Encrypts a few chunks side by side; says how many could not be.
    async fn encrypt_some(self: &Rc<Self>, v: &Rc<VolumeInfo>, chunks: &[ChunkId]) -> u64 {
        let _work = self.families.work.lock().await;
        if v.cipher.is_locked() || self.wait_for_room(chunks.len()).await.is_err() {
            return chunks.len() as u64;
        }
        let _room = self.commit.reserve(chunks.len());
        let results = wait::all(chunks.iter().map(|c| self.encrypt_chunk(v, *c, On::Turn)).collect()).await;
        let good = results.iter().filter(|r| r.is_ok()).count() as u64;
        let plain = &v.cipher.plain;
        plain.set(plain.get().saturating_sub(good));
        chunks.len() as u64 - good
    }

    async fn count_plain(&self, v: &Rc<VolumeInfo>) {
        let mut count = 0;
        let mut pages = self.pages_in_use(v, 0);
        while let Some(chunks) = pages.next(self).await {
            count += chunks.filter(|c| self.is_plain(*c)).count() as u64;
        }
        v.cipher.plain.set(count);
    }

    /// Whether a chunk has a home and its content is no ciphertext. What cannot be known is taken for plaintext.
    fn is_plain(&self, chunk: ChunkId) -> bool {
        self.map.borrow().get(chunk).is_none_or(|e| e.is_mapped() && !e.is_encrypted())
    }

    /// Encrypts one chunk, unless it is. The caller has room for a change of its entry, and no claim on it.
    pub(crate) async fn encrypt_chunk(self: &Rc<Self>, v: &VolumeInfo, chunk: ChunkId, on: On) -> Result<(), Error> {
        let _claim = self.claims.claim_alone(chunk).await;
        let failures = self.health.failures();
        let before = self.entry(chunk)?;
        let own = self.volume_of(chunk).is_some_and(|owner| owner.id == v.id && !owner.deleted.get());
        if !own {
            // It was deleted. A request that was let in before has to end: that is what the deletion waits for.
            return Err(Error::Deleted);
        }
        if !before.is_mapped() || before.is_encrypted() {
            return Ok(());
        }
        self.health.check()?;
        self.claims.cancel_motion(chunk, false);
        if before.mask == 0 {
            // A crash cut its first write off. Nobody needs its slot.
            self.change_entry(chunk, Entry::default());
            return Ok(());
        }
        let to = self.copy_elsewhere(v, (chunk, before), failures, on).await?;
        let after = Entry { member: to.member, slot: to.slot, flags: before.flags | entry::ENCRYPTED, ..before };
        self.change_entry(chunk, after.without_kept());
        Ok(())
    }
}
