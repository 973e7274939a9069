//! The mechanics of a disk: where the head is, how the platter turns, how long it takes to get somewhere.
//!
//! A request elsewhere takes an overhead, a seek, a rotation and `bytes / rate`; one that goes on where the head is
//! takes a smaller overhead and `bytes / rate`, or what the bus takes if that was read ahead. The *seek* depends on the
//! distance as a part of the whole stroke, the *rotation* on the real angle at that moment, the *rate* on the *zone*: a
//! part of the disk with one track length, so with one rate.

use super::HddSpec;
use crate::model::transfer_ns;

/// Zones of a disk; real ones have 15 to 40.
const ZONES: u64 = 32;

/// Tracks of one length.
#[derive(Clone, Copy, Debug)]
struct Zone {
    /// First byte.
    start: u64,
    /// Bytes per second.
    rate: u64,
    /// Bytes on a track.
    track: u64,
}

/// A head and its platter.
#[derive(Clone, Debug)]
pub(super) struct Head {
    size: u64,
    /// Milliseconds: constant, with the root of the distance, with the distance.
    seek_ms: [f64; 3],
    /// Of one turn.
    turn_ns: u64,
    overhead_ns: u64,
    follow_overhead_ns: u64,
    pass_over: u64,
    read_ahead: u64,
    zones: Vec<Zone>,
    zone_len: u64,
    bus_rate: u64,
    /// Byte after the last one read or written.
    place: u64,
    /// When the head was there, in nanoseconds.
    passed: u64,
    /// When the last request given to it ends: later than `passed` if the bus took longer.
    free: u64,
}

impl Head {
    pub(super) fn new(spec: &HddSpec) -> Head {
        let turn_ns = 60_000_000_000 / u64::from(spec.rpm);
        let zone_len = spec.size.div_ceil(ZONES);
        let lost = u128::from(spec.outer_rate - spec.inner_rate);
        let zone = |i: u64| {
            // The rate in the middle of the zone.
            let rate = spec.outer_rate - (lost * u128::from(2 * i + 1) / u128::from(2 * ZONES)) as u64;
            let track = (u128::from(rate) * u128::from(turn_ns) / 1_000_000_000) as u64;
            Zone { start: i * zone_len, rate, track: track.max(512) }
        };
        Head {
            size: spec.size,
            seek_ms: spec.seek_ms,
            turn_ns,
            overhead_ns: spec.overhead_ns,
            follow_overhead_ns: spec.follow_overhead_ns,
            pass_over: spec.pass_over,
            read_ahead: spec.read_ahead,
            zones: (0..ZONES).map(zone).collect(),
            zone_len,
            bus_rate: spec.bus_rate,
            place: 0,
            passed: 0,
            free: 0,
        }
    }

    /// When the last request given to it ends.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    fn zone(&self, offset: u64) -> &Zone {
        let last = self.zones.len() - 1;
        &self.zones[((offset / self.zone_len) as usize).min(last)]
    }

    /// Bytes between the head and `offset` if the head gets there by going on.
    fn gap(&self, offset: u64) -> Option<u64> {
        offset.checked_sub(self.place).filter(|gap| *gap <= self.pass_over)
    }

    /// A measure of the seek to `offset`; 0 if there is none.
    pub(super) fn distance(&self, offset: u64) -> u64 {
        match self.gap(offset) {
            Some(_) => 0,
            None => offset.abs_diff(self.place).max(1),
        }
    }

    /// Nanoseconds of a seek to `offset`.
    fn seek_ns(&self, offset: u64) -> u64 {
        let distance = offset.abs_diff(self.place) as f64 / self.size as f64;
        if distance == 0.0 {
            return 0;
        }
        let [a, b, c] = self.seek_ms;
        ((a + b * distance.sqrt() + c * distance) * 1e6) as u64
    }

    /// Nanoseconds from `now` until `offset` is under the head, once it is on the track.
    fn rotation_ns(&self, now: u64, offset: u64) -> u64 {
        let zone = self.zone(offset);
        let along = (offset - zone.start) % zone.track;
        let angle = (u128::from(along) * u128::from(self.turn_ns) / u128::from(zone.track)) as u64;
        (angle + self.turn_ns - now % self.turn_ns) % self.turn_ns
    }

    /// Nanoseconds until the first byte of a request elsewhere, begun at `start`.
    fn reach_ns(&self, start: u64, offset: u64) -> u64 {
        let lag = self.overhead_ns + self.seek_ns(offset);
        lag + self.rotation_ns(start + lag, offset)
    }

    /// Nanoseconds until `offset` is under the head if it starts now, when it is free: what a disk knows that takes the
    /// angle into account.
    pub(super) fn positioning_ns(&self, offset: u64) -> u64 {
        match self.gap(offset) {
            Some(gap) => transfer_ns(gap, self.zone(offset).rate),
            None => self.reach_ns(self.free, offset),
        }
    }

    /// Serves a request that the disk begins at `start`; returns when it ends.
    pub(super) fn serve(&mut self, start: u64, offset: u64, len: u64, read: bool) -> u64 {
        let start = start.max(self.free);
        let rate = self.zone(offset).rate;
        let end = match self.gap(offset) {
            Some(gap) if start == self.passed => start + self.follow_overhead_ns + transfer_ns(gap + len, rate),
            // The head has gone on reading into the buffer, until that was full.
            Some(gap) if read => return self.serve_ahead(start, offset, len, transfer_ns(gap + len, rate)),
            // The place has gone by while the head was idle: it must come round again.
            Some(_) => {
                let ready = start + self.follow_overhead_ns;
                ready + self.rotation_ns(ready, offset) + transfer_ns(len, rate)
            }
            None => start + self.reach_ns(start, offset) + transfer_ns(len, rate),
        };
        self.place = offset + len;
        (self.passed, self.free) = (end, end);
        end
    }

    /// Serves a read, begun at `start`, to whose end the head takes `way_ns` from where it went on to read ahead. What it has read by
    /// then still takes its time on the bus.
    fn serve_ahead(&mut self, start: u64, offset: u64, len: u64, way_ns: u64) -> u64 {
        let ahead = transfer_ns(self.read_ahead, self.zone(offset).rate);
        let began = self.passed.max(start.saturating_sub(ahead));
        self.place = offset + len;
        self.passed = start.max(began + way_ns) + self.follow_overhead_ns;
        self.free = self.passed.max(start + self.follow_overhead_ns + transfer_ns(len, self.bus_rate));
        self.free
    }
}
