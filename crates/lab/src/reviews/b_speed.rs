//! G1 and G2: what the devices of machine B do, and what one file larger than the SSD does.

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

/// What is written and read.
const RANGE: u64 = whole(16 * GB);
/// Where a disk has the rate that was measured.
const MIDDLE: u64 = whole(380 * GB);
const FILE: u64 = whole(140 * GB);
/// Written first, at the SSD's rate in any case.
const FIRST: u64 = whole(100 * GB);
/// Written last, when the SSD is full.
const LAST: u64 = whole(125 * GB);

pub(super) fn devices() -> Session {
    Session { ids: &["G1"], columns: &[Column::Model, Column::Bimetal], measure: measure_g1, report: |r| vec![g1(r)] }
}

pub(super) fn large_file() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone];
    Session { ids: &["G2"], columns, measure: measure_g2, report: |r| vec![g2(r)] }
}

fn measure_g1(column: Column) -> Seen {
    let mut seen = Seen::default();
    // The devices themselves stand for the model: the review measured each alone.
    let ssd = if column == Column::Model { Column::SsdAlone } else { column };
    let mut subject = machines::b().build(ssd);
    both(&mut subject, 0, "ssd", &mut seen);
    if column == Column::Model {
        both(&mut machines::b().build(Column::DiskAlone), MIDDLE, "hdd", &mut seen);
    }
    seen
}

fn both(subject: &mut Subject, start: u64, name: &str, seen: &mut Seen) {
    let range = start..start + RANGE;
    let meter = write(subject.system(), range.clone(), 256 * KIB, 4);
    seen.put(&format!("{name} write"), mib_per_s(&meter));
    pause(subject, MINUTE);
    let meter = read(subject.system(), range, 256 * KIB, 4);
    seen.put(&format!("{name} read"), mib_per_s(&meter));
}

fn g1(results: &Results) -> Outcome {
    let metric = |name, label, demand| results.metric(name, label, "MiB/s", Better::Higher, demand);
    Outcome {
        id: "G1",
        title: "Sequential reads and writes of 256 KiB, each device".into(),
        machine: machines::b().words.into(),
        method: "16 GB are written and, a minute later, read, 256 KiB at a time, 4 requests on their way; on the SSD, on the disk \
                 (380 GB behind its beginning, where the model has the measured rate), and on a new Bimetal volume, where \
                 they land on the SSD."
            .into(),
        metrics: vec![
            metric("ssd read", "SSD, reading", Demand::Equal).review(Value::Number(754.0)),
            metric("ssd write", "SSD, writing", Demand::Equal).review(Value::Number(391.0)),
            metric("hdd read", "disk, reading", Demand::Nothing).review(Value::Range(82.0, 88.0)),
            metric("hdd write", "disk, writing", Demand::Nothing).review(Value::Range(82.0, 88.0)),
        ],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "What Bimetal puts before the SSD costs nothing here: {} MiB/s reading and {} writing, of {} and {}.",
            results.say(Column::Bimetal, "ssd read"),
            results.say(Column::Bimetal, "ssd write"),
            results.say(Column::Model, "ssd read"),
            results.say(Column::Model, "ssd write"),
        ),
    }
}

fn measure_g2(column: Column) -> Seen {
    let mut subject = machines::b().build(column);
    let mut seen = Seen::default();
    let begun = subject.system().now();
    let mut part = |range: std::ops::Range<u64>| {
        let from = range.start as f64 / GB as f64;
        let meter = write(subject.system(), range, 256 * KIB, 4);
        let mut written = from;
        let step = |(_, rate): (f64, f64)| {
            written += rate / GB as f64;
            (written, rate / MIB as f64)
        };
        seen.line("rate", meter.samples().into_iter().map(step).collect());
        mib_per_s(&meter)
    };
    let first = part(0..FIRST);
    part(FIRST..LAST);
    let last = part(LAST..FILE);
    seen.put("first", first);
    seen.put("last", last);
    seen.put("time", (subject.system().now() - begun) as f64 / 1e9);
    let before = subject.system().facts();
    pause(&mut subject, 3 * MINUTE);
    let after = subject.system().facts();
    if subject.is_tiered() {
        seen.put("moved", (after.demoted - before.demoted) as f64 / 1e9);
        seen.put("free", after.fast_free as f64 / 1e9);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

fn g2(results: &Results) -> Outcome {
    use Better::{Higher, Lower};
    let words = |w: &str| Value::Words(w.into());
    Outcome {
        id: "G2",
        title: "One file larger than the SSD is written".into(),
        machine: machines::b().words.into(),
        method: "The empty volume takes a file of 140 GB, 256 KiB at a time, 4 requests on their way. Then it rests for 3 minutes, \
                 and what is moved is counted."
            .into(),
        metrics: vec![
            results.metric("first", "the first 100 GB", "MiB/s", Higher, Demand::Equal).review(words("at the SSD's rate")),
            results.metric("last", "the last 15 GB", "MiB/s", Higher, Demand::Equal).review(words("at the disk's rate")),
            results.metric("time", "the whole file", "s", Lower, Demand::Equal).review(words("not given")),
            results
                .metric("moved", "moved down in the 3 minutes after", "GB", Lower, Demand::Nothing)
                .review(Value::Number(4.0)),
            results.metric("free", "free on the SSD then", "GB", Higher, Demand::Equal),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("rate", "Writing 140 GB", "written (GB)", "MiB/s")],
        finding: format!(
            "Both write to the SSD first: {} s for the file on the Fusion Drive, {} s on Bimetal.",
            results.say(Column::Model, "time"),
            results.say(Column::Bimetal, "time"),
        ),
    }
}
