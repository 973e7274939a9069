//! Disks: every figure of the notes' section 4.

use bimetal_sim::model::catalog::{hdd2012, hdd2014};
use bimetal_sim::model::hdd::{Hdd, HddSpec, Order, MAX_SKIPS};
use bimetal_sim::model::{Model, Op, Refused, Request};
use bimetal_sim::prng::Prng;

use crate::{closed_loop, near};

const GB: u64 = 1_000_000_000;
const KIB: u64 = 1024;
const CHUNK: u64 = 128 * KIB;

fn disk(spec: HddSpec) -> Hdd {
    Hdd::new(spec).expect("a sound spec")
}

/// Bytes per second of 128 KiB writes one by one, from `place` (0 to 1) on.
fn sequential(spec: HddSpec, place: f64, len: u64) -> f64 {
    let mut at = (spec.size as f64 * place) as u64 / len * len;
    closed_loop(&mut disk(spec), 0, 1, 500, 1000, || {
        at += len;
        Request::write(at - len, len)
    })
    .mb_per_s()
}

/// Megabytes over seconds for the whole capacity: the harmonic mean over the places.
fn capacity_mean(spec: &HddSpec) -> f64 {
    let n = 50;
    let sum: f64 = (0..n).map(|i| 1.0 / sequential(spec.clone(), (f64::from(i) + 0.45) / 50.0, CHUNK)).sum();
    f64::from(n) / sum
}

/// Random 4 KiB writes in `range` bytes with 16 in flight, per second, when the write cache has long been full.
fn random_iops(spec: HddSpec, range: u64) -> f64 {
    let mut rng = Prng::new(11);
    closed_loop(&mut disk(spec), 0, 16, 1000, 6000, || Request::write(rng.below(range / 4096) * 4096, 4096)).iops()
}

/// Mean milliseconds per chunk of `n` random chunks of a batch, read in the order of their addresses; the head comes
/// from anywhere.
fn batch_ms(spec: &HddSpec, n: usize) -> f64 {
    let mut rng = Prng::new(7);
    let (mut sum, mut count) = (0, 0);
    while count < 3000 {
        let mut disk = disk(spec.clone());
        let chunk = |rng: &mut Prng| rng.below(spec.size / CHUNK) * CHUNK;
        let from = chunk(&mut rng);
        let mut places: Vec<u64> = (0..n).map(|_| chunk(&mut rng)).collect();
        places.sort_unstable();
        disk.submit(0, 0, Request::read(from, CHUNK)).expect("fits");
        let start = disk.wait().expect("one").at + rng.below(20_000_000);
        let mut now = start;
        for place in places {
            disk.submit(now, 0, Request::read(place, CHUNK)).expect("fits");
            now = disk.wait().expect("one").at;
        }
        sum += now - start;
        count += n;
    }
    sum as f64 / count as f64 / 1e6
}

/// Mean milliseconds of a lone read of `len` bytes.
fn lone_ms(spec: &HddSpec, len: u64) -> f64 {
    let mut rng = Prng::new(9);
    let mut disk = disk(spec.clone());
    let (mut now, mut sum) = (0, 0);
    for i in 0..3000 {
        now += rng.below(20_000_000);
        disk.submit(now, i, Request::read(rng.below(spec.size / CHUNK - 8) * CHUNK, len)).expect("fits");
        let end = disk.wait().expect("one").at;
        sum += end - now;
        now = end;
    }
    sum as f64 / 3000.0 / 1e6
}

#[test]
fn disk_of_2012_seeks() {
    let [a, b, c] = hdd2012().seek_ms;
    // Mean over all pairs of places: the root of the distance has the mean 8/15, the distance 1/3.
    near("mean seek", a + b * 8.0 / 15.0 + c / 3.0, 9.5, 1.0);
    near("whole stroke", a + b + c, 18.0, 1.0);
    let [a, b, c] = hdd2014().seek_ms;
    near("mean seek 2014", a + b * 8.0 / 15.0 + c / 3.0, 12.5, 1.0);
    near("whole stroke 2014", a + b + c, 21.0, 5.0);
}

#[test]
fn disk_of_2012_sequential() {
    near("128 KiB at the outer edge", sequential(hdd2012(), 0.0, CHUNK), 177.0, 10.0);
    let mean = capacity_mean(&hdd2012());
    near("128 KiB, mean over the capacity", mean, 133.0, 10.0);
    // F1: 133 to 175 MB/s were measured.
    assert!((133.0 * 0.9..175.0 * 1.1).contains(&mean));
}

