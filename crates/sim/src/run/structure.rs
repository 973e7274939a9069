//! Steps that change the volumes: carried out one at a time, beside the requests of the other clients, and judged.

use bimetal_format::ENTRIES_PER_PAGE;
use bimetal_volume::env::Device;
use bimetal_volume::group::create::{headroom, promisable};
use bimetal_volume::group::structure::StructureError;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{Placement, Tier, CHUNK};

use super::client::{Client, RETRY};
use super::judge::Kind;
use super::table::{name, Known, Pending, Table};
use super::Shared;
use crate::counters::Seen;
use crate::scenario::{Act, Step};

fn pages_of(chunks: u64) -> u64 {
    chunks.div_ceil(ENTRIES_PER_PAGE as u64)
}

impl Shared {
    /// Whether a disk is lost, and says so.
    pub(super) fn is_one_lost(&self) -> bool {
        self.disks.iter().any(|d| d.is_lost())
    }

    /// Whether a change was refused because a disk is lost, and one is.
    pub(super) fn is_not_reached(&self, e: &StructureError) -> bool {
        matches!(e, StructureError::NotReached(_)) && self.is_one_lost()
    }
}

impl Client {
    /// Carries out a step that changes a volume.
    pub(super) async fn change_volume(&self, s: &Step) {
        while self.shared.changing.get() {
            self.shared.world.sleep(RETRY).await;
        }
        let Some(after) = self.wanted(s) else { return };
        self.shared.changing.set(true);
        self.shared.table.borrow_mut().begin(Pending { number: s.volume, after });
        self.carry_out(s, after).await;
        self.shared.changing.set(false);
    }

    /// What the volume shall be; `None` if the step makes no sense (any more).
    fn wanted(&self, s: &Step) -> Option<Option<Known>> {
        let table = self.shared.table.borrow();
        if table.pending.is_some() {
            return None;
        }
        match (s.act, table.get(s.volume)) {
            (Act::Make { chunks, placement, family }, None) if !self.shared.used.borrow()[s.volume] => {
                let known = self.shared.families.borrow().is_open(family);
                known.then_some(Some(Known { chunks, placement, renamed: false, family }))
            }
            (Act::Encrypt { family }, Some(k)) if k.family == 0 && self.shared.families.borrow().is_open(family) => {
                Some(Some(Known { family, ..k }))
            }
            (Act::Resize { chunks }, Some(k)) => Some(Some(Known { chunks, ..k })),
            (Act::Rename, Some(k)) => Some(Some(Known { renamed: !k.renamed, ..k })),
            (Act::Delete, Some(_)) => Some(None),
            _ => None,
        }
    }

    async fn carry_out(&self, s: &Step, after: Option<Known>) {
        let shared = &self.shared;
        let before = shared.table.borrow().get(s.volume);
        let (issued, injected) = (shared.world.sequence(), shared.world.injected());
        let old = before.map_or(String::new(), |k| name(s.volume, k.renamed));
        let new = after.map_or(String::new(), |k| name(s.volume, k.renamed));
        if let Some(k) = after {
            shared.oracle.borrow_mut().grow(s.volume, k.chunks * CHUNK);
        }
        let result = match (s.act, after) {
            (Act::Make { chunks, placement, family }, _) => {
                shared.used.borrow_mut()[s.volume] = true;
                if family > 0 {
                    shared.world.keep_secret(s.volume, 0);
                }
                let wish = NewVolume { name: new.clone(), size: Some(chunks * CHUNK), placement };
                let family = (family > 0).then(|| super::family::name(family));
                self.group.create_volume_in(&wish, family.as_deref()).await.map(|_| ())
            }
            (Act::Resize { chunks }, _) => self.group.resize_volume(&old, chunks * CHUNK).await.map(|_| ()),
            (Act::Rename, _) => self.group.rename_volume(&old, &new).await,
            (Act::Encrypt { family }, _) => self.group.encrypt_volume(&old, &super::family::name(family)).await,
            _ => self.group.delete_volume(&old).await,
        };
        if !self.answered() {
            return;
        }
        shared.world.note(25, issued, || format!("answered: {:?} of volume {}: {result:?}", s.act, s.volume));
        match result {
            Ok(()) => self.made(s, before, after, issued),
            Err(StructureError::Engine(e)) => {
                // It may have happened: the next start tells.
                self.judge(Kind::Write, &format!("{:?} of volume {}", s.act, s.volume), &e, injected);
                if !matches!(e, bimetal_volume::error::Error::Latched(_) | bimetal_volume::error::Error::Device { .. })
                {
                    shared.table.borrow_mut().end(false);
                }
            }
            Err(e) => {
                shared.table.borrow_mut().end(false);
                if shared.is_not_reached(&e) {
                    return;
                }
                if let Err(why) = self.refusal(s, before, after, &e) {
                    shared.fail(format!("{:?} of volume {} was refused: {e}; {why}", s.act, s.volume));
                }
            }
        }
    }

