//! Simulated disks: content and crash model (`store`), requests in virtual time (`device`), faults and speed
//! (`faults`).

mod cell;
mod device;
mod faults;
mod store;

pub use cell::{Cell, BLOCK};
pub use device::{LastWords, Op, SimDisk};
pub use faults::{Faults, Latency, WriteOutcome};
pub use store::{Image, Store, Survival};
