//! Cells of the matrix for terminals and programs.

use bimetal_lab::compare::{Bounds, Cell, Entry, Origin, Role, Standing, Summary};
use bimetal_volume::units::CHUNK;
use serde_json::json;

use crate::output::{table, wrapped};
use crate::size::approx;

/// One cell with all policies, best first, and the caches apart from them.
pub(super) fn cell_words(c: &Cell) -> String {
    let mut entries: Vec<&Entry> = c.entries.iter().collect();
    entries.sort_by_key(|e| e.replay.foreground_ns);
    let (caches, policies): (Vec<&Entry>, Vec<&Entry>) = entries.into_iter().partition(|e| e.role == Role::Cache);
    let mut rows: Vec<Vec<String>> = policies.into_iter().map(row).collect();
    if let Some(b) = &c.bounds {
        rows.extend(bounds(c, b));
    }
    let size = approx(u64::from(c.fast_slots) * CHUNK);
    let header = ["POLICY", "DISK TIME", "WITH MOVES", "I/O ON SSD", "MOVES", "MOVED/USED"];
    let mut text = format!(
        "Fast tier {size}, {}:\n{}{}",
        part_words(c.fast_slots, c.footprint),
        table(&header, &rows, &[1, 2, 3, 4, 5]),
        verdict(c)
    );
    if !caches.is_empty() {
        let rows: Vec<Vec<String>> = caches.into_iter().map(row).collect();
        text += &format!("\n{}{}", table(&header_of_caches(), &rows, &[1, 2, 3, 4, 5]), wrapped(CACHES));
    }
    text
}

fn header_of_caches() -> [&'static str; 6] {
    ["CACHE", "DISK TIME", "WITH MOVES", "I/O ON SSD", "MOVES", "MOVED/USED"]
}

/// Why caches are not among the policies.
const CACHES: &str = "Caches have no budget, so they are not compared: what is read or written is copied into them as it passes, \
                      at no cost to the disk, and the SSD's size is lost. They have the part of the fast tier that 8 and 64 GB \
                      are of a Fusion Drive's 121 GB.";

/// What part of all that is touched the fast tier holds.
fn part_words(slots: u32, footprint: u32) -> String {
    let percent = f64::from(slots) * 100.0 / f64::from(footprint.max(1));
    match percent {
        p if slots > footprint => {
            let times = p / 100.0;
            let digits = if times < 10.0 { 1 } else { 0 };
            format!("{times:.digits$} times what is touched")
        }
        p if p >= 99.5 => "all of what is touched".into(),
        p if p >= 1.0 => format!("{p:.0} % of what is touched"),
        p if p >= 0.01 => format!("{p:.2} % of what is touched"),
        _ => "less than 0.01 % of what is touched".into(),
    }
}

fn row(e: &Entry) -> Vec<String> {
    let r = &e.replay;
    let name = match e.role {
        Role::Baseline | Role::Cache => r.policy.clone(),
        Role::Policy | Role::Scheduled => format!("Bimetal: {}", r.policy),
    };
    let moves = (r.promotions + r.demotions) as f64 * 100.0 / r.accesses.max(1) as f64;
    vec![
        name,
        format!("{:.3}", r.foreground_ms()),
        format!("{:.3}", r.total_ms()),
        format!("{:.1} %", r.fast_share() * 100.0),
        format!("{moves:.2}"),
        format!("{:.2}", r.moved_per_user_byte()),
    ]
}

fn bounds(c: &Cell, b: &Bounds) -> Vec<Vec<String>> {
    let line = |name: &str, foreground: Option<u64>, total: Option<u64>| {
        let ms = |ns: Option<u64>| ns.map_or_else(String::new, |ns| format!("{:.3}", c.per_access_ms(ns)));
        vec![name.to_string(), ms(foreground), ms(total), String::new(), String::new(), String::new()]
    };
    vec![
        line("(MIN, knowing the future)", Some(b.min_foreground_ns), None),
        line("(oracle of epochs)", None, Some(b.epoch_total_ns)),
        line("(least after a use)", None, Some(b.after_use_total_ns)),
        line("(least of all)", None, Some(b.least_total_ns)),
    ]
}

/// Where the production policy stands in a cell, as a sentence.
fn verdict(c: &Cell) -> String {
    let (Some(s), Some(best)) = (Standing::of(c, Role::Policy), c.best_baseline()) else { return String::new() };
    let by = (s.relative - 1.0).abs() * 100.0;
    let mut text = match s.relative {
        r if r < 1.0 => format!(
            "Bimetal needs {by:.1} % less disk time than the best of the policies with the same budget ({})",
            best.policy
        ),
        r if r > 1.0 => format!(
            "Bimetal needs {by:.1} % more disk time than the best of the policies with the same budget ({})",
            best.policy
        ),
        _ => format!(
            "Bimetal needs as much disk time as the best of the policies with the same budget ({})",
            best.policy
        ),
    };
    if let Some(gap) = s.gap_closed {
        let part = if gap < 0.005 { "nothing".to_string() } else { format!("{:.0} %", gap * 100.0) };
        text += &format!("; it closes {part} of the gap from clock+Bloom N=2 to the least after a use");
    }
    wrapped(&(text + "."))
}

