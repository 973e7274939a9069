//! Changes of the volume table while the group is open: volumes made, resized, renamed, deleted.
//!
//! Terms: the *table* is in the label of every member and carries a number, `tables`. A change of it is one more than
//! the last. A page of the map is *free* when no volume of the table has it.
//!
//! Invariants:
//! 1. A change is answered when the labels of all members hold it durably. Cut off before, it has happened as soon as
//!    one member has it: a start takes the table with the highest number and writes it to all members before it serves
//!    anything. So it happens whole or not at all, and never half.
//! 2. (C7.4) Nothing lives in a free page on *any* member: no page copy and no record that a start of any set of
//!    members would replay gives a chunk of it a home. A deleted volume's pages become free in this order: the volume
//!    is marked deleted in all labels; no request of it is in flight; its chunks leave their slots, which a commit
//!    makes durable; every member writes a checkpoint; only then a second change of the table takes the volume away. A
//!    volume that shrinks takes the same steps before the change, and nothing of what it gives up holds data.
//! 3. A volume's number and UUID are never used again; `next_volume` is part of the table.
//! 4. (I5) What volumes hold or may still ask for is never more than all slots but the headroom, and per tier the same
//!    for volumes bound to it; slots that are kept back are promised to none. A volume bound to a tier is made when the slots it is
//!    promised are free.
//!
//! Counter-examples to shortcuts, which the simulator plants as mutants:
//! - *Pages free before the commit* (`C7RangeReusedEarly`). V is deleted, its chunks have left their slots in memory,
//!   the table without V is durable. W is made on V's pages. The power goes before the commit: the map on the members
//!   still has V's chunks, in pages that are W's now, and W shows V's data.
//! - *Pages free before every member knows* (`C7RangeNotTold`). As before, but the commit is durable on the fast
//!   members. A slow member is told of slots that chunks leave in its own time. The fast members die: the slow one
//!   knows that W has the page, and that chunk 0 of the page lives in its slot 7. W shows V's data.
//! - *Shrinking beside a write* (`C7ShrinkDespiteWriter`). Nothing lives beyond the new end, but a write there is on
//!   its way. It completes after the change. The volume grows again, or another takes the page: what should be zeros is
//!   that write.

mod create;
mod delete;
mod error;
mod family;
mod leave;
mod member;
pub(crate) mod pages;
mod proviso;
mod resize;
pub(crate) mod room;
mod unjoined;

use bimetal_format::label::{Label, VolumeRow};
use bimetal_format::layout::Layout;

pub(crate) use self::create::placement_code;
pub use self::error::StructureError;
pub use self::family::NewFamily;
pub(crate) use self::leave::SILENT;
pub use self::leave::{Evacuation, LeaveReport};
pub use self::member::{NewMember, NewMemberReport};
pub use self::proviso::{Objection, Proviso};
pub use self::unjoined::NotAMember;
use super::core::Core;
use super::Group;
use crate::env::Env;
use crate::error::Error;
use crate::map::Page;
use crate::member::Member;
use crate::options::NewVolume;
use crate::units::{ChunkId, MemberIndex};
use crate::wait;

/// Each change is carried out by a task of its own: it ends even if nobody waits for it any more.
impl<E: Env> Group<E> {
    /// Makes a volume; without a size it takes all the space that is left. Its size in bytes comes back.
    pub async fn create_volume(&self, new: &NewVolume) -> Result<u64, StructureError> {
        self.create_volume_in(new, None).await
    }

    /// The same for a volume that a family's key encrypts. The family must be unlocked.
    pub async fn create_volume_in(&self, new: &NewVolume, family: Option<&str>) -> Result<u64, StructureError> {
        let (core, new, family) = (self.core.clone(), new.clone(), family.map(str::to_owned));
        wait::to_its_end(&self.core.env, async move { core.create_volume(&new, family.as_deref()).await }).await
    }

    /// Adds a member, whose device is overwritten: its free slots can be taken when this returns. After an error that is
    /// not [`StructureError::Engine`] the group is as it was, and the device no member.
    pub async fn add_member(&self, device: E::Device, new: &NewMember) -> Result<NewMemberReport, StructureError> {
        self.try_member(device, new).await.map_err(|failed| failed.why)
    }

    /// The same for whoever wants to know what is left on a device that became no member.
    pub async fn try_member(&self, device: E::Device, new: &NewMember) -> Result<NewMemberReport, NotAMember> {
        let (core, new) = (self.core.clone(), new.clone());
        wait::to_its_end(&self.core.env, async move { core.add_member(device, &new).await }).await
    }

