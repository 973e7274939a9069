//! Hashes of encoded examples: the format cannot change unnoticed. A change that is meant needs a new version or a
//! feature bit, a line in FORMAT.md, and then new hashes here.

mod examples;

use bimetal_format::block::hash;
use bimetal_format::label::Label;
use bimetal_format::layout::LABEL_A;
use examples::{accepts, block, label, salt, KINDS};

#[test]
fn blocks_have_not_changed() {
    let wanted: [u64; 5] = [
        0x8d7c_fa6b_44ef_ccff,
        0x188e_69b9_c167_e101,
        0x28d1_89c9_6f98_51f0,
        0x499e_8c93_d748_fffd,
        0xa19c_052c_18ea_9629,
    ];
    let got = KINDS.map(|kind| {
        let b = block(kind, 42, salt()).bytes;
        assert!(accepts(kind, &b, &salt()));
        hash(&b)
    });
    assert_eq!(got, wanted, "{got:#018x?}");
}

#[test]
fn the_label_has_not_changed() {
    let l = label(42);
    let bytes = l.encode(LABEL_A);
    assert_eq!(Label::decode(&bytes, LABEL_A).as_ref(), Ok(&l));
    assert_eq!(hash(&bytes), 0x8d39_c6e9_aa2c_36d7, "{:#018x}", hash(&bytes));
}

#[test]
fn the_label_of_a_changed_group_has_not_changed() {
    let l = label(43);
    assert!(l.tables > 0 && l.volumes.iter().any(|v| v.runs.len() > 1));
    let bytes = l.encode(LABEL_A);
    assert_eq!(Label::decode(&bytes, LABEL_A).as_ref(), Ok(&l));
    assert_eq!(hash(&bytes), 0x2ed1_fdf1_d121_892d, "{:#018x}", hash(&bytes));
}

#[test]
fn checksums_are_those_that_format_md_names() {
    assert_eq!(bimetal_format::block::crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(hash(b"123456789"), 0xAE8B_1486_0A79_9888);
    let text = include_str!("../FORMAT.md");
    assert!(text.contains("E3069283") && text.contains("AE8B14860A799888"));
}