/// One line for each cell.
pub(super) fn overview(cells: &[Cell]) -> String {
    let row = |c: &Cell| {
        let (s, ours, best) = (Standing::of(c, Role::Policy)?, c.of(Role::Policy)?, c.best_baseline()?);
        let sign = match s.relative {
            r if r < 1.0 => "won",
            1.0 => "level",
            r if r <= 1.05 => "behind",
            _ => "LOST",
        };
        let gap = s.gap_closed.map_or_else(String::new, |g| format!("{:.0} %", g * 100.0));
        Some(vec![
            name(c),
            format!("{} %", c.percent),
            format!("{:.3}", ours.foreground_ms()),
            format!("{:.3}", best.foreground_ms()),
            best.policy.clone(),
            format!("{:+.1} %", (s.relative - 1.0) * 100.0),
            gap,
            sign.to_string(),
        ])
    };
    let rows: Vec<Vec<String>> = cells.iter().filter_map(row).collect();
    let header = ["LOAD", "FAST", "BIMETAL", "BEST OTHER", "", "AGAINST IT", "GAP", ""];
    table(&header, &rows, &[1, 2, 3, 5, 6])
}

fn name(c: &Cell) -> String {
    let cut = if c.cut { " (cut)" } else { "" };
    match c.origin {
        Origin::Trace => format!("{}{cut}", c.workload),
        Origin::Generated { seed } => format!("{} {seed}{cut}", c.workload),
    }
}

/// How all cells stand together, as sentences.
pub(super) fn summary(cells: &[Cell]) -> String {
    let of = |role: Role, how: &str| {
        let s = Summary::of(cells, role);
        if s.cells == 0 {
            return String::new();
        }
        let mut text = format!(
            "Bimetal {how}: less disk time than all others with the same budget in {} of {} cells, level in {}, more than 5 % behind in {}.\n  \
             {:.3} of the best other's time on the mean, {:.3} at worst; ",
            s.below_all, s.cells, s.level, s.far_behind, s.relative, s.worst
        );
        if cells.iter().any(|c| c.bounds.is_some()) {
            let (after_use, least) = (s.gap_closed * 100.0, s.gap_to_least_closed * 100.0);
            text += &format!("{after_use:.0} % of the gap closed, {least:.0} % of that to the least of all;\n  ");
        }
        text + &format!("{:.2} bytes moved per user byte (clock+Bloom N=3: {:.2}).\n", s.moved, s.moved_n3)
    };
    of(Role::Policy, "moving when it likes") + &of(Role::Scheduled, "with its scheduler")
}

/// A cell for programs.
pub(super) fn cell_json(c: &Cell) -> serde_json::Value {
    let entry = |e: &Entry| {
        let r = &e.replay;
        json!({
            "policy": r.policy, "role": role(e.role), "foreground_ns": r.foreground_ns, "background_ns": r.background_ns,
            "fast_accesses": r.fast, "slow_seeks": r.slow_seeks, "slow_follows": r.slow_follows,
            "promotions": r.promotions, "demotions": r.demotions, "let_go": r.let_go,
            "written_anew": r.written_anew, "user_bytes": r.user_bytes,
        })
    };
    let seed = match c.origin {
        Origin::Trace => None,
        Origin::Generated { seed } => Some(seed),
    };
    let bounds = c.bounds.map(|b| {
        json!({
            "min_foreground_ns": b.min_foreground_ns, "epoch_total_ns": b.epoch_total_ns,
            "after_use_total_ns": b.after_use_total_ns, "least_total_ns": b.least_total_ns,
        })
    });
    json!({
        "workload": c.workload, "seed": seed, "tuned_on": c.origin.was_tuned_on(), "fast_percent": c.percent,
        "fast_bytes": u64::from(c.fast_slots) * CHUNK, "accesses": c.accesses,
        "footprint_bytes": u64::from(c.footprint) * CHUNK, "cut": c.cut,
        "policies": c.entries.iter().map(entry).collect::<Vec<_>>(), "bounds": bounds,
    })
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Baseline => "baseline",
        Role::Cache => "cache",
        Role::Policy => "bimetal",
        Role::Scheduled => "bimetal-scheduled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_what_is_touched_are_readable() {
        let cases = [
            (50, 1000, "5 % of what is touched"),
            (999, 1000, "all of what is touched"),
            (1000, 1000, "all of what is touched"),
            (1, 2000, "0.05 % of what is touched"),
            (1, 1_000_000, "less than 0.01 % of what is touched"),
            (1200, 1000, "1.2 times what is touched"),
            (8_388_608, 9883, "849 times what is touched"),
        ];
        for (slots, footprint, words) in cases {
            assert_eq!(part_words(slots, footprint), words);
        }
    }
}
