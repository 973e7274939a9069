//! Steps by which members leave: carried out and judged like those by which they come.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bimetal_volume::backend::Backend as _;
use bimetal_volume::env::{Device, DeviceError};
use bimetal_volume::error::Error;
use bimetal_volume::group::create::promisable;
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::units::{MemberIndex, Placement, Tier, CHUNK};
use bimetal_volume::Volume;

use super::client::Client;
use super::forge::own_uuid;
use super::judge::Kind;
use crate::counters::Seen;
use crate::env::SimEnv;
use crate::world::Injected;

/// A member that has not become empty by then never will: half an hour in steps of this.
const LOOK: u64 = 250_000_000;
const LOOKS: usize = 7200;

/// For each slow member that leaves, the chunks that lived elsewhere when that was answered: volume and number.
pub(super) type Elsewhere = RefCell<BTreeMap<MemberIndex, BTreeSet<(usize, u64)>>>;

fn home(v: &Volume<SimEnv>, chunk: u64) -> Option<MemberIndex> {
    v.members_of(chunk * CHUNK).next()
}

impl Client {
    /// A member leaves from now on. Where chunks go to the slow tier just now, some may come to it still.
    fn note_elsewhere(&self, index: MemberIndex) {
        let status = self.group.status();
        let slow = status.members.iter().any(|m| m.index == index && m.tier == Tier::Slow);
        if !slow || self.group.counters().going_down > 0 || status.volumes.iter().any(|v| v.encrypting.is_some()) {
            return;
        }
        let mut elsewhere = BTreeSet::new();
        for (number, v) in self.volumes.borrow().iter().enumerate() {
            let Some(v) = v else { continue };
            let chunks = (0..v.size() / CHUNK).filter(|c| home(v, *c).is_some_and(|m| m != index));
            elsewhere.extend(chunks.map(|c| (number, c)));
        }
        self.elsewhere.borrow_mut().insert(index, elsewhere);
    }

    /// Nothing new is put on a member that leaves: it may be leaving because it dies.
    pub(super) fn check_elsewhere(&self, volume: usize, v: &Volume<SimEnv>, offset: u64, len: u64) {
        for chunk in offset / CHUNK..(offset + len).div_ceil(CHUNK) {
            let Some(member) = home(v, chunk) else { continue };
            if self.elsewhere.borrow().get(&member).is_some_and(|e| e.contains(&(volume, chunk))) {
                self.shared.fail(format!(
                    "chunk {chunk} of volume {volume} has come to member {member}, which was to leave, from elsewhere"
                ));
            }
        }
    }

    /// The index of the member on a disk.
    fn index_of(&self, disk: usize) -> Option<MemberIndex> {
        let uuid = own_uuid(&self.shared.disks[disk]);
        self.group.status().members.iter().find(|m| Some(m.uuid) == uuid).map(|m| m.index)
    }

    /// Whether this member is on a disk that is lost, and says so.
    pub(super) fn is_lost(&self, member: MemberIndex) -> bool {
        self.lost_members().contains(&member)
    }

    /// All such members.
    pub(super) fn lost_members(&self) -> Vec<MemberIndex> {
        let lost = self.shared.disks.iter().enumerate().filter(|(_, d)| d.is_lost());
        lost.filter_map(|(disk, _)| self.index_of(disk)).collect()
    }

    /// The members that are lost, if no chunk of a range has a home that it could be written to: it gets none there either.
    pub(super) fn closed_to_new(&self, v: &Volume<SimEnv>, offset: u64, len: u64) -> Vec<MemberIndex> {
        let lost = self.lost_members();
        let mut chunks = offset / CHUNK..(offset + len).div_ceil(CHUNK);
        match !lost.is_empty() && chunks.all(|c| home(v, c).is_none()) {
            true => lost,
            false => Vec::new(),
        }
    }

    /// None of these was sent what has failed.
    pub(super) fn check_not_sent_to(&self, closed: &[MemberIndex], e: &Error) {
        if let Error::Device { member, source: DeviceError::Io(_) } = e {
            if closed.contains(member) {
                self.shared.fail(format!("a new chunk was put on member {member}, which is lost"));
            }
        }
    }

    pub(super) async fn evacuate(&self, disk: usize) {
        let shared = &self.shared;
        let Some(index) = self.index_of(disk) else { return };
        let before = shared.roster.borrow_mut().unsure(disk);
        let (issued, injected) = (shared.world.sequence(), shared.world.injected());
        let result = self.group.evacuate_member(index).await;
        if !self.answered() {
            return;
        }
        shared.world.note(26, issued, || format!("answered: disk {disk} is to leave: {result:?}"));
        match result {
            Ok(_) => {
                shared.roster.borrow_mut().sure(disk, true);
                self.note_elsewhere(index);
            }
            Err(StructureError::Engine(e)) => self.judge_change(&format!("evacuating disk {disk}"), &e, injected),
            Err(e) => {
                shared.roster.borrow_mut().sure(disk, before);
                if !shared.is_not_reached(&e) && !self.may_refuse(disk, before, &e) {
                    shared.fail(format!("evacuating disk {disk} was refused: {e}"));
                }
            }
        }
    }

