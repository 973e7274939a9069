//! `bimetal lab reviews`: the experiments of the reviews, as a table here and as a report with charts.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Result;
use bimetal_lab::report::{judge, value_words, Report, Score, Verdict};
use bimetal_lab::reviews::outcome::{Better, Column, Demand, Metric, Outcome, Value};
use bimetal_lab::reviews::{self, IDS};
use serde_json::json;

use super::compare::{all_loads, Loads};
use super::report_file::ReportFile;
use crate::cli::Reviews;
use crate::output::{table_within, Output};
use crate::progress::Progress;
use crate::{api, date};

/// Columns of a terminal that the table fits.
const WIDTH: u16 = 100;
const COLUMNS: [(Column, &str); 5] = [
    (Column::Review, "review"),
    (Column::Model, "model"),
    (Column::Bimetal, "bimetal"),
    (Column::DiskAlone, "disk_alone"),
    (Column::SsdAlone, "ssd_alone"),
];

pub(crate) fn run(args: Reviews, output: Output) -> Result<ExitCode> {
    let file = ReportFile::new(&args.out, args.force)?;
    let wanted = |id: &str| args.only.is_empty() || args.only.iter().any(|w| w == id);
    let outcomes = experiments(wanted);
    let mut missing: Vec<String> = match args.only.is_empty() {
        true => Vec::new(),
        false => vec![format!("Experiments left out: all but {}.", args.only.join(", "))],
    };
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    if args.matrix {
        let loads = all_loads(&Loads::default())?;
        notes = loads.notes();
        cells = loads.cells;
        missing.extend(loads.missing);
    }
    let date = date::today();
    let (missing, version) = (missing.as_slice(), env!("CARGO_PKG_VERSION"));
    let report = Report { outcomes: &outcomes, cells: &cells, missing, notes: &notes, date: &date, version };
    let written = file.write(&report.html());
    let out = Some(file.path()).filter(|_| written.is_ok());
    // Minutes of work are not lost with a file.
    output.show(&as_json(&outcomes, out), || words(&outcomes, missing, out))?;
    Ok(super::afterwards(written))
}

fn experiments(wanted: impl Fn(&str) -> bool) -> Vec<Outcome> {
    let progress = Mutex::new(Progress::new());
    progress.lock().unwrap_or_else(|e| e.into_inner()).show(|| "measuring".into());
    let tell = |p: reviews::Progress| {
        let mut line = progress.lock().unwrap_or_else(|e| e.into_inner());
        let part = line.part(p.done as u64, p.all as u64);
        line.show(|| format!("{} of {} measurements, {part}; last {} on {}", p.done, p.all, p.rows, who(p.column)));
    };
    reviews::run(wanted, &tell, super::threads())
}

fn who(column: Column) -> &'static str {
    match column {
        Column::Review => "paper",
        Column::Model => "the reviewed system's model",
        Column::Bimetal => "Bimetal",
        Column::DiskAlone => "the disk alone",
        Column::SsdAlone => "the SSD alone",
    }
}

/// Whether a row of this id exists, for the command line.
pub(crate) fn known(id: &str) -> Result<String, String> {
    let id = id.trim().to_ascii_uppercase();
    match IDS.contains(&id.as_str()) {
        true => Ok(id),
        false => Err(format!("no experiment '{id}'; there are {}", IDS.join(", "))),
    }
}

fn words(outcomes: &[Outcome], missing: &[String], out: Option<&Path>) -> String {
    let mut rows = Vec::new();
    for o in outcomes {
        rows.push(heading(o));
        rows.extend(o.metrics.iter().map(figures));
        rows.extend(o.checks.iter().map(|c| {
            let verdict = if c.met { Verdict::Met } else { Verdict::Missed };
            let text = format!("{}: {}", c.what, c.seen);
            vec![
                String::new(),
                text,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                verdict.words().into(),
            ]
        }));
    }
    let header = ["", "", "REVIEW", "MODEL", "BIMETAL", "DISK", "SSD", ""];
    let mut text = table_within(WIDTH, &header, &rows, &[2, 3, 4, 5, 6]);
    text += "\nMODEL: a model of the reviewed system, on the same devices. DISK, SSD: that device alone.\n";
    text += &score(outcomes);
    for line in missing {
        text += &format!("{line}\n");
    }
    text + &out.map_or_else(String::new, |out| format!("The report with charts is in {}.\n", out.display()))
}

fn heading(o: &Outcome) -> Vec<String> {
    let mut row = vec![String::new(); 8];
    (row[0], row[1]) = (o.id.to_string(), o.title.clone());
    row
}

