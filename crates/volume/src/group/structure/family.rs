//! Changes of the family table: families made, renamed, deleted, their headers replaced; volumes that join one. And the
//! keys of families, which come and go without a change. Invariants: [`crate::family`].

use std::future::Future;
use std::rc::Rc;

use bimetal_crypt::FamilyKey;
use bimetal_format::label::{is_name, FamilyRow, VolumeState, MAX_FAMILIES};

use super::room::tier_of;
use super::{Proviso, StructureError};
use crate::env::Env;
use crate::family::headers::{arrange, fit, Unread, WithHeader};
use crate::group::core::Core;
use crate::group::Group;
use crate::mutant::{self, Mutant};
use crate::options::Uuid;
use crate::wait;

/// A family to be made.
pub struct NewFamily {
    /// `[a-z0-9][a-z0-9._-]{0,62}`.
    pub name: String,
    /// Its name for ever, also that of its header.
    pub uuid: Uuid,
    /// Its key, which stays in memory: a new family is unlocked.
    pub key: FamilyKey,
    /// A LUKS2 header that holds the key: a multiple of 4096 bytes. The engine keeps it and does not read it.
    pub header: Vec<u8>,
}

/// Each change is carried out by a task of its own: it ends even if nobody waits for it any more.
impl<E: Env> Group<E> {
    /// Makes a family.
    pub async fn create_family(&self, new: NewFamily) -> Result<(), StructureError> {
        let core = self.core.clone();
        wait::to_its_end(&self.core.env, async move { core.create_family(new).await }).await
    }

    /// Gives a family another name.
    pub async fn rename_family(&self, name: &str, new: &str) -> Result<(), StructureError> {
        let (core, name, new) = (self.core.clone(), name.to_owned(), new.to_owned());
        wait::to_its_end(&self.core.env, async move { core.rename_family(&name, &new).await }).await
    }

    /// Deletes a family without volumes; its header is overwritten on all members when this returns, but where that failed,
    /// as `status` says then.
    pub async fn delete_family(&self, name: &str) -> Result<(), StructureError> {
        let (core, name) = (self.core.clone(), name.to_owned());
        wait::to_its_end(&self.core.env, async move { core.delete_family(&name).await }).await
    }

    /// The header of a family, whole.
    pub async fn family_header(&self, name: &str) -> Result<Vec<u8>, StructureError> {
        loop {
            let row = self.core.family(name)?;
            let read = self.core.read_header(&row).await;
            // A change meanwhile puts it elsewhere, and overwrites where it was.
            if read.is_err() && self.core.families.find(name).as_ref() != Some(&row) {
                continue;
            }
            let mut header = read?;
            header.resize(row.header as usize * bimetal_format::BLOCK, 0);
            return Ok(header);
        }
    }

    /// Replaces the header of a family, for instance by one with another passphrase. The one before is overwritten on all
    /// members when this returns, but where that failed, as `status` says then. `before` is the header that the new one was made from: if it is not the family's any
    /// more, nothing is changed. `None`: whatever is there, or even if no member has it whole any more.
    pub async fn replace_header(
        &self,
        name: &str,
        before: Option<&[u8]>,
        header: Vec<u8>,
    ) -> Result<(), StructureError> {
        let (core, name, before) = (self.core.clone(), name.to_owned(), before.map(<[u8]>::to_vec));
        wait::to_its_end(&self.core.env, async move { core.replace_header(&name, before.as_deref(), header).await })
            .await
    }

    /// Whether this is the key of a family.
    pub fn is_key_of(&self, name: &str, key: &FamilyKey) -> Result<bool, StructureError> {
        let row = self.core.family(name)?;
        Ok(key.confirms(&row.uuid, &row.check))
    }

    /// Unlocks a family: its volumes can be read and written from now on. Not a change of anything durable.
    pub fn unlock_family(&self, name: &str, key: FamilyKey) -> Result<(), StructureError> {
        let row = self.core.family(name)?;
        if !key.confirms(&row.uuid, &row.check) {
            return Err(StructureError::WrongKey(name.into()));
        }
        if self.core.families.locking.get() == row.id {
            return Err(StructureError::BeingLocked(name.into()));
        }
        if !self.core.families.is_unlocked(row.id) {
            self.core.families.put_key(row.id, key);
            self.core.give_keys();
        }
        self.core.start_encrypting();
        Ok(())
    }

