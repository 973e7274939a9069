//! G7: an SSD while it fills.

use bimetal_sim::model::catalog;
use bimetal_sim::model::Request;

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};
use crate::system::load;

const LEVELS: [u64; 6] = [96, 64, 32, 16, 8, 0];
/// Random writes at each level, and those that use up the spare space.
const EACH_NS: u64 = 20 * SECOND;
const LONG_NS: u64 = 8 * MINUTE;

pub(super) fn session() -> Session {
    Session { ids: &["G7"], columns: &[Column::Model], measure, report: |r| vec![g7(r)] }
}

fn measure(_: Column) -> Seen {
    let mut subject = machines::b().build(Column::SsdAlone);
    let mut seen = Seen::default();
    let size = catalog::sd0128f().size;
    let mut filled = 0;
    for free in LEVELS {
        let level = whole(size - free * GB);
        subject.fill(filled..level);
        filled = level;
        pause(&mut subject, MINUTE);
        let rate = random(&mut subject, level, EACH_NS, free);
        seen.put(&format!("{free} GB"), rate);
        seen.line("rate", vec![(free as f64, rate)]);
    }
    random(&mut subject, filled, LONG_NS, 1000);
    seen.put("collapsed", random(&mut subject, filled, EACH_NS, 1001));
    load::once(subject.system(), Request::trim(0, filled));
    pause(&mut subject, 15 * MINUTE);
    seen.put("trimmed", random(&mut subject, whole(size - 96 * GB), EACH_NS, 7));
    seen
}

fn random(subject: &mut Subject, span: u64, ns: u64, seed: u64) -> f64 {
    mb_per_s(&random_writes(subject.system(), 0..span, ns, seed))
}

fn g7(results: &Results) -> Outcome {
    let metric = |name, label, words: &str| {
        let metric = results.metric(name, label, "MB/s", Better::Higher, Demand::Nothing);
        metric.review(Value::Words(words.into()))
    };
    Outcome {
        id: "G7",
        title: "The SSD alone: random writes while it fills, then TRIM".into(),
        machine: machines::b().words.into(),
        method: "The SSD is filled in order down to 96, 64, 32, 16, 8 and 0 GB free; at each level, after a minute, \
                 4 KiB are written anywhere in what is filled, for 20 seconds, 16 requests on their way; when it is \
                 full for 8 minutes more. Then all is trimmed, and after 15 minutes 4 KiB are written anywhere in \
                 the first 25 GB."
            .into(),
        metrics: vec![
            metric("96 GB", "96 GB free", "full speed; the picture with the figures is missing"),
            metric("32 GB", "32 GB free", "a small loss"),
            metric("8 GB", "8 GB free", "a small loss"),
            metric("collapsed", "full, after 10 minutes", "collapse"),
            metric("trimmed", "after TRIM and 15 minutes", "full recovery"),
        ],
        checks: Vec::new(),
        charts: vec![results.chart("rate", "Random writes of 4 KiB", "free (GB)", "MB/s")],
        finding: format!(
            "{} MB/s with 8 GB free, {} when the spare space is used up, {} again after TRIM: so Bimetal keeps a \
             reserve, and trims what it frees.",
            results.say(Column::Model, "8 GB"),
            results.say(Column::Model, "collapsed"),
            results.say(Column::Model, "trimmed"),
        ),
    }
}
