//! F1 and F2: the whole volume of machine A, written in order, then at random.

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::meter::Meter;

/// Between two measured stretches.
const STRIDE: u64 = whole(100 * GB);
/// A measured stretch.
const STRETCH: u64 = whole(GB);
/// The SSD's end, and enough behind it.
const SSD: u64 = whole(125 * GB);
const BEHIND: u64 = whole(133 * GB);
/// What the SSD alone can take.
const SSD_ALONE: u64 = whole(120 * GB);
const F2_NS: u64 = 5 * MINUTE;

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
    Session { ids: &["F1", "F2"], columns, measure, report }
}

fn measure(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let mut seen = Seen::default();
    in_order(&mut subject, column, &mut seen);
    if column != Column::SsdAlone {
        at_random(&mut subject, &mut seen);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

/// Megabytes per second over the gigabytes written.
fn line(meter: &Meter, from: u64) -> Vec<(f64, f64)> {
    let mut written = from as f64 / GB as f64;
    let step = |(_, rate): (f64, f64)| {
        written += rate / GB as f64;
        (written, rate / 1e6)
    };
    meter.samples().into_iter().map(step).collect()
}

fn in_order(subject: &mut Subject, column: Column, seen: &mut Seen) {
    if column == Column::SsdAlone {
        let meter = write(subject.system(), 0..SSD_ALONE, 128 * KIB, 1);
        seen.put("ssd", mb_per_s(&meter));
        seen.line("F1", line(&meter, 0));
        return;
    }
    if column != Column::DiskAlone {
        let meter = write(subject.system(), 0..SSD, 128 * KIB, 1);
        let points = line(&meter, 0);
        let fast = points.iter().take_while(|(_, rate)| *rate > 250.0);
        let (until, sum, count) = fast.fold((0.0, 0.0, 0.0), |(_, s, n), (at, rate)| (*at, s + rate, n + 1.0));
        seen.put("until", until);
        seen.put("ssd", sum / f64::max(count, 1.0));
        seen.line("F1", points);
    }
    let start = if column == Column::DiskAlone { 0 } else { SSD };
    let meter = write(subject.system(), start..start + (BEHIND - SSD), 128 * KIB, 1);
    seen.put("outer", mb_per_s(&meter));
    seen.line("F1", line(&meter, start));
    rest(subject, start + (BEHIND - SSD), seen);
}

/// The rest of the volume: stretches are measured, most of what is between is written in large requests.
fn rest(subject: &mut Subject, mut at: u64, seen: &mut Seen) {
    let (size, mut seconds, mut stretches) = (whole(subject.system().size()), 0.0, 0.0);
    while at + 2 * STRETCH < size {
        let next = (at + STRIDE).min(size - STRETCH);
        // What is filled takes no time: the system must find its pace before it is measured.
        subject.fill(at..next - STRETCH);
        write(subject.system(), next - STRETCH..next, 128 * KIB, 1);
        let meter = write(subject.system(), next..next + STRETCH, 128 * KIB, 1);
        seen.line("F1", vec![(next as f64 / GB as f64, mb_per_s(&meter))]);
        seconds += 1.0 / mb_per_s(&meter);
        stretches += 1.0;
        at = next + STRETCH;
    }
    seen.put("mean", stretches / seconds);
}

fn at_random(subject: &mut Subject, seen: &mut Seen) {
    pause(subject, 5 * MINUTE);
    subject.restart();
    let size = whole(subject.system().size());
    let meter = random_writes(subject.system(), 0..size, F2_NS, 2);
    seen.put("random", mb_per_s(&meter));
    seen.put("iops", meter.requests_per_second());
}

fn report(results: &Results) -> Vec<Outcome> {
    vec![f1(results), f2(results)]
}

fn f1(results: &Results) -> Outcome {
    use Better::Higher;
    let say = |column, name| results.say(column, name);
    Outcome {
        id: "F1",
        title: "Sequential writes of 128 KiB, until the volume is full".into(),
        machine: machines::a().words.into(),
        method:
            "The volume is empty. It is written from the first byte to the last, 128 KiB at a time, one request on \
                 its way. The first 133 GB are written so as the review did; after that one GB in a hundred is written \
                 so and measured, and what is between is written in requests of 4 MiB: a disk's rate changes slowly \
                 along its tracks."
                .into(),
        metrics: vec![
            results.metric("ssd", "until the SSD is full", "MB/s", Higher, Demand::Equal).review(Value::Number(322.0)),
            results
                .metric("until", "written at that rate", "GB", Higher, Demand::Equal)
                .review(Value::Number(117.0))
                .remark(
                "The model writes to the SSD as long as anything is free, as F6, F7 and G2 show; the review's 4 GB \
                 less are the reserve.",
            ),
            results
                .metric("outer", "after that, at first", "MB/s", Higher, Demand::Equal)
                .review(Value::Number(175.0))
                .remark("The review gives a range, 133 to 175 MB/s; its upper end is taken for the outer tracks."),
            results
                .metric("mean", "after that, mean of the whole disk", "MB/s", Higher, Demand::Equal)
                .review(Value::Number(133.0))
                .remark(
                    "The lower end of the review's range, taken for the mean; the inner tracks are slower in the \
                         model.",
                ),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("F1", "Writing the whole volume", "written (GB)", "MB/s")],
        finding: format!(
            "The Fusion Drive writes at {} MB/s for {} GB, Bimetal at {} MB/s for {} GB; then both are a disk.",
            say(Column::Model, "ssd"),
            say(Column::Model, "until"),
            say(Column::Bimetal, "ssd"),
            say(Column::Bimetal, "until"),
        ),
    }
}

fn f2(results: &Results) -> Outcome {
    // The bound: the disk alone, for the share of the volume that is on it.
    let bound = results.get(Column::DiskAlone, "random").map_or(0.0, |rate| rate / 0.89);
    Outcome {
        id: "F2",
        title: "Random writes of 4 KiB over the whole volume".into(),
        machine: machines::a().words.into(),
        method: "The volume is full (the state that F1 leaves), the machine has rested for 5 minutes and was \
                 restarted. 4 KiB are written anywhere, 16 requests on their way, for 5 minutes."
            .into(),
        metrics: vec![results
            .metric("random", "mean", "MB/s", Better::Higher, Demand::Equal)
            .review(Value::Number(0.51))
            .remark(format!(
                "The limit is {bound:.2} MB/s as long as small writes to what lies on the disk are made in place: 89 % \
                 of them need the head.",
            ))],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "Nine writes in ten need the disk's head, whoever places them: Fusion {} MB/s, Bimetal {}, the limit \
             {bound:.2}.",
            results.say(Column::Model, "random"),
            results.say(Column::Bimetal, "random"),
        ),
    }
}
