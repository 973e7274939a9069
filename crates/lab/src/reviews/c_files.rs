//! D1, D2 and D3: many files on a set that was made by hand.

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

const FILE: u64 = 256 * MB / (4 * KIB) * (4 * KIB);
/// Files of D1, of D2 and of D3.
const MANY: u64 = 1000;
const MORE: u64 = 1000;
const FEW: u64 = 100;
const READINGS: u64 = 10;

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone];
    Session { ids: &["D1", "D2", "D3"], columns, measure, report: |r| vec![d1(r), d2(r), d3(r)] }
}

fn measure(column: Column) -> Seen {
    let mut subject = machines::c().build(column);
    let mut seen = Seen::default();
    files(&mut subject, 0..MANY, "D1", &mut seen);
    pause(&mut subject, 10 * MINUTE);
    files(&mut subject, MANY..MANY + MORE, "D2", &mut seen);
    // The last 20 files, read at once.
    let end = (MANY + MORE) * FILE;
    let meter = read(subject.system(), end - 20 * FILE..end, MIB, 1);
    seen.put("D2 read", mb_per_s(&meter));
    pause(&mut subject, 10 * MINUTE);
    files(&mut subject, MANY + MORE..MANY + MORE + FEW, "D3", &mut seen);
    again(&mut subject, end..end + FEW * FILE, &mut seen);
    seen.notes.extend(subject.mover_words());
    if column == Column::Bimetal {
        for (name, number) in without_budget().figures() {
            seen.put(&format!("{name} without"), number);
        }
    }
    seen
}

/// D3 on a Bimetal that does not spare the SSD.
fn without_budget() -> Seen {
    let mut subject = machines::c().spending();
    let mut seen = Seen::default();
    subject.fill(0..(MANY + MORE) * FILE);
    pause(&mut subject, 10 * MINUTE);
    files(&mut subject, MANY + MORE..MANY + MORE + FEW, "D3", &mut seen);
    let end = (MANY + MORE) * FILE;
    again(&mut subject, end..end + FEW * FILE, &mut seen);
    seen
}

/// Writes files one after another.
fn files(subject: &mut Subject, numbers: std::ops::Range<u64>, name: &str, seen: &mut Seen) {
    let mut rates = Vec::new();
    let begun = subject.system().now();
    for number in numbers.clone() {
        let meter = write(subject.system(), number * FILE..(number + 1) * FILE, MIB, 1);
        rates.push(mb_per_s(&meter));
        seen.line("written", vec![((number + 1) as f64, mb_per_s(&meter))]);
    }
    let seconds = (subject.system().now() - begun) as f64 / 1e9;
    let bytes = (numbers.end - numbers.start) * FILE;
    seen.put(&format!("{name} mean"), bytes as f64 / 1e6 / seconds);
    seen.put(&format!("{name} lowest"), rates.iter().copied().fold(f64::INFINITY, f64::min));
    let last = &rates[rates.len() - 50..];
    seen.put(&format!("{name} last"), last.iter().sum::<f64>() / last.len() as f64);
}

/// Reads the last files again and again, with pauses.
fn again(subject: &mut Subject, range: std::ops::Range<u64>, seen: &mut Seen) {
    let len = range.end - range.start;
    for number in 1..=READINGS {
        let meter = read(subject.system(), range.clone(), MIB, 1);
        seen.put(&format!("reading {number}"), mb_per_s(&meter));
        seen.line("read", vec![(number as f64, mb_per_s(&meter))]);
        seen.notes.extend(subject.mover_words().map(|w| format!("after reading {number}: {w}")));
        pause(subject, 15 * MINUTE);
    }
    let fast = subject.system().fast_bytes(range.start, len);
    seen.put("on ssd", fast as f64 * 100.0 / len as f64);
}

