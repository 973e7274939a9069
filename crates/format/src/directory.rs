//! The page directory of a member: which side of each page is current, and what generation it must have (C5.2).
//!
//! Two levels of 4 KiB blocks, both in two places: directory blocks (504 pages each) and root blocks (252 directory
//! blocks each). The label names the side and generation of the root; the root those of each directory block; the
//! directory those of each page. One label flip makes all of a checkpoint current.

use zerocopy::little_endian::{U16, U64};

use crate::block::{self, BlockError, Kind, Salt, GROWING_LIMIT, HEAD};
use crate::BLOCK;

/// Pages that one directory block describes.
pub const PAGES_PER_DIRECTORY: usize = (BLOCK - HEAD) / 8;
/// Directory blocks that one root block describes.
pub const DIRECTORIES_PER_ROOT: usize = (BLOCK - HEAD) / 16;

/// Expectation for one page or block: 0 was never written; else the generation and the side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected(u64);

impl Expected {
    /// `generation` (above zero, below 2^63) on side 0 or 1.
    pub fn new(generation: u64, side: u8) -> Expected {
        debug_assert!(generation > 0 && generation < 1 << 63 && side < 2);
        Expected(generation << 1 | u64::from(side))
    }

    /// Reads what was written as [`Expected`]: zero, or a generation above zero.
    fn from_bytes(b: &[u8]) -> Result<Expected, BlockError> {
        let e = Expected(u64::from_le_bytes(b.try_into().expect("8 bytes")));
        match e.0 == 0 || (1..GROWING_LIMIT).contains(&e.generation()) {
            true => Ok(e),
            false => Err(BlockError::Field("expected generation")),
        }
    }

    /// Generation that the current copy has; 0 if there is none.
    pub fn generation(self) -> u64 {
        self.0 >> 1
    }

    /// Side of the current copy.
    pub fn side(self) -> u8 {
        (self.0 & 1) as u8
    }

    /// Whether a copy was ever written.
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// Writes directory block number `index` into `out`.
pub fn encode_directory(out: &mut [u8], index: u64, generation: u64, pages: &[Expected], salt: &Salt) {
    assert!(pages.len() <= PAGES_PER_DIRECTORY);
    out.fill(0);
    for (b, p) in out[HEAD..].chunks_exact_mut(8).zip(pages) {
        b.copy_from_slice(&p.0.to_le_bytes());
    }
    let mut h = block::blank_head();
    h.count = U16::new(pages.len() as u16);
    h.generation = U64::new(generation);
    h.sequence = U64::new(generation);
    h.extra = U64::new(index);
    block::seal(out, Kind::Directory, h, salt);
}

/// Checks directory block `index`, which must have `generation`.
pub fn decode_directory(bytes: &[u8], index: u64, generation: u64, salt: &Salt) -> Result<Vec<Expected>, BlockError> {
    let h = block::open(bytes, Kind::Directory, salt)?;
    let count = h.count.get() as usize;
    if count > PAGES_PER_DIRECTORY {
        return Err(BlockError::Field("count"));
    }
    if h.generation.get() != generation || h.extra.get() != index {
        return Err(BlockError::Field("generation"));
    }
    bytes[HEAD..HEAD + count * 8].chunks_exact(8).map(Expected::from_bytes).collect()
}

/// Writes root block number `index` into `out`.
pub fn encode_root(out: &mut [u8], index: u64, generation: u64, directories: &[Expected], salt: &Salt) {
    assert!(directories.len() <= DIRECTORIES_PER_ROOT);
    out.fill(0);
    for (b, d) in out[HEAD..].chunks_exact_mut(16).zip(directories) {
        b[..8].copy_from_slice(&d.0.to_le_bytes());
    }
    let mut h = block::blank_head();
    h.count = U16::new(directories.len() as u16);
    h.generation = U64::new(generation);
    h.sequence = U64::new(generation);
    h.extra = U64::new(index);
    block::seal(out, Kind::Root, h, salt);
}

/// Checks root block `index`, which must have `generation`.
pub fn decode_root(bytes: &[u8], index: u64, generation: u64, salt: &Salt) -> Result<Vec<Expected>, BlockError> {
    let h = block::open(bytes, Kind::Root, salt)?;
    let count = h.count.get() as usize;
    if count > DIRECTORIES_PER_ROOT {
        return Err(BlockError::Field("count"));
    }
    if h.generation.get() != generation || h.extra.get() != index {
        return Err(BlockError::Field("generation"));
    }
    bytes[HEAD..HEAD + count * 16].chunks_exact(16).map(|b| Expected::from_bytes(&b[..8])).collect()
}