    /// Locks a family: what was let in is answered, then its keys leave memory. Requests on its volumes fail until it is
    /// unlocked.
    pub async fn lock_family(&self, name: &str) -> Result<(), StructureError> {
        self.lock_family_if(name, Proviso::default()).await
    }

    /// The same with a proviso, of which the objection counts. The family is the one that has this name as this is called.
    pub fn lock_family_if(
        &self,
        name: &str,
        proviso: Proviso,
    ) -> impl Future<Output = Result<(), StructureError>> + use<'_, E> {
        let found = self.core.family(name);
        async move {
            let (core, row) = (self.core.clone(), found?);
            wait::to_its_end(&self.core.env, async move {
                let _change = core.volumes.change.lock().await;
                proviso.check()?;
                core.lock_volumes_of(row.id).await;
                Ok(())
            })
            .await
        }
    }

    /// Locks a family by force: when this returns its keys are out of memory, whatever waits for a disk that stands still, changes of the
    /// group too. Requests that were let in fail where they need them. What is given completes when these have ended, and what they had in
    /// memory is overwritten; once begun, that goes on also if nobody waits for it.
    pub fn lock_family_at_once(&self, name: &str) -> Result<impl Future<Output = ()> + use<E>, StructureError> {
        let core = self.core.clone();
        let id = core.family(name)?.id;
        core.forget_keys_of(id);
        let env = core.env.clone();
        Ok(async move { wait::to_its_end(&env, async move { core.locked_requests_ended(id).await }).await })
    }

    /// Gives a volume a family, which must be unlocked. From now on what is written is encrypted; what is there already
    /// is encrypted in the background, after a restart too, and what slots hold of the plaintext overwritten.
    pub async fn encrypt_volume(&self, volume: &str, family: &str) -> Result<(), StructureError> {
        self.encrypt_volume_if(volume, family, Proviso::default()).await
    }

    /// The same with a proviso, of which the volume counts: it takes nothing away to which somebody could object.
    pub async fn encrypt_volume_if(&self, volume: &str, family: &str, proviso: Proviso) -> Result<(), StructureError> {
        let (core, volume, family) = (self.core.clone(), volume.to_owned(), family.to_owned());
        wait::to_its_end(&self.core.env, async move { core.encrypt_volume(&volume, &family, &proviso).await }).await
    }
}

impl<E: Env> Core<E> {
    fn family(&self, name: &str) -> Result<FamilyRow, StructureError> {
        self.families.find(name).ok_or_else(|| StructureError::NoFamily(name.into()))
    }

    /// The id of the family of a volume that is about to be made.
    pub(super) fn family_for_new(&self, name: Option<&str>) -> Result<u32, StructureError> {
        let Some(name) = name else { return Ok(0) };
        let row = self.family(name)?;
        match self.families.is_unlocked(row.id) {
            true => Ok(row.id),
            false => Err(StructureError::FamilyLocked(name.into())),
        }
    }

    fn check_family_name(&self, name: &str) -> Result<(), StructureError> {
        match (is_name(name), self.families.find(name)) {
            (false, _) => Err(StructureError::FamilyName(name.into())),
            (_, Some(_)) => Err(StructureError::FamilyTaken(name.into())),
            _ => Ok(()),
        }
    }