fn d1(results: &Results) -> Outcome {
    let metric = |name, label| results.metric(name, label, "MB/s", Better::Higher, Demand::Equal);
    Outcome {
        id: "D1",
        title: "1000 files of 256 MB, the SSD has room".into(),
        machine: machines::c().words.into(),
        method:
            "The empty volume takes 1000 files of 256 MB one after another, 1 MiB at a time, one request on its way."
                .into(),
        metrics: vec![
            metric("D1 mean", "mean").review(Value::Number(672.0)),
            metric("D1 lowest", "the slowest file").review(Value::Words("flat".into())),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("written", "Writing the files of D1, D2 and D3", "file", "MB/s")],
        finding: format!(
            "As long as the SSD has room all is as fast as the SSD: {} MB/s by concatenation, {} by Bimetal.",
            results.say(Column::Model, "D1 mean"),
            results.say(Column::Bimetal, "D1 mean"),
        ),
    }
}

fn d2(results: &Results) -> Outcome {
    let words = || Value::Words("the disk's speed".into());
    let metric = |name, label, demand| results.metric(name, label, "MB/s", Better::Higher, demand);
    Outcome {
        id: "D2",
        title: "1000 files more, beyond the end of the SSD".into(),
        machine: machines::c().words.into(),
        method:
            "After a pause of 10 minutes 1000 files more are written, 512 GB in all; then the last 20 are read at once."
                .into(),
        metrics: vec![
            metric("D2 mean", "all 1000", Demand::Equal).review(Value::Words("not given".into())),
            metric("D2 last", "the last 50", Demand::Equal).review(words()),
            metric("D2 read", "reading the last 20", Demand::Equal).review(words()),
        ],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "When the SSD is full both write at the disk's speed: {} and {} MB/s for the last files.",
            results.say(Column::Model, "D2 last"),
            results.say(Column::Bimetal, "D2 last"),
        ),
    }
}

fn d3(results: &Results) -> Outcome {
    let metric = |name, label, demand| results.metric(name, label, "MB/s", Better::Higher, demand);
    let words = || Value::Words("the disk's speed for ever".into());
    Outcome {
        id: "D3",
        title: "25.6 GB more, then read ten times with idle pauses".into(),
        machine: machines::c().words.into(),
        method: "After a pause 100 files more are written. They are read ten times, with pauses of 15 minutes.".into(),
        metrics: vec![
            metric("reading 1", "first reading", Demand::Equal).review(words()),
            metric("reading 2", "second reading", Demand::Nothing),
            metric("reading 3", "third reading", Demand::Beat).review(words()),
            metric("reading 10", "tenth reading", Demand::Beat).review(words()),
            results
                .metric("on ssd", "of them on the SSD in the end", "%", Better::Higher, Demand::Beat)
                .review(Value::Number(0.0))
                .remark(
                    "Promotions get 30 % of what an SSD of this size can be written in five years, and 8 GiB at once.",
                ),
            results.metric(
                "reading 10 without",
                "tenth reading, without the budget",
                "MB/s",
                Better::Higher,
                Demand::Nothing,
            ),
            results.metric(
                "on ssd without",
                "of them on the SSD, without the budget",
                "%",
                Better::Higher,
                Demand::Nothing,
            ),
        ],
        checks: vec![
            results.check("the first 8 GB of what is read again move up", "on ssd", "% are on the SSD", |n| {
                n * (FEW * FILE) as f64 / 100.0 >= 8e9
            }),
            results.check("all of it does without the endurance budget", "on ssd without", "% are on the SSD", |n| {
                n > 95.0
            }),
        ],
        charts: vec![results.chart("read", "Readings, with pauses of 15 minutes", "reading", "MB/s")],
        finding: format!(
            "The concatenated set reads at {} MB/s for ever; on Bimetal the third reading runs at {} MB/s, the tenth \
             at {}, and at {} if the SSD is not spared.",
            results.say(Column::Model, "reading 10"),
            results.say(Column::Bimetal, "reading 3"),
            results.say(Column::Bimetal, "reading 10"),
            results.say(Column::Bimetal, "reading 10 without"),
        ),
    }
}
