//! Workloads of files: what is popular, what comes and goes, what is full.

use super::*;
use crate::trace::Tally;

#[test]
fn popular_files_get_the_share_that_the_law_gives_them() {
    const FILE: u64 = 128 << 10;
    for exponent in [0.0, 0.6, 0.9, 1.2] {
        let spec = ZipfFiles {
            exponent,
            file_bytes_min: FILE,
            file_bytes_max: FILE,
            used_ppm: 1_000_000,
            ..ZipfFiles::default()
        };
        let mut tally = Tally::default();
        // 1024 files of one chunk, so that a chunk access is a visit.
        for access in take(&spec, 1024 * FILE, 3, 400_000) {
            tally.add(&access).unwrap();
        }
        let summary = tally.summary();
        assert_eq!(summary.chunks, 1024);
        let weight = |n: u64| (1..=n).map(|k| (k as f64).powf(-exponent)).sum::<f64>();
        let theory = |hottest: u64| weight(hottest) / weight(1024);
        let (one, ten) = (summary.hottest_1_share(), summary.hottest_10_share());
        // The hottest as counted are a little hotter than the hottest by law.
        assert!((-0.003..0.012).contains(&(ten - theory(103))), "s {exponent}: {ten} {}", theory(103));
        assert!((-0.003..0.012).contains(&(one - theory(11))), "s {exponent}: {one} {}", theory(11));
        assert!(plausible(summary.writes as usize, 400_000, 0.2));
    }
}

#[test]
fn small_files_are_used_whole_and_large_ones_in_pieces() {
    let spec = ZipfFiles { gap_us: 1_000_000, ..ZipfFiles::default() };
    // Accesses at one time are one visit: requests follow each other without a gap.
    let mut visits: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for access in take(&spec, 4 * GIB, 9, 50_000) {
        let visit = visits.entry(access.time_us).or_insert((access.offset, 0));
        assert_eq!(access.offset, visit.0 + visit.1, "a visit is one run");
        assert!(access.len <= spec.request_bytes);
        visit.1 += access.len;
    }
    assert!(visits.values().all(|(_, len)| *len <= spec.piece_bytes));
    let sizes: std::collections::BTreeSet<u64> = visits.values().map(|(_, len)| *len).collect();
    assert!(sizes.len() > 50, "mixed sizes: {}", sizes.len());
}

#[test]
fn churn_reads_what_lives_and_discards_what_dies() {
    let spec = Churn::default();
    let live_max = 1024 * MIB * 3 / 10;
    let mut live = Live::default();
    let mut last_end = None;
    let (mut trims, mut full) = (0, 0);
    for access in take(&spec, GIB, 4, 300_000) {
        match access.op {
            Op::Write => live.write(&access, last_end),
            Op::Trim => {
                assert_eq!(live.0.remove(&access.offset), Some(access.len), "a discard is of one whole file");
                trims += 1;
            }
            Op::Read => assert!(live.holding(&access).is_some(), "{access:?}"),
            Op::Flush => panic!("no flushes"),
        }
        last_end = (access.op == Op::Write).then_some(access.offset + access.len);
        if trims > 100 && access.op == Op::Read {
            full += 1;
            assert!(live.bytes() <= live_max && live.bytes() > live_max * 9 / 10, "{}", live.bytes());
        }
    }
    assert!(trims > 1000 && full > 1000, "{trims} {full}");
}

#[test]
fn a_nearly_full_volume_is_filled_first_and_stays_full() {
    let spec = NearlyFull { replace_ppm: 200_000, ..NearlyFull::default() };
    let mut accesses = take(&spec, GIB, 4, 120_000).into_iter().peekable();
    let mut filled = 0;
    while let Some(access) = accesses.next_if(|a| a.op == Op::Write && filled < GIB / 100 * 97 / PAGE * PAGE) {
        // Nothing is written twice while it is filled.
        assert_eq!(access.offset, filled);
        filled += access.len;
    }
    assert_eq!(filled, part(GIB, 970_000));
    // A map of pages, as nobody knows from outside where files begin that lie side by side.
    let mut used = vec![true; (filled / PAGE) as usize];
    used.resize((GIB / PAGE) as usize, false);
    let (mut held, mut trims, mut after_trim) = (filled, 0, false);
    for access in accesses {
        let pages = &mut used[(access.offset / PAGE) as usize..((access.offset + access.len) / PAGE) as usize];
        let before = pages.iter().filter(|used| **used).count() as u64 * PAGE;
        let whole = before == access.len;
        match access.op {
            Op::Trim => {
                assert!(whole, "{access:?}");
                pages.fill(false);
                (held, trims, after_trim) = (held - access.len, trims + 1, true);
            }
            // A new file follows a discard, in requests without a gap, and lies where nothing is.
            Op::Write if before == 0 && after_trim => {
                pages.fill(true);
                held += access.len;
            }
            _ => {
                assert!(whole, "{access:?}");
                after_trim = false;
                // Always full, less what the largest file would not fit into.
                assert!(held <= filled && held > filled - part(GIB, spec.file_ppm), "{held}");
            }
        }
    }
    assert!(trims > 2000, "{trims}");
}
