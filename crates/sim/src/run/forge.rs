//! Metadata that no engine wrote, with correct checksums.

use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::LABEL_A;
use bimetal_format::{page, Salt};

use crate::disk::{Cell, Store, BLOCK};

/// Gives the last mapped chunk of every map page the home of the first one. `end` is the first block after the zones.
pub(super) fn double_homes(store: &mut Store, disk: usize, end: u64) {
    let first = LABEL_A / BLOCK as u64;
    let label: Vec<u8> =
        (first..first + (LABEL_SIZE / BLOCK) as u64).flat_map(|b| store.durable(b).bytes(disk, b)).collect();
    let Ok(label) = Label::decode(&label, LABEL_A) else { return };
    for block in first..end {
        let place = block * BLOCK as u64;
        let salt = Salt { group: label.group, member: label.member, place };
        let mut bytes = store.durable(block).bytes(disk, block);
        let Ok((head, mut entries)) = page::decode(&bytes, &salt) else { continue };
        let mapped: Vec<usize> = (0..entries.len()).filter(|i| entries[*i].is_mapped()).collect();
        if let [owner, .., thief] = mapped[..] {
            (entries[thief].member, entries[thief].slot) = (entries[owner].member, entries[owner].slot);
            page::encode(&mut bytes, &head, &entries, &salt);
            store.put(block, Cell::from_bytes(&bytes));
        }
    }
}
