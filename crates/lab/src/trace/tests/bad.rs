//! Everything that can be wrong with a trace: an error that says where, or a repair that is counted.

use super::*;

const HEADER: &str = "time_us,op,offset_bytes,length_bytes";

fn csv(lines: &[&str]) -> String {
    let mut text = HEADER.to_owned() + "\n";
    for line in lines {
        text += line;
        text.push('\n');
    }
    text
}

fn repaired(bytes: impl AsRef<[u8]>, options: &Options, fixes: &[(Fix, u64)]) -> Vec<Access> {
    let (accesses, failed, repairs) = read_with(bytes, options);
    assert!(failed.is_none(), "{failed:?}");
    for fix in Fix::ALL {
        let expected = fixes.iter().find(|(f, _)| *f == fix).map_or(0, |(_, n)| *n);
        assert_eq!(repairs.count(fix), expected, "{fix:?}: {repairs}");
        assert_eq!(repairs.first(fix).is_some(), expected > 0);
    }
    accesses
}

#[test]
fn an_empty_file_is_an_error() {
    let (none, message) = fails("", &Options::default());
    assert!(none.is_empty());
    assert_eq!(message, "the trace holds no requests");
    assert_eq!(fails(gzip(b""), &Options::default()).1, "the trace holds no requests");
    for format in Format::ALL {
        assert_eq!(fails("", &of(format)).1, "the trace holds no requests");
    }
    assert_eq!(fails(csv(&[]), &Options::default()).1, "the trace holds no requests");
    assert_eq!(
        fails(csv(&["0,R,0,0", "0,R,0,0"]), &Options::default()).1,
        "the trace holds no requests: a request of no bytes (2 times, first at line 2): dropped"
    );
    let issued = blktrace(false, 0, 0, 512, 7 | 1 << 16, 0);
    assert_eq!(
        fails(issued, &Options::default()).1,
        "the trace holds no requests: an event of another kind (once at record 1): left out"
    );
}

#[test]
fn the_wrong_format_is_told() {
    let unknown = "the format is not recognised; known are blktrace, csv, fio, msr, spc, blkparse, vscsi";
    for text in ["hello\n", "a,b,c,d\n", "1,2,3,4\n", "\u{1f}", "\n\n\n", "%PDF-1.4\n%\u{e2}"] {
        assert_eq!(fails(text, &Options::default()).1, unknown, "{text:?}");
    }
    let as_csv = fails("fio version 2 iolog\nf read 0 512\n", &of(Format::Csv)).1;
    assert_eq!(as_csv, format!("line 1: `{HEADER}` was expected, not `fio version 2 iolog`"));
    let as_fio = fails(csv(&["0,R,0,512"]), &of(Format::Fio)).1;
    assert_eq!(as_fio, format!("line 1: `fio version 3 iolog` was expected, not `{HEADER}`"));
    let as_msr = fails(csv(&["0,R,0,512"]), &of(Format::Msr)).1;
    assert_eq!(as_msr, "line 1: the field `Timestamp` is not a number that fits: `time_us`");
    let as_spc = fails("128166372003061629,usr,0,Write,4096,512,5829\n", &of(Format::Spc)).1;
    assert_eq!(as_spc, "line 1: the field `LBA` is not a number that fits: `usr`");
    let as_blktrace = fails(csv(&["0,R,0,512"; 9]), &of(Format::Blktrace)).1;
    assert_eq!(as_blktrace, "record 1: the record's mark is 0x656d6974, not that of the format");
    let as_vscsi = fails(csv(&["0,R,0,512"; 9]), &of(Format::Vscsi)).1;
    assert!(as_vscsi.starts_with("record 1: version "), "{as_vscsi}");
    // No line of it is an event.
    let as_blkparse = fails(csv(&["0,R,0,512"]), &of(Format::Blkparse)).1;
    assert!(as_blkparse.starts_with("the trace holds no requests: an event of another kind (2 times"), "{as_blkparse}");
}

