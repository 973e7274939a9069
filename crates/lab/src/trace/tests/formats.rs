//! Each format, from inputs made by hand.

use super::*;

/// The same four requests in every format that has no discards and flushes.
fn expected() -> Vec<Access> {
    vec![
        access(0, Op::Write, 4096, 512),
        access(15, Op::Read, 1 << 20, 65536),
        access(15, Op::Read, 0, 4096),
        access(2_000_000, Op::Write, 4096, 512),
    ]
}

const MSR: &str = "\
128166372003061629,usr,0,Write,4096,512,5829
128166372003061779,usr,0,Read,1048576,65536,1173
128166372003061779,usr,0,Read,0,4096,1173
128166372023061629,usr,0,Write,4096,512,9
";

const SPC: &str = "\
0,8,512,w,10.500000
0, 2048 ,65536,R,10.500015
0,0,4096,r,10.500015,extra,fields
0,8,512,W,12.5
";

const BLKPARSE: &str = "\
  8,16   0        1     5.000000000  4711  A   W 8 + 1 <- (8,17) 6
  8,16   0        2     5.000000100  4711  Q   W 8 + 1 [dd]
  8,16   0        3     5.000000900  4711  G   W 8 + 1 [dd]
  8,16   1        1     5.000015200  4712  Q  RA 2048 + 128 [cat]
  8,16   1        2     5.000015200  4712  Q   R 0 + 8 [cat]
  8,16   1        3     5.000016000  4712  P   N [cat]
  8,16   1        4     5.000017000  4712  U   N [cat] 2
  8,16   1        5     5.000018000  4712  D   R 0 + 8 [cat]
  8,16   1        6     5.000019000     0  C   R 0 + 8 [0]
  8,16   0        4     6.000000000     0  m   N cfq4711 slice expired t=0
  8,16   0        5     7.000000100  4711  Q  WM 8 + 1 [kworker/0:1]
CPU0 (8,16):
 Reads Queued:           2,       68KiB\t Writes Queued:           2,        1KiB
Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,16): 11 entries
Skips: 0 forward (0 -   0.0%)
";

const FIO_2: &str = "\
fio version 2 iolog
/dev/sdb add
/dev/sdb open
/dev/sdb write 4096 512
/dev/sdb wait 15
/dev/sdb read 1048576 65536
/dev/sdb read 0 4096
/dev/sdb wait 1999985
/dev/sdb write 4096 512
/dev/sdb close
";

const FIO_3: &str = "\
fio version 3 iolog
100 /dev/sdb add
101 /dev/sdb open
150 /dev/sdb write 4096 512
165 /dev/sdb read 1048576 65536
165 /dev/sdb read 0 4096
2000150 /dev/sdb write 4096 512
2000160 /dev/sdb close
";

const CSV: &str = "\
time_us,op,offset_bytes,length_bytes
0,W,4096,512
15,R,1048576,65536
15,R,0,4096
2000000,W,4096,512
";

fn vscsi(record: fn(u8, u32, u64, u64) -> Vec<u8>) -> Vec<u8> {
    [
        record(0x2a, 512, 8, 5_000_000),
        record(0x88, 65536, 2048, 5_000_015),
        record(0x08, 4096, 0, 5_000_015),
        record(0x8a, 512, 8, 7_000_000),
    ]
    .concat()
}

fn blktrace_file(big: bool) -> Vec<u8> {
    let (read, write) = (1, 2);
    [
        // The name of the process, and when the trace began.
        blktrace(big, 0, 0, 0, 1 << (10 + 16), 16),
        blktrace(big, 0, 0, 0, 1 | 1 << (10 + 16), 8),
        blktrace(big, 5_000_000_100, 8, 512, queued(write), 0),
        // Remapped, with where from.
        blktrace(big, 5_000_000_200, 8, 512, 15 | write << 16, 16),
        blktrace(big, 5_000_015_200, 2048, 65536, queued(read), 0),
        // A cgroup id follows, which the event's bit 8 says.
        blktrace(big, 5_000_015_200, 0, 4096, queued(read) | 1 << 8, 8),
        blktrace(big, 5_000_018_000, 0, 4096, 7 | read << 16, 0),
        blktrace(big, 5_000_019_000, 0, 4096, 8 | read << 16, 0),
        blktrace(big, 7_000_000_100, 8, 512, queued(write), 0),
    ]
    .concat()
}

