//! The matrix of placement policies on recorded traces:
//! `matrix [--aged] [--unlimited] [--percent 5,10,20] TRACE.csv.gz...`
//!
//! `--aged`: all chunks were on the slow tier before; `--unlimited`: moves are free of budget and made at once;
//! `--percent`: sizes of the fast tier in percent of the chunks touched.
//!
//! Every policy sees the same stream, head times and budget of moves. `ns` is what a decision takes on this machine:
//! the time of the replay less that of a replay which decides nothing.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Instant;

use bimetal_lab::policy::bound::{epoch_oracle, lower_bound, min, Lagrange, Prefetch};
use bimetal_lab::policy::cache::{Arc, Cache, Lfu, Lru, S3Fifo, TinyLfu};
use bimetal_lab::policy::{
    replay, Budget, ClockBloom, FirstFit, Inclusive, Production, Replay, Seat, Seated, Setup, Shadow, Smq, Start,
    Stream,
};
use bimetal_lab::trace::{Access, Op};

/// The project's CSV: `time_us,op,offset_bytes,length_bytes`.
fn read(path: &str) -> Result<Vec<Access>, Box<dyn Error>> {
    let file = BufReader::new(flate2::read::MultiGzDecoder::new(File::open(path)?));
    let mut out = Vec::new();
    for (i, line) in file.lines().enumerate().skip(1) {
        let line = line?;
        let mut fields = line.split(',');
        let mut field = || fields.next().ok_or_else(|| format!("line {}: too few fields", i + 1));
        let time_us = field()?.parse()?;
        let op = match field()? {
            "R" => Op::Read,
            "W" => Op::Write,
            "T" => Op::Trim,
            other => return Err(format!("line {}: unknown operation {other}", i + 1).into()),
        };
        out.push(Access { time_us, op, offset: field()?.parse()?, len: field()?.parse()? });
    }
    Ok(out)
}

fn timed<S: Seat>(stream: &Stream, mut seat: S, setup: &Setup) -> (Replay, f64) {
    let begin = Instant::now();
    let result = replay(stream, &mut seat, setup);
    (result, begin.elapsed().as_nanos() as f64 / stream.accesses().max(1) as f64)
}

fn row(r: &Replay, ns: Option<f64>) {
    let ns = ns.map_or(String::new(), |ns| format!("{ns:.0}"));
    println!(
        "| {:<36} | {:>7.3} | {:>7.3} | {:>5.1} | {:>6.4} | {:>6.4} | {:>6.2} | {:>5} |",
        r.policy,
        r.foreground_ms(),
        r.total_ms(),
        r.fast_share() * 100.0,
        r.promotions as f64 / r.accesses.max(1) as f64,
        r.demotions as f64 / r.accesses.max(1) as f64,
        r.moved_per_user_byte(),
        ns
    );
}

fn bound_row(name: &str, accesses: u64, fast: Option<u64>, foreground: Option<u64>, total: Option<u64>) {
    let ms = |ns: Option<u64>| ns.map_or(String::new(), |ns| format!("{:.3}", ns as f64 / 1e6 / accesses as f64));
    let share = fast.map_or(String::new(), |f| format!("{:.1}", f as f64 * 100.0 / accesses as f64));
    println!(
        "| {name:<36} | {:>7} | {:>7} | {share:>5} |        |        |        |       |",
        ms(foreground),
        ms(total)
    );
}

fn caches(n: u32, setup: &Setup) -> Vec<Box<dyn Cache>> {
    let hold = (setup.fast_slots - setup.reserve) as usize;
    vec![
        Box::new(Lru::new(n, hold)),
        Box::new(Lfu::new(n, hold, 0)),
        Box::new(Lfu::new(n, hold, 8 * u64::from(setup.fast_slots))),
        Box::new(Arc::new(n, hold)),
        Box::new(S3Fifo::new(n, hold)),
        Box::new(TinyLfu::new(n, hold)),
    ]
}

fn matrix(s: &Stream, setup: &Setup) {
    println!("| policy                               | fg ms   | all ms  | fast% | up/acc | dn/acc | mv/usr | ns    |");
    println!("|--------------------------------------|--------:|--------:|------:|-------:|-------:|-------:|------:|");
    let (n, slots) = (s.chunks, setup.fast_slots);
    let (first, bare) = timed(s, Seated(FirstFit), setup);
    row(&first, None);
    let show = |(r, ns): (Replay, f64)| row(&r, Some((ns - bare).max(0.0)));
    caches(n, setup).into_iter().for_each(|c| show(timed(s, Seated(Shadow::new(c)), setup)));
    show(timed(s, Seated(Smq::new(n, slots)), setup));
    show(timed(s, Seated(ClockBloom::new(slots, 2)), setup));
    show(timed(s, Seated(ClockBloom::new(slots, 3)), setup));
    show(timed(s, Production::new(slots), setup));
    show(timed(s, Production::scheduled(slots, &setup.cost), setup));
    for cache in [Inclusive::hybrid_disk(slots), Inclusive::smart_response(slots)] {
        row(&cache.replay(s, &setup.cost), None);
    }
    let accesses = s.accesses();
    let best = min(s, &setup.cost, slots);
    bound_row("MIN with bypass", accesses, Some(best.fast), Some(best.foreground_ns), None);
    let epoch = epoch_oracle(s, &setup.cost, slots, 4 * slots as usize);
    let moves = epoch.promotions * setup.cost.promote_ns + epoch.demotions * setup.cost.demote_ns;
    let all = epoch.foreground_ns + moves;
    bound_row("oracle of epochs of 4 K", accesses, Some(epoch.fast), Some(epoch.foreground_ns), Some(all));
    let how = Lagrange::new(&setup.cost);
    let after_use = Lagrange { prefetch: Prefetch::None, ..how };
    for (name, how) in [("Lagrange bound, moves after use", after_use), ("Lagrange bound", how)] {
        let bound = lower_bound(s, &setup.cost, slots, &how);
        bound_row(name, accesses, None, None, Some(bound.total_ns));
    }
    println!("(deciding nothing: {bare:.0} ns an access)\n");
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut start, mut percents, mut budget, mut files) = (Start::Fresh, vec![5, 10, 20], Budget::USUAL, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--aged" => start = Start::Aged,
            "--unlimited" => budget = Budget::UNLIMITED,
            "--percent" => {
                let list = args.next().ok_or("--percent needs numbers")?;
                percents = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => files.push(arg),
        }
    }
    for file in &files {
        let s = Stream::new(read(file)?, start)?;
        for percent in &percents {
            let slots = (u64::from(s.footprint) * percent / 100).max(1) as u32;
            let setup = Setup { budget, ..Setup::new(slots) };
            println!(
                "{file}, {start:?}: {} accesses, {} visits, {} chunks; fast tier {slots} chunks ({percent} %)",
                s.accesses(),
                s.visits(),
                s.footprint
            );
            matrix(&s, &setup);
        }
    }
    Ok(())
}
