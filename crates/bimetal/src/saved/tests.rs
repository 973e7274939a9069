//! The file: what is saved reads back, and nothing else is believed.

use std::path::PathBuf;

use bimetal_format::block::crc32c;
use bimetal_format::label::MemberCode;
use bimetal_format::layout::ZoneKind;

use super::read::{read_content, SavedContent};
use super::record::RecordWriter;
use super::testing::{images, labels, now, put_label, Memory, Power, GROUP, SIZE};
use super::write::save_devices;
use super::*;

const ID: [u8; 16] = [0x1d; 16];
const AT: u64 = 1_790_000_000;

fn devices(images: Vec<Vec<u8>>) -> Vec<(String, Memory)> {
    let device = |(i, image)| (format!("dev{i}"), Memory::new(image, &Power::default()));
    images.into_iter().enumerate().map(device).collect()
}

/// The file of these devices, and what the report says.
fn saved(devices: &[(String, Memory)]) -> (Vec<u8>, Saved) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let report = now(save_devices(ID, AT, devices, &path)).expect("saved");
    (std::fs::read(path).expect("there"), report)
}

fn read(bytes: &[u8]) -> anyhow::Result<SavedContent> {
    read_content(&mut &bytes[..])
}

/// What reading says of bytes that are not to be believed.
fn refused(bytes: &[u8]) -> String {
    format!("{:#}", read(bytes).err().expect("refused"))
}

/// The file of one member with little in its zones.
fn small() -> Vec<u8> {
    let mut image = vec![0; SIZE as usize];
    let label = labels(1).remove(0);
    let map = label.layout().map as usize;
    image[map..map + 4096].fill(3);
    put_label(&mut image, &label);
    saved(&devices(vec![image])).0
}

