//! What no policy, or no policy of a kind, can do better. All see the future.

mod epoch;
mod lagrange;
mod min;

pub use epoch::{epoch_oracle, EpochOracle};
pub use lagrange::{lower_bound, Bound, Lagrange, Rise};
pub use min::{min, Min};
