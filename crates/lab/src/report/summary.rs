//! What a reader sees first: how many rows Bimetal wins, and where everybody stands between disk and SSD.

use std::fmt::Write;

use super::chart::{legend, mark};
use super::text::{class, escaped, figure};
use super::verdict::{judge, Score, Verdict};
use crate::reviews::outcome::{Column, Demand, Metric, Outcome};

/// Least part of the SSD's speed that the drawing shows; what is slower lies at the left edge.
const LEAST: f64 = 1e-4;
/// A little room to the right of 100 %.
const MOST: f64 = 2.0;

/// The section at the top.
pub(super) fn section(outcomes: &[Outcome]) -> String {
    let mut out = String::from("<section id=\"summary\">\n<h2>In short</h2>\n");
    sentences(&mut out, outcomes);
    overview(&mut out, outcomes);
    table(&mut out, outcomes);
    out.push_str("</section>\n");
    out
}

fn sentences(out: &mut String, outcomes: &[Outcome]) {
    let s = Score::of(outcomes);
    let _ = writeln!(out, "<p class=\"lead\">{}</p><ul>", lead(&s));
    let mut line = |(met, all): (usize, usize), what: &str| {
        if all > 0 {
            let _ = writeln!(out, "<li><b>{met} of {all}</b> {what}</li>");
        }
    };
    line(s.beat, "figures that must be better than those of the reviewed system's model are.");
    line(s.equal, "figures that may be 2 % worse at most are no worse than that.");
    line(s.checks, "further bars are kept.");
    line(
        s.models,
        "models of a reviewed system are within 15 % of what the review printed; for the others the reason is given.",
    );
    out.push_str("</ul>\n");
    if let Some(text) = limits(outcomes) {
        let _ = writeln!(out, "<p>{text}</p>");
    }
}

/// The sentence that says it all, with a sign that says the same.
fn lead(s: &Score) -> String {
    let (met, all) = s.experiments;
    match all - met {
        0 if all == 0 => "Nothing is asked of Bimetal in these experiments.".into(),
        0 => format!("\u{2713} Bimetal does all that is asked of it, in <b>all {all}</b> experiments in which something is."),
        missed => format!(
            "\u{2717} Bimetal does not do all that is asked of it in <b>{missed} of {all}</b> experiments in which something \
             is; in {} it does.",
            if met == 0 { "none".into() } else { format!("the other {met}") }
        ),
    }
}

/// How near all are to the SSD alone, over the figures that all of them have.
fn limits(outcomes: &[Outcome]) -> Option<String> {
    let columns = [Column::Bimetal, Column::Model, Column::DiskAlone];
    let metrics = outcomes.iter().flat_map(|o| &o.metrics).filter(|m| m.demand != Demand::Nothing);
    let parts: Vec<Vec<f64>> =
        metrics.filter_map(|m| columns.iter().map(|c| m.of_ssd(*c)).collect::<Option<Vec<f64>>>()).collect();
    if parts.is_empty() {
        return None;
    }
    let mean = |i: usize| {
        let sum: f64 = parts.iter().map(|p| p[i].ln()).sum();
        format!("{}\u{a0}%", figure((sum / parts.len() as f64).exp() * 100.0))
    };
    Some(format!(
        "Of the speed that the SSD alone has, Bimetal reaches <b>{}</b>, the model of the reviewed system {}, the disk alone \
         {} (geometric mean over {} figures).",
        mean(0),
        mean(1),
        mean(2),
        parts.len()
    ))
}

/// Where a part of the SSD's speed lies on the scale, in percent from the left.
fn place(part: f64) -> f64 {
    let (low, high) = (LEAST.log10(), MOST.log10());
    ((part.clamp(LEAST, MOST).log10() - low) / (high - low)) * 100.0
}

