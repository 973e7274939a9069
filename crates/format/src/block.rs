//! What all 4 KiB metadata blocks share: a 64-byte head and a checksum salted with kind, group, member and place, so
//! that a valid block at the wrong place, of another member or of another group is never taken for the right one.

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::document::{fields, Field};
use crate::{BLOCK, VERSION};

/// Bytes of the common head.
pub const HEAD: usize = 64;

/// Sequence numbers and generations stay below this, so that adding to one never overflows.
pub const GROWING_LIMIT: u64 = 1 << 62;

/// The kinds of metadata blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A block of the journal ring.
    Journal,
    /// A page of the map.
    Page,
    /// A block of the page directory.
    Directory,
    /// A block of the directory's root.
    Root,
    /// A block of the `away` bitmap.
    Away,
}

impl Kind {
    /// The first four bytes of a block of this kind.
    pub fn magic(self) -> [u8; 4] {
        match self {
            Kind::Journal => *b"BMjr",
            Kind::Page => *b"BMmp",
            Kind::Directory => *b"BMdr",
            Kind::Root => *b"BMrt",
            Kind::Away => *b"BMaw",
        }
    }
}

/// Where a block belongs; part of its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt {
    /// UUID of the group.
    pub group: [u8; 16],
    /// Index of the member.
    pub member: u8,
    /// Byte offset of the block on the member.
    pub place: u64,
}

/// The head of a metadata block. What `sequence`, `link` and `extra` mean is the kind's own matter.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Head {
    /// Names the kind.
    pub magic: [u8; 4],
    /// CRC-32C over salt and block, with this field zero.
    pub crc: U32,
    /// Format version.
    pub version: U16,
    /// Records, entries or bits in use.
    pub count: U16,
    /// Page: octaves of the policy's clock when it was written. Others: zero.
    pub flags: U32,
    /// First half of the group's UUID, for people who look at a dump.
    pub group: [u8; 8],
    /// Journal: number of the block in the ring's history. Others: serial number of the write.
    pub sequence: U64,
    /// Newest commit whose changes the block holds.
    pub generation: U64,
    /// Epoch in which it was written.
    pub epoch: U64,
    /// Journal: hash of the block before. Page: volume id. Others: zero.
    pub link: U64,
    /// Journal: sequence of the first block of the same commit. Others: index of the block in its zone.
    pub extra: U64,
}

const _: () = assert!(std::mem::size_of::<Head>() == HEAD);

/// Why a block was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Not 4096 bytes.
    #[error("block of {0} bytes instead of 4096")]
    Size(usize),
    /// Another kind of block, or none.
    #[error("no block of the expected kind here")]
    Magic,
    /// The content is damaged, or belongs elsewhere.
    #[error("checksum does not match")]
    Checksum,
    /// Written by a newer format.
    #[error("format version {0} is not known")]
    Version(u16),
    /// A field has an impossible value though the checksum is right.
    #[error("impossible value in field {0}")]
    Field(&'static str),
}

fn checksum(block: &[u8], kind: Kind, salt: &Salt) -> u32 {
    let mut d = Digest::new(CrcAlgorithm::Crc32Iscsi);
    d.update(&kind.magic());
    d.update(&salt.group);
    d.update(&[salt.member]);
    d.update(&salt.place.to_le_bytes());
    d.update(&block[..4]);
    d.update(&[0; 4]);
    d.update(&block[8..]);
    d.finalize() as u32
}

/// Writes `head` and the checksum into `block`, whose body is already in place.
pub(crate) fn seal(block: &mut [u8], kind: Kind, mut head: Head, salt: &Salt) {
    assert_eq!(block.len(), BLOCK);
    head.magic = kind.magic();
    head.version = U16::new(VERSION);
    head.group.copy_from_slice(&salt.group[..8]);
    head.crc = U32::ZERO;
    block[..HEAD].copy_from_slice(head.as_bytes());
    let crc = checksum(block, kind, salt);
    block[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Checks `block` and gives its head.
pub(crate) fn open(block: &[u8], kind: Kind, salt: &Salt) -> Result<Head, BlockError> {
    if block.len() != BLOCK {
        return Err(BlockError::Size(block.len()));
    }
    let (head, _) = Head::read_from_prefix(block).map_err(|_| BlockError::Size(block.len()))?;
    if head.magic != kind.magic() {
        return Err(BlockError::Magic);
    }
    if head.crc.get() != checksum(block, kind, salt) {
        return Err(BlockError::Checksum);
    }
    if head.version.get() != VERSION {
        return Err(BlockError::Version(head.version.get()));
    }
    if head.sequence.get() >= GROWING_LIMIT || head.generation.get() >= GROWING_LIMIT {
        return Err(BlockError::Field("sequence or generation"));
    }
    Ok(head)
}

/// The head of a block whose checksum need not match, if it looks like one of this kind and group.
pub(crate) fn legible(block: &[u8], kind: Kind, salt: &Salt) -> Option<Head> {
    let (head, _) = Head::read_from_prefix(block).ok()?;
    let growing = [head.sequence, head.generation, head.extra].iter().all(|n| n.get() < GROWING_LIMIT);
    let is_one = head.magic == kind.magic() && head.group[..] == salt.group[..8] && head.version.get() == VERSION;
    (is_one && growing).then_some(head)
}

/// A head with all fields zero.
pub(crate) fn blank_head() -> Head {
    use zerocopy::FromZeros;
    Head::new_zeroed()
}

/// The fields of the common head, for the test that holds `FORMAT.md` against the code.
pub(crate) fn head_fields() -> Vec<Field> {
    fields!(Head { magic, crc, version, count, flags, group, sequence, generation, epoch, link, extra })
}

/// 64-bit hash of a whole block (CRC-64/NVME), for the chain of journal blocks.
pub fn hash(block: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, block)
}

/// CRC-32C of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}
