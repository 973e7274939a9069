//! What a forecast promises.

use bimetal_volume::units::CHUNK;

use super::ladder::{reserve, sizes};
use super::sample::Limits;
use super::{Advice, Load, Row, Sample};
use crate::policy::{replay, Budget, Follows, HeadCost, Kind, Production, Setup, Start, Stream};
use crate::trace::{Access, Op, Options, Reader};
use crate::workload;

fn load(list: impl IntoIterator<Item = Access>, start: Start) -> Load {
    let mut sample = Sample::new(start, HeadCost::default());
    list.into_iter().for_each(|a| sample.add(&a));
    sample.finish()
}

/// The same, of so many pieces at most.
fn sampled(list: &[Access], pieces: usize) -> Load {
    let limits = Limits { pieces, groups: 1 << 16, least: 8 };
    let mut sample = Sample::with_limits(Start::Fresh, HeadCost::default(), limits);
    list.iter().for_each(|a| sample.add(a));
    sample.finish()
}

fn advice(load: &Load) -> Advice {
    Advice::new(load, load.sizes().into_iter().map(|size| load.row(size)).collect())
}

fn access(second: u64, op: Op, chunk: u64) -> Access {
    Access { time_us: second * 1_000_000, op, offset: chunk * CHUNK + 4096, len: 4096 }
}

fn generated(name: &str, gib: u64, n: usize) -> Vec<Access> {
    let w = workload::by_name(name).unwrap_or_else(|| panic!("no workload {name}"));
    w.accesses(gib << 30, 11).expect("fits").take(n).collect()
}

#[test]
fn what_is_read_once_is_the_disks_and_what_is_written_first_is_not() {
    let all = 1 << 30;
    let shares = |load: &Load| (load.row(all).io, load.row(all).time);
    let reads = load((0..500).map(|i| access(i, Op::Read, 3 * i)), Start::Fresh);
    assert_eq!(shares(&reads), (0.0, 0.0));
    let writes = || (0..500).map(|i| access(i, Op::Write, 3 * i));
    assert_eq!(shares(&load(writes(), Start::Fresh)), (1.0, 1.0));
    assert_eq!(shares(&load(writes(), Start::Aged)), (0.0, 0.0));
    let first = advice(&reads);
    assert_eq!((first.first_reads, first.footprint, first.buy()), (1.0, 500 * CHUNK, None));
    assert!(first.sentence().contains("No SSD helps"), "{}", first.sentence());
    let new = advice(&load(writes(), Start::Fresh));
    assert_eq!((new.new_data, advice(&reads).new_data), (1.0, 0.0));
    assert!(new.caveats().iter().any(|c| c.starts_with("100 % of the disk's time goes to data written")));
}

#[test]
fn what_was_discarded_is_new_again() {
    for (offset, len) in [(0, 100 * CHUNK), (0, 1 << 50), (5 * CHUNK - 7, CHUNK + 8)] {
        let mut list = vec![access(0, Op::Read, 5), access(0, Op::Read, 200)];
        list.push(Access { op: Op::Trim, offset, len, time_us: 1 });
        list.push(access(2, Op::Read, 5));
        list.push(access(3, Op::Write, 5));
        let load = load(list, Start::Aged);
        // Of four accesses one read an empty chunk and asked nothing of any device, and one gave it a new home.
        assert_eq!(load.accesses(), 3);
        assert!((load.row(1 << 30).io - 1.0 / 3.0).abs() < 1e-9);
    }
    // A part of a chunk is not discarded.
    let part = Access { op: Op::Trim, offset: 5 * CHUNK, len: CHUNK - 1, time_us: 1 };
    let load = load([access(0, Op::Read, 5), part, access(2, Op::Read, 5)], Start::Aged);
    assert_eq!(load.accesses(), 2);
}

/// What the production policy does without a scheduler, moves free: shares of I/O and time.
fn policy(stream: &Stream, size: u64) -> (f64, f64) {
    let slots = (size / CHUNK) as u32;
    let reserve = (reserve(size) / CHUNK) as u32;
    let setup = Setup { reserve, budget: Budget::UNLIMITED, ..Setup::new(slots) };
    let r = replay(stream, &mut Production::new(slots), &setup);
    let served = stream.pieces.iter().filter(|p| p.kind != Kind::Trim);
    let alone: u64 = served.map(|p| setup.cost.of(p, (p.follows != Follows::Nothing).then_some(0))).sum();
    (r.fast_share(), 1.0 - r.foreground_ns as f64 / alone as f64)
}

