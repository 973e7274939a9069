//! A page of the map: 252 entries. Each page has two places (sides A and B) on every member.

use zerocopy::little_endian::{U16, U32, U64};

use crate::block::{self, BlockError, Kind, Salt, HEAD};
use crate::entry::{Entry, ENTRY_SIZE};
use crate::BLOCK;

/// Entries in a page.
pub const ENTRIES_PER_PAGE: usize = (BLOCK - HEAD) / ENTRY_SIZE;
const _: () = assert!(ENTRIES_PER_PAGE == 252);

/// What a page says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHead {
    /// Number of the page in the map zone.
    pub page: u32,
    /// Volume that it belongs to.
    pub volume: u32,
    /// It holds exactly the changes of commits up to this one.
    pub generation: u64,
    /// Epoch in which it was written.
    pub epoch: u64,
    /// Octaves of the policy's clock when it was written, to which the heat of its entries is relative; 0: not known.
    pub clock: u32,
}

/// Writes a page into `out` (4096 bytes).
pub fn encode(out: &mut [u8], head: &PageHead, entries: &[Entry; ENTRIES_PER_PAGE], salt: &Salt) {
    for (bytes, e) in out[HEAD..].chunks_exact_mut(ENTRY_SIZE).zip(entries) {
        bytes.copy_from_slice(&e.to_bytes());
    }
    let mut h = block::blank_head();
    h.count = U16::new(ENTRIES_PER_PAGE as u16);
    h.generation = U64::new(head.generation);
    h.sequence = U64::new(head.generation);
    h.epoch = U64::new(head.epoch);
    h.flags = U32::new(head.clock);
    h.link = U64::new(u64::from(head.volume));
    h.extra = U64::new(u64::from(head.page));
    block::seal(out, Kind::Page, h, salt);
}

/// Checks a page and gives its head and entries.
pub fn decode(bytes: &[u8], salt: &Salt) -> Result<(PageHead, Box<[Entry; ENTRIES_PER_PAGE]>), BlockError> {
    let h = block::open(bytes, Kind::Page, salt)?;
    if h.count.get() as usize != ENTRIES_PER_PAGE {
        return Err(BlockError::Field("count"));
    }
    let head = PageHead {
        page: u32::try_from(h.extra.get()).map_err(|_| BlockError::Field("page"))?,
        volume: u32::try_from(h.link.get()).map_err(|_| BlockError::Field("volume"))?,
        generation: h.generation.get(),
        epoch: h.epoch.get(),
        clock: h.flags.get(),
    };
    let mut entries = Box::new([Entry::default(); ENTRIES_PER_PAGE]);
    for (e, b) in entries.iter_mut().zip(bytes[HEAD..].chunks_exact(ENTRY_SIZE)) {
        *e = Entry::from_bytes(b.try_into().expect("chunks of ENTRY_SIZE"));
        if !e.is_sound() {
            return Err(BlockError::Field("flags"));
        }
    }
    Ok((head, entries))
}
