//! Holds FORMAT.md against the code: constants, magics, numbers, and name, offset and size of every field.

use std::collections::BTreeMap;

use bimetal_format::block::{Kind, GROWING_LIMIT, HEAD};
use bimetal_format::directory::{self, Expected, DIRECTORIES_PER_ROOT, PAGES_PER_DIRECTORY};
use bimetal_format::document::structures;
use bimetal_format::entry::{self, ENTRY_SIZE};
use bimetal_format::journal::{self, JournalHead, Record, RecordKind, RECORDS_PER_BLOCK, RECORD_SIZE};
use bimetal_format::label::{EPOCH_HISTORY, LABEL_SIZE, MAX_FAMILIES, MAX_MEMBERS, MAX_VOLUMES, MAX_ZONES};
use bimetal_format::layout::{label_b, lease, ZoneKind, KEYS_LEN, LABEL_A, MIN_JOURNAL_BLOCKS, ZONES_START};
use bimetal_format::{away, Entry, Salt, BLOCK, CHUNK, ENTRIES_PER_PAGE, VERSION};

const SALT: Salt = Salt { group: [7; 16], member: 2, place: 8192 };

/// The first cells of each row of a table.
type Rows = Vec<Vec<String>>;

/// The tables of FORMAT.md that follow a comment `<!-- name -->`.
fn tables() -> BTreeMap<String, Rows> {
    let text = include_str!("../FORMAT.md");
    let mut out = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("<!-- ").and_then(|l| l.strip_suffix(" -->")) else { continue };
        let rows = lines.by_ref().skip(2).take_while(|l| l.starts_with('|'));
        let cells = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().trim_matches('`').to_string()).collect();
        assert!(out.insert(name.to_string(), rows.map(cells).collect()).is_none(), "two tables named {name}");
    }
    out
}

fn table(name: &str, columns: usize) -> Rows {
    let rows = tables().remove(name).unwrap_or_else(|| panic!("FORMAT.md has no table {name}"));
    rows.into_iter().map(|r| r[..columns].to_vec()).collect()
}

fn assert_table(name: &str, wanted: Rows) {
    let got = table(name, wanted[0].len());
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_eq!(got, wanted, "table {name}");
    }
    assert_eq!(got.len(), wanted.len(), "rows of table {name}");
}

fn field_row(offset: usize, size: usize, name: &str) -> Vec<String> {
    vec![offset.to_string(), size.to_string(), name.to_string()]
}

#[test]
fn constants_are_those_of_the_code() {
    let size = 1 << 40;
    let all: Vec<(&str, u64)> = vec![
        ("VERSION", VERSION.into()),
        ("BLOCK", BLOCK as u64),
        ("CHUNK", CHUNK),
        ("LABEL_A", LABEL_A),
        ("LABEL_SIZE", LABEL_SIZE as u64),
        ("LABEL_B_FROM_END", size - label_b(size + 4095)),
        ("LEASE_FROM_END", size - lease(size + 4095)),
        ("ZONES_START", ZONES_START),
        ("HEAD", HEAD as u64),
        ("ENTRY_SIZE", ENTRY_SIZE as u64),
        ("RECORD_SIZE", RECORD_SIZE as u64),
        ("ENTRIES_PER_PAGE", ENTRIES_PER_PAGE as u64),
        ("RECORDS_PER_BLOCK", RECORDS_PER_BLOCK as u64),
        ("PAGES_PER_DIRECTORY", PAGES_PER_DIRECTORY as u64),
        ("DIRECTORIES_PER_ROOT", DIRECTORIES_PER_ROOT as u64),
        ("REGIONS_PER_BLOCK", away::REGIONS_PER_BLOCK as u64),
        ("MIN_JOURNAL_BLOCKS", MIN_JOURNAL_BLOCKS.into()),
        ("MAX_MEMBERS", MAX_MEMBERS as u64),
        ("MAX_VOLUMES", MAX_VOLUMES as u64),
        ("MAX_FAMILIES", MAX_FAMILIES as u64),
        ("MAX_ZONES", MAX_ZONES as u64),
        ("EPOCH_HISTORY", EPOCH_HISTORY as u64),
        ("KEYS_LEN", KEYS_LEN),
        ("GROWING_LIMIT", GROWING_LIMIT),
    ];
    assert_table("constants", all.into_iter().map(|(n, v)| vec![n.to_string(), v.to_string()]).collect());
}

#[test]
fn structures_have_the_fields_of_the_code() {
    for (name, fields) in structures() {
        let rows = fields.iter().map(|f| field_row(f.offset, f.size, f.name)).collect();
        assert_table(&format!("fields: {name}"), rows);
    }
}