/// The greatest difference between a forecast and the policy, over both columns and all sizes.
fn worst(name: &str, load: &Load, list: &[Access], sizes: &[u64]) -> f64 {
    let stream = Stream::new(list.iter().copied(), Start::Fresh).expect("small");
    let mut worst = 0.0f64;
    for size in sizes {
        let (row, (io, time)) = (load.row(*size), policy(&stream, *size));
        println!(
            "{name}, 1 of {}, {:>5} MB: forecast {:.3} {:.3}, policy {io:.3} {time:.3}",
            load.sampled(),
            size / 1_000_000,
            row.io,
            row.time
        );
        worst = worst.max((row.io - io).abs()).max((row.time - time).abs());
    }
    worst
}

#[test]
fn a_forecast_is_what_the_policy_does() {
    for w in workload::all() {
        let list = generated(w.name(), 2, 12_000);
        let load = load(list.iter().copied(), Start::Fresh);
        let sizes: Vec<u64> = load.sizes().into_iter().step_by(2).collect();
        let worst = worst(w.name(), &load, &list, &sizes);
        assert!(worst < 0.001, "{}: {worst}", w.name());
    }
}

#[test]
fn a_forecast_is_what_the_policy_does_with_recordings() {
    let Some(folder) = std::env::var_os("BIMETAL_TRACES") else {
        println!("skipped: BIMETAL_TRACES does not name a folder of traces");
        return;
    };
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("the folder").map(|e| e.expect("entry").path()).collect();
    paths.retain(|p| p.to_string_lossy().ends_with(".csv.gz"));
    paths.sort();
    for path in paths {
        let reader = Reader::new(std::fs::File::open(&path).expect("opens"), &Options::default()).expect("a trace");
        let list: Vec<Access> = reader.map(|a| a.expect("good")).take(30_000).collect();
        let load = load(list.iter().copied(), Start::Fresh);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let worst = worst(&name, &load, &list, &load.sizes());
        assert!(worst < 0.001, "{name}: {worst}");
    }
}

/// Far out on a disk chunks have other numbers than in a replay.
#[test]
fn a_forecast_does_not_depend_on_where_data_lie() {
    let list = generated("zipf-files", 2, 12_000);
    let far = list.iter().map(|a| Access { offset: a.offset + (1 << 50), ..*a });
    let far = load(far, Start::Fresh);
    let worst = worst("far out", &far, &list, &far.sizes());
    assert!(worst < 0.05, "{worst}");
}

#[test]
fn a_sample_says_about_the_same_in_bounded_memory() {
    // Files that come and go are long runs, which a sample cuts.
    for (name, most) in [("zipf-files", 0.05), ("vm-image", 0.05), ("nearly-full", 0.05), ("churn", 0.12)] {
        let list = generated(name, 8, 150_000);
        let whole = load(list.iter().copied(), Start::Fresh);
        let part = sampled(&list, 90_000);
        assert!((2..=4).contains(&part.sampled()), "{}", part.sampled());
        let (a, b) = (whole.accesses(), part.accesses());
        assert_eq!(a, b);
        assert!(part.footprint().abs_diff(whole.footprint()) < whole.footprint() / 8);
        let sizes: Vec<u64> = whole.sizes().into_iter().rev().take(4).collect();
        let worst = worst(name, &part, &list, &sizes);
        assert!(worst < most, "{name}: {worst}");
        assert!(Advice::new(&part, Vec::new()).caveats().iter().any(|c| c.contains("one MiB of")));
    }
}

#[test]
fn what_touches_little_is_cut_instead() {
    let list: Vec<Access> = (0..1000).map(|i| access(i, Op::Write, i % 16)).collect();
    let load = sampled(&list, 99);
    assert_eq!((load.sampled(), load.accesses(), load.footprint()), (1, 100, 16 * CHUNK));
    assert!(Advice::new(&load, Vec::new()).caveats().iter().any(|c| c.contains("first 100 requests")));
}

#[test]
fn without_times_each_request_is_a_use_of_its_own() {
    let list = |second: fn(u64) -> u64| (0..3000).map(move |i| access(second(i), Op::Read, i * i % 100 * 3));
    let (timed, none) = (load(list(|i| i), Start::Fresh), load(list(|_| 7), Start::Fresh));
    for size in [4_000_000, 8_000_000, 16_000_000] {
        let (a, b) = (timed.row(size), none.row(size));
        assert!((a.io - b.io).abs() < 0.02 && (a.time - b.time).abs() < 0.02, "{a:?} {b:?}");
    }
    let (timed, none) = (advice(&timed), advice(&none));
    assert_eq!((timed.duration_us, none.duration_us), (Some(2_999_000_000), None));
    let caveat = |a: &Advice| a.caveats().iter().any(|c| c.contains("no times"));
    assert!(!caveat(&timed) && caveat(&none));
    // Times that begin late are times.
    let late = load(list(|i| i.saturating_sub(2000)), Start::Fresh);
    assert!(!caveat(&advice(&late)));
}

