//! The matrix: all workloads, several sizes of the fast tier, all policies and bounds.
//!
//! A [`Case`] is a workload: a recorded trace, or a generator with a seed. A [`Cell`] is a case with one size of the
//! fast tier; in it every policy is replayed under the same budget of moves. [`compare`] computes all cells of all
//! cases on several threads, [`cells_of`] those of one stream, and [`Summary`] says how the production policy fares
//! among them. The same cases give the same matrix; times of this machine are kept apart, in [`speed`].

mod case;
mod cell;
mod contest;
mod run;
pub mod speed;
mod summary;

#[cfg(test)]
mod tests;

pub use case::{generated, traces_in, Case, CaseError, Origin, TUNING_SEEDS, VALIDATION_SEEDS};
pub use cell::{cell_of, cells_of, Bounds, Cell, How};
pub use contest::{each_seat, Entry, Role, Visitor};
pub use run::{compare, Matrix, Progress};
pub use summary::{Standing, Summary};
