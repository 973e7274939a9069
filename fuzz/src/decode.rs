//! Decoders of `bimetal-format`: raw bytes, and bytes under a right checksum. What is accepted encodes to something
//! that decodes to the same value.

use bimetal_format::block::Kind;
use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::LABEL_A;
use bimetal_format::{away, directory, journal, page, Salt, BLOCK};

use crate::seal;

const SALT: Salt = Salt { group: *b"a group to fuzz.", member: 3, place: 1 << 20 };

/// `data` at the front of `len` zeros.
fn padded(data: &[u8], len: usize) -> Vec<u8> {
    let mut out = data[..data.len().min(len)].to_vec();
    out.resize(len, 0);
    out
}

/// A block of `kind` with the version that is known, whatever the rest.
fn sealed(data: &[u8], kind: Kind) -> Vec<u8> {
    let mut out = padded(data, BLOCK);
    out[8..10].copy_from_slice(&1u16.to_le_bytes());
    seal::block(&mut out, kind, &SALT);
    out
}

/// Labels.
pub fn label(data: &[u8]) {
    // As it is. (Not surely an error: a fuzzer that sees comparisons finds a checksum.)
    let _ = Label::decode(data, LABEL_A);
    let mut bytes = padded(data, LABEL_SIZE);
    bytes[12..14].copy_from_slice(&1u16.to_le_bytes());
    seal::label(&mut bytes, LABEL_A);
    let Ok(l) = Label::decode(&bytes, LABEL_A) else { return };
    // What a start asks of a label.
    let layout = l.layout();
    assert!(layout.slot(layout.slot_count as u32) <= l.device_size);
    assert!(layout.page(layout.pages as u32 - 1, 1) < l.device_size);
    assert!((0..=254).filter(|m| l.epoch.has_member(*m)).count() <= 255);
    assert_eq!(Label::decode(&l.encode(LABEL_A), LABEL_A).as_ref(), Ok(&l));
}

/// Map pages.
pub fn page(data: &[u8]) {
    let _ = page::decode(data, &SALT);
    let Ok((head, entries)) = page::decode(&sealed(data, Kind::Page), &SALT) else { return };
    let mut again = vec![0; BLOCK];
    page::encode(&mut again, &head, &entries, &SALT);
    assert_eq!(page::decode(&again, &SALT), Ok((head, entries)));
}

/// Journal blocks.
pub fn journal(data: &[u8]) {
    let _ = journal::decode(data, &SALT);
    let Ok((head, records, _)) = journal::decode(&sealed(data, Kind::Journal), &SALT) else { return };
    let mut again = vec![0; BLOCK];
    let hash = journal::encode(&mut again, &head, &records, &SALT);
    assert_eq!(journal::decode(&again, &SALT), Ok((head, records, hash)));
}

/// Directory, root and away blocks.
pub fn directory(data: &[u8]) {
    let bytes = sealed(data, Kind::Directory);
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (generation, index) = (number(32), number(56));
    let _ = directory::decode_directory(data, index, generation, &SALT);
    let mut again = vec![0; BLOCK];
    if let Ok(rows) = directory::decode_directory(&bytes, index, generation, &SALT) {
        directory::encode_directory(&mut again, index, generation, &rows, &SALT);
        assert_eq!(directory::decode_directory(&again, index, generation, &SALT), Ok(rows));
    }
    if let Ok(rows) = directory::decode_root(&sealed(data, Kind::Root), index, generation, &SALT) {
        assert!(rows.iter().all(|e| e.is_some() == (e.generation() > 0)));
        directory::encode_root(&mut again, index, generation, &rows, &SALT);
        assert_eq!(directory::decode_root(&again, index, generation, &SALT), Ok(rows));
    }
    if let Ok((sequence, bits)) = away::decode(&sealed(data, Kind::Away), index, &SALT) {
        away::encode(&mut again, index, sequence, &bits, &SALT);
        assert_eq!(away::decode(&again, index, &SALT), Ok((sequence, bits)));
    }
}
