//! Z1 and Z2: the time of one file, on a set that was made by hand.

use super::loads::*;
use super::machines;
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

/// Data on the volume: more than the SSD holds.
const DATA: u64 = whole(400 * GB);

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
    Session { ids: &["Z1", "Z2"], columns, measure, report: |r| vec![z(r, 0), z(r, 1)] }
}

/// Id, name of the figure, size, the review's times on the set and on the SSD, and those of others.
type Row = (&'static str, &'static str, u64, f64, f64, &'static str);
const ROWS: [Row; 2] = [
    ("Z1", "small", 200 * MB, 1.667, 0.796, "a ZFS mirror 6.7 s, raidz over 1 Gb/s 4.0, USB 3 3.8, an old NAS 8.7"),
    ("Z2", "large", 1024 * MB, 11.1, 3.94, "a ZFS mirror 35.4 s, raidz over 1 Gb/s 20.8, USB 3 20.9, an old NAS 57.4"),
];

fn measure(column: Column) -> Seen {
    let mut subject = machines::d().build(column);
    let mut seen = Seen::default();
    let mut at = 0;
    if subject.is_tiered() {
        fill_with_files(&mut subject, 0..DATA, 4);
    }
    if column != Column::SsdAlone {
        at = DATA;
    }
    for (_, name, size, ..) in ROWS {
        pause(&mut subject, 10 * MINUTE);
        let bytes = size / (4 * KIB) * (4 * KIB);
        let meter = write(subject.system(), at..at + bytes, MIB, 1);
        seen.put(name, meter.elapsed() as f64 / 1e9);
        at += whole(2 * GB);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

fn z(results: &Results, row: usize) -> Outcome {
    let (id, name, size, set, ssd, others) = ROWS[row];
    let mut time = results.metric(name, "time", "s", Better::Lower, Demand::Equal).review(Value::Number(set));
    time.remark = Some(format!(
        "The review's SSD alone took {ssd} s; {others}. Its devices are not named; the model's rates are fitted to both rows, \
         with the file beyond the end of the SSD.",
    ));
    Outcome {
        id,
        title: format!("Writing one file of {} MB", size / MB),
        machine: machines::d().words.into(),
        method: "400 GB of files are on the volume, which rests for 10 minutes. Then the file is written, 1 MiB at a time, one request \
                 on its way."
            .into(),
        metrics: vec![time],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "{} s by concatenation, {} s by Bimetal, which keeps room on the SSD for new files; {} s on the SSD alone.",
            results.say(Column::Model, name),
            results.say(Column::Bimetal, name),
            results.say(Column::SsdAlone, name),
        ),
    }
}
