//! A group: made by [`Group::create`], opened by [`Group::open`], which recovers it, and ended by [`Group::stop`].

pub(crate) mod core;
pub mod create;
pub(crate) mod gate;
mod status;
pub mod structure;
pub(crate) mod volume;
pub(crate) mod volumes;

use std::rc::Rc;
use std::time::Duration;

use bimetal_format::label::Label;

use self::core::Core;
pub use self::create::{CreateError, CreateReport};
pub use self::volume::Volume;
use crate::env::Env;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::options::{OpenOptions, Status};
pub use crate::recovery::OpenError;
use crate::units::{MemberIndex, Tier};

/// How long a stop waits for discards that devices have not answered.
const LAST_DISCARDS: Duration = Duration::from_secs(5);

/// An open group. Cloning gives another handle.
pub struct Group<E: Env> {
    pub(crate) core: Rc<Core<E>>,
}

impl<E: Env> Clone for Group<E> {
    fn clone(&self) -> Self {
        Group { core: self.core.clone() }
    }
}

/// Counters for tests of the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineCounters {
    /// Times a journal ring came back to its first block.
    pub journal_wraps: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Times a write waited because no slot was free.
    pub full_waits: u64,
    /// TRIMs and zeroings that hit a chunk in motion.
    pub trims_in_motion: u64,
    /// Times that something failed which puts data in doubt: what was being read meanwhile is not served.
    pub failures: u64,
    /// Chunks on their way to the slow tier, but for those that leave a member of it.
    pub going_down: usize,
}

impl<E: Env> Group<E> {
    /// Opens a group from its devices, in any order: recovers it and, if writable, starts its tasks on `env`.
    pub async fn open(env: E, devices: Vec<E::Device>, options: OpenOptions) -> Result<Group<E>, OpenError> {
        let core = Rc::new(crate::recovery::open(env, devices, options).await?);
        let group = Group { core };
        if group.core.writable {
            group.start_tasks();
            // If a member fails, the group says so to whoever uses it, and the next start does this.
            let _struck_off = group.core.strike_off_dead().await;
        }
        Ok(group)
    }

    fn start_tasks(&self) {
        let core = self.core.clone();
        self.core.env.spawn(async move { core.run_committer().await });
        let core = self.core.clone();
        self.core.env.spawn(async move { core.run_striking_off().await });
        for m in self.core.members.iter().filter(|m| m.is_present()) {
            self.core.start_reclaiming(m.index);
            self.core.start_telling(m.index);
            self.core.start_following(m.index);
        }
        let core = self.core.clone();
        self.core.env.spawn(async move { core.run_checkpointer().await });
        if self.core.volumes.all().iter().any(|v| v.deleted.get()) {
            let core = self.core.clone();
            self.core.env.spawn(async move { core.clear_deleted().await });
        }
        self.core.start_evacuating();
        if self.core.families.have_been() {
            let core = self.core.clone();
            self.core.env.spawn(async move { core.put_headers_in_order_after_start().await });
        }
        if self.core.options.migrate {
            let core = self.core.clone();
            self.core.env.spawn(async move { core.run_mover().await });
        }
    }

    /// Names of its volumes.
    pub fn volume_names(&self) -> Vec<String> {
        self.core.volumes.living().iter().map(|v| v.name.borrow().clone()).collect()
    }

    /// A volume by name.
    pub fn volume(&self, name: &str) -> Option<Volume<E>> {
        let info = self.core.volumes.find(name)?;
        Some(Volume { core: self.core.clone(), info })
    }

    /// What the group is doing.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// The device of a member, if it is there: another handle.
    pub fn device(&self, member: MemberIndex) -> Option<E::Device> {
        let member = self.core.members.iter().find(|m| m.index == member)?;
        member.device().ok().map(|device| (*device).clone())
    }