    /// How a new member with a device of `size` bytes would be laid out if it was added now.
    pub fn layout_of_new(&self, size: u64, new: &NewMember) -> Result<Layout, StructureError> {
        Ok(self.core.plan_member(size, new)?.layout())
    }

    /// What it would come to if a member left, or why it cannot. Nothing is changed.
    pub fn plan_evacuation(&self, index: MemberIndex) -> Result<Evacuation, StructureError> {
        self.core.plan_evacuation(index)
    }

    /// A member is to leave: when this returns, nothing new is put on it, and what is there goes to other members in the
    /// background, after a restart too. `status` tells how much is left; then [`Group::remove_member`].
    pub async fn evacuate_member(&self, index: MemberIndex) -> Result<Evacuation, StructureError> {
        let core = self.core.clone();
        wait::to_its_end(&self.core.env, async move {
            let plan = core.begin_leaving(index).await?;
            core.start_evacuating();
            Ok(plan)
        })
        .await
    }

    /// A member that was to leave stays.
    pub async fn keep_member(&self, index: MemberIndex) -> Result<(), StructureError> {
        let core = self.core.clone();
        wait::to_its_end(&self.core.env, async move { core.keep_member(index).await }).await
    }

    /// Takes a member out of the group that was evacuated and is empty. Its device is not in use any more when this
    /// returns, and carries no label.
    pub async fn remove_member(&self, index: MemberIndex) -> Result<LeaveReport, StructureError> {
        let core = self.core.clone();
        wait::to_its_end(&self.core.env, async move { core.remove_member(index).await }).await
    }

    /// Gives a volume another size in bytes, rounded down to 128 KiB; the size that it has then comes back. A smaller
    /// one is refused while a block that holds data lies beyond it.
    pub async fn resize_volume(&self, name: &str, size: u64) -> Result<u64, StructureError> {
        self.resize_volume_if(name, size, Proviso::default()).await
    }

    /// The same with a proviso; an objection counts against a smaller size.
    pub async fn resize_volume_if(&self, name: &str, size: u64, proviso: Proviso) -> Result<u64, StructureError> {
        let (core, name) = (self.core.clone(), name.to_owned());
        wait::to_its_end(&self.core.env, async move { core.resize_volume(&name, size, &proviso).await }).await
    }

    /// Gives a volume another name.
    pub async fn rename_volume(&self, name: &str, new: &str) -> Result<(), StructureError> {
        self.rename_volume_if(name, new, Proviso::default()).await
    }

    /// The same with a proviso.
    pub async fn rename_volume_if(&self, name: &str, new: &str, proviso: Proviso) -> Result<(), StructureError> {
        let (core, name, new) = (self.core.clone(), name.to_owned(), new.to_owned());
        wait::to_its_end(&self.core.env, async move { core.rename_volume(&name, &new, &proviso).await }).await
    }

    /// Deletes a volume: its requests are refused from now on. Its slots have left it when this returns, and are free as
    /// soon as they were discarded. If the group stops or fails meanwhile, the volume is gone all the same, and the next
    /// start goes on.
    pub async fn delete_volume(&self, name: &str) -> Result<(), StructureError> {
        self.delete_volume_if(name, Proviso::default()).await
    }

    /// The same with a proviso.
    pub async fn delete_volume_if(&self, name: &str, proviso: Proviso) -> Result<(), StructureError> {
        let (core, name) = (self.core.clone(), name.to_owned());
        wait::to_its_end(&self.core.env, async move { core.delete_volume(&name, &proviso).await }).await
    }
}

impl<E: Env> Core<E> {
    /// Whether volumes and members may be changed now.
    fn check_changeable(&self) -> Result<(), StructureError> {
        self.check_writable()?;
        self.check_reached()
    }

    /// Every member's labels get a change of the tables: where one is lost nothing is begun, as nothing is moved. What does not need
    /// that member goes on, and would not any more if the change had failed.
    pub(crate) fn check_reached(&self) -> Result<(), StructureError> {
        match self.lost_member() {
            Some(m) => Err(StructureError::NotReached(m.index)),
            None => Ok(()),
        }
    }

