//! Closed loops: a new request follows each completion, a fixed number is on its way.
//!
//! All begin with nothing on its way, and leave nothing behind: what is on its way when a load ends is waited for, but
//! not measured.

use std::ops::Range;

use bimetal_sim::model::{Op, Request};
use bimetal_sim::prng::Prng;

use super::meter::Meter;
use super::System;

/// Virtual ns after which a request that does not come back counts as lost: an hour.
pub(super) const LOST: u64 = 3_600_000_000_000;

/// A load of equal requests.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes of the system that it works on.
    pub range: Range<u64>,
    /// Bytes of a request.
    pub block: u64,
    /// Requests on their way at a time.
    pub depth: usize,
    /// Reads or writes.
    pub op: Op,
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After so many ns.
    After(u64),
    /// When so many requests are complete.
    Requests(u64),
}

/// Goes through the range once, in order. The last request is shorter if the range is not a multiple of the block.
pub fn sequential(system: &mut dyn System, load: &Load, meter: Meter) -> Meter {
    let (op, block, end) = (load.op, load.block, load.range.end);
    let offsets = load.range.clone().step_by(block as usize);
    let requests = offsets.map(|offset| Request { op, offset, len: block.min(end - offset) });
    closed_loop(system, load.depth, None, requests, meter)
}

/// Requests anywhere in the range, aligned to the block, chance from `seed`. A range below one block is a fault of the
/// caller and panics.
pub fn random(system: &mut dyn System, load: &Load, seed: u64, stop: Stop, meter: Meter) -> Meter {
    let (op, block, start) = (load.op, load.block, load.range.start);
    let places = (load.range.end - start) / block;
    assert!(places > 0, "no block of {block} bytes fits {:?}", load.range);
    let mut prng = Prng::new(seed);
    let requests =
        std::iter::repeat_with(move || Request { op, offset: start + prng.below(places) * block, len: block });
    match stop {
        Stop::After(ns) => closed_loop(system, load.depth, Some(ns), requests, meter),
        Stop::Requests(n) => closed_loop(system, load.depth, None, requests.take(n as usize), meter),
    }
}

/// Keeps `depth` of the requests on their way until they end, or `after` ns have passed.
pub fn closed_loop(
    system: &mut dyn System,
    depth: usize,
    after: Option<u64>,
    requests: impl IntoIterator<Item = Request>,
    mut meter: Meter,
) -> Meter {
    assert!(depth > 0, "a load without requests on their way");
    meter.begin(system.now());
    let end = after.map(|ns| system.now() + ns);
    let mut requests = requests.into_iter();
    // By id: when it was submitted, and its bytes.
    let mut sent: Vec<(u64, u64)> = Vec::with_capacity(depth);
    while let Some(request) = (sent.len() < depth).then(|| requests.next()).flatten() {
        system.submit(sent.len() as u64, request);
        sent.push((system.now(), request.len));
    }
    let mut outstanding = sent.len();
    while outstanding > 0 {
        let limit = end.unwrap_or(system.now() + LOST);
        let Some(done) = system.run(limit) else {
            assert!(end.is_some(), "{} has not answered for an hour", system.name());
            break;
        };
        let (submitted, bytes) = sent[done.id as usize];
        meter.count(submitted, done.at, bytes);
        outstanding -= 1;
        if let Some(request) = requests.next() {
            system.submit(done.id, request);
            sent[done.id as usize] = (system.now(), request.len);
            outstanding += 1;
        }
    }
    if let Some(end) = end {
        meter.end(end);
    }
    drain(system, outstanding);
    meter
}

/// Waits for so many completions.
pub fn drain(system: &mut dyn System, outstanding: usize) {
    for _ in 0..outstanding {
        let done = system.run(system.now() + LOST);
        assert!(done.is_some(), "{} has not answered for an hour", system.name());
    }
}

/// Carries out one request; how many ns it took.
pub fn once(system: &mut dyn System, request: Request) -> u64 {
    let begun = system.now();
    system.submit(0, request);
    drain(system, 1);
    system.now() - begun
}

/// Lets time pass, in ns, without any load.
pub fn pause(system: &mut dyn System, ns: u64) {
    let done = system.run(system.now() + ns);
    assert!(done.is_none(), "a request was on its way when the pause began");
}

#[cfg(test)]
mod tests {
    use bimetal_sim::model::catalog;
    use bimetal_sim::model::ssd::Ssd;
    use bimetal_volume::units::Tier;

    use super::super::bare::Bare;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn ssd() -> Bare<Ssd> {
        let spec = catalog::pm830();
        Bare::new("ssd", Tier::Fast, Box::new(Ssd::new(spec).expect("the catalog's SSD")))
    }

    fn within(seen: f64, wanted: f64, percent: f64) {
        assert!((seen / wanted - 1.0).abs() * 100.0 < percent, "{seen} is not within {percent} % of {wanted}");
    }

    #[test]
    fn sequential_writes_have_the_speed_of_the_ssd() {
        let mut system = ssd();
        let load = Load { range: 0..1000 * MIB + 4096, block: 128 << 10, depth: 1, op: Op::Write };
        let meter = sequential(&mut system, &load, Meter::new(100_000_000));
        within(meter.rate() / 1e6, 322.0, 2.0);
        assert_eq!(meter.bytes(), 1000 * MIB + 4096);
        assert_eq!((system.facts().fast.writes, meter.latencies().count()), (8001, 8001));
        within(meter.lowest(), meter.highest(), 2.0);
    }

    #[test]
    fn a_random_load_ends_with_its_time_or_count() {
        let mut system = ssd();
        let load = Load { range: MIB..9 * MIB, block: 4096, depth: 16, op: Op::Write };
        let timed = random(&mut system, &load, 1, Stop::After(500_000_000), Meter::seconds());
        assert_eq!(timed.elapsed(), 500_000_000);
        within(timed.rate() / 1e6, 98.0, 5.0);
        let before = system.now();
        pause(&mut system, 1_000_000);
        assert_eq!(system.now(), before + 1_000_000);
        let counted = random(&mut system, &load, 1, Stop::Requests(1000), Meter::seconds());
        assert_eq!((counted.latencies().count(), counted.bytes()), (1000, 4_096_000));
        let of_one = once(&mut system, Request::flush());
        assert!(of_one < 10_000_000, "{of_one}");
    }

    #[test]
    fn the_same_seed_gives_the_same_load() {
        let run = |seed| {
            let mut system = ssd();
            let load = Load { range: 0..64 * MIB, block: 4096, depth: 4, op: Op::Read };
            random(&mut system, &load, seed, Stop::Requests(500), Meter::new(1_000_000))
        };
        assert_eq!(run(1), run(1));
    }
}
