//! How many requests per second of real time the full engine serves on modelled devices.
//!
//! `engine_speed [PATTERN [SECONDS]]`; without a pattern, all of them. A pattern is `OP-KIB-PLACE`, as in `write-4-fast`.

use std::time::Instant;

use bimetal_lab::system::bimetal::{Bimetal, Part, Setup};
use bimetal_lab::system::load::{closed_loop, Load};
use bimetal_lab::system::meter::Meter;
use bimetal_lab::system::{Op, Request, System};
use bimetal_sim::model::catalog;
use bimetal_sim::prng::Prng;

const GIB: u64 = 1 << 30;
/// Written before anything is measured.
const FILLED: u64 = 200 * GIB;
const DEPTH: usize = 16;
/// Requests between looks at the real clock.
const ROUND: u64 = 20_000;

/// Name, operation, bytes of a request, range, and whether it goes through it in order.
const PATTERNS: [(&str, Op, u64, std::ops::Range<u64>, bool); 8] = [
    ("read-4-fast", Op::Read, 4 << 10, 0..64 * GIB, false),
    ("write-4-fast", Op::Write, 4 << 10, 0..64 * GIB, false),
    ("read-128-fast", Op::Read, 128 << 10, 0..64 * GIB, true),
    ("write-128-fast", Op::Write, 128 << 10, 0..64 * GIB, true),
    ("read-4-slow", Op::Read, 4 << 10, 140 * GIB..FILLED, false),
    ("write-4-slow", Op::Write, 4 << 10, 140 * GIB..FILLED, false),
    ("read-128-slow", Op::Read, 128 << 10, 140 * GIB..FILLED, true),
    ("write-128-new", Op::Write, 128 << 10, FILLED..900 * GIB, true),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let wanted = words.next();
    let seconds: f64 = words.next().map_or(Ok(3.0), |w| w.parse())?;
    let find = |name| catalog::find(name).ok_or("not in the catalog");
    let (fast, slow) = (Part::new(&find("pm830")?)?, Part::new(&find("hdd2012")?)?);
    let mut system = Bimetal::new(Setup { fast, slow, migrate: true, seed: 1 })?;
    let begun = Instant::now();
    system.fill(0..FILLED);
    println!("filled {} GiB in {:.1} s", FILLED / GIB, begun.elapsed().as_secs_f64());
    for (name, op, block, range, in_order) in PATTERNS {
        if wanted.as_ref().is_none_or(|w| w == name) {
            let load = Load { range, block, depth: DEPTH, op };
            println!("{name:>16} {:>9.0} requests/s", speed(&mut system, &load, in_order, seconds));
        }
    }
    println!("books on the devices: {} MiB", system.kept_bytes() >> 20);
    Ok(())
}

/// Requests per second of real time.
fn speed(system: &mut dyn System, load: &Load, in_order: bool, seconds: f64) -> f64 {
    let places = (load.range.end - load.range.start) / load.block;
    let (mut prng, mut next) = (Prng::new(1), 0);
    let mut request = || {
        next += 1;
        let place = if in_order { next % places } else { prng.below(places) };
        Request { op: load.op, offset: load.range.start + place * load.block, len: load.block }
    };
    let begun = Instant::now();
    let mut served = 0;
    while begun.elapsed().as_secs_f64() < seconds {
        let requests = (0..ROUND).map(|_| request());
        closed_loop(system, load.depth, None, requests, Meter::seconds());
        served += ROUND;
    }
    served as f64 / begun.elapsed().as_secs_f64()
}
