//! SSDs: the notes' section 4, and section 5 where it speaks of time.

use bimetal_sim::model::catalog::{pcie480, pm830, sd0128f, sf2200};
use bimetal_sim::model::sandforce::Content;
use bimetal_sim::model::ssd::{Ssd, SsdSpec};
use bimetal_sim::model::{Model, Refused, Request};
use bimetal_sim::prng::Prng;

use crate::{closed_loop, near, Seen};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const CHUNK: u64 = 128 * KIB;
const SECOND: u64 = 1_000_000_000;

fn ssd(spec: SsdSpec) -> Ssd {
    Ssd::new(spec).expect("a sound spec")
}

/// A device with fewer blocks and otherwise the same: what a test needs to reach the steady state soon. `rho` is its
/// spare.
fn small(spec: SsdSpec, rho: f64) -> SsdSpec {
    let raw = 512 * spec.block_pages as u64 * spec.page;
    SsdSpec { raw, size: (raw as f64 / (1.0 + rho)) as u64 / CHUNK * CHUNK, ..spec }
}

/// Requests of `len` bytes, one after another in the address space, `depth` in flight.
fn sequential(ssd: &mut Ssd, now: u64, len: u64, depth: usize, count: u64, make: fn(u64, u64) -> Request) -> Seen {
    let (size, mut at) = (ssd.size() / len * len, 0);
    closed_loop(ssd, now, depth, 100, count, || {
        at = (at + len) % size;
        make(at, len)
    })
}

