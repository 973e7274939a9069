//! What placement costs a disk's head, in nanoseconds of its time.
//!
//! The figures are those of POLICY: a random access about 12 ms, a continuation what the transfer takes. Writes are
//! cheaper because a disk's cache lets it sort them. Moves are charged at what they cost in sorted batches.

use super::follow::Follows;
use super::piece::Piece;

/// Head times of one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadCost {
    /// Seek and rotation before a random read, in ns.
    pub seek_read_ns: u64,
    /// The same before a random write.
    pub seek_write_ns: u64,
    /// Overhead of an access that goes on where the disk is, in ns.
    pub follow_ns: u64,
    /// The head passes over so many bytes instead of seeking.
    pub pass_over: u64,
    /// Transfer rate in bytes per second.
    pub bytes_per_second: u64,
    /// A promotion's share of a batch, in ns.
    pub promote_ns: u64,
    /// A demotion's share of a batch, in ns.
    pub demote_ns: u64,
}

impl Default for HeadCost {
    /// The 7200 rpm disk of 2012: 12 ms (POLICY 3), 110 writes a second sorted in a queue of 16, 133 MB/s as the mean
    /// over the capacity (POLICY 4), 4 and 2 ms for moves (POLICY 6). It passes over as much as the disks of [`bimetal_sim::model`] do.
    fn default() -> HeadCost {
        HeadCost {
            seek_read_ns: 12_000_000,
            seek_write_ns: 9_100_000,
            follow_ns: 50_000,
            pass_over: 512 << 10,
            bytes_per_second: 133_000_000,
            promote_ns: 4_000_000,
            demote_ns: 2_000_000,
        }
    }
}

impl HeadCost {
    /// Head time of a piece served by the disk, in ns. `passed`: bytes that the head passes over to get there, 0 if it is
    /// there; `None`: it seeks.
    pub fn of(&self, p: &Piece, passed: Option<u64>) -> u64 {
        let before = match (passed, p.writes()) {
            (Some(bytes), _) => self.follow_ns + self.transfer(bytes),
            (None, true) => self.seek_write_ns,
            (None, false) => self.seek_read_ns,
        };
        before + self.transfer(u64::from(p.len))
    }

    fn transfer(&self, bytes: u64) -> u64 {
        bytes * 1_000_000_000 / self.bytes_per_second.max(1)
    }

    /// The least that a piece can cost on the slow tier wherever other chunks are, in ns.
    pub fn least(&self, p: &Piece) -> u64 {
        let apart = self.of(p, None);
        if p.follows == Follows::Nothing {
            apart
        } else {
            apart.min(self.of(p, Some(0)))
        }
    }
}
