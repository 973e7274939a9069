//! The engine of Bimetal: one group of members, its map, commit pipeline, recovery, placement and migration, over an
//! abstract environment ([`env::Env`]). No system call, thread, wall clock, file or socket below this line.

pub mod backend;
pub mod buf;
pub mod env;
pub mod error;
pub mod options;
pub mod tier;
pub mod units;
