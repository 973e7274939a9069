//! What failures do to a group (I7, C11): the latch, and chunks whose newest state is in doubt.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex};
use crate::wait::Signal;

#[derive(Default)]
pub(crate) struct Health {
    latched: RefCell<Option<String>>,
    /// The member that was the first to fail, and how.
    failed_first: Cell<Option<(MemberIndex, DeviceError)>>,
    has_latched: Signal,
    /// Chunks with uncommitted changes on a member whose sync failed: they read EIO (C11.1).
    suspect: RefCell<BTreeSet<ChunkId>>,
    failures: Cell<u64>,
    /// What was counted there: members, and whether a sync of theirs had failed by then.
    counted: RefCell<BTreeSet<(MemberIndex, bool)>>,
}

impl Health {
    pub(crate) fn latched(&self) -> Option<String> {
        self.latched.borrow().clone()
    }

    /// The member because of which the group has latched, and what that said.
    pub(crate) fn failed_first(&self) -> Option<(MemberIndex, DeviceError)> {
        self.failed_first.get()
    }

    pub(crate) fn is_latched(&self) -> bool {
        self.latched.borrow().is_some()
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match &*self.latched.borrow() {
            None => Ok(()),
            Some(why) => Err(Error::Latched(why.clone())),
        }
    }

    /// Waits for the latch, and gives the reason.
    pub(crate) async fn until_latched(&self) -> String {
        loop {
            if let Some(why) = self.latched() {
                return why;
            }
            self.has_latched.wait().await;
        }
    }

    /// How often something failed that puts data in doubt. What was being read meanwhile may be what was lost, also if
    /// its chunk has left the place since and so is not a suspect.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// The first chunk from this one on that is in doubt.
    pub(crate) fn suspect_from(&self, chunk: ChunkId) -> Option<ChunkId> {
        self.suspect.borrow().range(chunk..).next().copied()
    }

    pub(crate) fn is_suspect(&self, chunk: ChunkId) -> bool {
        let suspect = self.suspect.borrow();
        !suspect.is_empty() && suspect.contains(&chunk)
    }
}

impl<E: Env> Core<E> {
    /// A sync or metadata write of a member failed: latches the group, unless that can do without the member.
    pub(crate) fn failed(&self, m: &Member<E::Device>, what: &str, e: DeviceError) -> Result<(), Error> {
        // Nobody asks any more what became of what it was sent.
        if m.is_gone() {
            return Ok(());
        }
        if self.can_do_without(m) {
            self.let_go(m, what, e);
            return Ok(());
        }
        Err(self.latch(m.index, what, e))
    }

    /// The same of what a member is sent that nobody waits for: what a slow one is told in its own time, what is mended. If it is lost by
    /// now, nobody else needs that: it gets nothing any more before it is opened anew, and is brought up to date then. A stop says that it
    /// could not tell it.
    pub(crate) fn failed_in_its_time(&self, m: &Member<E::Device>, what: &str, e: DeviceError) -> Result<(), Error> {
        match self.is_out_of_reach(m) && !self.stopping.get() {
            true => Err(Error::Device { member: m.index, source: e }),
            false => self.failed(m, what, e),
        }
    }

    /// Refuses what is for a member that is lost: it would fail, and might take writes from those who do not need it.
    pub(crate) fn check_in_reach(&self, m: &Member<E::Device>) -> Result<(), Error> {
        match self.is_out_of_reach(m) && !mutant::on(Mutant::MendsLost) {
            true => Err(Error::Device { member: m.index, source: DeviceError::Disconnected }),
            false => Ok(()),
        }
    }

    /// A sync or metadata write of a member failed: refuse writes from now on, keep reading what is certain (I7). The
    /// way back is a new start, with its recovery.
    pub(crate) fn latch(&self, member: MemberIndex, what: &str, e: DeviceError) -> Error {
        let why = format!(
            "{what} of member {member} failed: {e}. Reads go on. To write again, mend the member, then stop and start the group"
        );
        if !mutant::on(Mutant::C11NoLatch) {
            if !mutant::on(Mutant::C11SuspectServed) {
                let suspect = self.commit.uncommitted_on(member, &self.map.borrow());
                self.health.suspect.borrow_mut().extend(suspect);
                // A sync that has failed fails for everybody who asks for one later, too: nothing is lost by that.
                let failed = (member, self.members[member as usize].sync.has_failed());
                if self.health.counted.borrow_mut().insert(failed) {
                    self.health.failures.set(self.health.failures.get() + 1);
                }
            }
            let first = self.health.failed_first.get().unwrap_or((member, e));
            self.health.failed_first.set(Some(first));
            self.health.latched.borrow_mut().get_or_insert_with(|| why.clone());
            self.health.has_latched.notify();
        }
        self.commit.wake_all();
        self.mover_wake.notify();
        Error::Latched(why)
    }
}