fn samples() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::Csv, CSV.into()),
        (Format::Msr, MSR.into()),
        (Format::Spc, SPC.into()),
        (Format::Blkparse, BLKPARSE.into()),
        (Format::Fio, FIO_2.into()),
        (Format::Fio, FIO_3.into()),
        (Format::Vscsi, vscsi(vscsi1)),
        (Format::Vscsi, vscsi(vscsi2)),
        (Format::Blktrace, blktrace_file(false)),
        (Format::Blktrace, blktrace_file(true)),
    ]
}

#[test]
fn every_format_is_recognised_and_read_plain_and_compressed() {
    for (format, bytes) in samples() {
        for bytes in [bytes.clone(), gzip(&bytes)] {
            assert_eq!(reader(&bytes, &Options::default()).unwrap().format(), format);
            assert_eq!(read_clean(&bytes), expected(), "{format}");
            let (named, failed, _) = read_with(&bytes, &of(format));
            assert!(failed.is_none());
            assert_eq!(named, expected(), "{format} by name");
        }
    }
    // Every format has a sample.
    for format in Format::ALL {
        assert!(samples().iter().any(|(f, _)| *f == format), "{format}");
    }
}

#[test]
fn one_record_is_enough_to_recognise_a_binary_trace() {
    let one = vscsi1(0x28, 4096, 8, 99);
    assert_eq!(read_clean(&one), [access(0, Op::Read, 4096, 4096)]);
    let one = vscsi2(0x28, 4096, 8, 99);
    assert_eq!(read_clean(&one), [access(0, Op::Read, 4096, 4096)]);
}

#[test]
fn compressed_files_may_have_several_members_and_lines_a_return() {
    let (first, second) = CSV.split_at(60);
    let two = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    assert_eq!(read_clean(two), expected());
    for text in [CSV, MSR, SPC, FIO_2, FIO_3, BLKPARSE] {
        assert_eq!(read_clean("\n \n".to_owned() + text), expected(), "after empty lines");
        assert_eq!(read_clean(text.replace('\n', "\r\n")), expected());
    }
}

#[test]
fn discards_and_flushes() {
    let csv = "time_us,op,offset_bytes,length_bytes\n5,T,131072,1048576\n6,F,0,0\n";
    let discard_flush = [access(0, Op::Trim, 131_072, 1 << 20), access(1, Op::Flush, 0, 0)];
    assert_eq!(read_clean(csv), discard_flush);
    let fio = "fio version 3 iolog\n5 f trim 131072 1048576\n6 f datasync 0 0\n";
    assert_eq!(read_clean(fio), discard_flush);
    let fio = "fio version 2 iolog\nf trim 131072 1048576\nf wait 1\nf sync\n";
    assert_eq!(read_clean(fio), discard_flush);
    let vscsi = [vscsi1(0x35, 0, 0, 6), vscsi1(0x2a, 512, 1, 6)].concat();
    assert_eq!(read_clean(vscsi), [access(0, Op::Flush, 0, 0), access(0, Op::Write, 512, 512)]);
    let blkparse = "\
8,0 1 1 0.000005000 9 Q DS 256 + 2048 [fstrim]
8,0 1 2 0.000006000 9 Q FWS [jbd2]
8,0 1 3 0.000007000 9 Q FWFS 8 + 8 [jbd2]
8,0 1 4 0.000008000 9 Q FN [jbd2]
";
    let flush = |time_us| access(time_us, Op::Flush, 0, 0);
    let mut expected = vec![discard_flush[0], flush(1)];
    // A flush before the write, and the write itself durable.
    expected.extend([flush(2), access(2, Op::Write, 4096, 4096), flush(2), flush(3)]);
    assert_eq!(read_clean(blkparse), expected);
    let (write, flush_kind, discard, fua) = (1 << 1, 1 << 2, 1 << 13, 1 << 15);
    let blktrace = [
        blktrace(false, 5000, 256, 1 << 20, queued(write | discard), 0),
        blktrace(false, 6000, 0, 0, queued(write | flush_kind), 0),
        blktrace(false, 7000, 8, 4096, queued(write | flush_kind | fua), 0),
        blktrace(false, 8000, 0, 0, queued(flush_kind), 0),
    ];
    assert_eq!(read_clean(blktrace.concat()), expected);
}

