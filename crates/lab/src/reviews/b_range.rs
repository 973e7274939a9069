//! G3, G4 and G5: something is used again and again. When does it run at the SSD's speed?

use bimetal_sim::model::Op;

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Chart, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::load::{self, Load};
use crate::system::meter::Meter;

const COLUMNS: &[Column] = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
/// The file, or range.
const RANGE: u64 = whole(2 * GB);
/// Data on the volume in G3, and where the file is.
const DATA: u64 = whole(150 * GB);
const FILE: u64 = whole(160 * GB);
/// The file of G4 and G5, and the ranges in its middle: one that is used without a pause, one with a pause.
const LARGE: u64 = whole(400 * GB);
const FIRST: u64 = whole(200 * GB);
const SECOND_RANGE: u64 = whole(300 * GB);
/// Passes without a pause at most.
const MOST: u64 = 60;

pub(super) fn file() -> Session {
    Session { ids: &["G3"], columns: COLUMNS, measure: measure_file, report: |r| vec![g3(r)] }
}

pub(super) fn reads() -> Session {
    Session { ids: &["G4"], columns: COLUMNS, measure: |c| measure_range(c, Op::Read), report: |r| vec![g4(r)] }
}

pub(super) fn writes() -> Session {
    Session { ids: &["G5"], columns: COLUMNS, measure: |c| measure_range(c, Op::Write), report: |r| vec![g5(r)] }
}

/// One pass over a range, 1 MiB at a time, one request on its way: MiB/s.
fn pass(subject: &mut Subject, op: Op, start: u64) -> f64 {
    let load = Load { range: start..start + RANGE, block: MIB, depth: 1, op };
    mib_per_s(&load::sequential(subject.system(), &load, Meter::seconds()))
}

fn share(subject: &mut Subject, start: u64) -> f64 {
    subject.system().fast_bytes(start, RANGE) as f64 * 100.0 / RANGE as f64
}

fn measure_file(column: Column) -> Seen {
    let mut subject = machines::b().build(column);
    let mut seen = Seen::default();
    let start = if column == Column::SsdAlone { 0 } else { FILE };
    if subject.is_tiered() {
        fill_with_files(&mut subject, 0..DATA, 3);
        pause(&mut subject, 10 * MINUTE);
        // The reserve is taken, the file goes to the disk.
        subject.fill(DATA..DATA + whole(5 * GB));
        subject.fill(FILE..FILE + RANGE);
        pause(&mut subject, 10 * MINUTE);
    } else {
        subject.fill(start..start + RANGE);
        pause(&mut subject, MINUTE);
    }
    for number in 1..=3u64 {
        let fast = share(&mut subject, start);
        let rate = pass(&mut subject, Op::Read, start);
        seen.put(&format!("on ssd {number}"), fast);
        seen.put(&format!("pass {number}"), rate);
        seen.line("passes", vec![(number as f64, rate)]);
        seen.notes.extend(subject.mover_words().map(|w| format!("after pass {number}: {w}")));
        pause(&mut subject, 2 * MINUTE);
    }
    seen
}

fn chart(results: &Results, title: &str) -> Chart {
    results.chart("passes", title, "pass", "MiB/s")
}

fn g3(results: &Results) -> Outcome {
    let wanted = results.get(Column::SsdAlone, "pass 2").unwrap_or(f64::INFINITY) * 0.95;
    let metric = |name, label, demand| results.metric(name, label, "MiB/s", Better::Higher, demand);
    Outcome {
        id: "G3",
        title: "A file of 2 GB that landed on the disk is read twice".into(),
        machine: machines::b().words.into(),
        method: "150 GB of files are on the volume, 5 GB more have taken the reserve, and the file of 2 GB behind them went to the \
                 disk. After a pause it is read three times, 1 MiB at a time, one request on its way, with pauses of 2 minutes."
            .into(),
        metrics: vec![
            metric("pass 1", "first reading", Demand::Equal).review(Value::Number(87.0)),
            metric("pass 2", "second reading", Demand::Beat).review(Value::Number(427.0)),
            metric("pass 3", "third reading", Demand::Beat),
            results.metric("on ssd 2", "of the file on the SSD before the second", "%", Better::Higher, Demand::Nothing)
                .review(Value::Number(100.0)),
        ],
        checks: vec![results.check("second reading at 95 % of the SSD's speed", "pass 2", "MiB/s", |n| n >= wanted)],
        charts: vec![chart(results, "Reading the file, with pauses of 2 minutes")],
        finding: format!(
            "The second reading runs at {} MiB/s on the Fusion Drive, whose pieces are scattered over the SSD, at {} on Bimetal, \
             at {} on the SSD alone.",
            results.say(Column::Model, "pass 2"),
            results.say(Column::Bimetal, "pass 2"),
            results.say(Column::SsdAlone, "pass 2"),
        ),
    }
}

