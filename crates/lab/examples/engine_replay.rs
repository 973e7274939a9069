//! What the foreground feels of moves: a workload through the full engine, with moves and without.
//!
//! `engine_replay [WORKLOAD|all [ACCESSES [SECONDS_OF_WARM_UP [SEEDS]]]]`, on a disk of 96 GiB and an SSD of 8 GiB, as
//! fast as those of machine A. The volume was filled to four fifths before, and both runs begin in the same state.
//! The tail is a matter of chance: judge it by several seeds (`7,8,9,10,11`).
//! What a workload does at its time 0 is preparation, and no part of the accesses: `nearly-full` fills its volume then.

use std::error::Error;
use std::time::Instant;

use bimetal_lab::system::bimetal::{Bimetal, Part, Setup};
use bimetal_lab::system::load::pause;
use bimetal_lab::system::replay::{replay, Pace, Replayed, MOST_BEHIND};
use bimetal_lab::system::System;
use bimetal_lab::workload::{all, by_name, Workload};
use bimetal_sim::model::catalog::{self, Spec};

const GIB: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default| words.get(i).map_or(Ok(default), |w| w.parse::<u64>());
    let (accesses, warm_up) = (number(1, 200_000)?, number(2, 60)?);
    let seeds = words.get(3).map_or("7", String::as_str).split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let workloads = match words.first().map(String::as_str) {
        None | Some("all") => all(),
        Some(name) => vec![by_name(name).ok_or("no such workload")?],
    };
    println!(
        "{:>14} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9}",
        "", "moves", "mean ms", "p50", "p99", "p99.9", "held s", "MiB moved"
    );
    for (workload, seed) in workloads.iter().flat_map(|w| seeds.iter().map(move |s| (w, *s))) {
        for migrate in [false, true] {
            let begun = Instant::now();
            let seen = run(workload.as_ref(), migrate, accesses, warm_up, seed)?;
            match seen.all.count() {
                0 => println!("{:>14} all accesses are warm-up: give more, or a shorter one", workload.name()),
                _ => row(workload.name(), migrate, &seen),
            }
            eprintln!("{:>14} {:.1} s of real time", "", begun.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

fn run(
    workload: &dyn Workload,
    migrate: bool,
    accesses: u64,
    warm_up: u64,
    seed: u64,
) -> Result<Replayed, Box<dyn Error>> {
    let mut ssd = catalog::pm830();
    (ssd.size, ssd.raw) = (8 * GIB, 9 * GIB);
    let mut disk = catalog::hdd2012();
    disk.size = 96 * GIB;
    let (fast, slow) = (Part::new(&Spec::Ssd(ssd))?, Part::new(&Spec::Hdd(disk))?);
    let mut system = Bimetal::new(Setup { fast, slow, migrate: true, seed })?;
    let size = system.size() / GIB * GIB;
    system.fill(0..size / 5 * 4);
    pause(&mut system, 600_000_000_000);
    system.set_migrate(migrate);
    let prepared = workload.accesses(size, seed)?.take_while(|a| a.time_us == 0).count();
    let stream = workload.accesses(size, seed)?.take(prepared + accesses as usize);
    Ok(replay(&mut system, stream, Pace::AsRecorded { most: MOST_BEHIND }, (warm_up * 1_000_000).max(1)))
}

fn row(name: &str, migrate: bool, seen: &Replayed) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let percentile = |p| ms(seen.all.percentile(p));
    println!(
        "{name:>14} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>8.1} {:>9}",
        if migrate { "on" } else { "off" },
        seen.all.mean() / 1e6,
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        seen.held as f64 / 1e9,
        (seen.facts.promoted + seen.facts.demoted) >> 20
    );
}
