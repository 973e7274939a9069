//! What must still hold when the turn of a change has come: others may have kept it waiting for many seconds, in which
//! somebody has begun to use the volume, or its name has become another's.

use std::rc::Rc;

use super::StructureError;
use crate::env::Env;
use crate::group::core::Core;
use crate::group::volume::VolumeInfo;
use crate::options::Uuid;

/// Looks whether somebody objects, and says why.
pub type Objection = Rc<dyn Fn() -> Option<String>>;

/// Under what a change is made; the usual one asks nothing.
#[derive(Clone, Default)]
pub struct Proviso {
    /// The volume must be this one, whatever has its name by then.
    pub volume: Option<Uuid>,
    /// Nobody may object to what it takes away. Looked at in the very step in which the change begins: whoever comes
    /// after that finds it under way.
    pub objection: Option<Objection>,
}

impl Proviso {
    /// Refuses the change if somebody objects.
    pub(super) fn check(&self) -> Result<(), StructureError> {
        match self.objection.as_ref().and_then(|objection| objection()) {
            Some(why) => Err(StructureError::Objected(why)),
            None => Ok(()),
        }
    }
}

impl<E: Env> Core<E> {
    /// The volume that a change is for. The caller holds `change`.
    pub(super) fn volume_for(&self, name: &str, proviso: &Proviso) -> Result<Rc<VolumeInfo>, StructureError> {
        let v = self.volumes.find(name).ok_or_else(|| StructureError::Unknown(name.into()))?;
        match proviso.volume.is_some_and(|uuid| uuid != v.uuid) {
            true => Err(StructureError::AnotherVolume(name.into())),
            false => Ok(v),
        }
    }
}
