//! What must hold for every encoder and decoder, whatever the content.

mod examples;

use bimetal_format::label::{is_name, Label, LabelError, MemberCode, Repair, VolumeState, EPOCH_HISTORY, LABEL_SIZE};
use bimetal_format::layout::{label_b, Layout, LayoutError, ZoneExtent, ZoneKind, LABEL_A, MIN_JOURNAL_BLOCKS};
use bimetal_format::{away, directory, journal, page, Entry, Salt, BLOCK};
use examples::{accepts, block, label, salt, Rng, GENERATION, INDEX, KINDS};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_round_trip(bytes: [u8; 16]) {
        prop_assert_eq!(Entry::from_bytes(&bytes).to_bytes(), bytes);
    }

    #[test]
    fn journal_blocks_round_trip(seed: u64, count in 0..=journal::RECORDS_PER_BLOCK) {
        let r = &mut Rng(seed);
        let head = examples::journal_head(r);
        let records: Vec<_> = (0..count).map(|_| examples::record(r)).collect();
        let mut out = vec![0xEE; BLOCK];
        let hash = journal::encode(&mut out, &head, &records, &salt());
        prop_assert_eq!(journal::decode(&out, &salt()), Ok((head, records, hash)));
    }

    #[test]
    fn pages_round_trip(seed: u64, clock: u32) {
        let (mut head, entries) = examples::page_content(&mut Rng(seed));
        head.clock = clock;
        let mut out = vec![0xEE; BLOCK];
        page::encode(&mut out, &head, &entries, &salt());
        prop_assert_eq!(page::decode(&out, &salt()), Ok((head, entries)));
    }

    #[test]
    fn directories_and_roots_round_trip(
        seed: u64, pages in 0..=directory::PAGES_PER_DIRECTORY, blocks in 0..=directory::DIRECTORIES_PER_ROOT,
    ) {
        let r = &mut Rng(seed);
        let (pages, blocks) = (examples::expectations(r, pages), examples::expectations(r, blocks));
        let mut out = vec![0xEE; BLOCK];
        directory::encode_directory(&mut out, INDEX, GENERATION, &pages, &salt());
        prop_assert_eq!(directory::decode_directory(&out, INDEX, GENERATION, &salt()), Ok(pages));
        prop_assert!(directory::decode_directory(&out, INDEX + 1, GENERATION, &salt()).is_err());
        prop_assert!(directory::decode_directory(&out, INDEX, GENERATION - 1, &salt()).is_err());
        directory::encode_root(&mut out, INDEX, GENERATION, &blocks, &salt());
        prop_assert_eq!(directory::decode_root(&out, INDEX, GENERATION, &salt()), Ok(blocks));
        prop_assert!(directory::decode_root(&out, INDEX + 1, GENERATION, &salt()).is_err());
        prop_assert!(directory::decode_root(&out, INDEX, GENERATION + 1, &salt()).is_err());
    }

    #[test]
    fn away_blocks_round_trip(seed: u64) {
        let r = &mut Rng(seed);
        let (sequence, bits) = (r.below(1 << 62), examples::bits(r));
        let mut out = vec![0xEE; BLOCK];
        away::encode(&mut out, INDEX, sequence, &bits, &salt());
        prop_assert_eq!(away::decode(&out, INDEX, &salt()), Ok((sequence, bits)));
        prop_assert!(away::decode(&out, INDEX + 1, &salt()).is_err());
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2 * BLOCK), seed: u64) {
        for kind in KINDS {
            prop_assert!(!accepts(kind, &bytes, &salt()));
            // The same behind a head that looks right.
            let mut block = block(kind, seed, salt()).bytes;
            let n = bytes.len().min(BLOCK - 8);
            block[8..8 + n].copy_from_slice(&bytes[..n]);
            prop_assert!(n == 0 || !accepts(kind, &block, &salt()));
        }
        prop_assert_eq!(Label::decode(&bytes, LABEL_A), Err(LabelError::NotALabel));
    }

    #[test]
    fn a_block_of_another_place_member_group_or_kind_is_refused(seed: u64, other: u64, bit in 0..128usize) {
        let here = salt();
        for kind in KINDS {
            let b = block(kind, seed, here).bytes;
            prop_assert!(accepts(kind, &b, &here));
            let elsewhere = Salt { place: here.place ^ (other << 12 | 4096), ..here };
            prop_assert!(!accepts(kind, &b, &elsewhere));
            let other_member = Salt { member: here.member ^ 1 << (other % 8), ..here };
            prop_assert!(!accepts(kind, &b, &other_member));
            let mut group = here.group;
            group[bit / 8] ^= 1 << (bit % 8);
            let other_group = Salt { group, ..here };
            prop_assert!(!accepts(kind, &b, &other_group));
            for taken_for in KINDS.into_iter().filter(|k| *k != kind) {
                prop_assert!(!accepts(taken_for, &b, &here));
                // Also if its first bytes claim so.
                let mut disguised = b.clone();
                disguised[..4].copy_from_slice(&block(taken_for, seed, here).bytes[..4]);
                prop_assert!(!accepts(taken_for, &disguised, &here));
            }
        }
    }

    #[test]
    fn labels_round_trip_and_one_flipped_bit_is_refused(seed: u64, bits in proptest::collection::vec(0..LABEL_SIZE * 8, 8)) {
        let mut l = label(seed);
        (l.epoch.cut_off, l.stopped) = (seed as u8, seed % 5 == 0);
        (l.repair, l.repair_id) = ([Repair::None, Repair::Begun, Repair::Done][seed as usize % 3], seed as u32 | 1);
        for place in [LABEL_A, label_b(l.device_size)] {
            let mut bytes = l.encode(place);
            prop_assert_eq!(Label::decode(&bytes, place), Ok(l.clone()));
            prop_assert_eq!(Label::decode(&bytes, place + 4096), Err(LabelError::Checksum));
            for bit in &bits {
                bytes[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Label::decode(&bytes, place).is_err());
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assert!(Label::decode(&bytes[..LABEL_SIZE - 1], place).is_err());
        }
    }

    #[test]
    fn a_planned_layout_reads_back_and_its_zones_keep_apart(
        size in 0u64..1 << 44, pages in 1u64..1 << 22, blocks in MIN_JOURNAL_BLOCKS..1 << 13,
    ) {
        let layout = match Layout::plan(size, pages, blocks) {
            Ok(l) => l,
            Err(LayoutError::TooSmall { metadata, .. }) => {
                prop_assert!(size < metadata + (1 << 20) + 4096);
                return Ok(());
            }
            Err(e) => panic!("{e}"),
        };
        let mut zones = layout.zones();
        prop_assert_eq!(Layout::from_zones(&zones, size), Ok(layout));
        zones.sort_by_key(|z| z.offset);
        let mut end = LABEL_A + LABEL_SIZE as u64;
        for z in &zones {
            prop_assert!(z.offset >= end && z.len > 0);
            end = z.offset + z.len;
        }
        prop_assert!(end <= label_b(size) && label_b(size) + LABEL_SIZE as u64 + (1 << 20) <= size);
        prop_assert_eq!(layout.slots % (1 << 20), 0);
        check_last_places(&layout, &zones)?;
    }

    #[test]
    fn a_zone_table_with_one_change_never_gives_overlaps(
        seed: u64, at in 0..6usize, change: u64, what in 0..4u8,
    ) {
        let l = label(seed);
        let mut zones: Vec<ZoneExtent> = l.zones.clone();
        match what {
            0 => zones[at].offset = change % (l.device_size + 4096),
            1 => zones[at].len = change % (l.device_size * 2),
            2 => zones[at].offset = change,
            _ => zones[at].kind = zones[(at + 1) % 6].kind,
        }
        if let Ok(layout) = Layout::from_zones(&zones, l.device_size) {
            zones.sort_by_key(|z| z.offset);
            prop_assert!(zones.windows(2).all(|w| w[0].offset + w[0].len <= w[1].offset));
            prop_assert!(zones[0].offset >= LABEL_A + LABEL_SIZE as u64);
            prop_assert!(zones.iter().all(|z| z.offset + z.len <= label_b(l.device_size)));
            check_last_places(&layout, &zones)?;
        }
    }

    #[test]
    fn names_are_those_of_the_rule(name in "[a-z0-9._A-Z /-]{0,70}") {
        let legal = |i: usize, c: char| matches!(c, 'a'..='z' | '0'..='9') || (i > 0 && "._-".contains(c));
        let wanted = (1..=63).contains(&name.len()) && name.chars().enumerate().all(|(i, c)| legal(i, c));
        prop_assert_eq!(is_name(&name), wanted);
    }
}