/// A line per figure with a mark for each who was measured.
fn overview(out: &mut String, outcomes: &[Outcome]) {
    const SHOWN: [Column; 4] = [Column::DiskAlone, Column::Model, Column::Review, Column::Bimetal];
    let rows: Vec<(&Outcome, &Metric)> = outcomes
        .iter()
        .flat_map(|o| o.metrics.iter().map(move |m| (o, m)))
        .filter(|(_, m)| m.demand != Demand::Nothing && m.of_ssd(Column::Bimetal).is_some())
        .collect();
    if rows.is_empty() {
        return;
    }
    out.push_str(
        "<figure class=\"overview\"><figcaption>How near to the SSD alone: each figure as a part of what the same \
                  SSD does without a disk. Further right is better; each step is a factor of ten.</figcaption>\n",
    );
    legend(out, SHOWN.into_iter());
    out.push_str("<div class=\"tracks\">\n<div class=\"track scale\"><span></span><div>");
    for (part, text) in [(1e-4, "0.01 %"), (1e-3, "0.1 %"), (1e-2, "1 %"), (1e-1, "10 %"), (1.0, "100 %")] {
        let _ = write!(out, "<i style=\"left:{:.1}%\">{text}</i>", place(part));
    }
    out.push_str("</div></div>\n");
    for (o, m) in rows {
        let _ = write!(
            out,
            "<div class=\"track\"><span><a href=\"#{0}\">{0}</a> {1}</span><div>",
            escaped(o.id),
            escaped(&m.label)
        );
        for part in [1e-3, 1e-2, 1e-1, 1.0] {
            let _ = write!(out, "<b style=\"left:{:.1}%\"></b>", place(part));
        }
        for column in SHOWN {
            let Some(part) = m.of_ssd(column) else { continue };
            let mut shape = String::new();
            mark(&mut shape, column, 8.0, 8.0);
            let percent = figure(part * 100.0);
            let (who, kind, at) = (super::text::heading(column), class(column), place(part));
            let _ = write!(
                out,
                "<svg class=\"{kind}\" viewBox=\"0 0 16 16\" style=\"left:{at:.1}%\" role=\"img\" \
                 aria-label=\"{who}: {percent} %\"><title>{who}: {percent} %</title>{shape}</svg>"
            );
        }
        out.push_str("</div></div>\n");
    }
    out.push_str("</div></figure>\n");
}

fn table(out: &mut String, outcomes: &[Outcome]) {
    out.push_str("<div class=\"wide\"><table class=\"contents\"><thead><tr><th scope=\"col\"></th><th scope=\"col\">Experiment</th>");
    out.push_str("<th scope=\"col\">Asked and met</th><th scope=\"col\"></th></tr></thead><tbody>\n");
    for o in outcomes {
        let (met, asked) = counts(o);
        let verdict = match (met, asked) {
            (_, 0) => Verdict::NotAsked,
            (met, asked) => Verdict::of(met == asked),
        };
        let id = escaped(o.id);
        let count = if asked == 0 { "nothing asked".into() } else { format!("{met} of {asked}") };
        let cell = super::experiment::verdict_cell(verdict, "");
        let title = escaped(&o.title);
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\"><a href=\"#{id}\">{id}</a></th><td>{title}</td><td>{count}</td>{cell}</tr>"
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// Demands and bars that are met, and all.
fn counts(o: &Outcome) -> (usize, usize) {
    let judged = o.metrics.iter().map(judge).filter(|v| *v != Verdict::NotAsked);
    let all: Vec<bool> = judged.map(|v| v == Verdict::Met).chain(o.checks.iter().map(|c| c.met)).collect();
    (all.iter().filter(|met| **met).count(), all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_and_the_sentence_say_the_same() {
        let of = |met, all| lead(&Score { experiments: (met, all), ..Score::default() });
        assert!(of(20, 20).starts_with("\u{2713} Bimetal does all"));
        assert!(of(14, 20).starts_with("\u{2717} Bimetal does not do all") && of(14, 20).contains("<b>6 of 20</b>"));
        assert!(of(14, 20).ends_with("in the other 14 it does."));
        assert!(of(0, 2).ends_with("in none it does."));
        assert!(!of(0, 0).contains('\u{2713}'));
    }
}
