//! F9: one very large file.

use super::loads::*;
use super::machines;
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

const FILE: u64 = whole(260 * GB);
/// Read twice afterwards: a part near the end, which lies on the disk.
const PART: u64 = whole(GB);
const AT: u64 = whole(230 * GB);

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone];
    Session { ids: &["F9"], columns, measure, report: |r| vec![f9(r)] }
}

fn measure(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let mut seen = Seen::default();
    let meter = write(subject.system(), 0..FILE, MIB, 1);
    seen.put("write", mb_per_s(&meter));
    pause(&mut subject, 60 * MINUTE);
    let facts = subject.system().facts();
    seen.put("demoted", facts.demoted as f64 / 1e9);
    seen.put("free", facts.fast_free as f64 / 1e9);
    for pass in 1..=3 {
        let meter = read(subject.system(), AT..AT + PART, MIB, 1);
        seen.put(&format!("read {pass}"), mb_per_s(&meter));
        pause(&mut subject, 5 * MINUTE);
    }
    if subject.is_tiered() {
        let fast = subject.system().fast_bytes(AT, PART);
        seen.put("on ssd", fast as f64 * 100.0 / PART as f64);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

fn f9(results: &Results) -> Outcome {
    use Better::Higher;
    let never = || Value::Words("never moves again".into());
    Outcome {
        id: "F9",
        title: "One file of 260 GB is written; then the machine is idle".into(),
        machine: machines::a().words.into(),
        method: "The empty volume takes a file of 260 GB, 1 MiB at a time, one request on its way. After an hour without any \
                 load, 1 GB of it that lies on the disk is read three times, with pauses of 5 minutes: does anything move?"
            .into(),
        metrics: vec![
            results
                .metric("on ssd", "of the part that was read on the SSD", "%", Higher, Demand::Beat)
                .review(never())
                .remark("The bug B11 is part of the model: moves stop after such a file until the machine is restarted."),
            results.metric("read 3", "third reading", "MB/s", Higher, Demand::Beat),
            results.metric("free", "free on the SSD after the hour", "GB", Higher, Demand::Beat),
            results.metric("write", "writing the file, mean", "MB/s", Higher, Demand::Equal),
        ],
        checks: vec![
            results.check("migration goes on: what is read again moves up", "on ssd", "% of it are on the SSD", |n| n > 95.0),
            results.check("the reserve is free again", "free", "GB are free", |n| n > 3.5),
        ],
        charts: Vec::new(),
        finding: format!(
            "After the file nothing moves on the Fusion Drive until it is restarted; on Bimetal {} % of what is read again is on \
             the SSD, and the third reading runs at {} MB/s.",
            results.say(Column::Bimetal, "on ssd"),
            results.say(Column::Bimetal, "read 3"),
        ),
    }
}
