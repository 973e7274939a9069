//! A volume gets another size. Growing is one change of the table. Shrinking first makes sure that nothing lives, or is
//! on its way, beyond the new end (invariant 2).

use super::pages::{cut, pages_of};
use super::{Proviso, StructureError};
use crate::backend::TO_ITS_END;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::io::split::Part;
use crate::mutant::{self, Mutant};
use crate::units::CHUNK;

impl<E: Env> Core<E> {
    pub(super) async fn resize_volume(&self, name: &str, size: u64, proviso: &Proviso) -> Result<u64, StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let v = self.volume_for(name, proviso)?;
        let (before, after) = (v.chunks(), size / CHUNK);
        if after == 0 {
            return Err(StructureError::TooSmall);
        }
        if after > before {
            self.clear_rest().await?;
            self.grow(&v, after).await?;
        } else if after < before {
            self.check_empty(&v, after).await?;
            proviso.check()?;
            v.size.set(after * CHUNK);
            let shrunk = self.shrink(&v, after).await;
            if shrunk.is_err() {
                v.size.set(before * CHUNK);
            }
            shrunk?;
        }
        Ok(after * CHUNK)
    }

    async fn grow(&self, v: &VolumeInfo, after: u64) -> Result<(), StructureError> {
        let more = after - v.chunks();
        self.check_room(v.placement, more)?;
        let (rows, _) = self.table();
        let mut runs = v.runs.borrow().to_vec();
        let need = pages_of(after).saturating_sub(runs.iter().map(|r| u64::from(r.count)).sum());
        self.add_pages(&mut runs, need, &rows)?;
        let _aside = self.free_bound(v.placement, more).await?;
        let change = self.change_row(v.id, |row| (row.size, row.runs) = (after * CHUNK, runs));
        Ok(change.await?)
    }

    /// The size in memory is the new one already: no request beyond it is let in any more.
    async fn shrink(&self, v: &VolumeInfo, after: u64) -> Result<(), StructureError> {
        if !mutant::on(Mutant::C7ShrinkDespiteWriter) {
            v.drained().await;
        }
        let mut pages = self.pages_in_use(v, after);
        while let Some(chunks) = pages.next(self).await {
            for chunk in chunks {
                // A chunk whose first write failed has a home without data.
                if self.map.borrow().get(chunk).is_some_and(|e| e.is_mapped() && e.mask == 0) {
                    self.forget(&Part { chunk, from: 0, len: CHUNK, at: 0 }, TO_ITS_END).await?;
                }
            }
        }
        self.check_empty(v, after).await?;
        self.tell_all_members().await?;
        let mut runs = v.runs.borrow().to_vec();
        let gone = cut(&mut runs, pages_of(after));
        self.change_row(v.id, |row| (row.size, row.runs) = (after * CHUNK, runs)).await?;
        self.empty_pages(gone.into_iter());
        Ok(())
    }

    /// Refuses to cut data off.
    async fn check_empty(&self, v: &VolumeInfo, after: u64) -> Result<(), StructureError> {
        let mut last = None;
        let mut pages = self.pages_in_use(v, after);
        while let Some(mut chunks) = pages.next(self).await {
            last = chunks.rfind(|c| self.holds_data(*c)).or(last);
        }
        match last.and_then(|c| v.number_of(c)) {
            Some(n) => Err(StructureError::DataBeyond { name: v.name.borrow().clone(), end: (n + 1) * CHUNK }),
            None => Ok(()),
        }
    }
}