#[test]
fn numbers_of_kinds_and_flags_are_those_of_the_code() {
    let kinds = [Kind::Journal, Kind::Page, Kind::Directory, Kind::Root, Kind::Away];
    let magic = |k: Kind| vec![format!("{k:?}").to_lowercase(), String::from_utf8(k.magic().to_vec()).unwrap()];
    assert_table("magics", kinds.map(magic).to_vec());
    let zones = (0..=u16::MAX).filter_map(ZoneKind::from_u16);
    let zone = |z: ZoneKind| vec![(z as u16).to_string(), format!("{z:?}").to_lowercase()];
    assert_table("zones", zones.map(zone).collect());
    let flags = [
        (entry::MAPPED, "MAPPED"),
        (entry::KEPT_COPY, "KEPT_COPY"),
        (entry::MIRROR, "MIRROR"),
        (entry::ENCRYPTED, "ENCRYPTED"),
    ];
    assert_table("flags", flags.map(|(bit, name)| vec![bit.to_string(), name.to_string()]).to_vec());
}

/// First byte and number of bytes in which `a` and `b` differ.
fn difference(a: &[u8], b: &[u8]) -> (usize, usize) {
    let differ: Vec<usize> = (0..a.len()).filter(|i| a[*i] != b[*i]).collect();
    let first = differ[0];
    assert_eq!(differ.len(), differ[differ.len() - 1] + 1 - first, "a field is in one piece");
    (first, differ.len())
}

/// A field, and how to change it.
type Change<T> = (&'static str, fn(&mut T));

/// The fields of an entry, found by changing one at a time.
fn entry_rows() -> Rows {
    let change: [Change<Entry>; 7] = [
        ("slot", |e| e.slot = u32::MAX),
        ("second_slot", |e| e.second_slot = u32::MAX),
        ("mask", |e| e.mask = u32::MAX),
        ("member", |e| e.member = u8::MAX),
        ("second_member", |e| e.second_member = u8::MAX),
        ("flags", |e| e.flags = 1),
        ("heat", |e| e.heat = u8::MAX),
    ];
    let row = |(name, change): Change<Entry>| {
        let mut e = Entry::default();
        change(&mut e);
        let (offset, size) = difference(&Entry::default().to_bytes(), &e.to_bytes());
        field_row(offset, size, name)
    };
    change.map(row).to_vec()
}

#[test]
fn entries_have_the_fields_of_the_code() {
    assert_table("fields: entry", entry_rows());
}

#[test]
fn records_have_the_fields_of_the_code() {
    let plain = Record { page: 0, index: 0, kind: RecordKind::Set, move_id: 0, entry: Entry::default() };
    let change: [Change<Record>; 4] = [
        ("page", |r| r.page = u32::MAX),
        ("index", |r| r.index = 251),
        ("kind", |r| r.kind = RecordKind::Prepared),
        ("move_id", |r| r.move_id = u16::MAX),
    ];
    let encode = |r: Record| {
        let head = JournalHead { sequence: 0, generation: 0, epoch: 0, previous: 0, commit_start: 0 };
        let mut out = vec![0; BLOCK];
        // The second of two, so that the distance of records counts too.
        journal::encode(&mut out, &head, &[plain, r], &SALT);
        out[HEAD + RECORD_SIZE..].to_vec()
    };
    let mut rows: Rows = change
        .iter()
        .map(|(name, change)| {
            let mut r = plain;
            change(&mut r);
            let (offset, size) = difference(&encode(plain), &encode(r));
            field_row(offset, size, name)
        })
        .collect();
    let whole =
        Entry { slot: u32::MAX, second_slot: u32::MAX, mask: u32::MAX, member: 9, second_member: 9, flags: 1, heat: 9 };
    let (offset, size) = difference(&encode(plain), &encode(Record { entry: whole, ..plain }));
    rows.push(field_row(offset, size, "entry"));
    assert_table("fields: record", rows);
}

#[test]
fn rows_of_directory_root_and_away_are_those_of_the_code() {
    let max = Expected::new(GROWING_LIMIT - 1, 1);
    let none = Expected::default();
    let second = |encode: &dyn Fn(&mut [u8], bool)| {
        let (mut a, mut b) = (vec![0; BLOCK], vec![0; BLOCK]);
        encode(&mut a, false);
        encode(&mut b, true);
        difference(&a[HEAD..], &b[HEAD..])
    };
    let pick = |changed| if changed { [none, max] } else { [none, none] };
    let row = |name: &str, (offset, size): (usize, usize)| vec![name.to_string(), offset.to_string(), size.to_string()];
    let rows = vec![
        row("directory", second(&|out, c| directory::encode_directory(out, 0, 1, &pick(c), &SALT))),
        row("root", second(&|out, c| directory::encode_root(out, 0, 1, &pick(c), &SALT))),
        row("away", second(&|out, c| away::encode(out, 0, 1, &[0, if c { u64::MAX } else { 0 }], &SALT))),
    ];
    assert_table("rows", rows);
    // Generation 5 on side 1, as FORMAT.md explains a row.
    let mut out = vec![0; BLOCK];
    directory::encode_directory(&mut out, 0, 1, &[Expected::new(5, 1)], &SALT);
    assert_eq!(out[HEAD..HEAD + 8], 11u64.to_le_bytes());
}
