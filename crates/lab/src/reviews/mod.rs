//! The experiments of five published reviews (2012 to 2014), replayed: what was measured, what a model of the reviewed
//! system does on modelled devices, and what Bimetal does on the same ones.
//!
//! - *Row*: an experiment, with the id that it has in the project's reference (F1 ... S4); an [`outcome::Outcome`]
//!   describes it and says what came of it. *Column*: who was measured. *Session*: rows that are measured one after
//!   another on the same system. Each column of a session is measured on a system of its own.
//!
//! What the reviews do not say (the size of a request, the length of a pause) is chosen once for all columns, and the
//! method of the row names it.

mod a_files;
mod a_film;
mod a_large;
mod a_launch;
mod a_random;
mod a_speed;
mod b_range;
mod b_speed;
mod c_files;
mod d_files;
mod loads;
mod machines;
pub mod outcome;
mod run;
mod seen;
mod ssd_bench;
mod ssd_full;
mod ssd_reduction;
mod ssd_theory;

use outcome::{Column, Outcome};
pub use run::Progress;
use run::Session;

/// Ids of all rows, in the order of the table.
pub const IDS: [&str; 25] = [
    "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "D1", "D2", "D3",
    "Z1", "Z2", "S1", "S2", "S3", "S4",
];

fn sessions() -> Vec<Session> {
    vec![
        a_speed::session(),
        a_random::empty(),
        a_random::full(),
        a_files::compile(),
        a_film::session(),
        a_files::export(),
        a_launch::session(),
        a_large::session(),
        b_speed::devices(),
        b_speed::large_file(),
        b_range::file(),
        b_range::reads(),
        b_range::writes(),
        ssd_bench::session(),
        ssd_full::session(),
        c_files::session(),
        d_files::session(),
        ssd_reduction::copy(),
        ssd_reduction::contents(),
        ssd_reduction::encrypted(),
        ssd_theory::session(),
    ]
}

/// Carries out the rows whose ids `wanted` says yes to, in the order of the table, on so many threads. The results do
/// not depend on how many. Rows that share a state are measured together, so a row may take the time of its neighbours.
pub fn run(wanted: impl Fn(&str) -> bool, progress: &(dyn Fn(Progress) + Sync), threads: usize) -> Vec<Outcome> {
    run_columns(wanted, |_| true, progress, threads)
}

/// As [`run`], with some of the columns only.
pub fn run_columns(
    wanted: impl Fn(&str) -> bool,
    columns: impl Fn(Column) -> bool,
    progress: &(dyn Fn(Progress) + Sync),
    threads: usize,
) -> Vec<Outcome> {
    let mut chosen = sessions();
    chosen.retain(|s| s.ids.iter().any(|id| wanted(id)));
    let mut rows = run::run(&chosen, columns, progress, threads);
    rows.retain(|row| wanted(row.id));
    rows
}

#[cfg(test)]
mod tests {
    use super::outcome::Demand;
    use super::*;
    use crate::report::{judge, Verdict};

    #[test]
    fn every_row_has_its_session() {
        let ids: Vec<&str> = sessions().iter().flat_map(|s| s.ids.iter().copied()).collect();
        assert_eq!(ids, IDS);
    }

    /// Of the rows in which Bimetal must be ahead those that any change of when chunks move may cost, unseen by all other tests: G4
    /// once went from 25 passes to 39.
    #[test]
    fn ahead_of_the_fusion_drive_in_ranges_that_are_used_without_a_pause() {
        let columns = |c| matches!(c, Column::Model | Column::Bimetal | Column::SsdAlone);
        for row in run_columns(|id| ["F3", "G3", "G4"].contains(&id), columns, &|_| {}, 2) {
            let ahead = row.metrics.iter().filter(|m| m.demand == Demand::Beat);
            for metric in ahead.clone() {
                assert_eq!(judge(metric), Verdict::Met, "{} {}: {:?}", row.id, metric.label, metric.values);
            }
            assert!(ahead.count() > 0 || !row.checks.is_empty(), "{}", row.id);
            row.checks.iter().for_each(|check| assert!(check.met, "{} {}: {}", row.id, check.what, check.seen));
        }
    }

    #[test]
    fn a_row_is_the_same_on_any_number_of_threads() {
        let rows = |threads| run(|id| id == "S1" || id == "S2", &|_| {}, threads);
        let once = rows(1);
        assert_eq!(once.iter().map(|r| r.id).collect::<Vec<_>>(), ["S1", "S2"]);
        assert_eq!(once, rows(3));
    }
}
