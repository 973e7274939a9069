//! Several devices in one trace, several traces of one machine.

use super::*;

const GIB: u64 = 1 << 30;

/// Three units; the second reaches into its second GiB.
const SPC: &str = "\
3,0,512,r,0.0
1,2097152,4096,w,0.5
3,1,512,r,1.0
7,0,512,w,2.0
1,0,512,r,3.0
";

fn devices(devices: Devices) -> Options {
    Options { devices: Some(devices), ..Options::default() }
}

#[test]
fn a_second_device_is_an_error_if_nobody_said_where() {
    let (before, message) = fails(SPC, &Options::default());
    assert_eq!(before, [access(0, Op::Read, 0, 512)]);
    assert_eq!(message, "line 2: a second device, `1` after `3`: choose one, or say where each lies");
}

#[test]
fn one_device_of_several() {
    let (kept, failed, repairs) = read_with(SPC, &devices(Devices::Only("1".into())));
    assert!(failed.is_none());
    assert_eq!(kept, [access(0, Op::Write, GIB, 4096), access(2_500_000, Op::Read, 0, 512)]);
    assert_eq!(repairs.count(Fix::OtherDevice), 3);
    let message = fails(SPC, &devices(Devices::Only("9".into()))).1;
    assert!(message.contains("a request to another device (5 times, first at line 1)"), "{message}");
    let msr = "128166372003061629,usr,1,Write,4096,512,5829\n";
    assert_eq!(read_with(msr, &devices(Devices::Only("usr.1".into()))).0.len(), 1);
}

#[test]
fn devices_in_slots() {
    let (kept, failed, repairs) = read_with(SPC, &devices(Devices::Slots(GIB)));
    assert!(failed.is_none());
    let offsets: Vec<u64> = kept.iter().map(|a| a.offset).collect();
    // The write lies beyond its slot, and nothing may lie in another's.
    assert_eq!(offsets, [0, 512, 2 * GIB, GIB]);
    assert_eq!(repairs.count(Fix::BeyondDevice), 1);
}

/// One address that is no device's must not take the room of the others.
#[test]
fn one_stray_address_loses_one_line() {
    let line = |i: u64, at: u64| format!("{},host,{},Read,{at},4096,1\n", 128_166_372_000_000_000 + i, i % 3);
    for (at, kept) in [(9_223_372_036_854_000_000, 3000), (1 << 50, 3000), ((1 << 50) - 4096, 3001)] {
        let text: String = (0..3000).map(|i| line(i, i * 4096)).collect::<String>() + &line(3000, at);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut reader = open(file.path(), &Options::default()).unwrap();
        assert_eq!(reader.by_ref().filter(|a| a.is_ok()).count(), kept);
        assert_eq!(reader.repairs().count(Fix::BeyondDevice), 3001 - kept as u64);
        let said = reader.repairs().to_string();
        assert!(
            kept > 3000 || said.starts_with("a request beyond the end of its device (once at line 3001, of host.0)"),
            "{said}"
        );
    }
}

#[test]
fn a_file_is_surveyed_first() {
    for bytes in [SPC.as_bytes().to_vec(), gzip(SPC.as_bytes())] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let extents = survey(file.path(), &Options::default()).unwrap();
        let expected = [("3", 0, GIB), ("1", GIB, 2 * GIB), ("7", 3 * GIB, GIB)];
        let expected = expected.map(|(name, start, len)| Extent { name: name.into(), start, len });
        assert_eq!(extents, expected);
        let mut reader = open(file.path(), &Options::default()).unwrap();
        let offsets: Vec<u64> = reader.by_ref().map(|a| a.unwrap().offset).collect();
        assert_eq!(offsets, [0, 2 * GIB, 512, 3 * GIB, GIB]);
        assert!(reader.repairs().is_clean());
        let end = Options { volume_bytes: Some(3 * GIB), ..Options::default() };
        let kept: Vec<_> = open(file.path(), &end).unwrap().collect();
        assert_eq!(kept.len(), 4);
    }
}

#[test]
fn no_trace_has_thousands_of_devices() {
    let text: String = (0..5000).map(|asu| format!("{asu},0,512,r,0.0\n")).collect();
    let (before, message) = fails(text, &devices(Devices::Slots(GIB)));
    assert_eq!((before.len(), message.as_str()), (4096, "line 4097: more than 4096 devices"));
}

#[test]
fn files_of_several_cpus_are_merged_by_time() {
    let cpu = |events: &[(u64, u64)]| -> Vec<u8> {
        events.iter().flat_map(|&(time_ns, sector)| blktrace(false, time_ns, sector, 512, queued(1), 0)).collect()
    };
    let parts = [cpu(&[(7_000_000, 3), (9_000_000, 5)]), cpu(&[(5_000_000, 1), (6_000_000, 2), (8_000_000, 4)])];
    let empty = blktrace(false, 1, 0, 0, 1 << (10 + 16), 0);
    let readers = |more: Vec<u8>| {
        parts.iter().chain([&more]).map(|bytes| reader(bytes, &Options::default()).unwrap()).collect::<Vec<_>>()
    };
    let merged: Vec<Access> = Merge::new(readers(empty.clone())).map(Result::unwrap).collect();
    let expected: Vec<Access> = (0..5).map(|i| access(i * 1000, Op::Read, (i + 1) * 512, 512)).collect();
    assert_eq!(merged, expected);
    // An error ends it, after what lies before.
    let bad = [cpu(&[(5_500_000, 9)]), vec![0; 48]].concat();
    let merged: Vec<_> = Merge::new(readers(bad)).collect();
    assert_eq!(merged.len(), 3);
    assert!(matches!(merged[2], Err(TraceError::Bad { .. })));
    let mut nothing = Merge::new(vec![reader(&empty, &Options::default()).unwrap()]);
    assert!(matches!(nothing.next(), Some(Err(TraceError::Empty { .. }))));
    assert!(nothing.next().is_none());
    assert!(Merge::new(Vec::new()).next().is_none());
}