    async fn rename_volume(&self, name: &str, new: &str, proviso: &Proviso) -> Result<(), StructureError> {
        let _change = self.volumes.change.lock().await;
        self.check_changeable()?;
        let v = self.volume_for(name, proviso)?;
        if name != new {
            self.check_new_name(new)?;
            proviso.check()?;
            self.change_row(v.id, |row| row.name = new.to_string()).await?;
        }
        Ok(())
    }

    /// A name that a volume may take.
    fn check_new_name(&self, name: &str) -> Result<(), StructureError> {
        if !bimetal_format::label::is_name(name) {
            return Err(StructureError::Name(name.into()));
        }
        match self.volumes.find(name) {
            Some(_) => Err(StructureError::Taken(name.into())),
            None => Ok(()),
        }
    }

    /// The table as it is, from any label: all hold the same.
    fn table(&self) -> (Vec<VolumeRow>, u32) {
        let label = self.first_member().label.borrow();
        (label.volumes.clone(), label.next_volume)
    }

    pub(crate) async fn change_row(&self, id: u32, change: impl FnOnce(&mut VolumeRow)) -> Result<(), Error> {
        let (mut rows, next) = self.table();
        change(rows.iter_mut().find(|r| r.id == id).expect("the caller has found the volume under the lock"));
        self.write_table(rows, next).await
    }

    /// Makes a table durable on all members, side by side, and takes it over. The caller holds `change`. Where a member is lost by now,
    /// nothing is changed; any other error has latched the group, and the next start decides whether it happened.
    async fn write_table(&self, rows: Vec<VolumeRow>, next_volume: u32) -> Result<(), Error> {
        self.members.iter().try_for_each(|m| self.check_in_reach(m))?;
        let number = self.first_member().label.borrow().tables + 1;
        let all = self.members.iter().collect();
        self.flip_all(all, |label| {
            label.tables = number;
            label.volumes.clone_from(&rows);
            label.next_volume = next_volume;
        })
        .await?;
        self.volumes.apply(&rows);
        self.give_keys();
        Ok(())
    }

    /// Changes the labels of `members`, side by side. An error has latched the group.
    async fn flip_all(&self, members: Vec<&Member<E::Device>>, change: impl Fn(&mut Label)) -> Result<(), Error> {
        let change = &change;
        let flips = members.into_iter().map(|m| {
            let flip = async move {
                let _meta = m.meta.lock().await;
                self.health.check()?;
                let mut label = m.label.borrow().clone();
                change(&mut label);
                m.flip(label).await.or_else(|e| self.failed(m, "the label", e))
            };
            self.unless_silent(m, "the label", flip)
        });
        wait::all(flips.collect()).await.into_iter().collect()
    }

    /// Makes what has become of all chunks durable, and known to every member on its own (invariant 2).
    async fn tell_all_members(&self) -> Result<(), Error> {
        self.tell_members(|_| true).await
    }

    async fn tell_members(&self, who: impl Fn(&Member<E::Device>) -> bool) -> Result<(), Error> {
        self.commit_changes().await?;
        if crate::mutant::on(crate::mutant::Mutant::C7RangeNotTold) {
            return Ok(());
        }
        for m in self.members.iter().filter(|m| who(m)) {
            self.check_in_reach(m)?;
            // What a checkpoint writes is in the pages; what it leaves behind is before the journal's new tail.
            self.unless_silent(m, "a metadata write", self.checkpoint_while_reached(m)).await?;
        }
        Ok(())
    }

    /// Forgets the heat of pages in which nothing lives any more, and the memory that they take.
    fn empty_pages(&self, pages: impl Iterator<Item = u32>) {
        let mut map = self.map.borrow_mut();
        for page in pages {
            if map.page(page).is_some_and(Page::is_unused) {
                map.forget_page(page);
            }
        }
    }

    /// The chunk has a home with data in it.
    fn holds_data(&self, chunk: ChunkId) -> bool {
        self.map.borrow().get(chunk).is_none_or(|e| e.is_mapped() && e.mask != 0)
    }
}

/// Gives every label the table that counts: the one with the highest number.
pub(crate) fn adopt(label: &mut Label, table: &Label) {
    label.joining = false;
    label.tables = table.tables;
    label.members.clone_from(&table.members);
    label.members_changed = table.members_changed;
    label.volumes.clone_from(&table.volumes);
    label.next_volume = table.next_volume;
    label.families.clone_from(&table.families);
    (label.next_family, label.keys_side) = (table.next_family, table.keys_side);
    label.add_keys_zone();
}
