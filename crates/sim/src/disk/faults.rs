//! What a simulated disk does wrong, and how fast it is.

use crate::prng::Prng;

/// Service times of a disk, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Least time of a request.
    pub base: u64,
    /// Added at random, up to this.
    pub spread: u64,
    /// Nanoseconds per block.
    pub per_block: u64,
    /// Chance of a stall, in millionths.
    pub stall_ppm: u32,
    /// Length of a stall at most.
    pub stall: u64,
}

impl Latency {
    /// A healthy SSD.
    pub const SSD: Latency =
        Latency { base: 40_000, spread: 80_000, per_block: 8_000, stall_ppm: 2_000, stall: 8_000_000 };
    /// A healthy hard disk.
    pub const HDD: Latency =
        Latency { base: 1_000_000, spread: 11_000_000, per_block: 40_000, stall_ppm: 2_000, stall: 60_000_000 };
    /// An SSD that is dying: slow, not dead (PITFALLS 12).
    pub const SICK: Latency =
        Latency { base: 20_000_000, spread: 200_000_000, per_block: 40_000, stall_ppm: 50_000, stall: 2_000_000_000 };
    /// A disk in a storm of stalls.
    pub const STORM: Latency =
        Latency { base: 100_000, spread: 2_000_000, per_block: 10_000, stall_ppm: 150_000, stall: 500_000_000 };

    /// Time of one request.
    pub fn draw(&self, blocks: u64, prng: &mut Prng) -> u64 {
        let stall = if prng.chance(self.stall_ppm) { prng.below(self.stall) } else { 0 };
        self.base + prng.below(self.spread) + blocks * self.per_block + stall
    }
}

/// Faults of a disk during one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail, in millionths.
    pub read_ppm: u32,
    /// Writes that fail, in millionths. What became of the write is open: see [`WriteOutcome`].
    pub write_ppm: u32,
    /// Failed writes and discards may also land later, until the next sync (a timed-out request on its way).
    pub late: bool,
    /// Discards that are carried out a minute or two later, in millionths, whatever comes to the same blocks meanwhile.
    pub hang_ppm: u32,
    /// Syncs that fail, in millionths; some unsynced writes are lost.
    pub sync_ppm: u32,
    /// Metadata that such a sync has lost may still be shown to the next daemon, until the power goes: a cache that is not the
    /// daemon's goes on showing it.
    pub shows: bool,
    /// Writes of metadata from block `garbled_from` on that are confirmed but stored with a wrong bit, in millionths.
    pub garbled_ppm: u32,
    /// See `garbled_ppm`.
    pub garbled_from: u64,
    /// At most so many faults of all kinds in a session.
    pub limit: u32,
    /// Only requests for slots fail, none for metadata: else most groups latch before anything else can happen.
    pub data_only: bool,
    /// Only requests that begin in these blocks fail: the first, and the one behind the last. 0 and 0: all.
    pub area: (u64, u64),
    /// Syncs answer without doing anything.
    pub lies: bool,
    /// Requests of a session after which the disk dies: all others fail, those on their way too, until it comes back for the next
    /// session. 0: it does not.
    pub dies_after: u32,
    /// A disk that has died says so ([`bimetal_volume::env::Device::is_lost`]), as a server does that is gone for good.
    pub tells: bool,
    /// Requests of a session after which the disk stands still: it answers nothing that comes then for some time. 0: it does not.
    pub stands_after: u32,
    /// That time, in milliseconds; 0: some minutes.
    pub stands_ms: u32,
}

/// What became of a write that was reported as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Nothing happened.
    Nothing,
    /// It was carried out.
    Done,
    /// Some sectors were.
    Torn,
    /// It is carried out at some moment before the next sync ends, or never.
    Late,
}

impl WriteOutcome {
    /// A random one.
    pub fn random(late: bool, prng: &mut Prng) -> WriteOutcome {
        use WriteOutcome::*;
        *prng.pick(if late { &[Nothing, Done, Torn, Late, Late, Late][..] } else { &[Nothing, Done, Torn][..] })
    }
}