    pub(super) async fn keep(&self, disk: usize) {
        let shared = &self.shared;
        let Some(index) = self.index_of(disk) else { return };
        let before = shared.roster.borrow_mut().unsure(disk);
        self.elsewhere.borrow_mut().remove(&index);
        let (issued, injected) = (shared.world.sequence(), shared.world.injected());
        let result = self.group.keep_member(index).await;
        if !self.answered() {
            return;
        }
        shared.world.note(26, issued, || format!("answered: disk {disk} stays: {result:?}"));
        match result {
            Ok(()) => {
                shared.roster.borrow_mut().sure(disk, false);
                shared.marks.borrow_mut().mark(Seen::MemberKept);
            }
            Err(StructureError::Engine(e)) => self.judge_change(&format!("keeping disk {disk}"), &e, injected),
            Err(e) => {
                shared.roster.borrow_mut().sure(disk, before);
                let failed = matches!(e, StructureError::CannotStay(_)) && shared.world.was_a_disk_ill();
                self.note_let_go();
                if !failed && !shared.is_not_reached(&e) && (before || !matches!(e, StructureError::NotLeaving(_))) {
                    shared.fail(format!("keeping disk {disk} was refused: {e}"));
                }
            }
        }
    }

    pub(super) async fn remove(&self, disk: usize) {
        let shared = &self.shared;
        let Some(index) = self.index_of(disk) else { return };
        let injected = shared.world.injected();
        for _ in 0..LOOKS {
            let issued = shared.world.sequence();
            shared.roster.borrow_mut().going(disk);
            let result = self.group.remove_member(index).await;
            if !self.answered() {
                return;
            }
            shared.world.note(26, issued, || format!("answered: disk {disk} has left: {result:?}"));
            match result {
                Ok(_) => {
                    shared.roster.borrow_mut().end(true);
                    shared.marks.borrow_mut().mark(Seen::MemberLeft);
                    return;
                }
                Err(StructureError::Engine(e)) => {
                    return self.judge_change(&format!("removing disk {disk}"), &e, injected);
                }
                Err(StructureError::NotEmpty { .. } | StructureError::MayHoldPlaintext { .. }) => {
                    shared.roster.borrow_mut().end(false)
                }
                Err(StructureError::NoMember(_)) if shared.world.was_a_disk_ill() => {
                    return self.note_let_go();
                }
                Err(e) => {
                    shared.roster.borrow_mut().end(false);
                    let leaving = shared.roster.borrow().is_leaving(disk);
                    if !shared.is_not_reached(&e) && (leaving || !matches!(e, StructureError::NotLeaving(_))) {
                        shared.fail(format!("removing disk {disk} was refused: {e}"));
                    }
                    return;
                }
            }
            shared.world.sleep(LOOK).await;
        }
        // What has left one that is lost waits to be told to it: it goes when the group is started without it.
        if shared.world.injected() == injected && !self.is_lost(index) {
            let left = self.group.status().members.iter().find(|m| m.index == index).map(|m| m.slots - m.free);
            shared.fail(format!("disk {disk} does not get empty: {left:?} slots are left"));
        }
    }

    /// It may have happened: the next start tells.
    fn judge_change(&self, what: &str, e: &Error, injected: Injected) {
        self.judge(Kind::Write, what, e, injected);
    }

    /// Whether a refusal is right.
    fn may_refuse(&self, disk: usize, leaving: bool, e: &StructureError) -> bool {
        let shared = &self.shared;
        let tier = shared.specs[disk].tier;
        let own = if leaving { 0 } else { shared.specs[disk].slots };
        let slots = |t: Tier| self.slots_in(t) - if t == tier { own } else { 0 };
        let table = shared.table.borrow();
        let sum = |p: &[Placement]| -> u64 {
            table.living().filter(|(_, k)| p.contains(&k.placement)).map(|(_, k)| k.chunks).sum()
        };
        let kept = |tier| self.kept_back_in(tier);
        let bound = if tier == Tier::Fast { Placement::FastOnly } else { Placement::SlowOnly };
        match e {
            StructureError::LastOfTier(_) => slots(tier) == 0,
            StructureError::NoRoomWithout { .. } => {
                let all = [Placement::Auto, Placement::FastOnly, Placement::SlowOnly];
                let kept = kept(Tier::Fast) + kept(Tier::Slow);
                sum(&all) > promisable(slots(Tier::Fast) + slots(Tier::Slow), kept)
            }
            StructureError::TierSmall { .. } => sum(&[bound]) > promisable(slots(tier), kept(tier)),
            StructureError::TierFull { .. } => sum(&[bound]) > 0,
            _ => false,
        }
    }
}
