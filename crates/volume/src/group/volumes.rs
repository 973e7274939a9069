//! The volumes of an open group, as its table says.
//!
//! Invariants:
//! 1. They are what the labels of all members say durably; only [`Volumes::apply`] changes them, after the labels.
//! 2. No two volumes share a page of the map. A deleted volume keeps its pages until nothing lives in them (C7.4).
//! 3. One change of the table at a time: whoever makes one holds `change`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bimetal_format::label::VolumeRow;

use super::volume::VolumeInfo;
use crate::units::{ChunkId, MemberIndex, Placement, Tier};
use crate::wait::Mutex;

/// Chunks of a volume: first, end, and whose.
type Run = (u64, u64, Rc<VolumeInfo>);

pub(crate) struct Volumes {
    all: RefCell<Rc<[Rc<VolumeInfo>]>>,
    /// By first chunk.
    runs: RefCell<Vec<Run>>,
    /// Slots of each tier kept for a volume that is about to be bound to it.
    set_aside: [Cell<u64>; 2],
    /// Held by whoever changes the table.
    pub(crate) change: Mutex,
}

impl Volumes {
    pub(crate) fn new(rows: &[VolumeRow]) -> Volumes {
        let volumes = Volumes {
            all: RefCell::new(Rc::new([])),
            runs: RefCell::default(),
            set_aside: Default::default(),
            change: Mutex::default(),
        };
        volumes.apply(rows);
        volumes
    }

    /// Takes over a table that all labels hold.
    pub(crate) fn apply(&self, rows: &[VolumeRow]) {
        let before = self.all.borrow().clone();
        let volume = |row: &VolumeRow| match before.iter().find(|v| v.id == row.id) {
            Some(v) => {
                v.update(row);
                v.clone()
            }
            None => Rc::new(VolumeInfo::new(row)),
        };
        let all: Rc<[Rc<VolumeInfo>]> = rows.iter().map(volume).collect();
        // Whoever still has a handle of one that is gone has no use for its key.
        before.iter().filter(|v| rows.iter().all(|row| row.id != v.id)).for_each(|v| v.cipher.forget_key());
        let mut runs: Vec<Run> = all.iter().flat_map(runs_of).collect();
        runs.sort_by_key(|(first, ..)| *first);
        *self.runs.borrow_mut() = runs;
        *self.all.borrow_mut() = all;
    }

    /// All of them, deleted ones included.
    pub(crate) fn all(&self) -> Rc<[Rc<VolumeInfo>]> {
        self.all.borrow().clone()
    }

    /// Those that are there.
    pub(crate) fn living(&self) -> Vec<Rc<VolumeInfo>> {
        self.all.borrow().iter().filter(|v| !v.deleted.get()).cloned().collect()
    }

    /// The living volume of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Rc<VolumeInfo>> {
        self.all.borrow().iter().find(|v| !v.deleted.get() && *v.name.borrow() == name).cloned()
    }

    /// The volume that a chunk belongs to, deleted or not.
    pub(crate) fn of_chunk(&self, chunk: ChunkId) -> Option<Rc<VolumeInfo>> {
        let runs = self.runs.borrow();
        let after = runs.partition_point(|(first, ..)| *first <= chunk.0);
        let (_, end, v) = runs.get(after.checked_sub(1)?)?;
        (chunk.0 < *end).then(|| v.clone())
    }

    /// Slots that volumes bound to a tier may still ask for.
    pub(crate) fn promised(&self, placement: Placement) -> u64 {
        let all = self.all.borrow();
        let bound = all.iter().filter(|v| v.placement == placement && !v.deleted.get());
        bound.map(|v| v.promised().saturating_sub(v.mapped() - v.homeless.get())).sum()
    }

    /// Whether there are chunks on one of these members that may live on both tiers.
    pub(crate) fn any_auto_on(&self, mut members: impl Iterator<Item = MemberIndex>) -> bool {
        let all = self.all.borrow();
        members.any(|m| all.iter().any(|v| v.placement == Placement::Auto && v.mapped_on(m) > 0))
    }

    /// The first chunk from here on of a volume that may live on both tiers.
    pub(crate) fn auto_from(&self, chunk: ChunkId) -> Option<ChunkId> {
        let runs = self.runs.borrow();
        let auto = |v: &VolumeInfo| v.placement == Placement::Auto && !v.deleted.get();
        let from = runs.partition_point(|(_, end, _)| *end <= chunk.0);
        runs[from..].iter().find(|(.., v)| auto(v)).map(|(first, ..)| ChunkId(chunk.0.max(*first)))
    }

    /// Slots that all volumes hold or may still ask for.
    pub(crate) fn promised_in_all(&self) -> u64 {
        self.all.borrow().iter().map(held_or_promised).sum()
    }

    /// The same of the volumes bound to a tier.
    pub(crate) fn bound(&self, placement: Placement) -> u64 {
        self.all.borrow().iter().filter(|v| v.placement == placement).map(held_or_promised).sum()
    }

    /// Slots of a tier kept for a volume that is about to be bound to it.
    pub(crate) fn set_aside(&self, tier: Tier) -> u64 {
        self.set_aside[tier as usize].get()
    }

    /// Keeps so many slots of a tier for a volume that is about to be bound to it, until this is dropped.
    pub(crate) fn keep_aside(&self, tier: Tier, slots: u64) -> SetAside<'_> {
        self.set_aside[tier as usize].set(slots);
        SetAside(&self.set_aside[tier as usize])
    }
}

/// See [`Volumes::keep_aside`].
pub(crate) struct SetAside<'a>(&'a Cell<u64>);

impl SetAside<'_> {
    /// Keeps so many from now on.
    pub(crate) fn set(&self, slots: u64) {
        self.0.set(slots);
    }
}

impl Drop for SetAside<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

fn held_or_promised(v: &Rc<VolumeInfo>) -> u64 {
    match v.deleted.get() {
        true => v.mapped(),
        false => v.promised(),
    }
}

/// The chunks of a volume, those beyond its size left out.
fn runs_of(v: &Rc<VolumeInfo>) -> Vec<Run> {
    let mut left = v.chunks();
    let mut runs = Vec::new();
    for (first, count) in v.chunk_runs() {
        let count = count.min(left);
        left -= count;
        runs.push((first, first + count, v.clone()));
    }
    runs
}
