//! What holds for every workload.

use std::collections::BTreeSet;

use super::*;

/// Streams of every workload that fits, with different specs too.
fn each(volume_bytes: u64, seed: u64, mut look: impl FnMut(&dyn Workload, Accesses)) {
    let mut workloads = all();
    workloads.push(Box::new(Loop { shuffled: true, ..Loop::default() }));
    workloads.push(Box::new(ZipfFiles { piece_bytes: 5000, request_bytes: 512, ..ZipfFiles::default() }));
    for workload in workloads {
        match workload.accesses(volume_bytes, seed) {
            Ok(accesses) => look(workload.as_ref(), accesses),
            Err(e) => assert!(volume_bytes < 256 * MIB, "{}: {e}", workload.name()),
        }
    }
}

fn check_stream(name: &str, volume_bytes: u64, accesses: impl Iterator<Item = Access>) {
    let mut last_us = None;
    for access in accesses {
        assert!(last_us.is_some() || access.time_us == 0, "{name}: begins at {}", access.time_us);
        assert!(Some(access.time_us) >= last_us, "{name}: time goes back");
        last_us = Some(access.time_us);
        assert_eq!(access.len == 0, access.op == Op::Flush, "{name}: {access:?}");
        assert!(access.offset + access.len <= volume_bytes, "{name}: {access:?}");
        assert!(access.offset % 512 == 0 && access.len % 512 == 0, "{name}: {access:?}");
    }
}

#[test]
fn inside_the_volume_aligned_and_in_order_of_time() {
    for volume_bytes in [256 * MIB, GIB + 12_345, 64 * GIB, 8 << 40] {
        for seed in 0..3 {
            each(volume_bytes, seed, |workload, accesses| {
                let n = if volume_bytes == 256 * MIB { 60_000 } else { 10_000 };
                check_stream(workload.name(), volume_bytes, accesses.take(n));
            });
        }
    }
}

/// Films and loops that are nearly as large as their place on the volume come to its end often.
#[test]
fn the_end_of_the_volume_is_met_and_not_crossed() {
    let film = FilmCopy { film_ppm: 250_000, pause_us: 0, gap_us: 10_000_000, ..FilmCopy::default() };
    let scan = Scan { scanned_ppm: 1_000_000, pause_us: 0, ..Scan::default() };
    let whole = Loop { span_ppm: 1_000_000, ..Loop::default() };
    let full = NearlyFull { full_ppm: 1_000_000, file_ppm: 100_000, replace_ppm: 1_000_000, ..NearlyFull::default() };
    let churn = Churn { live_ppm: 900_000, ..Churn::default() };
    for workload in [&film as &dyn Workload, &scan, &whole, &full, &churn] {
        let volume_bytes = 64 * MIB + 4096;
        let accesses = take(workload, volume_bytes, 1, 60_000);
        check_stream(workload.name(), volume_bytes, accesses.iter().copied());
        let end = accesses.iter().map(|a| a.offset + a.len).max().unwrap();
        assert!(end > volume_bytes * 9 / 10, "{}: {end}", workload.name());
    }
}

#[test]
fn any_volume_is_served_or_refused() {
    for i in 0..29 {
        for volume_bytes in [1 << i, (1 << i) - 1, (1 << i) + 4096] {
            each(volume_bytes, 1, |workload, accesses| {
                check_stream(workload.name(), volume_bytes, accesses.take(2_000));
            });
        }
    }
    let message = ZipfFiles::default().accesses(MIB, 1).err().unwrap().to_string();
    assert_eq!(message, "the volume has 733184 bytes, zipf-files needs at least 67112960");
}

#[test]
fn a_seed_means_the_same_for_ever_and_another_one_something_else() {
    for workload in all() {
        let first = take(workload.as_ref(), GIB, 7, 20_000);
        assert_eq!(first, take(workload.as_ref(), GIB, 7, 20_000), "{}", workload.name());
        assert_ne!(first, take(workload.as_ref(), GIB, 8, 20_000), "{}", workload.name());
    }
}

