//! What a forecast promises.

use bimetal_volume::units::CHUNK;

use super::advice::Advice;
use super::Advisor;
use crate::policy::{replay, HeadCost, Production, Setup, Start, Stream};
use crate::trace::{Access, Op};
use crate::workload;

fn advise(list: impl IntoIterator<Item = Access>, start: Start) -> Advisor {
    let mut advisor = Advisor::new(start, HeadCost::default());
    list.into_iter().for_each(|a| advisor.add(&a));
    advisor
}

fn access(second: u64, op: Op, chunk: u64) -> Access {
    Access { time_us: second * 1_000_000, op, offset: chunk * CHUNK + 4096, len: 4096 }
}

/// Bytes of an SSD that holds so many chunks beside the reserve.
fn room_for(chunks: u64) -> u64 {
    (chunks * 32).div_ceil(31) * CHUNK
}

/// One round over 1000 scattered chunks, and ten of them ten times as often.
fn ten_hot_of_a_thousand(rounds: u64) -> Vec<Access> {
    let mut list = Vec::new();
    for i in 0..rounds * 1000 {
        list.push(access(list.len() as u64, Op::Read, 3 * (i * 7 % 1000)));
        list.push(access(list.len() as u64, Op::Read, 3 * (i % 10 * 100)));
    }
    list
}

#[test]
fn the_hot_part_is_what_a_small_ssd_takes() {
    let advisor = advise(ten_hot_of_a_thousand(10), Start::Fresh);
    let share = |chunks| advisor.shares(room_for(chunks)).0;
    // Ten chunks have 101 of 200 accesses, less two each to earn their place.
    assert!((0.45..0.52).contains(&share(20)), "{}", share(20));
    // The others come round and round and are all as hot: each part of them is as good as the next.
    assert!((0.52..0.75).contains(&share(500)), "{}", share(500));
    // The first two rounds of ten earn the places of the rest.
    assert!((0.88..0.92).contains(&share(1100)), "{}", share(1100));
    assert_eq!(advisor.shares(0), (0.0, 0.0));
}

#[test]
fn what_is_read_once_is_the_disks_and_what_is_written_first_is_not() {
    let all = 1 << 40;
    let reads = advise((0..500).map(|i| access(i, Op::Read, 3 * i)), Start::Fresh);
    assert_eq!(reads.shares(all), (0.0, 0.0));
    let writes = || (0..500).map(|i| access(i, Op::Write, 3 * i));
    assert_eq!(advise(writes(), Start::Fresh).shares(all), (1.0, 1.0));
    assert_eq!(advise(writes(), Start::Aged).shares(all), (0.0, 0.0));
    let first = reads.advice();
    assert_eq!((first.first_reads, first.footprint), (1.0, 500 * CHUNK));
    assert!(first.sentence().contains("No SSD helps"), "{}", first.sentence());
}

#[test]
fn what_was_discarded_is_new_again() {
    let mut list = vec![access(0, Op::Read, 5)];
    list.push(Access { op: Op::Trim, offset: 0, len: 100 * CHUNK, time_us: 1 });
    list.push(access(2, Op::Read, 5));
    list.push(access(3, Op::Write, 5));
    let advisor = advise(list, Start::Aged);
    // Of three accesses one read an empty chunk and asked nothing of any device.
    assert_eq!(advisor.shares(1 << 40).0, 0.5);
}

#[test]
fn the_disk_seeks_where_it_did_not_serve_what_came_before() {
    // A run over chunks 0 to 9, of which the even ones are on the SSD, and a repetition of it.
    let mut list: Vec<Access> = (0..10).map(|i| access(i, Op::Read, 20 - 2 * (i % 5 + 1))).collect();
    list.push(Access { time_us: 30_000_000, op: Op::Read, offset: 10 * CHUNK, len: 10 * CHUNK });
    let advisor = advise(list, Start::Fresh);
    let cost = HeadCost::default();
    let transfer = |bytes: u64| bytes * 1_000_000_000 / cost.bytes_per_second;
    // Alone: ten seeks, then one seek and nine chunks that follow.
    let alone = 11 * cost.seek_read_ns + 10 * transfer(4096) + 9 * cost.follow_ns + 10 * transfer(CHUNK);
    // With an SSD: the same ten, and five chunks, each after a seek.
    let left = 10 * cost.seek_read_ns + 10 * transfer(4096) + 5 * (cost.seek_read_ns + transfer(CHUNK));
    assert!(advisor.seen.alone_ns.abs_diff(alone) < 100);
    let counts = advisor.counts.iter().map(|c| c.time_ns.left(1 << 20));
    counts.for_each(|ns| assert!((ns - left as f64).abs() < 100.0, "{ns} {left}"));
    // More seeks than without an SSD: it saves nothing.
    assert_eq!(advisor.shares(1 << 40).1, 0.0);
}

