//! The headers of families, as members hold them: a keys zone with two sides, one of which the labels name.

use std::future::Future;

use bimetal_format::label::{FamilyRow, MAX_HEADER};
use bimetal_format::layout::{keys_extents, Keys, KEYS_LEN};
use bimetal_format::BLOCK;

use crate::buf::BufMut;
use crate::env::{Device, DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::group::structure::{StructureError, SILENT};
use crate::member::{Member, WriteFor};
use crate::mutant::{self, Mutant};
use crate::recovery::Finding;

/// A family with the part of its header that is not zeros at its end.
pub(crate) type WithHeader = (FamilyRow, Vec<u8>);

/// What becomes of headers of which no member has a whole copy that it can read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// Nothing is done, unless it is that of this family, which is replaced or goes.
    RefusedBut(Option<u32>),
    /// They are carried along as if they were damaged: no member's copy is written over, or somebody gives headers back because they
    /// are lost.
    Carried,
}

impl Unread {
    fn refuses(self, family: u32) -> bool {
        matches!(self, Unread::RefusedBut(but) if but != Some(family))
    }
}

/// The keys zone of a member, as it is or will be.
fn zone<D: Device>(m: &Member<D>) -> Keys {
    let label = m.label.borrow();
    let planned = keys_extents(label.device_size);
    label.layout().keys.unwrap_or(Keys { sides: [planned[0].offset, planned[1].offset], len: KEYS_LEN })
}

/// Where a member has the header of a family.
fn place_of<D: Device>(m: &Member<D>, row: &FamilyRow) -> u64 {
    let side = m.label.borrow().keys_side;
    zone(m).sides[side as usize] + u64::from(row.at) * BLOCK as u64
}

/// Notes in a row how much of a header is stored, and gives that part.
pub(crate) fn fit(row: &mut FamilyRow, group: &[u8; 16], header: &[u8]) -> Result<Vec<u8>, StructureError> {
    let end = header.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1).next_multiple_of(BLOCK);
    if end == 0 || header.len() % BLOCK != 0 || header.len() > MAX_HEADER as usize * BLOCK {
        return Err(StructureError::BadHeader);
    }
    let stored = &header[..end];
    row.header = (header.len() / BLOCK) as u32;
    row.stored = (end / BLOCK) as u32;
    row.crc = FamilyRow::checksum(group, &row.uuid, stored);
    Ok(stored.to_vec())
}

/// Gives the headers places one after another.
pub(crate) fn arrange(families: &mut [WithHeader]) -> Result<(), StructureError> {
    let mut at = 0;
    for (row, _) in families {
        row.at = at;
        at = at.saturating_add(row.stored);
    }
    let (need, have) = (u64::from(at) * BLOCK as u64, KEYS_LEN);
    match need > have {
        true => Err(StructureError::KeysFull { need, have }),
        false => Ok(()),
    }
}

/// Writes a side whole: what a change that was cut off has left there goes, too.
async fn write_side<D: Device>(m: &Member<D>, side: u8, families: &[WithHeader]) -> Result<(), DeviceError> {
    let mut content = BufMut::zeroed(KEYS_LEN as usize);
    for (row, stored) in families {
        content[row.at as usize * BLOCK..][..stored.len()].copy_from_slice(stored);
    }
    m.write(zone(m).sides[side as usize], content.freeze(), WriteFor::Engine).await
}

impl<E: Env> Core<E> {
    /// Writes headers to a side of every member, durably. Until labels name that side they count for nothing: a write that fails has
    /// changed nothing that counted, and the group goes on.
    pub(crate) async fn write_headers(&self, side: u8, families: &[WithHeader]) -> Result<(), Error> {
        for m in self.members.iter() {
            let write = async {
                let _meta = m.meta.lock().await;
                self.health.check()?;
                let written = write_side(m, side, families).await;
                if !mutant::on(Mutant::HeadersNotSynced) {
                    self.settle_headers(m).await?;
                }
                match written {
                    Err(source) if !self.can_do_without(m) => Err(self.keys_failed(m, source)),
                    written => written.or_else(|e| self.failed(m, "the keys", e)),
                }
            };
            self.unless_silent_over_keys(m, write).await?;
        }
        Ok(())
    }

