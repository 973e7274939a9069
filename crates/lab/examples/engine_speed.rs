//! How many requests per second of real time, and of processor time, the full engine serves on modelled devices.
//!
//! On a machine that does other things as well, the figure by processor time is the one that means something.
//!
//! `engine_speed [PATTERN [SECONDS]]`; all of them without a pattern, or with `all`. A pattern is `OP-KIB-PLACE`, as in
//! `write-4-fast`.

use std::time::Instant;

use bimetal_lab::system::bimetal::{Bimetal, Part, Setup};
use bimetal_lab::system::load::{closed_loop, pause, Load};
use bimetal_lab::system::meter::Meter;
use bimetal_lab::system::{Op, Request, System};
use bimetal_sim::model::catalog;
use bimetal_sim::prng::Prng;

const GIB: u64 = 1 << 30;
/// Written before anything is measured: four fifths of the volume.
const FILLED: u64 = 832 * GIB;
const DEPTH: usize = 16;
/// Nanoseconds of rest after the filling, in which the engine makes room on the fast device.
const PAUSE: u64 = 300_000_000_000;
/// Requests between looks at the real clock.
const ROUND: u64 = 20_000;

/// Name, operation, bytes of a request, range, and whether it goes through it in order.
const PATTERNS: [(&str, Op, u64, std::ops::Range<u64>, bool); 8] = [
    ("read-4-fast", Op::Read, 4 << 10, 0..64 * GIB, false),
    ("write-4-fast", Op::Write, 4 << 10, 0..64 * GIB, false),
    ("read-128-fast", Op::Read, 128 << 10, 0..64 * GIB, true),
    ("write-128-fast", Op::Write, 128 << 10, 0..64 * GIB, true),
    ("read-4-slow", Op::Read, 4 << 10, 140 * GIB..204 * GIB, false),
    ("write-4-slow", Op::Write, 4 << 10, 140 * GIB..204 * GIB, false),
    ("read-128-slow", Op::Read, 128 << 10, 140 * GIB..204 * GIB, true),
    ("write-128-new", Op::Write, 128 << 10, FILLED..1000 * GIB, true),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let wanted = words.next().filter(|w| w != "all");
    let seconds: f64 = words.next().map_or(Ok(3.0), |w| w.parse())?;
    let find = |name| catalog::find(name).ok_or("not in the catalog");
    let (fast, slow) = (Part::new(&find("pm830")?)?, Part::new(&find("hdd2012")?)?);
    let mut system = Bimetal::new(Setup { fast, slow, migrate: true, seed: 1 })?;
    let begun = Instant::now();
    system.fill(0..FILLED);
    println!("filled {} GiB in {:.1} s", FILLED / GIB, begun.elapsed().as_secs_f64());
    println!("{} chunks are being moved", system.status().mover.in_flight);
    let begun = Instant::now();
    pause(&mut system, PAUSE);
    println!("{} s of rest in {:.1} s", PAUSE / 1_000_000_000, begun.elapsed().as_secs_f64());
    for (name, op, block, range, in_order) in PATTERNS {
        if wanted.as_ref().is_none_or(|w| w == name) {
            let load = Load { range, block, depth: DEPTH, op };
            let moved = system.facts();
            let [real, processor] = speed(&mut system, &load, in_order, seconds);
            let now = system.facts();
            let moved = (now.promoted + now.demoted - moved.promoted - moved.demoted) >> 20;
            println!("{name:>16} {real:>9.0} /s {processor:>9.0} /s of processor, {moved} MiB moved beside");
            let mover = system.status().mover;
            println!("                 {} chunks on their way; {}: {}", mover.in_flight, mover.doing, mover.why);
        }
    }
    println!("books on the devices: {} MiB", system.kept_bytes() >> 20);
    Ok(())
}

/// Seconds that this process has run on a processor.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns: f64 = stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(f64::NAN);
    ns / 1e9
}

/// Requests per second of real time, and of processor time.
fn speed(system: &mut dyn System, load: &Load, in_order: bool, seconds: f64) -> [f64; 2] {
    let places = (load.range.end - load.range.start) / load.block;
    let (mut prng, mut next) = (Prng::new(1), 0);
    let mut request = || {
        next += 1;
        let place = if in_order { next % places } else { prng.below(places) };
        Request { op: load.op, offset: load.range.start + place * load.block, len: load.block }
    };
    let (begun, processor) = (Instant::now(), processor_seconds());
    let mut served = 0;
    while begun.elapsed().as_secs_f64() < seconds {
        let requests = (0..ROUND).map(|_| request());
        closed_loop(system, load.depth, None, requests, Meter::seconds());
        served += ROUND;
    }
    let served = served as f64;
    [served / begun.elapsed().as_secs_f64(), served / (processor_seconds() - processor)]
}
