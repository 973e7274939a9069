//! Storage systems under one load, in virtual time: a bare device, the model of a reviewed system, Bimetal's own engine on
//! modelled devices.
//!
//! A driver submits requests, lets time pass, and sees completions. It cannot tell which system it drives, so all get the
//! same load. No data is kept: what counts here is time and place. (Data are the simulator's business.)
//!
//! Reading order: this file, `bare`, `meter` and `load` (how systems are driven and measured), `bimetal` (the engine),
//! `replay` (traces and workloads).

pub mod bare;
pub mod bimetal;
pub mod fusion;
pub mod load;
pub mod meter;
pub mod replay;

pub use bimetal_sim::model::{Completion, Op, Request};

/// A storage system in virtual time.
pub trait System {
    /// What it is, for people.
    fn name(&self) -> String;

    /// Bytes that it offers.
    fn size(&self) -> u64;

    /// The time, in ns.
    fn now(&self) -> u64;

    /// Takes a request at the present time; `id` is handed back with its completion. A request that does not fit the
    /// system is a fault of the driver and panics.
    fn submit(&mut self, id: u64, request: Request);

    /// Lets time pass until a request is complete, but not beyond `until` ns. `None`: the time is `until` (requests may
    /// still be on their way), and background work that was due has been done.
    fn run(&mut self, until: u64) -> Option<Completion>;

    /// Bytes of the range that lie on the fast device, holes not counted.
    fn fast_bytes(&self, offset: u64, len: u64) -> u64;

    /// What it did so far.
    fn facts(&self) -> Facts;
}

/// What a system did since it was made. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Moved to the fast device, by itself.
    pub promoted: u64,
    /// Moved to the slow device, by itself.
    pub demoted: u64,
    /// Free on the fast device.
    pub fast_free: u64,
    /// Traffic of the fast device, of whatever cause.
    pub fast: Traffic,
    /// Traffic of the slow device.
    pub slow: Traffic,
}

/// What went over a device's link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}
