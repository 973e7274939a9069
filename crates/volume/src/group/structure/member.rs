//! A member is added to the open group.
//!
//! Terms: a device is *joining* while its own label says so: such a label counts for nothing. It becomes a member by
//! the tables of the others.
//!
//! Invariants:
//! 1. Before the label of any other member names the new one, that holds everything durably that a member of its tier
//!    must: label, directory, all pages, the epoch; a fast one also every commit made since, in its journal; a slow one
//!    away bits for all regions. So whatever start finds it named finds it whole.
//! 2. A slot of it is taken only when all labels name it durably: no entry ever names a member that a start may not
//!    know.
//! 3. An index is never given out twice: rows of the member table stay.
//! 4. Until it is a member in memory (the end of `join`), its failures are not the group's, and it keeps nobody waiting
//!    for long: a device that stands still is given up after a while, and at once when the group stops. From then on a
//!    commit that it does not get is none, and its failure latches the group.
//!
//! The order: everything is written under a label that says *joining*, beside the running group; with commits held
//! back for the rest of it (few pages), it joins the members in memory, so that it gets every commit from then on; a
//! change of the tables is flipped on the other members, then on its own label. A crash before the first of these flips
//! leaves the old group and a device that can be added again, one after it leaves the new group.
//! What an error before that leaves on the device: [`super::unjoined`].
//!
//! Counter-examples to shortcuts, which the simulator plants as mutants:
//! - *Its own word counts* (`JoiningCounts`). The power goes while the map is written to it. The start takes its table,
//!   which has the higher number, and its map, which lacks what was committed meanwhile.
//! - *Commits are not held back* (`JoinedTooEarly`). A commit runs while the last pages are written: its records are in
//!   neither the pages nor the journal of the new member. The old fast members die: what was flushed is gone.
//! - *Slots first* (`SlotsBeforeTable`). A chunk lives on the new member, committed; the power goes before a label of
//!   the others names it. The next start knows no such member.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use bimetal_format::label::{Label, LabelError, MemberCode, MemberRow, TierCode, MAX_MEMBERS};
use bimetal_format::layout::{default_journal_blocks, Layout};

use super::{NotAMember, StructureError};
use crate::env::{Device, Env};
use crate::error::Error;
use crate::family::headers::WithHeader;
use crate::group::core::Core;
use crate::group::create::{lay_out, new_uuid};
use crate::member::checkpoint::How;
use crate::member::journal::Position;
use crate::member::{Member, Standing};
use crate::mutant::{self, Mutant};
use crate::options::Uuid;
use crate::units::{MemberIndex, Tier, CHUNK};
use crate::wait;

/// How long the new device may stand still while other changes of the group wait for it. A sync behind which there are
/// gigabytes of map may take a disk so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The same while every commit waits for it, and with it every flush: there is little left to be written.
const PATIENCE_OF_COMMITS: Duration = Duration::from_secs(30);
/// How often it is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Pages that may be left for the moment in which no commit runs, and how often it is tried to have so few: first beside
/// the mover, which changes hundreds a second, then while it stands still.
const REST: usize = 64;
const PASSES: usize = 8;

/// A member to be added.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its tier.
    pub tier: Tier,
    /// Take the device although it is a member of another group, whose data on it is lost.
    pub force: bool,
    /// Blocks of its journal ring; `None`: by its size. Never fewer than other members have.
    pub journal_blocks: Option<u32>,
}

/// What was added.
#[derive(Clone, Debug)]
pub struct NewMemberReport {
    /// Its index.
    pub index: MemberIndex,
    /// Its name for ever.
    pub uuid: Uuid,
    /// Bytes of its slots.
    pub capacity: u64,
    /// Bytes that volumes can still grow by in this group: of space, and of pages of the map.
    pub room: u64,
}

