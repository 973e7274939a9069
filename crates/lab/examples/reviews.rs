//! The experiments of the reviews as a plain table: `reviews [--threads N] [--notes] [ID...]`.
//!
//! `--notes`: what Bimetal's mover said of itself.

use std::time::Instant;

use bimetal_lab::reviews::outcome::{Better, Column, Demand, Metric, Outcome, Value};
use bimetal_lab::reviews::{run, Progress};

fn show(value: &Value) -> String {
    match value {
        Value::Number(n) if n.abs() >= 100.0 => format!("{n:.0}"),
        Value::Number(n) => format!("{n:.3}"),
        Value::Range(a, b) => format!("{a}-{b}"),
        Value::Words(words) => words.clone(),
    }
}

fn number(metric: &Metric, column: Column) -> Option<f64> {
    metric.values.iter().find(|(c, _)| *c == column).and_then(|(_, v)| match v {
        Value::Number(n) => Some(*n),
        _ => None,
    })
}

/// Whether the model is near the review.
fn model(metric: &Metric) -> &'static str {
    let review = metric.values.iter().find(|(c, _)| *c == Column::Review).map(|(_, v)| v);
    let (low, high) = match review {
        Some(Value::Number(n)) => (*n, *n),
        Some(Value::Range(a, b)) => (*a, *b),
        _ => return "",
    };
    match number(metric, Column::Model) {
        Some(n) if n < low * 0.85 || n > high * 1.15 => "MODEL OFF",
        _ => "",
    }
}

/// Whether the demand on Bimetal is met.
fn demand(metric: &Metric) -> &'static str {
    let (Some(model), Some(bimetal)) = (number(metric, Column::Model), number(metric, Column::Bimetal)) else {
        return "";
    };
    let better = match metric.better {
        Better::Higher => bimetal / model,
        Better::Lower => model / bimetal,
    };
    let equal = model == bimetal;
    match metric.demand {
        Demand::Beat if better > 1.0 && !equal => "beats",
        Demand::Equal if equal || better >= 0.98 => "equal",
        Demand::Nothing => "",
        Demand::Beat | Demand::Equal => "LOSES",
    }
}

fn print(row: &Outcome) {
    println!("\n{}  {}\n    {}", row.id, row.title, row.machine);
    for metric in &row.metrics {
        let column = |c| metric.values.iter().find(|(column, _)| *column == c).map_or("-".into(), |(_, v)| show(v));
        let columns = [Column::Review, Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone].map(column);
        println!(
            "    {:<46} {:<8} {:>22} | {:>9} | {:>9} | {:>9} | {:>9} | {} {}",
            metric.label,
            metric.unit,
            columns[0],
            columns[1],
            columns[2],
            columns[3],
            columns[4],
            demand(metric),
            model(metric)
        );
    }
    for check in &row.checks {
        println!("    {} {}: {}", if check.met { "met   " } else { "NOT MET" }, check.what, check.seen);
    }
    println!("    {}", row.finding);
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let notes = args.iter().any(|a| a == "--notes");
    args.retain(|a| a != "--notes");
    let mut threads = 2;
    if let Some(at) = args.iter().position(|a| a == "--threads") {
        threads = args.get(at + 1).and_then(|n| n.parse().ok()).unwrap_or(2);
        args.drain(at..(at + 2).min(args.len()));
    }
    let begun = Instant::now();
    let progress = |p: Progress| {
        eprintln!("{:6.1} s  {}/{}  {} {:?}", begun.elapsed().as_secs_f64(), p.done, p.all, p.rows, p.column);
        for note in p.notes.iter().filter(|_| notes) {
            eprintln!("          {note}");
        }
    };
    let rows = run(|id| args.is_empty() || args.iter().any(|a| a == id), &progress, threads);
    rows.iter().for_each(print);
}
