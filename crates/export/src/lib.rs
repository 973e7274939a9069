//! Exports: how the rest of the world reaches a volume: an NBD server, files in a FUSE mount, and block devices by
//! ublk.
//!
//! Reading order: [`conn`] and [`runtime`] (what is wanted from the outside), `nbd/` (the server: `handshake`, then
//! `transmission`, `validate`, `execute`, `outbox`), [`fuse`] (`receive`, `answer`, `execute`), [`ublk`] (block devices
//! served by this process), [`stats`] (what they tell about themselves). [`backends`] holds two volumes without an
//! engine, for benchmarks and tests; [`client`] is an NBD client over the same transport; [`testing`] and [`fuzz`] run
//! NBD and FUSE in memory.

pub mod backends;
pub mod client;
pub mod conn;
pub mod fuse;
pub mod fuzz;
mod load;
pub mod nbd;
pub mod runtime;
mod signal;
pub mod stats;
pub mod testing;
pub mod ublk;

pub use conn::{Conn, Part};
pub use nbd::{Export, Limits, Server};
pub use runtime::Runtime;
