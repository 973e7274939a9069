//! Examples of every structure, random and fixed.
#![allow(dead_code)] // each test file uses a part

use bimetal_format::journal::{JournalHead, Record, RecordKind};
use bimetal_format::label::{
    Epoch, Label, MemberCode, MemberRow, PageRun, PlacementCode, Repair, TierCode, VolumeRow, VolumeState, MAX_VOLUMES,
};
use bimetal_format::layout::{pages_for, Layout};
use bimetal_format::page::PageHead;
use bimetal_format::{away, directory, journal, page, Entry, Salt, BLOCK, CHUNK, ENTRIES_PER_PAGE};

/// A block of each kind with the means to decode it, so that all kinds pass through the same tests.
pub(crate) struct Example {
    /// Name of the kind.
    pub kind: &'static str,
    /// Where it belongs.
    pub salt: Salt,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

pub(crate) const KINDS: [&str; 5] = ["journal", "page", "directory", "root", "away"];
/// Index and generation of the directory and root blocks of the examples.
pub(crate) const INDEX: u64 = 3;
pub(crate) const GENERATION: u64 = 77;

pub(crate) fn salt() -> Salt {
    Salt { group: *b"0123456789abcdef", member: 1, place: 7 << 20 }
}

/// A small generator (splitmix64), so that examples are the same for ever.
pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

pub(crate) fn entry(r: &mut Rng) -> Entry {
    let mapped = r.below(4) > 0;
    Entry {
        slot: r.next() as u32,
        second_slot: r.next() as u32,
        mask: r.next() as u32,
        member: r.next() as u8,
        second_member: r.next() as u8,
        flags: mapped.into(),
        heat: r.next() as u8,
    }
}

pub(crate) fn record(r: &mut Rng) -> Record {
    let prepared = r.below(5) == 0;
    Record {
        page: r.next() as u32,
        index: r.below(ENTRIES_PER_PAGE as u64) as u8,
        kind: if prepared { RecordKind::Prepared } else { RecordKind::Set },
        move_id: r.next() as u16,
        entry: entry(r),
    }
}

pub(crate) fn journal_head(r: &mut Rng) -> JournalHead {
    let sequence = r.below(1 << 62);
    JournalHead {
        sequence,
        generation: r.below(1 << 62),
        epoch: r.next(),
        previous: r.next(),
        commit_start: sequence - r.below(sequence.min(9) + 1),
    }
}

pub(crate) fn page_content(r: &mut Rng) -> (PageHead, Box<[Entry; ENTRIES_PER_PAGE]>) {
    let (page, volume) = (r.next() as u32, r.next() as u32);
    let head = PageHead { page, volume, generation: r.below(1 << 62), epoch: r.next(), clock: 0 };
    let mut entries = Box::new([Entry::default(); ENTRIES_PER_PAGE]);
    entries.iter_mut().for_each(|e| *e = entry(r));
    (head, entries)
}

pub(crate) fn expectations(r: &mut Rng, count: usize) -> Vec<directory::Expected> {
    let one = |r: &mut Rng| match r.below(3) {
        0 => directory::Expected::default(),
        _ => directory::Expected::new(1 + r.below((1 << 62) - 1), r.below(2) as u8),
    };
    (0..count).map(|_| one(r)).collect()
}

pub(crate) fn bits(r: &mut Rng) -> Vec<u64> {
    (0..r.below(away::REGIONS_PER_BLOCK as u64 / 64 + 1)).map(|_| r.next()).collect()
}

/// A block of this kind with random legal content.
pub(crate) fn block(kind: &'static str, seed: u64, salt: Salt) -> Example {
    let mut r = Rng(seed);
    let mut bytes = vec![0xEE; BLOCK];
    match kind {
        "journal" => {
            let count = r.below(journal::RECORDS_PER_BLOCK as u64 + 1);
            let head = journal_head(&mut r);
            let records: Vec<Record> = (0..count).map(|_| record(&mut r)).collect();
            journal::encode(&mut bytes, &head, &records, &salt);
        }
        "page" => {
            let (head, entries) = page_content(&mut r);
            page::encode(&mut bytes, &head, &entries, &salt);
        }
        "directory" => {
            let count = r.below(directory::PAGES_PER_DIRECTORY as u64 + 1) as usize;
            directory::encode_directory(&mut bytes, INDEX, GENERATION, &expectations(&mut r, count), &salt);
        }
        "root" => {
            let count = r.below(directory::DIRECTORIES_PER_ROOT as u64 + 1) as usize;
            directory::encode_root(&mut bytes, INDEX, GENERATION, &expectations(&mut r, count), &salt);
        }
        _ => away::encode(&mut bytes, INDEX, r.below(1 << 62), &bits(&mut r), &salt),
    }
    Example { kind, salt, bytes }
}

/// Whether the decoder of `kind` accepts the bytes.
pub(crate) fn accepts(kind: &str, bytes: &[u8], salt: &Salt) -> bool {
    match kind {
        "journal" => journal::decode(bytes, salt).is_ok(),
        "page" => page::decode(bytes, salt).is_ok(),
        "directory" => directory::decode_directory(bytes, INDEX, GENERATION, salt).is_ok(),
        "root" => directory::decode_root(bytes, INDEX, GENERATION, salt).is_ok(),
        _ => away::decode(bytes, INDEX, salt).is_ok(),
    }
}

fn name(r: &mut Rng) -> String {
    let alphabet = b"abcdefghijklmnopqrstuvwxyz0123456789._-";
    let len = 1 + r.below(63);
    (0..len).map(|i| alphabet[r.below(if i == 0 { 26 } else { 39 }) as usize] as char).collect()
}

fn uuid(r: &mut Rng) -> [u8; 16] {
    let mut u = [0; 16];
    u[..8].copy_from_slice(&r.next().to_le_bytes());
    u[8..].copy_from_slice(&r.next().to_le_bytes());
    u
}

fn volumes(r: &mut Rng, pages: u64) -> Vec<VolumeRow> {
    let mut out = Vec::new();
    let mut page = 0;
    for id in 1..=r.below(225) as u32 {
        page += r.below(2) as u32;
        let page_count = 1 + r.below(3) as u32;
        if u64::from(page + page_count) > pages {
            break;
        }
        let chunks = 1 + r.below(u64::from(page_count) * ENTRIES_PER_PAGE as u64);
        let (uuid, mut name) = (uuid(r), name(r));
        if out.iter().any(|v: &VolumeRow| v.name == name) {
            name = format!("another{id}");
        }
        out.push(VolumeRow {
            uuid,
            name,
            size: chunks * CHUNK,
            id,
            runs: vec![PageRun { first: page, count: page_count }],
            family: r.next() as u32,
            placement: [PlacementCode::Auto, PlacementCode::FastOnly, PlacementCode::SlowOnly][r.below(3) as usize],
            state: VolumeState::Living,
        });
        page += page_count;
    }
    out
}

/// A label with random legal content.
pub(crate) fn label(seed: u64) -> Label {
    let r = &mut Rng(seed);
    let sizes: Vec<u64> = (0..1 + r.below(255)).map(|_| (16 << 20) + r.below(1 << 24) * BLOCK as u64).collect();
    let pages = pages_for(sizes[0], 224) + r.below(100);
    let member = r.below(sizes.len() as u64) as usize;
    let size = sizes[member] + pages * 3 * BLOCK as u64;
    let layout = Layout::plan(size, pages, 8 + r.below(100) as u32).expect("large enough");
    let mut members: Vec<MemberRow> = sizes
        .iter()
        .map(|&size| MemberRow {
            uuid: uuid(r),
            tier: if r.below(2) == 0 { TierCode::Fast } else { TierCode::Slow },
            size,
            slots: r.below(size / CHUNK) as u32,
            state: MemberCode::Member,
        })
        .collect();
    (members[member].size, members[member].slots) = (size, layout.slot_count as u32);
    let mut history: Vec<u64> = (0..r.below(65)).map(|_| r.next() | 1).collect();
    history.truncate(64);
    let mut present = [0; 32];
    present.iter_mut().for_each(|b| *b = r.next() as u8);
    let mut label = Label {
        sequence: r.below(1 << 62),
        compatible: r.next(),
        read_only_compatible: r.next(),
        group: uuid(r),
        group_name: name(r),
        member: member as u8,
        created: r.next(),
        device_size: size,
        reserve: r.next(),
        sector_size: if r.below(2) == 0 { 512 } else { 4096 },
        next_volume: (r.next() as u32).max(1000),
        clean: r.below(2) == 0,
        stopped: false,
        epoch: Epoch {
            id: r.next() | 1,
            first_generation: r.below(1 << 62),
            members: present,
            confirmed: r.below(2) == 0,
            history,
            // As earlier versions left it: golden labels stay what they are.
            cut_off: 0,
        },
        journal_tail: r.below(1 << 62),
        journal_tail_hash: r.next(),
        journal_end: r.below(1 << 62),
        checkpoint_generation: r.below(1 << 62),
        root_generation: r.below(1 << 62),
        root_side: r.below(2) as u8,
        mirrors_from: r.next(),
        policy_clock: r.next(),
        generation: r.below(1 << 62),
        tables: 0,
        members_changed: false,
        joining: false,
        zones: layout.zones(),
        members,
        volumes: volumes(r, pages),
        families: Vec::new(),
        next_family: 0,
        keys_side: 0,
        repair: Repair::None,
        repair_id: 0,
    };
    if seed % 2 == 1 {
        change_tables(r, &mut label);
    }
    label
}

/// Makes the volume table one that was changed: some volumes are deleted, some have two runs of pages.
fn change_tables(r: &mut Rng, label: &mut Label) {
    label.tables = 1 + r.below(1 << 61);
    let mut free = MAX_VOLUMES - label.volumes.len();
    for v in &mut label.volumes {
        v.state = if r.below(4) == 0 { VolumeState::Deleted } else { VolumeState::Living };
        let PageRun { first, count } = v.runs[0];
        if count > 1 && free > 0 {
            free -= 1;
            v.runs = vec![PageRun { first: first + 1, count: count - 1 }, PageRun { first, count: 1 }];
        }
    }
}
