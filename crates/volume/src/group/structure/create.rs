//! A volume is made: room is found and set aside, then one change of the table.

use bimetal_format::label::{PlacementCode, VolumeRow, VolumeState};

use super::pages::pages_of;
use super::StructureError;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::create::new_uuid;
use crate::options::NewVolume;
use crate::units::{Placement, CHUNK};

impl<E: Env> Core<E> {
    pub(super) async fn create_volume(&self, new: &NewVolume, family: Option<&str>) -> Result<u64, StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        self.check_new_name(&new.name)?;
        let family = self.family_for_new(family)?;
        self.clear_rest().await?;
        let chunks = match new.size {
            Some(size) => size / CHUNK,
            None => self.room(new.placement).max(1),
        };
        if chunks == 0 {
            return Err(StructureError::TooSmall);
        }
        self.check_room(new.placement, chunks)?;
        let (mut rows, id) = self.table();
        let next = id.checked_add(1).ok_or(StructureError::TableFull)?;
        let mut runs = Vec::new();
        self.add_pages(&mut runs, pages_of(chunks), &rows)?;
        let _aside = self.free_bound(new.placement, chunks).await?;
        let size = chunks * CHUNK;
        rows.push(VolumeRow {
            uuid: new_uuid(&self.env),
            name: new.name.clone(),
            size,
            id,
            runs,
            family,
            placement: placement_code(new.placement),
            state: VolumeState::Living,
        });
        self.write_table(rows, next).await?;
        Ok(size)
    }
}

/// A placement, as stored.
pub(crate) fn placement_code(placement: Placement) -> PlacementCode {
    match placement {
        Placement::Auto => PlacementCode::Auto,
        Placement::FastOnly => PlacementCode::FastOnly,
        Placement::SlowOnly => PlacementCode::SlowOnly,
    }
}
