//! A volume is deleted: marked in the table, emptied like by TRIM, taken out of the table (invariant 2). A start goes
//! on where one was cut off.

use std::rc::Rc;

use super::{Proviso, StructureError, VolumeRow};
use crate::backend::TO_ITS_END;
use crate::env::{DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::io::split::Part;
use crate::mutant::{self, Mutant};
use crate::units::CHUNK;

impl<E: Env> Core<E> {
    pub(super) async fn delete_volume(&self, name: &str, proviso: &Proviso) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let v = self.volume_for(name, proviso)?;
        proviso.check()?;
        if mutant::on(Mutant::C7RangeReusedEarly) {
            return Ok(self.delete_carelessly(&v).await?);
        }
        // Whoever comes from here on is refused: what he would be promised while the labels are written would be gone.
        v.ending.set(true);
        let marked = self.change_row(v.id, |row| row.state = bimetal_format::label::VolumeState::Deleted).await;
        v.ending.set(false);
        marked?;
        // It is gone for good; what is left of it will be cleared, if not now then after the next start.
        match self.clear(&v).await {
            Err(e) if !self.stopping.get() && !self.health.is_latched() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// After a start: goes on with what was cut off.
    pub(crate) async fn clear_deleted(&self) {
        let _change = self.volumes.change.lock().await;
        // If it fails the group is stopping or has latched, and says why; the next start goes on.
        let _later = self.clear_rest().await;
    }

    /// The same for a caller who holds `change` and needs the room.
    pub(super) async fn clear_rest(&self) -> Result<(), Error> {
        for v in self.volumes.all().iter().filter(|v| v.deleted.get()) {
            self.clear(v).await?;
        }
        Ok(())
    }

    /// Gives back all slots of a deleted volume, and then its pages.
    async fn clear(&self, v: &Rc<VolumeInfo>) -> Result<(), Error> {
        // The lock of changes may have been waited for until the group was stopped: nothing is written after that.
        if self.stopping.get() {
            return Err(Error::Stopping);
        }
        if let Some(lost) = self.lost_member() {
            return Err(Error::Device { member: lost.index, source: DeviceError::Disconnected });
        }
        v.drained().await;
        self.unmap(v).await?;
        self.tell_all_members().await?;
        self.demand_slots();
        self.take_row_away(v).await?;
        let pages: Vec<u32> = v.runs.borrow().iter().flat_map(|r| r.first..r.first + r.count).collect();
        self.empty_pages(pages.into_iter());
        Ok(())
    }

    /// Every chunk leaves its slot.
    async fn unmap(&self, v: &VolumeInfo) -> Result<(), Error> {
        let mut pages = self.pages_in_use(v, 0);
        while let Some(chunks) = pages.next(self).await {
            for chunk in chunks {
                if self.map.borrow().get(chunk).is_some_and(|e| !e.is_mapped()) {
                    continue;
                }
                if self.stopping.get() {
                    return Err(Error::Stopping);
                }
                self.forget(&Part { chunk, from: 0, len: CHUNK, at: 0 }, TO_ITS_END).await?;
            }
        }
        Ok(())
    }

    async fn take_row_away(&self, v: &VolumeInfo) -> Result<(), Error> {
        let (rows, next) = self.table();
        let rows: Vec<VolumeRow> = rows.into_iter().filter(|r| r.id != v.id).collect();
        self.write_table(rows, next).await
    }

    /// Mutants only: the pages are free before anything durable says that nothing lives in them.
    async fn delete_carelessly(&self, v: &Rc<VolumeInfo>) -> Result<(), Error> {
        v.deleted.set(true);
        v.drained().await;
        self.unmap(v).await?;
        self.take_row_away(v).await
    }
}
