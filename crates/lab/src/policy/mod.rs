//! Placement policies compared without devices: who keeps the right chunks fast, at what cost in moves.
//!
//! A trace becomes a [`Stream`] of chunk accesses. [`replay()`] sends it to a policy in a [`Seat`], which decides what
//! is on the fast tier, under a [`Budget`] of moves that is the same for all, and adds up the time that the slow tier's
//! head would have needed ([`HeadCost`]). The production policy ([`Production`]) and the baselines sit in the same
//! seat; inclusive caches ([`Inclusive`]) and bounds ([`bound`]) are computed from the same stream and the same costs.

pub mod bound;
pub mod cache;
mod cost;
mod engine;
pub(crate) mod follow;
mod fusion;
mod heap;
mod inclusive;
mod lists;
mod number;
pub(crate) mod piece;
mod production;
mod replay;
mod seat;
mod shadow;
mod smq;
mod tiers;
mod visit;

#[cfg(test)]
mod tests;

pub use cost::HeadCost;
pub use follow::Follows;
pub use fusion::ClockBloom;
pub(crate) use fusion::{Clock, VisitQueue};
pub use inclusive::{Inclusive, Writes};
pub use number::CHUNKS_MAX;
pub use piece::{Kind, Piece, Start, Stream, TooLarge, PIECES_MAX};
pub use production::Production;
pub use replay::{replay, Budget, Replay, Setup};
pub use seat::{Baseline, FirstFit, Seat, Seated};
pub use shadow::Shadow;
pub use smq::Smq;
pub use tiers::Tiers;
