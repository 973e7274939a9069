//! What a slow member's own journal must still be told (C1.6). It is told in the mover's time, and before a slot of it
//! is used again; until then its away bits say that it may be behind.

use std::collections::BTreeMap;

use bimetal_format::journal::Record;

use super::pipeline::set_record;
use crate::env::{Device, DeviceError, Env};
use crate::error::Error;
use crate::group::core::Core;
use crate::member::checkpoint::How;
use crate::member::{add, Member};
use crate::mutant::{self, Mutant};
use crate::units::{ChunkId, MemberIndex, Tier};

/// Drops the notes that a journal write or checkpoint has settled, but none made since.
pub(crate) fn forget<D: Device>(m: &Member<D>, settled: &BTreeMap<ChunkId, u64>) {
    m.lag.borrow_mut().retain(|c, note| settled.get(c) != Some(note));
}

impl<E: Env> Core<E> {
    /// Notes that a committed change of `chunk` touches `member`.
    pub(crate) fn note_lag_on(&self, chunk: ChunkId, member: MemberIndex) {
        let m = &self.members[member as usize];
        if m.tier == Tier::Slow {
            add(&self.lag_notes, 1);
            m.lag.borrow_mut().insert(chunk, self.lag_notes.get());
        }
    }

    /// Writes what member `m` lags behind now into its journal, durably. What is noted meanwhile waits for the next
    /// time: beside a load that changes entries all the time there would be no end.
    pub(crate) async fn settle_lag(&self, m: &Member<E::Device>) -> Result<(), Error> {
        self.settle_lag_or(m, |what, e| self.failed(m, what, e)).await
    }

    /// The same, with what comes of a write or sync that fails.
    pub(super) async fn settle_lag_or(
        &self,
        m: &Member<E::Device>,
        failed: impl Fn(&str, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _meta = m.meta.lock().await;
        if m.is_gone() {
            return Ok(());
        }
        let noted = m.lag.borrow().clone();
        let chunks: Vec<ChunkId> = noted.keys().copied().collect();
        let at_once = (m.layout.journal_blocks / 4) as usize * m.journal_records;
        for part in chunks.chunks(at_once.max(1)) {
            // Room first, records then: a checkpoint in between would know newer entries than the records behind it.
            self.make_room_on_slow(m, part.len(), &failed).await?;
            let records = self.durable_records(part.iter().copied());
            if !mutant::on(Mutant::LagForgotten) {
                self.append_to_slow(m, &records, &failed).await?;
            }
        }
        forget(m, &noted);
        Ok(())
    }

    /// Records of the newest durable entries of `chunks`.
    fn durable_records(&self, chunks: impl Iterator<Item = ChunkId>) -> Vec<Record> {
        let map = self.map.borrow();
        chunks.filter_map(|c| Some(set_record(c, self.commit.durable_entry(c, map.get(c)?)))).collect()
    }

    /// Makes room for so many records in a slow member's journal. The caller holds its `meta`.
    async fn make_room_on_slow(
        &self,
        m: &Member<E::Device>,
        records: usize,
        failed: &impl Fn(&str, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match m.journal_has_room(m.blocks_for(records)) {
            true => Ok(()),
            false => self.checkpoint_or(m, How::ALONE, failed).await,
        }
    }

    /// Appends records to a slow member's journal, durably; what becomes of a failure `failed` says. The caller holds its `meta`.
    pub(crate) async fn append_to_slow(
        &self,
        m: &Member<E::Device>,
        records: &[Record],
        failed: &impl Fn(&str, DeviceError) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.make_room_on_slow(m, records.len(), failed).await?;
        let generation = self.commit.durable_generation.get();
        let appended = m.append(records, generation, self.epoch()).await;
        appended.or_else(|e| failed("a journal write", e))?;
        m.sync_all().await.or_else(|e| failed("a journal sync", e))?;
        let mut j = m.journal.borrow_mut();
        j.durable = j.head;
        Ok(())
    }
}
