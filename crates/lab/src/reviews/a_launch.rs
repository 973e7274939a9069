//! F8: a large program is launched.

use bimetal_sim::model::Request;
use bimetal_sim::prng::Prng;

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::{load, System};

const DATA: u64 = whole(784 * GB);
const PROGRAM: u64 = whole(2 * GB);
const START: u64 = DATA + whole(10 * GB);
/// Reads of a launch, bytes of one, and what the program computes after each, in ns.
const READS: usize = 2000;
const READ: u64 = 64 * KIB;
const COMPUTES_NS: u64 = 7_000_000;
/// Between two launches.
const PAUSE_NS: u64 = 34 * SECOND;
const LAUNCHES: usize = 4;

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
    Session { ids: &["F8"], columns, measure, report: |r| vec![f8(r)] }
}

/// Data; then files that take the reserve, and the program behind them. The machine was restarted since.
fn prepare(subject: &mut Subject) {
    fill_with_files(subject, 0..DATA, 7);
    subject.restart();
    pause(subject, 10 * MINUTE);
    subject.fill(DATA..DATA + whole(5 * GB));
    subject.fill(START..START + PROGRAM);
    pause(subject, 10 * MINUTE);
    subject.restart();
}

/// What a launch reads: always the same, in the same order.
fn reads(start: u64) -> Vec<u64> {
    let mut rng = Prng::new(8);
    (0..READS).map(|_| start + rng.below(PROGRAM / READ) * READ).collect()
}

fn launch(system: &mut dyn System, reads: &[u64]) -> f64 {
    let begun = system.now();
    for offset in reads {
        load::once(system, Request::read(*offset, READ));
        load::pause(system, COMPUTES_NS);
    }
    (system.now() - begun) as f64 / 1e9
}

fn measure(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let mut seen = Seen::default();
    if subject.is_tiered() {
        prepare(&mut subject);
    }
    let reads = reads(if column == Column::SsdAlone { 0 } else { START });
    for number in 1..=LAUNCHES {
        let fast: u64 = reads.iter().map(|r| subject.system().fast_bytes(*r, READ)).sum();
        seen.put(&format!("on ssd {number}"), fast as f64 * 100.0 / (READS as u64 * READ) as f64);
        let time = launch(subject.system(), &reads);
        seen.put(&format!("launch {number}"), time);
        seen.line("launches", vec![(number as f64, time)]);
        pause(&mut subject, PAUSE_NS);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

fn f8(results: &Results) -> Outcome {
    use Better::Lower;
    let time = |column| results.get(column, "launch 3").unwrap_or(f64::NAN);
    let mut faster = results.metric("launch 3", "faster than the disk alone", "%", Better::Higher, Demand::Beat);
    let columns = [Column::Model, Column::Bimetal, Column::SsdAlone];
    faster.values = columns.map(|c| (c, Value::Number((time(Column::DiskAlone) / time(c) - 1.0) * 100.0))).into();
    faster.values.retain(|(_, v)| matches!(v, Value::Number(n) if n.is_finite()));
    Outcome {
        id: "F8",
        title: "Launch of a large program".into(),
        machine: machines::a().words.into(),
        method: "The volume is 70 % full; the program of 2 GB came when the reserve was taken, so it lies on the disk, and the \
                 machine was restarted since. A launch reads 64 KiB in 2000 places, always the same ones, and computes for 7 ms \
                 after each. It is launched with pauses of 34 seconds; the third launch counts. By then the Fusion Drive has \
                 moved about half of what is read: the state that the review found."
            .into(),
        metrics: vec![
            faster.review(Value::Number(40.0)).remark(
                "The review's SSD takes less than half of the disk's time; that fits a launch that computes for 0.75 of the \
                 time that the disk works, with 40 % more speed at half of the data on the SSD.",
            ),
            results.metric("launch 3", "third launch", "s", Lower, Demand::Beat),
            results.metric("launch 1", "first launch", "s", Lower, Demand::Equal),
            results.metric("on ssd 3", "of what is read on the SSD before the third", "%", Better::Higher, Demand::Nothing)
                .review(Value::Words("about half".into())),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("launches", "Launches, 34 seconds apart", "launch", "s")],
        finding: format!(
            "The third launch takes {} s on the Fusion Drive, {} s on Bimetal, {} s on the SSD alone.",
            results.say(Column::Model, "launch 3"),
            results.say(Column::Bimetal, "launch 3"),
            results.say(Column::SsdAlone, "launch 3"),
        ),
    }
}
