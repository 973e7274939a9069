//! F3 and F4: random writes to 8 GB, again and again.

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Chart, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

const COLUMNS: &[Column] = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
/// The range that is written to.
const RANGE: u64 = whole(8 * GB);
const PASS_NS: u64 = 3 * MINUTE;
const PAUSE_NS: u64 = MINUTE;
/// Where the range begins in F4, behind the data.
const BEHIND_DATA: u64 = whole(900 * GB);

pub(super) fn empty() -> Session {
    Session { ids: &["F3"], columns: COLUMNS, measure: measure_f3, report: |r| vec![f3(r)] }
}

pub(super) fn full() -> Session {
    Session { ids: &["F4"], columns: COLUMNS, measure: measure_f4, report: |r| vec![f4(r)] }
}

/// Seven eighths of the range come early and are on the SSD, the rest comes when it is full.
fn prepare_f3(subject: &mut Subject) {
    let early = whole(RANGE * 87 / 100);
    fill_with_files(subject, whole(20 * GB)..whole(80 * GB), 1);
    fill_with_files(subject, 0..early, 2);
    fill_with_files(subject, whole(80 * GB)..whole(150 * GB), 3);
    fill_with_files(subject, early..RANGE, 4);
    pause(subject, 10 * MINUTE);
}

/// 80 % full; then 3 GB more, and at once the range: for most of it there is no room on the SSD.
fn prepare_f4(subject: &mut Subject) {
    fill_with_files(subject, 0..whole(890 * GB), 1);
    pause(subject, 10 * MINUTE);
    subject.restart();
    subject.fill(whole(890 * GB)..whole(893 * GB));
    subject.fill(BEHIND_DATA..BEHIND_DATA + RANGE);
}

fn measure_f3(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    if subject.is_tiered() {
        prepare_f3(&mut subject);
    }
    passes(&mut subject, 0)
}

fn measure_f4(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    if subject.is_tiered() {
        prepare_f4(&mut subject);
    }
    // A device alone is written to where the range would lie on it.
    let start = if column == Column::SsdAlone { 0 } else { BEHIND_DATA };
    passes(&mut subject, start)
}

fn passes(subject: &mut Subject, start: u64) -> Seen {
    let mut seen = Seen::default();
    let range = start..start + RANGE;
    let begin = subject.system().now();
    for pass in 1..=3u64 {
        let before = subject.system().facts();
        let at = (subject.system().now() - begin) as f64 / 1e9;
        let fast = subject.system().fast_bytes(start, RANGE);
        let meter = random_writes(subject.system(), range.clone(), PASS_NS, pass);
        let after = subject.system().facts();
        let count = |f: crate::system::Traffic| (f.reads + f.writes) as f64;
        let (disk, ssd) = (count(after.slow) - count(before.slow), count(after.fast) - count(before.fast));
        seen.put(&format!("on ssd {pass}"), fast as f64 * 100.0 / RANGE as f64);
        seen.put(&format!("pass {pass}"), mb_per_s(&meter));
        seen.put(&format!("lowest {pass}"), meter.lowest() / 1e6);
        seen.put(&format!("highest {pass}"), meter.highest() / 1e6);
        seen.put(&format!("ratio {pass}"), disk / ssd.max(1.0));
        seen.line("rate", meter.samples().into_iter().map(|(s, rate)| (at + s, rate / 1e6)).collect());
        seen.notes.extend(subject.mover_words().map(|w| format!("after pass {pass}: {w}")));
        pause(subject, PAUSE_NS);
    }
    seen
}

fn chart(results: &Results) -> Chart {
    results.chart("rate", "Three passes, with pauses of a minute", "seconds", "MB/s")
}

fn f3(results: &Results) -> Outcome {
    use Better::Higher;
    let limit = results.get(Column::SsdAlone, "pass 2").unwrap_or(f64::INFINITY) * 0.95;
    let metric = |name, label, demand| results.metric(name, label, "MB/s", Higher, demand);
    Outcome {
        id: "F3",
        title: "Random writes of 4 KiB to 8 GB, three times".into(),
        machine: machines::a().words.into(),
        method: "Three passes of 3 minutes, 16 requests on their way, with pauses of a minute (the review does not say how \
                 long they were). It does not say either how much of the 8 GB was on the disk at first; its first pass needs \
                 about an eighth. So 13 % of the range are written last, when the SSD is full. 138 GB are written in all; the \
                 rest of the disk takes no part."
            .into(),
        metrics: vec![
            metric("pass 1", "pass 1", Demand::Beat).review(Value::Range(7.0, 9.0)),
            metric("pass 2", "pass 2", Demand::Beat).review(Value::Number(21.9)),
            metric("highest 3", "pass 3, highest", Demand::Equal).review(Value::Number(98.0)),
            metric("lowest 3", "pass 3, lowest", Demand::Equal).review(Value::Number(35.0)),
            results.metric("on ssd 1", "of the range on the SSD at first", "%", Higher, Demand::Nothing),
            results.metric("on ssd 3", "of the range on the SSD before pass 3", "%", Higher, Demand::Nothing),
        ],
        checks: vec![results.check("pass 2 at the SSD's speed (95 % of it alone)", "pass 2", "MB/s", |n| n >= limit)],
        charts: vec![chart(results)],
        finding: format!(
            "In the second pass the Fusion Drive writes {} MB/s, Bimetal {}, the SSD alone {}.",
            results.say(Column::Model, "pass 2"),
            results.say(Column::Bimetal, "pass 2"),
            results.say(Column::SsdAlone, "pass 2"),
        ),
    }
}

fn f4(results: &Results) -> Outcome {
    use Better::{Higher, Lower};
    Outcome {
        id: "F4",
        title: "The same on a volume that is 80 % full".into(),
        machine: machines::a().words.into(),
        method:
            "893 GB of files are on the volume; the last 3 GB came just before the range of 8 GB was written, so that \
                 there was room for an eighth of it on the SSD. Then passes as in F3. Accesses of the moves count too."
                .into(),
        metrics: vec![
            results
                .metric("ratio 1", "accesses of the disk for one of the SSD, pass 1", "", Lower, Demand::Beat)
                .review(Value::Number(7.0)),
            results.metric("pass 1", "pass 1", "MB/s", Higher, Demand::Beat).review(Value::Words("not given".into())),
            results.metric("pass 2", "pass 2", "MB/s", Higher, Demand::Beat).review(Value::Words("not given".into())),
            results.metric("pass 3", "pass 3", "MB/s", Higher, Demand::Beat).review(Value::Words("not given".into())),
        ],
        checks: Vec::new(),
        charts: vec![chart(results)],
        finding: format!(
            "On the full volume pass 3 runs at {} MB/s on the Fusion Drive, at {} on Bimetal.",
            results.say(Column::Model, "pass 3"),
            results.say(Column::Bimetal, "pass 3"),
        ),
    }
}