    /// Does `work` with what a member has of the headers. One that the group can do without, and that stands still over it, is let go.
    async fn unless_silent_over_keys(
        &self,
        m: &Member<E::Device>,
        work: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        match mutant::on(Mutant::KeysAskedForEver) {
            true => work.await,
            false => self.unless_silent(m, "the keys", work).await,
        }
    }

    /// What comes of a write to the keys zone that failed: whoever wanted it is told, and nobody else needs it.
    fn keys_failed(&self, m: &Member<E::Device>, source: DeviceError) -> Error {
        match mutant::on(Mutant::HeaderFailureLatches) {
            true => self.latch(m.index, "the keys", source),
            false => Error::Device { member: m.index, source },
        }
    }

    /// Syncs a member to whose keys zone was written, well or not: a write that failed could still come, over what the next change
    /// writes there (C2.2). One that is lost gets nothing any more before it is opened anew.
    async fn settle_headers(&self, m: &Member<E::Device>) -> Result<(), Error> {
        self.check_in_reach(m)?;
        m.sync_all().await.or_else(|e| self.failed_in_its_time(m, "the keys", e))
    }

    /// Writes the headers that count to a new member.
    pub(crate) async fn copy_headers_to(&self, m: &Member<E::Device>) -> Result<(), StructureError> {
        let families = self.headers_for_new().await?;
        self.write_headers_to_new(m, &families).await.map_err(StructureError::NewDevice)
    }

    /// The headers that count, for a new member.
    pub(crate) async fn headers_for_new(&self) -> Result<Vec<WithHeader>, StructureError> {
        self.read_headers(Unread::Carried).await
    }

    /// Writes them to it.
    pub(crate) async fn write_headers_to_new(
        &self,
        m: &Member<E::Device>,
        families: &[WithHeader],
    ) -> Result<(), DeviceError> {
        if !self.families.have_been() {
            return Ok(());
        }
        let side = m.label.borrow().keys_side;
        write_side(m, side, families).await?;
        write_side(m, 1 - side, &[]).await
    }

    /// Writes those headers to a member anew that are damaged there and whole on another one; durable with the next sync. Nobody else
    /// uses the member.
    pub(crate) async fn mend_headers_of(&self, m: &Member<E::Device>) -> Result<(), DeviceError> {
        let damaged = self.damaged_on(m).await;
        let whole = self.whole_beside(m, damaged).await;
        self.write_over(m, &whole).await
    }

    /// The same beside those who use the group, durably. A write that fails has changed nothing that counted, and the group goes on. A
    /// member that the group can do without, and that stands still over it, is let go.
    pub(crate) async fn mend_headers(&self, m: &Member<E::Device>) -> Result<(), Error> {
        self.health.check()?;
        let mut damaged = Vec::new();
        let look = async {
            // A change of one of them has all of them in another place.
            let _meta = m.meta.lock().await;
            damaged = self.damaged_on(m).await;
            Ok(())
        };
        self.unless_silent_over_keys(m, look).await?;
        // Another one may stand still over it: nobody is to wait for this one meanwhile, nor to take that for its silence.
        let whole = self.whole_beside(m, damaged).await;
        if whole.is_empty() {
            return Ok(());
        }
        let write = async {
            let _meta = m.meta.lock().await;
            self.health.check()?;
            if m.is_gone() {
                return Ok(());
            }
            match self.write_over(m, &whole).await {
                Ok(()) => self.settle_headers(m).await,
                Err(source) => Err(Error::Device { member: m.index, source }),
            }
        };
        self.unless_silent_over_keys(m, write).await
    }

    /// Families whose headers are not whole on a member.
    async fn damaged_on(&self, m: &Member<E::Device>) -> Vec<FamilyRow> {
        let rows = m.label.borrow().families.clone();
        let mut damaged = Vec::new();
        for row in rows {
            if self.header_on(m, &row).await.is_none() {
                damaged.push(row);
            }
        }
        damaged
    }

    /// Those of these headers that a member other than this one has whole. What is left of one that nobody has may still be of use to
    /// somebody.
    async fn whole_beside(&self, m: &Member<E::Device>, rows: Vec<FamilyRow>) -> Vec<WithHeader> {
        let mut whole = Vec::new();
        for row in rows {
            let stored = self.whole_header(&row, Some(m)).await;
            whole.extend(stored.map(|stored| (row, stored)));
        }
        whole
    }

