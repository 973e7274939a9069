//! Looking at a group that is not in use: [`check`] verifies it, [`dump`] prints it. Neither writes a byte. A group that is
//! in use verifies itself ([`crate::Group::check`]).

mod check;
mod dump;
mod node;
mod online;

pub use check::{check, Problem, Report};
pub use dump::{dump, DumpOptions};
pub use node::{Node, Value};
