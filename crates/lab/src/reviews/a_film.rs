//! F6: a film is copied.

use super::loads::*;
use super::machines::{self, Subject};
use super::outcome::{Better, Column, Demand, Outcome, Value};
use super::run::Session;
use super::seen::{Results, Seen};

const DATA: u64 = whole(784 * GB);
const FILM: u64 = whole(10_500 * MB);
/// What of it was watched.
const WATCHED: u64 = whole(2 * GB);
const FROM: u64 = DATA + whole(10 * GB);
const TO: u64 = DATA + whole(30 * GB);

pub(super) fn session() -> Session {
    let columns = &[Column::Model, Column::Bimetal, Column::DiskAlone, Column::SsdAlone];
    Session { ids: &["F6"], columns, measure, report: |r| vec![f6(r)] }
}

/// Data; then files that take the reserve, and the film behind them, so that it comes to lie on the disk; then its beginning
/// is watched twice.
fn prepare(subject: &mut Subject) {
    fill_with_files(subject, 0..DATA, 7);
    subject.restart();
    pause(subject, 10 * MINUTE);
    subject.fill(DATA..DATA + whole(5 * GB));
    subject.fill(FROM..FROM + FILM);
    pause(subject, 10 * MINUTE);
    for _ in 0..2 {
        read(subject.system(), FROM..FROM + WATCHED, MIB, 1);
        pause(subject, 5 * MINUTE);
    }
}

fn measure(column: Column) -> Seen {
    let mut subject = machines::a().build(column);
    let mut seen = Seen::default();
    let (from, to) = if column == Column::SsdAlone { (0, whole(50 * GB)) } else { (FROM, TO) };
    if subject.is_tiered() {
        prepare(&mut subject);
    }
    let system = subject.system();
    let older = system.fast_bytes(0, DATA);
    let free = system.facts().fast_free;
    seen.put("film on ssd", system.fast_bytes(from, FILM) as f64 / 1e9);
    let time = copy(system, from..from + FILM, to);
    seen.put("time", time as f64 / 1e9);
    if subject.is_tiered() {
        let system = subject.system();
        seen.put("copy on ssd", system.fast_bytes(to, FILM) as f64 / 1e9);
        seen.put("free left", system.facts().fast_free as f64 * 100.0 / free.max(1) as f64);
        crate::system::load::pause(system, 10 * MINUTE);
        let left = older.saturating_sub(system.fast_bytes(0, DATA));
        seen.put("evicted", left as f64 * 100.0 / older.max(1) as f64);
    }
    seen.notes.extend(subject.mover_words());
    seen
}

fn f6(results: &Results) -> Outcome {
    use Better::Lower;
    Outcome {
        id: "F6",
        title: "Copy of a film of 10.5 GB that was used a little".into(),
        machine: machines::a().words.into(),
        method: "The volume is 70 % full. Files took the SSD's reserve, and the film behind them went to the disk; its first 2 GB \
                 were watched twice since. After a pause the film is copied, 1 MiB read and 1 MiB written in turns. 10 minutes \
                 later it is seen how much of the older data has left the SSD."
            .into(),
        metrics: vec![
            results
                .metric("copy on ssd", "of the copy on the SSD", "GB", Lower, Demand::Beat)
                .review(Value::Number(4.0)),
            results.metric("evicted", "of the older data driven from the SSD", "%", Lower, Demand::Beat),
            results.metric("time", "time of the copy", "s", Lower, Demand::Nothing).review(Value::Words("not given".into())),
            results.metric("film on ssd", "of the film on the SSD before", "GB", Lower, Demand::Nothing)
                .review(Value::Number(2.0)),
        ],
        checks: vec![
            results.check("the film leaves at least half of the reserve", "free left", "% are left", |n| n >= 50.0),
            results.check("it drives out less than 0.1 % of the older data", "evicted", "%", |n| n < 0.1),
        ],
        charts: Vec::new(),
        finding: format!(
            "Of a film that nobody will look at soon, {} GB land on Fusion's SSD and {} GB on Bimetal's.",
            results.say(Column::Model, "copy on ssd"),
            results.say(Column::Bimetal, "copy on ssd"),
        ),
    }
}
