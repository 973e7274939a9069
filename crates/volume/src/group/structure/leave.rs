//! A member leaves the open group.
//!
//! Terms: a member is *leaving* from when the tables say so; from then on nothing new is put on it, and the mover empties
//! it ([`crate::tier`]'s `evacuate`). It has *left* when the tables say that.
//!
//! Invariants:
//! 1. (I5) It is begun only if what volumes hold or were promised fits the other members. What volumes bound to its tier
//!    have on it counts as promised, and not yet held, elsewhere. What the others keep back is room for nobody.
//! 2. It has left only when no chunk and no kept copy is on it, durably, and every other member's own pages and journal
//!    say so: no start of any set of members may look for something on it.
//! 3. The labels of the others say that it has left before its own is erased: a start never waits for it in vain.
//! 4. It takes no header of a family along that no other member has whole.
//! 5. No commit, and no change of another, waits for a slow one on which nothing lives any more, nor fails with it: its away bits are all
//!    set when it begins to leave, and whatever fails on it then makes it leave at once ([`Core::let_go`]), as does standing still over
//!    a change ([`Core::unless_silent`]); who waits for it then waits no more ([`Member::left`]). What others may have is asked of it last, and
//!    not for ever ([`Core::unless_unanswered`]). One that is to stay is none of these from before its label says so.
//! 6. No label of another says that it leaves while its own does not: a start without it would go on, and it would not know that, alone.
//!
//! Counter-examples to shortcuts, which the simulator plants as mutants:
//! - *Slots of it are taken still* (`LeavingTakesSlots`). It never gets empty.
//! - *It has left when it is empty in memory* (`LeftBeforeCommit`). The power goes before the switches are durable: the
//!   map says that chunks live on a member which is none.
//! - *It is let go with data on it* (`LetGoWithData`). It fails a sync while it is being emptied.

use std::future::Future;
use std::rc::Rc;

use bimetal_format::label::MemberCode;

use super::member::PATIENCE;
use super::StructureError;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::create::promisable;
use crate::group::volume::VolumeInfo;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::options::Uuid;
use crate::recovery::Finding;
use crate::units::{MemberIndex, Placement, Tier, CHUNK};
use crate::wait;

/// What came of a request to a member that stands still: ETIMEDOUT.
pub(crate) const SILENT: DeviceError = DeviceError::Io(110);

/// What emptying a member comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evacuation {
    /// Bytes of the slots in use on it.
    pub used: u64,
    /// Bytes that volumes can still grow by without it.
    pub room: u64,
}

/// What has left.
#[derive(Clone, Debug)]
pub struct LeaveReport {
    /// Its index, which is never given out again.
    pub index: MemberIndex,
    /// Its name.
    pub uuid: Uuid,
    /// Why its label could not be erased. It has left all the same: the group does not take it back.
    pub not_erased: Option<DeviceError>,
}

impl<E: Env> Core<E> {
    /// Whether a member could leave, and what that comes to. Nothing is changed.
    pub(super) fn plan_evacuation(&self, index: MemberIndex) -> Result<Evacuation, StructureError> {
        let m = self.member_in_use(index)?;
        let others = self.open_to_chunks(m.tier).any(|o| o.index != index);
        if !others {
            return Err(StructureError::LastOfTier(m.tier));
        }
        let without = |tiers: &[Tier]| {
            let others = tiers.iter().flat_map(|t| self.open_to_chunks(*t)).filter(|o| o.index != index);
            let kept_back: u64 = tiers.iter().map(|t| self.kept_back_in(*t)).sum();
            let own = if m.takes_slots() { self.kept_back_on(index) } else { 0 };
            promisable(others.map(|o| o.free.borrow().count()).sum(), kept_back.saturating_sub(own))
        };
        let (need, have) = (self.volumes.promised_in_all(), without(&[Tier::Fast, Tier::Slow]));
        if need > have {
            return Err(StructureError::NoRoomWithout { need: need * CHUNK, have: have * CHUNK });
        }
        let (bound, room) = (self.volumes.bound(Placement::bound_to(m.tier)), without(&[m.tier]));
        if bound > room {
            return Err(StructureError::TierSmall { tier: m.tier, need: bound * CHUNK, have: room * CHUNK });
        }
        Ok(Evacuation { used: self.slots_used(m) * CHUNK, room: (have - need) * CHUNK })
    }

