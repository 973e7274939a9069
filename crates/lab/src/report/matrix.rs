//! The matrix of policies: every workload and size of the fast tier, wins and losses.

use std::fmt::Write;

use super::experiment::verdict_cell;
use super::text::{escaped, figure};
use super::verdict::Verdict;
use crate::compare::{Bounds, Cell, Origin, Role, Standing, Summary};

/// Behind the best by more than this is too much.
const FAR: f64 = 1.05;

/// The section.
pub(super) fn section(cells: &[Cell]) -> String {
    let mut out = String::from("<section id=\"matrix\">\n<h2>Placement policies side by side</h2>\n");
    out.push_str(
        "<p>Recorded and generated loads are replayed on Bimetal's policy and on others, with the same disk, the same fast tier \
         and the same budget of moves. What counts is how long the slow disk is busy for each access; moves are told apart. \
         In Bimetal's engine what came up and was not written goes down to its old place without a move, and a write that \
         replaces a whole 128 KiB goes to the fast tier if there is room; the others copy both ways, and write in place. \
         Loads marked <i>not seen</i> come from generator seeds that were not used while the policy was tuned.</p>\n",
    );
    for (role, name) in ROLES {
        standing(&mut out, cells, role, name);
    }
    outcome_table(&mut out, cells);
    full_table(&mut out, cells);
    out.push_str("</section>\n");
    out
}

const ROLES: [(Role, &str); 2] = [
    (Role::Policy, "Moving when it likes, as the others do"),
    (Role::Scheduled, "With its scheduler, which waits for quiet moments"),
];

fn standing(out: &mut String, cells: &[Cell], role: Role, name: &str) {
    let s = Summary::of(cells, role);
    if s.cells == 0 {
        return;
    }
    let _ = write!(
        out,
        "<p class=\"lead\">{name}: the least disk time in <b>{} of {}</b> cells, level in {}, more than 5 % behind the best in \
         <b>{}</b>; {} of the best baseline's time on the geometric mean, {} at worst. ",
        s.below_all,
        s.cells,
        s.level,
        s.far_behind,
        percent(s.relative),
        percent(s.worst),
    );
    if cells.iter().any(|c| c.bounds.is_some()) {
        let _ = write!(
            out,
            "Of the gap between clock + Bloom N = 2, the nearest to Apple's patents, and the least that is possible for who moves up \
             what was used, with its neighbours, and knows what of it is used again, it closes <b>{}</b>; of that to the least of \
             all, for who also knows what is used first, {}. ",
            percent(s.gap_closed),
            percent(s.gap_to_least_closed)
        );
    }
    let _ = writeln!(
        out,
        "It moves {} bytes per byte of users; clock + Bloom N = 3 moves {}.</p>",
        figure(s.moved),
        figure(s.moved_n3)
    );
}

fn percent(x: f64) -> String {
    format!("{}\u{a0}%", figure(x * 100.0))
}

fn cell_name(c: &Cell) -> String {
    let origin = match c.origin {
        Origin::Trace => "recorded".to_string(),
        Origin::Generated { seed } if c.origin.was_tuned_on() => format!("seed {seed}"),
        Origin::Generated { seed } => format!("seed {seed}, not seen"),
    };
    let cut = if c.cut { ", cut" } else { "" };
    format!("<th scope=\"row\">{}<small>{origin}{cut}</small></th><td>{} %</td>", escaped(&c.workload), c.percent)
}

/// A row per cell: Bimetal, the best of the others, who wins.
fn outcome_table(out: &mut String, cells: &[Cell]) {
    out.push_str("<div class=\"wide\"><table><thead><tr><th scope=\"col\">Load</th><th scope=\"col\">Fast tier</th>");
    out.push_str("<th scope=\"col\">Bimetal, ms per access</th><th scope=\"col\">Best with the same budget</th>");
    out.push_str("<th scope=\"col\">Gap closed</th><th scope=\"col\">Against the best</th></tr></thead><tbody>\n");
    for c in cells {
        let (Some(ours), Some(best)) = (c.of(Role::Policy), c.best_baseline()) else { continue };
        let Some(standing) = Standing::of(c, Role::Policy) else { continue };
        let gap = standing.gap_closed.map_or_else(|| "\u{2013}".into(), percent);
        let _ = writeln!(
            out,
            "<tr>{}<td class=\"bimetal\">{}</td><td>{}<small>{}</small></td><td>{gap}</td>{}</tr>",
            cell_name(c),
            figure(ours.foreground_ms()),
            figure(best.foreground_ms()),
            escaped(&best.policy),
            against(standing.relative),
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn against(relative: f64) -> String {
    let by = figure((relative - 1.0).abs() * 100.0);
    match relative {
        r if r < 1.0 => verdict_cell(Verdict::Met, &format!("{by} % less")),
        1.0 => verdict_cell(Verdict::Met, "level"),
        r if r <= FAR => verdict_cell(Verdict::NotAsked, &format!("{by} % more")),
        _ => verdict_cell(Verdict::Missed, &format!("{by} % more")),
    }
}

/// All policies of all cells, then the bounds, then the caches, which are not compared.
fn full_table(out: &mut String, cells: &[Cell]) {
    let names = |cache: bool| {
        let mut names: Vec<&str> = Vec::new();
        for e in cells.iter().flat_map(|c| &c.entries).filter(|e| (e.role == Role::Cache) == cache) {
            if !names.contains(&e.replay.policy.as_str()) {
                names.push(&e.replay.policy);
            }
        }
        names
    };
    let (policies, caches) = (names(false), names(true));
    out.push_str(
        "<h3>All policies</h3>\n<p>Disk time of users per access in ms; the least of each row among the policies, which have the \
         same budget of moves, is marked \u{25c6}. Caches have no budget and are not compared: what is used is copied into them as \
         it passes, at no cost to the disk, and the SSD's size is lost. They have the part of the fast tier that 8 and 64 GB are \
         of a Fusion Drive's 121 GB.</p>\n",
    );
    out.push_str("<div class=\"wide\"><table class=\"all\"><thead><tr><th scope=\"col\">Load</th><th scope=\"col\">Fast tier</th>");
    let mut head = |text: &str| {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(text));
    };
    policies.iter().for_each(|name| head(name));
    head("Least after a use, moves included");
    head("Least of all, moves included");
    caches.iter().for_each(|name| head(&format!("not compared: {name}")));
    out.push_str("</tr></thead><tbody>\n");
    for c in cells {
        let seated = c.entries.iter().filter(|e| e.role != Role::Cache);
        let least = seated.map(|e| e.replay.foreground_ns).min();
        let cell = |name: &str, compared: bool| {
            let replay = c.named(name);
            let mark = if compared && replay.map(|r| r.foreground_ns) == least { "\u{25c6}\u{a0}" } else { "" };
            let text = replay.map_or_else(|| "\u{2013}".into(), |r| figure(r.foreground_ms()));
            format!("<td>{mark}{text}</td>")
        };
        let bound = |of: fn(&Bounds) -> u64| {
            c.bounds.as_ref().map_or_else(|| "\u{2013}".into(), |b| figure(c.per_access_ms(of(b))))
        };
        let (after_use, least) = (bound(|b| b.after_use_total_ns), bound(|b| b.least_total_ns));
        let policies: String = policies.iter().map(|name| cell(name, true)).collect();
        let caches: String = caches.iter().map(|name| cell(name, false)).collect();
        let _ = writeln!(out, "<tr>{}{policies}<td>{after_use}</td><td>{least}</td>{caches}</tr>", cell_name(c));
    }
    out.push_str("</tbody></table></div>\n");
}