fn figures(m: &Metric) -> Vec<String> {
    let mut row = vec![String::new(), format!("{}, {}", m.label, m.unit)];
    row.extend(COLUMNS.iter().map(|(c, _)| m.value(*c).map_or_else(String::new, value_words)));
    let verdict = judge(m);
    row.push(if verdict == Verdict::NotAsked { String::new() } else { verdict.words().into() });
    row
}

fn score(outcomes: &[Outcome]) -> String {
    let s = Score::of(outcomes);
    let line = |(met, all): (usize, usize), what: &str| match all {
        0 => String::new(),
        _ => format!("{met} of {all} {what}\n"),
    };
    line(s.beat, "figures that must be better than the model's are.")
        + &line(s.equal, "figures that may be 2 % worse at most are no worse than that.")
        + &line(s.checks, "further bars are kept.")
        + &line(s.models, "models are within 15 % of the review.")
}

fn as_json(outcomes: &[Outcome], out: Option<&Path>) -> serde_json::Value {
    let s = Score::of(outcomes);
    let pair = |(met, all): (usize, usize)| json!({"met": met, "of": all});
    json!({
        "schema": api::SCHEMA, "report": out.map(|out| out.display().to_string()),
        "score": {
            "beat": pair(s.beat), "equal": pair(s.equal), "checks": pair(s.checks), "models": pair(s.models),
            "experiments": pair(s.experiments),
        },
        "experiments": outcomes.iter().map(outcome_json).collect::<Vec<_>>(),
    })
}

fn outcome_json(o: &Outcome) -> serde_json::Value {
    let checks = o.checks.iter().map(|c| json!({"what": c.what, "seen": c.seen, "met": c.met}));
    json!({
        "id": o.id, "title": o.title, "machine": o.machine, "method": o.method, "finding": o.finding,
        "figures": o.metrics.iter().map(metric_json).collect::<Vec<_>>(), "checks": checks.collect::<Vec<_>>(),
    })
}

fn metric_json(m: &Metric) -> serde_json::Value {
    let value = |v: &Value| match v {
        Value::Number(x) => json!(x),
        Value::Range(a, b) => json!([a, b]),
        Value::Words(words) => json!(words),
    };
    let values: serde_json::Map<String, serde_json::Value> =
        COLUMNS.iter().filter_map(|(c, name)| Some((name.to_string(), value(m.value(*c)?)))).collect();
    let demand = match m.demand {
        Demand::Beat => "better",
        Demand::Equal => "no worse",
        Demand::Nothing => "nothing",
    };
    let met = match judge(m) {
        Verdict::Met => Some(true),
        Verdict::Missed => Some(false),
        Verdict::Unknown | Verdict::NotAsked => None,
    };
    json!({
        "label": m.label, "unit": m.unit, "more_is_better": m.better == Better::Higher, "demand": demand, "met": met,
        "values": values, "remark": m.remark,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_lab::reviews::outcome::Check;

    #[test]
    fn the_table_fits_a_terminal() {
        let words = || Value::Words("the picture with the figure is missing in the review".into());
        let metric = Metric {
            label: "time until everything that was read lies on the fast device".into(),
            unit: "passes",
            better: Better::Lower,
            demand: Demand::Beat,
            values: vec![
                (Column::Review, words()),
                (Column::Model, Value::Words("never".into())),
                (Column::Bimetal, Value::Number(3.0)),
                (Column::DiskAlone, Value::Range(1234.5, 4321.0)),
            ],
            remark: None,
        };
        let check = Check {
            what: "the film leaves at least half of the reserve".into(),
            seen: "2.1 GB of 4 GB".into(),
            met: false,
        };
        let outcome = Outcome {
            id: "F6",
            title: "A copy of a film of more than 10 GB that was used a little before".into(),
            machine: String::new(),
            method: String::new(),
            metrics: vec![metric; 3],
            checks: vec![check],
            charts: Vec::new(),
            finding: String::new(),
        };
        let text = words_of(&outcome);
        let widest = text.lines().map(|l| l.chars().count()).max();
        assert!(widest <= Some(WIDTH.into()), "{widest:?}\n{text}");
        for part in ["F6", "never", "1234 to", "\u{2713} met", "\u{2717} missed", "3 of 3 figures that must be better"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    fn words_of(o: &Outcome) -> String {
        words(std::slice::from_ref(o), &[], Some(Path::new("report.html")))
    }

    #[test]
    fn ids_are_known_in_any_case() {
        assert_eq!(known(" f3 ").as_deref(), Ok("F3"));
        assert!(known("X1").is_err_and(|e| e.contains("F1, F2")));
    }
}