#[test]
fn disk_of_2012_random() {
    let whole = random_iops(hdd2012(), 1000 * GB);
    near("4 KiB over 1 TB, QD16, IOPS", whole, 110.0, 10.0);
    // F2: 11 % of the volume is on the SSD, which answers in no time beside the disk.
    near("F2, MB/s", whole / 0.89 * 4096.0 / 1e6, 0.51, 10.0);
    let near_by = random_iops(hdd2012(), 8 * GB);
    near("4 KiB over 8 GB, QD16, IOPS", near_by, 147.0, 10.0);
    near("4 KiB over 8 GB, MB/s", near_by * 4096.0 / 1e6, 0.60, 10.0);
    let best = random_iops(HddSpec { order: Order::ShortestPositioning, ..hdd2012() }, 8 * GB);
    println!("SPTF over 8 GB: {best:.0} IOPS");
    // The notes give 200 to 370, depending on what a disk knows.
    assert!((200.0 * 0.9..370.0 * 1.1).contains(&best), "{best}");
}

#[test]
fn disk_of_2012_chunks() {
    let spec = hdd2012();
    near("a lone chunk, ms", lone_ms(&spec, CHUNK), 15.6, 10.0);
    near("of a batch of 32, ms", batch_ms(&spec, 32), 10.0, 10.0);
    near("of a batch of 256, ms", batch_ms(&spec, 256), 8.3, 10.0);
    let run = lone_ms(&spec, 8 * CHUNK);
    near("a run of 1 MiB, ms", run, 21.7, 10.0);
    near("per chunk of it, ms", run / 8.0, 2.7, 10.0);
}

#[test]
fn disk_of_2014() {
    near("128 KiB, mean over the capacity", capacity_mean(&hdd2014()), 78.0, 10.0);
    // The notes place G1's 82 to 88 at 37 to 48 % of the capacity, taking them for MB/s. The review measured MiB/s:
    // then they are 86 to 92 MB/s, which the model has at 30 to 41 %. Both hold within 10 % at both places.
    near("128 KiB at 37 %, MB/s", sequential(hdd2014(), 0.37, CHUNK), 88.0, 10.0);
    near("128 KiB at 48 %, MB/s", sequential(hdd2014(), 0.48, CHUNK), 82.0, 10.0);
    near("G1: 256 KiB at 35 %, MiB/s", sequential(hdd2014(), 0.35, 2 * CHUNK) / 1.048_576, 85.0, 10.0);
    let whole = random_iops(hdd2014(), 1000 * GB);
    near("4 KiB over 1 TB, QD16, IOPS", whole, 83.0, 10.0);
    near("4 KiB over 1 TB, MB/s", whole * 4096.0 / 1e6, 0.34, 10.0);
    near("4 KiB over 8 GB, QD16, IOPS", random_iops(hdd2014(), 8 * GB), 115.0, 10.0);
    near("a lone chunk, ms", lone_ms(&hdd2014(), CHUNK), 20.7, 10.0);
    near("of a batch of 32, ms", batch_ms(&hdd2014(), 32), 13.7, 10.0);
    near("of a batch of 256, ms", batch_ms(&hdd2014(), 256), 11.2, 10.0);
    near("a run of 1 MiB, ms", lone_ms(&hdd2014(), 8 * CHUNK), 32.4, 10.0);
}

/// Arithmetic of the notes on the measured passes of machines A and B, with the models' figures.
#[test]
fn figures_derived_from_the_models() {
    // F3: share f of the writes that must have gone to the disk, if a write takes 1/D there and 1/S on the SSD.
    let ssd = 24_400.0;
    let slow = random_iops(hdd2012(), 8 * GB);
    // 201 stands for a disk that orders by the angle too, a little.
    let share = |mb_per_s: f64, disk: f64| (4096.0 / (mb_per_s * 1e6) - 1.0 / ssd) / (1.0 / disk - 1.0 / ssd) * 100.0;
    near("pass 1, least %", share(9.0, slow), 6.0, 10.0);
    near("pass 1, most %", share(7.0, 201.0), 11.0, 10.0);
    // The notes round to 2 and 3 %.
    near("pass 2, least %", share(21.9, slow), 2.16, 10.0);
    near("pass 2, most %", share(21.9, 201.0), 2.96, 10.0);
    near("pass 3, most %", share(35.0, 201.0), 1.5, 10.0);
    // G3: 2 GB in chunks at 80 MB/s.
    near("2 GB file promoted, s", 16_384.0 * CHUNK as f64 / 80e6, 27.0, 10.0);
    // G4, G5: 34 reading and 15 writing passes over 2 GB at the disk's rate.
    let pass_s = 16_384.0 * CHUNK as f64 / 1e6 / sequential(hdd2014(), 0.37, CHUNK);
    near("reading, chunks per pass", 16_384.0 / 34.0, 480.0, 10.0);
    near("writing, chunks per pass", 16_384.0 / 15.0, 1090.0, 10.0);
    near("reading, chunks per second", 16_384.0 / 34.0 / pass_s, 20.0, 10.0);
    near("writing, chunks per second", 16_384.0 / 15.0 / pass_s, 45.0, 10.0);
    // The same as shares of what is left: less than a chunk is left at the end.
    near("reading, chunks left", 16_384.0 * 0.75f64.powi(34), 1.0, 10.0);
    near("writing, chunks left", 16_384.0 * 0.52f64.powi(15), 1.0, 10.0);
}

