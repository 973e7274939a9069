//! What the simulator writes: 512-byte sectors whose content names the write that made them.
//!
//! A *code* is a 64-bit number: write id (24 bits), volume or disk (4), sector of that volume or disk (28), kind (8).
//! Sector content: word `i` of 64 is `code + i`; the kind byte is a multiple of 64, so that a word says its own place.
//! Code 0 is a sector of zeros. So a sector that was moved, shifted, mixed or never written shows itself, and content
//! can be made, recognised and compared at the speed of memory.

/// Unit of tearing: what a device writes whole or not at all.
pub const SECTOR: usize = 512;
/// Sectors of a block.
pub const SECTORS: usize = 8;
/// Difference between the codes of neighbouring sectors of one write.
pub const STEP: u64 = 1 << 8;
/// Largest write id.
pub const MAX_WRITE: u64 = (1 << 24) - 2;

const WORDS: usize = SECTOR / 8;
const DATA: u64 = 0x80;
const POISON: u64 = 0x40;
const POISON_WRITE: u64 = (1 << 24) - 1;

/// Code of a sector of a volume as written by `write`.
pub fn data_code(write: u64, volume: usize, sector: u64) -> u64 {
    write << 40 | (volume as u64 & 15) << 36 | (sector & 0x0fff_ffff) << 8 | DATA
}

/// Code of a sector of a disk that nothing was ever written to, or that was discarded.
pub fn poison_code(disk: usize, sector: u64) -> u64 {
    POISON_WRITE << 40 | (disk as u64 & 15) << 36 | (sector & 0x0fff_ffff) << 8 | POISON
}

/// Whether a code is data that some write made for this sector.
pub fn is_data_of(code: u64, volume: usize, sector: u64) -> bool {
    code >> 40 != 0 && code >> 40 <= MAX_WRITE && code == data_code(code >> 40, volume, sector)
}

/// Whether the bytes of a sector may come from several writes to it, of a part of it each: most words are of one or are
/// zeros, but for those where one write ends and the next begins.
pub fn may_be_patched(bytes: &[u8], volume: usize, sector: u64) -> bool {
    let word = |(i, word): (usize, &[u8])| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        word == 0 || is_data_of(word.wrapping_sub(i as u64), volume, sector)
    };
    bytes.chunks_exact(8).enumerate().filter(|w| word(*w)).count() * 4 >= bytes.len() / 8
}

/// Volume and write of a code that is data.
pub fn writer_of(code: u64) -> Option<(usize, u64)> {
    let write = code >> 40;
    let data = code & 0xff == DATA && write != 0 && write <= MAX_WRITE;
    data.then_some(((code >> 36 & 15) as usize, write))
}

/// Fills a sector.
pub fn fill_sector(out: &mut [u8], code: u64) {
    if code == 0 {
        out.fill(0);
        return;
    }
    for (i, word) in out.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(code + i as u64).to_le_bytes());
    }
}

/// The code of a sector, if it has one.
pub fn sector_code(bytes: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let step = if first == 0 { 0 } else { 1 };
    if first != 0 && first % 64 != 0 {
        return None;
    }
    let mut differs = 0;
    for (i, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        differs |= word ^ first.wrapping_add(step * i as u64);
    }
    (differs == 0).then_some(first)
}

/// A code in words.
pub fn describe(code: u64) -> String {
    let (write, place, sector) = (code >> 40, code >> 36 & 15, code >> 8 & 0x0fff_ffff);
    match code & 0xff {
        0 if code == 0 => "zeros".into(),
        DATA => format!("data of write {write} to volume {place} at byte {}", sector * SECTOR as u64),
        POISON if write == POISON_WRITE => {
            format!("never written or discarded bytes of disk {place} at byte {}", sector * SECTOR as u64)
        }
        _ => format!("unknown content {code:#x}"),
    }
}

/// Bytes of a sector in words, for a report.
pub fn describe_bytes(bytes: &[u8]) -> String {
    match (bytes.len() == SECTOR).then(|| sector_code(bytes)).flatten() {
        Some(code) => describe(code),
        None => {
            let mut words: Vec<String> = Vec::new();
            for word in bytes.chunks_exact(8).take(WORDS) {
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                let text = describe(word & !63);
                if words.last() != Some(&text) {
                    words.push(text);
                }
            }
            words.truncate(4);
            format!("a mixture: {}", words.join(" | "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_names_its_write() {
        let mut bytes = [0u8; SECTOR];
        for code in [0, data_code(77, 2, 1234), poison_code(1, 9)] {
            fill_sector(&mut bytes, code);
            assert_eq!(sector_code(&bytes), Some(code));
        }
        assert_eq!(describe(data_code(77, 2, 2)), "data of write 77 to volume 2 at byte 1024");
    }

    #[test]
    fn mixed_and_shifted_content_has_no_code() {
        let mut cut = [0u8; SECTOR];
        fill_sector(&mut cut, data_code(1, 0, 0));
        cut[300..].fill(0);
        assert!(sector_code(&cut).is_none() && may_be_patched(&cut, 0, 0) && !may_be_patched(&[0x5a; SECTOR], 0, 0));
        let mut bytes = [0u8; SECTOR];
        fill_sector(&mut bytes, data_code(1, 0, 0));
        bytes[300] ^= 1;
        assert_eq!(sector_code(&bytes), None);
        fill_sector(&mut bytes, data_code(1, 0, 0));
        bytes.rotate_left(8);
        assert_eq!(sector_code(&bytes), None);
        assert!(describe_bytes(&bytes).starts_with("a mixture"));
    }
}
