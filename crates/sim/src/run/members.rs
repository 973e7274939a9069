//! Steps that change who is a member: carried out one at a time, and judged. Like those of the volumes, a change that
//! was answered has happened, and one that was cut off has happened whole or not at all.

use bimetal_format::label::LabelError;
use bimetal_volume::error::Error;
use bimetal_volume::group::structure::{NewMember, StructureError};
use bimetal_volume::options::{MemberState, Status};
use bimetal_volume::units::Tier;

use super::client::{Client, RETRY};
use super::forge::own_uuid;
use super::judge::Kind;
use super::Wrong;
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::scenario::{Act, Scenario, Step};

/// Which disks are members, by number.
pub(super) struct Roster {
    inside: Vec<bool>,
    /// A change under way, or one of which nobody knows whether it happened: the disk, and what it is after it.
    pending: Option<(usize, bool)>,
    /// Disks that were to be added before.
    tried: Vec<bool>,
    /// Whether each is leaving; `None`: nobody knows.
    leaving: Vec<Option<bool>>,
    /// Disks that were members and have left: what they held then nobody has overwritten.
    left: Vec<bool>,
    /// Disks that the group went on without when they had failed. Before the labels of the others say so a crash brings them back,
    /// leaving as before.
    let_go: Vec<bool>,
    /// Disks that were leaving and not there in a start, which may have gone on without them.
    missed: Vec<bool>,
}

impl Roster {
    pub(super) fn new(scenario: &Scenario) -> Roster {
        let (founders, disks) = (scenario.members.len(), scenario.disks().count());
        Roster {
            inside: (0..disks).map(|i| i < founders).collect(),
            pending: None,
            tried: vec![false; disks],
            leaving: vec![Some(false); disks],
            left: vec![false; disks],
            let_go: vec![false; disks],
            missed: vec![false; disks],
        }
    }

    /// Whether the disk is a member for certain.
    pub(super) fn has(&self, disk: usize) -> bool {
        self.inside[disk] && self.pending.is_none_or(|p| p.0 != disk)
    }

    /// Whether it was a member for as long as any data was on it.
    pub(super) fn never_left(&self, disk: usize) -> bool {
        self.has(disk) && !self.left[disk]
    }

    /// The change under way has happened, or not.
    pub(super) fn end(&mut self, made: bool) {
        if let (Some((disk, after)), true) = (self.pending.take(), made) {
            self.inside[disk] = after;
            self.left[disk] |= !after;
            self.leaving[disk] = Some(false);
        }
    }

    /// Whether the change under way has happened in this group, if it is one that may be.
    fn seen(&self, status: &Status) -> Result<bool, Wrong> {
        let known = self.inside.iter().filter(|i| **i).count();
        let after = match self.pending {
            Some((_, true)) => known + 1,
            Some((_, false)) => known - 1,
            None => known,
        };
        match status.members.len() {
            n if n == after => Ok(true),
            n if n == known => Ok(false),
            n => Err(format!("the group has {n} members, must have {known} (under way: {:?})", self.pending)),
        }
    }

    /// What a change that was cut off has come to. Where `faults` were injected, a start may have found a member that was
    /// leaving dead, and done without.
    pub(super) fn settle(&mut self, status: &Status, disks: &[SimDisk], faults: bool) -> Result<(), Wrong> {
        if faults {
            self.done_without(status, disks);
        }
        self.went_on(status, disks);
        self.come_back(status, disks);
        let made = self.seen(status)?;
        self.end(made);
        for (i, disk) in disks.iter().enumerate().filter(|(i, _)| self.inside[*i]) {
            let uuid = own_uuid(disk);
            let Some(m) = status.members.iter().find(|m| Some(m.uuid) == uuid) else { continue };
            let seen = m.state == MemberState::Leaving;
            if self.leaving[i].is_some_and(|sure| sure != seen) {
                return Err(format!("disk {i} is leaving: {seen}, but the opposite was answered"));
            }
            self.leaving[i] = Some(seen);
        }
        Ok(())
    }

