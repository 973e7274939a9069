//! Looking at a group that is not in use: [`check`] verifies it, [`dump`] prints it. Neither writes a byte.

mod check;
mod dump;
mod node;

pub use check::{check, Problem, Report};
pub use dump::{dump, DumpOptions};
pub use node::{Node, Value};