fn random_writes(ssd: &mut Ssd, now: u64, count: u64, seed: u64) -> Seen {
    let (pages, mut rng) = (ssd.size() / 8192, Prng::new(seed));
    closed_loop(ssd, now, 16, 16, count, || Request::write(rng.below(pages) * 8192, 4096))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

fn fill(ssd: &mut Ssd, now: u64) {
    let count = ssd.size() / CHUNK;
    sequential(ssd, now, CHUNK, 1, count, Request::write);
}

/// A time after everything that was asked of the device so far, as it is the last thing a flush waits for.
fn end(ssd: &mut Ssd) -> u64 {
    ssd.submit(0, 0, Request::flush()).expect("taken");
    ssd.wait().expect("the flush").at
}

#[test]
fn ssd_of_2012() {
    let mut device = ssd(pm830());
    near(
        "F1: 128 KiB writes, MB/s",
        sequential(&mut device, 0, CHUNK, 1, 4000, Request::write).mb_per_s(),
        322.0,
        10.0,
    );
    let now = end(&mut device);
    let random = random_writes(&mut device, now, 4000, 1);
    near("4 KiB writes, IOPS", random.iops(), 24_500.0, 10.0);
    near("F3: peak, MB/s", random.mb_per_s(), 98.0, 10.0);
    assert_eq!(device.counts().moved_pages, 0, "a new device has free blocks");
}

#[test]
fn ssd_of_2014() {
    // G1 is measured in MiB/s, and so the parameters are taken.
    let seen = sequential(&mut ssd(sd0128f()), 0, 256 * KIB, 4, 4000, Request::write);
    near("G1: 256 KiB writes, MiB/s", seen.mib_per_s(), 391.0, 10.0);
    let seen = sequential(&mut ssd(sd0128f()), 0, 256 * KIB, 4, 4000, Request::read);
    near("G1: 256 KiB reads, MiB/s", seen.mib_per_s(), 754.0, 10.0);
    let seen = sequential(&mut ssd(sd0128f()), 0, CHUNK, 1, 4000, Request::read);
    near("128 KiB reads one by one, MiB/s (notes)", seen.mib_per_s(), 437.0, 10.0);
    near("G3: second pass, MiB/s", seen.mib_per_s(), 427.0, 10.0);
}

#[test]
fn ssd_of_machine_c() {
    let seen = sequential(&mut ssd(pcie480()), 0, MIB, 1, 2000, Request::write);
    near("D1: MB/s", seen.mb_per_s(), 672.0, 10.0);
}

/// The notes: 98 falls to 27 MB/s at A 3.6, and to 35 (F3's lowest) at A 2.8. That holds for random writes over all of
/// the live data; see the next test for F3 itself.
#[test]
fn steady_random_speed_is_the_peak_over_the_amplification() {
    for (rho, wanted_a, wanted_speed) in [(0.171, 3.6, 27.0), (0.24, 2.8, 35.0)] {
        let mut device = ssd(small(pm830(), rho));
        fill(&mut device, 0);
        let pages = device.size() / 8192;
        let now = end(&mut device);
        random_writes(&mut device, now, 2 * pages, 3);
        device.reset_counts();
        let now = end(&mut device);
        let seen = random_writes(&mut device, now, pages, 4);
        let c = device.counts();
        let a = (c.host_pages + c.moved_pages) as f64 / c.host_pages as f64;
        near(&format!("A at rho {rho}"), a, wanted_a, 5.0);
        near("steady random, MB/s", seen.mb_per_s(), wanted_speed, 10.0);
        near("times A, MB/s", seen.mb_per_s() * a, 100.2, 5.0);
        // One request pays a slice of cleaning at most; 16 wait for each other.
        let spike_ms = seen.longest_ns as f64 / 1e6;
        println!("longest of 16 in flight: {spike_ms:.1} ms");
        assert!(spike_ms > 5.0 && spike_ms < 16.0 * 6.0, "{spike_ms}");
    }
}

/// F3 does not follow from greedy cleaning with A 2.8, as the notes have it: 8 GB of 121.3 are written at random, the
/// rest stays, so the 16 GB of spare serve the 8 GB alone and A is near 1. The model gives 94 MB/s where 35 were the
/// lowest measured. The gap must have another cause: accesses to the disk (1.5 % are enough), or a mapping that the
/// real device keeps coarser.
#[test]
fn random_writes_in_a_small_range_of_a_full_device_are_hardly_amplified() {
    let mut device = ssd(small(pm830(), 0.1327));
    fill(&mut device, 0);
    let (pages, mut rng) = (device.size() / 8192 * 8 / 121, Prng::new(5));
    for _ in 0..2 {
        device.reset_counts();
        let now = end(&mut device);
        let seen = closed_loop(&mut device, now, 16, 16, 20 * pages, || Request::write(rng.below(pages) * 8192, 4096));
        println!("8 GB of 121: {:.1} MB/s, A {:.3}", seen.mb_per_s(), device.counts().write_amplification());
    }
    assert!(device.counts().write_amplification() < 1.2);
}

#[test]
fn one_write_at_a_time_sees_spikes_of_a_slice() {
    let mut device = ssd(small(pm830(), 0.171));
    fill(&mut device, 0);
    let pages = device.size() / 8192;
    let now = end(&mut device);
    random_writes(&mut device, now, 2 * pages, 3);
    let mut rng = Prng::new(9);
    let now = end(&mut device);
    let (mut now, mut times) = (now, Vec::new());
    for id in 0..50_000 {
        device.submit(now, id, Request::write(rng.below(pages) * 8192, 4096)).expect("fits");
        let end = device.wait().expect("one").at;
        times.push(end - now);
        now = end;
    }
    times.sort_unstable();
    let ms = |i: usize| times[i] as f64 / 1e6;
    let (median, p99, most) = (ms(25_000), ms(49_500), ms(49_999));
    println!("median {median:.3} ms, p99 {p99:.2} ms, longest {most:.2} ms");
    // The notes: 1 to 10 ms for the cleaning of a block. At A 3.6 the 370 pages that are moved take 15 ms of the host's
    // time if the speed is to be peak / A; so a block is cleaned in slices.
    assert!(median < 0.05 && (1.0..10.0).contains(&p99) && most < 10.0);
}

#[test]
fn idle_time_restores_the_peak_for_a_while() {
    let mut device = ssd(small(pm830(), 0.171));
    fill(&mut device, 0);
    let pages = device.size() / 8192;
    let now = end(&mut device);
    let steady = random_writes(&mut device, now, 3 * pages, 3).mb_per_s();
    let now = end(&mut device);
    // A moment is not enough.
    let still = random_writes(&mut device, now + SECOND / 100, pages / 100, 4).mb_per_s();
    near("steady, MB/s", still, steady, 25.0);
    let now = end(&mut device) + 600 * SECOND;
    let after = random_writes(&mut device, now, pages / 20, 5).mb_per_s();
    near("after ten minutes, MB/s", after, 100.2, 5.0);
    let now = end(&mut device);
    random_writes(&mut device, now, 2 * pages, 6);
    let now = end(&mut device);
    near("and steady again, MB/s", random_writes(&mut device, now, pages, 7).mb_per_s(), steady, 5.0);
    // Idle time cleans no more than it must: nothing is erased in a second pause.
    let erases = device.counts().erases;
    device.submit(now + 3600 * SECOND, 0, Request::flush()).expect("taken");
    device.submit(now + 3601 * SECOND, 0, Request::flush()).expect("taken");
    let first = device.counts().erases;
    device.submit(now + 9000 * SECOND, 0, Request::flush()).expect("taken");
    assert!(first > erases && device.counts().erases == first);
}

/// G7: random writes are as fast as ever while the device fills, down to 8 GB free; then they collapse; after TRIM and
/// a pause they are as fast as when it was new.
#[test]
fn trim_and_a_pause_restore_the_peak() {
    let mut device = ssd(small(sd0128f(), 0.1327));
    let new = random_writes(&mut device, 0, 2000, 1).mb_per_s();
    let pages = device.size() / 8192;
    // Every page once, in an order that jumps about: the step has no common factor with the number of pages.
    let step = (pages / 3..).find(|step| gcd(*step, pages) == 1).expect("there is one");
    let mut at = 0;
    let mut next = || {
        at = (at + step) % pages;
        Request::write(at * 8192, 4096)
    };
    let mut free_gb = 121;
    for least_free_gb in [96, 64, 32, 8, 0] {
        let count = pages * (free_gb - least_free_gb) / 121;
        let now = end(&mut device);
        let speed = closed_loop(&mut device, now, 16, 0, count, &mut next).mb_per_s();
        near(&format!("down to {least_free_gb} GB free, MB/s"), speed, new, 5.0);
        free_gb = least_free_gb;
    }
    let now = end(&mut device);
    random_writes(&mut device, now, 2 * pages, 2);
    let now = end(&mut device);
    let worn = random_writes(&mut device, now, pages / 4, 3).mb_per_s();
    assert!(worn < new / 3.0, "{worn} of {new}");
    let size = device.size();
    device.submit(0, 0, Request::trim(0, size)).expect("fits");
    device.wait().expect("the trim");
    assert_eq!(device.ftl().mapped_pages(), 0);
    device.reset_counts();
    let now = end(&mut device) + 900 * SECOND;
    near("after TRIM, MB/s", random_writes(&mut device, now, pages / 2, 4).mb_per_s(), new, 2.0);
    assert_eq!(device.counts().moved_pages, 0);
}

#[test]
fn sandforce_depends_on_the_data_and_others_do_not() {
    let rate = |spec: SsdSpec, content: Content| {
        let mut device = ssd(spec);
        device.set_content(content);
        sequential(&mut device, 0, CHUNK, 1, 4000, Request::write).mb_per_s()
    };
    let compressible = rate(sf2200(), Content::Pattern);
    let video = rate(sf2200(), Content::Compressed);
    near("S2: compressible, MB/s", compressible, 500.0, 10.0);
    near("S1: video, MB/s", video, 231.0, 10.0);
    assert!(video < compressible / 2.0);
    assert_eq!(rate(sf2200(), Content::Encrypted), video);
    assert_eq!(rate(pm830(), Content::Pattern), rate(pm830(), Content::Encrypted));
}

/// S3: random writes to an encrypted volume get slower run after run, compressible ones do not; what is programmed is
/// less than what is written only if it was reduced. The review wrote to 8 GB again and again; as with F3, greedy
/// cleaning is not slowed by that, so here the runs go over the whole volume.
#[test]
fn sandforce_on_encrypted_data_falls_run_after_run() {
    let runs = |content: Content| {
        let mut device = ssd(small(sf2200(), 0.145));
        device.set_content(content);
        fill(&mut device, 0);
        device.reset_counts();
        let pages = device.size() / 8192;
        let mut speeds = Vec::new();
        for run in 0..5 {
            let now = end(&mut device);
            speeds.push(random_writes(&mut device, now, pages / 16, run).mb_per_s());
        }
        let a = device.counts().write_amplification();
        println!("{content:?}: {speeds:.1?} MB/s, A {a:.2}");
        (speeds, a, device)
    };
    let (speeds, a, mut device) = runs(Content::Encrypted);
    // Once the spare is used up it dips a little below its steady speed: all blocks were filled at the same time.
    assert!(speeds.windows(2).all(|w| w[1] < w[0] * 1.25) && speeds[4] < speeds[0] / 3.0, "{speeds:?}");
    assert!(a > 1.0);
    // Sequential passes bring it back.
    let mut passes = Vec::new();
    for _ in 0..6 {
        let now = end(&mut device);
        let count = device.size() / CHUNK;
        passes.push(sequential(&mut device, now, CHUNK, 1, count, Request::write).mb_per_s());
    }
    println!("sequential passes: {passes:.0?} MB/s");
    near("recovered, MB/s", passes[5], 250.0, 10.0);
    let (speeds, a, _) = runs(Content::Programs);
    assert!(speeds[4] > speeds[0] * 0.9 && (0.439..0.6).contains(&a), "{speeds:?} {a}");
    let (_, a, _) = runs(Content::Pattern);
    near("fully compressible streams, WA", a, 0.14, 2.0);
}

/// One region in eight stands for all: the same amplification and the same speed.
#[test]
fn a_scaled_device_is_like_the_whole_one() {
    let steady = |scale: u32| {
        let spec = small(pm830(), 0.2);
        let mut device = ssd(SsdSpec { scale, size: 8 * spec.size, raw: 8 * spec.raw, block_pages: 64, ..spec });
        // The modelled part alone is filled and brought to its steady state by writes everywhere.
        fill(&mut device, 0);
        let pages = device.size() / 8192;
        let now = end(&mut device);
        random_writes(&mut device, now, 2 * pages, 1);
        device.reset_counts();
        let now = end(&mut device);
        let speed = random_writes(&mut device, now, pages / 2, 2).mb_per_s();
        (device.counts().write_amplification(), speed)
    };
    let ((a, speed), (a8, speed8)) = (steady(1), steady(8));
    near("A of an eighth", a8, a, 4.0);
    near("speed by an eighth", speed8, speed, 6.0);
}

#[test]
fn small_sequential_writes_share_a_page() {
    let mut device = ssd(pm830());
    sequential(&mut device, 0, 4096, 1, 3996, Request::write);
    let c = device.counts();
    assert!(c.host_pages <= 4100 / 2 + 2, "{c:?}");
    assert_eq!(device.nand_bytes(), c.host_pages * 8192);
}

#[test]
fn requests_beyond_the_device_are_refused() {
    let mut device = ssd(pm830());
    let size = device.size();
    assert_eq!(device.submit(0, 1, Request::write(size, 1)), Err(Refused::OutOfRange { offset: size, len: 1, size }));
    assert_eq!(device.submit(0, 1, Request::write(0, 0)), Err(Refused::Empty { offset: 0 }));
    assert_eq!(device.next_event(), None);
    for bad in [
        SsdSpec { size: 0, ..pm830() },
        SsdSpec { page: 0, ..pm830() },
        SsdSpec { page: 5000, ..pm830() },
        SsdSpec { raw: pm830().size, ..pm830() },
        SsdSpec { raw: 1, ..pm830() },
        SsdSpec { scale: 0, ..pm830() },
        SsdSpec { channels: 0, ..pm830() },
        SsdSpec { block_pages: 0, ..pm830() },
        SsdSpec { streams: 0, ..pm830() },
        SsdSpec { write_rate: 0, ..pm830() },
        SsdSpec { size: 1 << 62, raw: u64::MAX, ..pm830() },
    ] {
        assert!(Ssd::new(bad).is_err());
    }
}

/// The notes' section 2.11: 137 GB of flash with 3000 erases at A 3.6 take 114 TB from the host, 62 GB a day for 5
/// years.
#[test]
fn wear_sets_the_life() {
    let spec = small(pm830(), 0.172);
    let mut device = ssd(spec.clone());
    fill(&mut device, 0);
    let (pages, mut rng) = (device.size() / 8192, Prng::new(31));
    let mut writes = |device: &mut Ssd| {
        let now = end(device);
        closed_loop(device, now, 1, 0, 2 * pages, || Request::write(rng.below(pages) * 8192, 8192)).bytes
    };
    writes(&mut device);
    let before = device.worn();
    let life = writes(&mut device) as f64 / (device.worn() - before);
    let tb = life / spec.raw as f64 * 137.44e9 / 1e12;
    near("life, TB", tb, 114.0, 5.0);
    near("GB a day", tb * 1000.0 / (5.0 * 365.0), 62.0, 5.0);
}

/// Every request ends exactly once, never before it came, in the order of time; twice the same.
#[test]
fn any_mix_of_requests_ends_once_and_the_same_way() {
    let run = |seed: u64| {
        let mut device = ssd(small(pm830(), 0.15));
        let (size, mut rng) = (device.size(), Prng::new(seed));
        let (mut now, mut sent, mut ends) = (0, Vec::new(), Vec::new());
        for id in 0..20_000 {
            now += rng.skewed(3_000_000);
            let len = 512 * rng.range(1, 2048);
            let offset = rng.below(size - len);
            let request = match rng.below(10) {
                0 => Request::flush(),
                1 => Request::trim(offset, len),
                2..5 => Request::read(offset, len),
                _ => Request::write(offset, len),
            };
            device.submit(now, id, request).expect("fits");
            sent.push(now);
            while let Some(end) = device.complete(now) {
                ends.push(end);
            }
        }
        ends.extend(std::iter::from_fn(|| device.wait()));
        assert!(ends.windows(2).all(|w| w[0].at <= w[1].at));
        assert!(ends.iter().all(|e| e.at >= sent[e.id as usize]));
        let mut ids: Vec<u64> = ends.iter().map(|e| e.id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..20_000));
        assert!(device.counts().moved_pages > 0, "cleaning took part");
        ends
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Each write pays what it should even if the clock stands still or jumps to its end.
#[test]
fn strange_clocks_do_no_harm() {
    let mut device = ssd(small(pm830(), 0.15));
    fill(&mut device, 0);
    for (id, now) in [5, 0, u64::MAX, 3, u64::MAX].into_iter().enumerate() {
        device.submit(now, id as u64, Request::write(0, CHUNK)).expect("fits");
    }
    let ends: Vec<u64> = std::iter::from_fn(|| device.wait()).map(|e| e.id).collect();
    assert_eq!(ends, [0, 1, 2, 3, 4]);
}
