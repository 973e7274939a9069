//! G6: the SSD of machine B with every depth, size and mix.

use bimetal_sim::model::{Op, Request};

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::load::{self, Load, Stop};
use crate::system::meter::Meter;

/// What is written to.
const SPAN: u64 = whole(16 * GB);
const MEASURE_NS: u64 = 2 * SECOND;
const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const SIZES: [u64; 10] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];

pub(super) fn session() -> Session {
    Session { ids: &["G6"], columns: &[Column::Model, Column::Bimetal], measure, report: |r| vec![g6(r)] }
}

fn measure(column: Column) -> Seen {
    // The SSD alone is what the review measured.
    let column = if column == Column::Model { Column::SsdAlone } else { column };
    let mut subject = machines::b().build(column);
    let mut seen = Seen::default();
    subject.fill(0..SPAN);
    pause(&mut subject, MINUTE);
    depths(&mut subject, &mut seen);
    sizes(&mut subject, &mut seen);
    mixes(&mut subject, &mut seen);
    seen
}

fn random(subject: &mut Subject, op: Op, block: u64, depth: usize) -> Meter {
    let load = Load { range: 0..SPAN, block, depth, op };
    load::random(subject.system(), &load, block + depth as u64, Stop::After(MEASURE_NS), Meter::seconds())
}

fn depths(subject: &mut Subject, seen: &mut Seen) {
    for depth in DEPTHS {
        for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
            let rate = random(subject, op, 4096, depth).requests_per_second();
            seen.put(&format!("{name} {depth}"), rate);
            seen.line(&format!("{name} depth"), vec![(depth as f64, rate)]);
        }
    }
}

fn sizes(subject: &mut Subject, seen: &mut Seen) {
    for block in SIZES {
        // Bimetal's volumes have sectors of 4 KiB.
        if block < 4096 && subject.is_tiered() {
            continue;
        }
        for (op, name) in [(Op::Read, "read"), (Op::Write, "write")] {
            let rate = mib_per_s(&random(subject, op, block, 4));
            seen.put(&format!("{name} of {block}"), rate);
            seen.line(&format!("{name} size"), vec![((block as f64 / 1024.0).log2(), rate)]);
        }
    }
}

/// Two streams of 128 KiB, of which a growing share are writes.
fn mixes(subject: &mut Subject, seen: &mut Seen) {
    for tenths in 0..=10u64 {
        let half = SPAN / 2;
        let requests = (0..u64::MAX).map(|i| {
            let offset = (i / 2 % (half / (128 * KIB))) * 128 * KIB + (i % 2) * half;
            let op = if i * 7 % 10 < tenths { Op::Write } else { Op::Read };
            Request { op, offset, len: 128 * KIB }
        });
        let meter = load::closed_loop(subject.system(), 2, Some(MEASURE_NS), requests, Meter::seconds());
        seen.put(&format!("mix {tenths}"), mib_per_s(&meter));
        seen.line("mix", vec![(tenths as f64 * 10.0, mib_per_s(&meter))]);
    }
}

fn g6(results: &Results) -> Outcome {
    let metric = |name: &str, label: &str, unit| {
        let metric = results.metric(name, label, unit, Better::Higher, Demand::Equal);
        metric.review(Value::Words("the picture with the figure is missing".into()))
    };
    let chart = |name, title, x, y| results.chart(name, title, x, y);
    let (x, y) = ("requests on their way", "requests per second");
    let log = "log2 of the size in KiB";
    Outcome {
        id: "G6",
        title: "The SSD alone: depths, sizes, mixes of reads and writes".into(),
        machine: machines::b().words.into(),
        method:
            "16 GB are written; then each point is measured for 2 seconds: 4 KiB anywhere with 1 to 32 requests on \
                 their way; 512 bytes to 256 KiB anywhere, 4 on their way; two sequential streams of 128 KiB, 0 to 100 \
                 % of them writes. Bimetal does the same on a volume where all of it is on the SSD; its sectors are 4 \
                 KiB."
                .into(),
        metrics: vec![
            metric("read 1", "4 KiB reads, one at a time", "1/s"),
            metric("read 32", "4 KiB reads, 32 on their way", "1/s"),
            metric("write 1", "4 KiB writes, one at a time", "1/s"),
            metric("write 32", "4 KiB writes, 32 on their way", "1/s"),
            metric("read of 65536", "reads of 64 KiB", "MiB/s"),
            metric("write of 65536", "writes of 64 KiB", "MiB/s"),
            metric("mix 0", "two streams, reads only", "MiB/s"),
            metric("mix 5", "two streams, half writes", "MiB/s"),
            metric("mix 10", "two streams, writes only", "MiB/s"),
        ],
        checks: Vec::new(),
        charts: vec![
            chart("read depth", "4 KiB reads", x, y),
            chart("write depth", "4 KiB writes", x, y),
            chart("read size", "Reads of other sizes", log, "MiB/s"),
            chart("write size", "Writes of other sizes", log, "MiB/s"),
            chart("mix", "Two streams of 128 KiB", "writes (%)", "MiB/s"),
        ],
        finding: format!(
            "The SSD alone answers {} reads of 4 KiB in a second one by one and {} with 32 on their way; below \
             Bimetal it is {} and {}.",
            results.say(Column::Model, "read 1"),
            results.say(Column::Model, "read 32"),
            results.say(Column::Bimetal, "read 1"),
            results.say(Column::Bimetal, "read 32"),
        ),
    }
}
