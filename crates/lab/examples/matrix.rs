//! The matrix of placement policies:
//! `matrix [--traces FOLDER] [--seeds 1,201] [--percent 5,10,20] [--no-bounds] [--speed] [TRACE...]`
//!
//! Without traces only generators are replayed, without `--seeds` none of them. `--speed` measures decisions instead.

use std::error::Error;
use std::path::Path;

use bimetal_lab::compare::speed::speeds;
use bimetal_lab::compare::{compare, generated, traces_in, Case, Cell, How, Role, Standing, Summary};
use bimetal_lab::policy::Setup;

fn numbers<T: std::str::FromStr>(list: Option<String>) -> Result<Vec<T>, Box<dyn Error>>
where
    T::Err: Error + 'static,
{
    Ok(list.ok_or("a list of numbers is missing")?.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

fn show(cell: &Cell) {
    println!(
        "\n{} {:?}: {} accesses, {} chunks, fast tier {} ({} %)",
        cell.workload, cell.origin, cell.accesses, cell.footprint, cell.fast_slots, cell.percent
    );
    println!("| policy                         |   fg ms |  all ms | fast% | up/acc | dn/acc | mv/usr |");
    for r in cell.entries.iter().map(|e| &e.replay) {
        let per = |n: u64| n as f64 / r.accesses.max(1) as f64;
        println!(
            "| {:<30} | {:>7.4} | {:>7.4} | {:>5.1} | {:>6.4} | {:>6.4} | {:>6.3} |",
            r.policy,
            r.foreground_ms(),
            r.total_ms(),
            r.fast_share() * 100.0,
            per(r.promotions),
            per(r.demotions),
            r.moved_per_user_byte()
        );
    }
    if let Some(b) = cell.bounds {
        let ms = |ns| cell.per_access_ms(ns);
        println!("| MIN with bypass                | {:>7.4} |", ms(b.min_foreground_ns));
        println!("| oracle of epochs               |         | {:>7.4} |", ms(b.epoch_total_ns));
        println!("| least for who moves after use  |         | {:>7.4} |", ms(b.after_use_total_ns));
        println!("| least of all                   |         | {:>7.4} |", ms(b.least_total_ns));
    }
}

fn sum_up(cells: &[Cell]) {
    for role in [Role::Policy, Role::Scheduled] {
        println!("\n{role:?}: foreground against the best baseline, part of the gap closed, moved (N=3)");
        for cell in cells {
            if let Some(s) = Standing::of(cell, role) {
                let best = cell.best_baseline().map_or("", |b| &b.policy);
                let gap = s.gap_closed.unwrap_or(f64::NAN);
                let seed = if cell.origin.was_tuned_on() { "" } else { "*" };
                let name = format!("{}{seed} {} %", cell.workload, cell.percent);
                println!("{name:<28} {:.3}  {gap:>6.2}  {:.3} ({:.3})  {best}", s.relative, s.moved, s.moved_n3);
            }
        }
        println!("all: {:?}", Summary::of(cells, role));
        println!("validation: {:?}", Summary::of(cells.iter().filter(|c| !c.origin.was_tuned_on()), role));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut cases, mut how, mut speed) = (Vec::new(), How::default(), false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--traces" => cases.extend(traces_in(Path::new(&args.next().ok_or("which folder?")?))?),
            "--seeds" => cases.extend(generated(numbers(args.next())?)),
            "--percent" => how.percents = numbers(args.next())?,
            "--no-bounds" => how.bounds = false,
            "--speed" => speed = true,
            _ => cases.push(Case::trace(Path::new(&arg))),
        }
    }
    if speed {
        for case in &cases {
            let (stream, _) = case.stream()?;
            for s in speeds(&stream, &Setup::new((stream.footprint / 10).max(1))) {
                println!(
                    "{:<14} {:<20} touch {:>4.0} ns, all {:>5.0} ns an access, {:>9.0} accesses/s",
                    case.name, s.policy, s.touch_ns, s.decision_ns, s.accesses_per_second
                );
            }
        }
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let matrix = compare(&cases, &how, threads, &|p| eprintln!("{}/{} {}", p.done, p.of, p.name));
    matrix.cells.iter().for_each(show);
    sum_up(&matrix.cells);
    matrix.repaired.iter().for_each(|(name, repairs)| println!("{name}: {repairs}"));
    matrix.refused.iter().for_each(|(name, why)| println!("{name}: {why}"));
    Ok(())
}
