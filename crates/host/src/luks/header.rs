//! A header as bytes, and what is found in it.

use std::ops::Range;

use super::{FamilyKey, SlotInfo, METADATA_BYTES, SLOT_BYTES};

/// The bytes of a LUKS2 header with its key slots.
///
/// Not secret in itself, but whoever has it can try passphrases. And whoever has an older one can use its older
/// passphrases: after a passphrase was removed or changed, overwrite every copy of the header from before.
#[derive(Clone, PartialEq, Eq)]
pub struct Header(pub(super) Vec<u8>);

impl Header {
    /// Takes bytes for a header. Whether they are one is seen when they are used; see [`check`](super::Luks::check).
    pub fn from_bytes(bytes: Vec<u8>) -> Header {
        Header(bytes)
    }

    /// The bytes, to be stored or exported.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, to be stored or exported.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A field of the binary part that is text up to a zero byte.
    pub(super) fn text(&self, field: Range<usize>) -> String {
        let field = self.0.get(field).unwrap_or_default();
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).into_owned()
    }

    /// Bytes of a header with room for so many slots.
    pub const fn size_for(slots: u32) -> u64 {
        METADATA_BYTES + slots as u64 * SLOT_BYTES
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Header({} bytes)", self.0.len())
    }
}

/// What a header says about itself.
#[derive(Clone, Debug)]
pub struct HeaderInfo {
    /// The header, whole: without what followed it, and with both copies of the metadata good.
    pub header: Header,
    /// A copy of the metadata was damaged or old and was made anew from the other. [`HeaderInfo::header`] should be
    /// stored in place of what was read.
    pub repaired: bool,
    /// Its UUID, in small letters.
    pub uuid: String,
    /// Its label; may be empty.
    pub label: String,
    /// Made by Bimetal, not by someone for a device of theirs.
    pub ours: bool,
    /// Slots there is room for.
    pub max_slots: u32,
    /// Its slots.
    pub slots: Vec<SlotInfo>,
}

/// An unlocked header.
#[derive(Debug)]
pub struct Unlocked {
    /// The family key.
    pub key: FamilyKey,
    /// The slot that the passphrase fits.
    pub slot: u32,
    /// Set if a copy of the metadata was damaged: the whole header, which should be stored.
    pub repaired: Option<Header>,
}
