//! A section per experiment: what was done, the figures, drawings, what to take from it.

use std::fmt::Write;

use super::chart::figure_of;
use super::text::{better_words, class, demand_words, escaped, heading, value_words, COLUMNS};
use super::verdict::{judge, within_review, Verdict};
use crate::reviews::outcome::{Check, Column, Metric, Outcome};

/// The section.
pub(super) fn section(o: &Outcome) -> String {
    let id = escaped(o.id);
    let mut out = format!("<section id=\"{id}\">\n<h2><span class=\"id\">{id}</span> {}</h2>\n", escaped(&o.title));
    let _ = write!(out, "<p class=\"machine\">{}</p>\n<p>{}</p>\n", escaped(&o.machine), escaped(&o.method));
    if !o.metrics.is_empty() {
        table(&mut out, &o.metrics);
    }
    if !o.checks.is_empty() {
        checks(&mut out, &o.checks);
    }
    o.charts.iter().for_each(|c| out.push_str(&figure_of(c)));
    if !o.finding.is_empty() {
        let _ = writeln!(out, "<p class=\"finding\"><b>What it shows.</b> {}</p>", escaped(&o.finding));
    }
    remarks(&mut out, &o.metrics);
    out.push_str("</section>\n");
    out
}

/// Columns that any of the metrics has.
fn columns(metrics: &[Metric]) -> Vec<Column> {
    COLUMNS.into_iter().filter(|c| metrics.iter().any(|m| m.value(*c).is_some())).collect()
}

fn table(out: &mut String, metrics: &[Metric]) {
    let columns = columns(metrics);
    out.push_str("<div class=\"wide\"><table class=\"figures\"><thead><tr><th scope=\"col\">Figure</th>");
    for c in &columns {
        let _ = write!(out, "<th scope=\"col\" class=\"{}\">{}</th>", class(*c), heading(*c));
    }
    out.push_str("<th scope=\"col\">Asked of Bimetal</th></tr></thead><tbody>\n");
    for m in metrics {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}<small>{}, {}</small></th>",
            escaped(&m.label),
            escaped(m.unit),
            better_words(m.better)
        );
        for c in &columns {
            let text = m.value(*c).map_or_else(|| "\u{2013}".into(), |v| escaped(&value_words(v)));
            let _ = write!(out, "<td class=\"{}\">{text}{}</td>", class(*c), note(m, *c));
        }
        let _ = writeln!(out, "{}</tr>", verdict_cell(judge(m), demand_words(m.demand)));
    }
    out.push_str("</tbody></table></div>\n");
}

/// What stands below a figure: how the model is to the review, how Bimetal is to the model.
fn note(m: &Metric, column: Column) -> String {
    let text = match column {
        Column::Model => match within_review(m) {
            Some(true) => "within 15 % of the review".to_string(),
            Some(false) => "more than 15 % off the review".to_string(),
            None => return String::new(),
        },
        Column::Bimetal => match m.advantage() {
            Some(times) if times >= 1.095 => format!("{} times as good as the model", super::figure(times)),
            Some(times) if times >= 1.005 => format!("{:.0} % better than the model", (times - 1.0) * 100.0),
            Some(times) if times < 0.995 => format!("{:.0} % behind the model", (1.0 - times) * 100.0),
            Some(_) => "level with the model".to_string(),
            None => return String::new(),
        },
        _ => return String::new(),
    };
    format!("<small>{text}</small>")
}

/// A cell that says by sign, word and colour whether something is met.
pub(super) fn verdict_cell(verdict: Verdict, of: &str) -> String {
    let class = match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Unknown | Verdict::NotAsked => "open",
    };
    let words = if verdict == Verdict::NotAsked { "" } else { verdict.words() };
    format!("<td class=\"verdict {class}\">{words}<small>{of}</small></td>")
}

fn checks(out: &mut String, checks: &[Check]) {
    out.push_str("<div class=\"wide\"><table class=\"checks\"><thead><tr><th scope=\"col\">Also asked</th>");
    out.push_str("<th scope=\"col\">Seen</th><th scope=\"col\"></th></tr></thead><tbody>\n");
    for c in checks {
        let verdict = verdict_cell(Verdict::of(c.met), "");
        let _ = writeln!(out, "<tr><td>{}</td><td>{}</td>{verdict}</tr>", escaped(&c.what), escaped(&c.seen));
    }
    out.push_str("</tbody></table></div>\n");
}

fn remarks(out: &mut String, metrics: &[Metric]) {
    let with: Vec<_> = metrics.iter().filter_map(|m| m.remark.as_ref().map(|r| (&m.label, r))).collect();
    if with.is_empty() {
        return;
    }
    out.push_str("<dl class=\"remarks\">");
    for (label, remark) in with {
        let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escaped(label), escaped(remark));
    }
    out.push_str("</dl>\n");
}
