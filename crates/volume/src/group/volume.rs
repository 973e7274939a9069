//! A volume: the face that exports see.

use std::cell::Cell;
use std::rc::Rc;

use bimetal_format::label::{PlacementCode, VolumeRow};
use bimetal_format::ENTRIES_PER_PAGE;

use super::core::Core;
use crate::backend::{Backend, Extent, Pieces, WriteFlags};
use crate::buf::Buf;
use crate::env::Env;
use crate::error::Error;
use crate::io::split::{parts, runs, Part};
use crate::kept::kept_slot;
use crate::options::Uuid;
use crate::tier::Policy;
use crate::units::{Placement, Tier, BLOCK, CHUNK};

/// What the group knows of a volume.
pub(crate) struct VolumeInfo {
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
    pub(crate) id: u32,
    pub(crate) size: u64,
    pub(crate) placement: Placement,
    pub(crate) first_page: u32,
    pub(crate) fast_chunks: Cell<u64>,
    pub(crate) slow_chunks: Cell<u64>,
}

impl VolumeInfo {
    pub(crate) fn new(row: &VolumeRow) -> VolumeInfo {
        let placement = match row.placement {
            PlacementCode::Auto => Placement::Auto,
            PlacementCode::FastOnly => Placement::FastOnly,
            PlacementCode::SlowOnly => Placement::SlowOnly,
        };
        VolumeInfo {
            name: row.name.clone(),
            uuid: row.uuid,
            id: row.id,
            size: row.size,
            placement,
            first_page: row.first_page,
            fast_chunks: Cell::new(0),
            slow_chunks: Cell::new(0),
        }
    }

    pub(crate) fn first_chunk(&self) -> u64 {
        u64::from(self.first_page) * ENTRIES_PER_PAGE as u64
    }

    pub(crate) fn chunks(&self) -> u64 {
        self.size / CHUNK
    }

    /// Refuses a range that is not inside the volume.
    pub(crate) fn check(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size: self.size }),
        }
    }
}

/// A handle to a volume of an open group.
pub struct Volume<E: Env> {
    pub(crate) core: Rc<Core<E>>,
    pub(crate) index: usize,
}

impl<E: Env> Clone for Volume<E> {
    fn clone(&self) -> Self {
        Volume { core: self.core.clone(), index: self.index }
    }
}

impl<E: Env> Volume<E> {
    fn info(&self) -> &VolumeInfo {
        &self.core.volumes[self.index]
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    fn extents_of(&self, part: &Part) -> Vec<Extent> {
        let core = &self.core;
        let entry = core.map.borrow().get(part.chunk).unwrap_or_default();
        let mapped = entry.is_mapped();
        let tier = match mapped.then(|| core.tier_of_member(entry.member)) {
            None => 0,
            Some(Tier::Fast) if kept_slot(&entry).is_some() => 3,
            Some(Tier::Fast) => 1,
            Some(Tier::Slow) => 2,
        };
        let heat = core.policy.borrow().heat_level(core.map.borrow().heat(part.chunk));
        let mask = if mapped { entry.mask } else { 0 };
        let (first, end) = ((part.from / BLOCK) as u32, (part.from + part.len).div_ceil(BLOCK) as u32);
        let cut = |from: u32, to: u32| {
            let start = (u64::from(from) * BLOCK).max(part.from);
            (u64::from(to) * BLOCK).min(part.from + part.len) - start
        };
        runs(mask, first, end).map(|(from, to, data)| Extent { len: cut(from, to), data, tier, heat }).collect()
    }
}

impl<E: Env> Backend for Volume<E> {
    fn size(&self) -> u64 {
        self.info().size
    }

    fn read_only(&self) -> bool {
        !self.core.writable
    }

    fn sector_size(&self) -> u32 {
        self.core.sector_size
    }

    async fn read(&self, offset: u64, len: u64) -> Result<Pieces, Error> {
        self.core.read(self.info(), offset, len).await
    }

    async fn write(&self, offset: u64, data: Buf, flags: WriteFlags) -> Result<(), Error> {
        self.core.write(self.info(), offset, data, flags).await
    }

    async fn flush(&self) -> Result<(), Error> {
        self.core.flush().await
    }

    async fn trim(&self, offset: u64, len: u64, flags: WriteFlags) -> Result<(), Error> {
        self.core.trim(self.info(), offset, len, flags).await
    }

    async fn write_zeroes(&self, offset: u64, len: u64, flags: WriteFlags) -> Result<(), Error> {
        self.core.write_zeroes(self.info(), offset, len, flags).await
    }

    async fn cache(&self, offset: u64, len: u64) -> Result<(), Error> {
        let v = self.info();
        v.check(offset, len)?;
        if self.core.writable {
            let mut view = self.core.view();
            let mut policy = self.core.policy.borrow_mut();
            for part in parts(v.first_chunk(), offset, len) {
                policy.hint(&mut view, part.chunk);
            }
            drop((policy, view));
            self.core.mover_wake.notify();
        }
        Ok(())
    }

    fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, Error> {
        let v = self.info();
        v.check(offset, len)?;
        let mut out: Vec<Extent> = Vec::new();
        for part in parts(v.first_chunk(), offset, len) {
            for e in self.extents_of(&part) {
                let full = out.len() == max.max(1);
                match out.last_mut() {
                    Some(last) if (last.data, last.tier, last.heat) == (e.data, e.tier, e.heat) => last.len += e.len,
                    _ if full => return Ok(out),
                    _ => out.push(e),
                }
            }
        }
        Ok(out)
    }
}
