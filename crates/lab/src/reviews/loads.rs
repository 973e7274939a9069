//! Loads that several experiments share.

use std::ops::Range;

use bimetal_sim::model::{Op, Request};
use bimetal_sim::prng::Prng;

use super::machines::Subject;
use crate::system::load::{self, Load, Stop};
use crate::system::meter::Meter;
use crate::system::System;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const MB: u64 = 1_000_000;
pub(super) const GB: u64 = 1000 * MB;
pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;

/// Bytes of a file of the data that fill a volume.
const FILE: u64 = 64 * MIB;

/// `bytes`, less what is beyond a whole MiB: where ranges begin and end.
pub(super) const fn whole(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

/// Writes a range in order.
pub(super) fn write(system: &mut dyn System, range: Range<u64>, block: u64, depth: usize) -> Meter {
    load::sequential(system, &Load { range, block, depth, op: Op::Write }, Meter::seconds())
}

/// Reads a range in order.
pub(super) fn read(system: &mut dyn System, range: Range<u64>, block: u64, depth: usize) -> Meter {
    load::sequential(system, &Load { range, block, depth, op: Op::Read }, Meter::seconds())
}

/// Writes 4 KiB anywhere in the range for so many ns, 16 at a time.
pub(super) fn random_writes(system: &mut dyn System, range: Range<u64>, ns: u64, seed: u64) -> Meter {
    let load = Load { range, block: 4 * KIB, depth: 16, op: Op::Write };
    load::random(system, &load, seed, Stop::After(ns), Meter::seconds())
}

/// Fills a range with data as they come to be on a volume that is used: files of 64 MiB, in a shuffled order.
pub(super) fn fill_with_files(subject: &mut Subject, range: Range<u64>, seed: u64) {
    let mut files: Vec<u64> = range.clone().step_by(FILE as usize).collect();
    let mut rng = Prng::new(seed);
    for i in (1..files.len()).rev() {
        files.swap(i, rng.below(i as u64 + 1) as usize);
    }
    for start in files {
        subject.fill(start..(start + FILE).min(range.end));
    }
}

/// Lets time pass.
pub(super) fn pause(subject: &mut Subject, ns: u64) {
    load::pause(subject.system(), ns);
}

/// Copies a range, 1 MiB at a time, one request on its way; how many ns it took.
pub(super) fn copy(system: &mut dyn System, from: Range<u64>, to: u64) -> u64 {
    let begun = system.now();
    for offset in from.clone().step_by(MIB as usize) {
        let len = MIB.min(from.end - offset);
        load::once(system, Request::read(offset, len));
        load::once(system, Request::write(to + offset - from.start, len));
    }
    system.now() - begun
}

/// Megabytes per second of a meter.
pub(super) fn mb_per_s(meter: &Meter) -> f64 {
    meter.rate() / 1e6
}

/// Mebibytes per second of a meter.
pub(super) fn mib_per_s(meter: &Meter) -> f64 {
    meter.rate() / MIB as f64
}