/// FNV-1a over everything an access says.
fn digest(accesses: &[Access]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for access in accesses {
        for word in [access.time_us, access.op as u64, access.offset, access.len] {
            for byte in word.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    hash
}

/// Results that were published with a seed must be had again on any machine and with any later version.
#[test]
fn the_streams_never_change() {
    let digests: Vec<(&str, u64)> =
        all().iter().map(|w| (w.name(), digest(&take(w.as_ref(), GIB, 1, 20_000)))).collect();
    let expected = [
        ("zipf-files", 15_992_633_287_359_046_806),
        ("scan", 10_622_706_763_369_479_510),
        ("film-copy", 2_145_356_036_054_587_796),
        ("drift", 6_736_093_581_848_861_616),
        ("shift", 7_103_060_970_830_076_042),
        ("loop", 18_283_929_022_978_893_380),
        ("churn", 18_277_064_138_613_164_304),
        ("boot", 13_513_607_133_286_316_250),
        ("sync-writes", 15_925_486_283_437_041_847),
        ("vm-image", 8_204_658_438_478_888_558),
        ("nearly-full", 14_779_564_609_819_875_258),
    ];
    assert_eq!(digests, expected);
}

#[test]
fn names_and_parameters_can_be_printed() {
    let names: BTreeSet<&str> = all().iter().map(|w| w.name()).collect();
    assert_eq!(names.len(), all().len());
    for name in names {
        assert_eq!(by_name(name).unwrap().name(), name);
    }
    assert!(by_name("nothing").is_none());
    assert_eq!(
        describe(&Loop::default()),
        "loop span_ppm=200000 request_bytes=131072 rate=104857600 shuffled=false pause_us=60000000"
    );
    // Every field is there: as many as the spec's own debug output has.
    for (workload, debug) in [
        (&Churn::default() as &dyn Workload, format!("{:?}", Churn::default())),
        (&Boot::default(), format!("{:?}", Boot::default())),
        (&ZipfFiles::default(), format!("{:?}", ZipfFiles::default())),
        (&NearlyFull::default(), format!("{:?}", NearlyFull::default())),
        (&Scan::default(), format!("{:?}", Scan::default())),
        (&FilmCopy::default(), format!("{:?}", FilmCopy::default())),
        (&Drift::default(), format!("{:?}", Drift::default())),
        (&Shift::default(), format!("{:?}", Shift::default())),
        (&SyncWrites::default(), format!("{:?}", SyncWrites::default())),
        (&VmImage::default(), format!("{:?}", VmImage::default())),
    ] {
        assert_eq!(workload.parameters().len(), debug.matches(": ").count(), "{debug}");
    }
}

#[test]
fn parameters_out_of_range_are_refused_with_their_names() {
    let refused = |workload: &dyn Workload, name: &str| {
        let message = workload.accesses(GIB, 1).err().unwrap().to_string();
        assert!(message.starts_with(name), "{message}");
    };
    refused(&ZipfFiles { exponent: f64::NAN, ..ZipfFiles::default() }, "exponent: ");
    refused(&ZipfFiles { exponent: -1.0, ..ZipfFiles::default() }, "exponent: ");
    refused(&ZipfFiles { request_bytes: 1000, ..ZipfFiles::default() }, "request_bytes: ");
    refused(&ZipfFiles { file_bytes_max: 1, ..ZipfFiles::default() }, "file_bytes_min: ");
    refused(&ZipfFiles { write_ppm: 1_000_001, ..ZipfFiles::default() }, "write_ppm: ");
    refused(&Scan { rate: 0, ..Scan::default() }, "rate: ");
    refused(&Scan { gap_us: 0, ..Scan::default() }, "gap_us: ");
    refused(&FilmCopy { film_ppm: 300_000, ..FilmCopy::default() }, "film_ppm: ");
    refused(&Drift { hot_ppm: 500_001, ..Drift::default() }, "hot_ppm: ");
    refused(&Drift { step_requests: 0, ..Drift::default() }, "step_requests: ");
    refused(&Shift { period_requests: 0, ..Shift::default() }, "period_requests: ");
    refused(&Shift { request_bytes: 256 << 10, ..Shift::default() }, "request_bytes: ");
    refused(&Loop { span_ppm: 0, ..Loop::default() }, "span_ppm: ");
    refused(&Churn { live_ppm: 950_000, ..Churn::default() }, "live_ppm: ");
    refused(&Boot { programs: 0, ..Boot::default() }, "programs: ");
    refused(&SyncWrites { tables_ppm: 999_999, ..SyncWrites::default() }, "tables_ppm: ");
    refused(&VmImage { flush_requests: 1, ..VmImage::default() }, "flush_requests: ");
    refused(&NearlyFull { full_ppm: 400_000, ..NearlyFull::default() }, "full_ppm: ");
}
