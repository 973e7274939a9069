//! A hot set that does not stay the same: it drifts, or is exchanged as a whole.

use bimetal_sim::prng::Prng;

use super::place::{inside, HotSet};
use super::stream::{stream, Accesses, Script, Visits};
use super::{check, check_exponent, check_part, check_request, check_share, check_volume, parameters, part};
use super::{SpecError, Workload};
use crate::trace::Op;

/// What becomes hot or cold together.
const EXTENT: u64 = 128 << 10;

/// The work of weeks: each day a few files of the hot set are done with and a few others take their place.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// The hot set as a part of the volume, in parts per million; at most half.
    pub hot_ppm: u32,
    /// Zipf exponent within it.
    pub exponent: f64,
    /// Requests after which one of its 128 KiB is exchanged.
    pub step_requests: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Requests that write, in parts per million.
    pub write_ppm: u32,
    /// Requests anywhere on the volume, in parts per million.
    pub stray_ppm: u32,
    /// Microseconds between requests, on average.
    pub gap_us: u64,
}

impl Default for Drift {
    fn default() -> Drift {
        Drift {
            hot_ppm: 50_000,
            exponent: 0.8,
            step_requests: 200,
            request_bytes: 16 << 10,
            write_ppm: 300_000,
            stray_ppm: 100_000,
            gap_us: 10_000,
        }
    }
}

impl Workload for Drift {
    fn name(&self) -> &'static str {
        "drift"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; hot_ppm, exponent, step_requests, request_bytes, write_ppm, stray_ppm, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check(self.step_requests > 0, "step_requests", "must be above 0")?;
        moving(self, self.name(), Pace { every: self.step_requests, all: false }, volume_bytes, seed)
    }
}

/// A new project, a new game: all at once the hot set is another one, of which nothing was hot before.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// The hot set as a part of the volume, in parts per million; at most half.
    pub hot_ppm: u32,
    /// Zipf exponent within it.
    pub exponent: f64,
    /// Requests after which it is exchanged.
    pub period_requests: u64,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Requests that write, in parts per million.
    pub write_ppm: u32,
    /// Requests anywhere on the volume, in parts per million.
    pub stray_ppm: u32,
    /// Microseconds between requests, on average.
    pub gap_us: u64,
}

impl Default for Shift {
    fn default() -> Shift {
        Shift {
            hot_ppm: 50_000,
            exponent: 0.8,
            period_requests: 50_000,
            request_bytes: 16 << 10,
            write_ppm: 300_000,
            stray_ppm: 100_000,
            gap_us: 10_000,
        }
    }
}

impl Workload for Shift {
    fn name(&self) -> &'static str {
        "shift"
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        parameters![self; hot_ppm, exponent, period_requests, request_bytes, write_ppm, stray_ppm, gap_us]
    }

    fn accesses(&self, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
        check(self.period_requests > 0, "period_requests", "must be above 0")?;
        let common = Drift {
            hot_ppm: self.hot_ppm,
            exponent: self.exponent,
            step_requests: self.period_requests,
            request_bytes: self.request_bytes,
            write_ppm: self.write_ppm,
            stray_ppm: self.stray_ppm,
            gap_us: self.gap_us,
        };
        moving(&common, self.name(), Pace { every: self.period_requests, all: true }, volume_bytes, seed)
    }
}

/// How the hot set changes.
struct Pace {
    /// Requests between changes.
    every: u64,
    /// All of it, or one extent.
    all: bool,
}

fn moving(spec: &Drift, name: &'static str, pace: Pace, volume_bytes: u64, seed: u64) -> Result<Accesses, SpecError> {
    check_part(spec.hot_ppm, "hot_ppm")?;
    check(spec.hot_ppm <= 500_000, "hot_ppm", "must be at most 500000")?;
    check_exponent(spec.exponent)?;
    check_request(spec.request_bytes, "request_bytes")?;
    check(spec.request_bytes <= EXTENT, "request_bytes", "must be at most 128 KiB")?;
    check_share(spec.write_ppm, "write_ppm")?;
    check_share(spec.stray_ppm, "stray_ppm")?;
    check_volume(name, volume_bytes, 2 * EXTENT)?;
    let rng = &mut Prng::new(seed);
    let hot = HotSet::new(0, volume_bytes, part(volume_bytes, spec.hot_ppm), EXTENT, spec.exponent, rng);
    Ok(stream(Moving { spec: spec.clone(), pace, volume_bytes, hot, requests: 0, rng: rng.fork(1) }))
}

struct Moving {
    spec: Drift,
    pace: Pace,
    volume_bytes: u64,
    hot: HotSet,
    requests: u64,
    rng: Prng,
}

impl Visits for Moving {
    fn visit(&mut self, script: &mut Script) {
        if self.requests > 0 && self.requests % self.pace.every == 0 {
            self.hot.advance(if self.pace.all { self.hot.count() } else { 1 });
        }
        self.requests += 1;
        let len = self.spec.request_bytes;
        let offset = if self.rng.chance(self.spec.stray_ppm) {
            inside(0, self.volume_bytes, len, &mut self.rng)
        } else {
            inside(self.hot.pick(&mut self.rng), self.hot.extent(), len, &mut self.rng)
        };
        let op = if self.rng.chance(self.spec.write_ppm) { Op::Write } else { Op::Read };
        script.request(op, offset, len);
        script.wait(&mut self.rng, self.spec.gap_us);
    }
}