#[test]
fn a_bad_line_is_named_and_what_came_before_is_not_lost() {
    let cases = [
        ("5,R,0", "the field `length_bytes` is missing"),
        ("5", "the field `op` is missing"),
        ("5,,0,512", "the field `op` is missing"),
        ("5,X,0,512", "unknown operation `X`"),
        ("5,read,0,512", "unknown operation `read`"),
        ("-5,R,0,512", "the field `time_us` is not a number that fits: `-5`"),
        ("5,R,1e6,512", "the field `offset_bytes` is not a number that fits: `1e6`"),
        ("5,R,0,18446744073709551616", "the field `length_bytes` is not a number that fits: `18446744073709551616`"),
        ("5,R,0,\u{7}", "the field `length_bytes` is not a number that fits: `\\x07`"),
    ];
    for (line, message) in cases {
        let (before, error) = fails(csv(&["0,R,0,512", "", line, "9,R,0,512"]), &Options::default());
        assert_eq!(error, format!("line 4: {message}"));
        assert_eq!(before, [access(0, Op::Read, 0, 512)]);
    }
}

#[test]
fn unknown_operations_of_the_other_formats() {
    let ok = "128166372003061629,usr,0,Write,4096,512,5829\n";
    let bad = ok.replace("Write", "Erase");
    assert_eq!(fails(ok.to_owned() + &bad, &Options::default()).1, "line 2: unknown operation `Erase`");
    assert_eq!(fails("0,8,512,w,0.1\n0,8,512,x,0.1\n", &Options::default()).1, "line 2: unknown operation `x`");
    let fio = "fio version 3 iolog\n1 f read 0 512\n2 f wait 100 0\n";
    assert_eq!(fails(fio, &Options::default()).1, "line 3: unknown operation `wait`");
    let blkparse = "8,0 1 1 0.000005000 9 Q R 256 + 8 [a]\n8,0 1 1 0.000005000 9 Q Z 256 + 8 [a]\n";
    assert_eq!(fails(blkparse, &Options::default()).1, "line 2: unknown operation `Z`");
    let cut = |end: &str| format!("8,0 1 1 0.1 9 Q R 8 + 1 [a]\n8,0 1 1 0.1 9 Q R{end}\n");
    assert_eq!(fails(cut(""), &Options::default()).1, "line 2: the field `sector` is missing");
    assert_eq!(fails(cut(" 8"), &Options::default()).1, "line 2: the field `+` is missing");
    assert_eq!(fails(cut(" 8 +"), &Options::default()).1, "line 2: the field `sectors` is missing");
    assert_eq!(
        fails(cut(" x + 1"), &Options::default()).1,
        "line 2: the field `sector` is not a number that fits: `x`"
    );
    // INQUIRY, UNMAP and WRITE SAME move no data, or do not say where.
    let vscsi: Vec<u8> = [0x12u8, 0x42, 0x93, 0x2a].iter().flat_map(|&command| vscsi1(command, 512, 1, 0)).collect();
    let kept = repaired(vscsi, &Options::default(), &[(Fix::OtherCommand, 3)]);
    assert_eq!(kept, [access(0, Op::Write, 512, 512)]);
    let passed_on = "8,0 1 1 0.1 9 Q R 36 (12 00 00 00 24 00 00) [sg_inq]\n8,0 1 1 0.1 9 Q R 8 + 1 [a]\n";
    let kept = repaired(passed_on, &Options::default(), &[(Fix::OtherCommand, 1)]);
    assert_eq!(kept, [access(0, Op::Read, 4096, 512)]);
}

#[test]
fn times_that_go_back_are_set_to_the_latest() {
    let text = csv(&["100,R,0,512", "90,R,512,512", "110,R,0,512", "105,R,0,512"]);
    let kept = repaired(text, &Options::default(), &[(Fix::Backwards, 2)]);
    assert_eq!(kept.iter().map(|a| a.time_us).collect::<Vec<_>>(), [0, 0, 10, 10]);
}

fn times(accesses: &[Access]) -> Vec<u64> {
    accesses.iter().map(|a| a.time_us).collect()
}

