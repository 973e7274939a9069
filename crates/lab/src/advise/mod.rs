//! What size of SSD a recorded load asks for: the share of I/O and of disk time that SSDs of a ladder of sizes take.
//!
//! # What is computed
//! The trace is read once, and what is kept of it is replayed to the production policy for each size, with moves free and
//! at once: what `bimetal lab replay --unlimited` does. So the figures are those of the policy itself, its half-lives, its
//! streams and its reserve, and of the disk's model in [`crate::policy::HeadCost`]; they are the same as a replay's where all
//! of the trace is kept and lies within the first TiB.
//!
//! # What bounds it
//! At most so many pieces are kept. When there are more, one of two MiB is followed, then one of four and so on, chosen
//! by hash of its number, and with it all that is ever done to it; the tier is made smaller in proportion (Waldspurger et
//! al., SHARDS, FAST'15). What a sample leaves to the disk is held against the whole load, which is counted: whether
//! something very hot happens to be in the sample matters little then, as the SSD takes it either way. In runs a sample
//! keeps neighbours together: the next MiB that is followed lies next to the one before. Long runs are shorter in it,
//! though, so that some that are streams are taken for runs.
//!
//! A load that touches little but touches it often cannot be sampled so: of that the beginning is replayed.
//!
//! # What it leaves out
//! What moves cost, that the policy has to wait for quiet moments, and how long anybody waits.
//!
//! Reading order: `ladder` (sizes), `sample` (what is kept of a trace), `load` (one size), `advice` (rows and
//! sentences).

mod advice;
mod ladder;
mod load;
mod sample;

#[cfg(test)]
mod tests;

pub use advice::Advice;
pub use ladder::size_name;
pub use load::{Load, Row};
pub use sample::Sample;
