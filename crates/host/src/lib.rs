//! Bimetal on Linux: the io_uring reactor that runs a group, its devices, sockets, and what is asked of the system.
//!
//! In reading order: [`reactor`] (the loop, and [`HostEnv`], the engine's world), [`device`] (files, block devices, NBD
//! members, emulated disks), [`locator`] (how they are named), [`net`] and [`fuse`] (sockets and `/dev/fuse`, for the
//! exports), [`probe`] (may a device be taken?), [`extents`] (where files lie), [`attach`] (a volume as
//! `/dev/...`), [`ublk`] (block devices that are served here), [`hygiene`] (memory locking and the like), [`memory`]
//! (large pages for large tables), [`signals`], [`luks`] (keys from passphrases, for commands).
//!
//! What is absent: this crate knows nothing of labels, maps, slots or volumes.

pub mod attach;
pub mod device;
pub mod extents;
pub mod fuse;
pub mod hygiene;
pub mod locator;
pub mod luks;
pub mod memory;
pub mod net;
pub mod probe;
pub mod reactor;
pub mod signals;
pub mod ublk;

pub use device::HostDevice;
pub use locator::Locator;
pub use reactor::{HostEnv, Reactor};