#[test]
fn what_was_saved_reads_back() {
    let images = images(3);
    let (bytes, report) = saved(&devices(images.clone()));
    assert_eq!((report.group.as_str(), report.file_bytes, report.at), ("tank", bytes.len() as u64, AT));
    assert_eq!(report.members.iter().map(|m| m.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(report.not_saved.is_empty() && report.missing.is_empty());
    assert!(report.members.iter().all(|m| m.unreadable_blocks == 0));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("copy");
    std::fs::write(&path, &bytes).expect("written");
    let file = SavedFile::open(&path).expect("sound");
    assert_eq!((file.group.as_str(), file.uuid, file.id, file.saved_at), ("tank", GROUP, ID, AT));
    let mut pieces = file.pieces().expect("read");
    let mut covered = 0;
    while let Some(piece) = pieces.next().expect("read") {
        let image = &images[piece.member][piece.offset as usize..][..piece.content.len()];
        assert!(piece.content == image && piece.holes.is_empty(), "byte {} of {}", piece.offset, piece.member);
        covered += piece.content.len() as u64;
    }
    assert_eq!(covered, file.members.iter().map(SavedMember::bytes).sum::<u64>());
    let of_label = |m: &SavedMember| m.label.clone();
    assert_eq!(file.members.iter().map(of_label).collect::<Vec<_>>(), labels(3));
}

#[test]
fn slots_and_zeros_take_no_room() {
    let bytes = small();
    // Labels: three blocks of each, and one of the map.
    assert!(bytes.len() < 12 * 4096, "{}", bytes.len());
    let covered: u64 = read(&bytes).expect("sound").members[0].extents.iter().map(|e| e.length).sum();
    let slots = labels(1)[0].zones.iter().find(|z| z.kind == ZoneKind::Slots).map(|z| z.offset);
    assert!(covered < slots.expect("there"), "{covered}");
}

#[test]
fn what_cannot_be_read_is_left_out_and_counted() {
    let images = images(1);
    let devices = devices(images.clone());
    let layout = labels(1)[0].layout();
    // One block of a label, two of the map that are not beside each other.
    for bad in [LABEL_A + 4096, layout.map, layout.map + 8192] {
        devices[0].1.make_bad(bad);
    }
    let (bytes, report) = saved(&devices);
    assert_eq!(report.members[0].unreadable_blocks, 3);
    let content = read(&bytes).expect("sound");
    let member = &content.members[0];
    assert_eq!(member.labels[0].offset, label_places(SIZE)[1], "the whole one comes first");
    assert_eq!(member.labels[1].saved(), [(0, 4096), (8192, 65536)]);
}

#[test]
fn a_device_without_label_is_named_and_a_missing_member_too() {
    let mut devices = devices(images(3));
    devices.remove(2);
    devices[1].1 = Memory::new(vec![0x55; 8 << 20], &Power::default());
    devices.push(("tiny".into(), Memory::new(vec![0; 4096], &Power::default())));
    let (bytes, report) = saved(&devices);
    assert_eq!(read(&bytes).expect("sound").members.len(), 1);
    assert_eq!(report.missing, ["member 1 (slow, 7 MiB)", "member 2 (slow, 8 MiB)"]);
    assert!(report.not_saved[0].starts_with("dev1: both places of its label hold no sound one"), "{report:?}");
    assert!(report.not_saved[1].starts_with("tiny: it is too small"), "{report:?}");
}

#[test]
fn who_is_no_member_by_the_newest_label_is_left_out_though_he_has_the_index_of_one() {
    let mut half = labels(3).remove(2);
    (half.joining, half.members_changed) = (true, true);
    half.members[2].uuid = [9; 16];
    let mut apart = half.clone();
    (apart.joining, apart.tables) = (false, 0);
    let mut left = labels(4).remove(3);
    left.members[3].state = MemberCode::Member;
    let mut members = labels(4);
    for label in &mut members {
        label.tables = 1;
        label.members[3].state = MemberCode::Left;
    }
    members.pop();
    let with = |label: &Label| {
        let mut image = vec![0; label.device_size as usize];
        put_label(&mut image, label);
        image
    };
    let images = [&half, &apart, &left].into_iter().chain(&members).map(with).collect();
    let (bytes, report) = saved(&devices(images));
    let content = read(&bytes).expect("restore takes it");
    assert_eq!(content.members.iter().map(|m| m.label.clone()).collect::<Vec<_>>(), members);
    let told = ["dev0: it was being added", "dev1: the newest label", "dev2: it has left"];
    assert_eq!(report.not_saved.len(), told.len(), "{report:?}");
    assert!(told.iter().zip(&report.not_saved).all(|(words, line)| line.starts_with(words)), "{report:?}");
    assert!(report.missing.is_empty(), "{report:?}");
}

#[test]
fn what_is_no_group_is_not_saved_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("saved");
    let refused = |devices: &[(String, Memory)]| {
        let error = now(save_devices(ID, AT, devices, &path)).expect_err("refused");
        assert!(!path.exists());
        format!("{error:#}")
    };
    assert!(refused(&devices(vec![vec![0; SIZE as usize]])).contains("nothing can be saved"));
    let twice = images(1).remove(0);
    assert!(refused(&devices(vec![twice.clone(), twice.clone()])).contains("dev1 is a copy"));
    let mut other = labels(1).remove(0);
    other.group = [1; 16];
    let mut image = twice.clone();
    put_label(&mut image, &other);
    assert!(refused(&devices(vec![twice.clone(), image])).contains("of another one"));
    std::fs::write(&path, "mine").expect("written");
    let error = now(save_devices(ID, AT, &devices(vec![twice]), &path)).expect_err("it is there");
    assert!(error.to_string().contains("is there already"), "{error}");
    assert_eq!(std::fs::read(&path).expect("there"), b"mine");
}

#[test]
fn a_member_that_grew_is_saved_where_its_label_says() {
    let mut image = images(1).remove(0);
    let second = label_places(SIZE)[1] as usize;
    let kept = image[second..second + LABEL_SIZE].to_vec();
    image.extend(vec![0x66; 1 << 20]);
    let content = read(&saved(&devices(vec![image])).0).expect("sound");
    assert_eq!((content.members[0].size, content.members[0].label.device_size), (SIZE + (1 << 20), SIZE));
    assert!(content.members[0].labels[1].content == kept);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let bytes = small();
    for len in (0..bytes.len()).step_by(97).chain(bytes.len() - 40..bytes.len()) {
        assert!(read(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
    }
    // At the end of every record.
    let starts = bytes.windows(4).enumerate().filter(|(_, w)| w == b"BMsv").map(|(at, _)| at);
    let starts: Vec<usize> = starts.collect();
    assert!(starts.len() > 3);
    for at in starts {
        assert!(refused(&bytes[..at]).contains("cut off"), "{at}");
    }
    let longer = [&bytes[..], b"x"].concat();
    assert!(refused(&longer).contains("follows its end"));
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let mut bytes = small();
    for at in 0..bytes.len() {
        bytes[at] ^= 0x20;
        assert!(read(&bytes).is_err(), "byte {at}");
        bytes[at] ^= 0x20;
    }
    assert!(read(&bytes).is_ok());
}

#[test]
fn what_is_something_else_is_told_so() {
    for other in [&b""[..], b"\n", b"LUKS\xba\xbe", b"BIMETAL\x01", &[0; 4096], &[b'x'; 100_000]] {
        assert!(refused(other).contains("no file that `bimetal dump --save` has made"), "{other:?}");
    }
    for version in ["2", "11", "", "1 "] {
        let text = format!("{MAGIC}{version}\n{{}}\n");
        assert!(refused(text.as_bytes()).contains("use a newer Bimetal"), "{version}");
    }
}

/// The header of [`small`] after a change, with a right checksum, and its records sealed anew.
fn forged(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let bytes = small();
    let end = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').nth(1).expect("two lines").0;
    let begin = bytes.iter().position(|b| *b == b'\n').expect("a line") + 1;
    let mut header: Header = serde_json::from_slice(&bytes[begin..end]).expect("JSON");
    change(&mut header);
    let label = &labels(1)[0];
    let pieces = label_places(SIZE).map(|place| (place, label.encode(place)));
    with_records(&header, &pieces)
}

fn with_records(header: &Header, records: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = format!("{MAGIC}{VERSION}\n{}\n", serde_json::to_string(header).expect("JSON")).into_bytes();
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    let mut writer = RecordWriter::new(bytes, crc);
    for (offset, content) in records {
        writer.content(0, *offset, content).expect("memory");
    }
    writer.end().expect("memory")
}

/// What is done to a header.
type Forgery<'a> = Box<dyn FnOnce(&mut Header) + 'a>;

#[test]
fn a_header_that_is_forged_is_refused() {
    assert!(read(&forged(|_| {})).is_ok(), "the forger does nothing else");
    let extent = |what: &str, offset, length| Extent { what: what.into(), offset, length };
    let slots = labels(1)[0].layout().slots;
    let impossible: [(&str, Forgery<'_>); 14] = [
        ("huge", Box::new(|h| h.members[0].extents[1].length = !4095)),
        ("beyond the device", Box::new(|h| h.members[0].extents.push(extent("map", SIZE, 4096)))),
        ("overlap", Box::new(|h| h.members[0].extents[2].offset -= 4096)),
        ("none", Box::new(|h| h.members[0].extents[1].length = 0)),
        ("not aligned", Box::new(|h| h.members[0].extents[1].length += 512)),
        ("many", Box::new(|h| h.members[0].extents = (0..500).map(|i| extent("map", i * 4096, 4096)).collect())),
        ("size", Box::new(|h| h.members[0].size_bytes = SIZE - 4096)),
        ("huge size", Box::new(|h| h.members[0].size_bytes = u64::MAX)),
        ("twice", Box::new(|h| h.members.push(h.members[0].clone()))),
        ("nobody", Box::new(|h| h.members.clear())),
        ("a path", Box::new(|h| h.group = "../../etc".into())),
        ("no UUID", Box::new(|h| h.uuid = "ä".repeat(16))),
        ("no id", Box::new(|h| h.id.clear())),
        ("another member", Box::new(|h| h.members[0].index = 7)),
    ];
    for (what, change) in impossible {
        let said = refused(&forged(change));
        assert!(said.contains("header is impossible") || said.contains("is not where one can be"), "{what}: {said}");
    }
    let contradicting: [(&str, Forgery<'_>); 8] = [
        ("slots", Box::new(|h| h.members[0].extents.insert(6, extent("map", slots, 4096)))),
        ("a zone less", Box::new(|h| drop(h.members[0].extents.remove(2)))),
        ("other zones", Box::new(|h| h.members[0].extents[1].what = "map".into())),
        ("group", Box::new(|h| h.group = "pool".into())),
        ("UUID", Box::new(|h| h.members[0].uuid = uuid_of([9; 16]))),
        ("epoch", Box::new(|h| h.members[0].epoch = "0x1".into())),
        ("sequence", Box::new(|h| h.members[0].sequence += 1)),
        ("tier", Box::new(|h| h.members[0].tier = "slow".into())),
    ];
    for (what, change) in contradicting {
        let said = refused(&forged(change));
        assert!(said.contains("contradict each other"), "{what}: {said}");
    }
}

fn uuid_of(uuid: [u8; 16]) -> String {
    crate::uuid::uuid_text(&uuid)
}

#[test]
fn records_that_lie_elsewhere_are_refused() {
    let bytes = small();
    let begin = bytes.iter().position(|b| *b == b'\n').expect("a line") + 1;
    let end = begin + bytes[begin..].iter().position(|b| *b == b'\n').expect("a line");
    let header: Header = serde_json::from_slice(&bytes[begin..end]).expect("JSON");
    let label = &labels(1)[0];
    let [a, b] = label_places(SIZE).map(|place| (place, label.encode(place)));
    let layout = label.layout();
    let block = |offset| (offset, vec![1; 4096]);
    let refused = |records: &[(u64, Vec<u8>)], words: &str| {
        let said = refused(&with_records(&header, records));
        assert!(said.contains(words), "{said}");
    };
    refused(&[a.clone(), block(layout.slots), b.clone()], "is not where one can be");
    refused(&[a.clone(), block(0), b.clone()], "is not where one can be");
    refused(&[b.clone(), a.clone()], "is not where one can be");
    refused(&[a.clone(), block(layout.map), block(layout.map), b.clone()], "is not where one can be");
    // Beyond the end of its extent: the last zone is followed by slots.
    refused(&[a.clone(), (layout.away, vec![1; 3 * 4096]), b.clone()], "is not where one can be");
    refused(&[block(layout.map)], "no sound label of member 0");
    let [torn_a, torn_b] = [a, b].map(|(at, mut bytes)| {
        bytes[20] ^= 1;
        (at, bytes)
    });
    refused(&[torn_a, torn_b], "no sound label of member 0");
}

#[test]
fn a_file_that_is_none_is_refused_by_its_path() {
    let said = format!("{:#}", SavedFile::open(&PathBuf::from("/")).err().expect("refused"));
    assert!(said.contains("no regular file"), "{said}");
    let said = format!("{:#}", SavedFile::open(&PathBuf::from("/nothing/there")).err().expect("refused"));
    assert!(said.contains("/nothing/there cannot be read"), "{said}");
}
