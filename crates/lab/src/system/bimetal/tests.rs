use std::time::Duration;

use bimetal_sim::model::catalog::{self, Spec};

use super::super::bare::Bare;
use super::super::load::{once, pause, random, sequential, Stop};
use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

/// The devices of machine A, smaller: quick to make, equally fast.
fn specs() -> (Spec, Spec) {
    let mut ssd = catalog::pm830();
    (ssd.size, ssd.raw) = (4 * GIB, 4 * GIB + GIB / 2);
    let mut disk = catalog::hdd2012();
    disk.size = 16 * GIB;
    (Spec::Ssd(ssd), Spec::Hdd(disk))
}

fn group(migrate: bool) -> Bimetal {
    let (fast, slow) = specs();
    let part = |spec| Part::new(spec).expect("sound parameters");
    let setup = Setup { fast: part(&fast), slow: part(&slow), migrate, seed: 1 };
    Bimetal::new(setup).expect("a group")
}

fn bare(tier: Tier) -> Bare<dyn bimetal_sim::model::Model> {
    let (fast, slow) = specs();
    let spec = if tier == Tier::Fast { fast } else { slow };
    Bare::new("alone", tier, spec.build().expect("sound parameters"))
}

fn within(seen: f64, wanted: f64, percent: f64) {
    assert!((seen / wanted - 1.0).abs() * 100.0 < percent, "{seen} is not within {percent} % of {wanted}");
}

fn load(range: Range<u64>, op: Op) -> Load {
    Load { range, block: 128 << 10, depth: 4, op }
}

fn rate(system: &mut dyn System, load: &Load) -> f64 {
    sequential(system, load, Meter::seconds()).rate()
}

#[test]
fn each_tier_is_as_fast_as_its_device() {
    let mut system = group(false);
    // The volume's first half gigabyte lands on the fast device, its last on the slow one.
    let fast = load(0..512 * MIB, Op::Write);
    within(rate(&mut system, &fast), rate(&mut bare(Tier::Fast), &fast), 4.0);
    system.fill(512 * MIB..4 * GIB);
    let start = 4 * GIB;
    assert_eq!(system.fast_bytes(0, 512 * MIB), 512 * MIB);
    let slow = load(start..start + 256 * MIB, Op::Write);
    within(rate(&mut system, &slow), rate(&mut bare(Tier::Slow), &load(0..256 * MIB, Op::Write)), 10.0);
    assert_eq!(system.fast_bytes(start, 256 * MIB), 0);
    pause(&mut system, 10 * SECOND);
    let reads = |range| load(range, Op::Read);
    let (mut ssd, mut disk) = (bare(Tier::Fast), bare(Tier::Slow));
    rate(&mut ssd, &fast);
    within(rate(&mut system, &reads(0..512 * MIB)), rate(&mut ssd, &reads(0..512 * MIB)), 4.0);
    let (seen, alone) = (reads(start..start + 256 * MIB), reads(0..256 * MIB));
    within(rate(&mut system, &seen), rate(&mut disk, &alone), 4.0);
}

#[test]
fn a_range_that_is_read_twice_goes_up() {
    let mut system = group(true);
    system.fill(0..6 * GIB);
    pause(&mut system, 60 * SECOND);
    let range = 5 * GIB..5 * GIB + 64 * MIB;
    assert_eq!(system.fast_bytes(range.start, 64 * MIB), 0);
    let facts = system.facts();
    assert!(facts.demoted > 0 && facts.fast_free >= system.status().reserve, "{facts:?}: {:?}", system.mover_words());
    for _ in 0..2 {
        let four = Load { block: 4096, depth: 16, ..load(range.clone(), Op::Read) };
        random(&mut system, &four, 7, Stop::Requests(16_384), Meter::seconds());
    }
    pause(&mut system, 60 * SECOND);
    let up = system.fast_bytes(range.start, 64 * MIB);
    assert!(up > 60 * MIB, "{} MiB of 64: {:?}", up / MIB, system.mover_words());
    assert!(system.facts().promoted >= up);
}

#[test]
fn without_moves_nothing_moves() {
    let mut system = group(false);
    system.fill(0..6 * GIB);
    pause(&mut system, 60 * SECOND);
    assert_eq!((system.facts().promoted, system.facts().demoted), (0, 0));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut system = group(true);
        system.fill(0..5 * GIB);
        let mixed = Load { block: 4096, depth: 16, ..load(0..5 * GIB, Op::Write) };
        let meter = random(&mut system, &mixed, 3, Stop::After(3 * SECOND), Meter::new(SECOND / 10));
        pause(&mut system, 20 * SECOND);
        (meter, system.facts(), system.fast_bytes(0, 5 * GIB), system.now())
    };
    assert_eq!(run(), run());
}

#[test]
fn filling_takes_no_time_and_is_seen_by_the_devices() {
    let mut system = group(true);
    let before = system.now();
    system.fill(0..GIB);
    assert_eq!(system.now(), before);
    assert!(system.facts().fast.write_bytes >= GIB);
    // The next request begins on an idle device.
    let ns = once(&mut system, Request::read(0, 4096));
    assert!(ns < Duration::from_millis(1).as_nanos() as u64, "{ns}");
}

#[test]
fn a_group_that_was_stopped_opens_as_it_was() {
    let mut system = group(true);
    let first = load(0..300 * MIB, Op::Write);
    sequential(&mut system, &first, Meter::seconds());
    once(&mut system, Request::trim(100 * MIB, 50 * MIB));
    let (fast, free) = (system.fast_bytes(0, GIB), system.facts().fast_free);
    assert_eq!(fast, 250 * MIB);
    system.stop();
    system.reopen().expect("opens");
    assert_eq!(system.fast_bytes(0, GIB), fast);
    pause(&mut system, 10 * SECOND);
    assert!(system.facts().fast_free >= free, "{} and {free}", system.facts().fast_free);
    assert!(system.kept_bytes() < 4 * MIB, "{}", system.kept_bytes());
    assert_eq!(system.status().latched, None);
}

#[test]
fn odd_ranges_and_flushes_are_served() {
    let mut system = group(true);
    for request in [
        Request::write(1000, 70_000),
        Request::read(0, 200_000),
        Request::flush(),
        Request::trim(500, 300_000),
        Request::read(system.size() - 512, 512),
    ] {
        once(&mut system, request);
    }
    assert_eq!(system.fast_bytes(0, MIB), 4096);
}
