//! A block of the journal ring: up to 168 records of one commit, chained to the block before by its hash (C6).

use zerocopy::little_endian::{U16, U64};

use crate::block::{self, BlockError, Kind, Salt, HEAD};
use crate::entry::{Entry, ENTRY_SIZE};
use crate::page::ENTRIES_PER_PAGE;
use crate::BLOCK;

/// Size of a record in bytes.
pub const RECORD_SIZE: usize = 24;
/// Records in a block.
pub const RECORDS_PER_BLOCK: usize = (BLOCK - HEAD) / RECORD_SIZE;
const _: () = assert!(RECORDS_PER_BLOCK == 168);

/// What a record does to the entry it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The entry is now so (an after-image).
    Set,
    /// On a slow member: the chunk's data is complete in the slot of the given entry, and becomes its home if the fast
    /// members' journals say so (C1.6).
    Prepared,
}

/// One change of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Map page.
    pub page: u32,
    /// Entry within the page.
    pub index: u8,
    /// What the record does.
    pub kind: RecordKind,
    /// Number of the move, for `Prepared`; else zero.
    pub move_id: u16,
    /// The entry after the change.
    pub entry: Entry,
}

/// What a journal block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHead {
    /// Its number in the history of this member's ring; it lies at `sequence % blocks`.
    pub sequence: u64,
    /// The commit it is part of.
    pub generation: u64,
    /// Epoch in which it was written.
    pub epoch: u64,
    /// Hash of block `sequence - 1`.
    pub previous: u64,
    /// Sequence of the first block of the same commit: all before it were synced when this one was written.
    pub commit_start: u64,
}

/// Writes a block into `out` (4096 bytes) and returns its hash, which the next block carries.
pub fn encode(out: &mut [u8], head: &JournalHead, records: &[Record], salt: &Salt) -> u64 {
    assert!(records.len() <= RECORDS_PER_BLOCK);
    out.fill(0);
    for (bytes, r) in out[HEAD..].chunks_exact_mut(RECORD_SIZE).zip(records) {
        bytes[0..4].copy_from_slice(&r.page.to_le_bytes());
        bytes[4] = r.index;
        bytes[5] = match r.kind {
            RecordKind::Set => 1,
            RecordKind::Prepared => 2,
        };
        bytes[6..8].copy_from_slice(&r.move_id.to_le_bytes());
        bytes[8..].copy_from_slice(&r.entry.to_bytes());
    }
    let mut h = block::blank_head();
    h.count = U16::new(records.len() as u16);
    h.sequence = U64::new(head.sequence);
    h.generation = U64::new(head.generation);
    h.epoch = U64::new(head.epoch);
    h.link = U64::new(head.previous);
    h.extra = U64::new(head.commit_start);
    block::seal(out, Kind::Journal, h, salt);
    block::hash(out)
}

fn decode_record(b: &[u8]) -> Result<Record, BlockError> {
    let kind = match b[5] {
        1 => RecordKind::Set,
        2 => RecordKind::Prepared,
        _ => return Err(BlockError::Field("record kind")),
    };
    let entry = Entry::from_bytes(b[8..RECORD_SIZE].try_into().expect("a record ends with an entry"));
    if b[4] as usize >= ENTRIES_PER_PAGE {
        return Err(BlockError::Field("record index"));
    }
    if !entry.is_sound() {
        return Err(BlockError::Field("record flags"));
    }
    Ok(Record {
        page: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
        index: b[4],
        kind,
        move_id: u16::from_le_bytes([b[6], b[7]]),
        entry,
    })
}

fn head_of(h: &block::Head) -> JournalHead {
    JournalHead {
        sequence: h.sequence.get(),
        generation: h.generation.get(),
        epoch: h.epoch.get(),
        previous: h.link.get(),
        commit_start: h.extra.get(),
    }
}

/// Checks a block and gives its head, its records, and its hash.
pub fn decode(bytes: &[u8], salt: &Salt) -> Result<(JournalHead, Vec<Record>, u64), BlockError> {
    let h = block::open(bytes, Kind::Journal, salt)?;
    let count = h.count.get() as usize;
    if count > RECORDS_PER_BLOCK {
        return Err(BlockError::Field("count"));
    }
    let head = head_of(&h);
    if head.commit_start > head.sequence {
        return Err(BlockError::Field("commit start"));
    }
    let body = &bytes[HEAD..HEAD + count * RECORD_SIZE];
    let records = body.chunks_exact(RECORD_SIZE).map(decode_record).collect::<Result<Vec<_>, _>>()?;
    Ok((head, records, block::hash(bytes)))
}

/// What the head of a block says that [`decode`] refuses, if it has the look of one of this group: its body alone may be damaged.
/// Nothing vouches for it.
pub fn legible_head(bytes: &[u8], salt: &Salt) -> Option<JournalHead> {
    let h = block::legible(bytes, Kind::Journal, salt)?;
    let head = head_of(&h);
    (head.commit_start <= head.sequence).then_some(head)
}

const _: () = assert!(RECORD_SIZE == 8 + ENTRY_SIZE);
