//! What the volume table of the group must say: a change that was answered is there, one that was not has happened
//! whole or not at all.

use bimetal_volume::options::Status;
use bimetal_volume::units::{Placement, CHUNK};
use bimetal_volume::{Group, Volume};

use super::{Shared, Wrong};
use crate::env::SimEnv;
use crate::scenario::{Scenario, MAX_VOLUMES};

/// A volume as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) chunks: u64,
    pub(super) placement: Placement,
    /// It has its other name.
    pub(super) renamed: bool,
    /// Number of its family, 0 if it has none.
    pub(super) family: u8,
}

/// A change under way, or one of which nobody knows whether it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) number: usize,
    pub(super) after: Option<Known>,
}

/// The table, by the numbers that steps use.
pub(super) struct Table {
    known: Vec<Option<Known>>,
    pub(super) pending: Option<Pending>,
    /// How often a change of each volume began or ended.
    stamps: Vec<u64>,
    /// Family that is locked, or about to be; 0: none.
    locked: u8,
}

impl Table {
    pub(super) fn new(scenario: &Scenario) -> Table {
        let mut known = vec![None; MAX_VOLUMES];
        for (k, v) in known.iter_mut().zip(&scenario.volumes) {
            *k = Some(Known { chunks: v.chunks, placement: v.placement, renamed: false, family: 0 });
        }
        Table { known, pending: None, stamps: vec![0; MAX_VOLUMES], locked: 0 }
    }

    pub(super) fn get(&self, number: usize) -> Option<Known> {
        self.known[number]
    }

    pub(super) fn living(&self) -> impl Iterator<Item = (usize, Known)> + '_ {
        self.known.iter().enumerate().filter_map(|(n, k)| Some((n, (*k)?)))
    }

    /// Changes whenever a change of the volume begins or ends.
    pub(super) fn stamp(&self, number: usize) -> (u64, bool) {
        let locked = self.locked > 0 && self.known[number].is_some_and(|k| k.family == self.locked);
        (self.stamps[number], locked || self.pending.is_some_and(|p| p.number == number))
    }

    /// A family is about to be locked.
    pub(super) fn lock(&mut self, family: u8) {
        for (stamp, k) in self.stamps.iter_mut().zip(&self.known) {
            *stamp += u64::from(k.is_some_and(|k| k.family == family));
        }
        self.locked = family;
    }

    /// It is unlocked again.
    pub(super) fn unlock(&mut self) {
        self.lock(self.locked);
        self.locked = 0;
    }

    pub(super) fn begin(&mut self, pending: Pending) {
        self.stamps[pending.number] += 1;
        self.pending = Some(pending);
    }

    /// The change was made (`true`), or refused with nothing changed.
    pub(super) fn end(&mut self, made: bool) {
        let Some(p) = self.pending.take() else { return };
        self.stamps[p.number] += 1;
        if made {
            self.known[p.number] = p.after;
        }
    }

    fn legal(&self, number: usize, seen: Option<Known>) -> bool {
        let pending = self.pending.filter(|p| p.number == number);
        seen == self.known[number] || pending.is_some_and(|p| seen == p.after)
    }

    /// What a group shows of each volume, if all of it is legal.
    pub(super) fn check(&self, status: &Status) -> Result<Vec<Option<Known>>, Wrong> {
        let mut seen = vec![None; MAX_VOLUMES];
        for v in &status.volumes {
            let number = number(&v.name).filter(|n| seen[*n].is_none());
            let number = number.ok_or_else(|| format!("there is a volume {} that nobody made", v.name))?;
            let renamed = v.name.starts_with('w');
            let family = v.family.as_deref().map_or(0, super::family::number);
            seen[number] = Some(Known { chunks: v.size / CHUNK, placement: v.placement, renamed, family });
        }
        match (0..MAX_VOLUMES).find(|n| !self.legal(*n, seen[*n])) {
            None => Ok(seen),
            Some(n) => {
                Err(format!("volume {n} is {:?}, must be {:?} (under way: {:?})", seen[n], self.known[n], self.pending))
            }
        }
    }
}

/// The number of the volume with this name.
pub(super) fn number(name: &str) -> Option<usize> {
    name[1..].parse().ok().filter(|n| *n < MAX_VOLUMES)
}

/// The name of a volume.
pub(super) fn name(number: usize, renamed: bool) -> String {
    format!("{}{number}", if renamed { "w" } else { "v" })
}

/// The volumes of an open group by number, if the table is as it must be.
pub(super) fn listed(shared: &Shared, group: &Group<SimEnv>) -> Result<Vec<Option<Volume<SimEnv>>>, Wrong> {
    let seen = shared.table.borrow().check(&group.status())?;
    Ok(seen.iter().enumerate().map(|(n, k)| group.volume(&name(n, (*k)?.renamed))).collect())
}

/// The same, and what a change that was cut off has come to is settled.
pub(super) fn settle(shared: &Shared, group: &Group<SimEnv>) -> Result<Vec<Option<Volume<SimEnv>>>, Wrong> {
    let volumes = listed(shared, group)?;
    let faults = shared.world.was_a_disk_ill();
    shared.roster.borrow_mut().settle(&group.status(), &shared.disks, faults)?;
    shared.families.borrow_mut().settle(&group.status())?;
    let mut table = shared.table.borrow_mut();
    if let Some(p) = table.pending {
        let seen = table.check(&group.status())?[p.number];
        let made = seen == p.after;
        if made {
            let beyond = p.after.map_or(0, |k| k.chunks * CHUNK);
            let shrunk = p.after.is_some() && table.get(p.number).is_some_and(|k| k.chunks * CHUNK > beyond);
            if shrunk {
                let cut = shared.oracle.borrow_mut().cut(p.number, beyond, u64::MAX);
                cut.map_err(|w| format!("a volume shrank over data: {w}"))?;
            }
        }
        if made && p.after.is_some_and(|k| k.family > 0) {
            let from = shared.oracle.borrow().next_write();
            shared.world.keep_secret(p.number, from);
        }
        table.end(made);
    }
    Ok(volumes)
}