impl<E: Env> Core<E> {
    pub(super) async fn add_member(
        self: &Rc<Self>,
        device: E::Device,
        new: &NewMember,
    ) -> Result<NewMemberReport, NotAMember> {
        let _change = self.volumes.change.lock().await;
        self.check_writable().map_err(StructureError::NotAdded)?;
        self.check_reached()?;
        self.moving(None, PATIENCE, self.check_device(&device, new)).await?;
        let label = self.plan_member(device.size(), new)?;
        let (rows, index, number) = (label.members.clone(), label.member, label.tables);
        let m = Member::new(Some(device), label, index, self.options.journal_records);
        m.standing.set(Standing::Joining);
        self.join(m).await?;
        // From here on it is a member like any other, and there is no way back: it may be in the labels of some others.
        // A device that fails now latches the group; one that freezes now keeps flushes waiting until it goes on, as any
        // member does. To go on without it could lose what was flushed to it.
        let others = self.members.iter().filter(|m| m.index != index).collect();
        let (uuid, slots) = (rows[index as usize].uuid, rows[index as usize].slots);
        self.flip_all(others, |label| {
            label.tables = number;
            label.members.clone_from(&rows);
            label.members_changed = true;
        })
        .await?;
        let m = &self.members[index as usize];
        self.flip_all(vec![m], |label| label.joining = false).await?;
        m.standing.set(Standing::Full);
        self.start_reclaiming(index);
        self.start_telling(index);
        self.start_following(index);
        self.resized();
        Ok(NewMemberReport { index, uuid, capacity: u64::from(slots) * CHUNK, room: self.room_to_grow() })
    }

    /// Refuses a device that is a member already.
    pub(crate) async fn check_device(&self, device: &E::Device, new: &NewMember) -> Result<(), StructureError> {
        let found = crate::probe::probe(device).await.map_err(StructureError::NewDevice)?;
        let label = match found {
            Ok(label) => label,
            Err(LabelError::NotALabel) => return Ok(()),
            Err(_) if new.force => return Ok(()),
            Err(why) => return Err(StructureError::UnknownLabel(why)),
        };
        if label.group != self.uuid {
            return match new.force {
                true => Ok(()),
                false => Err(StructureError::OthersMember(label.group_name)),
            };
        }
        // What was being added once, and never became a member, may be added again.
        let row = |l: &Label| l.members.get(label.member as usize).map(|m| m.uuid);
        let first = self.first_member().label.borrow();
        let has_left = first.members.get(label.member as usize).is_some_and(|m| m.state == MemberCode::Left);
        match row(&label) == row(&first) && !has_left {
            true => Err(StructureError::OwnMember(label.member)),
            false => Ok(()),
        }
    }

    /// The label under which a device of `size` bytes joins.
    pub(super) fn plan_member(&self, size: u64, new: &NewMember) -> Result<Label, StructureError> {
        let base = self.first_member().label.borrow().clone();
        // A commit that the other journals have room for must have room in this one: how much one may take was said at the start.
        let least = self.members.iter().map(|m| m.layout.journal_blocks as u32).min().unwrap_or(0);
        let mut label = self.label_of_new(base, size, new, least)?;
        label.tables += 1;
        label.joining = true;
        Ok(label)
    }

    /// The label of a new member as it will be, but for what its map and journal will say, made of another's. Its journal has
    /// `least` blocks, or as many as a device of its size has.
    pub(crate) fn label_of_new(
        &self,
        mut label: Label,
        size: u64,
        new: &NewMember,
        least: u32,
    ) -> Result<Label, StructureError> {
        if label.members.len() >= MAX_MEMBERS {
            return Err(StructureError::ManyMembers);
        }
        let journal = new.journal_blocks.unwrap_or(default_journal_blocks(size)).max(least);
        let layout = Layout::plan(size, label.layout().pages, journal)?;
        let tier = match new.tier {
            Tier::Fast => TierCode::Fast,
            Tier::Slow => TierCode::Slow,
        };
        label.member = label.members.len() as u8;
        label.members.push(MemberRow {
            uuid: new_uuid(&self.env),
            tier,
            size,
            slots: layout.slot_count as u32,
            state: MemberCode::Member,
        });
        label.zones = layout.zones();
        label.device_size = size;
        label.add_keys_zone();
        label.sequence = 0;
        label.clean = false;
        // What was written here when the device was being added before, if it was, is no part of this journal.
        let tail = Position::anew(self.env.random() >> 24, self.env.random());
        (label.journal_tail, label.journal_end, label.journal_tail_hash) = (tail.sequence, tail.sequence, tail.hash);
        (label.root_generation, label.root_side, label.checkpoint_generation) = (0, 0, 0);
        label.members_changed = true;
        Ok(label)
    }

    /// What `work` with the new device gives, unless that stands still for `patience` or the group stops: then `work` is
    /// dropped. What the device was sent may still arrive; it is laid out anew when it is added again.
    async fn moving<T>(
        &self,
        m: Option<&Member<E::Device>>,
        patience: Duration,
        work: impl Future<Output = Result<T, StructureError>>,
    ) -> Result<T, StructureError> {
        wait::first(work, async { Err(self.standstill(m, patience).await) }).await
    }