#[test]
fn other_events_of_a_request_can_be_taken() {
    for (event, time_us) in [(Event::Issue, 5_000_018), (Event::Complete, 5_000_019)] {
        let options = Options { event, ..Options::default() };
        for bytes in [blktrace_file(false), BLKPARSE.into()] {
            let mut reader = reader(bytes, &options).unwrap();
            assert_eq!(reader.next().unwrap().unwrap(), access(0, Op::Read, 0, 4096));
            assert_eq!(reader.start_ns(), Some(time_us * 1000));
            assert!(reader.next().is_none());
            assert!(reader.repairs().count(Fix::OtherEvent) >= 7);
        }
    }
}

/// A journal's flushed write as the kernel carries it out, in the forms that blkparse prints with and without `-t`.
#[test]
fn steps_of_a_flush() {
    let text = "\
  8,0    3        1     0.000000000   594  A FWFSM 512 + 16 <- (8,4) 0
  8,0    3        2     0.000001000   594  Q FWFSM 512 + 16 [(null)]
  8,0    3        3     0.000002000   195  D  FN [kworker/3:1H]
  8,0    2        4     0.000003000     0  C  FN 0 [0]
  8,0    2        5     0.000004000   323  D WSM 512 + 16 (     852) [kworker/2:1H]
  8,0    2        6     0.000005000     0  C WSM 512 + 16 (    1852) [0]
  8,0    2        7     0.000006000   323  D  FN (     900) [kworker/2:1H]
  8,0    2        8     0.000007000     0  C FWS 0 [0]
  8,0    2        9     0.000008000     0  C  WS 512 [0]
  8,0    2       10     0.000009000     0  C WSM 512 (    9000) [0]
  8,0    2       11     0.000010000     0 UT   N [kworker/2:1H] 1
";
    let taken = |event| {
        let (accesses, failed, repairs) = read_with(text, &Options { event, ..Options::default() });
        assert!(failed.is_none() && repairs.is_clean(), "{failed:?}");
        let ops: Vec<(u64, Op)> = accesses.iter().map(|a| (a.time_us, a.op)).collect();
        (ops, repairs.count(Fix::OtherCommand))
    };
    assert_eq!(taken(Event::Queue), (vec![(0, Op::Flush), (0, Op::Write), (0, Op::Flush)], 0));
    assert_eq!(taken(Event::Issue), (vec![(0, Op::Flush), (2, Op::Write), (4, Op::Flush)], 0));
    assert_eq!(taken(Event::Complete), (vec![(0, Op::Flush), (2, Op::Write), (4, Op::Flush)], 2));
    let (write, flush) = (1 << 1, 1 << 2);
    let done = |time, kind: u32| blktrace(false, time, 0, 0, 8 | kind << 16, 0);
    let binary = [done(0, flush), done(1000, write | flush), done(2000, write)].concat();
    let (accesses, failed, repairs) = read_with(binary, &Options { event: Event::Complete, ..Options::default() });
    assert!(failed.is_none() && repairs.is_clean());
    assert_eq!(accesses, [access(0, Op::Flush, 0, 0), access(1, Op::Flush, 0, 0)]);
    assert_eq!(repairs.count(Fix::OtherCommand), 1);
}

#[test]
fn what_is_written_is_read_again() {
    let mut accesses = expected();
    accesses.push(access(2_000_000, Op::Trim, 1 << 40, 1 << 36));
    accesses.push(access(2_000_001, Op::Flush, 0, 0));
    let mut text = Vec::new();
    assert_eq!(write_csv(accesses.iter().copied(), &mut text).unwrap(), 6);
    assert_eq!(read_clean(text), accesses);
}

#[test]
fn names_are_those_of_the_formats() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    let message = "pcap".parse::<Format>().unwrap_err().to_string();
    assert_eq!(message, "no trace format is named `pcap`; known are blktrace, csv, fio, msr, spc, blkparse, vscsi");
}