#[test]
fn a_time_that_is_far_ahead_of_all_others_is_replaced() {
    let far = csv(&["0,R,0,512", "5,R,0,512", "18446744073709551615,R,0,512", "7,R,0,512", "9,R,0,512"]);
    let kept = repaired(far, &Options::default(), &[(Fix::Ahead, 1)]);
    assert_eq!(times(&kept), [0, 5, 5, 7, 9]);
    // The very first, some together, and the last, which nothing follows.
    let first = csv(&["18446744073709551615,R,0,512", "7,R,0,512", "9,R,0,512"]);
    assert_eq!(times(&repaired(first, &Options::default(), &[(Fix::Ahead, 1)])), [0, 0, 2]);
    let day = 86_400_000_000u64;
    let some = [0, 5, 90 * day, 91 * day, 6, 7].map(|us| format!("{us},R,0,512"));
    let some = csv(&some.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(times(&repaired(some, &Options::default(), &[(Fix::Ahead, 2)])), [0, 5, 5, 5, 6, 7]);
    let last = csv(&["0,R,0,512", "5,R,0,512", "18446744073709551615,R,0,512"]);
    assert_eq!(times(&repaired(last, &Options::default(), &[(Fix::Ahead, 1)])), [0, 5, 5]);
    // A pause of months that everything after it agrees with is one.
    let pause = csv(&[format!("0,R,0,512\n{},R,0,512\n{},R,0,512", 90 * day, 90 * day + 1).as_str()]);
    assert_eq!(times(&repaired(pause, &Options::default(), &[])), [0, 90 * day, 90 * day + 1]);
    // An error after a request that still waits does not lose it.
    let (before, message) = fails(csv(&["0,R,0,512", &format!("{},R,0,512", 90 * day), "x"]), &Options::default());
    assert_eq!((times(&before), &message[..7]), (vec![0, 90 * day], "line 4:"));
}

#[test]
fn a_trace_that_is_not_in_order_is_refused() {
    let second = 1_000_000u64;
    let lines = |back: u64| -> String {
        // Now and then one of a minute ago.
        (0..20_000)
            .map(|i| if i % back == back - 1 { (i - 60) * second } else { i * second })
            .map(|t| format!("{t},R,0,512\n"))
            .collect()
    };
    let text = |back| format!("{HEADER}\n{}", lines(back));
    let message = fails(text(80), &Options::default()).1;
    assert_eq!(
        message,
        "250 of 20000 requests are more than 10 s earlier than one before them, first at line 81; the latest so far is at \
         line 20000: the trace is not in order of time"
    );
    assert_eq!(repaired(text(200), &Options::default(), &[(Fix::Backwards, 100)]).len(), 20_000);
    // What a queue does to the order is no reason.
    let jitter: String = (0..20_000u64).map(|i| format!("{},R,0,512\n", (i ^ 3) * second)).collect();
    assert!(read_with(format!("{HEADER}\n{jitter}"), &Options::default()).1.is_none());
}

#[test]
fn recordings_that_were_put_together_go_on() {
    let (one, two) = (csv(&["7,R,0,512", "9,R,0,512"]), csv(&["0,W,512,512", "3,W,512,512"]));
    for both in [format!("{one}{two}").into_bytes(), [gzip(one.as_bytes()), gzip(two.as_bytes())].concat()] {
        let kept = repaired(both, &Options::default(), &[(Fix::Header, 1)]);
        assert_eq!(times(&kept), [0, 2, 2, 5]);
    }
    // One that goes on by itself is left as it is, whatever was done to the one before.
    let three = format!("{one}{two}{}", csv(&["100,R,0,512"]));
    assert_eq!(times(&repaired(three, &Options::default(), &[(Fix::Header, 2)])), [0, 2, 2, 5, 93]);
    let fio = "fio version 2 iolog\nf add\nf read 0 512\nf wait 100\nf read 0 512\n".repeat(2);
    assert_eq!(times(&repaired(fio, &Options::default(), &[(Fix::Header, 1)])), [0, 100, 100, 200]);
}

#[test]
fn what_programs_put_before_a_trace_is_no_reason_to_refuse_it() {
    let msr = "128166372003061629,usr,0,Write,4096,512,5829\n";
    let heading = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    let options = [Options::default(), of(Format::Msr)];
    for options in &options {
        let kept = repaired(format!("{heading}{msr}"), options, &[(Fix::Header, 1)]);
        assert_eq!(kept, [access(0, Op::Write, 4096, 512)]);
    }
    let texts =
        [csv(&["0,R,0,512"]), "0,8,512,w,0.1\n".into(), "fio version 3 iolog\n1 f read 0 512\n".into(), msr.into()];
    for text in texts {
        assert_eq!(repaired(format!("\u{feff}{text}"), &Options::default(), &[]).len(), 1);
    }
}

#[test]
fn nothing_lies_beyond_the_volume() {
    let text = csv(&["0,R,0,4096", "1,W,4096,8192", "2,R,8192,1", "3,T,0,99999999999999", "4,F,0,0"]);
    let options = Options { volume_bytes: Some(8192), ..Options::default() };
    let kept = repaired(&text, &options, &[(Fix::Beyond, 1), (Fix::Shortened, 2)]);
    assert_eq!(
        kept,
        [
            access(0, Op::Read, 0, 4096),
            access(1, Op::Write, 4096, 4096),
            access(3, Op::Trim, 0, 8192),
            access(4, Op::Flush, 0, 0)
        ]
    );
    // No volume is larger than a signed 64-bit number of bytes, and sectors that overflow it lie beyond.
    let text = csv(&["0,R,9223372036854775807,1", "0,R,9223372036854775806,9", "0,R,18446744073709551615,4096"]);
    let kept = repaired(text, &Options::default(), &[(Fix::Beyond, 2), (Fix::Shortened, 1)]);
    assert_eq!(kept, [access(0, Op::Read, (1 << 63) - 2, 1)]);
    let spc = "0,18446744073709551615,512,r,0\n0,36028797018963968,512,r,0\n0,1,512,r,0\n";
    let kept = repaired(spc, &Options::default(), &[(Fix::BeyondDevice, 2)]);
    assert_eq!(kept, [access(0, Op::Read, 512, 512)]);
}

#[test]
fn lengths_of_nothing_and_of_too_much() {
    let text = csv(&["0,R,0,0", "7,W,512,512", "8,W,0,4294967297", "8,R,0,4294967296", "9,T,0,4294967297"]);
    let kept = repaired(text, &Options::default(), &[(Fix::ZeroLength, 1), (Fix::TooLong, 1)]);
    assert_eq!(
        kept,
        [access(0, Op::Write, 512, 512), access(1, Op::Read, 0, 1 << 32), access(2, Op::Trim, 0, (1 << 32) + 1)]
    );
}

#[test]
fn a_trace_may_end_anywhere() {
    let text = csv(&["0,R,0,512", "5,R,0,4096"]);
    let first = access(0, Op::Read, 0, 512);
    // Cut in the middle of the last line: what is left of it is no request.
    let kept = repaired(&text[..text.len() - 6], &Options::default(), &[(Fix::CutTail, 1)]);
    assert_eq!(kept, [first]);
    // Cut in a number: nobody can know, but it is said.
    let kept = repaired(&text[..text.len() - 3], &Options::default(), &[(Fix::Unended, 1)]);
    assert_eq!(kept, [first, access(5, Op::Read, 0, 40)]);
    let whole = vscsi1(0x28, 4096, 8, 99);
    let cut = [whole.clone(), whole[..31].to_vec()].concat();
    assert_eq!(repaired(cut, &Options::default(), &[(Fix::CutTail, 1)]).len(), 1);
    let whole = blktrace(false, 0, 8, 512, queued(1), 0);
    let cut = [whole.clone(), whole[..47].to_vec()].concat();
    assert_eq!(repaired(cut, &Options::default(), &[(Fix::CutTail, 1)]).len(), 1);
    // Inside what follows a record.
    let long = blktrace(false, 0, 8, 512, queued(1), 300);
    let cut = [whole, long[..200].to_vec()].concat();
    assert_eq!(repaired(cut, &Options::default(), &[(Fix::CutTail, 1)]).len(), 1);
}

#[test]
fn a_damaged_compressed_file_is_an_error() {
    let lines: Vec<String> = (0..5000u64).map(|i| format!("{i},R,{},512", i * i * 512)).collect();
    let text = csv(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    let whole = gzip(text.as_bytes());
    let (before, message) = fails(&whole[..whole.len() / 2], &Options::default());
    assert!(before.len() > 1000 && before.len() < 5000, "{}", before.len());
    assert_eq!(message, format!("after line {}: the gzip file is cut short", before.len() + 1));
    // Without its last byte, of the length: everything is there, but nothing says that it is right.
    let (before, message) = fails(&whole[..whole.len() - 1], &Options::default());
    assert_eq!((before.len(), message), (5000, "after line 5001: the gzip file is cut short".into()));
    let mut flipped = whole.clone();
    let at = flipped.len() - 6;
    flipped[at] ^= 1;
    let (_, message) = fails(&flipped, &Options::default());
    assert!(message.starts_with("after line 5001: the gzip file is damaged: "), "{message}");
    let mut trailing = whole.clone();
    trailing.extend(b"what is this?");
    assert_eq!(repaired(&trailing, &Options::default(), &[(Fix::Trailing, 1)]).len(), 5000);
    // Only the first two bytes are left.
    assert_eq!(fails(&whole[..2], &Options::default()).1, "after line 0: the gzip file is cut short");
}

#[test]
fn records_that_are_none() {
    let good = blktrace(false, 0, 8, 512, queued(1), 0);
    let mut other = good.clone();
    other[0] = 8;
    let message = fails([good.clone(), other].concat(), &Options::default()).1;
    assert_eq!(message, "record 2: version 8 of the format is not known");
    let message = fails([good, vec![0; 48]].concat(), &Options::default()).1;
    assert_eq!(message, "record 2: the record's mark is 0x00000000, not that of the format");
    let one = vscsi1(0x28, 512, 0, 0);
    let two = vscsi2(0x28, 512, 0, 0);
    let message = fails([one.clone(), one, two[..32].to_vec()].concat(), &Options::default()).1;
    assert_eq!(message, "record 3: version 0 of the format is not known");
}

#[test]
fn strict_reading_refuses_every_repair_and_no_selection() {
    let strict = Options { strict: true, volume_bytes: Some(1 << 20), ..Options::default() };
    let cases = [
        (csv(&["5,R,0,1", "4,R,0,1"]), "line 3: a request earlier than the one before it"),
        (csv(&["5,R,0,0"]), "line 2: a request of no bytes"),
        (csv(&["5,R,1048576,1"]), "line 2: a request beyond the volume's end"),
        (csv(&["5,R,1048575,2"]), "line 2: a request across the volume's end"),
        (csv(&["5,R,0,9999999999"]), "line 2: a read or write longer than 4 GiB"),
        (csv(&["5,R,0,1"]) + "6,R", "line 3: the trace ends inside a line or record"),
        (csv(&["5,R,0,1"]) + "6,R,0,1", "line 3: the last line has no line end and may be cut"),
    ];
    for (text, message) in cases {
        assert_eq!(fails(&text, &strict).1, message);
        assert!(matches!(read_with(&text, &strict).1, Some(TraceError::Refused { .. })));
    }
    let text = csv(&["", "5,R,0,1", " "]);
    let (kept, failed, repairs) = read_with(text, &strict);
    assert!(failed.is_none());
    assert_eq!((kept.len(), repairs.count(Fix::Blank)), (1, 2));
}

#[test]
fn repairs_are_said_in_words() {
    let text = csv(&["5,R,0,512", "4,R,0,512", "3,R,0,512", "3,R,0,0"]);
    let (_, _, repairs) = read_with(text, &Options::default());
    assert_eq!(
        repairs.to_string(),
        "a request earlier than the one before it (2 times, first at line 3): moved to the time of the one before\n\
         a request of no bytes (once at line 5): dropped"
    );
    assert!(!repairs.is_clean());
    assert_eq!(Repairs::default().to_string(), "");
}

#[test]
fn failing_reads_are_errors_and_interrupted_ones_are_not() {
    /// Hands out its bytes one by one, interrupted each time, then fails.
    struct Failing(Vec<u8>, bool);
    impl std::io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(std::io::ErrorKind::Interrupted.into());
            }
            if self.0.is_empty() {
                return Err(std::io::Error::other("the cable fell out"));
            }
            buffer[0] = self.0.remove(0);
            Ok(1)
        }
    }
    let text = csv(&["0,R,0,512"]);
    let mut reader = Reader::new(Failing(text.clone().into(), false), &Options::default());
    // Telling the format takes more than there is.
    let message = reader.as_mut().err().unwrap().to_string();
    assert_eq!(message, "after line 0: the cable fell out");
    let long = text + &"1,R,0,512\n".repeat(2000);
    let items: Vec<_> = Reader::new(Failing(long.into(), false), &Options::default()).unwrap().collect();
    assert_eq!(items.len(), 2002);
    assert_eq!(items[2001].as_ref().unwrap_err().to_string(), "after line 2002: the cable fell out");
    let missing = std::path::Path::new("/nowhere/at/all.csv");
    assert!(open(missing, &Options::default()).err().unwrap().to_string().starts_with("/nowhere/at/all.csv: "));
}
