//! What the map knows of a chunk: 16 bytes, the same in memory and on the member.

/// Entry flag: the chunk has a home.
pub const MAPPED: u8 = 1;
/// Entry flag: `second_member` and `second_slot` name a kept copy, equal to the home in all valid blocks. It counts
/// only if the page or record is not older than the label's `mirrors_from`.
pub const KEPT_COPY: u8 = 2;
/// Entry flag, reserved by format 1: the second home is a mirror.
pub const MIRROR: u8 = 4;
/// Entry flag: the blocks are ciphertext, under the key of the volume.
pub const ENCRYPTED: u8 = 8;
/// Entry flags that this version understands.
pub const KNOWN_FLAGS: u8 = MAPPED | KEPT_COPY | ENCRYPTED;

/// Size of an entry in bytes.
pub const ENTRY_SIZE: usize = 16;

/// What the map knows of a chunk. `Entry::default()` is an unmapped chunk: all zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Slot on `member`.
    pub slot: u32,
    /// Slot of the kept copy.
    pub second_slot: u32,
    /// Bit n: block n of the chunk holds data; clear: it reads as zeros.
    pub mask: u32,
    /// Index of the member that is the chunk's home.
    pub member: u8,
    /// Member of the kept copy.
    pub second_member: u8,
    /// [`MAPPED`] and its reserved neighbours.
    pub flags: u8,
    /// Coarse heat, in the policy's own scale.
    pub heat: u8,
}

const _: () = assert!(std::mem::size_of::<Entry>() == ENTRY_SIZE);

impl Entry {
    /// Whether the chunk has a home.
    pub fn is_mapped(&self) -> bool {
        self.flags & MAPPED != 0
    }

    /// Member and slot of the kept copy, if there is one.
    pub fn kept(&self) -> Option<(u8, u32)> {
        (self.flags & KEPT_COPY != 0).then_some((self.second_member, self.second_slot))
    }

    /// The entry with a kept copy at this member and slot.
    #[must_use]
    pub fn with_kept(self, member: u8, slot: u32) -> Entry {
        Entry { flags: self.flags | KEPT_COPY, second_member: member, second_slot: slot, ..self }
    }

    /// The entry without its kept copy.
    #[must_use]
    pub fn without_kept(self) -> Entry {
        Entry { flags: self.flags & !KEPT_COPY, second_member: 0, second_slot: 0, ..self }
    }

    /// Whether its blocks are ciphertext.
    pub fn is_encrypted(&self) -> bool {
        self.flags & ENCRYPTED != 0
    }

    /// Whether its flags make sense: all known, and no copy and no ciphertext of a chunk that has no home.
    pub fn is_sound(&self) -> bool {
        self.flags & !KNOWN_FLAGS == 0 && (self.is_mapped() || self.flags == 0)
    }

    /// The bytes on the member.
    pub fn to_bytes(&self) -> [u8; ENTRY_SIZE] {
        let mut b = [0; ENTRY_SIZE];
        b[0..4].copy_from_slice(&self.slot.to_le_bytes());
        b[4..8].copy_from_slice(&self.second_slot.to_le_bytes());
        b[8..12].copy_from_slice(&self.mask.to_le_bytes());
        b[12] = self.member;
        b[13] = self.second_member;
        b[14] = self.flags;
        b[15] = self.heat;
        b
    }

    /// Reads what [`Entry::to_bytes`] wrote; any 16 bytes are an entry, the caller checks ranges.
    pub fn from_bytes(b: &[u8; ENTRY_SIZE]) -> Entry {
        let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        Entry {
            slot: word(0),
            second_slot: word(4),
            mask: word(8),
            member: b[12],
            second_member: b[13],
            flags: b[14],
            heat: b[15],
        }
    }
}