    /// Members that were leaving have left by themselves, because they failed.
    pub(super) fn done_without(&mut self, status: &Status, disks: &[SimDisk]) {
        self.without(status, disks, |_| true);
    }

    /// The same of those that a start was made without.
    fn went_on(&mut self, status: &Status, disks: &[SimDisk]) {
        let missed = self.missed.clone();
        self.without(status, disks, |i| missed[i]);
    }

    fn without(&mut self, status: &Status, disks: &[SimDisk], may_be: impl Fn(usize) -> bool) {
        let listed = |disk: &SimDisk| status.members.iter().any(|m| Some(m.uuid) == own_uuid(disk));
        for (i, disk) in disks.iter().enumerate().filter(|(i, _)| may_be(*i)) {
            if self.inside[i] && self.leaving[i] != Some(false) && !listed(disk) {
                (self.inside[i], self.leaving[i]) = (false, Some(false));
                (self.left[i], self.let_go[i]) = (true, true);
                self.pending = self.pending.filter(|p| p.0 != i);
            }
        }
    }

    /// A start is made without this disk, which is leaving.
    pub(super) fn miss(&mut self, disk: usize) {
        self.missed[disk] = true;
    }

    /// Whether one was made without any.
    pub(super) fn missed_one(&self) -> bool {
        self.missed.contains(&true)
    }

    /// Disks that were members and have left, and still say that they are some.
    pub(super) fn left_behind(&self, disks: &[SimDisk]) -> Vec<usize> {
        let says = |i: &usize| super::forge::own_label(&disks[*i]).is_some_and(|label| !label.joining);
        let is_out = |i: &usize| self.left[*i] && !self.inside[*i] && self.pending.is_none_or(|p| p.0 != *i);
        (0..disks.len()).filter(is_out).filter(says).collect()
    }

    /// Those that were let go, and are there again after a crash that came before the labels said so. What is being added anew does not
    /// leave: then nothing of that has happened yet.
    fn come_back(&mut self, status: &Status, disks: &[SimDisk]) {
        let leaving = |disk: &SimDisk| {
            let uuid = own_uuid(disk);
            status.members.iter().any(|m| Some(m.uuid) == uuid && m.state == MemberState::Leaving)
        };
        for (i, disk) in disks.iter().enumerate() {
            let may_be = self.let_go[i] && !self.inside[i] && self.pending != Some((i, false));
            if may_be && leaving(disk) {
                (self.inside[i], self.leaving[i]) = (true, Some(true));
                self.pending = self.pending.filter(|p| p.0 != i);
            }
            self.let_go[i] &= !self.inside[i];
        }
    }

    /// A change of whether it is leaving begins; what it was before.
    pub(super) fn unsure(&mut self, disk: usize) -> bool {
        self.leaving[disk].take() == Some(true)
    }

    pub(super) fn sure(&mut self, disk: usize, leaving: bool) {
        self.leaving[disk] = Some(leaving);
    }

    pub(super) fn is_leaving(&self, disk: usize) -> bool {
        self.leaving[disk] == Some(true)
    }

    /// The same; `None` if a change of it was not answered, or it has left.
    pub(super) fn surely_leaving(&self, disk: usize) -> Option<bool> {
        self.leaving[disk].filter(|_| self.inside[disk])
    }

    /// It is about to leave.
    pub(super) fn going(&mut self, disk: usize) {
        self.pending = Some((disk, false));
        // Its label is erased at the end; that may be cut off.
        self.tried[disk] = true;
    }

    /// Whether chunks may be put on the disk, for certain.
    fn takes(&self, disk: usize) -> bool {
        self.has(disk) && self.leaving[disk] == Some(false)
    }
}

impl Client {
    /// Slots of a tier.
    pub(super) fn slots_in(&self, tier: Tier) -> u64 {
        let (roster, shared) = (self.shared.roster.borrow(), &self.shared);
        let of = |(i, m): (usize, &crate::scenario::MemberSpec)| (roster.takes(i) && m.tier == tier).then_some(m.slots);
        shared.specs.iter().enumerate().filter_map(of).sum()
    }