fn made_up(rows: &[(u64, f64)]) -> Advice {
    let rows = rows.iter().map(|(gb, time)| Row { size: gb * 1_000_000_000, io: time + 0.05, time: *time });
    Advice {
        rows: rows.collect(),
        footprint: 700_000_000_000,
        duration_us: Some(8 * 86_400_000_000),
        requests: 5_000_000,
        accesses: 100_000_000,
        first_reads: 0.01,
        new_data: 0.09,
        sampled: 1,
        cut: false,
        disk_ns: 1,
    }
}

#[test]
fn the_sentence_names_the_size_after_which_little_is_won() {
    let advice = made_up(&[(32, 0.5), (64, 0.7), (128, 0.88), (256, 0.91), (512, 0.92), (1000, 0.92)]);
    let said = advice.sentence();
    assert_eq!(
        said,
        "An SSD of 128 GB would take 93 % of the I/O and 88 % of the disk's time; larger ones add 4 % at most."
    );
    assert_eq!(advice.buy(), Some(128_000_000_000));
    assert!(advice.caveats().is_empty(), "{:?}", advice.caveats());
    let steep = made_up(&[(256, 0.2), (512, 0.4), (1000, 0.9)]).sentence();
    assert!(steep.contains("1 TB") && steep.contains("all that this load touches"), "{steep}");
    // Little with each doubling, much in all.
    let creeping = made_up(&[(32, 0.6), (64, 0.64), (128, 0.68), (256, 0.72), (512, 0.76)]);
    assert_eq!(creeping.buy(), Some(256_000_000_000));
}

#[test]
fn where_an_ssd_does_harm_the_advice_says_so() {
    let harm = made_up(&[(32, -0.1), (64, -0.7)]);
    assert!(harm.sentence().contains("would save 0 % of"), "{}", harm.sentence());
    assert!(harm.caveats().iter().any(|c| c.contains("below 0")), "{:?}", harm.caveats());
}

#[test]
fn nothing_is_recommended_that_is_not_sold() {
    let large = made_up(&[(4, 0.77), (8, 0.78), (16, 0.79), (32, 0.80), (64, 0.81)]);
    assert_eq!(large.buy(), Some(32_000_000_000));
    let said =
        "Every SSD sold today is large enough: one of 32 GB would take 85 % of the I/O and 80 % of the disk's time. \
                More than 4 GB adds little.";
    assert_eq!(large.sentence(), said);
    let small = made_up(&[(1, 0.3), (2, 0.6), (4, 0.8)]);
    assert_eq!(small.buy(), Some(32_000_000_000));
    assert!(small.sentence().contains("one of 32 GB would take 85 %"), "{}", small.sentence());
    assert_eq!(made_up(&[(32, 0.02), (64, 0.04)]).buy(), None);
}

#[test]
fn an_empty_trace_has_no_advice_and_no_harm() {
    let empty = load([], Start::Fresh);
    assert_eq!((empty.accesses(), empty.footprint(), empty.sizes()), (0, 0, sizes(0)));
    assert_eq!(advice(&empty).rows, [Row { size: 1_000_000, io: 0.0, time: 0.0 }]);
    let trims = (0..9).map(|i| Access { op: Op::Trim, len: 9 * CHUNK, ..access(i, Op::Trim, i) });
    assert_eq!(load(trims, Start::Aged).accesses(), 0);
    let far = Access { time_us: u64::MAX, op: Op::Write, offset: u64::MAX - 5, len: 4096 };
    assert_eq!(load([far], Start::Fresh).footprint(), CHUNK);
}

/// The head stands where the disk has just read, also when that comes up at once.
#[test]
fn a_stream_that_comes_up_as_it_is_read_costs_the_disk_no_seeks() {
    let chunks = 4096;
    let pass = |day: u64| (0..chunks).map(move |i| (day * 86_400_000_000 + i * 1000, i * CHUNK));
    let list = (0..3).flat_map(pass).map(|(time_us, offset)| Access { time_us, op: Op::Read, offset, len: CHUNK });
    let row = load(list, Start::Fresh).row(1 << 30);
    assert!((row.io - 2.0 / 3.0).abs() < 0.01, "{row:?}");
    assert!((row.time - 2.0 / 3.0).abs() < 0.02, "the first pass is the disk's, and no more: {row:?}");
}