#[test]
fn a_write_is_answered_by_the_cache_and_a_flush_waits_for_the_drain() {
    let mut d = disk(hdd2012());
    for i in 0..8 {
        d.submit(0, i, Request::write((7 - i) * 100 * GB, 4096)).expect("fits");
    }
    d.submit(0, 8, Request::flush()).expect("taken");
    for i in 0..8 {
        let end = d.wait().expect("one");
        assert_eq!(end.id, i);
        assert!(end.at < 1_000_000, "{end:?}");
    }
    assert_eq!(d.dirty(), 8);
    let end = d.wait().expect("the flush");
    assert_eq!((end.id, d.dirty()), (8, 0));
    assert!((40_000_000..160_000_000).contains(&end.at), "{end:?}");
    // Nothing is left: a second flush is for nothing.
    d.submit(end.at, 9, Request::flush()).expect("taken");
    assert!(d.wait().expect("the flush").at < end.at + 1_000_000);

    let mut through = disk(HddSpec { cache_bytes: 0, ..hdd2012() });
    through.submit(0, 0, Request::write(500 * GB, 4096)).expect("fits");
    assert!(through.wait().expect("one").at > 5_000_000);
}

#[test]
fn a_flush_waits_only_for_what_was_before_it_and_reads_come_first() {
    let mut d = disk(hdd2012());
    d.submit(0, 0, Request::write(900 * GB, 4096)).expect("fits");
    d.submit(0, 1, Request::write(GB, 4096)).expect("fits");
    d.submit(0, 2, Request::write(2 * GB, 4096)).expect("fits");
    d.submit(1000, 3, Request::read(950 * GB, 4096)).expect("fits");
    let order: Vec<u64> = (0..4).map(|_| d.wait().expect("four").id).collect();
    // The write under the head ends, then the read is served before two writes; they were answered at once.
    assert_eq!(order, [0, 1, 2, 3]);
    assert_eq!(d.dirty(), 2, "the read did not wait for the drain");
    // What is in the cache is read from there.
    d.submit(0, 4, Request::read(GB, 4096)).expect("fits");
    assert_eq!(d.wait().expect("the read").id, 4);
    assert_eq!(d.dirty(), 2, "it was not read from the platter");
}

#[test]
fn nothing_starves() {
    let mut d = disk(HddSpec { cache_bytes: 0, ..hdd2012() });
    let far = 999;
    d.submit(0, 0, Request::read(0, 4096)).expect("fits");
    d.submit(0, far, Request::read(900 * GB, 4096)).expect("fits");
    let mut rng = Prng::new(1);
    let mut served = 0;
    for i in 1.. {
        d.submit(0, i, Request::read(rng.below(1000) * 4096, 4096)).expect("fits");
        d.submit(0, i + 1_000_000, Request::read(rng.below(1000) * 4096, 4096)).expect("fits");
        if d.wait().expect("some").id == far {
            break;
        }
        served += 1;
        assert!(served <= MAX_SKIPS + 1, "passed over for ever");
    }
    assert!(served > 10, "the nearest are served first");
}

#[test]
fn a_cached_write_is_drained_under_reads_without_end() {
    let mut d = disk(hdd2012());
    d.submit(0, 0, Request::read(0, 4096)).expect("fits");
    d.submit(0, 1, Request::write(500 * GB, 4096)).expect("fits");
    let mut rng = Prng::new(3);
    let mut reads = 0;
    while d.dirty() > 0 {
        d.submit(0, 2, Request::read(rng.below(1000) * GB, 4096)).expect("fits");
        while d.wait().is_some_and(|end| end.id == 1) {}
        d.submit(0, 2, Request::read(rng.below(1000) * GB, 4096)).expect("fits");
        reads += 1;
        assert!(reads <= MAX_SKIPS + 2, "never drained");
    }
    assert!(reads > MAX_SKIPS / 2, "reads come first");
}

