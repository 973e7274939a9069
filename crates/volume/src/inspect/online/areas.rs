//! Labels, directories, journals, away bits and headers.

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::{away_blocks, label_b, root_blocks, LABEL_A};
use bimetal_format::{directory, journal};

use super::super::check::{damaged_header, lost_header};
use super::{Check, Damaged, TRIES};
use crate::buf::BufMut;
use crate::env::Env;
use crate::error::Error;
use crate::member::Member;
use crate::mutant::{self, Mutant};
use crate::units::{Tier, BLOCK};

/// Journal blocks read at once.
const BLOCKS: u64 = 64;

impl<E: Env> Check<'_, E> {
    pub(super) async fn labels(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        let begun = self.core.env.now();
        let places = [LABEL_A, label_b(m.label.borrow().device_size)];
        for (which, place) in places.into_iter().enumerate() {
            let found = {
                // A flip is not to write it meanwhile.
                let _meta = m.meta.lock().await;
                let found = self.label(m, place).await;
                if found.is_err() && !mutant::on(Mutant::MendOverGoodLabel) {
                    // The next flip is to write it first: should that be cut off, the other one is whole.
                    m.weaker_label.set(which);
                }
                found
            };
            if let Err(why) = found {
                damaged.rest = true;
                self.note_whole(m, format!("the label at byte {place}: {why}; the other copy is used"));
            }
        }
        self.rest(begun).await
    }

    async fn label(&self, m: &Member<E::Device>, place: u64) -> Result<(), String> {
        let bytes = m.read(place, BufMut::new(LABEL_SIZE)).await.map_err(|e| e.to_string())?;
        let label = Label::decode(&bytes, place).map_err(|e| e.to_string())?;
        // A start that only reads leaves an older copy as it is; and of a flip that failed nobody knows how far it came.
        let known = self.core.writable && !self.core.health.is_latched();
        match label == *m.label.borrow() || !known {
            true => Ok(()),
            false => Err("it is not what was written there last".into()),
        }
    }

    pub(super) async fn directory(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        for _ in 0..TRIES {
            let begun = self.core.env.now();
            let (root, blocks) = (m.directory.borrow().root, m.directory.borrow().blocks.clone());
            let mut wrong = Vec::new();
            for index in 0..root_blocks(m.layout.pages) {
                let place = m.layout.root_block(index, root.side());
                let read = m.read(place, BufMut::new(BLOCK as usize)).await;
                let decoded = |b: &[u8]| directory::decode_root(b, index, root.generation(), &m.salt(place)).is_ok();
                if root.is_some() && !read.is_ok_and(|b| decoded(&b)) {
                    wrong.push((None, format!("block {index} of the root of the page directory is not sound")));
                }
            }
            for (index, e) in blocks.iter().enumerate().filter(|(_, e)| e.is_some()) {
                let place = m.layout.directory_block(index as u64, e.side());
                let read = m.read(place, BufMut::new(BLOCK as usize)).await;
                let salt = m.salt(place);
                let decoded = |b: &[u8]| directory::decode_directory(b, index as u64, e.generation(), &salt).is_ok();
                if !read.is_ok_and(|b| decoded(&b)) {
                    wrong.push((Some(index), format!("block {index} of the page directory is not sound")));
                }
            }
            self.rest(begun).await?;
            let still = m.directory.borrow().root == root && m.directory.borrow().blocks == blocks;
            if still {
                for (block, what) in wrong {
                    damaged.note_directory(&m.directory.borrow(), block);
                    self.note_whole(m, what);
                }
                break;
            }
        }
        Ok(())
    }

    /// From the tail to the newest commit that is durable, along the chain.
    pub(super) async fn journal(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        let end = m.journal.borrow().durable;
        let (mut at, mut hash) = (m.label.borrow().journal_tail, m.label.borrow().journal_tail_hash);
        while at < end.sequence {
            let begun = self.core.env.now();
            let until_wrap = m.layout.journal_blocks - at % m.layout.journal_blocks;
            let count = BLOCKS.min(until_wrap).min(end.sequence - at);
            let place = m.layout.journal_block(at);
            let read = m.read(place, BufMut::new((count * BLOCK) as usize)).await;
            if m.journal.borrow().tail > at {
                // A checkpoint has given it up meanwhile; what comes after it has another beginning.
                return Ok(());
            }
            let Ok(bytes) = read else {
                damaged.rest = true;
                self.note_whole(m, format!("journal blocks {at} to {} cannot be read", at + count - 1));
                return Ok(());
            };
            for (i, block) in bytes.chunks_exact(BLOCK as usize).enumerate() {
                match journal::decode(block, &m.salt(place + i as u64 * BLOCK)) {
                    Ok((head, records, own)) if head.sequence == at && head.previous == hash => {
                        self.report.records += records.len() as u64;
                        (hash, at) = (own, at + 1);
                    }
                    _ => {
                        damaged.rest = true;
                        self.note_whole(m, format!("journal block {at} is not sound"));
                        return Ok(());
                    }
                }
            }
            self.rest(begun).await?;
        }
        Ok(())
    }

    /// Both copies of each block: a start takes all of a block for set unless both are sound.
    pub(super) async fn away(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        let blocks = if m.tier == Tier::Slow { away_blocks(m.layout.pages) } else { 0 };
        for index in 0..blocks {
            let begun = self.core.env.now();
            let (unsound, newest) = {
                let _away = m.away_meta.lock().await;
                // A start that only reads takes for set what it cannot read; and how far a write came that failed nobody knows.
                let known = self.core.writable && !self.core.health.is_latched();
                (m.unsound_sides(index, known).await, m.away.borrow().newest_of(index).1)
            };
            for side in unsound {
                damaged.away.insert(index);
                let which = if side == newest { "newest" } else { "older" };
                self.note_whole(m, format!("the {which} copy of block {index} of the away bitmap is not sound"));
            }
            self.rest(begun).await?;
        }
        Ok(())
    }

    pub(super) async fn headers(&mut self, m: &Member<E::Device>, damaged: &mut Damaged) -> Result<(), Error> {
        let begun = self.core.env.now();
        let rows = m.label.borrow().families.clone();
        for row in rows {
            let sound = {
                // A change of one of them has all of them in another place.
                let _meta = m.meta.lock().await;
                self.core.header_on(m, &row).await.is_some()
            };
            if !sound && m.label.borrow().families.contains(&row) {
                match self.core.read_header(&row).await {
                    Ok(_) => {
                        damaged.headers = true;
                        self.note_whole(m, damaged_header(&row.name));
                    }
                    Err(_) => self.note(m.index, true, lost_header(&row.name)),
                }
            }
        }
        self.rest(begun).await
    }
}
