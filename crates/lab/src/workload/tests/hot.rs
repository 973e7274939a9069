//! Workloads of a hot set: how hot it is, and how it changes.

use std::collections::BTreeSet;

use super::*;

const CHUNK: u64 = 128 << 10;

fn chunks(accesses: &[Access]) -> BTreeSet<u64> {
    accesses.iter().map(|a| a.offset / CHUNK).collect()
}

#[test]
fn drift_exchanges_one_extent_after_the_other() {
    // 51 of 1024 extents are hot, each as hot as the next.
    let spec = Drift { exponent: 0.0, stray_ppm: 0, step_requests: 1000, ..Drift::default() };
    let accesses = take(&spec, 128 * MIB, 2, 60_000);
    let hot = chunks(&accesses[..1000]);
    assert_eq!(hot.len(), 51);
    for steps in [1, 10, 25, 51] {
        let later = chunks(&accesses[steps * 1000..(steps + 1) * 1000]);
        assert_eq!(later.len(), 51);
        assert_eq!(later.intersection(&hot).count(), 51 - steps, "after {steps} steps");
    }
}

#[test]
fn shift_exchanges_the_whole_set_at_once() {
    let spec = Shift { exponent: 0.0, stray_ppm: 0, period_requests: 5000, ..Shift::default() };
    let accesses = take(&spec, 128 * MIB, 2, 15_000);
    let periods: Vec<BTreeSet<u64>> = accesses.chunks(5000).map(chunks).collect();
    assert!(periods.iter().all(|hot| hot.len() == 51));
    assert!(periods[0].is_disjoint(&periods[1]) && periods[1].is_disjoint(&periods[2]));
}

#[test]
fn strays_writes_and_gaps_come_as_often_as_asked() {
    let spec = Shift { exponent: 0.8, period_requests: 1_000_000, ..Shift::default() };
    let accesses = take(&spec, GIB, 2, 100_000);
    let writes = accesses.iter().filter(|a| a.op == Op::Write).count();
    assert!(plausible(writes, 100_000, 0.3), "{writes}");
    // Of 8192 chunks 409 are hot; a tenth of the requests goes anywhere, and so sometimes there too.
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for access in &accesses {
        *counts.entry(access.offset / CHUNK).or_default() += 1;
    }
    let mut sorted: Vec<usize> = counts.into_values().collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let hot: usize = sorted[..409].iter().sum();
    assert!(plausible(hot, 100_000, 0.9 + 0.1 * 409.0 / 8192.0), "{hot}");
    // The hottest tenth of them by Zipf's law with exponent 0.8.
    let weight = |n: u32| (1..=n).map(|k| f64::from(k).powf(-0.8)).sum::<f64>();
    let top: usize = sorted[..41].iter().sum();
    let expected = 0.9 * weight(41) / weight(409);
    assert!((top as f64 / 1e5 - expected).abs() < 0.01, "{top} {expected}");
    // Gaps of 10 ms on average, at random: the mean of so many is within 2 %.
    let mean = accesses[99_999].time_us as f64 / 99_999.0;
    assert!((mean / 10_000.0 - 1.0).abs() < 0.02, "{mean}");
    // As of arrivals that know nothing of each other: one in e is longer than the mean, one in e^3 than three times.
    for times in [1, 3] {
        let longer = accesses.windows(2).filter(|a| a[1].time_us - a[0].time_us > times * 10_000).count();
        assert!(plausible(longer, 99_999, (-(times as f64)).exp()), "{longer}");
    }
}

#[test]
fn a_hot_range_of_an_image_lies_in_one_piece() {
    let spec = VmImage::default();
    let accesses = take(&spec, 4 * GIB, 6, 100_000);
    let data: Vec<&Access> = accesses.iter().filter(|a| a.op != Op::Flush).collect();
    let low = data.iter().map(|a| a.offset).min().unwrap();
    let high = data.iter().map(|a| a.offset + a.len).max().unwrap();
    let image = part(4 * GIB, 400_000);
    assert!(high - low <= image && high - low > image / 10 * 9);
    // The hot range is a twentieth of the image: find the densest window of that size.
    let hot = part(image, 50_000);
    let mut offsets: Vec<u64> = data.iter().map(|a| a.offset).collect();
    offsets.sort_unstable();
    let mut densest = 0;
    let mut first = 0;
    for (i, offset) in offsets.iter().enumerate() {
        while offset - offsets[first] >= hot {
            first += 1;
        }
        densest = densest.max(i - first + 1);
    }
    assert!((densest as f64 / data.len() as f64 - (0.85 + 0.15 * 0.05)).abs() < 0.01, "{densest}");
    assert!(plausible(data.iter().filter(|a| a.op == Op::Write).count(), data.len(), 0.4));
    assert_eq!(accesses.len() - data.len(), data.len() / 100);
}

#[test]
fn a_loop_reads_all_of_it_in_each_pass() {
    for shuffled in [false, true] {
        let spec = Loop { shuffled, ..Loop::default() };
        // A fifth of 1 GiB: 204 MiB in 1632 requests.
        let accesses = take(&spec, GIB, 8, 3 * 1632);
        let passes: Vec<&[Access]> = accesses.chunks(1632).collect();
        for pass in &passes {
            assert_eq!(chunks(pass), chunks(passes[0]));
            assert_eq!(chunks(pass).len(), 1632);
        }
        let order = |pass: &[Access]| pass.iter().map(|a| a.offset).collect::<Vec<_>>();
        assert_eq!(order(passes[0]) == order(passes[1]), !shuffled);
        assert!(passes[1][0].time_us - passes[0][1631].time_us >= spec.pause_us);
    }
}