    async fn create_family(&self, new: NewFamily) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        self.check_family_name(&new.name)?;
        let mut families = self.read_headers(Unread::RefusedBut(None)).await?;
        if families.len() >= MAX_FAMILIES {
            return Err(StructureError::ManyFamilies);
        }
        let id = self.first_member().label.borrow().next_family.max(1);
        let next = id.checked_add(1).ok_or(StructureError::ManyFamilies)?;
        let check = new.key.check_value(&new.uuid);
        let name = new.name.clone();
        let mut row = FamilyRow { uuid: new.uuid, name, id, check, at: 0, stored: 0, header: 0, crc: 0 };
        let stored = fit(&mut row, &self.uuid, &new.header)?;
        families.push((row, stored));
        // It may be locked by force as soon as it is there, while headers of before are overwritten.
        self.families.put_key(id, new.key);
        let written = self.write_families(families, next).await;
        if !self.families.has(id) {
            self.families.forget_key(id);
        }
        written
    }

    async fn rename_family(&self, name: &str, new: &str) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let id = self.family(name)?.id;
        if name == new {
            return Ok(());
        }
        self.check_family_name(new)?;
        let mut families = self.read_headers(Unread::RefusedBut(None)).await?;
        families.iter_mut().filter(|(f, _)| f.id == id).for_each(|(f, _)| f.name = new.into());
        self.change_families(families).await
    }

    async fn delete_family(&self, name: &str) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let id = self.family(name)?.id;
        // A deleted one that is not cleared yet still has chunks that are its.
        self.clear_rest().await?;
        let (rows, _) = self.table();
        let own: Vec<&str> = rows.iter().filter(|v| v.family == id).map(|v| v.name.as_str()).collect();
        if !own.is_empty() {
            return Err(StructureError::FamilyInUse { family: name.into(), volumes: own.join(", ") });
        }
        let mut families = self.read_headers(Unread::RefusedBut(Some(id))).await?;
        families.retain(|(f, _)| f.id != id);
        self.change_families(families).await
    }

    async fn replace_header(&self, name: &str, before: Option<&[u8]>, header: Vec<u8>) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let id = self.family(name)?.id;
        // Without what stood there before, it is given back because it is lost, and so may others be.
        let unread = before.map_or(Unread::Carried, |_| Unread::RefusedBut(Some(id)));
        let mut families = self.read_headers(unread).await?;
        let Some((row, stored)) = families.iter_mut().find(|(f, _)| f.id == id) else {
            return Err(StructureError::NoFamily(name.into()));
        };
        if before.is_some_and(|before| !is_same(stored, before)) {
            return Err(StructureError::HeaderChanged(name.into()));
        }
        *stored = fit(row, &self.uuid, &header)?;
        self.change_families(families).await
    }

    async fn change_families(&self, families: Vec<WithHeader>) -> Result<(), StructureError> {
        let next = self.first_member().label.borrow().next_family;
        self.write_families(families, next).await
    }

    /// Makes families durable on all members: the headers on the side that is not in use, then one change of the tables,
    /// then the end of the headers before. The caller holds `change`.
    async fn write_families(&self, mut families: Vec<WithHeader>, next: u32) -> Result<(), StructureError> {
        arrange(&mut families)?;
        let (number, side) = {
            let label = self.first_member().label.borrow();
            (label.tables + 1, 1 - label.keys_side)
        };
        if !mutant::on(Mutant::HeadersAfterTable) {
            let written = self.write_headers(side, &families).await;
            // That took its time.
            let reached = || self.members.iter().try_for_each(|m| self.check_in_reach(m));
            if let Err(e) = written.and_then(|()| reached()) {
                // What was written counts for nothing, and goes: it would open its family.
                let _latched = self.clear_old_headers().await;
                return Err(e.into());
            }
        }
        let rows: Vec<FamilyRow> = families.iter().map(|(f, _)| f.clone()).collect();
        self.flip_all(self.members.iter().collect(), |label| {
            label.tables = number;
            label.families.clone_from(&rows);
            (label.next_family, label.keys_side) = (next, side);
            label.add_keys_zone();
        })
        .await?;
        if mutant::on(Mutant::HeadersAfterTable) {
            self.write_headers(side, &families).await?;
        }
        self.families.apply(&rows);
        Ok(self.clear_old_headers().await?)
    }

    async fn encrypt_volume(
        self: &Rc<Self>,
        volume: &str,
        family: &str,
        proviso: &Proviso,
    ) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let v = self.volume_for(volume, proviso)?;
        let row = self.family(family)?;
        if !self.families.is_unlocked(row.id) {
            return Err(StructureError::FamilyLocked(family.into()));
        }
        if v.cipher.is_on() {
            return Err(StructureError::HasFamily(volume.into()));
        }
        // One that is bound to a tier needs some slots of it that others do not take.
        let need = tier_of(v.placement).map_or(0, |tier| self.slots_for_encryption(tier));
        let _aside = self.free_bound(v.placement, need).await?;
        self.change_row(v.id, |r| {
            r.family = row.id;
            r.state = VolumeState::Encrypting;
        })
        .await?;
        self.start_encrypting();
        Ok(())
    }
}

/// Whether a header is what is stored, and zeros.
fn is_same(stored: &[u8], header: &[u8]) -> bool {
    header.strip_prefix(stored).is_some_and(|rest| rest.iter().all(|b| *b == 0))
}
