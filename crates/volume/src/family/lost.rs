//! Families that no passphrase opens with the members at hand: none of those has their header whole. Their volumes may be whole, and
//! be of no use to anybody.

use bimetal_format::label::FamilyRow;

use crate::env::Env;
use crate::group::core::Core;
use crate::group::Group;

/// Such a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFamily {
    /// Its name.
    pub name: String,
    /// Its volumes, by name.
    pub volumes: Vec<String>,
}

impl<E: Env> Group<E> {
    /// Families of which no member that is there has the header whole, or can read it.
    pub async fn lost_families(&self) -> Vec<LostFamily> {
        self.core.lost_families().await
    }
}

impl<E: Env> Core<E> {
    /// See [`Group::lost_families`].
    pub(crate) async fn lost_families(&self) -> Vec<LostFamily> {
        let rows = self.families.rows.borrow().clone();
        let mut lost = Vec::new();
        for row in rows {
            if self.read_header(&row).await.is_err() {
                lost.push(LostFamily { volumes: self.volumes_of(&row), name: row.name });
            }
        }
        lost
    }

    fn volumes_of(&self, family: &FamilyRow) -> Vec<String> {
        let living = self.volumes.living().into_iter();
        living.filter(|v| v.cipher.family() == family.id).map(|v| v.name.borrow().clone()).collect()
    }
}
