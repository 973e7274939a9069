//! The family table of a label: volumes that share a key, and where the header lies that holds it.

use zerocopy::little_endian::U32;

use super::codec::{get_name, put_name};
use super::raw::RawFamily;
use super::{Label, LabelError};
use crate::block::crc32c;
use crate::layout::Layout;
use crate::BLOCK;

/// Blocks of the largest header that LUKS2 knows: 16 MiB.
pub const MAX_HEADER: u32 = 4096;

/// A family as every label of the group lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRow {
    /// Its name for ever.
    pub uuid: [u8; 16],
    /// Its name for people.
    pub name: String,
    /// Never used again in this group; not 0.
    pub id: u32,
    /// Says whether a key is the family's, and nothing else about it.
    pub check: [u8; 16],
    /// Where its header begins: blocks of 4096 bytes from the beginning of a side of the keys zone.
    pub at: u32,
    /// Blocks of the header that are stored; what follows is zeros.
    pub stored: u32,
    /// Blocks of the whole header.
    pub header: u32,
    /// [`FamilyRow::checksum`] of what is stored.
    pub crc: u32,
}

impl FamilyRow {
    /// Checksum of a stored header: CRC-32C over the UUIDs of group and family, then the bytes.
    pub fn checksum(group: &[u8; 16], family: &[u8; 16], stored: &[u8]) -> u32 {
        crc32c(&[group.as_slice(), family, stored].concat())
    }

    /// Bytes that are stored.
    pub fn stored_len(&self) -> usize {
        self.stored as usize * BLOCK
    }
}

pub(super) fn encode_family(r: &mut RawFamily, f: &FamilyRow) {
    r.uuid = f.uuid;
    r.name = put_name(&f.name);
    r.check = f.check;
    r.id = U32::new(f.id);
    r.at = U32::new(f.at);
    r.stored = U32::new(f.stored);
    r.header = U32::new(f.header);
    r.crc = U32::new(f.crc);
}

pub(super) fn decode_family(r: &RawFamily) -> Result<FamilyRow, LabelError> {
    if r.state != 0 {
        return Err(LabelError::Field("family state"));
    }
    Ok(FamilyRow {
        uuid: r.uuid,
        name: get_name(&r.name, "family name")?,
        id: r.id.get(),
        check: r.check,
        at: r.at.get(),
        stored: r.stored.get(),
        header: r.header.get(),
        crc: r.crc.get(),
    })
}

/// Numbers and names are not given twice, and headers lie apart from each other inside a side of the keys zone.
pub(super) fn check(label: &Label, layout: &Layout) -> Result<(), LabelError> {
    let field = |ok: bool, name| if ok { Ok(()) } else { Err(LabelError::Field(name)) };
    field(label.keys_side < 2, "side of the keys")?;
    for (i, f) in label.families.iter().enumerate() {
        let twice = |g: &FamilyRow| g.id == f.id || g.name == f.name;
        let known = f.id > 0 && f.id < label.next_family;
        field(known && !label.families[..i].iter().any(twice), "family numbers and names")?;
    }
    let mut rows: Vec<&FamilyRow> = label.families.iter().collect();
    rows.sort_by_key(|f| f.at);
    let blocks = layout.keys.map_or(0, |k| k.len / BLOCK as u64);
    let mut free = 0;
    for f in rows {
        let end = u64::from(f.at) + u64::from(f.stored);
        field(
            u64::from(f.at) >= free && f.stored > 0 && f.stored <= f.header && f.header <= MAX_HEADER && end <= blocks,
            "place of a header",
        )?;
        free = end;
    }
    Ok(())
}
