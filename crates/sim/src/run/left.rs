//! Members that were leaving, and that the group has gone on without: what they say alone, when it was used since.

use bimetal_format::label::MemberCode;
use bimetal_volume::options::OpenOptions;
use bimetal_volume::{Group, Volume};

use super::fates::View;
use super::{Run, Wrong};
use crate::counters::Seen;
use crate::disk::SimDisk;
use crate::env::SimEnv;
use crate::oracle::Crash;
use crate::scenario::MAX_VOLUMES;

fn says_that_it_leaves(disk: &SimDisk) -> bool {
    super::forge::newest_label(disk).is_some_and(|l| l.members[l.member as usize].state == MemberCode::Leaving)
}

impl Run<'_> {
    /// A member that is leaving is not there when the group is started; the power goes after so many events. If the group does not do
    /// without it, nothing has happened.
    pub(super) fn goes_on_without(&mut self, member: usize, events: u64) -> Result<(), Wrong> {
        self.world.restart(None);
        let inside = self.insiders()?;
        let rest: Vec<SimDisk> =
            (0..inside.len()).filter(|i| inside[*i] && *i != member).map(|i| self.disks[i].clone()).collect();
        if !inside[member] || !self.standing(member, &rest)?.leaving {
            return Ok(());
        }
        if let Some(why) = self.cut_off_start(rest, events)? {
            self.world.note(43, 0, || format!("the group waits for disk {member}: {why}"));
            return Ok(());
        }
        self.shared.roster.borrow_mut().miss(member);
        // It was another epoch, of which nobody was told anything.
        (self.calm, self.stopped_in_order) = (None, false);
        self.die(Crash::Power);
        self.world.restart(None);
        Ok(())
    }

    /// Those that the group has left behind are opened, each alone, all together, and beside some that went on.
    pub(super) fn look_at_left_behind(&mut self) -> Result<(), Wrong> {
        let mut left = self.shared.roster.borrow().left_behind(&self.disks);
        // One that failed, or stood still, as it was told to leave may never have heard of that.
        let grave = self.world.injected().grave;
        let works = |i: usize| grave[i] == 0 && self.scenario.sessions.iter().all(|s| s.faults[i].stands_after == 0);
        left.retain(|i| works(*i) || says_that_it_leaves(&self.disks[*i]));
        if left.is_empty() || self.disks.iter().any(|d| d.store().dirty()) {
            return Ok(());
        }
        self.heal();
        self.on_the_side(&format!("{left:?} left behind"), |run| {
            let beside: Vec<usize> = (0..run.disks.len()).filter(|_| run.world.random(|p| p.coin())).collect();
            let together: Vec<usize> =
                left.iter().chain(beside.iter().filter(|i| !left.contains(i))).copied().collect();
            for alone in left.iter().map(|i| vec![*i]).chain([left.clone()]) {
                run.vouch_for_nothing(&alone, true)?;
            }
            run.vouch_for_nothing(&together, false)
        })
    }

    /// A start of these shows nothing as the newest that is not, and nothing as never written that was; and where they are `alone` none
    /// writes.
    fn vouch_for_nothing(&self, disks: &[usize], alone: bool) -> Result<(), Wrong> {
        let devices: Vec<SimDisk> = disks.iter().map(|i| self.disks[*i].clone()).collect();
        if alone && self.try_start(devices.clone(), self.open_options())?.is_some() {
            return Err(format!("disks {disks:?} took writes alone"));
        }
        for kept_copies in [false, true] {
            let options = OpenOptions { writable: false, allow_missing: true, kept_copies, ..self.open_options() };
            let Some((env, group)) = self.try_start(devices.clone(), options)? else {
                return match disks.len() {
                    1 => Err(format!("disk {disks:?} could not be read alone")),
                    // They may have left the group at different times, and have histories of their own since.
                    _ => Ok(()),
                };
            };
            self.shared.marks.borrow_mut().mark(Seen::LeftBehind);
            let result = self.peek_at(&env, self.known_of(&group), Some(View::NOTHING), kept_copies);
            env.kill();
            result.map_err(|e| format!("disks {disks:?}: {e}"))?;
        }
        Ok(())
    }

    /// The volumes of a group, by number, that are still the same, as far as that is known: its table may be of long ago.
    fn known_of(&self, group: &Group<SimEnv>) -> Vec<Option<Volume<SimEnv>>> {
        let (table, oracle) = (self.shared.table.borrow(), self.shared.oracle.borrow());
        let mut known = vec![None; MAX_VOLUMES];
        for v in group.status().volumes {
            let Some(number) = super::table::number(&v.name) else { continue };
            let same = table.get(number).is_some_and(|k| k.chunks * bimetal_volume::units::CHUNK == v.size);
            if same && oracle.knows_past(number) {
                known[number] = group.volume(&v.name);
            }
        }
        known
    }
}
