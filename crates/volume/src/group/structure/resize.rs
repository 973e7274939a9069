//! A volume gets another size. Growing is one change of the table. Shrinking first makes sure that nothing lives, or is
//! on its way, beyond the new end (invariant 2).

use super::pages::{cut, extend, pages_of};
use super::StructureError;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::io::split::Part;
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, CHUNK};

impl<E: Env> Core<E> {
    pub(super) async fn resize_volume(&self, name: &str, size: u64) -> Result<u64, StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_writable()?;
        let v = self.volumes.find(name).ok_or_else(|| StructureError::Unknown(name.into()))?;
        let (before, after) = (v.chunks(), size / CHUNK);
        if after == 0 {
            return Err(StructureError::TooSmall);
        }
        if after > before {
            self.clear_rest().await?;
            self.grow(&v, after).await?;
        } else if after < before {
            self.check_empty(&v, after)?;
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
        extend(&mut runs, need, &rows, self.map.borrow().len() as u64)?;
        let _aside = self.free_bound(v.placement, more).await?;
        let change = self.change_row(v.id, |row| (row.size, row.runs) = (after * CHUNK, runs));
        Ok(change.await?)
    }

    /// The size in memory is the new one already: no request beyond it is let in any more.
    async fn shrink(&self, v: &VolumeInfo, after: u64) -> Result<(), StructureError> {
        if !mutant::on(Mutant::C7ShrinkDespiteWriter) {
            v.drained().await;
        }
        for chunk in chunks_from(v, after) {
            // A chunk whose first write failed has a home without data.
            if self.map.borrow().get(chunk).is_some_and(|e| e.is_mapped() && e.mask == 0) {
                self.forget(&Part { chunk, from: 0, len: CHUNK, at: 0 }).await?;
            }
        }
        self.check_empty(v, after)?;
        self.tell_all_members().await?;
        let mut runs = v.runs.borrow().to_vec();
        let gone = cut(&mut runs, pages_of(after));
        self.change_row(v.id, |row| (row.size, row.runs) = (after * CHUNK, runs)).await?;
        self.empty_pages(gone.into_iter());
        Ok(())
    }

    /// Refuses to cut data off.
    fn check_empty(&self, v: &VolumeInfo, after: u64) -> Result<(), StructureError> {
        let last = chunks_from(v, after).filter(|c| self.holds_data(*c)).last();
        match last.and_then(|c| v.number_of(c)) {
            Some(n) => Err(StructureError::DataBeyond { name: v.name.borrow().clone(), end: (n + 1) * CHUNK }),
            None => Ok(()),
        }
    }
}

/// The chunks of a volume from its `n`-th on, as far as it has pages.
fn chunks_from(v: &VolumeInfo, mut n: u64) -> impl Iterator<Item = ChunkId> {
    let mut rest = Vec::new();
    for (first, count) in v.chunk_runs() {
        let skip = n.min(count);
        n -= skip;
        rest.push(first + skip..first + count);
    }
    rest.into_iter().flatten().map(ChunkId)
}