    fn made(&self, s: &Step, before: Option<Known>, after: Option<Known>, issued: u64) {
        let shared = &self.shared;
        if let (Some(b), Some(a)) = (before, after) {
            if a.chunks < b.chunks {
                let cut = shared.oracle.borrow_mut().cut(s.volume, a.chunks * CHUNK, issued);
                if let Err(w) = cut {
                    shared.fail(format!("a volume shrank over data: {w}"));
                }
            }
        }
        if let Act::Encrypt { .. } = s.act {
            let from = shared.oracle.borrow().next_write();
            shared.world.keep_secret(s.volume, from);
        }
        shared.table.borrow_mut().end(true);
        let mut marks = shared.marks.borrow_mut();
        let (made, gone) = (before.is_none(), after.is_none());
        let shrunk = after.is_some_and(|a| before.is_some_and(|b| a.chunks < b.chunks));
        marks.mark_if(made, Seen::Made);
        marks.mark_if(gone, Seen::Deleted);
        marks.mark_if(!made && !gone, Seen::Changed);
        marks.mark_if(matches!(s.act, Act::Encrypt { .. }), Seen::Encrypted);
        marks.mark_if(shrunk, Seen::Shrunk);
        drop(marks);
        self.volumes.borrow_mut()[s.volume] = after.and_then(|k| self.group.volume(&name(s.volume, k.renamed)));
        if let Err(wrong) = shared.table.borrow().check(&self.group.status()) {
            shared.fail(wrong);
        }
    }

    /// Whether `need` more slots of the fast tier could have been had by demotions alone: nothing failed that keeps slots
    /// back, the mover works, and what may live anywhere fits into the rest.
    fn could_demote(&self, table: &Table, need: u64) -> bool {
        let (fast, slow) = (self.slots_in(Tier::Fast), self.slots_in(Tier::Slow));
        let sum = |p: Placement| table.living().filter(|(_, k)| k.placement == p).map(|(_, k)| k.chunks).sum::<u64>();
        let bound = sum(Placement::FastOnly) + need + sum(Placement::SlowOnly);
        let spare = headroom(fast) + headroom(slow);
        let sound = self.shared.world.injected() == self.start && self.shared.migrate;
        sound && sum(Placement::Auto) + bound + spare <= fast + slow
    }

    /// Whether a refusal is right.
    fn refusal(&self, s: &Step, before: Option<Known>, after: Option<Known>, e: &StructureError) -> Result<(), String> {
        let table = self.shared.table.borrow();
        let (fast, slow, pages) = (self.slots_in(Tier::Fast), self.slots_in(Tier::Slow), self.shared.pages);
        let placement = after.map_or(Placement::Auto, |k| k.placement);
        let had = before.map_or(0, |k| k.chunks);
        let grown = after.map_or(0, |k| k.chunks).saturating_sub(had);
        // To be encrypted takes some slots of the tier: an eighth of its headroom.
        let need = if let Act::Encrypt { .. } = s.act { (headroom(fast) / 8).max(1) } else { grown };
        let sum =
            |of: &dyn Fn(&Known) -> bool| -> u64 { table.living().filter(|(_, k)| of(k)).map(|(_, k)| k.chunks).sum() };
        let kept = |tier| self.kept_back_in(tier);
        let room = |slots: u64, kept: u64, taken: u64| promisable(slots, kept).saturating_sub(taken);
        let right = match e {
            StructureError::NoRoom { .. } => {
                need > room(fast + slow, kept(Tier::Fast) + kept(Tier::Slow), sum(&|_| true))
            }
            StructureError::TierSmall { tier, .. } => {
                let slots = if *tier == Tier::Fast { fast } else { slow };
                need > room(slots, kept(*tier), sum(&|k| k.placement == placement))
            }
            StructureError::TierFull { tier, .. } => {
                placement != Placement::Auto && (*tier == Tier::Slow || !self.could_demote(&table, need))
            }
            StructureError::NoPages(_) => {
                let taken: u64 = table.living().map(|(_, k)| pages_of(k.chunks)).sum();
                pages_of(had + need) - pages_of(had) > pages.saturating_sub(taken)
            }
            StructureError::DataBeyond { .. } => {
                let end = after.map_or(0, |k| k.chunks) * CHUNK;
                self.shared.oracle.borrow().was_written(s.volume, end)
            }
            _ => false,
        };
        right.then_some(()).ok_or_else(|| format!("the table is {:?}", table.living().collect::<Vec<_>>()))
    }
}