    /// Those of them that the group keeps back, and of members that leave.
    pub(super) fn kept_back_in(&self, tier: Tier) -> u64 {
        self.group.status().members.iter().filter(|m| m.tier == tier).map(|m| m.quarantined).sum()
    }

    /// Carries out a step that changes who is a member.
    pub(super) async fn change_members(&self, s: &Step) {
        while self.shared.changing.get() {
            self.shared.world.sleep(RETRY).await;
        }
        let shared = &self.shared;
        let known = |disk: usize| {
            let roster = shared.roster.borrow();
            disk < shared.specs.len() && roster.pending.is_none() && roster.leaving[disk].is_some()
        };
        let (disk, inside) = match s.act {
            Act::AddMember { disk } => (disk, false),
            Act::Evacuate { disk } | Act::Keep { disk } | Act::Remove { disk } => (disk, true),
            _ => return,
        };
        if !known(disk) || shared.roster.borrow().inside[disk] != inside {
            return;
        }
        shared.changing.set(true);
        match s.act {
            Act::AddMember { .. } => {
                shared.roster.borrow_mut().pending = Some((disk, true));
                self.add_member(disk).await;
            }
            Act::Evacuate { .. } => self.evacuate(disk).await,
            Act::Keep { .. } => self.keep(disk).await,
            _ => self.remove(disk).await,
        }
        shared.changing.set(false);
    }

    /// Where a disk has failed, a member that was leaving may have left by itself.
    pub(super) fn note_let_go(&self) {
        let shared = &self.shared;
        if shared.world.was_a_disk_ill() {
            shared.roster.borrow_mut().done_without(&self.group.status(), &shared.disks);
        }
    }

    async fn add_member(&self, disk: usize) {
        let shared = &self.shared;
        let (issued, injected) = (shared.world.sequence(), shared.world.injected());
        let journal_blocks = (shared.journal > 0).then_some(shared.journal);
        let mut new = NewMember { tier: shared.specs[disk].tier, force: false, journal_blocks };
        let before = std::mem::replace(&mut shared.roster.borrow_mut().tried[disk], true);
        let mut result = self.group.add_member(shared.disks[disk].clone(), &new).await;
        if before && matches!(result, Err(StructureError::UnknownLabel(LabelError::Checksum))) {
            // Its label was torn when it was to be added: whoever says so knows what is on it.
            new.force = true;
            result = self.group.add_member(shared.disks[disk].clone(), &new).await;
        }
        if !self.answered() {
            return;
        }
        shared.world.note(26, issued, || format!("answered: disk {disk} is added: {result:?}"));
        match result {
            Ok(_) => {
                shared.roster.borrow_mut().end(true);
                shared.marks.borrow_mut().mark(Seen::MemberAdded);
                self.note_let_go();
                if let Err(wrong) = shared.roster.borrow().seen(&self.group.status()) {
                    shared.fail(wrong);
                }
            }
            Err(StructureError::Engine(e)) => {
                // It may have happened: the next start tells.
                self.judge(Kind::Write, &format!("adding disk {disk}"), &e, injected);
                if !matches!(e, Error::Latched(_) | Error::Device { .. }) {
                    shared.roster.borrow_mut().end(false);
                }
            }
            Err(StructureError::NotAdded(e)) => {
                // It has not.
                self.judge(Kind::Write, &format!("adding disk {disk}"), &e, injected);
                shared.roster.borrow_mut().end(false);
            }
            Err(StructureError::NewDevice(_)) if shared.world.injected() != injected => {
                shared.roster.borrow_mut().end(false);
                shared.marks.borrow_mut().mark(Seen::NewDeviceFailed);
            }
            Err(e) if shared.is_not_reached(&e) => shared.roster.borrow_mut().end(false),
            Err(e) => shared.fail(format!("adding disk {disk} was refused: {e}")),
        }
    }
}
