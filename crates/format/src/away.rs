//! The `away` bitmap of a member (C8): a set bit says that this member may not know the newest state of a region, so
//! that, alone, it must not call an unmapped chunk there "never written". A region is one map page (31.5 MiB).

use zerocopy::little_endian::{U16, U64};

use crate::block::{self, BlockError, Kind, Salt, HEAD};
use crate::BLOCK;

/// Regions that one block covers.
pub const REGIONS_PER_BLOCK: usize = (BLOCK - HEAD) * 8;

/// Writes block `index` with `bits` (64 regions each) into `out`; `sequence` grows with each write of the block.
pub fn encode(out: &mut [u8], index: u64, sequence: u64, bits: &[u64], salt: &Salt) {
    assert!(bits.len() * 64 <= REGIONS_PER_BLOCK);
    out.fill(0);
    for (b, w) in out[HEAD..].chunks_exact_mut(8).zip(bits) {
        b.copy_from_slice(&w.to_le_bytes());
    }
    let mut h = block::blank_head();
    h.count = U16::new(bits.len() as u16);
    h.sequence = U64::new(sequence);
    h.extra = U64::new(index);
    block::seal(out, Kind::Away, h, salt);
}

/// Checks block `index` and gives its sequence and bits.
pub fn decode(bytes: &[u8], index: u64, salt: &Salt) -> Result<(u64, Vec<u64>), BlockError> {
    let h = block::open(bytes, Kind::Away, salt)?;
    let count = h.count.get() as usize;
    if count * 64 > REGIONS_PER_BLOCK {
        return Err(BlockError::Field("count"));
    }
    if h.extra.get() != index {
        return Err(BlockError::Field("index"));
    }
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("chunks of 8"));
    Ok((h.sequence.get(), bytes[HEAD..HEAD + count * 8].chunks_exact(8).map(word).collect()))
}
