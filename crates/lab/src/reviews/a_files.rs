//! F5 and F7: a project is compiled, photos are exported.

use bimetal_sim::model::Request;
use bimetal_sim::prng::Prng;

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::load;
use crate::system::meter::Meter;

const COLUMNS: &[Column] = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
/// Data on the volume before: 70 % of 1.12 TB.
const DATA: u64 = whole(784 * GB);
/// A source file, and what is made of it.
const SOURCE: u64 = 16 * KIB;
const PRODUCT: u64 = 32 * KIB;
/// Photos, and bytes of one.
const PHOTOS: u64 = 703;
const PHOTO: u64 = 14_500_000 / (4 * KIB) * (4 * KIB);

pub(super) fn compile() -> Session {
    Session { ids: &["F5"], columns: COLUMNS, measure: measure_compile, report: |r| vec![f5(r)] }
}

pub(super) fn export() -> Session {
    Session { ids: &["F7"], columns: COLUMNS, measure: measure_export, report: |r| vec![f7(r)] }
}

/// A volume with data that has come to rest; where new files go.
fn with_data(subject: &mut Subject, column: Column) -> u64 {
    if subject.is_tiered() {
        fill_with_files(subject, 0..DATA, 7);
        subject.restart();
        pause(subject, 10 * MINUTE);
    }
    if column == Column::SsdAlone {
        0
    } else {
        DATA
    }
}

fn measure_compile(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let start = with_data(&mut subject, column);
    let mut seen = Seen::default();
    project(&mut subject, start, whole(682 * MB), "small", &mut seen);
    pause(&mut subject, 10 * MINUTE);
    project(&mut subject, start + whole(10 * GB), whole(2 * GB), "large", &mut seen);
    seen.notes.extend(subject.mover_words());
    seen
}

/// A project is unpacked, and compiled 5 minutes later.
fn project(subject: &mut Subject, start: u64, bytes: u64, name: &str, seen: &mut Seen) {
    let system = subject.system();
    write(system, start..start + bytes, 64 * KIB, 1);
    load::pause(system, 5 * MINUTE);
    let files = bytes / SOURCE;
    let mut order: Vec<u64> = (0..files).collect();
    let mut rng = Prng::new(bytes);
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let products = start + bytes;
    let requests = order.into_iter().enumerate().flat_map(|(i, file)| {
        let read = Request::read(start + file * SOURCE, SOURCE);
        [read, Request::write(products + i as u64 * PRODUCT, PRODUCT)]
    });
    let before = system.facts().slow;
    let meter = load::closed_loop(system, 4, None, requests, Meter::seconds());
    let after = system.facts().slow;
    let disk = after.read_bytes + after.write_bytes - before.read_bytes - before.write_bytes;
    seen.put(&format!("disk {name}"), disk as f64 * 100.0 / meter.bytes() as f64);
    seen.put(&format!("time {name}"), meter.elapsed() as f64 / 1e9);
}

fn f5(results: &Results) -> Outcome {
    use Better::Lower;
    let disk = |name, label, words: &str| {
        let metric = results.metric(name, label, "% of the bytes", Lower, Demand::Equal);
        metric.review(Value::Words(words.into()))
    };
    let time = |name, label| {
        let metric = results.metric(name, label, "s", Lower, Demand::Equal);
        metric.review(Value::Words("not given".into())).remark("The compiler's own work takes no time here.")
    };
    Outcome {
        id: "F5",
        title: "Compiling a project of 682 MB, and one of 2 GB".into(),
        machine: machines::a().words.into(),
        method: "The volume is 70 % full. The project is unpacked (64 KiB at a time); 5 minutes later all its files are read in \
                 a random order, 16 KiB each, and for each 32 KiB are written behind each other, 4 requests on their way. The \
                 review does not say how much a build writes; twice the sources is what builds with debug information do."
            .into(),
        metrics: vec![
            disk("disk small", "682 MB: share of the disk", "SSD only"),
            disk("disk large", "2 GB: share of the disk", "a very short burst"),
            time("time small", "682 MB: time"),
            time("time large", "2 GB: time"),
        ],
        checks: Vec::new(),
        charts: Vec::new(),
        finding: format!(
            "A build works on the SSD: of the 2 GB project the Fusion Drive gives {} % of the bytes to the disk, Bimetal {} %.",
            results.say(Column::Model, "disk large"),
            results.say(Column::Bimetal, "disk large"),
        ),
    }
}

fn measure_export(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let start = with_data(&mut subject, column);
    let mut seen = Seen::default();
    let system = subject.system();
    let begun = system.now();
    let mut until = PHOTOS;
    for photo in 0..PHOTOS {
        let at = start + photo * PHOTO;
        let time = write(system, at..at + PHOTO, MIB, 1);
        seen.line("rate", vec![((photo + 1) as f64, mb_per_s(&time))]);
        if until == PHOTOS && system.fast_bytes(at, PHOTO) < PHOTO {
            until = photo;
        }
    }
    seen.put("photo", until as f64);
    seen.put("time", (system.now() - begun) as f64 / 1e9);
    seen.notes.extend(subject.mover_words());
    seen
}

fn f7(results: &Results) -> Outcome {
    let time = |column| results.get(column, "time").unwrap_or(f64::NAN);
    let way = |c| (time(c) - time(Column::SsdAlone)) * 100.0 / (time(Column::DiskAlone) - time(Column::SsdAlone));
    let mut share = results.metric("time", "on the way from SSD (0) to disk (100)", "%", Better::Lower, Demand::Equal);
    share.values = [Column::Model, Column::Bimetal].map(|c| (c, Value::Number(way(c)))).into();
    share.values.retain(|(_, v)| matches!(v, Value::Number(n) if n.is_finite()));
    Outcome {
        id: "F7",
        title: "Export of 703 photos as TIFF".into(),
        machine: machines::a().words.into(),
        method: "The volume is 70 % full and at rest. 703 files of 14.5 MB are written one after another, 1 MiB at a time, one \
                 request on its way. The size follows from the review: the reserve of 4 GB was full at photo 297. The photos' \
                 own computation takes no time here."
            .into(),
        metrics: vec![
            results.metric("photo", "photos before one goes to the disk", "photos", Better::Higher, Demand::Nothing)
                .review(Value::Number(297.0)),
            results.metric("time", "time", "s", Better::Lower, Demand::Equal).review(Value::Words("not given".into())),
            share.review(Value::Number(50.0)).remark("\"About half way between disk and SSD.\""),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("rate", "Rate of each photo", "photo", "MB/s")],
        finding: format!(
            "Fusion's reserve takes {} photos, Bimetal's {}; all 703 take {} s and {} s.",
            results.say(Column::Model, "photo"),
            results.say(Column::Bimetal, "photo"),
            results.say(Column::Model, "time"),
            results.say(Column::Bimetal, "time"),
        ),
    }
}
