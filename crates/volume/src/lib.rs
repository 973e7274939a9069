//! The engine of Bimetal: one group of members, its map, commit pipeline, recovery, placement and migration, over an
//! abstract environment ([`env::Env`]). No system call, thread, wall clock, file or socket below this line.

pub mod backend;
pub mod buf;
mod claim;
mod commit;
pub mod dissolve;
pub mod env;
pub mod error;
pub mod family;
pub mod fate;
pub mod group;
mod health;
pub mod inspect;
mod io;
mod kept;
mod line;
mod map;
mod marked;
mod member;
pub mod mutant;
pub mod options;
pub mod probe;
mod recovery;
pub mod repair;
mod slots;
mod sparse;
pub mod tier;
mod turns;
pub mod units;
mod wait;

pub use group::{Group, Volume};
pub use io::write::gather;