    /// Writes headers over those of a member that are damaged. One that was changed meanwhile has been written anew.
    async fn write_over(&self, m: &Member<E::Device>, headers: &[WithHeader]) -> Result<(), DeviceError> {
        for (row, stored) in headers {
            if m.label.borrow().families.contains(row) {
                m.write(place_of(m, row), BufMut::copy_of(stored).freeze(), WriteFor::Engine).await?;
            }
        }
        Ok(())
    }

    /// All families with their headers, for a change of some of them. One that no member has whole is carried along as it
    /// is: its checksum says so for ever, and the others do not suffer. But one that a member could not read may be whole there, and
    /// after a change what is written now is all that is left: `unread` says what becomes of it. The caller holds the lock of
    /// changes.
    pub(crate) async fn read_headers(&self, unread: Unread) -> Result<Vec<WithHeader>, StructureError> {
        let rows = self.first_member().label.borrow().families.clone();
        let mut out = Vec::new();
        for row in rows {
            let stored = match self.read_header(&row).await {
                Ok(stored) => stored,
                Err(_) => match self.damaged_header(&row).await {
                    Err(why) if unread.refuses(row.id) && !mutant::on(Mutant::HeaderUnreadLost) => return Err(why),
                    Err(_) => vec![0; row.stored_len()],
                    Ok(stored) => stored,
                },
            };
            out.push((row, stored));
        }
        Ok(out)
    }

    /// The header of one family, from whichever member has it whole.
    pub(crate) async fn read_header(&self, row: &FamilyRow) -> Result<Vec<u8>, StructureError> {
        let whole = self.whole_header(row, None).await;
        whole.ok_or_else(|| StructureError::HeaderLost(row.name.clone()))
    }

    /// The same, but not from this member.
    async fn whole_header(&self, row: &FamilyRow, but: Option<&Member<E::Device>>) -> Option<Vec<u8>> {
        for m in self.asked_for_headers() {
            if but.is_some_and(|but| but.index == m.index) {
                continue;
            }
            if let Some(stored) = self.unless_unanswered(m, self.header_on(m, row)).await.flatten() {
                return Some(stored);
            }
        }
        None
    }

    /// Members in the order in which they are asked for headers. Those that the group can do without are the last: they may stand still.
    fn asked_for_headers(&self) -> Vec<&Member<E::Device>> {
        let mut members: Vec<_> = self.members.iter().filter(|m| m.is_present()).collect();
        if !mutant::on(Mutant::HeadersReadForEver) {
            members.sort_by_key(|m| self.can_do_without(m));
        }
        members
    }

    /// What is left of a header of which no member that can be read has a whole copy; an error if a member cannot be read.
    async fn damaged_header(&self, row: &FamilyRow) -> Result<Vec<u8>, StructureError> {
        let mut left = None;
        for m in self.asked_for_headers() {
            match self.unless_unanswered(m, self.stored_on(m, row)).await.unwrap_or(Err(SILENT)) {
                // It could not be read a moment ago.
                Ok(read) if self.is_whole(row, &read) => return Ok(read.to_vec()),
                Ok(read) => left = left.or(Some(read)),
                // Whatever it has, this change does not replace it.
                Err(_) if m.is_gone() => {}
                Err(source) => {
                    return Err(StructureError::HeaderUnread { name: row.name.clone(), member: m.index, source });
                }
            }
        }
        Ok(left.map_or(vec![0; row.stored_len()], |read| read.to_vec()))
    }

    /// What a member has in the place of a header. What cannot be read is asked for twice.
    async fn stored_on(&self, m: &Member<E::Device>, row: &FamilyRow) -> Result<BufMut, DeviceError> {
        let place = place_of(m, row);
        match m.read(place, BufMut::new(row.stored_len())).await {
            Ok(read) => Ok(read),
            Err(_) => m.read(place, BufMut::new(row.stored_len())).await,
        }
    }

    /// The header of a family on one member, if it is whole there.
    pub(crate) async fn header_on(&self, m: &Member<E::Device>, row: &FamilyRow) -> Option<Vec<u8>> {
        let read = self.stored_on(m, row).await.ok()?;
        self.is_whole(row, &read).then(|| read.to_vec())
    }

