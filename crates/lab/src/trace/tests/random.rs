//! Bytes that nobody meant to be a trace: never a panic, and what comes out keeps its promises.

use proptest::prelude::*;

use super::*;

/// Reads to the end, and checks each access.
fn survives(bytes: &[u8], options: &Options) {
    let Ok(reader) = reader(bytes, options) else { return };
    let end = options.volume_bytes.unwrap_or(i64::MAX as u64);
    let mut last_us = 0;
    for item in reader {
        let Ok(access) = item else { break };
        assert!(access.time_us >= last_us);
        last_us = access.time_us;
        assert_eq!(access.len == 0, access.op == Op::Flush);
        assert!(access.offset + access.len <= end);
    }
}

fn options() -> impl Strategy<Value = Options> {
    let format = proptest::option::of(proptest::sample::select(Format::ALL.to_vec()));
    let devices =
        prop_oneof![Just(None), Just(Some(Devices::Slots(1 << 20))), Just(Some(Devices::Only("8,16".into())))];
    let event = proptest::sample::select(vec![Event::Queue, Event::Issue, Event::Complete]);
    (format, devices, event, proptest::option::of(1u64..1 << 40), any::<bool>()).prop_map(
        |(format, devices, event, volume_bytes, strict)| Options { format, devices, event, volume_bytes, strict },
    )
}

/// Lines of the words and signs that the text formats are made of, with numbers large and small.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        proptest::sample::select(vec![
            "R",
            "W",
            "T",
            "F",
            "Q",
            "C",
            "D",
            "N",
            "FWFS",
            "Read",
            "write",
            "sync",
            "wait",
            "add",
            "+",
            "[x]",
            "(",
            "8,16",
            ",",
            ".",
            "fio version 2 iolog\n",
            "fio version 3 iolog\n",
            "time_us,op,offset_bytes,length_bytes\n",
            "\n",
            "\r\n",
            "",
            "\u{0}"
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|n| n.to_string()),
        (0u32..5000).prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ];
    let sign = proptest::sample::select(vec![" ", ",", ",", "\n", ""]);
    proptest::collection::vec((word, sign), 0..80)
        .prop_map(|words| words.into_iter().map(|(word, sign)| word + sign).collect::<String>().into_bytes())
}

/// Records that begin right and go on anyhow.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let record = (any::<bool>(), any::<[u64; 2]>(), any::<[u32; 2]>(), 0u16..200, 0u8..4).prop_map(
        |(big, [time, sector], [bytes, action], more, kind)| match kind {
            0 => vscsi1(action as u8, bytes, sector, time),
            1 => vscsi2(action as u8, bytes, sector, time),
            2 => blktrace(big, time, sector, bytes, action, more),
            _ => blktrace(false, time, sector, bytes, action & 0xffff_0000 | 1, more),
        },
    );
    (proptest::collection::vec(record, 0..12), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(records, at, byte)| {
            let mut bytes = records.concat();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..3000), options in options()) {
        survives(&bytes, &options);
    }

    #[test]
    fn random_text(bytes in text(), options in options()) {
        survives(&bytes, &options);
    }

    #[test]
    fn random_records(bytes in records(), options in options()) {
        survives(&bytes, &options);
    }

    #[test]
    fn damaged_compressed_text(bytes in text(), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let mut packed = gzip(&bytes);
        let at = at.index(packed.len());
        if cut {
            packed.truncate(at);
        } else {
            packed[at] = byte;
        }
        survives(&packed, &Options::default());
    }
}
