//! The deterministic simulator of the engine: simulated disks with a crash model and faults, virtual time, an oracle of
//! legal answers, random and directed scenarios, and a shrinker.
//!
//! Reading order: `prng`, `content`, `disk`, `world`, `env` (what the engine stands on); `oracle` (what it may answer);
//! `scenario`, `text`, `workload` (what it is asked); `run` (carries a scenario out and judges); `sweep`, `shrink`,
//! `counters`. Beside them, `model`: how long disks and SSDs take (no data, no faults).

pub mod command;
pub mod content;
pub mod counters;
pub mod disk;
pub mod env;
pub mod model;
pub mod oracle;
pub mod prng;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod sweep;
pub mod text;
pub mod workload;
pub mod world;