    fn member_in_use(&self, index: MemberIndex) -> Result<&Member<E::Device>, StructureError> {
        let found = self.members.iter().find(|m| m.index == index);
        found.filter(|m| m.standing.get() != Standing::Joining).ok_or(StructureError::NoMember(index))
    }

    /// Marks a member as leaving, durably. The caller sees to it that it gets empty.
    pub(super) async fn begin_leaving(&self, index: MemberIndex) -> Result<Evacuation, StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        self.clear_rest().await?;
        let plan = self.plan_evacuation(index)?;
        let m = &self.members[index as usize];
        if m.standing.get() == Standing::Leaving {
            return Ok(plan);
        }
        self.free_bound_without(m).await?;
        self.set_member_code(index, MemberCode::Leaving).await?;
        if m.tier == Tier::Slow {
            // While it works: it may be on its way out because it dies, and no commit is to wait for it then.
            let tell = async {
                let _away = m.away_meta.lock().await;
                let told = m.set_all_away(self.commit.generation.get()).await;
                told.or_else(|e| self.failed(m, "a metadata write", e))
            };
            match mutant::on(Mutant::LeavingToldForEver) {
                true => tell.await?,
                false => self.unless_silent(m, "a metadata write", tell).await?,
            }
        }
        Ok(plan)
    }

    /// A member that is leaving stays after all; what is left on it stays there.
    pub(super) async fn keep_member(&self, index: MemberIndex) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let m = self.member_in_use(index)?;
        if m.standing.get() != Standing::Leaving {
            return Err(StructureError::NotLeaving(index));
        }
        self.ask_to_stay(m).await?;
        self.check_reached()?;
        if !mutant::on(Mutant::KeptThoughGone) {
            // From here on the group depends on it: what fails on it makes it leave no more.
            self.stand(m, Standing::Full);
        }
        self.set_member_code(index, MemberCode::Member).await?;
        self.stand(m, Standing::Full);
        self.resized();
        Ok(())
    }

    /// Whether a member that is leaving works: one that does not can still go, and could not any more.
    async fn ask_to_stay(&self, m: &Member<E::Device>) -> Result<(), StructureError> {
        if m.is_lost() {
            return Err(StructureError::NotReached(m.index));
        }
        // Its label as it is: that is what will be asked of it.
        self.flip_all(vec![m], |_| ()).await?;
        match m.is_gone() {
            true => Err(StructureError::CannotStay(m.index)),
            false => Ok(()),
        }
    }

    fn bound_volumes(&self, tier: Tier) -> impl Iterator<Item = Rc<VolumeInfo>> {
        self.volumes.living().into_iter().filter(move |v| v.placement == Placement::bound_to(tier))
    }

    /// A member leaves, or does not any more. Counts in the same step what volumes bound to its tier have on those who leave: each chunk
    /// that goes from there is counted by what its member is then.
    fn stand(&self, m: &Member<E::Device>, standing: Standing) {
        m.standing.set(standing);
        for v in self.bound_volumes(m.tier) {
            let leaving = self.members.iter().filter(|m| m.standing.get() == Standing::Leaving);
            v.homeless.set(leaving.map(|m| v.mapped_on(m.index)).sum());
        }
    }

    /// Waits until the slots that volumes bound to its tier were promised, and those for their chunks on it, are free on
    /// the others, and takes its slots out of use in the same step.
    async fn free_bound_without(&self, m: &Member<E::Device>) -> Result<(), StructureError> {
        let free_there = || m.free.borrow().free();
        let here = || self.bound_volumes(m.tier).map(|v| v.mapped_on(m.index)).sum::<u64>();
        let aside = self.volumes.keep_aside(m.tier, free_there() + here());
        let promised = || self.volumes.promised(Placement::bound_to(m.tier));
        // Its own free slots do not count, and what makes room may leave from there.
        let wanted = || {
            aside.set(free_there() + here());
            (free_there(), promised() + here())
        };
        self.wait_for_slots(m.tier, wanted).await?;
        self.stand(m, Standing::Leaving);
        // Free slots of it count for the reserve no more.
        self.mover_wake.notify();
        Ok(())
    }

    /// Writes what a member is to the group to all labels: to its own first that it leaves, and last that it stays (invariant 6).
    async fn set_member_code(&self, index: MemberIndex, code: MemberCode) -> Result<(), Error> {
        let number = self.next_tables();
        let (own, others): (Vec<_>, Vec<_>) = self.members.iter().partition(|m| m.index == index);
        let own_first = (code == MemberCode::Leaving) != mutant::on(Mutant::LeavingToldLast);
        for members in if own_first { [own, others] } else { [others, own] } {
            self.flip_member_code(members, index, code, number).await?;
        }
        Ok(())
    }

    fn next_tables(&self) -> u64 {
        self.first_member().label.borrow().tables + 1
    }

    async fn flip_member_code(
        &self,
        members: Vec<&Member<E::Device>>,
        index: MemberIndex,
        code: MemberCode,
        number: u64,
    ) -> Result<(), Error> {
        self.flip_all(members, |label| {
            label.tables = number;
            label.members[index as usize].state = code;
            label.members_changed = true;
        })
        .await
    }

    /// Members that were leaving, were not there when the group was opened, and are none since: the labels do not say
    /// so yet.
    pub(crate) fn dead_members(&self) -> impl Iterator<Item = MemberIndex> + '_ {
        let label = self.first_member().label.borrow();
        let leaving = move |index: usize| label.members[index].state == MemberCode::Leaving;
        self.members.rows().filter(move |m| m.is_gone() && leaving(m.index as usize)).map(|m| m.index)
    }

    /// Has the labels say that such members have left.
    pub(crate) async fn strike_off_dead(&self) -> Result<(), Error> {
        let _change = self.volumes.change.lock().await;
        // Meanwhile the group may have been stopped, which has done it: nothing is written to members any more.
        if self.stopped.get() {
            return Ok(());
        }
        self.strike_off().await
    }

    /// The same for a caller who holds `change`.
    pub(crate) async fn strike_off(&self) -> Result<(), Error> {
        let dead: Vec<MemberIndex> = self.dead_members().collect();
        if dead.is_empty() {
            return Ok(());
        }
        self.tell_members(|_| true).await?;
        for index in dead {
            self.flip_member_code(self.members.iter().collect(), index, MemberCode::Left, self.next_tables()).await?;
        }
        Ok(())
    }

    /// Whether a member is one that leaves, and nothing lives on it any more, durably: a disk may be on its way out because it dies. A
    /// fast one has every commit, and what it fails to keep may be asked for.
    pub(crate) fn can_do_without(&self, m: &Member<E::Device>) -> bool {
        let is_empty = self.slots_used(m) == 0 || mutant::on(Mutant::LetGoWithData);
        let plain = || self.volumes.living().iter().any(|v| v.cipher.is_encrypting());
        m.tier == Tier::Slow && m.standing.get() == Standing::Leaving && is_empty && !plain()
    }

    /// Goes on without a member that it can do without and that has failed.
    pub(crate) fn let_go(&self, m: &Member<E::Device>, what: &str, e: DeviceError) {
        let index = m.index;
        self.findings.borrow_mut().push(Finding::mended(format!(
            "member {index} was to leave, held no data any more, and has failed ({what}: {e}): it has left. Its label could not be erased"
        )));
        drop(self.take_out(m));
        self.dead.notify();
    }

    /// Does `work` with a member. One that the group can do without, and that stands still over it, is let go.
    pub(crate) async fn unless_silent(
        &self,
        m: &Member<E::Device>,
        what: &str,
        work: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        if !self.can_do_without(m) {
            // Of one that has left, somebody may hold what is needed, and not be answered any more.
            let left = async {
                m.left().await;
                Ok(())
            };
            return wait::first(work, left).await;
        }
        let silent = async {
            self.silence(Some(m), PATIENCE).await;
            self.failed(m, what, SILENT)
        };
        wait::first(work, silent).await
    }

    /// What a member answers to `read`; `None`: nothing. One that the group can do without, and that stands still over it, is not let go:
    /// what it is asked for, somebody else may have, or nobody.
    pub(crate) async fn unless_unanswered<T>(&self, m: &Member<E::Device>, read: impl Future<Output = T>) -> Option<T> {
        let unanswered = async {
            match self.can_do_without(m) && !mutant::on(Mutant::HeadersReadForEver) {
                true => self.silence(Some(m), PATIENCE).await,
                false => m.left().await,
            }
            None
        };
        wait::first(async { Some(read.await) }, unanswered).await
    }

    /// It is asked nothing any more, and its tasks end.
    fn take_out(&self, m: &Member<E::Device>) -> Option<Rc<E::Device>> {
        let device = m.release();
        self.resized();
        self.wake_reclaimers();
        self.checkpoint_wake.notify();
        device
    }

    /// The task that has the labels say that members which were let go have left.
    pub(crate) async fn run_striking_off(&self) {
        let mut dead = self.dead.wait();
        loop {
            dead.await;
            if self.stopped.get() {
                return;
            }
            // Another one may be let go while labels are written.
            dead = self.dead.wait();
            // If that fails, the next start does it.
            let _struck_off = self.strike_off_dead().await;
        }
    }

    /// Gives the others each header that only this member has whole. It is asked for nothing else: it may be a disk that dies.
    async fn leave_headers(&self, m: &Member<E::Device>) -> Result<(), StructureError> {
        let rows = m.label.borrow().families.clone();
        for row in rows {
            if self.has_header_beside(m, &row).await {
                continue;
            }
            let read = async { Ok(self.header_on(m, &row).await) };
            let silent = async { Err(self.standstill(Some(m), PATIENCE).await) };
            // If it is lost here, too, nothing is taken along.
            if wait::first(read, silent).await?.is_none() {
                continue;
            }
            for o in self.members.iter().filter(|o| o.index != m.index && o.is_present()) {
                // One of them is enough.
                let _written = self.mend_headers(o).await;
            }
            if !self.has_header_beside(m, &row).await {
                return Err(StructureError::HeaderOnlyHere { name: row.name.clone(), index: m.index });
            }
        }
        Ok(())
    }

    /// Takes an empty member that is leaving out of the group.
    pub(super) async fn remove_member(&self, index: MemberIndex) -> Result<LeaveReport, StructureError> {
        let change = self.volumes.change.lock().await;
        self.check_writable()?;
        let m = self.member_in_use(index)?;
        // Itself it is not needed for that.
        if let Some(lost) = self.lost_member().filter(|lost| lost.index != index) {
            return Err(StructureError::NotReached(lost.index));
        }
        if m.standing.get() != Standing::Leaving {
            return Err(StructureError::NotLeaving(index));
        }
        if let Some(v) = self.volumes.living().iter().find(|v| v.cipher.is_encrypting()) {
            let volume = v.name.borrow().clone();
            return Err(StructureError::MayHoldPlaintext { index, volume });
        }
        let used = self.slots_used(m);
        if used > 0 {
            return Err(StructureError::NotEmpty { index, used: used * CHUNK });
        }
        if !mutant::on(Mutant::LeftBeforeCommit) {
            // It may be a disk that takes no writes any more: nobody asks it, so it need not know.
            self.tell_members(|o| o.index != index).await?;
        }
        if !mutant::on(Mutant::LastHeaderLeaves) {
            self.leave_headers(m).await?;
        }
        if m.tier == Tier::Slow {
            // Should its label outlive this, it knows that what it does not know of is perhaps lost (C8.1). If it cannot be
            // written, or stands still, so be it.
            let told = async {
                let _away = m.away_meta.lock().await;
                m.set_all_away(self.commit.generation.get()).await.is_ok()
            };
            let silent = async {
                self.standstill(Some(m), PATIENCE).await;
                false
            };
            let _told = wait::first(told, silent).await;
        }
        let others = self.members.iter().filter(|o| o.index != index).collect();
        self.flip_member_code(others, index, MemberCode::Left, self.next_tables()).await?;
        let device = {
            // No commit waits for it. It may be at a checkpoint, with a write that it does not answer: that is nobody's business but its
            // own, and comes to nothing now.
            let _no_commit = self.commit.gate.lock().await;
            self.take_out(m)
        };
        // It is none of ours any more: should it stand still, nobody waits for it.
        drop(change);
        // What it was sent before is not to come after this, which is the last.
        let _pages = m.lock_pages().await;
        let _meta = m.meta.lock().await;
        let _away = m.away_meta.lock().await;
        let erased = match &device {
            Some(d) => crate::probe::wipe(&**d).await,
            None => Ok(()),
        };
        let uuid = m.label.borrow().members[index as usize].uuid;
        Ok(LeaveReport { index, uuid, not_erased: erased.err() })
    }
}