/// The first and last block of everything that a layout gives an address for lies in the right zone.
fn check_last_places(layout: &Layout, zones: &[ZoneExtent]) -> Result<(), TestCaseError> {
    let b = BLOCK as u64;
    let inside = |kind: ZoneKind, at: u64, len: u64| {
        zones.iter().any(|z| z.kind == kind && z.offset <= at && at + len <= z.offset + z.len)
    };
    let (pages, directories) = (layout.pages, bimetal_format::layout::directory_blocks(layout.pages));
    let (roots, aways) =
        (bimetal_format::layout::root_blocks(layout.pages), bimetal_format::layout::away_blocks(layout.pages));
    for side in 0..2 {
        prop_assert!(inside(ZoneKind::Map, layout.page(0, side), b));
        prop_assert!(inside(ZoneKind::Map, layout.page(pages as u32 - 1, side), b));
        prop_assert!(inside(ZoneKind::Directory, layout.directory_block(directories - 1, side), b));
        prop_assert!(inside(ZoneKind::Root, layout.root_block(roots - 1, side), b));
        prop_assert!(inside(ZoneKind::Away, layout.away_block(aways - 1, side), b));
    }
    prop_assert!(layout.page(0, 1) >= layout.page(pages as u32 - 1, 0) + b);
    prop_assert!(inside(ZoneKind::Journal, layout.journal_block(layout.journal_blocks - 1), b));
    prop_assert_eq!(layout.journal_block(layout.journal_blocks), layout.journal_block(0));
    if layout.slot_count > 0 {
        prop_assert!(inside(ZoneKind::Slots, layout.slot(layout.slot_count as u32 - 1), bimetal_format::CHUNK));
    }
    Ok(())
}