    /// Completes when the device has answered nothing for so long, or the group stops.
    pub(super) async fn standstill(&self, m: Option<&Member<E::Device>>, patience: Duration) -> StructureError {
        let silent = async {
            self.silence(m, patience).await;
            StructureError::Silent(patience.as_secs())
        };
        wait::first(self.stops(), silent).await
    }

    /// Completes when the group stops.
    async fn stops(&self) -> StructureError {
        while !self.stopping.get() {
            self.env.sleep(LOOK).await;
        }
        StructureError::NotAdded(Error::Stopping)
    }

    /// Completes when the device has answered nothing for so long.
    pub(super) async fn silence(&self, m: Option<&Member<E::Device>>, patience: Duration) {
        let ended = || m.map_or(0, |m| m.counters.ended.get());
        let (mut seen, mut since) = (ended(), self.env.now());
        while self.env.now().since(since) < patience {
            self.env.sleep(LOOK).await;
            if ended() != seen {
                (seen, since) = (ended(), self.env.now());
            }
        }
    }

    /// Lays the device out and writes headers and the map to it, again until little of that has changed meanwhile.
    async fn fill(&self, m: &Member<E::Device>, headers: &[WithHeader]) -> Result<(), StructureError> {
        lay_out(m).await.map_err(StructureError::NewDevice)?;
        self.write_headers_to_new(m, headers).await.map_err(StructureError::NewDevice)?;
        // As a start does (C6): should all of its journal be lost, it does not look empty.
        let end = m.append_durable_end(self.commit.generation.get(), self.epoch());
        end.await.map_err(StructureError::NewDevice)?;
        if m.tier == Tier::Slow {
            m.set_all_away(self.commit.generation.get()).await.map_err(StructureError::NewDevice)?;
        }
        let mut held = None;
        for pass in 0..2 * PASSES {
            self.write_map(m).await?;
            if self.dirty_pages(m, &[]).await.len() <= REST {
                break;
            }
            if pass + 1 == PASSES {
                held = Some(self.mover.hold());
            }
        }
        drop(held);
        Ok(())
    }

    async fn write_map(&self, m: &Member<E::Device>) -> Result<(), StructureError> {
        self.check_writable().map_err(StructureError::NotAdded)?;
        self.check_reached()?;
        self.checkpoint_steps(m, How::ALONE).await.map_err(StructureError::NewDevice)
    }

    /// Makes the device ready beside the running group, then a member. If that fails, nothing of the families stays on it.
    async fn join(&self, m: Member<E::Device>) -> Result<(), NotAMember> {
        // Before anything is asked of the device: another one may stand still over it, and that is not this one's silence.
        let headers = wait::first(self.headers_for_new(), async { Err(self.stops().await) }).await?;
        if let Err(why) = self.moving(Some(&m), PATIENCE, self.fill(&m, &headers)).await {
            return Err(self.clear_of_families(m, why).await);
        }
        if mutant::on(Mutant::JoinedTooEarly) {
            self.members.push(m);
            return Ok(());
        }
        if mutant::on(Mutant::SlotsBeforeTable) {
            m.standing.set(Standing::Full);
            self.members.push(m);
            return Ok(self.write_map(&self.members[self.members.len() - 1]).await?);
        }
        // One or two commits come before this has its turn.
        let no_commit = self.commit.gate.lock().await;
        // The rest of the map, while no commit runs: it gets every commit from then on.
        let written = self.moving(Some(&m), PATIENCE_OF_COMMITS, self.write_map(&m)).await;
        // All that took its time: the others are to hear of it now.
        if let Err(why) = written.and_then(|()| self.check_reached()) {
            drop(no_commit);
            return Err(self.clear_of_families(m, why).await);
        }
        self.members.push(m);
        Ok(())
    }

    /// The slots that chunks may take are others now.
    pub(super) fn resized(&self) {
        self.policy.borrow_mut().resized(self.slots_present(Tier::Fast) as u32);
        self.reclaim.freed.notify();
        self.mover_wake.notify();
    }

    /// Bytes that volumes can still grow by, of which each that is made takes whole pages.
    fn room_to_grow(&self) -> u64 {
        let (rows, _) = self.table();
        let taken: u64 = rows.iter().map(|v| v.pages()).sum();
        let pages = (self.map.borrow().len() as u64).saturating_sub(taken);
        let of_pages = pages * bimetal_format::ENTRIES_PER_PAGE as u64;
        self.room(crate::units::Placement::Auto).min(of_pages) * CHUNK
    }
}
