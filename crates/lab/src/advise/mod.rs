//! What size of SSD a recorded load asks for: the curve of SSD size against the share of I/O and of disk time it takes,
//! from one pass over the trace in bounded memory.
//!
//! # What is computed
//! Every chunk has a *heat*: its visits, each halved for every half-life since, a visit inside a stream counted
//! as a sixteenth. That is the order in which the production policy ranks chunks. The *rank* of a chunk is the number
//! of chunks hotter than it. An SSD of K chunks that follows this order holds just the chunks of rank below K, so an
//! access to a chunk of rank r is served by every SSD larger than r, and by the disk with every smaller one. Ranks are
//! taken before the access counts, so nothing is known beforehand.
//!
//! A chunk does not rank before it has earned its place as the policy has it: written for the first time in the trace
//! (new data begins on the SSD) or visited more than once and a half. The policy's usual half-life is eight visits per
//! fast slot, so there is a ranking for every factor of 4 in size, and each size is read from the nearest one.
//!
//! What the disk needs for an access depends on whether it served the one before it in the run. That, too, depends only
//! on ranks, so the time is exact for every size at once.
//!
//! # What it leaves out
//! Moves are free and at once; the policy lags behind a hot set that shifts. Nothing is said of waiting. A test holds
//! the forecast against replays of the production policy.
//!
//! Reading order: `ladder` (half-lives and sizes), `heat` (arithmetic), `ranking`, `chunks` (state of each, sampling),
//! `costs` (what each size saves), `advisor` (one access after another), `advice` (rows and sentences).

mod advice;
mod advisor;
mod chunks;
mod costs;
mod heat;
mod ladder;
mod ranking;

#[cfg(test)]
mod tests;

pub use advice::{size_name, Advice, Row};
pub use advisor::Advisor;
