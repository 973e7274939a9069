//! Makes checksums of metadata right, as `FORMAT.md` section 3 describes them; independent of the code under test but
//! for CRC-32C itself.

use bimetal_format::block::{crc32c, Kind};
use bimetal_format::label::{LABEL_SIZE, MAGIC};
use bimetal_format::Salt;

/// Makes `bytes` a label for byte offset `place` as far as magic and checksum go.
pub fn label(bytes: &mut [u8], place: u64) {
    assert_eq!(bytes.len(), LABEL_SIZE);
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].fill(0);
    let crc = crc32c(&[&*bytes, &place.to_le_bytes()].concat());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// Makes `bytes` a block of this kind for this place as far as magic and checksum go.
pub fn block(bytes: &mut [u8], kind: Kind, salt: &Salt) {
    bytes[..4].copy_from_slice(&kind.magic());
    bytes[4..8].fill(0);
    let salted = [&kind.magic()[..], &salt.group, &[salt.member], &salt.place.to_le_bytes(), bytes].concat();
    let crc = crc32c(&salted);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}