    /// Whether a member other than this one has a header whole.
    pub(crate) async fn has_header_beside(&self, m: &Member<E::Device>, row: &FamilyRow) -> bool {
        self.whole_header(row, Some(m)).await.is_some()
    }

    fn is_whole(&self, row: &FamilyRow, stored: &[u8]) -> bool {
        FamilyRow::checksum(&self.uuid, &row.uuid, stored) == row.crc || mutant::on(Mutant::HeaderNotChecked)
    }

    /// Overwrites the side that no label names (invariant 5). The caller holds the lock of changes. Where that cannot be written, it is
    /// said, and the group goes on: nothing needs that side, and each later start would fail at the same sector.
    pub(crate) async fn clear_old_headers(&self) -> Result<(), Error> {
        if mutant::on(Mutant::OldHeadersLeft) {
            return Ok(());
        }
        for m in self.members.iter() {
            let clear = async {
                let _meta = m.meta.lock().await;
                self.health.check()?;
                match self.clear_old_headers_of(m).await {
                    Err(Error::Device { source, .. }) => {
                        self.note_old_header(m, source);
                        Ok(())
                    }
                    cleared => cleared,
                }
            };
            self.unless_silent_over_keys(m, clear).await?;
        }
        Ok(())
    }

    /// [`Error::Device`]: something is left, of which it is not known that it is no header.
    async fn clear_old_headers_of(&self, m: &Member<E::Device>) -> Result<(), Error> {
        let old = 1 - m.label.borrow().keys_side;
        let place = zone(m).sides[old as usize];
        let found = m.read(place, BufMut::new(KEYS_LEN as usize)).await;
        if found.is_ok_and(|found| found.iter().all(|b| *b == 0)) {
            return Ok(());
        }
        let mut written = m.write(place, BufMut::zeroed(KEYS_LEN as usize).freeze(), WriteFor::Engine).await;
        if let Err(e) = written {
            if self.can_do_without(m) {
                return self.failed(m, "the keys", e);
            }
            if mutant::on(Mutant::HeaderFailureLatches) {
                return Err(self.keys_failed(m, e));
            }
            written = self.clear_blocks(m, place).await;
        }
        self.settle_headers(m).await?;
        written.map_err(|e| self.keys_failed(m, e))
    }

    /// Overwrites a side block by block, so that all goes that can be overwritten. Gives the last error of a block that holds something, or
    /// cannot be read.
    async fn clear_blocks(&self, m: &Member<E::Device>, side: u64) -> Result<(), DeviceError> {
        let is_clear = async |place| m.read(place, BufMut::new(BLOCK)).await.is_ok_and(|b| b.iter().all(|b| *b == 0));
        let mut cleared = Ok(());
        for place in (side..side + KEYS_LEN).step_by(BLOCK) {
            // Each may take a disk that fails half a minute; the next start goes on.
            if m.is_lost() || self.stopping.get() {
                return Err(DeviceError::Disconnected);
            }
            if is_clear(place).await {
                continue;
            }
            let written = m.write(place, BufMut::zeroed(BLOCK).freeze(), WriteFor::Engine).await;
            // It may have been carried out all the same.
            if written.is_err() && !is_clear(place).await {
                cleared = written;
            }
        }
        cleared
    }

    fn note_old_header(&self, m: &Member<E::Device>, e: DeviceError) {
        let what = format!(
            "member {}: a header that was replaced could not be overwritten ({e}): whoever has this device and a passphrase that was \
             taken away may still open its family. Replace it, and destroy it then",
            m.index
        );
        let mut findings = self.findings.borrow_mut();
        if !findings.iter().any(|f| f.what == what) {
            findings.push(Finding::serious(what));
        }
    }

    /// After a start: what was replaced may still be there, and what was damaged meanwhile.
    pub(crate) async fn put_headers_in_order_after_start(&self) {
        let _change = self.volumes.change.lock().await;
        if self.stopping.get() {
            return;
        }
        // If it fails the group has latched and says why; the next start does it.
        if self.clear_old_headers().await.is_err() || mutant::on(Mutant::HeadersNotMended) {
            return;
        }
        for m in self.members.iter().filter(|m| m.is_present()) {
            // What cannot be written stays damaged, as a check says.
            let _later = self.mend_headers(m).await;
        }
    }
}