#[test]
fn reading_on_after_a_pause_needs_no_turn_but_writing_on_does() {
    let spec = HddSpec { cache_bytes: 0, ..hdd2012() };
    let second = |op: Op| {
        let mut d = disk(spec.clone());
        d.submit(0, 0, Request { op, offset: GB, len: CHUNK }).expect("fits");
        let first = d.wait().expect("one").at;
        let now = first + 1_000_000;
        d.submit(now, 1, Request { op, offset: GB + CHUNK, len: CHUNK }).expect("fits");
        d.wait().expect("one").at - now
    };
    // What the buffer has takes the bus, and the electronics.
    near("reading on, ms", second(Op::Read) as f64 / 1e6, 0.05 + CHUNK as f64 / 550e3, 2.0);
    // A turn less the pause, and the transfer.
    near("writing on, ms", second(Op::Write) as f64 / 1e6, 8.33 - 1.0 + 0.7, 2.0);
}

#[test]
fn requests_beyond_the_disk_are_refused_and_change_nothing() {
    let mut d = disk(hdd2012());
    let size = d.size();
    for (offset, len) in [(size, 512), (size - 511, 512), (u64::MAX, 2), (0, u64::MAX)] {
        for op in [Op::Read, Op::Write, Op::Trim] {
            assert_eq!(d.submit(0, 1, Request { op, offset, len }), Err(Refused::OutOfRange { offset, len, size }));
        }
    }
    assert_eq!(d.submit(0, 1, Request::read(5, 0)), Err(Refused::Empty { offset: 5 }));
    assert_eq!(d.submit(0, 1, Request::write(5, 2 << 30)), Err(Refused::TooLong { len: 2 << 30 }));
    assert_eq!(d.next_event(), None);
    for bad in [
        HddSpec { size: 0, ..hdd2012() },
        HddSpec { rpm: 0, ..hdd2012() },
        HddSpec { inner_rate: 200_000_000, ..hdd2012() },
        HddSpec { seek_ms: [1.0, f64::NAN, 0.0], ..hdd2012() },
        HddSpec { seek_ms: [1.0, 1.0, -3.0], ..hdd2012() },
        HddSpec { queue: 0, ..hdd2012() },
        HddSpec { cache_commands: 0, ..hdd2012() },
    ] {
        assert!(Hdd::new(bad).is_err());
    }
}

#[test]
fn strange_clocks_do_no_harm() {
    let mut d = disk(hdd2012());
    for (id, now) in [5, 0, u64::MAX, 3, u64::MAX].into_iter().enumerate() {
        d.submit(now, id as u64, Request::read(id as u64 * GB, CHUNK)).expect("fits");
    }
    let mut ends: Vec<u64> = std::iter::from_fn(|| d.wait()).map(|e| e.id).collect();
    ends.sort_unstable();
    assert_eq!(ends, [0, 1, 2, 3, 4]);
}

/// Every request ends exactly once, never before it came, in the order of time; twice the same.
#[test]
fn any_mix_of_requests_ends_once_and_the_same_way() {
    let run = |seed: u64, order: Order, cache_bytes: u64| {
        let mut d = disk(HddSpec { order, cache_bytes, cache_commands: 8, ..hdd2012() });
        let mut rng = Prng::new(seed);
        let (mut now, mut sent, mut ends) = (0, Vec::new(), Vec::new());
        for id in 0..4000 {
            now += rng.below(12_000_000);
            let (offset, len) = (rng.below(1000) * GB, 512 * rng.range(1, 512));
            let request = match rng.below(10) {
                0 => Request::flush(),
                1 => Request::trim(offset, len),
                2..6 => Request::read(offset, len),
                _ => Request::write(offset, len),
            };
            d.submit(now, id, request).expect("fits");
            sent.push(now);
            while let Some(end) = d.complete(now) {
                ends.push(end);
            }
        }
        ends.extend(std::iter::from_fn(|| d.wait()));
        assert!(ends.windows(2).all(|w| w[0].at <= w[1].at));
        assert!(ends.iter().all(|e| e.at >= sent[e.id as usize]));
        let mut ids: Vec<u64> = ends.iter().map(|e| e.id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..4000));
        ends
    };
    for order in [Order::ShortestSeek, Order::ShortestPositioning] {
        for cache in [0, 1 << 20] {
            assert_eq!(run(1, order, cache), run(1, order, cache));
            assert_ne!(run(1, order, cache), run(2, order, cache));
        }
    }
}