/// The forecast against the production policy without a scheduler, at sizes from 5 to 50 % of the footprint. Not for
/// small synchronous writes: there the policy itself stays behind the order in which it ranks chunks.
#[test]
fn a_forecast_is_near_what_the_policy_does() {
    let (volume, mut worst) = (2 << 30, 0.0f64);
    for name in ["zipf-files", "drift", "vm-image", "boot"] {
        let w = workload::by_name(name).unwrap_or_else(|| panic!("no workload {name}"));
        let list: Vec<Access> = w.accesses(volume, 11).expect("fits").take(60_000).collect();
        let advisor = advise(list.iter().copied(), Start::Fresh);
        let stream = Stream::new(list, Start::Fresh).expect("small");
        for percent in [5, 20, 50] {
            let slots = (stream.footprint * percent / 100).max(1);
            let r = replay(&stream, &mut Production::new(slots), &Setup::new(slots));
            let (io, _) = advisor.shares(u64::from(slots) * CHUNK);
            println!("{name} {percent} %: forecast {io:.3}, policy {:.3}", r.fast_share());
            worst = worst.max((io - r.fast_share()).abs());
        }
    }
    assert!(worst < 0.08, "{worst}");
}

#[test]
fn a_sample_says_about_the_same_in_bounded_memory() {
    let w = workload::by_name("zipf-files").expect("known");
    let list: Vec<Access> = w.accesses(4 << 30, 3).expect("fits").take(40_000).collect();
    let whole = advise(list.iter().copied(), Start::Fresh);
    let mut part = Advisor::with_limit(Start::Fresh, HeadCost::default(), 2000);
    list.iter().for_each(|a| part.add(a));
    let (whole_advice, advice) = (whole.advice(), part.advice());
    assert!(advice.sampled >= 4, "{}", advice.sampled);
    assert!(advice.footprint.abs_diff(whole_advice.footprint) < whole_advice.footprint / 10);
    for row in &whole_advice.rows {
        let (a, b) = (whole.shares(row.size), part.shares(row.size));
        assert!((a.0 - b.0).abs() < 0.08, "{}: {a:?} {b:?}", row.size);
    }
    assert!(advice.caveats().iter().any(|c| c.contains("one chunk of")));
}

fn made_up(rows: &[(u64, f64)]) -> Advice {
    let rows = rows.iter().map(|(gb, time)| super::Row { size: gb * 1_000_000_000, io: time + 0.05, time: *time });
    Advice {
        rows: rows.collect(),
        footprint: 700_000_000_000,
        duration_us: 8 * 86_400_000_000,
        requests: 5_000_000,
        accesses: 100_000_000,
        first_reads: 0.01,
        sampled: 1,
        disk_ns: 1,
    }
}

#[test]
fn the_sentence_names_the_size_after_which_little_is_won() {
    let advice = made_up(&[(32, 0.5), (64, 0.7), (128, 0.88), (256, 0.91), (512, 0.93), (1000, 0.93)]);
    let said = advice.sentence();
    assert_eq!(said, "An SSD of 128 GB would take 93 % of the I/O and 88 % of the disk's time; doubling it adds 3 %.");
    assert!(advice.caveats().is_empty(), "{:?}", advice.caveats());
    let steep = made_up(&[(256, 0.2), (512, 0.4), (1000, 0.9)]).sentence();
    assert!(steep.contains("1 TB") && steep.contains("all that this load touches"), "{steep}");
}

#[test]
fn an_empty_trace_has_no_advice_and_no_harm() {
    let advice = advise([], Start::Fresh).advice();
    assert_eq!(advice.rows.len(), 1);
    assert_eq!((advice.rows[0].io, advice.disk_ns), (0.0, 0));
    let far = Access { time_us: u64::MAX, op: Op::Write, offset: u64::MAX - 5, len: 4096 };
    assert_eq!(advise([far], Start::Fresh).advice().footprint, CHUNK);
}
