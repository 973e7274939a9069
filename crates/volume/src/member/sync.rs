//! Which writes of a member are durable.
//!
//! Completed writes are numbered. `acknowledged` is the number of the newest client write, `durable` that of the newest
//! write covered by a successful sync. A flush needs `durable >= acknowledged`; a move needs `durable >= written`.
//! A sync covers the writes that had completed when it began, and only one runs at a time, so that "unsynced" always
//! includes what a running sync has taken on itself (C1.3, C1.4).
//!
//! A slot is *tainted* by a write of unknown outcome until a sync has succeeded that began after that was reported (C2.2). Several
//! may be on their way to one slot: it is the last report that counts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::{add, Member, WriteFor};
use crate::env::{Device, DeviceError};
use crate::mutant::{self, Mutant};
use crate::units::SlotIndex;
use crate::wait::Signal;

pub(crate) struct SyncState {
    written: Cell<u64>,
    acknowledged: Cell<u64>,
    durable: Cell<u64>,
    running: Cell<bool>,
    /// A sync failed: what it should have made durable may be lost though later syncs succeed, so none counts any more
    /// (I7).
    failed: Cell<Option<DeviceError>>,
    finished: Signal,
    /// Tainted slots, each with the number of the write that a sync has to cover.
    tainted: RefCell<BTreeMap<SlotIndex, u64>>,
}

impl Default for SyncState {
    /// A member starts as unsynced: a daemon that died may have left data in its cache (C7.1).
    fn default() -> SyncState {
        SyncState {
            written: Cell::new(1),
            acknowledged: Cell::new(1),
            durable: Cell::new(u64::from(mutant::on(Mutant::C7NoFirstSync))),
            running: Cell::new(false),
            failed: Cell::new(None),
            finished: Signal::default(),
            tainted: RefCell::default(),
        }
    }
}

impl SyncState {
    pub(super) fn wrote(&self, who: WriteFor) {
        add(&self.written, 1);
        if who == WriteFor::Client {
            self.acknowledged.set(self.written.get());
        }
    }

    /// What the engine has written is to be durable with the next commit, like what a client has.
    pub(crate) fn owe_client(&self) {
        self.wrote(WriteFor::Client);
    }

    /// Number of the newest completed write.
    pub(crate) fn written(&self) -> u64 {
        self.written.get()
    }

    /// Number of the newest client write.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.get()
    }

    /// Whether a client's data is not durable yet.
    pub(crate) fn owes_client(&self) -> bool {
        self.durable.get() < self.acknowledged.get()
    }

    /// Whether a sync has failed: none is tried any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Mutants only: forget that a client's data is not durable.
    pub(crate) fn forget_client(&self) {
        self.acknowledged.set(self.durable.get());
    }
}

impl<D: Device> Member<D> {
    /// Makes write number `target` and all before it durable. After an error nothing is known of them.
    pub(crate) async fn sync_to(&self, target: u64) -> Result<(), DeviceError> {
        let s = &self.sync;
        while s.durable.get() < target {
            if let Some(e) = s.failed.get() {
                return Err(e);
            }
            if s.running.get() {
                s.finished.wait().await;
                continue;
            }
            s.running.set(true);
            let covers = s.written.get();
            let known = match mutant::on(Mutant::C2TaintBySlot) {
                true => s.tainted.borrow().clone(),
                false => BTreeMap::new(),
            };
            add(&self.counters.syncs, 1);
            let running = Running(s);
            let device = self.device()?;
            let awaited = self.awaits();
            let result = device.sync().await;
            drop(awaited);
            if result.is_ok() {
                s.durable.set(covers.max(s.durable.get()));
                s.tainted.borrow_mut().retain(|slot, write| *write > covers && !known.contains_key(slot));
            }
            if !mutant::on(Mutant::C11NoLatch) {
                s.failed.set(result.err());
            }
            drop(running);
            self.note(result)?;
        }
        Ok(())
    }

    /// Marks a slot as holding a write of unknown outcome (C2.2). It counts as one more write, for which a sync is owed.
    pub(crate) fn taint(&self, slot: SlotIndex) {
        self.sync.wrote(WriteFor::Engine);
        self.sync.tainted.borrow_mut().insert(slot, self.sync.written());
    }

    /// Whether a write of unknown outcome may still reach a slot.
    pub(crate) fn is_tainted(&self, slot: SlotIndex) -> bool {
        self.sync.tainted.borrow().contains_key(&slot)
    }

    /// Whether there is a tainted slot.
    pub(crate) fn has_tainted(&self) -> bool {
        !self.sync.tainted.borrow().is_empty()
    }

    /// Makes everything that has completed durable.
    pub(crate) async fn sync_all(&self) -> Result<(), DeviceError> {
        self.sync_to(self.sync.written()).await
    }
}

struct Running<'a>(&'a SyncState);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
        self.0.finished.notify();
    }
}