fn measure_range(column: Column, op: Op) -> Seen {
    let mut subject = machines::b().build(column);
    let mut seen = Seen::default();
    if !subject.is_tiered() {
        let start = if column == Column::SsdAlone { 0 } else { FIRST };
        subject.fill(start..start + RANGE);
        seen.put("pass 2", pass(&mut subject, op, start));
        return seen;
    }
    subject.fill(0..LARGE);
    pause(&mut subject, 10 * MINUTE);
    subject.restart();
    without_pause(&mut subject, op, &mut seen);
    with_pause(&mut subject, op, &mut seen);
    seen
}

fn without_pause(subject: &mut Subject, op: Op, seen: &mut Seen) {
    let mut number = 0;
    while number < MOST && share(subject, FIRST) < 99.95 {
        number += 1;
        let rate = pass(subject, op, FIRST);
        let fast = share(subject, FIRST);
        seen.line("passes", vec![(number as f64, rate)]);
        seen.line("share", vec![(number as f64, fast)]);
        if number == 2 {
            seen.put("pass 2", rate);
            seen.put("on ssd after 2", fast);
        }
    }
    seen.notes.extend(subject.mover_words().map(|w| format!("after {number} passes: {w}")));
    seen.put("passes", number as f64);
}

fn with_pause(subject: &mut Subject, op: Op, seen: &mut Seen) {
    pause(subject, 10 * MINUTE);
    for _ in 0..3 {
        pass(subject, op, SECOND_RANGE);
    }
    seen.notes.extend(subject.mover_words().map(|w| format!("after 3 passes: {w}")));
    pause(subject, MINUTE);
    let fast = share(subject, SECOND_RANGE);
    seen.put("after a minute", fast);
    seen.notes.extend(subject.mover_words().map(|w| format!("a minute later: {w}")));
    seen.put("then", pass(subject, op, SECOND_RANGE));
}

fn range_row(results: &Results, id: &'static str, verb: &str, passes: f64) -> Outcome {
    let never = |column| results.get(column, "passes").is_some_and(|n| n >= MOST as f64);
    let mut count = results.metric(
        "passes",
        "passes without a pause until all is on the SSD",
        "passes",
        Better::Lower,
        Demand::Beat,
    );
    for (column, value) in &mut count.values {
        if never(*column) {
            *value = Value::Words(format!("not in {MOST}"));
        }
    }
    Outcome {
        id,
        title: format!("2 GB in the middle of a file of 400 GB are {verb} again and again"),
        machine: machines::b().words.into(),
        method: format!(
            "The empty volume takes a file of 400 GB; the machine rests and is restarted (without that a Fusion Drive would not \
             move anything, B11). 2 GB at 200 GB are {verb} in passes without a pause, 1 MiB at a time, one request on its way, \
             until all of them are on the SSD, {MOST} times at most. Then 2 GB at 300 GB are {verb} three times, and the \
             machine rests for a minute."
        ),
        metrics: vec![
            count.review(Value::Number(passes)),
            results.metric("pass 2", "second pass", "MiB/s", Better::Higher, Demand::Nothing),
            results.metric("after a minute", "on the SSD after three passes and a minute", "%", Better::Higher, Demand::Beat),
            results.metric("then", "the next pass", "MiB/s", Better::Higher, Demand::Beat),
        ],
        checks: vec![results.check(
            "all of it on the SSD after three passes and an idle minute",
            "after a minute",
            "% are there",
            |n| n >= 99.95,
        )],
        charts: vec![
            chart(results, "Passes without a pause"),
            results.chart("share", "On the SSD after each pass without a pause", "pass", "%"),
        ],
        finding: format!(
            "The Fusion Drive needs {} passes without a pause; Bimetal has {} % of the range on the SSD after three passes and an \
             idle minute.",
            results.say(Column::Model, "passes"),
            results.say(Column::Bimetal, "after a minute"),
        ),
    }
}

fn g4(results: &Results) -> Outcome {
    range_row(results, "G4", "read", 34.0)
}

fn g5(results: &Results) -> Outcome {
    range_row(results, "G5", "written", 15.0)
}
