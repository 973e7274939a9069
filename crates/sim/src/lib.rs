//! The deterministic simulator of the engine: simulated disks with a crash model and faults, virtual time, an oracle of
//! legal answers, random and directed scenarios, and a shrinker.
//!
//! Reading order: `prng`, `content`, `disk`, `world`, `oracle`, then what uses them.

pub mod content;
pub mod disk;
pub mod oracle;
pub mod prng;
pub mod world;