    /// Waits until the group refuses writes because a sync or a write of its metadata failed, and gives the reason. What was
    /// written and not flushed by then may be lost, though a later start and its sync succeed.
    pub async fn until_latched(&self) -> String {
        self.core.health.until_latched().await
    }

    /// Counters for tests of the engine.
    pub fn counters(&self) -> EngineCounters {
        EngineCounters {
            journal_wraps: self.core.members.iter().map(|m| m.journal.borrow().wraps).sum(),
            checkpoints: self.core.counters.checkpoints.get(),
            full_waits: self.core.counters.full_waits.get(),
            trims_in_motion: self.core.claims.trims_in_motion.get(),
            failures: self.core.health.failures(),
            going_down: self.core.mover.going_down(),
        }
    }

    /// Orderly stop: refuses new requests, waits for those in flight, commits, saves the map on every member, its
    /// heat on the fast ones, and marks them clean. After an error the next start recovers as after a crash; nothing is lost.
    pub async fn stop(&self) -> Result<(), Error> {
        let core = &self.core;
        core.stopping.set(true);
        core.requests.drained().await;
        let result = if core.writable { self.stop_writable().await } else { Ok(()) };
        core.stopped.set(true);
        core.commit.wake_all();
        core.dead.notify();
        core.wake_reclaimers();
        core.checkpoint_wake.notify();
        core.mover_wake.notify();
        core.discards_ended(LAST_DISCARDS).await;
        result
    }

    async fn stop_writable(&self) -> Result<(), Error> {
        let core = &self.core;
        core.mover_wake.notify();
        core.mover_ended().await;
        core.encryption_ended().await;
        // A change of the volumes under way ends, or gives up where the next start goes on.
        let _change = core.volumes.change.lock().await;
        core.flush().await?;
        for m in core.members_of(Tier::Slow) {
            core.unless_silent(m, "a journal write", core.settle_lag(m)).await?;
        }
        let early = mutant::on(Mutant::C8AwayClearedEarly);
        if early {
            self.clear_away().await?;
        }
        core.checkpoint_all().await?;
        if !early {
            self.clear_away().await?;
        }
        core.health.check()?;
        // A member that has failed while it left is none any more: else the next start would miss what it did not hear.
        core.strike_off().await?;
        // All say that no request comes any more before one is clean: a copy of a member from before says neither.
        if !mutant::on(Mutant::C4StopMarkedLate) {
            self.mark(|label, _| label.stopped = true).await?;
        }
        // One may have failed just then: it does not say so.
        if !mutant::on(Mutant::StoppedBeforeStruckOff) {
            core.strike_off().await?;
        }
        self.mark(|label, end| (label.stopped, label.clean, label.journal_end) = (true, true, end)).await
    }

    /// Changes the labels of all members, which are told where their journals end.
    async fn mark(&self, change: impl Fn(&mut Label, u64)) -> Result<(), Error> {
        let core = &self.core;
        for m in core.members.iter().filter(|m| m.is_present()) {
            let flip = async {
                // A checkpoint under way ends first.
                let _pages = m.lock_pages().await;
                let _meta = m.meta.lock().await;
                core.health.check()?;
                let mut label = m.label.borrow().clone();
                change(&mut label, m.journal.borrow().head.sequence);
                m.flip(label).await.or_else(|e| core.failed(m, "the label", e))
            };
            core.unless_silent(m, "the label", flip).await?;
        }
        Ok(())
    }

    /// Slow members have everything in their pages (C8.1).
    async fn clear_away(&self) -> Result<(), Error> {
        let core = &self.core;
        for m in core.members_of(Tier::Slow) {
            let clear = async {
                let _pages = m.lock_pages().await;
                let _meta = m.meta.lock().await;
                let _away = m.away_meta.lock().await;
                m.clear_away().await.or_else(|e| core.failed(m, "a metadata write", e))
            };
            core.unless_silent(m, "a metadata write", clear).await?;
        }
        core.health.check()
    }
}