#[test]
fn every_single_bit_flip_of_a_block_is_refused() {
    for kind in KINDS {
        let mut b = block(kind, 5, salt()).bytes;
        for bit in 0..BLOCK * 8 {
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(!accepts(kind, &b, &salt()), "{kind}: bit {bit}");
            b[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(accepts(kind, &b, &salt()));
    }
}

#[test]
fn a_torn_block_is_refused() {
    for kind in KINDS {
        let (old, new) = (block(kind, 5, salt()).bytes, block(kind, 6, salt()).bytes);
        for cut in (512..BLOCK).step_by(512) {
            let torn = [&new[..cut], &old[cut..]].concat();
            // Two blocks that agree behind the cut are not torn but equal.
            assert!(torn == new || torn == old || !accepts(kind, &torn, &salt()), "{kind}: cut at {cut}");
        }
    }
}

#[test]
fn members_that_leave_are_told_and_need_a_reader_that_knows_them() {
    let plain = (0..).map(label).find(|l| l.members.len() > 2).expect("some have members");
    let features = |l: &Label| l.encode(LABEL_A)[40];
    assert_eq!(features(&plain) & 8, 0);
    for state in [MemberCode::Leaving, MemberCode::Left] {
        let mut l = plain.clone();
        l.members[1].state = state;
        let bytes = l.encode(LABEL_A);
        assert_eq!((features(&l) & 8, Label::decode(&bytes, LABEL_A).expect("sound")), (8, l));
    }
    // There are three states; a fourth has a checksum that is right.
    let mut bytes = plain.encode(LABEL_A);
    bytes[8192 + 29] = 3;
    bytes[8..12].fill(0);
    let crc = bimetal_format::block::crc32c(&[&bytes[..], &LABEL_A.to_le_bytes()].concat());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(Label::decode(&bytes, LABEL_A), Err(LabelError::Field("member state")));
}

/// A label with a right checksum may have been made by a program that errs, or by somebody malicious.
#[test]
fn a_volume_table_that_contradicts_itself_is_refused() {
    let sound = (0..).map(label).find(|l| l.volumes.len() > 2).expect("some have volumes");
    let refused = |change: &dyn Fn(&mut Label)| {
        let mut l = sound.clone();
        change(&mut l);
        Label::decode(&l.encode(LABEL_A), LABEL_A).is_err()
    };
    assert!(!refused(&|_| ()));
    assert!(refused(&|l| l.volumes[1].id = l.volumes[0].id), "a number given twice");
    assert!(refused(&|l| l.next_volume = l.volumes[0].id), "a number that is to be given still");
    assert!(refused(&|l| l.volumes[1].name = l.volumes[0].name.clone()), "a name given twice");
    assert!(refused(&|l| l.volumes[1].runs = l.volumes[0].runs.clone()), "pages of two volumes");
    let deleted = |l: &mut Label| {
        l.volumes[1].name = l.volumes[0].name.clone();
        l.volumes[1].state = VolumeState::Deleted;
    };
    assert!(!refused(&deleted), "a deleted volume's name is free");
}

#[test]
fn a_label_knows_which_epochs_were_served() {
    let mut epoch = label(42).epoch;
    (epoch.confirmed, epoch.cut_off, epoch.history) = (true, 0, vec![30, 20, 10]);
    assert!(epoch.has_served_since(30) && !epoch.has_served_since(epoch.id));
    // Two starts were cut off since 20.
    (epoch.confirmed, epoch.cut_off) = (false, 2);
    assert_eq!([30, 20, 10].map(|id| epoch.has_served_since(id)), [false, false, true]);
    assert_eq!(epoch.last_served(), Some(20));
    assert_eq!(epoch.history_after(false, |_| true), (vec![epoch.id, 30, 20, 10], 3));
    // An earlier version began it, and did not say.
    epoch.cut_off = 0;
    assert!(!epoch.has_served_since(10));
    assert_eq!(epoch.last_served(), None);
    assert_eq!(epoch.history_after(false, |_| true).1, 0);
    epoch.confirmed = true;
    assert_eq!(epoch.last_served(), Some(epoch.id));
    assert_eq!(epoch.history_after(true, |_| true).1, 1);
}

#[test]
fn starts_that_are_cut_off_push_nobody_out_of_the_history() {
    let mut epoch = label(42).epoch;
    (epoch.id, epoch.confirmed, epoch.cut_off, epoch.history) = (1000, true, 1, vec![30, 20, 10]);
    // One start came as far as a member that carries its epoch from then on.
    let carried = |id| id == 1003;
    for id in 1001..1200 {
        let (history, cut_off) = epoch.history_after(epoch.confirmed, carried);
        (epoch.id, epoch.confirmed, epoch.cut_off, epoch.history) = (id, false, cut_off, history);
        assert!(epoch.history.len() <= EPOCH_HISTORY);
        assert_eq!(epoch.last_served(), Some(1000));
        assert!(!epoch.has_served_since(1000) && epoch.has_served_since(30));
        assert!(id <= 1003 || epoch.history.contains(&1003) && !epoch.has_served_since(1003));
        assert!(epoch.history.ends_with(&[1000, 30, 20, 10]));
    }
    // Where all of them are carried, the oldest of all goes, and at last it is not known any more which were served.
    let all = |_| true;
    for id in 1200..1300 {
        let (history, cut_off) = epoch.history_after(false, all);
        (epoch.id, epoch.cut_off, epoch.history) = (id, cut_off, history);
    }
    assert_eq!((epoch.history.len(), epoch.cut_off, epoch.last_served()), (EPOCH_HISTORY, 0, None));
    // Once it is confirmed, everything begins anew.
    epoch.confirmed = true;
    assert_eq!(epoch.history_after(true, all).1, 1);
}
